//! What keeps a library, what its end waits for, and who may wait for that.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::case::{take_trace, trace};
use crate::common::{self, Checked, Random, call, child, compile_bytes, freed, int, within};
use slabjit::{Drain, Error, JitEngine, Library, LibraryError, LinkError, Removal};

common::tests![
    only_what_references_lead_to_is_kept,
    a_failed_link_keeps_nothing,
    handles_may_be_dropped_in_any_order,
    long_chains_end,
    freed_means_gone,
    waiting_for_what_is_gone,
    waiting_until_others_let_go,
    waiting_has_an_end,
    own_code_cannot_wait,
    code_that_needs_a_library_cannot_wait_for_it,
    initialisers_cannot_wait,
    finalisers_cannot_wait,
    removal_by_an_initialiser,
    waiting_for_drains,
    waiting_without_an_end,
    waiting_for_finalisers,
    drains_that_use_libraries,
    the_engine_may_go_in_a_callback,
    exit_with_drains,
    many_threads_share_the_last_holder;
    alone: // Another thread that links or removes would end what has drained.
        the_end_waits_for_drains, drains_may_hold_their_library, drains_that_panic_have_not_finished, drains_after_removal;
    parts: exit_with_drains_part, reentrant_drains_part,
];

const LONG: Duration = Duration::from_secs(60);

fn linked(engine: &JitEngine, name: &str, source: &str, links: &[&Library]) -> Library {
    // SAFETY: `trace` takes an int.
    let builder = unsafe { engine.library(name).symbol("trace", trace as *const ()) };
    let library = links.iter().fold(builder, |b, l| b.link(l)).build().unwrap();
    library.add_object(compile_bytes(&format!("{name}.c"), source, &[])).unwrap();
    library
}

fn holders(library: &Library) -> usize {
    match library.remove() {
        Removal::Freed => 0,
        Removal::Waiting { holders } => holders,
        other => panic!("{other:?}"),
    }
}

// ---- what keeps a library ----

fn only_what_references_lead_to_is_kept() {
    let engine = Checked::new();
    let [used, unused, later] = ["used", "unused", "later"]
        .map(|name| linked(&engine, name, &format!("int {name}(void) {{ return 20; }}"), &[]));
    let user =
        linked(&engine, "user", "int used(void); int value(void) { return used() + 1; }", &[&used, &unused, &later]);
    assert_eq!(call(&user, "value"), 21);
    // A reference that is linked later counts from then on.
    user.add_object(compile_bytes("more.c", "int later(void); int more(void) { return later() + 2; }", &[])).unwrap();
    assert_eq!(call(&user, "more"), 22);
    let [value, more] = [int(&user, "value"), int(&user, "more")];
    assert_eq!(unused.remove(), Removal::Freed);
    assert_eq!([holders(&used), holders(&later)], [1, 1]);
    freed_after(&user, || drop(value.clone()), 2);
    // SAFETY: int (void).
    assert_eq!(unsafe { [value(), more()] }, [21, 22]);
    drop(value);
    assert_eq!(holders(&used), 1);
    drop(more);
    [&user, &used, &unused, &later].into_iter().for_each(freed);
    engine.finish();
}

/// It is removed, and so many still hold it.
#[track_caller]
fn freed_after(library: &Library, before: impl FnOnce(), left: usize) {
    before();
    assert_eq!(library.remove(), Removal::Waiting { holders: left });
}

fn a_failed_link_keeps_nothing() {
    let engine = Checked::new();
    let base = linked(&engine, "base", "int base(void) { return 1; }", &[]);
    let source = "int base(void); int nowhere_at_all(void); int value(void) { return base() + nowhere_at_all(); }";
    let user = linked(&engine, "user", source, &[&base]);
    // SAFETY: nothing is found.
    let error = unsafe { user.get::<common::Int>("value") }.err().unwrap();
    assert!(matches!(error, Error::Link(LinkError::UndefinedSymbols { .. })), "{error}");
    freed(&base);
    freed(&user);
    engine.finish();
}

/// A diamond, and a symbol of each library: all that may be dropped, in random orders. Each library's finaliser calls
/// what it needs.
fn handles_may_be_dropped_in_any_order() {
    let mut random = Random::new(5);
    let engine = Checked::new();
    for _ in 0..60 {
        take_trace();
        let library = |name: &str, needs: &[(&str, &Library)]| {
            let declared: String = needs.iter().map(|(n, _)| format!("int {n}(void);")).collect();
            let sum: String = needs.iter().map(|(n, _)| format!(" + {n}()")).collect();
            let source = format!(
                "void trace(int); {declared} int {name}(void) {{ return 1{sum}; }}
                 __attribute__((destructor)) static void fini(void) {{ trace({name}()); }}"
            );
            linked(&engine, name, &source, &needs.iter().map(|(_, l)| *l).collect::<Vec<_>>())
        };
        let bottom = library("bottom", &[]);
        let left = library("left", &[("bottom", &bottom)]);
        let right = library("right", &[("bottom", &bottom)]);
        let top = library("top", &[("left", &left), ("right", &right)]);
        assert_eq!(call(&top, "top"), 5);
        let mut all: Vec<Box<dyn std::any::Any>> = Vec::new();
        for (library, name) in [(bottom, "bottom"), (left, "left"), (right, "right"), (top, "top")] {
            all.push(Box::new(int(&library, name)));
            all.push(Box::new(library));
        }
        random.shuffle(&mut all);
        all.into_iter().for_each(drop);
        let ended = take_trace();
        assert!([[5, 2, 2, 1]].contains(&ended.as_slice().try_into().unwrap()), "{ended:?}");
        engine.assert_unchanged();
    }
    engine.finish();
}

/// Each needs the one before; the last holder of all of them has a small stack.
fn long_chains_end() {
    let engine = Checked::new();
    let sources =
        ["int even(void); int odd(void) { return even() + 1; }", "int odd(void); int even(void) { return odd() + 1; }"];
    let objects = sources.map(|source| compile_bytes("chain.c", source, &[]));
    let length = if crate::target::under_qemu() { 200 } else { 2000 };
    let mut last = linked(&engine, "first", "int even(void) { return 0; }", &[]);
    for i in 0..length {
        let next = engine.library("chain").link(&last).build().unwrap();
        next.add_object(&objects[i % 2]).unwrap();
        // The library's own handle goes, its code stays.
        int(&next, ["odd", "even"][i % 2]);
        last = next;
    }
    let top = int(&last, "even");
    // SAFETY: int (void).
    assert_eq!(unsafe { top() }, length as i32);
    // Handles on libraries keep those below by their scopes: drop them while symbols keep the code.
    let dropping = thread::Builder::new().stack_size(128 << 10).spawn(move || drop((last, top)));
    dropping.unwrap().join().unwrap();
    engine.finish();
}

// ---- the end ----

static AT_THE_END: Mutex<Option<std::sync::mpsc::Sender<()>>> = Mutex::new(None);

extern "C" fn slow_end() {
    let told = AT_THE_END.lock().unwrap().take();
    if let Some(told) = told {
        told.send(()).unwrap();
        thread::sleep(Duration::from_millis(100));
    }
}

/// As long as another thread runs finalisers, the library is not gone.
fn freed_means_gone() {
    let engine = Checked::new();
    // SAFETY: no shared libraries; the function takes nothing.
    let library = unsafe { engine.library("slow").symbol("slow_end", slow_end as *const ()).build().unwrap() };
    let source = "void slow_end(void); int value(void) { return 1; }
        __attribute__((destructor)) static void fini(void) { slow_end(); }";
    library.add_object(compile_bytes("slow.c", source, &[])).unwrap();
    let symbol = int(&library, "value");
    assert_eq!(library.remove(), Removal::Waiting { holders: 1 });
    let (tell, told) = channel();
    *AT_THE_END.lock().unwrap() = Some(tell);
    let dropping = thread::spawn(move || drop(symbol));
    told.recv().unwrap();
    assert_eq!(library.remove(), Removal::Waiting { holders: 0 });
    library.remove_and_wait(LONG).unwrap();
    freed(&library);
    dropping.join().unwrap();
    engine.finish();
}

fn waiting_for_what_is_gone() {
    let engine = Checked::new();
    let library = engine.add_object_file(common::good_object()).unwrap();
    library.remove_and_wait(Duration::ZERO).unwrap();
    library.remove_and_wait(Duration::ZERO).unwrap();
    freed(&library);
    engine.finish();
}

fn waiting_until_others_let_go() {
    let engine = Checked::new();
    let library = engine.add_object_file(common::good_object()).unwrap();
    let symbol = int(&library, "text");
    let (let_go, wait) = channel();
    let holder = thread::spawn(move || {
        wait.recv().unwrap();
        thread::sleep(Duration::from_millis(50));
        drop(symbol);
    });
    let_go.send(()).unwrap();
    library.remove_and_wait(LONG).unwrap();
    holder.join().unwrap();
    engine.finish();
}

fn waiting_has_an_end() {
    let engine = Checked::new();
    let library = engine.add_object_named("held.o", std::fs::read(common::good_object()).unwrap()).unwrap();
    let symbol = int(&library, "text");
    let start = Instant::now();
    let error = library.remove_and_wait(Duration::from_millis(30)).unwrap_err();
    assert!(start.elapsed() >= Duration::from_millis(30));
    assert!(
        matches!(&error, Error::Library(LibraryError::RemovalTimedOut { library, holders: 1, drains: 0, .. }) if library == "held.o"),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(text.contains("1 symbol, library or call holds it") && !text.contains(" 0 "), "{text}");
    drop(symbol);
    freed(&library);
    engine.finish();
}

thread_local! {
    /// What [`asked`] is to wait for, and what came of it.
    static ASKED: RefCell<(Option<Library>, Option<slabjit::Result<()>>)> = const { RefCell::new((None, None)) };
}

/// Called by linked code.
extern "C" fn asked() -> i32 {
    ASKED.with_borrow_mut(|(library, answer)| {
        if let Some(library) = library {
            *answer = Some(library.remove_and_wait(LONG));
        }
    });
    7
}

/// A library whose code calls [`asked`].
fn asking(engine: &JitEngine, source: &str, links: &[&Library]) -> Library {
    // SAFETY: `asked` takes nothing and returns int.
    let builder = unsafe { engine.library("asking").symbol("asked", asked as *const ()) };
    let library = links.iter().fold(builder, |b, l| b.link(l)).build().unwrap();
    library.add_object(compile_bytes("asking.c", &format!("int asked(void); {source}"), &[])).unwrap();
    library
}

#[track_caller]
fn answer() -> Error {
    ASKED.take().1.expect("it was asked").unwrap_err()
}

fn own_code_cannot_wait() {
    within(LONG, "own code waits", || {
        let engine = Checked::new();
        // Also where the unwinder finds no tables for it.
        for flags in [&[][..], &["-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fomit-frame-pointer"]] {
            // SAFETY: `asked` takes nothing and returns int.
            let builder = unsafe { engine.library("asking").symbol("asked", asked as *const ()) };
            let library = builder.build().unwrap();
            let source = "int asked(void); int ask(void) { return asked() + 1; }";
            library.add_object(compile_bytes("asking.c", source, flags)).unwrap();
            ASKED.set((Some(library.clone()), None));
            let ask = int(&library, "ask");
            // SAFETY: int (void).
            assert_eq!(unsafe { ask() }, 8);
            let error = answer();
            assert!(matches!(error, Error::Library(LibraryError::RemovalFromOwnCode { .. })), "{error:?}");
            assert_eq!(library.remove(), Removal::Waiting { holders: 1 });
            drop(ask);
            freed(&library);
        }
        engine.finish();
    });
}

fn code_that_needs_a_library_cannot_wait_for_it() {
    within(LONG, "code waits for what it needs", || {
        let engine = Checked::new();
        let base = linked(&engine, "base", "int base(void) { return 1; }", &[]);
        let user = asking(&engine, "int base(void); int ask(void) { return asked() + base(); }", &[&base]);
        let ask = int(&user, "ask");
        ASKED.set((Some(base.clone()), None));
        // SAFETY: int (void).
        assert_eq!(unsafe { ask() }, 8);
        assert!(matches!(answer(), Error::Library(LibraryError::RemovalFromOwnCode { .. })));
        // Of others, it can.
        let other = engine.add_object_file(common::good_object()).unwrap();
        ASKED.set((Some(other), None));
        // SAFETY: int (void).
        assert_eq!(unsafe { ask() }, 8);
        ASKED.take().1.unwrap().unwrap();
        drop((ask, user));
        freed(&base);
        engine.finish();
    });
}

fn initialisers_cannot_wait() {
    within(LONG, "an initialiser waits", || {
        let engine = Checked::new();
        let source = "__attribute__((constructor)) static void init(void) { asked(); } int value(void) { return 3; }";
        let library = asking(&engine, source, &[]);
        ASKED.set((Some(library.clone()), None));
        // SAFETY: nothing is found: its initialiser has removed the library.
        let error = unsafe { library.get::<common::Int>("value") }.err().unwrap();
        assert!(matches!(error, Error::Library(LibraryError::Removed { .. })), "{error:?}");
        assert!(matches!(answer(), Error::Library(LibraryError::RemovalFromOwnCode { .. })));
        freed(&library);
        engine.finish();
    });
}

fn finalisers_cannot_wait() {
    within(LONG, "a finaliser waits", || {
        let engine = Checked::new();
        let source = "__attribute__((destructor)) static void fini(void) { asked(); } int value(void) { return 3; }";
        let library = asking(&engine, source, &[]);
        assert_eq!(call(&library, "value"), 3);
        ASKED.set((Some(library.clone()), None));
        freed(&library);
        assert!(matches!(answer(), Error::Library(LibraryError::RemovalFromOwnCode { .. })));
        engine.finish();
    });
}

thread_local! {
    static TO_REMOVE: RefCell<Option<Library>> = const { RefCell::new(None) };
}

extern "C" fn remove_it() -> i32 {
    let library = TO_REMOVE.take().unwrap();
    match library.remove() {
        Removal::Freed => -1,
        Removal::Waiting { .. } => 5,
        _ => -2,
    }
}

fn removal_by_an_initialiser() {
    take_trace();
    let engine = Checked::new();
    // SAFETY: the functions have the types that the source declares.
    let library = unsafe {
        let builder = engine.library("removed").symbol("remove_it", remove_it as *const ());
        builder.symbol("trace", trace as *const ()).build().unwrap()
    };
    let source = "int remove_it(void); void trace(int); int value(void) { return 1; }
        __attribute__((constructor)) static void init(void) { trace(remove_it()); trace(6); }
        __attribute__((destructor)) static void fini(void) { trace(7); }";
    library.add_object(compile_bytes("removed.c", source, &[])).unwrap();
    TO_REMOVE.set(Some(library.clone()));
    // SAFETY: nothing is found.
    let error = unsafe { library.get::<common::Int>("value") }.err().unwrap();
    assert!(matches!(error, Error::Library(LibraryError::Removed { .. })), "{error:?}");
    assert_eq!(take_trace(), [5, 6, 7]);
    freed(&library);
    engine.finish();
}

// ---- drains ----

const ENDING: &str = "void trace(int); int value(void) { return 4; }
    __attribute__((destructor)) static void fini(void) { trace(30); }";

fn flag() -> (Arc<AtomicBool>, impl Drain + 'static) {
    let flag = Arc::new(AtomicBool::new(false));
    let drain = Arc::clone(&flag);
    (flag, move || drain.load(Ordering::SeqCst))
}

fn the_end_waits_for_drains() {
    take_trace();
    let engine = Checked::new();
    let base = linked(&engine, "base", "int base(void) { return 4; }", &[]);
    let source = format!("int base(void); {}", ENDING.replace("return 4", "return base()"));
    let library = linked(&engine, "drained", &source, &[&base]);
    let [(first, one), (second, two)] = [flag(), flag()];
    library.drain(one).unwrap();
    library.drain(two).unwrap();
    let symbol = int(&library, "value");
    let raw = symbol.as_raw();
    assert_eq!(library.remove(), Removal::Waiting { holders: 3 });
    drop(symbol);
    assert_eq!(library.remove(), Removal::Waiting { holders: 2 });
    first.store(true, Ordering::SeqCst);
    assert_eq!(library.remove(), Removal::Waiting { holders: 1 });
    // What it needs waits, too.
    assert_eq!(base.remove(), Removal::Waiting { holders: 1 });
    assert_eq!(engine.stats().libraries, 2);
    // SAFETY: the drain that has not finished keeps it.
    assert_eq!(unsafe { raw() }, 4);
    assert!(take_trace().is_empty());
    second.store(true, Ordering::SeqCst);
    // Whoever comes next ends it.
    drop(engine.add_object_file(common::good_object()).unwrap());
    assert_eq!(take_trace(), [30]);
    freed(&library);
    freed(&base);
    engine.finish();
}

/// No circle is left once the drain has finished.
fn drains_may_hold_their_library() {
    take_trace();
    let engine = Checked::new();
    let library = linked(&engine, "circle", ENDING, &[]);
    let symbol = int(&library, "value");
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let drain = move || {
        // SAFETY: int (void); the drain holds it.
        assert_eq!(unsafe { symbol() }, 4);
        count.fetch_add(1, Ordering::SeqCst) >= 3
    };
    library.drain(drain).unwrap();
    library.remove_and_wait(LONG).unwrap();
    assert!(asked.load(Ordering::SeqCst) >= 4);
    assert_eq!(take_trace(), [30]);
    engine.finish();
}

fn drains_that_panic_have_not_finished() {
    let engine = Checked::new();
    let library = linked(&engine, "panicking", "int value(void) { return 1; }", &[]);
    let calm = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&calm);
    library.drain(move || flag.load(Ordering::SeqCst) || panic!("a drain that panics: expected in this test")).unwrap();
    assert_eq!(library.remove(), Removal::Waiting { holders: 1 });
    calm.store(true, Ordering::SeqCst);
    freed(&library);
    engine.finish();
}

fn waiting_for_drains() {
    let engine = Checked::new();
    let library = linked(&engine, "waiting", "int value(void) { return 1; }", &[]);
    let (finished, drain) = flag();
    library.drain(drain).unwrap();
    let error = library.remove_and_wait(Duration::from_millis(20)).unwrap_err();
    assert!(matches!(error, Error::Library(LibraryError::RemovalTimedOut { holders: 0, drains: 1, .. })), "{error:?}");
    let device = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        finished.store(true, Ordering::SeqCst);
    });
    library.remove_and_wait(LONG).unwrap();
    device.join().unwrap();
    engine.finish();
}

fn drains_after_removal() {
    let engine = Checked::new();
    let library = linked(&engine, "late", "int value(void) { return 1; }", &[]);
    let symbol = int(&library, "value");
    assert_eq!(library.remove(), Removal::Waiting { holders: 1 });
    let (finished, drain) = flag();
    library.drain(drain).unwrap();
    drop(symbol);
    assert_eq!(library.remove(), Removal::Waiting { holders: 1 });
    let error = library.drain(|| true).unwrap_err();
    assert!(matches!(error, Error::Library(LibraryError::Removed { .. })), "{error:?}");
    finished.store(true, Ordering::SeqCst);
    freed(&library);
    engine.finish();
}

fn waiting_without_an_end() {
    let engine = Checked::new();
    let library = linked(&engine, "patient", "int value(void) { return 1; }", &[]);
    let (finished, drain) = flag();
    let (also, other) = flag();
    library.drain(drain).unwrap();
    let device = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        also.store(true, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(20));
        finished.store(true, Ordering::SeqCst);
    });
    assert!(other.wait(Duration::MAX));
    library.remove_and_wait(Duration::MAX).unwrap();
    device.join().unwrap();
    engine.finish();
}

/// Nothing holds the library, and there is no drain: its finalisers are running.
fn waiting_for_finalisers() {
    static RUNNING: AtomicBool = AtomicBool::new(false);
    static MAY_END: AtomicBool = AtomicBool::new(false);
    extern "C" fn run() {
        RUNNING.store(true, Ordering::SeqCst);
        while !MAY_END.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
    }
    let engine = Checked::new();
    // SAFETY: no shared libraries; the function takes nothing.
    let library = unsafe { engine.library("ending").symbol("run", run as *const ()).build().unwrap() };
    let source = "void run(void); int value(void) { return 1; }
        __attribute__((destructor)) static void fini(void) { run(); }";
    library.add_object(compile_bytes("ending.c", source, &[])).unwrap();
    assert_eq!(call(&library, "value"), 1);
    let other = library.clone();
    let ending = thread::spawn(move || freed(&other));
    while !RUNNING.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(1));
    }
    let error = library.remove_and_wait(Duration::from_millis(20)).unwrap_err();
    MAY_END.store(true, Ordering::SeqCst);
    assert!(matches!(&error, Error::Library(LibraryError::RemovalTimedOut { holders: 0, drains: 0, .. })), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("its finalisers are running") && !text.contains(" 0 "), "{text}");
    ending.join().unwrap();
    library.remove_and_wait(LONG).unwrap();
    engine.finish();
}

/// A stack that overflows ends the process.
fn drains_that_use_libraries() {
    common::good_object();
    let end = child("reentrant_drains_part");
    assert_eq!(end.code, Some(0), "{end:?}");
}

fn reentrant_drains_part() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let engine = Checked::new();
    let good = std::fs::read(common::good_object()).unwrap();
    let make_and_remove = {
        let (engine, good) = (engine.clone(), good.clone());
        move || {
            let library = engine.add_object(&good).unwrap();
            int(&library, "text");
            freed(&library);
        }
    };

    // It makes and removes others, asks for its own library's end, and waits for that.
    let base = linked(&engine, "needed", "int base(void) { return 4; }", &[]);
    let library = linked(&engine, "busy", "int base(void); int value(void) { return base(); }", &[&base]);
    assert_eq!(call(&library, "value"), 4);
    let finished = Arc::new(AtomicBool::new(false));
    let (flag_of_drain, itself, needed, make) =
        (Arc::clone(&finished), library.clone(), base.clone(), make_and_remove.clone());
    let drain = move || {
        ASKED.fetch_add(1, Ordering::SeqCst);
        make();
        assert!(matches!(itself.remove(), Removal::Waiting { .. }));
        for library in [&itself, &needed] {
            let waited = library.remove_and_wait(LONG);
            assert!(matches!(waited, Err(Error::Library(LibraryError::RemovalFromOwnCode { .. }))), "{waited:?}");
        }
        flag_of_drain.load(Ordering::SeqCst)
    };
    library.drain(drain).unwrap();
    assert_eq!(library.remove(), Removal::Waiting { holders: 1 });
    make_and_remove();
    let asked = ASKED.swap(0, Ordering::SeqCst);
    assert!((1..20).contains(&asked), "asked {asked} times");
    let error = library.remove_and_wait(Duration::from_millis(30)).unwrap_err();
    assert!(matches!(error, Error::Library(LibraryError::RemovalTimedOut { holders: 0, drains: 1, .. })), "{error:?}");
    finished.store(true, Ordering::SeqCst);
    freed(&library);
    freed(&base);

    // Many at a time, each of which looks for the others: none within the other.
    ASKED.store(0, Ordering::SeqCst);
    let finished = Arc::new(AtomicBool::new(false));
    let many: Vec<_> = (0..200)
        .map(|_| {
            let (library, finished) = (engine.add_object(&good).unwrap(), Arc::clone(&finished));
            let of_drain = engine.clone();
            let drain = move || {
                ASKED.fetch_add(1, Ordering::SeqCst);
                drop(of_drain.library("another").build().unwrap());
                finished.load(Ordering::SeqCst)
            };
            library.drain(drain).unwrap();
            library
        })
        .collect();
    many.iter().for_each(|library| assert_eq!(library.remove(), Removal::Waiting { holders: 1 }));
    ASKED.store(0, Ordering::SeqCst);
    make_and_remove();
    assert!(ASKED.load(Ordering::SeqCst) <= 4 * many.len(), "{} were asked", ASKED.load(Ordering::SeqCst));
    finished.store(true, Ordering::SeqCst);
    make_and_remove();
    assert_eq!(engine.stats().libraries, 0, "whoever comes next ends all of them");
    drop(many);

    // What has finished meanwhile goes when it is asked for, and what has begun to drain meanwhile is looked at before
    // the first call returns.
    let names = ["outer", "inner", "late"];
    let [outer, inner, late] = names.map(|name| linked(&engine, name, "int value(void) { return 1; }", &[]));
    let ((inner_finished, of_inner), asked) = (flag(), AtomicUsize::new(0));
    inner.drain(of_inner).unwrap();
    assert_eq!(inner.remove(), Removal::Waiting { holders: 1 });
    late.drain(move || asked.fetch_add(1, Ordering::SeqCst) >= 2).unwrap();
    let (begin, of_drain) = flag();
    let (within, lent) = (AtomicBool::new(false), (inner.clone(), late.clone()));
    let drain = move || {
        if !of_drain.is_finished() || within.swap(true, Ordering::SeqCst) {
            return false;
        }
        let (inner, late) = &lent;
        assert_eq!(inner.remove(), Removal::Waiting { holders: 1 });
        inner_finished.store(true, Ordering::SeqCst);
        freed(inner);
        // It is asked twice here.
        assert_eq!(late.remove(), Removal::Waiting { holders: 1 });
        true
    };
    outer.drain(drain).unwrap();
    assert_eq!(outer.remove(), Removal::Waiting { holders: 1 });
    begin.store(true, Ordering::SeqCst);
    drop(engine.library("another").build().unwrap());
    assert_eq!(engine.stats().libraries, 0);
    [outer, inner, late].iter().for_each(freed);
    engine.finish();
}

fn exit_with_drains_part() {
    extern "C" fn say() {
        println!("finalised");
    }
    let engine = JitEngine::new().unwrap();
    // SAFETY: no shared libraries; the function takes nothing.
    let library = unsafe { engine.library("draining").symbol("say", say as *const ()).build().unwrap() };
    let source = "void say(void); int value(void) { return 1; }
        __attribute__((destructor)) static void fini(void) { say(); }";
    library.add_object(compile_bytes("draining.c", source, &[])).unwrap();
    assert_eq!(call(&library, "value"), 1);
    library.drain(|| false).unwrap();
    drop((library, engine));
    println!("ending");
    std::process::exit(3);
}

/// The process does not wait, and runs finalisers.
fn exit_with_drains() {
    let end = child("exit_with_drains_part");
    assert_eq!((end.code, &*end.stdout), (Some(3), "ending\nfinalised\n"), "{end:?}");
}

// ---- callbacks and threads ----

thread_local! {
    static LAST_ENGINE: RefCell<Option<(JitEngine, Library)>> = const { RefCell::new(None) };
}

extern "C" fn drop_engine() -> i32 {
    drop(LAST_ENGINE.take());
    9
}

fn the_engine_may_go_in_a_callback() {
    let engine = JitEngine::new().unwrap();
    // SAFETY: no shared libraries; the function takes nothing and returns int.
    let library = unsafe { engine.library("last").symbol("drop_engine", drop_engine as *const ()).build().unwrap() };
    let source = "int drop_engine(void); int value(void) { return drop_engine() + 1; }";
    library.add_object(compile_bytes("last.c", source, &[])).unwrap();
    let value = int(&library, "value");
    LAST_ENGINE.set(Some((engine, library)));
    // SAFETY: int (void).
    assert_eq!(unsafe { value() }, 10);
    drop(value);
    common::assert_no_rwx();
}

/// Whoever is last, finalisers run once, and after everybody's calls.
fn many_threads_share_the_last_holder() {
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn ended() {
        ENDED.fetch_add(1, Ordering::SeqCst);
    }
    let engine = Checked::new();
    let source = "void ended(void); int value(void) { return 1; }
        __attribute__((destructor)) static void fini(void) { ended(); }";
    let bytes = compile_bytes("shared.c", source, &[]);
    for round in 1..=50 {
        // SAFETY: no shared libraries; the function takes nothing.
        let library = unsafe { engine.library("shared").symbol("ended", ended as *const ()).build().unwrap() };
        library.add_object(&bytes).unwrap();
        let symbol = int(&library, "value");
        thread::scope(|scope| {
            for _ in 0..4 {
                let symbol = symbol.clone();
                scope.spawn(move || {
                    for _ in 0..50 {
                        let again = symbol.clone();
                        // SAFETY: int (void).
                        CALLS.fetch_add(unsafe { again() } as usize, Ordering::SeqCst);
                    }
                });
            }
            drop(symbol);
            drop(library);
        });
        assert_eq!((ENDED.load(Ordering::SeqCst), CALLS.load(Ordering::SeqCst)), (round, round * 200));
    }
    engine.finish();
}
