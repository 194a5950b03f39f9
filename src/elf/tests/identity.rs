use crate::elf::elf_abi::{SHT_CREL, SHT_RELA, SHT_SYMTAB};
use crate::elf::testing::{ARM, X86, asm, build, check, clang, gcc, prepare, put, run, section, view};
use crate::{Error, Limits, ObjectError, SectionConflicts};

const SOURCE: &str = "int add(int a, int b) { return a + b; }";

/// Asserts the variant of `prepare`'s and of `check`'s error.
macro_rules! refused {
    ($bytes:expr, $pattern:pat) => {{
        let bytes: Vec<u8> = $bytes;
        let error = prepare(X86, &bytes).unwrap_err();
        assert!(matches!(error, $pattern), "{error:?}");
        assert!(error.to_string().contains("test.o"), "{error}");
        let error = check(&bytes).unwrap_err();
        assert!(matches!(error, $pattern), "check: {error:?}");
    }};
}

#[test]
fn what_is_no_object_is_named() {
    refused!(vec![], Error::Object(ObjectError::Empty { .. }));
    refused!(b"#!/bin/sh\necho".to_vec(), Error::Object(ObjectError::NotAnObject { .. }));
    refused!(vec![0x17; 4096], Error::Object(ObjectError::NotAnObject { .. }));
    refused!(b"\x7fEL".to_vec(), Error::Object(ObjectError::NotAnObject { .. }));
    refused!(b"\x7fELF".to_vec(), Error::Object(ObjectError::Truncated { .. }));
    refused!(b"!<arch>\n".to_vec(), Error::Object(ObjectError::ArchiveNotObject { .. }));
    refused!(b"!<thin>\n".to_vec(), Error::Object(ObjectError::ArchiveNotObject { .. }));
    refused!(clang(&["-emit-llvm"], SOURCE), Error::Object(ObjectError::BitcodeNotObject { .. }));
    refused!(
        [&0x0b17_c0de_u32.to_le_bytes()[..], &[0; 60]].concat(),
        Error::Object(ObjectError::BitcodeNotObject { .. })
    );
    refused!(gcc(&["-flto"], SOURCE), Error::Object(ObjectError::SlimLtoObject { .. }));
    refused!(
        build("gcc", &["-shared"], "c", SOURCE),
        Error::Object(ObjectError::LinkedFileNotObject { kind: "shared object", .. })
    );
    refused!(
        build("gcc", &["-static", "-no-pie"], "c", "int main(void) { return 0; }"),
        Error::Object(ObjectError::LinkedFileNotObject { kind: "executable", .. })
    );
    assert!(prepare(X86, &gcc(&["-flto", "-ffat-lto-objects"], SOURCE)).is_ok());
}

#[test]
fn foreign_formats_are_named() {
    for target in ["x86_64-pc-windows-msvc", "aarch64-pc-windows-msvc", "i686-pc-windows-gnu"] {
        refused!(clang(&["-target", target], SOURCE), Error::Object(ObjectError::ForeignFormat { format: "COFF", .. }));
    }
    for target in ["arm64-apple-macos", "x86_64-apple-macos"] {
        refused!(
            clang(&["-target", target], SOURCE),
            Error::Object(ObjectError::ForeignFormat { format: "Mach-O", .. })
        );
    }
    refused!(
        clang(&["-target", "wasm32"], SOURCE),
        Error::Object(ObjectError::ForeignFormat { format: "WebAssembly", .. })
    );
    refused!(
        clang(&["-target", "powerpc64-ibm-aix"], SOURCE),
        Error::Object(ObjectError::ForeignFormat { format: "XCOFF", .. })
    );
    refused!(b"MZ\0\0".to_vec(), Error::Object(ObjectError::ForeignFormat { format: "PE/COFF", .. }));
}

#[test]
fn other_machines_are_named() {
    for (target, name) in [
        ("riscv64-linux-gnu", "RISC-V"),
        ("powerpc64le-linux-gnu", "PowerPC64"),
        ("powerpc64-linux-gnu", "PowerPC64 (big-endian)"),
        ("s390x-linux-gnu", "IBM S/390 (big-endian)"),
        ("armv7-linux-gnueabihf", "Arm"),
        ("loongarch64-linux-gnu", "LoongArch"),
        ("amdgcn-amd-amdhsa", "AMD GPU"),
    ] {
        let bytes = clang(&["-target", target], "int x = 3;");
        for error in [prepare(X86, &bytes).unwrap_err(), check(&bytes).unwrap_err()] {
            assert!(
                matches!(&error, Error::Object(ObjectError::WrongMachine { found, .. }) if found == name),
                "{target}: {error:?}"
            );
        }
    }
    for args in [&["-m32"][..], &["-mx32"], &["-target", "aarch64-linux-gnu_ilp32"]] {
        let bytes = clang(args, SOURCE);
        let error = check(&bytes).unwrap_err();
        assert!(matches!(error, Error::Object(ObjectError::WrongClass { .. })), "{args:?}: {error:?}");
    }
    refused!(clang(&["-m32"], SOURCE), Error::Object(ObjectError::WrongClass { .. }));
    refused!(clang(&["-mx32"], SOURCE), Error::Object(ObjectError::WrongClass { .. }));
    let big = clang(&["-target", "aarch64_be-linux-gnu"], SOURCE);
    assert!(matches!(prepare(ARM, &big), Err(Error::Object(ObjectError::WrongEncoding { .. }))));
    assert!(matches!(check(&big), Err(Error::Object(ObjectError::WrongEncoding { .. }))));
}

#[test]
fn the_other_supported_machine_is_checked_but_not_loaded() {
    let arm = clang(&["-target", "aarch64-linux-gnu"], SOURCE);
    assert!(matches!(prepare(X86, &arm), Err(Error::Object(ObjectError::WrongMachine { machine: 183, .. }))));
    let plan = check(&arm).unwrap();
    assert!(plan.loads());
    assert_eq!(plan.machine, "AArch64");
    assert!(prepare(ARM, &arm).is_ok());
    assert!(matches!(
        prepare(ARM, &gcc(&[], SOURCE)),
        Err(Error::Object(ObjectError::WrongMachine { machine: 62, .. }))
    ));
}

#[test]
fn only_system_v_and_gnu_are_accepted() {
    let mut bytes = gcc(&[], SOURCE);
    put(&mut bytes, 7, &[3]);
    assert!(prepare(X86, &bytes).is_ok());
    put(&mut bytes, 7, &[9]);
    refused!(bytes.clone(), Error::Object(ObjectError::WrongOsAbi { abi: 9, version: 0, .. }));
    put(&mut bytes, 7, &[0, 1]);
    refused!(bytes.clone(), Error::Object(ObjectError::WrongOsAbi { abi: 0, version: 1, .. }));
    put(&mut bytes, 7, &[0, 0]);
    put(&mut bytes, 6, &[2]);
    refused!(bytes.clone(), Error::Object(ObjectError::Malformed { .. }));
    put(&mut bytes, 6, &[1]);
    put(&mut bytes, 16, &[77, 0]);
    refused!(bytes, Error::Object(ObjectError::Malformed { .. }));
}

#[test]
fn each_limit_has_an_error_of_its_own() {
    let object = gcc(&["-g", "-gz=zlib", "-O2"], "extern int f(int); int g(int x) { return f(x) + f(x + 1); }");
    let prepare = |change: &dyn Fn(&mut Limits)| {
        let mut limits = Limits::default();
        change(&mut limits);
        crate::elf::Preparation::new(X86, SectionConflicts::Rename, limits, Vec::new())
            .prepare("test.o", &object)
            .map(drop)
    };
    assert!(prepare(&|_| ()).is_ok());
    assert!(matches!(
        prepare(&|l| l.object_bytes = 100),
        Err(Error::Object(ObjectError::ObjectTooLarge { limit: 100, .. }))
    ));
    assert!(matches!(prepare(&|l| l.sections = 3), Err(Error::Object(ObjectError::TooManySections { limit: 3, .. }))));
    assert!(matches!(
        prepare(&|l| l.relocations = 1),
        Err(Error::Object(ObjectError::TooManyRelocations { limit: 1, .. }))
    ));
    assert!(matches!(
        prepare(&|l| l.decompressed_bytes = 9),
        Err(Error::Object(ObjectError::DecompressedTooLarge { limit: 9, .. }))
    ));
    assert!(matches!(
        prepare(&|l| l.mapped_bytes = 5),
        Err(Error::Object(ObjectError::MappedTooLarge { limit: 5, .. }))
    ));
    assert!(matches!(
        prepare(&|l| l.working_bytes = 5000),
        Err(Error::Object(ObjectError::WorkingMemoryTooLarge { limit: 5000, .. }))
    ));
    // `f` twice, and names of debug information, which has relocations to section symbols.
    assert!(prepare(&|l| l.work = 2).is_ok());
    assert!(matches!(prepare(&|l| l.work = 1), Err(Error::Object(ObjectError::TooMuchWork { limit: 1, work: 2, .. }))));
}

/// The units in which [`Limits`] counts.
#[test]
fn memory_is_counted_by_parts() {
    let with = |bytes: &[u8], change: &dyn Fn(&mut Limits)| {
        let mut limits = Limits::default();
        change(&mut limits);
        let preparation = crate::elf::Preparation::new(X86, SectionConflicts::Rename, limits, Vec::new());
        preparation.prepare("test.o", bytes).map(drop)
    };
    const CALLS: &str = "extern int f(int); int g(int x) { return f(x) + f(x + 1); }";
    for (options, relocation_kind, entries) in
        [(&[][..], SHT_RELA, None), (&["-Wa,--crel,--allow-experimental-crel"], SHT_CREL, Some(3))]
    {
        let bytes = clang(&[options, &["-O1"]].concat(), CALLS);
        let view = view(&bytes);
        let sum = |kind: u32| view.sections().filter(|(_, h)| h.kind == kind).map(|(_, h)| h.size).sum::<u64>();
        let relocations = entries.unwrap_or(sum(relocation_kind) / 24);
        assert_eq!(relocations, 3, "two calls, and a function in its unwind table");
        let frames = section(&bytes, ".eh_frame", 0).1.size;
        let parts = [
            2 * bytes.len() as u64,
            2048 * view.sections().count() as u64,
            512 * (sum(SHT_SYMTAB) / 24),
            256 * relocations,
            64 * frames,
        ];
        let expected: u64 = parts.iter().sum();
        assert!(with(&bytes, &|l| l.working_bytes = expected).is_ok());
        let error = with(&bytes, &|l| l.working_bytes = expected - 1).unwrap_err();
        assert!(
            matches!(error, Error::Object(ObjectError::WorkingMemoryTooLarge { bytes, .. }) if bytes == expected),
            "{error:?}, {parts:?}"
        );
    }
    // Padding before a part counts too.
    let bytes = asm(".bss\n.balign 65536\n.byte 0\n");
    let Err(Error::Object(ObjectError::MappedTooLarge { bytes: mapped, .. })) =
        with(&bytes, &|l| l.mapped_bytes = 60_000)
    else {
        panic!("the alignment does not count")
    };
    assert!(with(&bytes, &|l| l.mapped_bytes = mapped).is_ok());
    assert!((65_536..65_600).contains(&mapped), "{mapped}");
}

#[test]
fn a_stripped_object_with_relocations_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.o");
    let mut bytes = gcc(&["-O2"], "extern int f(void); int g(void) { return f() + 1; }");
    // strip(1) no longer does this, so the table's type is changed.
    let (index, _) = crate::elf::testing::section(&bytes, ".symtab", 0);
    crate::elf::testing::put_header(&mut bytes, index, 4, &1_u32.to_le_bytes());
    let error = prepare(X86, &bytes).unwrap_err();
    assert!(matches!(error, Error::Object(ObjectError::NoSymbolTable { .. })), "{error:?}");
    // An object without relocations needs no symbols.
    std::fs::write(&path, gcc(&[], "int x;")).unwrap();
    run(dir.path(), "strip", &["x.o"]);
    let plan = check(&std::fs::read(&path).unwrap()).unwrap();
    assert!(plan.loads() && plan.definitions.is_empty());
}
