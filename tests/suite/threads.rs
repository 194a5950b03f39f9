//! Many threads on one engine: errors belong to objects, an object is linked once, and initialisers may ask for
//! symbols.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::time::Duration;

use crate::common::{self, Checked, compile, compile_bytes, within};
use slabjit::{Error, JitEngine, Library};

common::tests![
    each_thread_gets_its_own_error,
    one_object_is_linked_once,
    many_libraries_at_once,
    get_from_an_initializer,
    get_from_two_crossed_initializers,
    get_while_an_initializer_runs_waits_for_it,
    removal_while_others_load,
];

const LIMIT: Duration = Duration::from_secs(60);
const THREADS: usize = 16;

type IntFunction = extern "C" fn() -> i32;

fn int(library: &Library, name: &str) -> Result<i32, Error> {
    // SAFETY: the functions of this file's objects are int(void).
    unsafe { library.get::<IntFunction>(name).map(|f| f()) }
}

fn each_thread_gets_its_own_error() {
    within(LIMIT, "16 failing objects", || {
        let engine = Checked::new();
        let shared = engine.add_object_file(compile("base.c", "int base(void) { return 5; } int calls;", &[])).unwrap();
        // Compiled before: the threads are to meet in the engine.
        let objects: Vec<_> = (0..THREADS)
            .map(|i| {
                let source = match i % 2 {
                    // A name that nothing defines.
                    0 => format!("int base(void); int absent_{i}(void); int f(void) {{ return base() + absent_{i}(); }}"),
                    // A reference that cannot reach: 32 bits, and an address that has more.
                    _ => format!("__asm__(\".data\\n.globl g\\ng: .long far_{i}\\n.text\\n\"); int base(void); int h(void) {{ return base(); }}"),
                };
                (compile(&format!("failing_{i}.c"), &source, &[]), compile(&format!("fine_{i}.c"), &fine(i), &[]))
            })
            .collect();
        let barrier = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for (i, (failing, fine)) in objects.iter().enumerate() {
                let (engine, shared, barrier) = (&engine, &shared, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for _ in 0..10 {
                        let far = std::ptr::without_provenance(0x007e_adbe_f000_0000 + i);
                        let bad = engine.library(&format!("bad {i}")).link(shared);
                        // SAFETY: nothing is called.
                        let bad = unsafe { bad.symbol(&format!("far_{i}"), far).build().unwrap() };
                        let good = engine.library(&format!("good {i}")).link(shared).build().unwrap();
                        let added = bad.add_object_file(failing).map(drop);
                        // SAFETY: these objects have no initialisers.
                        let error = added.and_then(|()| unsafe { bad.initialize() }).expect_err("must fail");
                        assert_is_about(&error, i);
                        good.add_object_file(fine).unwrap();
                        assert_eq!(int(&good, "f").unwrap(), 5 + i as i32);
                    }
                });
            }
        });
        drop(shared);
        engine.finish();
    });
}

fn fine(i: usize) -> String {
    format!("int base(void); int f(void) {{ return base() + {i}; }}")
}

/// The error is about thread `i`'s object, and about no other's.
#[track_caller]
fn assert_is_about(error: &Error, i: usize) {
    let text = format!("{error} {error:?}");
    let symbol = if i.is_multiple_of(2) { format!("absent_{i}") } else { format!("far_{i}") };
    assert!(text.contains(&symbol), "nothing about {symbol}: {text}");
    for other in (0..THREADS).filter(|&o| o != i) {
        for name in [format!("absent_{other}"), format!("far_{other}"), format!("failing_{other}.")] {
            // `absent_1` is a part of `absent_10`.
            let found = text
                .match_indices(&name)
                .any(|(at, n)| !text[at + n.len()..].starts_with(|c: char| c.is_ascii_digit()));
            assert!(!found, "thread {i} got something of thread {other}: {text}");
        }
    }
}

static STARTS: AtomicI32 = AtomicI32::new(0);

extern "C" fn count_start() {
    STARTS.fetch_add(1, Ordering::SeqCst);
    // Long enough for the others to arrive.
    std::thread::sleep(Duration::from_millis(20));
}

fn one_object_is_linked_once() {
    within(LIMIT, "16 lookups of one object", || {
        let source = "void count_start(void); static int ready;
                      __attribute__((constructor)) static void init(void) { count_start(); ready = 1; }
                      int value(void) { return ready; } int value_too(void) { return ready; }";
        let bytes = compile_bytes("once.c", source, &[]);
        let engine = Checked::new();
        for round in 1..=5 {
            // SAFETY: `count_start` is void(void).
            let library =
                unsafe { engine.library("once").symbol("count_start", count_start as *const ()).build().unwrap() };
            library.add_object(&bytes).unwrap();
            let barrier = Barrier::new(THREADS);
            std::thread::scope(|scope| {
                for i in 0..THREADS {
                    let (library, barrier) = (&library, &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        assert_eq!(
                            int(library, ["value", "value_too"][i % 2]).unwrap(),
                            1,
                            "called before it was initialised"
                        );
                    });
                }
            });
            assert_eq!(STARTS.load(Ordering::SeqCst), round);
            common::freed(&library);
        }
        engine.finish();
    });
}

fn many_libraries_at_once() {
    within(LIMIT, "16 threads with libraries of their own", || {
        let source = "#include <string.h>
                      static int state; static const char text[] = \"initialised\";
                      __attribute__((constructor)) static void init(void) { state = (int)strlen(text); }
                      int value(void) { return ++state; }";
        let bytes = compile_bytes("many.c", source, &[]);
        let engine = Checked::new();
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..30 {
                        let library = engine.add_object(&bytes).unwrap();
                        assert_eq!(int(&library, "value").unwrap(), 12);
                        assert_eq!(int(&library, "value").unwrap(), 13);
                        common::freed(&library);
                    }
                });
            }
        });
        engine.finish();
    });
}

static SELF_LIBRARY: Mutex<Option<Library>> = Mutex::new(None);
static SELF_RESULT: AtomicI32 = AtomicI32::new(0);

extern "C" fn ask_own_library() {
    let library = SELF_LIBRARY.lock().unwrap().take().unwrap();
    SELF_RESULT.store(int(&library, "pure").unwrap_or(-1), Ordering::SeqCst);
}

fn get_from_an_initializer() {
    within(LIMIT, "get from inside an initialiser", || {
        let source = "void ask_own_library(void);
                      __attribute__((constructor)) static void init(void) { ask_own_library(); }
                      int pure(void) { return 6; } int value(void) { return 7; }";
        let engine = Checked::new();
        // SAFETY: `ask_own_library` is void(void).
        let library =
            unsafe { engine.library("self").symbol("ask_own_library", ask_own_library as *const ()).build().unwrap() };
        library.add_object_file(compile("self.c", source, &[])).unwrap();
        *SELF_LIBRARY.lock().unwrap() = Some(library.clone());
        assert_eq!(int(&library, "value").unwrap(), 7);
        assert_eq!(SELF_RESULT.load(Ordering::SeqCst), 6);
        common::freed(&library);
        drop(library);
        engine.finish();
    });
}

static CROSSED: OnceLock<[Mutex<Option<Library>>; 2]> = OnceLock::new();
static CROSSED_BARRIER: OnceLock<Barrier> = OnceLock::new();
static CROSSED_RESULTS: [AtomicI32; 2] = [AtomicI32::new(0), AtomicI32::new(0)];

extern "C" fn ask_the_other(i: i32) {
    let i = i as usize;
    // Both initialisers run now.
    CROSSED_BARRIER.get().unwrap().wait();
    let other = CROSSED.get().unwrap()[1 - i].lock().unwrap().take().unwrap();
    CROSSED_RESULTS[i].store(int(&other, "pure").unwrap_or(-1), Ordering::SeqCst);
}

fn get_from_two_crossed_initializers() {
    within(LIMIT, "two initialisers that ask for each other's library", || {
        let engine = Checked::new();
        CROSSED_BARRIER.get_or_init(|| Barrier::new(2));
        let libraries: Vec<Library> = (0..2)
            .map(|i| {
                let source = format!(
                    "void ask_the_other(int); __attribute__((constructor)) static void init(void) {{ ask_the_other({i}); }}
                     int pure(void) {{ return 40 + {i}; }}"
                );
                // SAFETY: `ask_the_other` is void(int).
                let library = unsafe { engine.library("crossed").symbol("ask_the_other", ask_the_other as *const ()).build().unwrap() };
                library.add_object_file(compile(&format!("crossed_{i}.c"), &source, &[])).unwrap();
                library
            })
            .collect();
        CROSSED.get_or_init(|| [0, 1].map(|i| Mutex::new(Some(libraries[i].clone()))));
        std::thread::scope(|scope| {
            for (i, library) in libraries.iter().enumerate() {
                scope.spawn(move || assert_eq!(int(library, "pure").unwrap(), 40 + i as i32));
            }
        });
        assert_eq!(CROSSED_RESULTS[0].load(Ordering::SeqCst), 41);
        assert_eq!(CROSSED_RESULTS[1].load(Ordering::SeqCst), 40);
        for library in &libraries {
            common::freed(library);
        }
        drop(libraries);
        engine.finish();
    });
}

static SLOW: OnceLock<Barrier> = OnceLock::new();

extern "C" fn slow_start() {
    SLOW.get().unwrap().wait();
    std::thread::sleep(Duration::from_millis(100));
}

/// A thread that runs no initialiser itself has to see an initialised library.
fn get_while_an_initializer_runs_waits_for_it() {
    within(LIMIT, "get while another thread initialises", || {
        let source = "void slow_start(void); static int ready;
                      __attribute__((constructor)) static void init(void) { slow_start(); ready = 1; }
                      int value(void) { return ready; }";
        let engine = Checked::new();
        let barrier = SLOW.get_or_init(|| Barrier::new(2));
        // SAFETY: `slow_start` is void(void).
        let library = unsafe { engine.library("slow").symbol("slow_start", slow_start as *const ()).build().unwrap() };
        library.add_object_file(compile("slow.c", source, &[])).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| int(&library, "value").unwrap());
            barrier.wait();
            assert_eq!(int(&library, "value").unwrap(), 1);
        });
        common::freed(&library);
        drop(library);
        engine.finish();
    });
}

fn removal_while_others_load() {
    within(LIMIT, "removal while others load", || {
        let source =
            "static int values[64]; int *address(void) { return values; } int value(void) { return values[3] + 9; }";
        let bytes = Arc::new(compile_bytes("churn.c", source, &[]));
        let engine = Checked::new();
        let removed = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let (to_remove, libraries) = std::sync::mpsc::channel::<Library>();
            scope.spawn({
                let removed = &removed;
                move || {
                    for library in libraries {
                        library.remove();
                        removed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            for _ in 0..4 {
                let (bytes, to_remove, engine): (_, _, &JitEngine) = (bytes.clone(), to_remove.clone(), &engine);
                scope.spawn(move || {
                    for _ in 0..100 {
                        let library = engine.add_object(&*bytes).unwrap();
                        // SAFETY: `value` is int(void).
                        let value = unsafe { library.get::<IntFunction>("value").unwrap() };
                        to_remove.send(library).unwrap();
                        assert_eq!(value(), 9);
                    }
                });
            }
        });
        assert_eq!(removed.load(Ordering::Relaxed), 400);
        engine.finish();
    });
}
