//! Objects that valid tools make, and few do; and some that nobody makes. What `check` says of them is what a load
//! does.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use slabjit::{Error, JitEngine, Library, LinkError};

use crate::common::{Checked, call, child_with, compile, compile_bytes, freed, link_shared, temporary, tests, tool};
use crate::target::by_arch;

tests![
    check_says_what_a_load_does,
    names_that_merged_objects_share,
    names_of_linkers_are_refused_by_name,
    bounds_that_the_process_exports_are_not_an_objects,
    zeros_in_unwind_tables,
    unwind_tables_keep_no_function,
    empty_sections_begin_where_initialisers_do,
    what_only_libgcc_has_is_said_to_be_there,
    split_stacks_and_decimal_floats_work_with_libgcc,
    more_sections_than_a_header_counts;
    parts: many_sections_part,
];

fn library(engine: &JitEngine) -> Library {
    engine.library("odd").build().unwrap()
}

/// Adds an object and links it; the library, or why not.
fn load(engine: &JitEngine, name: &str, bytes: &[u8]) -> slabjit::Result<Library> {
    let library = library(engine);
    let loaded = library.add_object_named(name, bytes);
    // SAFETY: initialisers of these objects do nothing.
    match loaded.and_then(|()| unsafe { library.initialize() }) {
        Ok(()) => Ok(library),
        Err(error) => {
            freed(&library);
            Err(error)
        }
    }
}

fn assembled(source: &str) -> Vec<u8> {
    compile_bytes("odd.s", source, &[])
}

fn of_compiler(name: &str) -> Vec<u8> {
    std::fs::read(tool("gcc", &[format!("-print-file-name={name}")]).trim()).unwrap()
}

/// Whether `check` would exit with 0.
fn is_said_to_load(engine: &JitEngine, name: &str, bytes: &[u8]) -> bool {
    let library = library(engine);
    let plan = library.check_object_named(name, bytes);
    let loads = plan.is_ok_and(|plan| plan.loads());
    let added = library.add_object_named(name, bytes);
    let nothing_missing = added.is_ok() && library.undefined_symbols().unwrap().is_empty();
    freed(&library);
    loads && nothing_missing
}

fn empty_sections_begin_where_initialisers_do() {
    let engine = Checked::new();
    let counter = compile_bytes("counter.c", "int n; void count(void) { n++; } int counted(void) { return n; }", &[]);
    for array in [".init_array", ".init_array.7", ".ctors", ".ctors.00009"] {
        let empty = |i: i32| format!(".section .text.e{i},\"ax\"\n");
        let empties: String = (0..40).map(empty).collect();
        // So that segments lie apart.
        let others = ".section .rodata\n.globl r\nr: .byte 1\n.section .data.other,\"aw\"\n.globl d\nd: .byte 1\n";
        let source = format!("{empties}.section {array},\"aw\",%progbits\n.quad count\n{others}");
        let library = load(&engine, array, &counter).unwrap();
        assert_eq!(call(&library, "counted"), 0);
        library.add_object_named("array", assembled(&source)).unwrap();
        // SAFETY: it counts.
        unsafe { library.initialize().unwrap() };
        assert_eq!(call(&library, "counted"), 1, "{array}");
        freed(&library);
    }
}

fn unwind_tables_keep_no_function() {
    let engine = Checked::new();
    let function = |section: &str, name: &str, code: &str| {
        format!(".section .text.{section},\"ax\",%progbits\n{name}: .cfi_startproc\n{code}\nret\n.cfi_endproc\n")
    };
    let names = |source: String| {
        let library = load(&engine, "functions", &assembled(&source)).unwrap();
        let mut names: Vec<_> = library.functions().unwrap().into_iter().map(|function| function.name).collect();
        names.sort();
        freed(&library);
        names
    };
    let static_function = || function("inner", "inner", "nop");
    // As the linker has it with --gc-sections.
    assert_eq!(names(function("outer", ".globl outer\nouter", "nop") + &static_function()), ["outer"]);
    let call = by_arch("call inner", "bl inner");
    assert_eq!(names(function("outer", ".globl outer\nouter", call) + &static_function()), ["inner", "outer"]);
    engine.finish();
}

fn check_says_what_a_load_does() {
    let engine = Checked::new();
    let frames = |contents: &str| assembled(&format!(".section .eh_frame,\"a\",%progbits\n{contents}\n"));
    let c = |source: &str| compile_bytes("odd.c", source, &[]);
    // Each of two with a CIE (version 1, "zR", code by its distance), and with an FDE of four bytes for each function.
    let tables = |functions: &[&str]| {
        let mut source = ".text\n.globl f, g\nf: .skip 4\ng: .skip 4\n".to_owned();
        for table in 0..2 {
            source += &format!(".section .eh_frame,\"a\",%progbits,unique,{}\n", table + 1);
            source += ".long 16, 0, 0x00527a01, 0x01107801, 0x1b\n";
            if let Some(function) = functions.get(table) {
                source += &format!(".long 16, 24, {function} - ., 4, 0\n");
            }
        }
        assembled(&source)
    };
    let calls = by_arch("call init", "bl init");
    let returns = by_arch("add $8, %rsp\n ret", "ldp x29, x30, [sp], #16\n ret");
    let begins = by_arch("sub $8, %rsp", "stp x29, x30, [sp, #-16]!\n mov x29, sp");
    let code_in =
        |section: &str, code: &str| assembled(&format!("init: ret\n.section {section},\"ax\",%progbits\n{code}\n"));
    let huge = |bytes: u64, user: &str| {
        let source = format!(".bss\nhuge: .skip {bytes}\n.data\n.globl user\nuser: .quad {user}\n");
        assembled(&source)
    };
    let objects: Vec<(&str, bool, Vec<u8>)> = vec![
        ("frames of a word of zeros", true, frames(".long 0")),
        ("frames of zeros", true, frames(".skip 24")),
        ("frames of half a word of zeros", true, frames(".skip 2")),
        ("frames that are cut off", false, frames(".byte 1, 0")),
        ("frames that begin with their end", false, frames(".long 0, 12, 0, 0x78010001, 16")),
        ("frames that end early", true, frames(".long 12, 0, 0x78010001, 16, 0, 12, 0, 0x78010001, 16, 0, 0\n.byte 0")),
        (
            "an odd record",
            true,
            frames(".long 11, 0\n.byte 1, 0, 1, 0x78, 16, 0, 0\n.long 11, 0\n.byte 1, 0, 1, 0x78, 16, 0, 0"),
        ),
        ("a record of 2^64 bytes", false, frames(".long -1, 0, 0, 0, 0")),
        ("two unwind tables, of which one describes nothing", true, tables(&["f"])),
        ("two unwind tables", false, tables(&["f", "g"])),
        ("crtend.o", true, of_compiler("crtend.o")),
        ("crti.o", false, of_compiler("crti.o")),
        ("crtn.o", false, of_compiler("crtn.o")),
        ("a fragment", true, code_in(".init", calls)),
        ("a fragment at the end", true, code_in(".fini", calls)),
        ("a whole function", true, code_in(".init", &format!("{begins}\n{calls}\n{returns}"))),
        ("half a function", false, code_in(".init", &format!("{begins}\n{calls}"))),
        ("2 GiB", false, huge(2 << 30, "huge")),
        ("5 GiB", false, huge(5 << 30, "huge")),
        ("5 GiB that nothing refers to", true, huge(5 << 30, "0")),
        ("5 GiB that others see", false, assembled(".globl huge\n.bss\nhuge: .skip 5 << 30\n")),
        ("5 GiB of common", false, assembled(".comm huge, 5 << 30, 8\n")),
        ("an executable stack", false, assembled(".section .note.GNU-stack,\"x\",%progbits\n")),
        ("nothing said of stacks", true, assembled("nop\n")),
        (
            "something missing",
            false,
            c("int slabjit_test_missing(void); int f(void) { return slabjit_test_missing(); }"),
        ),
        (
            "something missing that may",
            true,
            c("int slabjit_test_missing(void) __attribute__((weak)); void *f(void) { return slabjit_test_missing; }"),
        ),
        ("a linker's name", false, c("extern char __ehdr_start; void *f(void) { return &__ehdr_start; }")),
        (
            "a linker's name that may miss",
            true,
            c("extern char __ehdr_start __attribute__((weak)); void *f(void) { return &__ehdr_start; }"),
        ),
        ("thread-local common", true, assembled(".tls_common x, 4, 4\n")),
        (
            "thread-local common, and a section of that name",
            true,
            assembled(".section .tbss.slabjit,\"awT\",%nobits\n.skip 4\n.tls_common x, 4, 4\n"),
        ),
    ];
    for (what, loads, bytes) in &objects {
        let loaded = load(&engine, what, bytes);
        assert_eq!(loaded.is_ok(), *loads, "{what}: {:?}", loaded.err().map(|error| error.to_string()));
        if let Err(error) = &loaded {
            // LLVM's words mean nothing to whoever has the object.
            assert!(!matches!(error, Error::Link(LinkError::Failed { .. })), "{what}: {error}");
        }
        assert_eq!(is_said_to_load(&engine, what, bytes), *loads, "check says otherwise of {what}");
        loaded.iter().for_each(freed);
    }
    engine.finish();
}

/// 30 objects with static functions of the same 272 characters each, made one.
fn names_that_merged_objects_share() {
    let engine = Checked::new();
    let objects: Vec<PathBuf> = (0..30)
        .map(|object| {
            let names = (0..100).map(|i| format!("{}{i:02}", "n".repeat(270)));
            let functions =
                names.map(|name| format!("__attribute__((used)) static int {name}(void) {{ return {object}; }}\n"));
            let source = functions.collect::<String>()
                + &format!("int f{object}(void) {{ return {}42() + 1; }}", "n".repeat(270));
            compile(&format!("shares{object}.c"), &source, &["-O0"])
        })
        .collect();
    let merged = temporary().join("shared_names.o");
    let mut arguments = vec![Path::new("-r"), Path::new("-o"), &merged];
    arguments.extend(objects.iter().map(|object| &**object));
    tool("ld", &arguments);
    let library = engine.add_object_file(&merged).unwrap();
    assert_eq!((call(&library, "f0"), call(&library, "f29")), (1, 30));
    freed(&library);
    engine.finish();
}

/// Each of these is defined by `ld` in a program or a shared library, or is missing there. None is the process's.
fn names_of_linkers_are_refused_by_name() {
    let engine = Checked::new();
    let names = [
        "__ehdr_start",
        "__executable_start",
        "__init_array_start",
        "__init_array_end",
        "__fini_array_start",
        "__fini_array_end",
        "__preinit_array_start",
        "__preinit_array_end",
        "__bss_start",
        "__GNU_EH_FRAME_HDR",
        "_DYNAMIC",
        "_edata",
        "_end",
        "_etext",
    ];
    for name in names {
        let user = |weak: &str| {
            let source = format!("extern char {name}[] {weak}; char *at = {name}; int has(void) {{ return at != 0; }}");
            compile_bytes("user.c", &source, &[])
        };
        let error = load(&engine, "user.o", &user("")).unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(&error, Error::Link(LinkError::UndefinedSymbols { symbols, .. }) if symbols.len() == 1 && symbols[0].name == name),
            "{error:?}"
        );
        assert!(text.contains(&format!("{name} is a bound of the file that a linker writes")), "{text}");
        let weak = load(&engine, "user.o", &user("__attribute__((weak))")).unwrap();
        assert_eq!(call(&weak, "has"), 0);
        freed(&weak);
        // Who has one may give it.
        static HERE: u8 = 0;
        // SAFETY: the object takes its address only.
        let given = unsafe { engine.library("given").symbol(name, (&raw const HERE).cast()).build().unwrap() };
        given.add_object(user("")).unwrap();
        assert_eq!(call(&given, "has"), 1);
        freed(&given);
    }
    engine.finish();
}

/// A check of an object alone does not take `_edata` of a shared library for one that the object would be bound to.
fn bounds_that_the_process_exports_are_not_an_objects() {
    let object = compile("exports_bound.c", "char _edata[8]; char other_edata[8];", &["-fPIC"]);
    let exporting = link_shared("libexports_bound.so", &[&object], &[]);
    let path = CString::new(exporting.as_os_str().as_bytes()).unwrap();
    // SAFETY: a library without initialisers, which stays open.
    assert!(!unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) }.is_null());
    let engine = JitEngine::new().unwrap();
    let distance = |name: &str| {
        let source = by_arch("f: movb NAME(%rip), %al\nret", "f: adrp x0, NAME\nret").replace("NAME", name);
        let plan = engine.check_object(compile_bytes("bound.s", &source, &[])).unwrap();
        plan.references.iter().find(|reference| &*reference.symbol == name).unwrap().distance
    };
    let unknown = distance("nobody_has_this");
    assert_ne!(distance("other_edata"), unknown, "what the process exports has an address");
    assert_eq!(distance("_edata"), unknown);
}

/// The unwinder finds what lies behind a table's end in the middle, which `ld.lld -r` leaves there.
fn zeros_in_unwind_tables() {
    let engine = Checked::new();
    let records = include_str!("../cases/with/odd_records.c");
    let (before, after) = records.split_once(".byte 0\\n9:\\n").unwrap();
    let records = format!("{before}.byte 0\\n9: .long 0, 0\\n{after}");
    // SAFETY: the C++ runtime.
    let library = unsafe { engine.library("zeros").shared_library("libstdc++.so.6").build().unwrap() };
    library.add_object(compile_bytes("catches.cc", include_str!("../cases/unwind_odd_records.cc"), &[])).unwrap();
    let bytes = compile_bytes("zeros.c", &records, &[]);
    let plan = library.check_object_named("zeros.o", &bytes).unwrap();
    assert!(plan.loads() && plan.to_string().contains("8 bytes that end an unwind table"), "{plan}");
    library.add_object(&bytes).unwrap();
    // SAFETY: int (int).
    let caught = |name: &str, n| unsafe { library.get::<unsafe extern "C" fn(i32) -> i32>(name).unwrap()(n) };
    assert_eq!((caught("caught_through", 7), caught("caught_through_both", 6)), (49, 42));
    freed(&library);
    engine.finish();
}

/// The names are those of the archive itself.
fn what_only_libgcc_has_is_said_to_be_there() {
    let engine = Checked::new();
    let path = tool("gcc", &["-print-libgcc-file-name"]);
    let table = tool("nm", &["--defined-only", "--format=posix", path.trim()]);
    let symbols = table
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(_, kind)| kind.starts_with(['T', 'D', 'R', 'B', 'W', 'C']));
    let mut names: Vec<&str> = symbols.map(|(name, _)| name).collect();
    names.sort_unstable();
    names.dedup();
    let source: String = names.iter().map(|name| format!(".quad {name}\n")).collect();
    let library = engine.add_object(compile_bytes("all.s", &format!(".data\n{source}"), &[])).unwrap();
    let undefined = library.undefined_symbols().unwrap();
    assert_eq!(undefined.len() > 400, by_arch(true, false), "{}", undefined.len());
    // Lists of constructors, a pointer of the compiler's, and a function of the standard's own name.
    let others = |name: &str| name.ends_with("TOR_LIST__") || name.starts_with("DW.ref.") || name.starts_with("isinf");
    let untold = undefined.iter().filter(|symbol| symbol.hint() != Some(slabjit::SymbolHint::Libgcc));
    let untold: Vec<&str> = untold.map(|symbol| &*symbol.name).filter(|name| !others(name)).collect();
    assert!(untold.is_empty(), "{untold:?}");
    freed(&library);
    engine.finish();
}

fn split_stacks_and_decimal_floats_work_with_libgcc() {
    if cfg!(not(target_arch = "x86_64")) {
        println!("not run: GCC has no decimal floats for AArch64 before 14");
        return;
    }
    let engine = Checked::new();
    // One tenth, seven times, is seven tenths.
    let decimal = "__attribute__((noipa)) int tenths(int n) {
                       _Decimal64 sum = 0, tenth = 0.1DD;
                       while (n--) sum += tenth;
                       return sum == 0.7DD ? 7 : (int)sum;
                   }
                   int decimal(void) { return tenths(7); }";
    let split = "int split(void) { volatile char room[100]; room[3] = 7; return room[3]; }";
    let libgcc = tool("gcc", &["-print-libgcc-file-name"]);
    for (name, source, flags) in [("decimal", decimal, &[][..]), ("split", split, &["-fsplit-stack"])] {
        let bytes = compile_bytes("libgcc.c", source, flags);
        let error = load(&engine, name, &bytes).unwrap_err().to_string();
        assert!(error.contains("is in libgcc.a: add that with Library::add_archive_file"), "{error}");
        let library = library(&engine);
        library.add_object(&bytes).unwrap();
        library.add_archive_file(libgcc.trim()).unwrap();
        assert_eq!(call(&library, name), 7);
        freed(&library);
    }
    engine.finish();
}

/// Each function calls the next, in a section of its own; so does each variable.
fn many_sections_part() {
    use std::fmt::Write as _;
    const MANY: usize = 40_000;
    let mut source = String::new();
    for i in 0..MANY {
        let next = (i + 1) % MANY;
        writeln!(source, ".section .text.f{i},\"ax\"\n.globl f{i}\n.type f{i}, %function\nf{i}: ret").unwrap();
        writeln!(source, ".section .data.d{i},\"aw\"\n.quad d{next} - .\n.globl d{i}\nd{i}: .quad f{next}").unwrap();
    }
    let object = assembled(&source);
    let sections = u16::from_le_bytes([object[60], object[61]]);
    assert_eq!(sections, 0, "the header counts them");
    let library = load(&JitEngine::new().unwrap(), "many.o", &object).unwrap();
    // SAFETY: nothing is called.
    let at = |name: &str| unsafe { library.get::<*const u64>(name).unwrap().address() as u64 };
    for i in (0..MANY).step_by(997) {
        let next = (i + 1) % MANY;
        let place = at(&format!("d{i}"));
        // SAFETY: 16 bytes there are the variable, and nobody writes to them.
        let [distance, function] = unsafe { [place - 8, place].map(|at| (at as *const u64).read()) };
        assert_eq!(function, at(&format!("f{next}")));
        assert_eq!(distance, at(&format!("d{next}")).wrapping_sub(place - 8));
    }
}

fn more_sections_than_a_header_counts() {
    let end = child_with("many_sections_part", &[("SLABJIT_COMPARE_GRAPHS", "67108864")]);
    assert_eq!(end.code, Some(0), "{end:?}");
}
