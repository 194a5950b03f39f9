//! Another libLLVM in the process, RTLD_GLOBAL: loaded before ours, and after.
//!
//! Hosts bring their own: Mesa's drivers, numba, a database. What keeps them apart are the versions of LLVM's symbols,
//! and that the shim hides its own.

use crate::common::{self, Checked, ChildEnd, child_with, compile, compile_with};
use crate::target::under_qemu;
use slabjit::{Error, LinkError};

common::tests![
    another_llvm_before_ours,
    another_llvm_after_ours;
    parts: before_part, after_part,
];

/// What the parts are told: the other library, and the objects.
const OTHER: &str = "SLABJIT_TEST_OTHER_LLVM";
const OBJECTS: &str = "SLABJIT_TEST_OBJECTS";
/// What they say where the other library is not installed.
const ABSENT: &str = "absent";

/// As LLVM names its library on Linux (`llvm/tools/llvm-shlib/CMakeLists.txt`): otherwise from 18 on.
fn library_of(major: u32) -> String {
    if major < 18 { format!("libLLVM-{major}.so.1") } else { format!("libLLVM.so.{major}.1") }
}

/// Runs a part for each other LLVM that the crate supports; one at least has to be there.
fn with_every_other(run: impl Fn(&str, &str) -> ChildEnd) {
    let good = compile("good.c", "int twice(int x) { return 2 * x; }", &[]);
    let throwing = compile_with(
        "g++",
        "throwing.cc",
        "#include <stdexcept>\n\
         static int counter;\n\
         __attribute__((constructor)) static void start() { counter = 40; }\n\
         extern \"C\" int caught(int x) {\n\
             try { if (x > 1) throw std::runtime_error(\"x\"); return 1; }\n\
             catch (const std::exception &) { return counter + x; }\n\
         }",
        &[],
    );
    let lacking =
        compile("lacking.c", "int nowhere_to_be_found(void); int f(void) { return nowhere_to_be_found(); }", &[]);
    let objects = [good, throwing, lacking].map(|path| path.to_str().unwrap().to_owned()).join(":");
    let mut ran = vec![];
    for major in (15..=23).filter(|major| *major != slabjit::llvm_version()) {
        let end = run(&library_of(major), &objects);
        // Of an older release, without its own libraries in the root that the program has.
        if under_qemu() && end.code == Some(127) && end.stderr.contains("cannot open shared object file") {
            println!("without {}: {}", library_of(major), end.stderr);
            continue;
        }
        assert_eq!((end.code, end.signal), (Some(0), None), "beside LLVM {major}: {end:?}");
        if end.stdout.trim() == ABSENT {
            println!("without {}, which is not installed", library_of(major));
        } else {
            ran.push(major);
        }
    }
    if ran.is_empty() && under_qemu() {
        return println!("not run: no other libLLVM can be loaded");
    }
    assert!(!ran.is_empty(), "no other libLLVM is installed; ci/test installs those of 19 and 22");
}

fn another_llvm_before_ours() {
    // First of all libraries, and so the first in which a name is looked for.
    with_every_other(|library, objects| {
        child_with("before_part", &[("LD_PRELOAD", library), (OTHER, library), (OBJECTS, objects)])
    });
}

fn another_llvm_after_ours() {
    with_every_other(|library, objects| child_with("after_part", &[(OTHER, library), (OBJECTS, objects)]));
}

/// The files of both libraries that are mapped, or None if the other is not.
fn is_mapped(library: &str) -> bool {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().any(|line| line.contains(library))
}

/// Loads, runs, throws, fails and removes, and asks which LLVM does it.
fn use_ours() {
    let objects = std::env::var(OBJECTS).unwrap();
    let [good, throwing, lacking] = objects.split(':').collect::<Vec<_>>()[..] else { panic!("{objects}") };
    assert!(slabjit::llvm_version_string().starts_with(&format!("{}.", slabjit::llvm_version())));
    let engine = Checked::new();
    let call = |library: &slabjit::Library, name: &str, x: i32| {
        // SAFETY: all functions of the objects above that are called are int(int).
        unsafe { library.get::<extern "C-unwind" fn(i32) -> i32>(name).unwrap()(x) }
    };
    let library = engine.add_object_file(good).unwrap();
    assert_eq!(call(&library, "twice", 21), 42);
    common::freed(&library);
    // SAFETY: libstdc++ is in the process already.
    let library = unsafe { engine.library("throwing").shared_library("libstdc++.so.6").build().unwrap() };
    library.add_object_file(throwing).unwrap();
    assert_eq!((call(&library, "caught", 1), call(&library, "caught", 2)), (1, 42));
    common::freed(&library);
    let library = engine.add_object_file(lacking).unwrap();
    // SAFETY: it has no initialisers.
    let error = unsafe { library.initialize() }.unwrap_err();
    assert!(matches!(&error, Error::Link(LinkError::UndefinedSymbols { .. })), "{error:?}");
    common::freed(&library);
    engine.assert_usable();
    engine.finish();
}

fn before_part() {
    if !is_mapped(&std::env::var(OTHER).unwrap()) {
        return println!("{ABSENT}");
    }
    use_ours();
}

fn after_part() {
    use_ours();
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
    let other = std::env::var(OTHER).unwrap();
    // SAFETY: LLVM's library registers its options with itself, and nothing else, when it is opened.
    let Ok(opened) = (unsafe { Library::open(Some(&other), RTLD_NOW | RTLD_GLOBAL) }) else {
        return println!("{ABSENT}");
    };
    assert!(is_mapped(&other));
    use_ours();
    // What was opened stays open.
    std::mem::forget(opened);
}
