//! `slabjit::orc`: libraries that find names of dylibs.

use std::sync::Barrier;

use slabjit::ir::OptLevel;
use slabjit::orc::{Dylib, Jit};
use slabjit::{Error, Library, LinkError, Symbol};

use crate::common::{Checked, compile_bytes, tests};
use crate::dylib_calls::Int;

tests![
    a_library_finds_names_of_a_dylib,
    links_are_looked_in_in_their_order,
    what_a_library_uses_stays,
    a_library_and_a_dylib_find_each_other,
    what_a_dylib_cannot_link_is_told,
    names_go_with_the_session,
    functions_are_compiled_for_libraries,
    threads_link_libraries_against_one_dylib
];

fn jit(engine: &Checked) -> Jit {
    engine.orc().build().unwrap()
}

fn add(dylib: &Dylib, source: &str) {
    dylib.add_object(compile_bytes("dylib.c", source, &[])).unwrap();
}

fn linked(engine: &Checked, dylib: &Dylib, source: &str) -> Library {
    let library = engine.library("library").link(dylib).build().unwrap();
    library.add_object_named("library.c", compile_bytes("library.c", source, &[])).unwrap();
    library
}

fn find(library: &Library, name: &str) -> slabjit::Result<Symbol<Int>> {
    // SAFETY: the tests' functions are of this type, and their initialisers may run.
    unsafe { library.get::<Int>(name) }
}

fn call(library: &Library, name: &str, n: i32) -> i32 {
    let function = find(library, name).unwrap();
    // SAFETY: of this type.
    unsafe { function(n) }
}

fn a_library_finds_names_of_a_dylib() {
    let engine = Checked::new();
    let main = jit(&engine).dylib("main");
    let source = "static int base; __attribute__((constructor)) static void begin(void) { base = 100; }
        int step(int n) { return base + n; } int data = 7; int unused(int n) { return n; }
        __attribute__((visibility(\"hidden\"))) int hidden(int n) { return n; }";
    add(&main, source);
    add(&main, "int apart(int n) { return n; }");
    // Its constructor needs the dylib's, and a name of the process is behind the dylib's.
    let source = "int step(int); extern int data; static int seen;
        __attribute__((constructor)) static void begin(void) { seen = step(1); }
        int start(int n) { return seen * 1000 + step(n) + data; }";
    let library = linked(&engine, &main, source);
    assert_eq!(engine.stats().libraries, 1);
    assert!(library.undefined_symbols().unwrap().is_empty());
    assert_eq!(engine.stats().libraries, 1);
    assert_eq!(call(&library, "start", 2), 101_000 + 102 + 7);
    let import = library.imports().unwrap().into_iter().find(|import| import.name == "step").unwrap();
    assert!(format!("{:?}", import.provider).contains("main"), "{:?}", import.provider);
    // Of the dylib, the object that was asked for.
    assert_eq!(engine.stats().libraries, 2);
    let library = linked(&engine, &main, "int hidden(int); int start(int n) { return hidden(n); }");
    assert_eq!(library.undefined_symbols().unwrap()[0].name, "hidden");
    let error = find(&library, "start").unwrap_err();
    assert!(matches!(error, Error::Link(LinkError::UndefinedSymbols { .. })), "{error:?}");
}

fn links_are_looked_in_in_their_order() {
    let engine = Checked::new();
    let main = jit(&engine).dylib("main");
    add(&main, "int both(int n) { return n + 1; } int abs(int n) { return n + 10; } int own(int n) { return 0; }");
    let other = engine.add_object(compile_bytes("other.c", "int both(int n) { return n + 2; }", &[])).unwrap();
    let source = "int both(int), abs(int); int own(int n) { return n; }
        int start(int n) { return both(n) + 100 * abs(n) + own(n); }";
    for (dylib_first, expected) in [(true, 1), (false, 2)] {
        let builder = engine.library("library");
        let builder = match dylib_first {
            true => builder.link(&main).link(&other),
            false => builder.link(&other).link(&main),
        };
        let library = builder.build().unwrap();
        library.add_object(compile_bytes("ordered.c", source, &["-fno-builtin"])).unwrap();
        assert_eq!(call(&library, "start", 0), 1000 + expected);
    }
    let second = jit(&engine).dylib("second");
    add(&second, "int of_second(int n) { return n; }");
    let library = engine.library("library").link(&main).link(&second).build().unwrap();
    let source = "int of_second(int); int start(int n) { return of_second(n); }";
    library.add_object(compile_bytes("second.c", source, &[])).unwrap();
    assert_eq!(call(&library, "start", 4), 4);
    let import = library.imports().unwrap().into_iter().find(|import| import.name == "of_second").unwrap();
    assert!(format!("{:?}", import.provider).contains("second"), "{:?}", import.provider);
}

fn what_a_library_uses_stays() {
    let engine = Checked::new();
    let main = jit(&engine).dylib("main");
    let tracker = main.tracker();
    tracker.add_object(compile_bytes("kept.c", "int kept(int n) { return n + 5; }", &[])).unwrap();
    let library = linked(&engine, &main, "int kept(int); int start(int n) { return kept(n); }");
    assert_eq!(call(&library, "start", 1), 6);
    tracker.remove().unwrap();
    main.clear().unwrap();
    assert_eq!(call(&library, "start", 2), 7);
    // What comes now is for others.
    add(&main, "int kept(int n) { return n + 50; }");
    let second = linked(&engine, &main, "int kept(int); int start(int n) { return kept(n); }");
    assert_eq!((call(&library, "start", 3), call(&second, "start", 3)), (8, 53));
    drop((library, second));
    main.clear().unwrap();
    assert_eq!(engine.stats().arena.slabs, 0);
}

fn a_library_and_a_dylib_find_each_other() {
    let engine = Checked::new();
    let main = jit(&engine).dylib("main");
    let library = linked(&engine, &main, "int first(int n) { return n + 1; }");
    main.link(&library).unwrap();
    add(&main, "int first(int); int second(int n) { return first(n) + 10; }");
    add(&main, "int third(int); int around(int n) { return third(n); }");
    // What is linked already is found from the dylib while it is asked for the library.
    assert_eq!(call(&library, "first", 0), 1);
    let source = "int second(int); int third(int n) { return second(n) + 100; }";
    library.add_object(compile_bytes("third.c", source, &[])).unwrap();
    assert_eq!(call(&library, "third", 0), 111);
    // SAFETY: of this type.
    unsafe { assert_eq!(main.get::<Int>("around").unwrap()(1), 112) };
    // What is not linked yet cannot be: one has to be first.
    let source = "int circle_b(int); int circle_a(int n) { return n ? circle_b(n - 1) : 0; }";
    library.add_object(compile_bytes("a.c", source, &[])).unwrap();
    add(&main, "int circle_a(int); int circle_b(int n) { return circle_a(n); }");
    let error = find(&library, "circle_a").unwrap_err();
    assert!(error.to_string().contains("circle_a"), "{error}");
}

fn what_a_dylib_cannot_link_is_told() {
    let engine = Checked::new();
    let main = jit(&engine).dylib("main");
    let tracker = main.tracker();
    let broken = compile_bytes("broken.c", "int nowhere(int); int broken(int n) { return nowhere(n); }", &[]);
    tracker.add_object(broken).unwrap();
    let library = linked(&engine, &main, "int broken(int); int start(int n) { return broken(n); }");
    for _ in 0..2 {
        let error = find(&library, "start").unwrap_err();
        let Error::Link(LinkError::SymbolFailed { symbol, cause, .. }) = &error else { panic!("{error:?}") };
        assert_eq!(symbol, "broken");
        assert!(cause.to_string().contains("nowhere"), "{cause}");
    }
    // The library is as it was.
    tracker.remove().unwrap();
    add(&main, "int broken(int n) { return n + 1; }");
    assert_eq!(call(&library, "start", 1), 2);
}

fn names_go_with_the_session() {
    let engine = Checked::new();
    let session = jit(&engine);
    let main = session.dylib("main");
    add(&main, "int used(int n) { return n + 1; } ");
    add(&main, "int later(int n) { return n + 1; } ");
    let library = linked(&engine, &main, "int used(int); int start(int n) { return used(n); }");
    assert_eq!(call(&library, "start", 1), 2);
    drop((main, session));
    assert_eq!(call(&library, "start", 2), 3);
    let source = "int later(int); int more(int n) { return later(n); }";
    library.add_object(compile_bytes("more.c", source, &[])).unwrap();
    let error = find(&library, "more").unwrap_err();
    assert!(matches!(error, Error::Link(LinkError::UndefinedSymbols { .. })), "{error:?}");
    assert_eq!(call(&library, "start", 3), 4);
}

fn functions_are_compiled_for_libraries() {
    let engine = Checked::new();
    let main = jit(&engine).dylib("main");
    let module = "@count = internal global i32 0
        define i32 @counts(i32 %n) { %c = load i32, ptr @count
          %r = add i32 %c, %n
          store i32 %r, ptr @count
          ret i32 %r }";
    main.add_bitcode_lazily("counts.ll", module, OptLevel::Default).unwrap();
    let library = linked(&engine, &main, "int counts(int); int start(int n) { return counts(n) + counts(n); }");
    assert_eq!(call(&library, "start", 5), 15);
    assert_eq!(call(&library, "start", 0), 20);
}

fn threads_link_libraries_against_one_dylib() {
    let provider = compile_bytes("template.c", "int of_00000(int n) { return n + 1; }", &[]);
    let source = "int of_00000(int); int f_00000(int n) { return of_00000(n) + 1; }";
    let user = compile_bytes("user.c", source, &[]);
    for compile_threads in [0, 2] {
        let engine = Checked::new();
        let main = engine.orc().compile_threads(compile_threads).build().unwrap().dylib("main");
        let rounds = crate::target::by_qemu(50, 5);
        let renamed = |bytes: &[u8], n| {
            let name = |of: &str| (if of == "of" { "of_00000" } else { "f_00000" }, format!("{of}_{n:05}"));
            crate::orc::renamed(bytes, &[name("of"), name("f")])
        };
        for n in 0..8 * rounds {
            main.add_object(renamed(&provider, n)).unwrap();
        }
        let shared = engine.library("shared").link(&main).build().unwrap();
        let barrier = Barrier::new(8);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (engine, main, shared, barrier, user) = (&engine, &main, &shared, &barrier, &user);
                scope.spawn(move || {
                    let mut results = Vec::new();
                    for round in 0..rounds {
                        let number = round * 8 + thread;
                        let (bytes, name) = (renamed(user, number), format!("f_{number:05}"));
                        barrier.wait();
                        // To one that all threads add to, and to one of its own.
                        shared.add_object(&bytes).unwrap();
                        // SAFETY: of this type.
                        results.push(find(shared, &name).map(|function| unsafe { function(1) }));
                        let own = engine.library("own").link(main).build().unwrap();
                        own.add_object(&bytes).unwrap();
                        // SAFETY: as above.
                        results.push(find(&own, &name).map(|function| unsafe { function(1) }));
                    }
                    results.into_iter().for_each(|result| assert_eq!(result.unwrap(), 3));
                });
            }
        });
    }
}
