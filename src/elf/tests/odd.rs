//! Steps for objects that few tools produce.

use super::validate::{set, set_symbol};
use crate::elf::elf_abi::{SYMBOL_SIZE, field};
use crate::elf::index::ArrayKind;
use crate::elf::testing::{ARM, X86, asm, asm_arm, check, contents, gcc, prepare, put, readelf, section, view};
use crate::elf::{SymbolKind, Target};
use crate::{ChangeKind, Error, LinkError, ObjectError};

/// Asserts that prepared bytes need no more changes.
fn is_settled(target: Target, bytes: &[u8]) {
    assert!(prepare(target, bytes).unwrap().changes.is_empty());
}

/// Returns a symbol's value as readelf prints it.
fn value(bytes: &[u8], name: &str) -> u64 {
    let listed = readelf(bytes, &["-sW"]);
    let line = listed.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
    u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
}

#[test]
fn fragments_become_functions() {
    const NOP: [&[u8]; 2] = [&[0x90], &[0x1f, 0x20, 0x03, 0xd5]];
    // The bytes that `objdump -d` shows for crti.o and crtn.o of glibc 2.36, without their code for gprof.
    const BEGIN: [&[u8]; 2] = [&[0x48, 0x83, 0xec, 8], &[0xfd, 0x7b, 0xbf, 0xa9, 0xfd, 3, 0, 0x91]];
    const END: [&[u8]; 2] = [&[0x48, 0x83, 0xc4, 8, 0xc3], &[0xfd, 0x7b, 0xc1, 0xa8, 0xc0, 0x03, 0x5f, 0xd6]];
    for (i, (target, call)) in [(X86, "call"), (ARM, "bl")].into_iter().enumerate() {
        for (alignment, before) in [(4_u64, BEGIN[i].len()), (32, 32)] {
            let source = format!(
                ".section .init,\"ax\",@progbits\n.balign {alignment}\nnop\n.globl mark\nmark: {call} f\n\
                 .data\n.quad mark, .init + 1"
            );
            let bytes = if i == 0 { asm(&source) } else { asm_arm(&source) };
            let prepared = prepare(target, &bytes).unwrap();
            let code = contents(&prepared.bytes, ".init");
            let expected =
                [BEGIN[i], &NOP[i].repeat((before - BEGIN[i].len()) / NOP[i].len()), contents(&bytes, ".init"), END[i]];
            assert_eq!(code, expected.concat());
            let (_, header) = section(&prepared.bytes, ".init", 0);
            assert_eq!((header.align % alignment, header.size), (0, code.len() as u64));
            assert_eq!(value(&prepared.bytes, "mark"), before as u64 + NOP[i].len() as u64);
            // The reference is relative to the section's symbol, which moved too.
            let old = readelf(&bytes, &["-rW"]);
            let addends = |text: &str| text.lines().filter(|line| line.contains(".init + 1")).count();
            assert_eq!((addends(&old), addends(&readelf(&prepared.bytes, &["-rW"]))), (1, 1));
            let at = |bytes: &[u8]| {
                let (index, header) = section(bytes, ".rela.init", 0);
                view(bytes).relocations(index, &header).unwrap().unwrap()[0].r_offset.get(crate::elf::elf_abi::LE)
            };
            assert_eq!(at(&prepared.bytes), at(&bytes) + before as u64);
            let [array] = prepared.index.arrays[..] else { panic!("{:?}", prepared.index.arrays) };
            assert_eq!((array.kind, array.offset), (ArrayKind::InitCode, header.offset));
            assert!(matches!(prepared.changes[0].what, ChangeKind::MadeFunction { .. }));
            is_settled(target, &prepared.bytes);
            assert_eq!(check(&bytes).unwrap().initializers, 1);
        }
    }
    // A section without the code flag is data.
    let mut data = asm(".section .init,\"ax\",@progbits\nnop");
    set(&mut data, ".init", field::SH_FLAGS, 2);
    assert!(prepare(X86, &data).unwrap().index.arrays.is_empty());
    let halves = [
        ("sub $8, %rsp\ncall f", "stp x29, x30, [sp, #-16]!\nmov x29, sp\nbl f"),
        ("sub $8, %rsp\ncall f", "nop\nstp x29, x30, [sp, #-16]!\nmov x29, sp\nbl f"),
        ("endbr64\nsub $8, %rsp\ncall f", "paciasp\nstp x29, x30, [sp, #-16]!\nmov x29, sp\nbl f"),
        ("add $8, %rsp\nret", "ldp x29, x30, [sp], #16\nret"),
    ];
    for (x86, arm) in halves {
        let of = |code: &str| format!(".section .fini,\"ax\",@progbits\n{code}\n");
        for (target, bytes) in [(X86, asm(&of(x86))), (ARM, asm_arm(&of(arm)))] {
            let error = prepare(target, &bytes).unwrap_err().to_string();
            assert!(error.contains("it begins a function that another object ends, or ends one"), "{error}");
            assert!(!check(&bytes).unwrap().loads());
        }
    }
}

#[test]
fn zeros_behind_unwind_records_are_padding() {
    let frames = |contents: &str| asm(&format!(".section .eh_frame,\"a\",@unwind\n{contents}"));
    let cie = ".byte 0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0, 0, 0";
    let bytes = frames(&format!(".long 12\n{cie}\n.quad 0\n.long 12\n{cie}\n.byte 0, 0, 0"));
    let prepared = prepare(X86, &bytes).unwrap();
    let table = contents(&prepared.bytes, ".eh_frame");
    assert_eq!((table[0], table[24], table.len()), (20, 15, 24 + 16 + 3));
    is_settled(X86, &prepared.bytes);
    // No linker finds a table in it, but references to it keep it.
    let zeros = frames("end: .quad 0\n.data\n.quad end");
    let prepared = prepare(X86, &zeros).unwrap();
    assert!(!prepared.index.sections.iter().any(|section| prepared.index.name(section.name) == ".eh_frame"));
    assert_eq!(contents(&prepared.bytes, ""), contents(&zeros, ".eh_frame"));
    is_settled(X86, &prepared.bytes);
}

#[test]
fn thread_local_commons_get_a_section() {
    // LLVM's assembler has no directive for these records.
    let bytes = gcc(
        &[],
        "asm(\".tls_common x, 12, 4\\n.tls_common y, 8, 64\"); extern __thread int x; int f(void) { return x; }",
    );
    let prepared = prepare(X86, &bytes).unwrap();
    let (index, header) = section(&prepared.bytes, ".tbss.slabjit", 0);
    assert_eq!((header.size, header.align, index), (72, 64, view(&bytes).count()));
    let sections = readelf(&prepared.bytes, &["-SW"]);
    assert!(sections.lines().any(|line| line.contains(".tbss.slabjit") && line.contains("WAT")), "{sections}");
    assert_eq!((value(&prepared.bytes, "x"), value(&prepared.bytes, "y")), (0, 64));
    let named = |name: &str| {
        let index = &prepared.index;
        *index.definitions.iter().find(|definition| index.name(definition.name) == name).unwrap()
    };
    for (name, size) in [("x", 12), ("y", 8)] {
        let definition = named(name);
        assert_eq!((definition.kind, definition.size), (SymbolKind::ThreadLocal, size));
        assert_eq!(definition.common, Some(64));
    }
    let plan = check(&bytes).unwrap();
    assert!(plan.loads() && plan.definitions.iter().any(|d| d.name == "y" && d.binding == "common"), "{plan}");
    // An alignment that is no power of two.
    let mut odd = bytes;
    set_symbol(&mut odd, "y", field::ST_VALUE, &3_u64.to_le_bytes());
    assert!(matches!(
        prepare(X86, &odd),
        Err(Error::Link(LinkError::ThreadLocal { .. }) | Error::Object(ObjectError::Malformed { .. }))
    ));
}

#[test]
fn objects_that_ask_for_executable_stacks_say_so() {
    for (flags, asks) in [("x", true), ("", false)] {
        let bytes = asm_arm(&format!(".section .note.GNU-stack,\"{flags}\",@progbits"));
        assert_eq!(prepare(ARM, &bytes).unwrap().index.executable_stack, asks);
        assert_eq!(check(&bytes).unwrap().executable_stack, asks);
    }
    assert!(!prepare(X86, &asm("nop")).unwrap().index.executable_stack);
}

#[test]
fn long_names_may_be_shared_and_not_nested() {
    // Local functions that share one name of 100 000 characters, and then functions with each of its suffixes.
    let long = "n".repeat(100_000);
    let locals: String = (0..2000).map(|i| format!("l{i}: nop\n")).collect();
    let bytes = asm(&format!(".globl {long}\n{long}: nop\n{locals}"));
    let (_, table) = section(&bytes, ".symtab", 0);
    let v = view(&bytes);
    let strings = v.contents(table.link, &v.header(table.link).unwrap()).unwrap();
    let start = strings.windows(8).position(|window| window == b"nnnnnnnn").unwrap() as u32;
    let nested = |length: u32, step: u32| {
        let mut bytes = bytes.clone();
        for i in 1..=2000 {
            let name = start + 100_000 - length + step * i;
            put(&mut bytes, table.offset + u64::from(i) * SYMBOL_SIZE, &name.to_le_bytes());
        }
        prepare(X86, &bytes).map(drop)
    };
    nested(4000, 0).unwrap();
    let error = nested(100_000, 1).unwrap_err().to_string();
    assert!(error.contains("overlap in the string table"), "{error}");
}
