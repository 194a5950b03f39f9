//! Which definition a name gets: inside the library, then along `.link(…)`, then the host.

use crate::common::{self, Checked, compile, compile_with, link_shared};
use slabjit::{Error, JitEngine, Library, LibraryError, LinkError, ObjectError, SymbolMissing};

common::tests![
    one_name_in_two_libraries,
    library_before_links_before_host,
    links_in_order,
    links_are_not_transitive_for_get,
    host_symbol_before_process,
    host_symbol_as_data,
    isolated_sees_no_process,
    isolated_sees_its_shared_library,
    shared_library_before_process,
    shared_library_missing,
    weak_is_resolved_inside_its_library,
    weak_undefined_along_links,
    strong_in_a_linked_library_does_not_replace_a_weak_here,
    archive_members_on_demand,
    archive_member_with_an_initializer_is_not_loaded_unasked,
    an_archive_as_a_library_of_its_own,
    an_archive_file_as_a_library_of_its_own,
    get_of_a_missing_name,
    a_missing_name_says_why,
    get_of_data_as_function,
    get_of_null,
    get_of_a_name_with_nul,
    get_of_a_local_symbol,
    objects_that_need_each_other,
    objects_added_after_the_first_get,
];

type IntFunction = extern "C" fn() -> i32;

fn int(library: &Library, name: &str) -> i32 {
    // SAFETY: the functions of this file's objects are int(void).
    unsafe { library.get::<IntFunction>(name).unwrap()() }
}

fn error(library: &Library, name: &str) -> Error {
    // SAFETY: nothing is found.
    unsafe { library.get::<IntFunction>(name) }.expect_err("must not be found")
}

/// A library linked against others, with one object.
fn library(engine: &JitEngine, name: &str, links: &[&Library], source: &str) -> Library {
    let library = links.iter().fold(engine.library(name), |b, l| b.link(l)).build().unwrap();
    library.add_object_file(compile(&format!("{name}.c"), source, &[])).unwrap();
    library
}

fn one_name_in_two_libraries() {
    let engine = Checked::new();
    let source = |i: i32| {
        format!("int state = {i}; int same(void) {{ return state; }} int value(void) {{ return same() + state++; }}")
    };
    let (one, two) = (library(&engine, "one", &[], &source(1)), library(&engine, "two", &[], &source(10)));
    assert_eq!((int(&one, "value"), int(&two, "value")), (2, 20));
    assert_eq!((int(&one, "value"), int(&two, "value")), (4, 22));
    common::freed(&one);
    assert_eq!(int(&two, "value"), 24);
    common::freed(&two);
    engine.finish();
}

fn library_before_links_before_host() {
    let engine = Checked::new();
    // `abs` is in libc, too.
    let base = library(&engine, "base", &[], "int abs(int x) { return 100; } int only_base(void) { return 1; }");
    let flags = ["-fno-builtin"];
    let call = compile("call_abs.c", "int abs(int); int value(void) { return abs(-7); }", &flags);
    let own = compile("own_abs.c", "int abs(int x) { return 200; }", &flags);
    let build = |links: &[&Library], objects: &[&std::path::Path]| {
        let library = links.iter().fold(engine.library("abs"), |b, l| b.link(l)).build().unwrap();
        objects.iter().for_each(|o| library.add_object_file(o).unwrap());
        int(&library, "value")
    };
    assert_eq!(build(&[], &[&call]), 7, "the host");
    assert_eq!(build(&[&base], &[&call]), 100, "the linked library");
    assert_eq!(build(&[&base], &[&call, &own]), 200, "the library itself");
    drop(base);
    engine.finish();
}

fn links_in_order() {
    let engine = Checked::new();
    let one = library(&engine, "first", &[], "int which(void) { return 1; }");
    let two = library(&engine, "second", &[], "int which(void) { return 2; } int other(void) { return 20; }");
    let source = "int which(void); int other(void); int value(void) { return which() + other(); }";
    assert_eq!(int(&library(&engine, "user", &[&one, &two], source), "value"), 21);
    assert_eq!(int(&library(&engine, "user", &[&two, &one], source), "value"), 22);
    drop((one, two));
    engine.finish();
}

fn links_are_not_transitive_for_get() {
    let engine = Checked::new();
    let base = library(&engine, "deep", &[], "int deep(void) { return 1; }");
    let middle = library(&engine, "middle", &[&base], "int deep(void); int value(void) { return deep(); }");
    assert_eq!(int(&middle, "value"), 1);
    assert!(matches!(error(&middle, "deep"), Error::Library(LibraryError::SymbolNotFound { .. })));
    drop((base, middle));
    engine.finish();
}

extern "C" fn host_abs(_: i32) -> i32 {
    300
}

fn host_symbol_before_process() {
    let engine = Checked::new();
    // SAFETY: `abs` is int(int).
    let library = unsafe { engine.library("host").symbol("abs", host_abs as *const ()).build().unwrap() };
    library
        .add_object_file(compile("call_abs.c", "int abs(int); int value(void) { return abs(-7); }", &["-fno-builtin"]))
        .unwrap();
    assert_eq!(int(&library, "value"), 300);
    drop(library);
    engine.finish();
}

fn host_symbol_as_data() {
    static NUMBER: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(17);
    let engine = Checked::new();
    // SAFETY: `host_number` is an int.
    let library = unsafe { engine.library("host").symbol("host_number", (&raw const NUMBER).cast()).build().unwrap() };
    library
        .add_object_file(compile("number.c", "extern int host_number; int value(void) { return ++host_number; }", &[]))
        .unwrap();
    assert_eq!(int(&library, "value"), 18);
    assert_eq!(NUMBER.load(std::sync::atomic::Ordering::Relaxed), 18);
    drop(library);
    engine.finish();
}

fn isolated_sees_no_process() {
    let engine = Checked::new();
    let library = engine.library("isolated").isolated().build().unwrap();
    library.add_object_file(compile("uses_libc.c", "int rand(void); int value(void) { return rand(); }", &[])).unwrap();
    let error = error(&library, "value");
    assert!(
        matches!(&error, Error::Link(LinkError::UndefinedSymbols { symbols, .. }) if symbols.len() == 1 && symbols[0].name == "rand"),
        "{error:?}"
    );
    drop(library);
    engine.finish();
}

fn isolated_sees_its_shared_library() {
    let engine = Checked::new();
    // SAFETY: libm has no initialisers that matter.
    let library = unsafe { engine.library("isolated").isolated().shared_library("libm.so.6").build().unwrap() };
    let source = "double cbrt(double); int value(void) { volatile double x = 27; return (int)(cbrt(x) + 0.5); }";
    library.add_object_file(compile("cube.c", source, &[])).unwrap();
    assert_eq!(int(&library, "value"), 3);
    drop(library);
    engine.finish();
}

fn shared_library_before_process() {
    let object =
        compile("abs_400.c", "int abs(int x) { return 400; } int only_there(void) { return 7; }", &["-fno-builtin"]);
    let shared = link_shared("libabs400.so", &[&object], &[]);
    let engine = Checked::new();
    // SAFETY: the shared library runs nothing when it is opened.
    let library = unsafe { engine.library("shared").shared_library(&shared).build().unwrap() };
    let source = "int abs(int); int only_there(void); int value(void) { return abs(-7) + only_there(); }";
    library.add_object_file(compile("call_400.c", source, &["-fno-builtin"])).unwrap();
    assert_eq!(int(&library, "value"), 407);
    drop(library);
    engine.finish();
}

fn shared_library_missing() {
    let engine = Checked::new();
    // SAFETY: there is no such library.
    let error = unsafe { engine.library("missing").shared_library("libnowhere-at-all.so.9").build() }.err().unwrap();
    assert!(
        matches!(error, Error::Library(LibraryError::SharedLibrary { .. }))
            && error.to_string().contains("libnowhere-at-all.so.9"),
        "{error:?}"
    );
    engine.assert_usable();
    engine.finish();
}

fn weak_is_resolved_inside_its_library() {
    let engine = Checked::new();
    let weak = "__attribute__((weak)) int choice(void) { return 1; } int value(void) { return choice(); }";
    let alone = library(&engine, "weak", &[], weak);
    let both = library(&engine, "weak", &[], weak);
    both.add_object_file(compile("strong.c", "int choice(void) { return 2; }", &[])).unwrap();
    assert_eq!((int(&alone, "value"), int(&both, "value")), (1, 2));
    drop((alone, both));
    engine.finish();
}

fn weak_undefined_along_links() {
    let engine = Checked::new();
    let source = "__attribute__((weak)) int maybe(void); int value(void) { return maybe ? maybe() : -1; }";
    let base = library(&engine, "maybe", &[], "int maybe(void) { return 5; }");
    assert_eq!(int(&library(&engine, "without", &[], source), "value"), -1);
    assert_eq!(int(&library(&engine, "with", &[&base], source), "value"), 5);
    drop(base);
    engine.finish();
}

fn strong_in_a_linked_library_does_not_replace_a_weak_here() {
    let engine = Checked::new();
    let base = library(&engine, "strong", &[], "int choice(void) { return 2; }");
    let weak = "__attribute__((weak)) int choice(void) { return 1; } int value(void) { return choice(); }";
    assert_eq!(int(&library(&engine, "weak", &[&base], weak), "value"), 1);
    drop(base);
    engine.finish();
}

fn archive(name: &str, sources: &[(&str, &str)]) -> std::path::PathBuf {
    let objects: Vec<_> = sources.iter().map(|(n, s)| compile(n, s, &[])).collect();
    common::once_per(&["archive", name], "a", |path| {
        let mut arguments = vec!["rcs".as_ref(), path.as_os_str()];
        arguments.extend(objects.iter().map(|o| o.as_os_str()));
        common::tool("ar", &arguments);
    })
}

fn archive_members_on_demand() {
    let path = archive(
        "demand",
        &[
            ("member_a.c", "int from_b(void); int from_a(void) { return from_b() + 1; }"),
            ("member_b.c", "int from_b(void) { return 40; }"),
            ("member_broken.c", "int absent(void); int unused_member(void) { return absent(); }"),
        ],
    );
    let engine = Checked::new();
    let library = library(&engine, "uses_archive", &[], "int from_a(void); int value(void) { return from_a() + 1; }");
    library.add_archive(std::fs::read(path).unwrap()).unwrap();
    assert_eq!(int(&library, "value"), 42);
    drop(library);
    engine.finish();
}

fn archive_member_with_an_initializer_is_not_loaded_unasked() {
    let path = archive(
        "unasked",
        &[
            (
                "member_init.c",
                "int absent(void); __attribute__((constructor)) static void init(void) { absent(); } int asked(void) \
                 { return 1; }",
            ),
            ("member_plain.c", "int plain(void) { return 8; }"),
        ],
    );
    let engine = Checked::new();
    let library = engine.library("archive").build().unwrap();
    library.add_archive_file(path).unwrap();
    assert_eq!(int(&library, "plain"), 8);
    let error = error(&library, "asked");
    assert!(error.to_string().contains("absent"), "{error}");
    drop(library);
    engine.finish();
}

const ONE_NEEDS_OTHER: [(&str, &str); 2] = [
    ("member_one.c", "int other(void); int one(void) { return other() + 1; }"),
    ("member_other.c", "int other(void) { return 41; }"),
];

fn an_archive_as_a_library_of_its_own() {
    let bytes = std::fs::read(archive("own", &ONE_NEEDS_OTHER)).unwrap();
    let engine = Checked::new();
    let library = engine.add_archive(&bytes).unwrap();
    drop(bytes);
    assert_eq!((int(&library, "one"), int(&library, "other")), (42, 41));
    common::freed(&library);
    for (bytes, thin) in [(&b"!<thin>\n"[..], true), (b"\x7fELF", false)] {
        let error = engine.add_archive(bytes).unwrap_err();
        let expected = match &error {
            Error::Object(ObjectError::ThinArchive { .. }) => thin,
            Error::Object(ObjectError::NotAnArchive { .. }) => !thin,
            _ => false,
        };
        assert!(expected, "{error}");
    }
    engine.finish();
}

fn an_archive_file_as_a_library_of_its_own() {
    let path = archive("own_file", &ONE_NEEDS_OTHER);
    let engine = Checked::new();
    let library = engine.add_archive_file(&path).unwrap();
    assert_eq!(library.name(), path.to_str().unwrap());
    assert_eq!((int(&library, "one"), int(&library, "other")), (42, 41));
    common::freed(&library);
    let missing = engine.add_archive_file("/nowhere/libmissing.a").unwrap_err();
    assert!(matches!(&missing, Error::Io { path, .. } if path.ends_with("libmissing.a")), "{missing}");
    engine.finish();
}

fn get_of_a_missing_name() {
    let engine = Checked::new();
    let library = library(&engine, "missing_name", &[], "int value(void) { return 1; }");
    let error = error(&library, "valve");
    assert!(
        matches!(&error, Error::Library(LibraryError::SymbolNotFound { symbol, .. }) if symbol == "valve"),
        "{error:?}"
    );
    assert!(error.to_string().contains("missing_name"), "{error}");
    drop(library);
    engine.finish();
}

fn a_missing_name_says_why() {
    let why = |error: Error| match error {
        Error::Library(LibraryError::SymbolNotFound { reason, .. }) => reason,
        other => panic!("{other}"),
    };
    let engine = Checked::new();
    let source =
        "__attribute__((visibility(\"hidden\"))) int unseen(void) { return 2; } int value(void) { return unseen(); }";
    let library = library(&engine, "why", &[], source);
    assert_eq!(why(library.slab_of("value").unwrap_err()), SymbolMissing::NotLinked);
    assert_eq!(why(error(&library, "unseen")), SymbolMissing::Hidden);
    assert_eq!(why(library.slab_of("val\0ue").unwrap_err()), SymbolMissing::NulInName);
    let defined = vec!["value".to_owned()];
    assert_eq!(why(error(&library, "valve")), SymbolMissing::Undefined { defined, more: 0 });
    assert_eq!(error(&library, "valve").to_string(), "library 'why' defines no symbol 'valve'; it defines value");

    let many: String = (0..10).map(|i| format!("int f{i}(void) {{ return {i}; }}")).collect();
    library.add_object_file(compile("many.c", &many, &[])).unwrap();
    let SymbolMissing::Undefined { defined, more } = why(error(&library, "alue")) else { panic!() };
    // The likeliest first.
    assert_eq!((defined.len(), more, &*defined[0]), (8, 3, "value"));
    let text = error(&library, "alue").to_string();
    assert!(text.ends_with("it defines value, f0, f1, f2, f3, f4, f5, f6 and 3 more"), "{text}");

    let none = engine.add_object_file(compile("none.c", "static int x; int *get(void); ", &[])).unwrap();
    assert_eq!(why(error(&none, "value")), SymbolMissing::Undefined { defined: Vec::new(), more: 0 });
    drop((library, none));
    engine.finish();
}

fn get_of_data_as_function() {
    let engine = Checked::new();
    let library =
        library(&engine, "kinds", &[], "int data = 1; int zero; const int constant = 2; int value(void) { return 1; }");
    for name in ["data", "zero", "constant"] {
        assert!(matches!(error(&library, name), Error::Library(LibraryError::WrongSymbolKind { .. })), "{name}");
    }
    // SAFETY: `data` is an int.
    let data = unsafe { library.get::<*mut i32>("data").unwrap() };
    // SAFETY: as above.
    assert_eq!(unsafe { **data }, 1);
    drop((data, library));
    engine.finish();
}

fn get_of_null() {
    let engine = Checked::new();
    let path = compile(
        "null.s",
        ".globl nothing\nnothing = 0\n.globl value\n.type value, @function\n.text\nvalue: ret\n",
        &[],
    );
    let library = engine.add_object_file(path).unwrap();
    assert!(matches!(error(&library, "nothing"), Error::Library(LibraryError::NullSymbol { .. })));
    drop(library);
    engine.finish();
}

fn get_of_a_name_with_nul() {
    let engine = Checked::new();
    let library = library(&engine, "nul", &[], "int value(void) { return 1; }");
    let error = error(&library, "val\0ue");
    assert!(
        matches!(
            error,
            Error::Library(LibraryError::InvalidName { .. }) | Error::Library(LibraryError::SymbolNotFound { .. })
        ),
        "{error:?}"
    );
    drop(library);
    engine.finish();
}

fn get_of_a_local_symbol() {
    let engine = Checked::new();
    let source = "static __attribute__((noinline, used)) int hidden_here(void) { return 1; } int value(void) { return hidden_here(); }";
    let library = library(&engine, "local", &[], source);
    assert_eq!(int(&library, "value"), 1);
    assert!(matches!(error(&library, "hidden_here"), Error::Library(LibraryError::SymbolNotFound { .. })));
    drop(library);
    engine.finish();
}

fn objects_that_need_each_other() {
    let engine = Checked::new();
    let library = library(
        &engine,
        "ping",
        &[],
        "int pong(int); int ping(int n) { return n ? pong(n - 1) + 1 : 0; } int value(void) { return ping(9); }",
    );
    library
        .add_object_file(compile_with(
            "clang-19",
            "pong.c",
            "int ping(int); int pong(int n) { return n ? ping(n - 1) + 1 : 0; }",
            &[],
        ))
        .unwrap();
    assert_eq!(int(&library, "value"), 9);
    drop(library);
    engine.finish();
}

fn objects_added_after_the_first_get() {
    let engine = Checked::new();
    let library = library(&engine, "grows", &[], "int value(void) { return 1; }");
    assert_eq!(int(&library, "value"), 1);
    library
        .add_object_file(compile("later.c", "int value(void); int later(void) { return value() + 1; }", &[]))
        .unwrap();
    assert_eq!(int(&library, "later"), 2);
    common::freed(&library);
    drop(library);
    engine.finish();
}
