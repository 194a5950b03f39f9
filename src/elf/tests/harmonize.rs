use std::collections::HashSet;
use std::path::Path;

use crate::elf::elf_abi::{SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE};
use crate::elf::testing::{ARM, X86, asm, check, contents, gcc, names, preparation, prepare, readelf, run, section};
use crate::{ChangeKind, Error, ObjectError, SectionConflicts};

/// The shape that CuTe DSL 4.4.1 emits: function pointers in a second section named `.text`.
const TWO_TEXT: &str = r#"
@state = internal global ptr null, align 8
@entry_info = internal global { ptr, i32, i32 } { ptr @entry, i32 4, i32 0 }, section ".text", align 8
@llvm.global_dtors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @unload, ptr null }]
declare i32 @rt_init_once(ptr, ptr, ptr)
declare void @rt_unload_once(ptr)
declare void @rt_set_error(ptr, ptr)
define internal void @unload() { call void @rt_unload_once(ptr @state) ret void }
define i32 @helper(i32 %x) { %r = add i32 %x, 1 ret i32 %r }
define i32 @entry(i32 %a) {
  %r = call i32 @rt_init_once(ptr @state, ptr @helper, ptr @entry_info)
  %c = icmp eq i32 %r, 0
  br i1 %c, label %ok, label %bad
ok: %v = call i32 @helper(i32 41) ret i32 %v
bad: call void @rt_set_error(ptr @state, ptr @entry_info) ret i32 -1
}
"#;

const FLAGS: u64 = SHF_ALLOC | SHF_WRITE | SHF_EXECINSTR;

fn llc(source: &Path, triple: &str, code: &str, relocation: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        format!("-mtriple={triple}-unknown-linux-gnu"),
        format!("-code-model={code}"),
        format!("-relocation-model={relocation}"),
        "-filetype=obj".into(),
        source.display().to_string(),
        "-o".into(),
        "object".into(),
    ];
    run(dir.path(), "llc-22", &args);
    std::fs::read(dir.path().join("object")).unwrap()
}

fn assert_unique(bytes: &[u8]) {
    let names = names(bytes);
    let unique: HashSet<_> = names.iter().collect();
    assert_eq!(unique.len(), names.len(), "{names:?}");
}

#[test]
fn the_founding_objects_get_names_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let written = dir.path().join("two-text.ll");
    std::fs::write(&written, TWO_TEXT).unwrap();
    let mut seen = 0;
    for triple in ["x86_64", "aarch64"] {
        for code in ["small", "large"] {
            for relocation in ["pic", "static"] {
                if (triple, code, relocation) == ("aarch64", "large", "pic") {
                    continue; // LLVM has no such combination.
                }
                let bytes = llc(&written, triple, code, relocation);
                let target = if triple == "x86_64" { X86 } else { ARM };
                let (_, first) = section(&bytes, ".text", 0);
                let (_, second) = section(&bytes, ".text", 1);
                assert_ne!(first.flags, second.flags);
                let prepared = prepare(target, &bytes).unwrap();
                assert_unique(&prepared.bytes);
                readelf(&prepared.bytes, &["-aW"]);
                let (index, renamed) = section(&prepared.bytes, ".text.slabjit.1", 0);
                assert_eq!((renamed.flags, renamed.offset, renamed.size), (second.flags, second.offset, second.size));
                let (_, relocations) = section(&prepared.bytes, ".rela.text.slabjit.1", 0);
                assert_eq!(relocations.info, index);
                assert_eq!(prepared.changes.len(), 2);
                assert!(prepared.index.sections.iter().any(|s| prepared.index.name(s.name) == ".text.slabjit.1"));
                assert!(check(&bytes).unwrap().loads());
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 7);
}

#[test]
fn a_linker_makes_the_same_of_the_renamed_object() {
    let dir = tempfile::tempdir().unwrap();
    let written = dir.path().join("two-text.ll");
    std::fs::write(&written, TWO_TEXT).unwrap();
    let bytes = llc(&written, "x86_64", "small", "pic");
    std::fs::write(dir.path().join("prepared.o"), prepare(X86, &bytes).unwrap().bytes).unwrap();
    let host = "
        #include <stdio.h>
        int entry(int); static int state;
        int rt_init_once(void **s, int (*f)(int), void **info) { *s = &state; state = f(1); return info[0] != (void *)entry; }
        void rt_unload_once(void **s) { printf(\"unload %d\\n\", **(int **)s); }
        void rt_set_error(void *s, void *e) {}
        int main(void) { printf(\"%d\\n\", entry(0)); return 0; }";
    std::fs::write(dir.path().join("host.c"), host).unwrap();
    run(dir.path(), "gcc", &["host.c", "prepared.o", "-o", "host"]);
    let output = run(dir.path(), dir.path().join("host").to_str().unwrap(), &[""; 0]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "42\nunload 2\n");
}

const CONFLICT: &str = "
    .section .code,\"ax\",@progbits,unique,1\n .globl f\nf: ret
    .section .code,\"aw\",@progbits,unique,2\n .globl a\na: .quad f
    .section .code,\"a\",@progbits,unique,3\n .globl b\nb: .quad f
    .section .code,\"aw\",@progbits,unique,4\n .globl c\nc: .quad f
    .section .code.slabjit.1,\"aw\",@progbits\n .quad f";

#[test]
fn sections_that_agree_share_the_new_name() {
    let bytes = asm(CONFLICT);
    let prepared = prepare(X86, &bytes).unwrap();
    let names = names(&prepared.bytes);
    let count = |name: &str| names.iter().filter(|n| *n == name).count();
    assert_eq!(count(".code"), 1, "{names:?}");
    assert_eq!(count(".code.slabjit.2"), 2, "{names:?}");
    assert_eq!(count(".rela.code.slabjit.2"), 2, "{names:?}");
    assert_eq!(count(".code.slabjit.1"), 1, "the name was taken: {names:?}");
    assert_eq!(count(".code.slabjit.3"), 1, "{names:?}");
    assert_eq!(readelf(&bytes, &["-sW"]), readelf(&prepared.bytes, &["-sW"]), "symbols have moved");
}

#[test]
fn harmonize_makes_code_of_all() {
    let bytes = asm(CONFLICT);
    let prepared = preparation(X86, SectionConflicts::Harmonize).prepare("test.o", &bytes).unwrap();
    for nth in 0..4 {
        assert_eq!(section(&prepared.bytes, ".code", nth).1.flags & FLAGS, SHF_ALLOC | SHF_EXECINSTR);
    }
    assert!(prepared.changes.iter().all(|c| matches!(&c.what, ChangeKind::Flags { to, .. } if to == "AX")));
    assert_eq!(prepared.changes.len(), 3);
    let data = asm(".section .d,\"a\",@progbits,unique,1\n.quad 1\n.section .d,\"aw\",@progbits,unique,2\n.quad 2");
    let prepared = preparation(X86, SectionConflicts::Harmonize).prepare("test.o", &data).unwrap();
    assert_eq!(section(&prepared.bytes, ".d", 0).1.flags & FLAGS, SHF_ALLOC | SHF_WRITE);
}

#[test]
fn reject_names_the_difference() {
    let error = preparation(X86, SectionConflicts::Reject).prepare("test.o", asm(CONFLICT)).unwrap_err();
    let Error::Object(ObjectError::SectionConflict { section, count, difference, .. }) = &error else {
        panic!("{error:?}")
    };
    assert_eq!((section.as_str(), *count), (".code", 4));
    for part in ["AX", "WA"] {
        assert!(difference.contains(part), "{difference}");
    }
    assert!(preparation(X86, SectionConflicts::Reject).prepare("test.o", gcc(&["-O2"], "int x;")).is_ok());
}

/// A record of an unwind table.
const CIE: &str = ".long 12, 0, 0x78010001, 16";

#[test]
fn names_with_a_meaning_are_kept() {
    for name in [
        ".init_array",
        ".init_array.7",
        ".fini_array",
        ".ctors",
        ".dtors.00003",
        ".preinit_array",
        ".eh_frame",
        ".debug_info",
        ".note.mine",
        ".tm_clone_table",
        "linker_set",
        "_set9",
    ] {
        // A table of zeros would not count as a table.
        let contents = if name == ".eh_frame" { CIE } else { ".quad 0" };
        let both = |flags: &str| {
            asm(&format!(
                ".section {name},\"{flags}\",@progbits,unique,1\n{contents}\n\
                 .section {name},\"aw\",@progbits,unique,2\n{contents}"
            ))
        };
        let bytes = both("a");
        for policy in [SectionConflicts::Rename, SectionConflicts::Harmonize] {
            let prepared = preparation(X86, policy).prepare("test.o", &bytes).unwrap();
            for nth in 0..2 {
                assert_eq!(section(&prepared.bytes, name, nth).1.flags & FLAGS, SHF_ALLOC | SHF_WRITE, "{name}");
            }
        }
        let error = prepare(X86, &both("ax")).unwrap_err();
        assert!(matches!(error, Error::Object(ObjectError::WritableAndExecutable { .. })), "{name}: {error:?}");
    }
    for name in [".set", "a.b", "9set", "-x"] {
        let bytes = asm(&format!(
            ".section \"{name}\",\"a\",@progbits,unique,1\n.quad 0\n.section \
             \"{name}\",\"aw\",@progbits,unique,2\n.quad 0"
        ));
        assert!(names(&prepare(X86, &bytes).unwrap().bytes).contains(&format!("{name}.slabjit.1")), "{name}");
    }
}

#[test]
fn allocation_and_contents_count_as_differences() {
    // LLVM compares neither, and links such objects wrongly.
    let bytes = asm(".section .x,\"\",@progbits,unique,1\n.quad 1\n.section .x,\"a\",@progbits,unique,2\n.quad 2");
    assert!(names(&prepare(X86, &bytes).unwrap().bytes).contains(&".x.slabjit.1".into()));
    let bytes = asm(".section set,\"\",@progbits,unique,1\n.quad 1\n.section set,\"a\",@progbits,unique,2\n.quad 2");
    let prepared = prepare(X86, &bytes).unwrap();
    assert_eq!(section(&prepared.bytes, "set", 0).1.flags & FLAGS, SHF_ALLOC);
    let bytes = asm(".section .x,\"aw\",@nobits,unique,1\n.zero 8\n.section .x,\"aw\",@progbits,unique,2\n.quad 2");
    let prepared = prepare(X86, &bytes).unwrap();
    assert_eq!(contents(&prepared.bytes, ".x.slabjit.1"), 2_u64.to_le_bytes());
    // GNU as and clang give .eh_frame different types; that is no difference.
    let bytes = asm(&format!(
        ".section .eh_frame,\"a\",@progbits,unique,1\n{CIE}\n.section .eh_frame,\"a\",@unwind,unique,2\n{CIE}"
    ));
    assert!(prepare(X86, &bytes).unwrap().changes.is_empty());
}

#[test]
fn names_of_jitlinks_own_are_given_up() {
    let bytes =
        asm(".section .common,\"aw\"\n.quad 1\n.comm c,8,8\n.section $__GOT,\"a\"\n.quad 1\n.section .many0,\"a\"\n");
    for policy in [SectionConflicts::Rename, SectionConflicts::Harmonize, SectionConflicts::Reject] {
        let prepared = preparation(X86, policy).prepare("test.o", &bytes).unwrap();
        let names = names(&prepared.bytes);
        assert!(names.contains(&".common.slabjit.1".into()) && names.contains(&"$__GOT.slabjit.1".into()), "{names:?}");
        assert!(!names.contains(&".common".into()) && !names.contains(&"$__GOT".into()));
    }
}

#[test]
fn many_sections_take_the_other_path() {
    let mut source = String::from(CONFLICT);
    for i in 0..100 {
        source.push_str(&format!("\n.section .pad{i},\"a\"\n.quad {i}"));
    }
    let bytes = asm(&source);
    let names = names(&prepare(X86, &bytes).unwrap().bytes);
    assert_eq!(names.iter().filter(|n| *n == ".code.slabjit.2").count(), 2);
    assert!(prepare(X86, &asm(&source.replace(".section .code,", ".section .other,"))).is_ok());
}

#[test]
fn a_writable_and_executable_section_cannot_be_mended() {
    let bytes = asm(".section .evil,\"awx\"\nret");
    for policy in [SectionConflicts::Rename, SectionConflicts::Harmonize, SectionConflicts::Reject] {
        let error = preparation(X86, policy).prepare("test.o", &bytes).unwrap_err();
        assert!(matches!(error, Error::Object(ObjectError::WritableAndExecutable { .. })), "{error:?}");
    }
}

/// The relocations of a renamed section are renamed after it, unless another section has that name: it may differ.
#[test]
fn a_name_that_another_section_has_is_not_given() {
    let source = ".section .x,\"ax\"\nnop\n.section .x,\"aw\",@progbits,unique,1\n.quad y
        .section .rela.x.slabjit.1,\"aw\"\n.quad 1
        .section .y,\"ax\"\nnop\n.section .y,\"aw\",@progbits,unique,2\n.quad z\n.section .rela.y,\"aw\"\n.quad 2";
    let bytes = asm(source);
    let prepared = prepare(X86, &bytes).unwrap();
    assert_unique(&prepared.bytes);
    section(&prepared.bytes, ".x.slabjit.1", 0);
    section(&prepared.bytes, ".rela.x", 0);
    // A name that was just given counts too.
    section(&prepared.bytes, ".rela.y.slabjit.1", 0);
    section(&prepared.bytes, ".rela.y", 0);
    assert!(prepare(X86, &prepared.bytes).unwrap().changes.is_empty());
}
