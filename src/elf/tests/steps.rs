use std::borrow::Cow;
use std::error::Error as StdError;
use std::sync::Arc;

use crate::elf::elf_abi::{LE, SHT_CREL, SHT_RELA, field};
use crate::elf::testing::{
    ARM, X86, asm, asm_arm, build, check, clang, contents, gcc, preparation, prepare, put, put_header, readelf, run,
    section, view,
};
use crate::elf::{Preparation, Target};
use crate::{
    Change, ChangeKind, Error, Limits, LinkPlan, ObjectError, ObjectInput, ObjectPlugin, ObjectReport, Result,
    SectionConflicts,
};

const SOURCE: &str = "
    extern int callee(int); extern int table[8]; static int local[100];
    int far(int i) { return table[i] + local[i + 3]; }
    int *address(void) { return &table[5]; }
    int caller(int x) { return callee(x) + far(x) - callee(x - 1); }
    void *pointers[] = { caller, far, &local[7] };";

/// Relocations as (patched section, offset, symbol, kind, addend).
fn relocations(bytes: &[u8]) -> Vec<(String, u64, u32, u32, i64)> {
    let view = view(bytes);
    let mut all = Vec::new();
    for (index, header) in view.sections().filter(|(_, h)| h.kind == SHT_RELA) {
        for entry in view.relocations(index, &header).unwrap().unwrap() {
            let info = entry.r_info.get(LE);
            let target = view.label(header.info);
            all.push((target, entry.r_offset.get(LE), (info >> 32) as u32, info as u32, entry.r_addend.get(LE)));
        }
    }
    all
}

#[test]
fn an_ordinary_object_is_not_copied() {
    for bytes in [gcc(&["-O2", "-g"], SOURCE), clang(&["-O2"], SOURCE), build("gcc", &["-c"], "c", "")] {
        let prepared = prepare(X86, &bytes).unwrap();
        assert!(matches!(prepared.bytes, Cow::Borrowed(same) if std::ptr::eq(same, bytes.as_slice())));
        assert!(prepared.changes.is_empty());
    }
}

#[test]
fn compact_relocations_become_the_ordinary_ones() {
    for (target, options) in [(X86, &["-O2"][..]), (ARM, &["-O2", "-target", "aarch64-linux-gnu"])] {
        let crel = clang(&[options, &["-Wa,--crel,--allow-experimental-crel"]].concat(), SOURCE);
        let plain = clang(options, SOURCE);
        let count = view(&crel).sections().filter(|(_, h)| h.kind == SHT_CREL).count();
        assert!(count >= 2, "no compact relocations to test with");
        assert!(relocations(&crel).is_empty());
        let prepared = prepare(target, &crel).unwrap();
        assert_eq!(relocations(&prepared.bytes), relocations(&plain));
        assert!(relocations(&plain).len() > 10);
        assert_eq!(prepared.changes.len(), count);
        let ChangeKind::CrelDecoded { count } = prepared.changes[0].what else { panic!() };
        assert!(count > 0);
        // llvm-readelf prints the same for the compact and the decoded form.
        let lines = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| line.contains(" R_"));
            lines
                .map(|line| {
                    line.split_whitespace()
                        .skip(usize::from(line.starts_with("0000")))
                        .filter(|w| w.starts_with("R_") || w.len() < 16)
                        .collect::<Vec<_>>()
                        .join(" ")
                })
                .collect()
        };
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("crel.o"), &crel).unwrap();
        let before = run(dir.path(), "llvm-readelf-22", &["-rW", "crel.o"]);
        let count = |text: &str, kind: &str| lines(text).iter().filter(|line| line.contains(kind)).count();
        let (before, after) =
            (String::from_utf8_lossy(&before.stdout).into_owned(), readelf(&prepared.bytes, &["-rW"]));
        for kind in ["R_X86_64_PLT32", "R_X86_64_64", "R_AARCH64_CALL26", "R_AARCH64_ABS64"] {
            assert_eq!(count(&before, kind), count(&after, kind), "{kind}");
        }
    }
}

#[test]
fn hostile_compact_relocations_are_refused_before_memory_is_taken() {
    let crel = clang(&["-O2", "-Wa,--crel,--allow-experimental-crel"], SOURCE);
    let (_, header) = section(&crel, ".crel.text", 0);
    let with = |contents: &[u8]| {
        let mut bytes = crel.clone();
        bytes[header.offset as usize..][..contents.len()].copy_from_slice(contents);
        prepare(X86, &bytes).map(drop)
    };
    // 2^58 entries, 2^20 entries in a few bytes, an entry that never ends, and no addends.
    assert!(matches!(
        with(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]),
        Err(Error::Object(ObjectError::TooManyRelocations { .. }))
    ));
    let error = with(&[0x84, 0x80, 0x80, 0x04]).unwrap_err();
    assert!(error.to_string().contains("1048576 compact relocations in"), "{error}");
    assert!(matches!(with(&[0xff; 10]), Err(Error::Object(ObjectError::Malformed { .. }))));
    let first = crel[header.offset as usize];
    assert!(matches!(with(&[first & !4]), Err(Error::Object(ObjectError::UnsupportedRelocation { .. }))));
    let mut cut = crel.clone();
    let (index, _) = section(&crel, ".crel.text", 0);
    put_header(&mut cut, index, field::SH_SIZE, &(header.size - 2).to_le_bytes());
    assert!(matches!(prepare(X86, &cut), Err(Error::Object(ObjectError::Malformed { .. }))));
}

#[test]
fn compressed_sections_are_what_objcopy_makes_of_them() {
    for (format, bytes) in [
        ("zlib", gcc(&["-g", "-gz=zlib", "-O2"], SOURCE)),
        ("zlib", clang(&["-g", "-gz=zlib"], SOURCE)),
        ("zstd", clang(&["-g", "-gz=zstd"], SOURCE)),
    ] {
        let prepared = prepare(X86, &bytes).unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("in.o"), &bytes).unwrap();
        run(dir.path(), "llvm-objcopy-22", &["--decompress-debug-sections", "in.o", "out.o"]);
        let oracle = std::fs::read(dir.path().join("out.o")).unwrap();
        assert!(!prepared.changes.is_empty());
        for change in &prepared.changes {
            let ChangeKind::Decompressed { format: found, .. } = &change.what else { panic!("{change}") };
            assert_eq!(found, format);
            let name = &change.section.as_ref().unwrap().name;
            assert_eq!(contents(&prepared.bytes, name), contents(&oracle, name), "{name}");
            assert_eq!(section(&prepared.bytes, name, 0).1.flags, section(&oracle, name, 0).1.flags, "{name}");
        }
        readelf(&prepared.bytes, &["-SW"]);
    }
}

#[test]
fn damaged_compression_is_refused() {
    let bytes = gcc(&["-g", "-gz=zlib"], SOURCE);
    let (index, header) = section(&bytes, ".debug_info", 0);
    let with = |offset: u64, value: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[(header.offset + offset) as usize..][..value.len()].copy_from_slice(value);
        prepare(X86, &bytes).map(drop)
    };
    assert!(matches!(with(0, &9_u32.to_le_bytes()), Err(Error::Object(ObjectError::Malformed { .. }))));
    assert!(matches!(
        with(8, &(1_u64 << 40).to_le_bytes()),
        Err(Error::Object(ObjectError::DecompressedTooLarge { .. }))
    ));
    assert!(matches!(with(8, &1_u64.to_le_bytes()), Err(Error::Object(ObjectError::Malformed { .. }))));
    assert!(matches!(with(8, &100_000_u64.to_le_bytes()), Err(Error::Object(ObjectError::Malformed { .. }))));
    assert!(matches!(with(24, &[0; 8]), Err(Error::Object(ObjectError::Malformed { .. }))));
    // No memory is allocated beyond the largest possible expansion, in either format.
    let most = [("zlib", 1032 * (header.size - 24)), ("zstd", (header.size - 24) / 4 * (128 << 10))];
    for ((word, most), kind) in most.into_iter().zip(1_u32..) {
        let mut claim = [kind.to_le_bytes(), [0; 4]].concat();
        claim.extend((most + 1).to_le_bytes());
        let error = with(0, &claim).unwrap_err().to_string();
        assert!(error.contains(&format!("of {word} cannot stand for {}", most + 1)), "{error}");
        claim.splice(8.., most.to_le_bytes());
        let error = with(0, &claim).unwrap_err().to_string();
        assert!(error.contains("cannot be decompressed") && !error.contains("stand for"), "{error}");
    }
    let mut short = bytes.clone();
    put_header(&mut short, index, field::SH_SIZE, &10_u64.to_le_bytes());
    assert!(matches!(prepare(X86, &short), Err(Error::Object(ObjectError::Malformed { .. }))));
}

/// A zstd file may consist of many frames, and of skippable ones (RFC 8878, 3.1).
#[test]
fn compressed_frames_follow_each_other() {
    let compressed = clang(&["-g", "-gz=zstd"], SOURCE);
    let (index, header) = section(&compressed, ".debug_info", 0);
    let plain = contents(&prepare(X86, &compressed).unwrap().bytes, ".debug_info").to_vec();
    let (start, end) = (header.offset as usize, (header.offset + header.size) as usize);
    let frame = compressed[start + 24..end].to_vec();
    let twice = [&compressed[start..end], b"\x50\x2a\x4d\x18\x03\0\0\0abc", &frame[..]].concat();
    let mut bytes = compressed.clone();
    let at = bytes.len() as u64;
    bytes.extend(&twice);
    put_header(&mut bytes, index, field::SH_OFFSET, &at.to_le_bytes());
    put_header(&mut bytes, index, field::SH_SIZE, &(twice.len() as u64).to_le_bytes());
    let size = |bytes: &mut Vec<u8>, size: usize| put(bytes, at + 8, &(size as u64).to_le_bytes());
    size(&mut bytes, 2 * plain.len());
    let prepared = prepare(X86, &bytes).unwrap();
    assert_eq!(contents(&prepared.bytes, ".debug_info"), [&plain[..], &plain[..]].concat());
    for wrong in [2 * plain.len() - 1, 2 * plain.len() + 1, plain.len()] {
        size(&mut bytes, wrong);
        assert!(matches!(prepare(X86, &bytes), Err(Error::Object(ObjectError::Malformed { .. }))), "{wrong}");
    }
}

#[test]
fn relocations_that_patch_nothing_are_left_out() {
    let profile = ".text\n.globl a\na: ret\n.globl b\nb: ret\n.cg_profile a, b, 10";
    for (target, bytes) in [(X86, asm(profile)), (ARM, asm_arm(profile))] {
        let (index, header) = section(&bytes, ".rel.llvm.call-graph-profile", 0);
        assert_eq!(header.kind, 9);
        let prepared = prepare(target, &bytes).unwrap();
        assert!(
            matches!(prepared.changes[..], [Change { what: ChangeKind::Dropped { .. }, .. }]),
            "{:?}",
            prepared.changes
        );
        assert_eq!(view(&prepared.bytes).header(index).unwrap().kind, 0);
        readelf(&prepared.bytes, &["-aW"]);
        // A relocation that patches something stays.
        let mut other = bytes.clone();
        other[header.offset as usize + 24] = 2;
        assert!(matches!(prepare(target, &other), Err(Error::Object(ObjectError::UnsupportedRelocation { .. }))));
    }
    let bytes = asm_arm("f: nop\n.reloc f, R_AARCH64_NONE, g");
    assert_eq!(prepare(ARM, &bytes).unwrap().changes.len(), 1);
    let bytes = asm("f: nop\n.reloc f, R_X86_64_NONE, g");
    assert!(prepare(X86, &bytes).unwrap().changes.is_empty());
    let old = preparation(Target { llvm: 16, ..X86 }, SectionConflicts::Rename);
    assert_eq!(old.prepare("test.o", &bytes).unwrap().changes.len(), 1);
}

struct Renamer;

impl ObjectPlugin for Renamer {
    fn name(&self) -> &str {
        "renamer"
    }

    fn prepare<'data>(
        &self,
        object: ObjectInput<'data>,
        report: &mut ObjectReport,
    ) -> Result<Cow<'data, [u8]>, Box<dyn StdError + Send + Sync>> {
        match object.name() {
            "same.o" => Ok(Cow::Borrowed(object.bytes())),
            "copied.o" => Ok(Cow::Owned(object.bytes().to_vec())),
            "swapped.o" => Ok(Cow::Owned(clang(&["-Wa,--crel,--allow-experimental-crel"], SOURCE))),
            "described.o" => {
                report.change(None, ChangeKind::Other("swapped".into()));
                Ok(Cow::Owned(gcc(&[], SOURCE)))
            }
            "foreign.o" => Ok(Cow::Owned(clang(&["-target", "aarch64-linux-gnu"], SOURCE))),
            "broken.o" => Ok(Cow::Borrowed(&object.bytes()[..70])),
            _ => Err("not today".into()),
        }
    }
}

#[test]
fn a_callers_plugin_runs_before_what_is_built_in() {
    let plugins: Vec<Arc<dyn ObjectPlugin>> = vec![Arc::new(Renamer)];
    let preparation = Preparation::new(X86, SectionConflicts::Rename, Limits::default(), plugins);
    let bytes = gcc(&[], "int x;");
    for name in ["same.o", "copied.o"] {
        assert!(preparation.prepare(name, &bytes).unwrap().changes.is_empty());
    }
    let swapped = preparation.prepare("swapped.o", &bytes).unwrap();
    assert!(matches!(swapped.changes[0].what, ChangeKind::Rewritten { .. }));
    assert_eq!(swapped.changes[0].plugin, "renamer");
    assert!(matches!(swapped.changes[1].what, ChangeKind::CrelDecoded { .. }));
    let described = preparation.prepare("described.o", &bytes).unwrap();
    assert_eq!(described.changes.len(), 1);
    assert_eq!(described.changes[0].to_string(), "renamer: swapped");
    // Errors in a plugin's bytes name the plugin, with the cause as their source.
    let cause = |name: &str| match preparation.prepare(name, &bytes) {
        Err(Error::Object(ObjectError::Plugin { plugin, source, .. })) if plugin == "renamer" => {
            *source.downcast::<Error>().unwrap()
        }
        other => panic!("{other:?}"),
    };
    assert!(matches!(cause("broken.o"), Error::Object(ObjectError::Truncated { .. })));
    assert!(matches!(cause("foreign.o"), Error::Object(ObjectError::WrongMachine { .. })));
    let error = preparation.prepare("refused.o", &bytes).unwrap_err();
    assert!(matches!(&error, Error::Object(ObjectError::Plugin { plugin, .. }) if plugin == "renamer"), "{error:?}");
    assert_eq!(error.source().unwrap().to_string(), "not today");
}

#[test]
fn a_plan_tells_everything_and_survives_json() {
    let source = "
        .section .code,\"ax\",@progbits,unique,1\n .globl f\n .type f,@function\n f: call g@PLT\n ret\n .size f, .-f
        .section .code,\"aw\",@progbits,unique,2\n .quad f
        .section .init_array,\"aw\",@init_array\n .quad f
        .weak h\n .quad h
        .comm shared,64,16";
    let bytes = asm(source);
    let plan = check(&bytes).unwrap();
    assert!(plan.loads(), "{plan}");
    assert_eq!(plan.initializers, 2);
    assert_eq!(plan.bytes, bytes.len() as u64);
    assert_eq!(plan.imports.iter().map(|i| (i.name.as_str(), i.weak)).collect::<Vec<_>>(), [("g", false), ("h", true)]);
    let again: LinkPlan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
    assert_eq!(again, plan);
    let text = plan.to_string();
    for part in ["test.o: x86-64 object", ".code.slabjit.1", "RW-", "R_X86_64_PLT32", "h  (weak)", "common", "\nloads"]
    {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}

#[test]
fn a_plan_tells_every_problem() {
    let plan = check(&asm(".globl f\nf: .reloc ., R_X86_64_COPY, f\n.reloc ., R_X86_64_GLOB_DAT, f\n.long 0\n.section .text.big,\"axw\"\n.balign 8388608\nret")).unwrap();
    assert!(!plan.loads());
    let text = plan.to_string();
    for part in ["R_X86_64_COPY", "R_X86_64_GLOB_DAT", "writable and executable", "8388608", "does not load"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    assert_eq!(plan.problems.len(), 4, "{text}");
}

#[test]
fn extended_section_numbering_is_understood() {
    let mut source = String::from(".globl last\n");
    for i in 0..66_000 {
        source.push_str(&format!(".section .s{i},\"a\"\n"));
    }
    source.push_str(".section .hot,\"ax\"\nlast: call f\nret\n.size last, .-last\n.type last,@function\n");
    let bytes = asm(&source);
    assert_eq!(u16::from_le_bytes([bytes[60], bytes[61]]), 0);
    let prepared = prepare(X86, &bytes).unwrap();
    let last = prepared.index.definitions[0];
    assert_eq!(prepared.index.name(last.name), "last");
    assert!(last.section > 66_000);
    assert_eq!(prepared.index.section_name(last.section), ".hot");
    // Without the table of large indices the symbols have no sections.
    let mut without = bytes.clone();
    let (index, _) = section(&without, ".symtab_shndx", 0);
    put_header(&mut without, index, field::SH_TYPE, &1_u32.to_le_bytes());
    assert!(matches!(prepare(X86, &without), Err(Error::Object(ObjectError::Malformed { .. }))));
    let limits = Limits { sections: 66_000, ..Limits::default() };
    let limited = Preparation::new(X86, SectionConflicts::Rename, limits, Vec::new());
    assert!(
        matches!(limited.prepare("test.o", &bytes), Err(Error::Object(ObjectError::TooManySections { count, .. })) if count > 66_000)
    );
}

#[test]
fn old_llvm_is_told_apart() {
    let bytes = asm(".globl f\nf: .long 0\n.reloc f, R_X86_64_SIZE32, f");
    let for_llvm = |llvm| preparation(Target { llvm, ..X86 }, SectionConflicts::Rename);
    assert!(for_llvm(22).prepare("test.o", &bytes).is_ok());
    let error = for_llvm(19).prepare("test.o", &bytes).unwrap_err();
    assert!(
        matches!(&error, Error::Object(ObjectError::UnsupportedRelocation { reason, .. }) if reason.contains("LLVM 20")),
        "{error}"
    );
    // Another kind carries a kind that an LLVM lacks.
    let bytes = asm(".globl f\nf: .long 0, 0\n.reloc f, R_X86_64_PC16, g\n.reloc f + 4, R_X86_64_PC16, f");
    assert_eq!(for_llvm(22).prepare("test.o", &bytes).unwrap().index.lifted.len(), 0);
    let prepared = for_llvm(19).prepare("test.o", &bytes).unwrap();
    assert_eq!(prepared.index.lifted.len(), 2);
    let (_, text) = section(&prepared.bytes, ".text", 0);
    assert_eq!(prepared.index.lifted(text.offset).map(|k| k.name), Some("R_X86_64_PC16"));
    assert!(prepared.index.lifted(text.offset + 2).is_none());
    // Two lifted relocations of one field are ambiguous.
    let bytes = asm(".globl f\nf: .long 0\n.reloc f, R_X86_64_PC16, g\n.reloc f, R_X86_64_PC8, f");
    assert!(for_llvm(22).prepare("test.o", &bytes).is_ok());
    let error = for_llvm(19).prepare("test.o", &bytes).unwrap_err();
    assert!(error.to_string().contains("two relocations"), "{error}");
    // LLVM 15 and 16 crash on a relocation without a symbol.
    let bytes = asm("f: .quad 0\n.reloc f, R_X86_64_64, x\nx = 5");
    assert!(for_llvm(19).prepare("test.o", &bytes).is_ok());
    let error = for_llvm(16).prepare("test.o", &bytes).unwrap_err();
    assert!(
        matches!(&error, Error::Object(ObjectError::UnsupportedRelocation { reason, .. }) if reason.contains("crashes")),
        "{error}"
    );
}
