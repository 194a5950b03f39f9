use super::validate::{Case, expect, set};
use crate::elf::elf_abi::field;
use crate::elf::testing::{X86, asm, prepare, put, section};

/// A CIE at 0 with the augmentation "zPLR", of which 18 bytes lie before the personality's encoding and pointer, and an
/// FDE at 0x20 with pointers at 0x28 and 0x31.
const SOURCE: &str = r#".globl f
f: .cfi_startproc
.cfi_personality 0x9b, pointer
.cfi_lsda 0x1b, lsda
nop
.cfi_endproc
.data
pointer: .quad 0
.section .gcc_except_table,"a"
lsda: .long 0"#;

#[test]
fn unwind_tables_that_cannot_be_walked_are_refused() {
    let object = asm(SOURCE);
    let at = |bytes: &mut Vec<u8>, offset: u64, value: &[u8]| {
        let (_, header) = section(bytes, ".eh_frame", 0);
        put(bytes, header.offset + offset, value);
    };
    let relocation = |bytes: &mut Vec<u8>, number: u64, offset: u64, value: &[u8]| {
        let (_, header) = section(bytes, ".rela.eh_frame", 0);
        put(bytes, header.offset + number * 24 + offset, value);
    };
    let cases: &[Case<'_>] = &[
        ("array", &|b| set(b, ".eh_frame", field::SH_TYPE, 16), "section type 0x10"),
        ("unmapped", &|b| set(b, ".eh_frame", field::SH_FLAGS, 0), "not mapped"),
        ("beyond", &|b| at(b, 0x20, &[0x18]), "does not end in the section"),
        ("far beyond", &|b| at(b, 0, &[0xf0, 0xff, 0xff, 0xff]), "does not end in the section"),
        ("extended", &|b| at(b, 0, &[0xff; 4]), "does not end in the section"),
        ("no kind", &|b| at(b, 0, &[3]), "does not end in the section"),
        ("odd length", &|b| at(b, 0, &[0x1d]), "does not end in the section"),
        ("version", &|b| at(b, 8, &[4]), "has the version 4"),
        ("string without end", &|b| at(b, 9, &[b'z'; 0x17]), "does not end in it"),
        ("unknown letter", &|b| at(b, 12, b"X"), "augmentation 'zPLX'"),
        ("letter twice", &|b| at(b, 12, b"L"), "augmentation 'zPLL'"),
        ("no z", &|b| at(b, 9, b"eh"), "augmentation 'ehLR'"),
        ("endless factor", &|b| at(b, 14, &[0x80; 18]), "too short"),
        ("more data than CIE", &|b| at(b, 17, &[15]), "too short"),
        ("more letters than data", &|b| at(b, 17, &[6]), "too short"),
        ("format of code", &|b| at(b, 24, &[0x15]), "encoding 0x15"),
        ("signed", &|b| at(b, 24, &[0x18]), "encoding 0x18"),
        ("relative to what", &|b| at(b, 24, &[0x7b]), "encoding 0x7b"),
        ("indirect code", &|b| at(b, 24, &[0x9b]), "encoding 0x9b"),
        ("no code", &|b| at(b, 24, &[0xff]), "encoding 0xff"),
        ("no personality", &|b| at(b, 18, &[0xff]), "encoding 0xff"),
        ("FDE of none", &|b| at(b, 0x24, &[0x20]), "none of those before it"),
        ("FDE of what lies before all", &|b| at(b, 0x24, &[0x28]), "none of those before it"),
        ("length relocated", &|b| relocation(b, 1, 0, &[0x20]), "something else than a pointer"),
        ("relocation wider than pointer", &|b| relocation(b, 1, 8, &[1]), "something else than a pointer"),
    ];
    expect(&object, cases);
    // An FDE that ends before its pointers do.
    let mut bytes = object.clone();
    at(&mut bytes, 0x20, &[8, 0, 0, 0, 0x24, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0x30, 0, 0, 0]);
    assert!(prepare(X86, &bytes).unwrap_err().to_string().contains("too short"));
    // Bytes behind the last pointer are not interpreted: LLVM's own tests have a relocation there
    // (AArch64/ELF_ehframe.test).
    let behind = asm(
        ".section .eh_frame,\"a\",@unwind\n.long 12, 0\n.byte 1, 0, 1, 0x78, 16, 0, 0, 0\n.long 20, 20\n.quad 0, far",
    );
    prepare(X86, &behind).unwrap();
    // Without a personality and augmentation, pointers have eight bytes.
    let plain = asm(
        ".section .eh_frame,\"a\",@unwind\n.long 12, 0\n.byte 1, 0, 1, 0x78, 16, 0, 0, 0\n.long 20, 20\n.quad 0, 1",
    );
    let plain_cases: &[Case<'_>] = &[
        ("no contents", &|b| set(b, ".eh_frame", field::SH_TYPE, 8), "has no contents"),
        (
            "thread-local",
            &|b| {
                set(b, ".eh_frame", field::SH_TYPE, 1);
                set(b, ".eh_frame", field::SH_FLAGS, 0x402);
            },
            "one for each thread",
        ),
    ];
    expect(&plain, plain_cases);
}
