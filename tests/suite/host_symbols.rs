//! Where imports come from: what is recorded of it, what is said where one is missing, versions, and what compilers
//! take for granted.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{self, Checked, call, compile, compile_bytes, freed, int, link_shared, temporary, tool};
use crate::target::by_arch;
use slabjit::{Error, ImageBuilder, Library, LibraryError, LinkError, Linked, Provider, UndefinedSymbol};

common::tests![
    imports_say_who_provides_them,
    imports_of_what_failed_are_gone,
    runtimes_that_define_one_name_differently_stay_apart,
    shared_libraries_in_search_paths,
    libraries_that_come_while_others_are_opened,
    what_is_missing_is_named_with_who_exports_it,
    versions_of_shared_libraries,
    versions_of_objects,
    what_is_no_shared_library,
    atomics_out_of_line,
    what_is_linked_statically_is_there,
    what_compilers_take_from_libgcc;
    alone: a_runtime_that_was_opened_for_others_only;
    parts: raw_order_fails, given_to_the_library, preloaded,
];

fn provider(library: &Library, name: &str) -> (usize, Provider) {
    let imports = library.imports().unwrap();
    let found: Vec<_> = imports.iter().filter(|import| import.name == name).collect();
    let [import] = found[..] else { panic!("{name} is imported {} times: {imports:?}", found.len()) };
    (import.address, import.provider.clone())
}

/// What `dlsym` finds, as a number.
fn in_process(name: &CStr) -> usize {
    // SAFETY: a plain look-up.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.addr()
}

fn undefined(error: Error) -> Vec<UndefinedSymbol> {
    match error {
        Error::Link(LinkError::UndefinedSymbols { symbols, .. }) => symbols,
        other => panic!("{other}"),
    }
}

/// A shared library with `int answer(void)`.
fn answering(name: &str, answer: i32) -> PathBuf {
    let source = format!("int answer(void) {{ return {answer}; }}");
    link_shared(name, &[&compile("answer.c", &source, &[])], &[])
}

fn imports_say_who_provides_them() {
    let engine = Checked::new();
    let linked =
        engine.add_object_named("linked.o", compile_bytes("l.c", "int in_linked(void) { return 1; }", &[])).unwrap();
    let shared = answering("libanswer.so", 2);
    static GIVEN: i32 = 4;
    // SAFETY: the shared library has no initialisers; `given` is an int.
    let library = unsafe {
        let builder = engine.library("all").link(&linked).shared_library(&shared);
        builder.symbol("given", (&raw const GIVEN).cast()).build().unwrap()
    };
    library.add_object_named("other.o", compile_bytes("o.c", "int in_other(void) { return 8; }", &[])).unwrap();
    let member = compile("member.c", "int in_archive(void) { return 16; }", &[]);
    let archive = common::once_per(&["imports"], "a", |path| {
        tool("ar", &[Path::new("rc"), path, &member]);
    });
    library.add_archive_file(archive).unwrap();
    let source = "#include <stdlib.h>
        int in_linked(void), answer(void), in_other(void), in_archive(void), nowhere(void) __attribute__((weak));
        extern int given;
        static void done(void) {}
        int sum(void) {
            atexit(done);
            return in_linked() + answer() + given + in_other() + in_archive() + (nowhere ? nowhere() : 32) + abs(-64);
        }";
    library.add_object_named("sum.o", compile_bytes("sum.c", source, &["-fno-builtin"])).unwrap();
    assert!(library.imports().unwrap().is_empty(), "nothing is linked");
    assert_eq!(call(&library, "sum"), 127);

    let of = |library: &Library, name| int(library, name).address() as usize;
    let object = |name: &str| Provider::Object { name: name.into() };
    assert_eq!(
        provider(&library, "in_linked"),
        (of(&linked, "in_linked"), Provider::Library { name: "linked.o".into() })
    );
    assert_eq!(provider(&library, "in_other"), (of(&library, "in_other"), object("other.o")));
    let (address, member) = provider(&library, "in_archive");
    assert_eq!(address, of(&library, "in_archive"));
    assert!(matches!(&member, Provider::Object { name } if name.contains("member.o")), "{member:?}");
    // SAFETY: as above.
    let handle = unsafe { libloading::Library::new(&shared).unwrap() };
    // SAFETY: only its address is used.
    let answer = unsafe { *handle.get::<*const c_void>("answer").unwrap() }.addr();
    assert_eq!(provider(&library, "answer"), (answer, Provider::SharedLibrary { path: shared.clone() }));
    assert_eq!(provider(&library, "given"), ((&raw const GIVEN).addr(), Provider::Given));
    assert_eq!(provider(&library, "nowhere"), (0, Provider::Nothing));
    assert_eq!(provider(&library, "atexit").1, Provider::Slabjit);
    let (address, process) = provider(&library, "abs");
    assert_eq!(address, in_process(c"abs"));
    assert!(
        matches!(&process, Provider::Process { library: Some(path) } if path.to_string_lossy().contains("libc.so")),
        "{process:?}"
    );
    for import in library.imports().unwrap() {
        assert_eq!(import.object, "sum.o", "{import}");
        assert!(import.to_string().starts_with(&format!("{} of 'sum.o' is {:#x}", import.name, import.address)));
    }
    freed(&library);
    assert!(matches!(library.imports(), Err(Error::Library(LibraryError::Removed { .. }))));
    freed(&linked);
    engine.finish();
}

fn imports_of_what_failed_are_gone() {
    let engine = Checked::new();
    let library = engine
        .add_object(compile_bytes("good.c", "int abs(int); int f(void) { return abs(-1); }", &["-fno-builtin"]))
        .unwrap();
    assert_eq!(call(&library, "f"), 1);
    let before = library.imports().unwrap();
    library
        .add_object_named(
            "bad.o",
            compile_bytes(
                "bad.c",
                "int missing(void), labs(long); int g(void) { return missing() + labs(1); }",
                &["-fno-builtin"],
            ),
        )
        .unwrap();
    // SAFETY: nothing is found.
    let error = unsafe { library.get::<unsafe extern "C" fn() -> i32>("g") }.unwrap_err();
    assert_eq!(undefined(error)[0].name, "missing");
    assert_eq!(library.imports().unwrap(), before);
    freed(&library);
    engine.finish();
}

/// Each has the runtime it was given, opened RTLD_LOCAL, though both define the same name.
fn runtimes_that_define_one_name_differently_stay_apart() {
    let engine = Checked::new();
    let libraries = [("libone.so", 1), ("libother.so", 1000)].map(|(name, answer)| {
        // SAFETY: no initialisers.
        let library = unsafe { engine.library(name).shared_library(answering(name, answer)).build().unwrap() };
        library
            .add_object(compile_bytes("user.c", "int answer(void); int twice(void) { return 2 * answer(); }", &[]))
            .unwrap();
        library
    });
    assert_eq!(libraries.each_ref().map(|library| call(library, "twice")), [2, 2000]);
    assert_eq!(in_process(c"answer"), 0, "the process sees them");
    let f = int(&libraries[0], "twice");
    freed(&libraries[1]);
    libraries[0].remove();
    // SAFETY: the handle keeps the code, and that the shared library.
    assert_eq!(unsafe { f() }, 2);
    drop(f);
    engine.finish();
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap()
}

fn shared_libraries_in_search_paths() {
    let engine = Checked::new();
    let (first, second) = (answering("libsearched.so", 3), answering("libother_searched.so", 5));
    let build = |name: &str| {
        let builder = engine.library("searches").search_path("/nowhere").search_path(folder_of(&second));
        // SAFETY: no initialisers.
        unsafe { builder.search_path(folder_of(&first)).shared_library(name).build() }
    };
    let library = build("libsearched.so").unwrap();
    library
        .add_object(compile_bytes("user.c", "int answer(void); int twice(void) { return 2 * answer(); }", &[]))
        .unwrap();
    assert_eq!(call(&library, "twice"), 6);
    assert_eq!(provider(&library, "answer").1, Provider::SharedLibrary { path: first.clone() });
    freed(&library);
    // What is in none of them is the dynamic loader's to find.
    drop(build("libm.so.6").unwrap());
    assert!(matches!(build("libnowhere.so"), Err(Error::Library(LibraryError::SharedLibrary { .. }))));
    engine.finish();
}

/// Objects with a shared library are added by another thread while the initialiser of an earlier one runs.
fn libraries_that_come_while_others_are_opened() {
    let folder = temporary().join("opened");
    std::fs::create_dir_all(&folder).unwrap();
    let [started, go] = ["started", "go"].map(|name| folder.join(name));
    let slow = format!(
        "#include <fcntl.h>
        #include <unistd.h>
        int of_slow(void) {{ return 1; }}
        __attribute__((constructor)) static void wait_for_other(void) {{
            close(creat({started:?}, 0600));
            for (int i = 0; i < 6000 && access({go:?}, F_OK); i++) usleep(10000);
        }}"
    );
    let with = |name: &str, source: &str, of_library: &str| {
        let object = compile(&format!("opened_{name}_library.c"), of_library, &["-fPIC"]);
        let library = link_shared(&format!("libopened_{name}.so"), &[&object], &[]);
        let object = compile_bytes(&format!("opened_{name}.c"), source, &[]);
        Linked::Objects(ImageBuilder::new().object(name, object).shared_library(library))
    };
    let first = with("first", "int of_slow(void); int first(void) { return of_slow() + 1; }", &slow);
    let second =
        with("second", "int of_late(void); int second(void) { return of_late(); }", "int of_late(void) { return 7; }");
    let engine = Checked::new();
    let library = engine.add_linked(&first).unwrap();
    std::thread::scope(|scope| {
        let called = scope.spawn(|| call(&library, "first"));
        while !started.exists() {
            assert!(!called.is_finished(), "the library was not opened");
            std::thread::sleep(Duration::from_millis(1));
        }
        library.add_linked(&second).unwrap();
        std::fs::File::create(&go).unwrap();
        assert_eq!(called.join().unwrap(), 2);
    });
    assert_eq!(call(&library, "second"), 7);
    freed(&library);
    engine.finish();
}

fn what_is_missing_is_named_with_who_exports_it() {
    // Libraries that other tests have open are looked in, too: the names are this one's alone.
    let engine = Checked::new();
    let exports = link_shared(
        "libexports.so",
        &[&compile(
            "exports.c",
            "int exported_here(void) { return 1; } int only_used_here(void); int user(void) { return \
             only_used_here(); }",
            &[],
        )],
        &[],
    );
    let folder = folder_of(&exports).to_owned();
    // A link to it is not another one; and there is what cannot be read as one.
    std::os::unix::fs::symlink(&exports, folder.join("libexports.so.1")).unwrap();
    std::fs::write(folder.join("libtext.so"), "text").unwrap();
    std::fs::create_dir(folder.join("libfolder.so")).unwrap();
    tool("mkfifo", &[folder.join("libpipe.so")]);
    let source = "int exported_here(void), only_used_here(void), exported_nowhere(void); int f(void) { return exported_here() + only_used_here() + exported_nowhere(); }";
    let library = engine.library("searching").search_path(&folder).build().unwrap();
    library.add_object_named("f.o", compile_bytes("f.c", source, &[])).unwrap();
    let listed = library.undefined_symbols().unwrap();
    // SAFETY: nothing is found.
    let error = unsafe { library.get::<unsafe extern "C" fn() -> i32>("f") }.unwrap_err();
    let text = error.to_string();
    let missing = undefined(error);
    assert_eq!(missing, listed);
    let all: Vec<_> = missing.iter().map(|symbol| (&*symbol.name, symbol.exported_by.clone())).collect();
    assert_eq!(
        all,
        [("exported_here", vec![exports.clone()]), ("exported_nowhere", vec![]), ("only_used_here", vec![])]
    );
    let advice = format!("is exported by {0}; add it with LibraryBuilder::shared_library(\"{0}\")", exports.display());
    assert_eq!(text.matches("is exported by").count(), 1);
    assert!(text.contains(&advice), "{text}");
    drop(library);
    engine.finish();
}

/// `int version(void)` of two versions, the second of which is the default.
fn versioned() -> PathBuf {
    let source = "int first(void) { return 1; } int second(void) { return 2; }
        __asm__(\".symver first, version@VERSION_1\\n.symver second, version@@VERSION_2\");";
    let script = common::once_per(&["versions"], "map", |path| {
        std::fs::write(path, "VERSION_1 { global: version; local: *; }; VERSION_2 { global: version; } VERSION_1;")
            .unwrap();
    });
    let flag = format!("-Wl,--version-script={}", script.display());
    link_shared("libversioned.so", &[&compile("versioned.c", source, &[])], &[&flag])
}

fn versions_of_shared_libraries() {
    let engine = Checked::new();
    let shared = versioned();
    // SAFETY: no initialisers.
    let library = unsafe { engine.library("versions").shared_library(&shared).build().unwrap() };
    let source = "int version(void), old(void), named(void);
        __asm__(\".symver old, version@VERSION_1\\n.symver named, version@VERSION_2\");
        int all(void) { return 100 * version() + 10 * old() + named(); }";
    library.add_object(compile_bytes("user.c", source, &[])).unwrap();
    assert_eq!(call(&library, "all"), 212);
    // SAFETY: as above.
    let handle = unsafe { libc::dlopen(CString::new(shared.as_os_str().as_bytes()).unwrap().as_ptr(), libc::RTLD_NOW) };
    // SAFETY: an open handle.
    let expected = unsafe { libc::dlvsym(handle, c"version".as_ptr(), c"VERSION_1".as_ptr()) }.addr();
    assert_eq!(provider(&library, "version@VERSION_1"), (expected, Provider::SharedLibrary { path: shared }));
    // SAFETY: opened above.
    unsafe { libc::dlclose(handle) };
    freed(&library);

    // Of the process; the second is none that it has.
    let oldest = by_arch("GLIBC_2.2.5", "GLIBC_2.17");
    let source = |version: &str| {
        format!("int abs_of(int); __asm__(\".symver abs_of, abs@{version}\"); int f(void) {{ return abs_of(-42); }}")
    };
    let library = engine.add_object(compile_bytes("abs.c", &source(oldest), &[])).unwrap();
    assert_eq!(call(&library, "f"), 42);
    freed(&library);
    let library = engine.add_object(compile_bytes("abs.c", &source("GLIBC_1.0"), &[])).unwrap();
    assert_eq!(library.undefined_symbols().unwrap()[0].name, "abs@GLIBC_1.0");
    drop(library);
    engine.finish();
}

/// As `ld` has it: the default version is the plain name as well.
fn versions_of_objects() {
    let engine = Checked::new();
    let library = engine.library("own versions").isolated().build().unwrap();
    let source = "int first(void) { return 1; } int second(void) { return 2; }
        __asm__(\".symver first, version@VERSION_1\\n.symver second, version@@VERSION_2\");";
    library.add_object(compile_bytes("defines.c", source, &[])).unwrap();
    let source = "int version(void), old(void), named(void);
        __asm__(\".symver old, version@VERSION_1\\n.symver named, version@VERSION_2\");
        int all(void) { return 100 * version() + 10 * old() + named(); }";
    library.add_object(compile_bytes("user.c", source, &[])).unwrap();
    assert_eq!(call(&library, "all"), 212);
    assert_eq!(["version", "version@VERSION_1", "version@VERSION_2"].map(|name| call(&library, name)), [2, 1, 2]);
    // The same name.
    let again = library.add_object(compile_bytes("again.c", "int version(void) { return 3; }", &[]));
    assert!(
        matches!(&again, Err(Error::Link(LinkError::DuplicateDefinition { symbol, .. })) if symbol == "version"),
        "{again:?}"
    );
    freed(&library);
    engine.finish();
}

fn what_is_no_shared_library() {
    let engine = Checked::new();
    let object = compile("object.c", "int f(void) { return 1; }", &[]);
    let archive =
        common::once_per(&["no shared library"], "a", |path| drop(tool("ar", &[Path::new("rc"), path, &object])));
    let script =
        common::once_per(&["script"], "so", |path| std::fs::write(path, "/* GNU ld script */ GROUP ( x )").unwrap());
    let cases = [
        (object.clone(), "a relocatable object"),
        (archive, "an archive"),
        (script, "script for the linker"),
        (folder_of(&object).to_owned(), "a folder"),
        ("/dev/null".into(), "neither a file"),
        (std::env::current_exe().unwrap(), ""),
    ];
    for (path, what) in cases {
        // SAFETY: nothing is opened.
        let refused = unsafe { engine.library("refused").shared_library(&path).build() };
        match refused {
            // The loader's own words, for an executable that is linked as a shared library is.
            Err(Error::Library(LibraryError::SharedLibrary { .. })) if what.is_empty() => {}
            Err(error @ Error::Library(LibraryError::NotASharedLibrary { .. })) if !what.is_empty() => {
                let text = error.to_string();
                assert!(text.contains(what) && text.contains(path.to_str().unwrap()), "{text}");
            }
            other => panic!("{}: {other:?}", path.display()),
        }
    }
    // SAFETY: as above.
    let missing = unsafe { engine.preload_global("/nowhere/libmissing.so") };
    assert!(
        matches!(&missing, Err(Error::Library(LibraryError::SharedLibraryNotFound { path })) if path == Path::new("/nowhere/libmissing.so"))
    );
    engine.finish();
}

/// libgcc has these functions hidden in its archive, so that no shared library exports them.
fn atomics_out_of_line() {
    let engine = Checked::new();
    let mut source = String::from(
        "typedef unsigned char u1; typedef unsigned short u2; typedef unsigned u4; typedef unsigned long u8;\n",
    );
    let orders = ["RELAXED", "ACQUIRE", "RELEASE", "ACQ_REL"];
    let mut calls = String::new();
    for size in [1, 2, 4, 8] {
        for order in orders {
            let failing = if order == "ACQUIRE" || order == "ACQ_REL" { "ACQUIRE" } else { "RELAXED" };
            source += &format!(
                "static int f{size}{order}(void) {{
                    u{size} v = 200, e = 13;
                    int bad = __atomic_fetch_add(&v, 7, __ATOMIC_{order}) != 200;
                    bad |= __atomic_fetch_and(&v, 0xcb, __ATOMIC_{order}) != 207;
                    bad |= __atomic_fetch_or(&v, 4, __ATOMIC_{order}) != 203;
                    bad |= __atomic_fetch_xor(&v, 0xff, __ATOMIC_{order}) != 207;
                    bad |= __atomic_exchange_n(&v, 9, __ATOMIC_{order}) != 48;
                    bad |= __atomic_compare_exchange_n(&v, &e, 1, 0, __ATOMIC_{order}, __ATOMIC_{failing}) || e != 9;
                    bad |= !__atomic_compare_exchange_n(&v, &e, 77, 0, __ATOMIC_{order}, __ATOMIC_{failing}) || v != 77;
                    return bad;
                }}\n"
            );
            calls += &format!(" + f{size}{order}()");
        }
        source += &format!(
            "static int sync{size}(void) {{
                u{size} v = 200;
                int bad = __sync_fetch_and_add(&v, 7) != 200;
                bad |= __sync_fetch_and_and(&v, 0xcb) != 207;
                bad |= __sync_fetch_and_or(&v, 4) != 203;
                bad |= __sync_fetch_and_xor(&v, 0xff) != 207;
                bad |= __sync_lock_test_and_set(&v, 9) != 48;
                bad |= __sync_val_compare_and_swap(&v, 13, 1) != 9;
                bad |= __sync_val_compare_and_swap(&v, 9, 77) != 9 || v != 77;
                return bad;
            }}\n"
        );
        calls += &format!(" + sync{size}()");
    }
    source += &format!("int bad(void) {{ return 0{calls}; }}");
    let flags = by_arch(&[][..], &["-moutline-atomics", "-fno-builtin"]);
    // Isolated libraries, too: compilers take them for granted.
    let library = engine.library("atomics").isolated().build().unwrap();
    library.add_object(compile_bytes("atomics.c", &source, flags)).unwrap();
    assert_eq!(call(&library, "bad"), 0);
    let imports = library.imports().unwrap();
    assert!(imports.iter().all(|import| import.provider == Provider::Slabjit), "{imports:?}");
    assert_eq!(imports.len(), by_arch(0, 6 * 4 * (4 + 1)), "{imports:?}");
    freed(&library);
    engine.finish();
}

/// The list is that of the archives which the linker would take them from.
fn what_is_linked_statically_is_there() {
    let engine = Checked::new();
    let defined = |archive: &str| {
        let path = tool("gcc", &[format!("-print-file-name={archive}")]);
        let table = tool("nm", &["--defined-only", "--format=posix", path.trim()]);
        let global = |line: &str| {
            let (name, kind) = line.split_once(' ')?;
            kind.starts_with(['T', 'W']).then(|| name.to_owned())
        };
        table.lines().filter_map(global).collect::<Vec<_>>()
    };
    let mut names = defined("libc_nonshared.a");
    assert!(names.iter().any(|name| name == "at_quick_exit"), "{names:?}");
    let is_atomic = |name: &String| ["cas", "swp", "ld"].iter().any(|op| name.starts_with(&format!("__aarch64_{op}")));
    names.extend(defined("libgcc.a").into_iter().filter(is_atomic));
    assert_eq!(names.len() > 50, by_arch(false, true), "{names:?}");
    let source: String = names.iter().map(|name| format!(".quad {name}\n")).collect();
    let library = engine.add_object(compile_bytes("static.s", &format!(".data\n{source}"), &[])).unwrap();
    assert_eq!(library.undefined_symbols().unwrap(), []);
    // SAFETY: there is nothing to run.
    unsafe { library.initialize().unwrap() };
    assert!(library.imports().unwrap().iter().all(|import| import.address != 0));
    drop(library);
    engine.finish();
}

/// No shared library has it for others: each program and shared library has one of its own.
fn what_compilers_take_from_libgcc() {
    if cfg!(not(target_arch = "x86_64")) {
        println!("not run: the names are those of x86-64");
        return;
    }
    let engine = Checked::new();
    let source = "int f(void) { __builtin_cpu_init(); return __builtin_cpu_supports(\"sse2\") ? 7 : 9; }";
    let library = engine.add_object(compile_bytes("cpu.c", source, &[])).unwrap();
    // SAFETY: nothing is found.
    let error = unsafe { library.initialize() }.unwrap_err().to_string();
    assert!(error.contains("__cpu_model") && error.contains("add_archive_file"), "{error}");
    let libgcc = tool("gcc", &["-print-libgcc-file-name"]);
    library.add_archive_file(libgcc.trim()).unwrap();
    assert_eq!(call(&library, "f"), 7);
    freed(&library);
    engine.finish();
}

// ---- CUTLASS#3075 ----

const RUNTIME: &str = "int slabjit_test_load_data(void) { return 42; }";
const USER: &str = "int slabjit_test_load_data(void); int load(void) { return slabjit_test_load_data(); }";

/// The runtime library, and a shared library that needs it and does not say so.
fn runtime_and_dependant() -> [PathBuf; 2] {
    let runtime = link_shared("libruntime.so", &[&compile("runtime.c", RUNTIME, &[])], &[]);
    [runtime, link_shared("libdependant.so", &[&compile("dependant.c", USER, &[])], &[])]
}

/// What Python does with a wheel's libraries: each in turn, for itself. What it leaves open stays open.
fn open_raw(path: &Path, flags: i32) -> Result<libloading::os::unix::Library, libloading::Error> {
    // SAFETY: they have no initialisers.
    unsafe { libloading::os::unix::Library::open(Some(path), flags | libc::RTLD_NOW) }
}

/// Each in a process of its own: what is opened RTLD_GLOBAL stays so.
fn a_runtime_that_was_opened_for_others_only() {
    for part in ["raw_order_fails", "given_to_the_library", "preloaded"] {
        let end = common::child(part);
        assert_eq!(end.code, Some(0), "{part}: {end:?}");
    }
}

/// The report: the runtime is there, and is not found. MCJIT and ORC look where `dlsym(RTLD_DEFAULT)` looks.
fn raw_order_fails() {
    let [runtime, dependant] = runtime_and_dependant();
    let _open = open_raw(&runtime, libc::RTLD_LOCAL).unwrap();
    let error = open_raw(&dependant, libc::RTLD_LOCAL).expect_err("the runtime's symbols are local");
    assert!(format!("{error:?}").contains("slabjit_test_load_data"), "{error:?}");
    assert_eq!(in_process(c"slabjit_test_load_data"), 0);
    // Without being told, ours finds it no more than others do; and says where it is.
    let engine = Checked::new();
    let library = engine.add_object(compile_bytes("user.c", USER, &[])).unwrap();
    // SAFETY: nothing is found.
    let error = unsafe { library.get::<unsafe extern "C" fn() -> i32>("load") }.unwrap_err();
    let text = error.to_string();
    assert_eq!(undefined(error)[0].exported_by, std::slice::from_ref(&runtime), "{text}");
    drop(library);
    engine.finish();
}

fn given_to_the_library() {
    let [runtime, _] = runtime_and_dependant();
    let _open = open_raw(&runtime, libc::RTLD_LOCAL).unwrap();
    let engine = Checked::new();
    // SAFETY: no initialisers.
    let library = unsafe { engine.library("kernel").shared_library(&runtime).build().unwrap() };
    library.add_object(compile_bytes("user.c", USER, &[])).unwrap();
    assert_eq!(call(&library, "load"), 42);
    assert_eq!(in_process(c"slabjit_test_load_data"), 0, "it is the library's alone");
    freed(&library);
    engine.finish();
}

fn preloaded() {
    let [runtime, dependant] = runtime_and_dependant();
    let engine = Checked::new();
    // SAFETY: no initialisers.
    unsafe { engine.preload_global(&runtime).unwrap() };
    // What opens others later finds it, ours or not.
    let dependant = open_raw(&dependant, libc::RTLD_LOCAL).unwrap();
    // SAFETY: it is int(void).
    assert_eq!(unsafe { dependant.get::<unsafe extern "C" fn() -> i32>("load").unwrap()() }, 42);
    let library = engine.add_object(compile_bytes("user.c", USER, &[])).unwrap();
    assert_eq!(call(&library, "load"), 42);
    freed(&library);
}
