//! Bad input: each an `Err` of its own variant that names the object and the cause; `stats()` is unchanged and the
//! engine goes on.

use std::path::{Path, PathBuf};

use crate::common::{
    self, Checked, Random, compile, compile_bytes, compile_with, good_object, link_shared, once_per, temporary, tool,
};
use crate::target::{by_arch, by_qemu};
use slabjit::{Error, JitEngine, Library, LinkError, MemoryError, ObjectError};

common::tests![
    missing,
    folder,
    empty,
    random_bytes,
    text_file,
    truncated_everywhere,
    archive_as_object,
    shared_object_as_object,
    executable_as_object,
    bitcode_as_object,
    slim_lto_as_object,
    no_symbol_table,
    other_architecture,
    aarch64_big_endian,
    i386,
    riscv,
    powerpc,
    powerpc_big_endian,
    big_endian,
    narrow_pointers,
    coff,
    mach_o,
    web_assembly,
    other_os_abi,
    undefined_symbols_are_all_listed,
    undefined_then_provided,
    duplicate_definitions,
    unknown_relocation,
    relocation_beyond_its_section,
    symbol_beyond_the_table,
    section_beyond_the_file,
    thread_local,
    indirect_function,
    arena_exhausted,
    initializer_throws,
    initializer_throws_class,
    random_damage,
    random_damage_that_is_linked;
    alone: bombs,
];

/// Adds a file and initialises it; the error that this gives must name the file.
#[track_caller]
fn error_of(engine: &JitEngine, path: &Path) -> Error {
    let result = engine.add_object_file(path).and_then(|library| {
        // SAFETY: the objects of this file run nothing but what their tests say.
        let result = unsafe { library.initialize() };
        common::freed(&library);
        result
    });
    let error = result.expect_err("this must not load");
    let name = path.file_name().unwrap().to_string_lossy();
    assert!(error.to_string().contains(&*name), "the error does not name {name}: {error}");
    error
}

/// Expects an error for a file, with words that tell the cause, and that the engine is as before.
#[track_caller]
fn refused(path: &Path, is_expected: fn(&Error) -> bool, causes: &[&str]) {
    let engine = Checked::new();
    let error = error_of(&engine, path);
    assert!(is_expected(&error), "another variant: {error:?}");
    for cause in causes {
        assert!(error.to_string().contains(cause), "'{cause}' is not in: {error}");
    }
    engine.assert_unchanged();
    engine.assert_usable();
    engine.finish();
}

/// A file of this process's own with some content.
fn file(name: &str, content: &[u8]) -> PathBuf {
    let folder = once_per(&["file", name], "d", |folder| {
        std::fs::create_dir(folder).unwrap();
        std::fs::write(folder.join(name), content).unwrap();
    });
    folder.join(name)
}

/// A C object of clang's for another target.
fn foreign(target: &str) -> PathBuf {
    let source = "int counter = 1; int add(int a, int b) { return a + b + counter; }";
    compile_with("clang-22", &format!("{target}.c"), source, &[&format!("--target={target}"), "-fno-pic"])
}

// ---- no object at all ----

fn missing() {
    refused(&temporary().join("missing.o"), |e| matches!(e, Error::Io { .. }), &["No such file"]);
}

fn folder() {
    refused(&temporary(), |e| matches!(e, Error::Io { .. }), &["directory"]);
}

fn empty() {
    refused(&file("empty.o", b""), |e| matches!(e, Error::Object(ObjectError::Empty { .. })), &["empty"]);
    let engine = Checked::new();
    assert!(matches!(engine.add_object([]).err(), Some(Error::Object(ObjectError::Empty { .. }))));
    engine.finish();
}

fn random_bytes() {
    let mut random = Random::new(1);
    let bytes: Vec<u8> = (0..4096).map(|_| random.next() as u8).collect();
    refused(
        &file("random.o", &bytes),
        |e| matches!(e, Error::Object(ObjectError::NotAnObject { .. })),
        &["not an ELF object"],
    );
    // And with a header that looks right.
    let mut bytes = bytes;
    bytes[..64].copy_from_slice(&std::fs::read(good_object()).unwrap()[..64]);
    let is_expected = |e: &Error| {
        matches!(e, Error::Object(ObjectError::Malformed { .. }) | Error::Object(ObjectError::Truncated { .. }))
    };
    refused(&file("random-body.o", &bytes), is_expected, &[]);
}

fn text_file() {
    refused(
        &file("text.o", b"int main(void) { return 0; }\n"),
        |e| matches!(e, Error::Object(ObjectError::NotAnObject { .. })),
        &["69 6e 74"],
    );
}

fn truncated_everywhere() {
    let whole = std::fs::read(good_object()).unwrap();
    let engine = Checked::new();
    let mut refused = 0;
    for length in (32..whole.len()).step_by(32) {
        let result = engine.add_object(&whole[..length]).and_then(|library| {
            // SAFETY: good_object's `add` is int(int, int).
            let sum = unsafe { library.get::<extern "C" fn(i32, i32) -> i32>("add").map(|add| add(20, 22)) };
            common::freed(&library);
            sum
        });
        match result {
            Ok(sum) => assert_eq!(sum, 42, "cut at {length}"),
            Err(Error::Object(ObjectError::Truncated { len, .. })) => {
                assert_eq!(len, length as u64);
                refused += 1;
            }
            Err(error) => panic!("cut at {length}: {error:?}"),
        }
        engine.assert_unchanged();
    }
    // The section headers come last in what gas writes, so that nothing but a whole file has them.
    assert_eq!(refused, (whole.len() - 1) / 32);
    engine.assert_usable();
    engine.finish();
}

// ---- other kinds of file ----

fn archive_as_object() {
    let archive = once_per(&["archive"], "a", |path| {
        tool("ar", &["rcs".as_ref(), path.as_os_str(), good_object().as_os_str()]);
    });
    refused(
        &archive,
        |e| matches!(e, Error::Object(ObjectError::ArchiveNotObject { .. })),
        &["archive", "add_archive"],
    );
}

fn shared_object_as_object() {
    let shared = link_shared("linked.so", &[&good_object()], &[]);
    let is_expected =
        |e: &Error| matches!(e, Error::Object(ObjectError::LinkedFileNotObject { kind: "shared object", .. }));
    refused(&shared, is_expected, &["shared object", "shared_library"]);
}

fn executable_as_object() {
    let main = compile("main.c", "int main(void) { return 0; }", &[]);
    let executable = once_per(&["executable"], "exe", |path| {
        tool("gcc", &["-no-pie".as_ref(), main.as_os_str(), "-o".as_ref(), path.as_os_str()]);
    });
    let is_expected =
        |e: &Error| matches!(e, Error::Object(ObjectError::LinkedFileNotObject { kind: "executable", .. }));
    refused(&executable, is_expected, &["executable"]);
}

fn bitcode_as_object() {
    let bitcode = compile_with("clang-22", "bitcode.c", "int f(void) { return 1; }", &["-emit-llvm"]);
    refused(&bitcode, |e| matches!(e, Error::Object(ObjectError::BitcodeNotObject { .. })), &["bitcode"]);
    let lto = compile_with("clang-19", "thin.c", "int f(void) { return 1; }", &["-flto=thin"]);
    refused(&lto, |e| matches!(e, Error::Object(ObjectError::BitcodeNotObject { .. })), &["bitcode", "-flto"]);
}

fn slim_lto_as_object() {
    let slim = compile("slim.c", "int f(void) { return 1; }", &["-flto", "-fno-fat-lto-objects"]);
    refused(&slim, |e| matches!(e, Error::Object(ObjectError::SlimLtoObject { .. })), &["LTO", "-ffat-lto-objects"]);
    // A fat one has machine code, and loads.
    let fat = compile("fat.c", "int f(void) { return 42; }", &["-flto", "-ffat-lto-objects"]);
    let engine = Checked::new();
    let library = engine.add_object_file(fat).unwrap();
    // SAFETY: `f` is int(void).
    assert_eq!(unsafe { library.get::<extern "C" fn() -> i32>("f").unwrap()() }, 42);
    common::freed(&library);
    drop(library);
    engine.finish();
}

// ---- ELF with something missing or wrong ----

fn no_symbol_table() {
    let whole = compile_bytes("nosymtab.c", "extern int x; int f(void) { return x; }", &[]);
    let mut bytes = whole.clone();
    // What no compiler writes and a broken tool can: the symbol table's type is replaced by SHT_PROGBITS.
    for header in section_headers(&whole) {
        if u32_at(&whole, header + 4) == 2 {
            bytes[header + 4..header + 8].copy_from_slice(&1u32.to_le_bytes());
        }
    }
    refused(
        &file("nosymtab.o", &bytes),
        |e| matches!(e, Error::Object(ObjectError::NoSymbolTable { .. })),
        &["no symbol table", ".rela.text"],
    );
}

/// The one of the two architectures that this is not.
fn other_architecture() {
    let is_expected = |e: &Error| matches!(e, Error::Object(ObjectError::WrongMachine { machine, .. }) if *machine == by_arch(183, 62));
    let target = by_arch("aarch64-unknown-linux-gnu", "x86_64-unknown-linux-gnu");
    refused(&foreign(target), is_expected, &["AArch64", "x86-64"]);
}

fn aarch64_big_endian() {
    let is_expected = |e: &Error| {
        matches!(e, Error::Object(ObjectError::WrongEncoding { .. }) | Error::Object(ObjectError::WrongMachine { .. }))
    };
    refused(&foreign("aarch64_be-unknown-linux-gnu"), is_expected, &[]);
}

fn i386() {
    let is_expected = |e: &Error| {
        matches!(e, Error::Object(ObjectError::WrongClass { .. }) | Error::Object(ObjectError::WrongMachine { .. }))
    };
    refused(&foreign("i386-unknown-linux-gnu"), is_expected, &["386"]);
}

fn riscv() {
    let is_expected = |e: &Error| matches!(e, Error::Object(ObjectError::WrongMachine { machine: 243, .. }));
    refused(&foreign("riscv64-unknown-linux-gnu"), is_expected, &["RISC-V"]);
}

fn powerpc() {
    let is_expected = |e: &Error| matches!(e, Error::Object(ObjectError::WrongMachine { machine: 21, .. }));
    refused(&foreign("powerpc64le-unknown-linux-gnu"), is_expected, &["PowerPC"]);
}

fn powerpc_big_endian() {
    let is_expected = |e: &Error| {
        matches!(e, Error::Object(ObjectError::WrongMachine { .. }) | Error::Object(ObjectError::WrongEncoding { .. }))
    };
    refused(&foreign("powerpc64-unknown-linux-gnu"), is_expected, &["big-endian"]);
}

fn big_endian() {
    // No tool makes such an object for x86-64; of the header, type, machine and version tell the order of bytes.
    let mut bytes = std::fs::read(good_object()).unwrap();
    bytes[5] = 2;
    for field in [16..18, 18..20, 20..24] {
        bytes[field].reverse();
    }
    refused(
        &file("big-endian.o", &bytes),
        |e| matches!(e, Error::Object(ObjectError::WrongEncoding { .. })),
        &["big-endian"],
    );
}

/// This machine with 32-bit pointers.
fn narrow_pointers() {
    let target = by_arch("x86_64-unknown-linux-gnux32", "aarch64-unknown-linux-gnu_ilp32");
    refused(
        &foreign(target),
        |e| matches!(e, Error::Object(ObjectError::WrongClass { .. })),
        &["32-bit", by_arch("-mx32", "ILP32")],
    );
}

fn coff() {
    let is_expected = |e: &Error| matches!(e, Error::Object(ObjectError::ForeignFormat { format: "COFF", .. }));
    refused(&foreign("x86_64-pc-windows-msvc"), is_expected, &["COFF"]);
}

fn mach_o() {
    let is_expected = |e: &Error| matches!(e, Error::Object(ObjectError::ForeignFormat { format: "Mach-O", .. }));
    refused(&foreign("x86_64-apple-darwin"), is_expected, &["Mach-O"]);
    refused(&foreign("arm64-apple-darwin"), is_expected, &["Mach-O"]);
}

fn web_assembly() {
    let is_expected = |e: &Error| matches!(e, Error::Object(ObjectError::ForeignFormat { format: "WebAssembly", .. }));
    refused(&foreign("wasm32-unknown-unknown"), is_expected, &["WebAssembly"]);
}

fn other_os_abi() {
    let mut bytes = std::fs::read(good_object()).unwrap();
    bytes[7] = 9; // EI_OSABI: FreeBSD
    refused(
        &file("freebsd.o", &bytes),
        |e| matches!(e, Error::Object(ObjectError::WrongOsAbi { abi: 9, .. })),
        &["OS/ABI 9"],
    );
}

// ---- names ----

fn undefined_symbols_are_all_listed() {
    let source = "int missing_one(void); extern int missing_two, missing_three; int abs(int);
                  int f(void) { return missing_one() + missing_two + missing_three + abs(-1); }";
    let path = compile("undefined.c", source, &[]);
    let engine = Checked::new();
    let Error::Link(LinkError::UndefinedSymbols { symbols, .. }) = error_of(&engine, &path) else {
        panic!("another variant")
    };
    let mut names: Vec<_> = symbols.iter().map(|s| s.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["missing_one", "missing_three", "missing_two"]);
    assert!(symbols.iter().all(|s| s.referenced_by.iter().any(|o| o.contains("undefined.o"))), "{symbols:?}");
    engine.assert_unchanged();
    engine.assert_usable();
    engine.finish();
}

fn undefined_then_provided() {
    let user = compile("user.c", "int provided(int); int f(int x) { return provided(x) + 1; }", &[]);
    let provider = compile("provider.c", "int provided(int x) { return x * 2; }", &[]);
    let engine = Checked::new();
    let library: Library = engine.library("late").build().unwrap();
    library.add_object_file(&user).unwrap();
    for _ in 0..2 {
        // SAFETY: `f` is int(int).
        let error = unsafe { library.get::<extern "C" fn(i32) -> i32>("f") }.err().unwrap();
        assert!(
            matches!(&error, Error::Link(LinkError::UndefinedSymbols { symbols, .. }) if symbols[0].name == "provided"),
            "{error:?}"
        );
    }
    library.add_object_file(&provider).unwrap();
    // SAFETY: `f` is int(int).
    assert_eq!(unsafe { library.get::<extern "C" fn(i32) -> i32>("f").unwrap()(20) }, 41);
    common::freed(&library);
    engine.finish();
}

fn duplicate_definitions() {
    let first = compile("first_twice.c", "int twice(void) { return 1; }", &[]);
    let second = compile("second_twice.c", "int twice(void) { return 2; } int other(void) { return 3; }", &[]);
    let engine = Checked::new();
    let library = engine.library("duplicates").build().unwrap();
    library.add_object_file(&first).unwrap();
    // SAFETY: nothing runs in these objects.
    let error = library.add_object_file(&second).and_then(|_| unsafe { library.initialize() }).err().unwrap();
    assert!(
        matches!(&error, Error::Link(LinkError::DuplicateDefinition { symbol, .. }) if symbol == "twice"),
        "{error:?}"
    );
    for part in ["twice", "duplicates", "first_twice.o", "second_twice.o"] {
        assert!(error.to_string().contains(part), "{part} is not in: {error}");
    }
    common::freed(&library);
    engine.assert_usable();
    engine.finish();
}

// ---- relocations and tables ----

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// File offsets of the section headers of an ELF64 object.
fn section_headers(bytes: &[u8]) -> Vec<usize> {
    let (start, count) = (u64_at(bytes, 0x28) as usize, u16::from_le_bytes([bytes[0x3c], bytes[0x3d]]) as usize);
    (0..count).map(|i| start + 64 * i).collect()
}

/// An object whose one relocation of code, in `.rela.text`, was changed.
fn with_relocation(name: &str, change: impl Fn(&mut [u8])) -> PathBuf {
    let source = "extern int far_away; int *f(void) { return &far_away; }";
    let mut bytes = compile_bytes("relocated.c", source, &["-fno-asynchronous-unwind-tables"]);
    let rela = section_headers(&bytes).into_iter().find(|&h| u32_at(&bytes, h + 4) == 4).unwrap();
    let start = u64_at(&bytes, rela + 0x18) as usize;
    change(&mut bytes[start..start + 24]);
    file(name, &bytes)
}

fn unknown_relocation() {
    let path = with_relocation("unknown-relocation.o", |rela| rela[8..12].copy_from_slice(&200u32.to_le_bytes()));
    let is_expected = |e: &Error| matches!(e, Error::Object(ObjectError::UnsupportedRelocation { .. }));
    let offset = by_arch("0x3", "0x0");
    refused(&path, is_expected, &["'.text'", offset, "200", "far_away"]);
}

fn relocation_beyond_its_section() {
    let path = with_relocation("relocation-outside.o", |rela| rela[..8].copy_from_slice(&0x1_0000u64.to_le_bytes()));
    refused(&path, |e| matches!(e, Error::Object(ObjectError::Malformed { .. })), &[".text", "0x10000"]);
}

fn symbol_beyond_the_table() {
    let path = with_relocation("symbol-outside.o", |rela| rela[12..16].copy_from_slice(&9999u32.to_le_bytes()));
    refused(&path, |e| matches!(e, Error::Object(ObjectError::Malformed { .. })), &["9999"]);
}

fn section_beyond_the_file() {
    let mut bytes = std::fs::read(good_object()).unwrap();
    let text = section_headers(&bytes)[1];
    bytes[text + 0x20..text + 0x28].copy_from_slice(&0x100_0000u64.to_le_bytes());
    refused(
        &file("section-outside.o", &bytes),
        |e| matches!(e, Error::Object(ObjectError::Truncated { .. })),
        &["'.text'"],
    );
}

fn thread_local() {
    let path = compile("tls_absolute.s", ".globl counter\n.type counter, %tls_object\ncounter = 5\n", &[]);
    refused(
        &path,
        |e| matches!(e, Error::Link(LinkError::ThreadLocal { .. })),
        &["thread-local", "'counter'", "absolute"],
    );
}

fn indirect_function() {
    let source = ".data\n.globl chosen\n.type chosen, %gnu_indirect_function\nchosen: .quad 0\n";
    let path = compile("ifunc.s", source, &[]);
    refused(&path, |e| matches!(e, Error::Object(ObjectError::IndirectFunction { .. })), &["chosen", "IFUNC"]);
}

// ---- linking and running ----

fn arena_exhausted() {
    let big = compile("big.c", "char big_buffer[48 << 20]; char *f(void) { return big_buffer; }", &[]);
    let engine = Checked::of(JitEngine::builder().arena_size(16 << 20).build().unwrap());
    let error = error_of(&engine, &big);
    let Error::Memory(MemoryError::ArenaExhausted { section, section_bytes, requested, arena_bytes, .. }) = &error
    else {
        panic!("{error:?}")
    };
    assert_eq!((section.as_str(), *section_bytes), (".bss", 48 << 20));
    assert!(*requested >= 48 << 20 && *arena_bytes <= 16 << 20, "{error:?}");
    assert!(error.to_string().contains("'.bss'"), "{error}");
    engine.assert_unchanged();
    engine.assert_usable();
    engine.finish();
}

fn throwing(name: &str, thrown: &str) -> Error {
    let source = format!(
        "#include <stdexcept>
         static int fail() {{ throw {thrown}; }}
         static int value = fail();
         extern \"C\" int f() {{ return value; }}"
    );
    let path = compile_with("g++", name, &source, &[]);
    let engine = Checked::new();
    // SAFETY: libstdc++ is a shared library like any other.
    let library = unsafe { engine.library("thrower").shared_library("libstdc++.so.6").build().unwrap() };
    library.add_object_file(&path).unwrap();
    // SAFETY: `f` is int(void).
    let error = unsafe { library.get::<extern "C" fn() -> i32>("f") }.expect_err("the initialiser throws");
    common::freed(&library);
    engine.assert_unchanged();
    engine.assert_usable();
    engine.finish();
    error
}

fn initializer_throws() {
    let error = throwing("throws.cc", "5");
    assert!(matches!(error, Error::Link(LinkError::InitializerFailed { .. })), "{error:?}");
    assert!(error.to_string().contains("throws.o"), "{error}");
}

fn initializer_throws_class() {
    let error = throwing("throws_class.cc", "std::runtime_error(\"no device\")");
    assert!(matches!(error, Error::Link(LinkError::InitializerFailed { .. })), "{error:?}");
    assert!(error.to_string().contains("throws_class.o"), "{error}");
}

/// Offsets of what a loader reads of an object beside contents: headers and tables.
fn headers_and_tables(whole: &[u8]) -> Vec<usize> {
    let headers = section_headers(whole);
    let mut places: Vec<usize> = (0..64).chain(headers[0]..headers[0] + 64 * headers.len()).collect();
    for &header in &headers {
        // Symbols, relocations, strings, frames.
        if [2, 3, 4].contains(&u32_at(whole, header + 4)) {
            let start = u64_at(whole, header + 0x18) as usize;
            places.extend(start..start + u64_at(whole, header + 0x20) as usize);
        }
    }
    places
}

/// Headers and tables damaged at random: an error, or an object that loads; never a crash of the loader. Nothing of it
/// is run.
fn random_damage() {
    let whole =
        compile_bytes("damaged.c", "extern int x; static int y[3]; int *f(int i) { return i ? &x : y; }", &["-g"]);
    let places = headers_and_tables(&whole);
    let engine = Checked::new();
    let mut random = Random::new(7);
    let mut errors = 0;
    for _ in 0..2000 {
        let mut bytes = whole.clone();
        for _ in 0..=random.below(3) {
            bytes[places[random.below(places.len())]] = random.next() as u8;
        }
        let checked = engine.check_object(&bytes);
        // Whether references reach is found out when the object is linked.
        let far = checked.as_ref().is_ok_and(|p| p.references.iter().any(|r| r.verdict == slabjit::Verdict::Refused));
        let checked = checked.map(|plan| plan.loads());
        match engine.add_object(&bytes) {
            Ok(library) => {
                assert!(checked.unwrap() || far, "check_object refuses what add_object takes");
                common::freed(&library);
            }
            Err(error) => {
                assert!(!checked.is_ok_and(|loads| loads), "check_object takes what add_object refuses: {error}");
                errors += 1;
            }
        }
    }
    assert!(errors > 500, "only {errors} of 2000 damaged objects were refused");
    engine.assert_usable();
    engine.finish();
}

/// The same for thread-local variables and indirect functions, and linked: together with an object whose link fails at
/// its end, so that nothing runs.
fn random_damage_that_is_linked() {
    let source = "__thread int a = 3, zero; static __thread char b[40] = {1, 2}; extern __thread int process_errno __asm__(\"errno\") __attribute__((tls_model(\"global-dynamic\")));
        static int one(void) { return 1; } static int two(void) { return 2; } static int (*pick(void))(void) { return a ? one : two; }
        int chosen(void) __attribute__((ifunc(\"pick\"))); static int own(void) __attribute__((ifunc(\"pick\")));
        int (*pointers[])(void) = {chosen, own};
        int f(int i) { return (a += 1) + b[i] + zero + process_errno + chosen() + own() + pointers[i](); }";
    let failing = compile_bytes("failing.s", ".data\n.globl field\nfield: .long far\n", &[]);
    let dynamic = by_arch("-mtls-dialect=gnu2", "-mtls-dialect=trad");
    let engine = Checked::new();
    let mut random = Random::new(11);
    for flags in
        [&["-ftls-model=global-dynamic"][..], &["-ftls-model=initial-exec"], &["-ftls-model=local-dynamic", dynamic]]
    {
        let whole = compile_bytes("damaged_variables.c", source, flags);
        let places = headers_and_tables(&whole);
        let mut linked = 0;
        for round in 0..by_qemu(1000, 100) {
            let mut bytes = whole.clone();
            for _ in 0..random.below(3).min(round) {
                bytes[places[random.below(places.len())]] = random.next() as u8;
            }
            let far = std::ptr::without_provenance(0x007e_adbe_f000_0000);
            // SAFETY: nothing is opened, and nothing runs.
            let library = unsafe { engine.library("damaged").symbol("far", far).build().unwrap() };
            // Last, as its error is the one that is told if no other object fails.
            let added = library.add_object(&bytes).and_then(|_| library.add_object(&failing));
            // SAFETY: it fails before anything runs.
            let error = added.and_then(|_| unsafe { library.initialize() }).expect_err("a reference that cannot reach");
            linked += i32::from(matches!(error, Error::Link(LinkError::ReferencesOutOfRange { .. })));
            common::freed(&library);
            engine.assert_unchanged();
        }
        assert!(linked > 10, "{flags:?}: {linked} were linked");
    }
    engine.assert_usable();
    engine.finish();
}

// ---- a few bytes that ask for many ----

/// The most memory that this process has had, in bytes.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// Objects of less than 3 MB take less than 300 MB, refused or not.
fn bombs() {
    let long = "n".repeat(100_000);
    let names = format!(".data\n.weak {long}\n.set n, {long}\n.rept 90000\n.quad n\n.endr\n");
    let compressed = compile_bytes(
        "bomb.s",
        ".section .debug_info,\"\",%progbits\n.skip 1000000\n.section .note.GNU-stack,\"\",%progbits\n",
        &["-Wa,--compress-debug-sections=zlib"],
    );
    let claim = compressed.windows(8).position(|w| w == 1_000_000_u64.to_le_bytes()).unwrap();
    let mut claims = compressed.clone();
    claims[claim..claim + 8].copy_from_slice(&(1_u64 << 30).to_le_bytes());
    let engine = JitEngine::new().unwrap();
    let names = compile_bytes("long_names.s", &names, &[]);
    for (what, bytes, loads) in [("names", names, true), ("claims", claims, false), ("compressed", compressed, true)] {
        assert!(bytes.len() < 3 << 20, "{what}: {}", bytes.len());
        let before = peak();
        let plan = engine.check_object(&bytes).unwrap();
        assert_eq!(plan.loads(), loads, "{what}: {:?}", plan.problems);
        assert!(plan.to_string().len() < 10 << 20, "{what}");
        let added = engine.add_object(&bytes).and_then(|library| {
            // SAFETY: nothing runs in it.
            unsafe { library.initialize() }
        });
        assert_eq!(added.is_ok(), loads, "{what}: {added:?}");
        let taken = peak() - before;
        assert!(taken < 300 << 20, "{what}: {} MiB", taken >> 20);
    }
}
