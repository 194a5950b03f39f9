//! `slabjit::orc`: dylibs, whose objects are linked when they are needed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use slabjit::orc::{Dylib, Jit};
use slabjit::{Error, LibraryError, LinkError, Removal};

use crate::case::{take_trace, trace};
use crate::common::{Checked, compile_bytes, tests};
use crate::dylib_calls::{Int, call, cause, find};
use crate::target::{by_arch, by_qemu};

tests![
    what_is_needed_is_linked,
    a_circle_over_three_dylibs,
    names_are_found_in_order,
    trackers_take_back,
    symbols_outlive_everything,
    what_is_missing_is_named,
    what_fails_is_told_to_those_that_need_it,
    mistakes_are_explained,
    initialisers_run_behind_what_they_need,
    an_initialiser_looks_up_its_own_dylib,
    an_initialiser_that_throws_fails_its_object,
    all_initialisers_run_when_asked,
    libraries_are_initialised_and_kept,
    thread_local_variables_are_the_objects_own,
    a_chain_of_ten_thousand_on_a_small_stack,
    ten_thousand_dylibs,
    threads_add_look_up_and_remove,
    what_is_found_while_it_is_removed_is_kept,
    others_compile_and_this_thread_initialises,
    requests_are_answered_once,
    an_answer_may_look_up_and_end_the_jit,
    a_long_chain_with_threads_that_compile,
    generators_define_what_is_asked_for;
    alone: threads_that_compile_begin_again_in_children
];

fn jit(engine: &Checked) -> Jit {
    engine.orc().build().unwrap()
}

fn add(dylib: &Dylib, name: &str, source: &str) {
    dylib.add_object_named(name, compile_bytes(name, source, &[])).unwrap();
}

/// Defines what writes to the thread's trace.
fn traced(dylib: &Dylib) {
    // SAFETY: `trace` takes an int.
    unsafe { dylib.define("trace", trace as *const ()).unwrap() };
}

fn what_is_needed_is_linked() {
    let engine = Checked::new();
    let main = jit(&engine).dylib("main");
    add(&main, "two.c", "int one(int); int two(int n) { return one(n) * 2; }");
    add(&main, "one.c", "int one(int n) { return n + 1; }");
    add(&main, "never.c", "int absent(int); int never(int n) { return absent(n); }");
    assert_eq!(engine.stats().libraries, 0);
    assert_eq!(call(&main, "two", 20), 42);
    assert_eq!((call(&main, "one", 20), engine.stats().libraries), (21, 2));
    assert!(engine.arena().contains(&find(&main, "two").unwrap().address().addr()));
    assert_eq!(main.name(), "main");
}

fn a_circle_over_three_dylibs() {
    let engine = Checked::new();
    let jit = jit(&engine);
    let dylibs = ["main", "second", "third"].map(|name| jit.dylib(name));
    let source = |this: usize, next: usize| {
        format!("int f{next}(int); int f{this}(int n) {{ return n ? f{next}(n - 1) + {this} : 0; }}")
    };
    for (i, dylib) in dylibs.iter().enumerate() {
        let next = (i + 1) % 3;
        dylib.link(&dylibs[next]).unwrap();
        add(dylib, &format!("f{i}.c"), &source(i, next));
    }
    assert_eq!(call(&dylibs[1], "f1", 6), 1 + 2 + 1 + 2);
    // Not of its own.
    assert!(matches!(find(&dylibs[1], "f0"), Err(Error::Library(LibraryError::SymbolNotFound { .. }))));
    let kept = find(&dylibs[2], "f2").unwrap();
    for dylib in &dylibs {
        dylib.clear().unwrap();
    }
    assert!(find(&dylibs[2], "f2").is_err());
    // SAFETY: kept, with all that it needs.
    assert_eq!(unsafe { kept(3) }, 2 + 1);
    drop(kept);
    assert_eq!(engine.stats().arena.slabs, 0);
}

fn names_are_found_in_order() {
    let engine = Checked::new();
    let jit = jit(&engine);
    let [main, first, second] = ["main", "first", "second"].map(|name| jit.dylib(name));
    let library =
        engine.add_object(compile_bytes("l.c", "int where(int n) { return 3; } int getppid(void) { return 4; }", &[]));
    let library = library.unwrap();
    add(
        &first,
        "first.c",
        "__attribute__((visibility(\"hidden\"))) int where(int n) { return 1; } int of_first(int n) { return where(n); }",
    );
    add(&second, "second.c", "int where(int n) { return 2; }");
    main.link(&first).unwrap();
    main.link(&library).unwrap();
    main.link(&second).unwrap();
    add(
        &main,
        "main.c",
        "int where(int), of_first(int), getppid(void); int asks(int n) { return where(n) * 100 + of_first(n) * 10 + getppid(); }",
    );
    // `first` hides its own, the library comes before `second`, and before the process's `getppid`.
    assert_eq!(call(&main, "asks", 0), 300 + 10 + 4);
    let other = jit.dylib("other");
    add(
        &other,
        "other.c",
        "int atoi(const char *); int reads(int n) { char text[] = {'0' + n, 0}; return atoi(text); }",
    );
    assert_eq!(call(&other, "reads", 7), 7);
    assert_eq!(call(&jit.dylib("second"), "where", 0), 2);
}

fn trackers_take_back() {
    let engine = Checked::new();
    let main = jit(&engine).dylib("main");
    for round in 1..=3 {
        let tracker = main.tracker();
        let source = format!("int base(int); int value(int n) {{ return base(n) * {round}; }}");
        tracker.add_object_named("value.c", compile_bytes("value.c", &source, &[])).unwrap();
        tracker.add_object(compile_bytes("base.c", "int base(int n) { return n + 1; }", &[])).unwrap();
        assert_eq!(call(&main, "value", 4), 5 * round);
        let kept = find(&main, "value").unwrap();
        tracker.remove().unwrap();
        assert!(matches!(find(&main, "base"), Err(Error::Library(LibraryError::SymbolNotFound { .. }))));
        // SAFETY: kept.
        assert_eq!(unsafe { kept(1) }, 2 * round);
        drop(kept);
        assert_eq!(engine.stats().arena.slabs, 0);
    }
    // What was never linked goes, too.
    let tracker = main.tracker();
    tracker.add_object(compile_bytes("value.c", "int value(int n) { return 9; }", &[])).unwrap();
    tracker.remove().unwrap();
    assert!(find(&main, "value").is_err());
}

fn symbols_outlive_everything() {
    let symbol = {
        let engine = slabjit::JitEngine::new().unwrap();
        let main = engine.orc().build().unwrap().dylib("main");
        let library = engine.add_object(compile_bytes("far.c", "int far(int n) { return n + 5; }", &[])).unwrap();
        main.link(&library).unwrap();
        add(&main, "near.c", "int far(int); int near(int n) { return far(n) * 2; }");
        find(&main, "near").unwrap()
    };
    // SAFETY: kept, and `far` with it.
    assert_eq!(unsafe { symbol(1) }, 12);
}

fn what_is_missing_is_named() {
    let engine = Checked::new();
    let main = jit(&engine).dylib("main");
    let tracker = main.tracker();
    let bytes = compile_bytes(
        "m.c",
        "int no_such_a(int), no_such_b(int); int m(int n) { return no_such_a(n) + no_such_b(n); }",
        &[],
    );
    tracker.add_object_named("m.o", &bytes).unwrap();
    let error = find(&main, "m").unwrap_err();
    let Error::Link(LinkError::UndefinedSymbols { symbols, library }) = cause(&error) else { panic!("{error:?}") };
    let mut names: Vec<&str> = symbols.iter().map(|symbol| symbol.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!((names, library.as_str()), (vec!["no_such_a", "no_such_b"], "main"));
    assert!(symbols.iter().all(|symbol| symbol.referenced_by == ["m.o"]), "{symbols:?}");
    let text = error.to_string();
    assert!(text.contains("'m' of dylib 'main'") && text.contains("no_such_a"), "{text}");
    // Again, and after it was taken back and what was missing added.
    assert_eq!(find(&main, "m").unwrap_err().to_string(), text);
    tracker.remove().unwrap();
    add(&main, "ab.c", "int no_such_a(int n) { return 1; } int no_such_b(int n) { return 2; }");
    main.add_object_named("m.o", &bytes).unwrap();
    assert_eq!(call(&main, "m", 0), 3);
}

fn what_fails_is_told_to_those_that_need_it() {
    let engine = Checked::new();
    let main = jit(&engine).dylib("main");
    add(&main, "top.c", "int middle(int); int top(int n) { return middle(n); }");
    add(&main, "middle.c", "int bottom(int); int middle(int n) { return bottom(n); }");
    add(&main, "bottom.c", "int no_such_name(int); int bottom(int n) { return no_such_name(n); }");
    add(&main, "fine.c", "int fine(int n) { return n; }");
    for name in ["top", "middle", "bottom", "top"] {
        let error = find(&main, name).unwrap_err();
        assert!(matches!(cause(&error), Error::Link(LinkError::UndefinedSymbols { .. })), "{name}: {error:?}");
        assert!(error.to_string().contains("no_such_name"), "{error}");
    }
    assert_eq!(call(&main, "fine", 3), 3);
    main.clear().unwrap();
    assert_eq!(engine.stats().arena.slabs, 0);
}

fn mistakes_are_explained() {
    let engine = Checked::new();
    let (one, two) = (jit(&engine), jit(&engine));
    let main = one.dylib("main");
    let error = main.link(&two.dylib("main")).unwrap_err();
    assert!(matches!(error, Error::Link(LinkError::OtherJit { .. })), "{error:?}");
    assert!(matches!(main.add_object(b"no object"), Err(Error::Object(_))));
    add(
        &main,
        "a.c",
        "int a(int n) { return n; } int data = 3; __attribute__((visibility(\"hidden\"))) int hidden(int n) { return n; }",
    );
    let again = main.add_object_named("again.o", compile_bytes("a.c", "int a(int n) { return 1; }", &[])).unwrap_err();
    assert!(
        matches!(again, Error::Link(LinkError::Failed { .. })) && again.to_string().contains("again.o"),
        "{again:?}"
    );
    // SAFETY: never called.
    let defined = unsafe { main.define("a", trace as *const ()) }.unwrap_err();
    assert!(defined.to_string().contains("'a' of dylib 'main'"), "{defined}");
    assert_eq!(call(&main, "a", 3), 3);
    let hidden = find(&main, "hidden").unwrap_err();
    assert!(matches!(hidden, Error::Library(LibraryError::SymbolNotFound { .. })), "{hidden:?}");
    assert!(hidden.to_string().contains("dylib 'main' exports no symbol 'hidden'"), "{hidden}");
    assert!(matches!(find(&main, "data"), Err(Error::Library(LibraryError::WrongSymbolKind { .. }))));
    // SAFETY: an int.
    assert_eq!(unsafe { **main.get::<*const i32>("data").unwrap() }, 3);
    assert!(matches!(find(&main, "a\0b"), Err(Error::Library(LibraryError::InvalidName { .. }))));
    // SAFETY: never called.
    let invalid = unsafe { main.define("a\0b", trace as *const ()) };
    assert!(matches!(invalid, Err(Error::Library(LibraryError::InvalidName { .. }))));
    // A name that ORC has for something else, and one that it could not write.
    for name in ["the process", "", "with\0nul"] {
        let dylib = one.dylib(name);
        add(&dylib, "b.c", "int b(int n) { return n + 1; }");
        assert_eq!((call(&dylib, "b", 1), call(&one.dylib(name), "b", 2)), (2, 3));
    }
}

fn initialisers_run_behind_what_they_need() {
    take_trace();
    let engine = Checked::new();
    let jit = jit(&engine);
    let [main, base] = ["main", "base"].map(|name| jit.dylib(name));
    [&main, &base].into_iter().for_each(traced);
    main.link(&base).unwrap();
    let source = |name: &str, needs: &str, mark: i32| {
        format!(
            "int trace(int); {} static int ready; int {name}(int n) {{ return ready {}; }}
             __attribute__((constructor)) static void init(void) {{ ready = {mark} {}; trace(ready); }}
             __attribute__((destructor)) static void fini(void) {{ trace(-{mark}); }}",
            if needs.is_empty() { String::new() } else { format!("int {needs}(int);") },
            if needs.is_empty() { String::new() } else { format!("+ {needs}(n)") },
            if needs.is_empty() { String::new() } else { format!("+ {needs}(0)") },
        )
    };
    let tracker = main.tracker();
    for (name, needs, mark) in [("top", "middle", 100), ("middle", "bottom", 10)] {
        tracker.add_object_named(name, compile_bytes("i.c", &source(name, needs, mark), &[])).unwrap();
    }
    add(&base, "bottom.c", &source("bottom", "", 1));
    add(&base, "unused.c", &source("unused", "", 7));
    assert!(take_trace().is_empty());
    let top = find(&main, "top").unwrap();
    assert_eq!(take_trace(), [1, 11, 112]);
    // SAFETY: int (int).
    assert_eq!(unsafe { top(0) }, 112 + 11 + 1);
    assert_eq!((call(&main, "middle", 0), take_trace()), (12, vec![]));
    tracker.remove().unwrap();
    assert!(take_trace().is_empty());
    drop(top);
    let mut ended = take_trace();
    ended.sort_unstable();
    assert_eq!(ended, [-100, -10]);
}

static OF_INITIALISERS: Mutex<Option<Dylib>> = Mutex::new(None);

extern "C" fn look_up_other(n: i32) -> i32 {
    let dylib = OF_INITIALISERS.lock().unwrap().clone().unwrap();
    call(&dylib, "other", n)
}

fn an_initialiser_looks_up_its_own_dylib() {
    let engine = Checked::new();
    let main = jit(&engine).dylib("main");
    // SAFETY: int (int).
    unsafe { main.define("look_up_other", look_up_other as *const ()).unwrap() };
    let source = "int look_up_other(int); static int kept; int kept_(int n) { return kept; }
        __attribute__((constructor)) static void init(void) { kept = look_up_other(4); }";
    add(&main, "asks.c", source);
    let source = "static int ready; int other(int n) { return n + ready; }
        __attribute__((constructor)) static void init(void) { ready = 10; }";
    add(&main, "other.c", source);
    *OF_INITIALISERS.lock().unwrap() = Some(main.clone());
    assert_eq!(call(&main, "kept_", 0), 14);
    *OF_INITIALISERS.lock().unwrap() = None;
}

fn an_initialiser_that_throws_fails_its_object() {
    take_trace();
    let engine = Checked::new();
    let main = jit(&engine).dylib("main");
    traced(&main);
    let source = "extern \"C\" int trace(int); struct S { S() { trace(1); throw 5; } }; static S s;
        extern \"C\" int broken(int n) { return n; }";
    let tracker = main.tracker();
    tracker.add_object_named("broken.cc", compile_bytes("broken.cc", source, &[])).unwrap();
    add(&main, "uses.c", "int broken(int); int uses(int n) { return broken(n) + 1; }");
    let source = "int trace(int); static int ready; int other(int n) { return ready; }
        __attribute__((constructor)) static void init(void) { ready = 2; trace(2); }";
    add(&main, "other.c", source);
    for name in ["broken", "uses", "broken"] {
        let error = find(&main, name).unwrap_err();
        let Error::Link(LinkError::InitializerFailed { object, .. }) = &error else { panic!("{error:?}") };
        assert_eq!(object, "broken.cc");
    }
    assert_eq!((call(&main, "other", 0), take_trace()), (2, vec![1, 2]));
    tracker.remove().unwrap();
    add(&main, "whole.c", "int broken(int n) { return 2 * n; }");
    // What was bound to it stays so.
    assert!(matches!(find(&main, "uses"), Err(Error::Link(LinkError::InitializerFailed { .. }))));
    assert_eq!(call(&main, "broken", 4), 8);
}

fn all_initialisers_run_when_asked() {
    take_trace();
    let engine = Checked::new();
    let jit = jit(&engine);
    let [main, base] = ["main", "base"].map(|name| jit.dylib(name));
    [&main, &base].into_iter().for_each(traced);
    main.link(&base).unwrap();
    let source =
        |mark: i32| format!("int trace(int); __attribute__((constructor)) static void init(void) {{ trace({mark}); }}");
    add(&main, "one.c", &source(2));
    add(&base, "two.c", &source(1));
    add(&main, "none.c", "int absent(int); int none(int n) { return absent(n); }");
    // SAFETY: they may run.
    unsafe { main.initialize().unwrap() };
    assert_eq!(take_trace(), [1, 2]);
    // SAFETY: as above.
    unsafe { main.initialize().unwrap() };
    assert!(take_trace().is_empty());
}

fn libraries_are_initialised_and_kept() {
    take_trace();
    let engine = Checked::new();
    let jit = jit(&engine);
    let [main, behind] = ["main", "behind"].map(|name| jit.dylib(name));
    // SAFETY: `trace` takes an int.
    let builder = unsafe { engine.library("library").symbol("trace", trace as *const ()) };
    let library = builder.build().unwrap();
    let source = "int trace(int); static int ready; int of_library(int n) { return n + ready; }
        __attribute__((constructor)) static void init(void) { ready = 5; trace(5); }
        __attribute__((destructor)) static void fini(void) { trace(6); }";
    library.add_object(compile_bytes("library.c", source, &[])).unwrap();
    main.link(&behind).unwrap();
    behind.link(&library).unwrap();
    // The library's names are not `behind`'s own.
    add(&behind, "through.c", "int of_library(int); int through(int n) { return of_library(n) * 2; }");
    add(&main, "main.c", "int through(int); int start(int n) { return through(n) + 1; }");
    assert!(take_trace().is_empty());
    assert_eq!((call(&main, "start", 1), take_trace()), (13, vec![5]));
    assert!(matches!(library.remove(), Removal::Waiting { .. }));
    assert_eq!((call(&main, "start", 2), take_trace()), (15, vec![]));
    drop((main, behind, jit));
    assert_eq!((library.remove(), take_trace()), (Removal::Freed, vec![6]));
}

fn thread_local_variables_are_the_objects_own() {
    let engine = Checked::new();
    let main = jit(&engine).dylib("main");
    add(&main, "defines.c", "__thread int shared = 5; int own(int n) { return shared += n; }");
    add(&main, "uses.c", "extern __thread int shared; int uses(int n) { return shared; }");
    assert_eq!((call(&main, "own", 1), call(&main, "own", 1)), (6, 7));
    let error = find(&main, "uses").unwrap_err();
    assert!(matches!(cause(&error), Error::Link(LinkError::ThreadLocal { .. })), "{error:?}");
    assert!(error.to_string().contains("'shared'"), "{error}");
    assert!(matches!(find(&main, "shared"), Err(Error::Library(LibraryError::SymbolNotFound { .. }))));
}

/// Objects of which each refers to the next.
fn add_chain(main: &Dylib, n: usize) {
    let text = by_arch(
        "link_00001: sub $8,%rsp\n lea link_00002(%rip),%rax\n add $8,%rsp\n ret\n",
        "link_00001: adrp x0,link_00002\n add x0,x0,:lo12:link_00002\n ret\n",
    );
    let template = compile_bytes("link.s", &format!(".globl link_00001\n.text\n{text}"), &[]);
    for i in 0..n {
        let names = [("link_00001", format!("link_{i:05}")), ("link_00002", format!("link_{:05}", i + 1))];
        main.add_object_named("link.o", crate::orc::renamed(&template, &names)).unwrap();
    }
    add(main, "end.c", &format!("int link_{n:05}(int n) {{ return 7; }}"));
}

fn a_chain_of_ten_thousand_on_a_small_stack() {
    const N: usize = 10_000;
    let engine = Checked::new();
    let main = jit(&engine).dylib("main");
    add_chain(&main, N);
    let found = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(64 << 10);
        thread.spawn_scoped(scope, || find(&main, "link_00000").map(|symbol| symbol.address().addr())).unwrap().join()
    });
    assert!(engine.arena().contains(&found.unwrap().unwrap()));
    assert_eq!(call(&main, &format!("link_{N:05}"), 0), 7);
}

fn ten_thousand_dylibs() {
    let n = crate::target::by_qemu(10_000, 1000);
    let engine = Checked::new();
    let jit = jit(&engine);
    let source = "int of_00001(int); int of_00000(int n) { return n > 20 ? n : of_00001(n + 1) + 1; }";
    let template = compile_bytes("dylib.c", source, &[]);
    let dylibs: Vec<_> = (0..n).map(|i| jit.dylib(&format!("dylib {i}"))).collect();
    for (i, dylib) in dylibs.iter().enumerate() {
        let next = (i + 1) % n;
        dylib.link(&dylibs[next]).unwrap();
        let names = [("of_00000", format!("of_{i:05}")), ("of_00001", format!("of_{next:05}"))];
        dylib.add_object(crate::orc::renamed(&template, &names)).unwrap();
    }
    // Each needs the next, and the last the first: they are linked, and go, together.
    assert_eq!(call(&dylibs[n / 2], &format!("of_{:05}", n / 2), 1), 41);
    assert_eq!(engine.stats().libraries, n);
    dylibs.iter().for_each(|dylib| dylib.clear().unwrap());
    assert_eq!(engine.stats().libraries, 0);
    drop((dylibs, jit));
    ended(engine);
}

fn threads_add_look_up_and_remove() {
    let engine = Checked::new();
    let jit = jit(&engine);
    let main = jit.dylib("main");
    add(&main, "shared.c", "int shared(int n) { return n + 1; }");
    let template = compile_bytes("t.c", "int shared(int); int of_00000(int n) { return shared(n) * 2; }", &[]);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let name = format!("of_{:05}", next.fetch_add(1, Ordering::Relaxed));
                    let tracker = main.tracker();
                    tracker.add_object(crate::orc::renamed(&template, &[("of_00000", name.clone())])).unwrap();
                    let symbol = find(&main, &name).unwrap();
                    tracker.remove().unwrap();
                    // SAFETY: kept.
                    assert_eq!(unsafe { symbol(4) }, 10);
                }
            });
        }
    });
    main.clear().unwrap();
    assert_eq!(engine.stats().arena.slabs, 0);
}

fn what_is_found_while_it_is_removed_is_kept() {
    let engine = Checked::new();
    let main = jit(&engine).dylib("main");
    let base = compile_bytes("base.c", "int base_00000(int n) { return n + 2; }", &[]);
    let user = compile_bytes("user.c", "int base_00000(int); int user_00000(int n) { return base_00000(n) * 2; }", &[]);
    let (current, ends) = (Mutex::new(String::from("base_00000")), AtomicUsize::new(0));
    let is_gone = |error: &Error| {
        matches!(
            error,
            Error::Library(LibraryError::SymbolNotFound { .. }) | Error::Link(LinkError::SymbolFailed { .. })
        )
    };
    let found = AtomicUsize::new(0);
    let check = |name: &str, expected: i32| match find(&main, name) {
        Ok(function) => {
            // SAFETY: of this type.
            assert_eq!(unsafe { function(1) }, expected);
            found.fetch_add(1, Ordering::Relaxed);
        }
        Err(error) => assert!(is_gone(&error), "{error:?}"),
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while ends.load(Ordering::Relaxed) == 0 {
                    let name = current.lock().unwrap().clone();
                    check(&name, 3);
                }
            });
        }
        scope.spawn(|| {
            for i in 0.. {
                if ends.load(Ordering::Relaxed) != 0 {
                    break;
                }
                let (name, needed) = (format!("user_{i:05}"), current.lock().unwrap().clone());
                let tracker = main.tracker();
                let names = [("base_00000", needed), ("user_00000", name.clone())];
                tracker.add_object(crate::orc::renamed(&user, &names)).unwrap();
                check(&name, 6);
                tracker.remove().unwrap();
            }
        });
        for i in 0..by_qemu(3000, 30) {
            let (name, tracker) = (format!("base_{i:05}"), main.tracker());
            tracker.add_object(crate::orc::renamed(&base, &[("base_00000", name.clone())])).unwrap();
            current.lock().unwrap().clone_from(&name);
            check(&name, 3);
            tracker.remove().unwrap();
        }
        ends.store(1, Ordering::Relaxed);
    });
    assert!(found.into_inner() > 0);
}

fn others_compile_and_this_thread_initialises() {
    take_trace();
    let engine = Checked::new();
    let jit = engine.orc().compile_threads(2).build().unwrap();
    let main = jit.dylib("main");
    traced(&main);
    let template = "int trace(int); static int ready; int value_0000(int n) { return n + ready; }
        __attribute__((constructor)) static void init(void) { ready = 1; trace(1); }";
    let template = compile_bytes("i.c", template, &[]);
    let mut all = String::from("int all(int n) { return 0");
    for n in 0..50 {
        let name = format!("value_{n:04}");
        main.add_object(crate::orc::renamed(&template, &[("value_0000", name.clone())])).unwrap();
        all.push_str(&format!("+ {name}(n)"));
    }
    let declared: String = (0..50).map(|n| format!("int value_{n:04}(int);")).collect();
    add(&main, "all.c", &format!("{declared}{all}; }}"));
    // The trace is this thread's.
    assert_eq!((call(&main, "all", 1), take_trace()), (100, vec![1; 50]));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(call(&main, "all", 0), 50));
        }
    });
    main.clear().unwrap();
    assert_eq!(engine.stats().arena.slabs, 0);
}

/// A thread that compiles may be the last that has the session, and ends it a little later.
fn ended(engine: Checked) {
    let start = Instant::now();
    while engine.stats().libraries != 0 && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(1));
    }
    engine.finish();
}

fn requests_are_answered_once() {
    for threads in [0, 1, 3] {
        let engine = Checked::new();
        let (send, answers) = channel();
        {
            let main = engine.orc().compile_threads(threads).build().unwrap().dylib("main");
            let template = compile_bytes("r.c", "int value_0000(int n) { return n + 2; }", &[]);
            for n in 0..40 {
                main.add_object(crate::orc::renamed(&template, &[("value_0000", format!("value_{n:04}"))])).unwrap();
            }
            add(&main, "bad.c", "int absent(int); int value_0040(int n) { return absent(n); }");
            for n in 0..42 {
                let send = send.clone();
                // SAFETY: int (int); no object has initialisers.
                unsafe {
                    main.request::<Int>(&format!("value_{n:04}"), move |symbol| send.send((n, symbol)).unwrap());
                }
            }
            let send = send.clone();
            // SAFETY: as above.
            unsafe { main.request::<Int>("a\0b", move |symbol| send.send((42, symbol)).unwrap()) };
            // Both go now, while some are linked.
        }
        drop(send);
        let mut seen = vec![0; 43];
        for (n, symbol) in answers {
            seen[n] += 1;
            match (n, symbol) {
                // SAFETY: as above.
                (..40, Ok(symbol)) => assert_eq!(unsafe { symbol(1) }, 3),
                (40, Err(error)) => {
                    assert!(matches!(cause(&error), Error::Link(LinkError::UndefinedSymbols { .. })), "{error:?}");
                }
                (41, Err(Error::Library(LibraryError::SymbolNotFound { .. })))
                | (42, Err(Error::Library(LibraryError::InvalidName { .. }))) => {}
                (n, symbol) => panic!("{n}: {symbol:?}"),
            }
        }
        assert_eq!(seen, [1; 43], "with {threads} threads");
        ended(engine);
    }
}

fn an_answer_may_look_up_and_end_the_jit() {
    for threads in [0, 1, 2] {
        let engine = Checked::new();
        let main = engine.orc().compile_threads(threads).build().unwrap().dylib("main");
        for name in ["first", "second", "third"] {
            add(&main, "n.c", &format!("int {name}(int n) {{ return n * 3; }}"));
        }
        let (send, sums) = channel();
        let (of_answer, in_answer) = (Arc::new(Mutex::new(Some(main.clone()))), send.clone());
        let last = Arc::clone(&of_answer);
        // SAFETY: int (int); no object has initialisers.
        unsafe {
            main.request::<Int>("first", move |symbol| {
                let dylib = last.lock().unwrap().take().unwrap();
                let sum = symbol.unwrap()(1) + call(&dylib, "second", 2);
                dylib.request::<Int>("third", move |symbol| send.send(symbol.unwrap()(3)).unwrap());
                drop(dylib);
                in_answer.send(sum).unwrap();
            });
        }
        drop((main, of_answer));
        let mut sums: Vec<i32> = sums.iter().collect();
        sums.sort_unstable();
        assert_eq!(sums, [9, 9], "with {threads} threads");
        ended(engine);
    }
}

fn a_long_chain_with_threads_that_compile() {
    const N: usize = 3_000;
    let engine = Checked::new();
    let main = engine.orc().compile_threads(2).build().unwrap().dylib("main");
    add_chain(&main, N);
    assert!(engine.arena().contains(&find(&main, "link_00000").unwrap().address().addr()));
    assert_eq!(call(&main, &format!("link_{N:05}"), 0), 7);
}

extern "C" fn of_host(n: i32) -> i32 {
    n + 1000
}

fn generators_define_what_is_asked_for() {
    for threads in [0, 2] {
        let engine = Checked::new();
        let jit = engine.orc().compile_threads(threads).build().unwrap();
        let [main, other] = ["main", "other"].map(|name| jit.dylib(name));
        main.link(&other).unwrap();
        let template = compile_bytes("g.c", "int made_0000(int n) { return n + 5; }", &[]);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (seen, object) = (Arc::clone(&asked), template.clone());
        // SAFETY: int (int).
        unsafe {
            other.add_generator(move |dylib: &Dylib, name: &str| {
                seen.lock().unwrap().push(name.to_owned());
                if name.starts_with("made_") {
                    dylib.add_object(crate::orc::renamed(&object, &[("made_0000", name.to_owned())]))?;
                    assert_eq!(dylib.name(), "other");
                }
                if name == "broken" {
                    dylib.add_object(b"no object")?;
                }
                Ok((name == "of_host").then_some(of_host as *const ()))
            });
        }
        let source = "int made_0007(int), made_0008(int), of_host(int);
            int start(int n) { return made_0007(n) + made_0008(n) + of_host(n); }";
        add(&main, "start.c", source);
        assert_eq!(call(&main, "start", 1), 6 + 6 + 1001);
        assert_eq!(call(&other, "made_0009", 2), 7);
        let mut names = std::mem::take(&mut *asked.lock().unwrap());
        names.sort_unstable();
        assert_eq!(names, ["made_0007", "made_0008", "made_0009", "of_host"]);
        add(&main, "uses.c", "int broken(int); int uses(int n) { return broken(n); }");
        for (dylib, name) in [(&main, "uses"), (&other, "broken"), (&main, "uses")] {
            let error = find(dylib, name).unwrap_err();
            assert!(matches!(cause(&error), Error::Object(_)), "{error:?}");
        }
        assert!(matches!(find(&other, "nowhere"), Err(Error::Library(LibraryError::SymbolNotFound { .. }))));
        drop((main, other, jit));
        ended(engine);
    }
}

fn threads_that_compile_begin_again_in_children() {
    let engine = slabjit::JitEngine::new().unwrap();
    let main = engine.orc().compile_threads(2).build().unwrap().dylib("main");
    for name in ["before", "in_child", "after"] {
        add(&main, "f.c", &format!("int {name}(int n) {{ return n + 1; }}"));
    }
    assert_eq!(call(&main, "before", 1), 2);
    for _ in 0..10 {
        // SAFETY: the child ends without unwinding into what is the parent's.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::alarm(60);
                let both = || call(&main, "in_child", 1) + call(&main, "before", 2);
                let good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(both));
                libc::_exit(if good.ok() == Some(5) { 0 } else { 1 });
            }
            let mut status = 0;
            assert_eq!((libc::waitpid(child, &mut status, 0), status), (child, 0));
        }
    }
    assert_eq!(call(&main, "after", 1), 2);
}
