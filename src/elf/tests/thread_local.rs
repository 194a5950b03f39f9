//! Thread-local storage and indirect functions: refusals, the index, and images for the dynamic loader.

use object::elf;

use super::validate::set_symbol;
use crate::elf::elf_view::lossy;
use crate::elf::testing::{X86, asm, gcc, preparation, prepare, readelf, run, section};
use crate::elf::{ObjectIndex, Section, TlsBlock, TlsImage};
use crate::{Error, LinkError, ObjectError, SectionConflicts};

#[test]
fn thread_local_kinds_go_with_thread_local_symbols() {
    let refused = |source: &str, what: &str| {
        let error = prepare(X86, &asm(source)).unwrap_err();
        assert!(
            matches!(error, Error::Link(LinkError::ThreadLocal { .. }) | Error::Object(ObjectError::Malformed { .. })),
            "{source}: {error:?}"
        );
        assert!(error.to_string().contains(what), "{source}: {error}");
    };
    let data = ".section .tdata,\"awT\",@progbits\nv: .quad 1\n.data\nplain: .quad 0\n.text\n";
    // LLVM's assembler makes the symbol of such a kind thread-local, so these use section names.
    refused(&format!("{data}.quad 0\n.reloc 0, R_X86_64_TPOFF64, .data"), "is not thread-local");
    refused(&format!("{data}.quad 0\n.reloc 0, R_X86_64_TLSGD, .text"), "is not thread-local");
    refused(&format!("{data}.quad 0\n.reloc 0, R_X86_64_64, .tdata"), "is thread-local");
    refused(&format!("{data}.quad 0, 0\n.reloc 0, R_X86_64_TLSDESC, .tdata"), "no LLVM links");
    assert!(prepare(X86, &asm(&format!("{data}.quad 0\n.reloc 0, R_X86_64_TPOFF64, .tdata"))).is_ok());

    let mut moved = asm(&format!("{data}.type v,@object"));
    set_symbol(&mut moved, "v", 4, &[elf::STT_OBJECT.0]);
    assert!(prepare(X86, &moved).unwrap_err().to_string().contains("one is thread-local"));
    let mut moved = asm(&format!("{data}.type plain,@object"));
    set_symbol(&mut moved, "plain", 4, &[elf::STT_TLS.0]);
    assert!(prepare(X86, &moved).unwrap_err().to_string().contains("one is thread-local"));
    let placed = |binding: &str, section: u16| {
        let source = format!(".section .tdata,\"awT\",@progbits\n{binding}\nv: .quad 1\n.type v,@tls_object");
        let mut bytes = asm(&source);
        set_symbol(&mut bytes, "v", 6, &section.to_le_bytes());
        bytes
    };
    refused_as(&placed(".globl v", elf::SHN_ABS.0), "absolute");
    let local = prepare(X86, &placed("", elf::SHN_COMMON.0)).unwrap_err().to_string();
    assert!(local.contains("is common and local"), "{local}");
    prepare(X86, &placed(".globl v", elf::SHN_COMMON.0)).unwrap();
    refused("  .section .tcode,\"axT\",@progbits\n nop", "no section that a thread could have");
    refused("  .section .tarray,\"awT\",@init_array\n .quad 0", "no section that a thread could have");
}

#[track_caller]
fn refused_as(bytes: &[u8], what: &str) {
    let error = prepare(X86, bytes).unwrap_err();
    assert!(
        matches!(error, Error::Link(LinkError::ThreadLocal { .. })) && error.to_string().contains(what),
        "{error:?}"
    );
}

#[test]
fn the_index_says_how_variables_are_reached() {
    let index = |source: &str, model: &str| {
        let bytes = gcc(&["-fPIC", "-O1", &format!("-ftls-model={model}")], source);
        prepare(X86, &bytes).unwrap().index
    };
    let statics = |index: &ObjectIndex| {
        let of = index.thread_local.as_ref();
        let mut names: Vec<_> = of.iter().flat_map(|t| &t.statics).map(|name| index.name(*name).to_owned()).collect();
        names.sort();
        (of.is_some_and(|t| t.own_static), names)
    };
    let own = "static _Thread_local int x = 3; int f(void) { return ++x; }";
    let outer = "extern _Thread_local int x; _Thread_local int y; int f(void) { return x + y; }";
    assert_eq!(statics(&index(own, "global-dynamic")), (false, vec![]));
    assert_eq!(statics(&index(own, "local-dynamic")), (false, vec![]));
    assert_eq!(statics(&index(own, "initial-exec")), (true, vec![]));
    assert_eq!(statics(&index(outer, "global-dynamic")), (false, vec![]));
    assert_eq!(statics(&index(outer, "initial-exec")), (true, vec!["x".to_owned(), "y".to_owned()]));
    let plain = index("int f(void) { return 1; }", "initial-exec");
    assert!(plain.thread_local.is_none());
    let relocated = |source| index(source, "global-dynamic").thread_local.unwrap().relocated;
    assert!(relocated("int n; _Thread_local int *p = &n; int *f(void) { return p; }"));
    assert!(!relocated("_Thread_local int *p; int *f(void) { return p; }"));
}

#[test]
fn thread_local_sections_have_names_of_their_own() {
    let section = |n: u32| format!(".section .tdata,\"awT\",@progbits,unique,{n}\n.globl v{n}\nv{n}: .quad {n}\n");
    let bytes = asm(&(1..5).map(section).collect::<String>());
    for conflicts in [SectionConflicts::Rename, SectionConflicts::Harmonize, SectionConflicts::Reject] {
        let prepared = preparation(X86, conflicts).prepare("test.o", &bytes).unwrap();
        let index = &prepared.index;
        let mut names: Vec<_> =
            index.thread_local.as_ref().unwrap().sections.iter().map(|s| index.section_name(*s)).collect();
        assert_eq!(names.len(), 4);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 4, "{names:?}");
    }
}

#[test]
fn indirect_functions_become_functions() {
    let source = "static int one(void) { return 1; } static void *pick(void) { return one; }
        int chosen(void) __attribute__((ifunc(\"pick\"))); static int own(void) __attribute__((ifunc(\"pick\")));
        int f(void) { return own(); }";
    let bytes = gcc(&["-fPIC"], source);
    let prepared = prepare(X86, &bytes).unwrap();
    let symbols = readelf(&prepared.bytes, &["-sW"]);
    assert!(!symbols.contains("IFUNC"), "{symbols}");
    let index = &prepared.index;
    let mut names: Vec<_> = index.indirect.iter().map(|(name, _)| index.name(*name)).collect();
    names.sort_unstable();
    assert_eq!(names, ["chosen", "own"]);
    // Both are at `pick`, as readelf shows for the object.
    let text = section(&bytes, ".text", 0).1;
    let listed = readelf(&bytes, &["-sW"]);
    let pick = listed.lines().find(|line| line.ends_with(" pick")).unwrap();
    let value = u64::from_str_radix(pick.split_whitespace().nth(1).unwrap(), 16).unwrap();
    assert!(index.indirect.iter().all(|(_, at)| *at == text.offset + value), "{:?}", index.indirect);
    let mut in_data = asm(".data\n.globl x\nx: .quad 0\n.type x,@object");
    set_symbol(&mut in_data, "x", 4, &[elf::STB_GLOBAL.0 << 4 | elf::STT_GNU_IFUNC.0]);
    let error = prepare(X86, &in_data).unwrap_err();
    assert!(
        matches!(&error, Error::Object(ObjectError::IndirectFunction { symbol, .. }) if symbol == "x"),
        "{error:?}"
    );
}

/// Makes a section of this size and alignment.
fn tls(size: u64, alignment: u64, has_contents: bool) -> Section {
    Section { name: Default::default(), kind: 0, flags: 0, size, alignment, offset: 0, has_contents }
}

#[test]
fn blocks_have_contents_first_and_keep_alignments() {
    let block =
        TlsBlock::new(&[tls(3, 1, false), tls(5, 4, true), tls(8, 64, true), tls(1, 0, true), tls(16, 16, false)])
            .unwrap();
    // .tdata: 0..5, 64..72, 72..73; .tbss: 73..76, 80..96
    assert_eq!(block.offsets, [73, 0, 64, 72, 80]);
    assert_eq!((block.content_size, block.size, block.alignment), (73, 96, 64));
    for impossible in [
        &[tls(u64::MAX, 1, false)][..],
        &[tls(1, 1, true), tls(1, 1 << 63, false)],
        &[tls(1 << 46, 1, false), tls(1 << 46, 1, false), tls(1, 1, false)],
    ] {
        assert_eq!(TlsBlock::new(impossible), None);
    }
}

#[test]
fn images_are_what_readelf_takes_for_shared_objects() {
    let block = TlsBlock::new(&[tls(40, 8, true), tls(100, 4096, false)]).unwrap();
    for (machine, kind) in
        [(crate::elf::EM_X86_64, "R_X86_64_TPOFF64"), (crate::elf::EM_AARCH64, "R_AARCH64_TLS_TPREL")]
    {
        for fixed in [false, true] {
            let image = TlsImage::new(machine, &block, fixed);
            let mut bytes = image.head.clone();
            bytes.resize(image.size as usize, 0x11);
            let text = readelf(&bytes, &["-hldrW"]);
            let has = |what: &str| assert!(text.contains(what), "{what}: {text}");
            has("DYN (Shared object file)");
            // llvm-readelf: offset, address, physical address, size in the file, size in memory, flags, alignment
            let segment = |name: &str| -> Vec<&str> {
                let line = text
                    .lines()
                    .find(|line| line.trim_start().starts_with(name))
                    .unwrap_or_else(|| panic!("{name}: {text}"));
                line.split_whitespace().collect()
            };
            assert_eq!(
                segment("TLS")[1..],
                ["0x001000", "0x0000000000001000", "0x0000000000001000", "0x000028", "0x001064", "R", "0x1000"]
            );
            assert_eq!(segment("LOAD")[4..], ["0x001028", "0x001028", "RW", "0x10000"]);
            assert_eq!(segment("GNU_STACK")[6], "RW", "or stacks become executable");
            // llvm-readelf finds relocations only by section headers.
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("image"), &bytes).unwrap();
            let relocations = lossy(&run(dir.path(), "readelf", &["-rDW", "image"]).stdout).into_owned();
            assert_eq!(relocations.contains(kind), fixed, "{relocations}");
            assert_eq!(text.contains("STATIC_TLS"), fixed, "{text}");
            assert_eq!(image.distance_at.is_some(), fixed);
            if let Some(at) = image.distance_at {
                assert!(relocations.contains(&format!("{at:016x}")), "{relocations}");
            }
        }
    }
}
