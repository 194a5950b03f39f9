//! Children of `fork`: they go on with what they inherit, and neither side sees what the other does.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use slabjit::{Error, JitEngine, Library, LibraryError, Removal};

use crate::common::{self, ChildEnd, Int, call, child, compile, compile_bytes, freed, int, link_shared, tests};
use crate::target::{self, by_qemu};

tests![;
    alone: children_call_load_and_remove, neither_sees_what_the_other_does, children_of_children, nobody_gets_inherited_addresses,
        linker_sets_are_inherited,
        stale_calls_trap_in_children, threads_link_while_children_begin, several_threads_fork,
        what_others_were_initialising_is_lost, initialisers_may_fork, initialisers_of_shared_libraries_may_fork,
        children_end_as_with_dlopen, dylibs_are_linked_in_children;
    parts: ending_part,
];

/// How long a process of a test has from its last fork on, in seconds, and as long has a child.
fn limit() -> u32 {
    by_qemu(120, 600) as u32
}

/// Forks. A process that hangs from here on ends with a signal: also where it hangs in a fork handler, but for a child,
/// which inherits no alarm; `end_of` ends that.
fn forked() -> libc::pid_t {
    // SAFETY: the child goes on as this thread.
    unsafe {
        libc::alarm(limit());
        let child = libc::fork();
        assert!(child >= 0, "{}", std::io::Error::last_os_error());
        if child == 0 {
            libc::alarm(limit());
        }
        child
    }
}

/// Runs `body` in a child, which ends with 0 if it returns, and with a signal if it hangs.
fn fork(body: impl FnOnce()) -> libc::pid_t {
    let child = forked();
    if child == 0 {
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: ends without unwinding into what is the parent's.
        unsafe { libc::_exit(if ended.is_ok() { 0 } else { 1 }) };
    }
    child
}

/// The child's status: exit code, or the signal's number, negative. One that does not end is killed.
#[track_caller]
fn end_of(child: libc::pid_t) -> i32 {
    // Before the time of this process is over.
    let deadline = Instant::now() + Duration::from_secs(u64::from(limit()) / 2);
    let mut status = -1;
    loop {
        let hangs = Instant::now() > deadline;
        // SAFETY: a child of this process that nobody has waited for; a place for the status.
        let ended = unsafe {
            if hangs {
                libc::kill(child, libc::SIGKILL);
            }
            libc::waitpid(child, &raw mut status, if hangs { 0 } else { libc::WNOHANG })
        };
        assert!(!hangs, "a child hung, in a fork handler or in what it did then, and was killed");
        if ended != 0 {
            assert_eq!(ended, child, "{}", std::io::Error::last_os_error());
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
}

#[track_caller]
fn in_child(body: impl FnOnce()) {
    assert_eq!(end_of(fork(body)), 0, "the child's end");
}

/// What objects have together is as much each process's own as what they have alone.
fn linker_sets_are_inherited() {
    let entry = |i: i32| {
        let source = format!(
            "__attribute__((section(\"set\"), used)) static int entry = {i}; int *at{i}(void) {{ return &entry; }}"
        );
        compile_bytes(&format!("set{i}.c"), &source, &[])
    };
    let sum = "extern int __start_set[], __stop_set[];
        int sum(void) { int s = 0; for (int *p = __start_set; p < __stop_set; p++) s = s * 10 + ++*p; return s; }";
    let objects = [entry(1), compile_bytes("sum.c", sum, &[]), entry(2)];
    let engine = JitEngine::new().unwrap();
    let (kept, removed) = (engine.add_objects(&objects).unwrap(), engine.add_objects(&objects).unwrap());
    assert_eq!((call(&kept, "sum"), call(&removed, "sum")), (23, 23));
    in_child(|| {
        assert_eq!((call(&kept, "sum"), call(&removed, "sum")), (34, 34));
        freed(&removed);
        let new = engine.add_objects(&objects).unwrap();
        assert_eq!((call(&new, "sum"), call(&kept, "sum")), (23, 45));
        freed(&new);
        freed(&kept);
    });
    assert_eq!((call(&kept, "sum"), call(&removed, "sum")), (34, 34));
    freed(&kept);
    freed(&removed);
}

/// Counts its calls, and those of its initialiser.
const COUNTING: &str = "static int n, ready; __attribute__((constructor)) static void init(void) { ready += 100; }
    int next(void) { return ready + ++n; }";

fn children_call_load_and_remove() {
    let bytes = compile_bytes("counting.c", COUNTING, &[]);
    let variables = compile_bytes("own.c", "__thread int v = 5; int get(void) { return v++; }", &[]);
    let engine = JitEngine::new().unwrap();
    let (kept, removed) = (engine.add_object(&bytes).unwrap(), engine.add_object(&bytes).unwrap());
    let next = int(&kept, "next");
    // SAFETY: as compiled.
    assert_eq!((unsafe { next() }, call(&removed, "next")), (101, 101));
    let later = engine.add_object(&bytes).unwrap();
    in_child(|| {
        // SAFETY: as above.
        assert_eq!(unsafe { next() }, 102);
        freed(&removed);
        // What waited when it began, what is new, and in a new engine.
        assert_eq!(call(&later, "next"), 101);
        let new = engine.add_object(&bytes).unwrap();
        assert_eq!((call(&new, "next"), call(&new, "next")), (101, 102));
        freed(&new);
        let own = engine.add_object(&variables).unwrap();
        assert_eq!((call(&own, "get"), call(&own, "get")), (5, 6));
        assert_eq!(thread::scope(|scope| scope.spawn(|| call(&own, "get")).join().unwrap()), 5);
        let other = JitEngine::new().unwrap();
        assert_eq!(call(&other.add_object(&bytes).unwrap(), "next"), 101);
        freed(&own);
        freed(&later);
        assert_eq!(kept.remove(), Removal::Waiting { holders: 1 });
    });
    // SAFETY: as above.
    assert_eq!((unsafe { next() }, call(&removed, "next"), call(&later, "next")), (102, 102, 101));
}

/// Both sides change, load and remove at the same time, step by step.
fn neither_sees_what_the_other_does() {
    let bytes = compile_bytes("counting.c", COUNTING, &[]);
    let engine = JitEngine::new().unwrap();
    let library = engine.add_object(&bytes).unwrap();
    assert_eq!(call(&library, "next"), 101);
    // Compiled before the fork, so that both have it.
    let objects = [1, 2]
        .map(|side| compile_bytes(&format!("side_{side}.c"), &format!("int side(void) {{ return {side}; }}"), &[]));
    let steps = |side: i32| {
        for i in 0..by_qemu(200, 20) as i32 {
            assert_eq!(call(&library, "next"), 102 + i, "side {side}");
            let own = engine.add_object(&objects[side as usize - 1]).unwrap();
            assert_eq!(call(&own, "side"), side);
            if i % 3 != 0 {
                freed(&own);
            }
        }
    };
    let child = fork(|| steps(2));
    steps(1);
    assert_eq!(end_of(child), 0);
}

fn children_of_children() {
    let bytes = compile_bytes("counting.c", COUNTING, &[]);
    let engine = JitEngine::new().unwrap();
    let first = engine.add_object(&bytes).unwrap();
    assert_eq!(call(&first, "next"), 101);
    in_child(|| {
        let second = engine.add_object(&bytes).unwrap();
        assert_eq!((call(&first, "next"), call(&second, "next")), (102, 101));
        in_child(|| {
            assert_eq!((call(&first, "next"), call(&second, "next")), (103, 102));
            freed(&first);
            freed(&second);
            assert_eq!(call(&engine.add_object(&bytes).unwrap(), "next"), 101);
        });
        assert_eq!((call(&first, "next"), call(&second, "next")), (103, 102));
    });
    assert_eq!(call(&first, "next"), 102);
}

/// Neither of what lived nor of what rested, whatever goes and comes in the child.
fn nobody_gets_inherited_addresses() {
    let bytes = compile_bytes("counting.c", COUNTING, &[]);
    let engine = JitEngine::builder().arena_size(8 << 20).quarantine(256 << 10).build().unwrap();
    let address = |library: &Library| *int(library, "next") as usize;
    let lived: Vec<_> = (0..40).map(|_| engine.add_object(&bytes).unwrap()).collect();
    let mut inherited: Vec<usize> = lived.iter().map(address).collect();
    for _ in 0..40 {
        let rests = engine.add_object(&bytes).unwrap();
        inherited.push(address(&rests));
        freed(&rests);
    }
    // Some have rested long enough.
    inherited.retain(|address| engine.explain_address(*address as *const ()).is_some());
    assert!(inherited.len() > lived.len());
    in_child(|| {
        let before = engine.stats().arena;
        lived.iter().for_each(freed);
        // More than there is room for at a time.
        for _ in 0..by_qemu(3000, 1000) {
            let library = engine.add_object(&bytes).unwrap();
            let address = address(&library);
            assert!(!inherited.contains(&address), "{address:#x}");
            freed(&library);
        }
        let now = engine.stats().arena;
        let gone = before.slab_bytes + before.quarantined_bytes;
        assert!(now.lost_bytes >= before.lost_bytes + gone && now.slab_bytes == 0, "{before:?}\n{now:?}");
        // They trap, and it can be told whose they were.
        assert!(engine.explain_address(inherited[0] as *const ()).unwrap().removed.is_some());
        // A child of this one has what this one had.
        let mine = engine.add_object(&bytes).unwrap();
        let kept = address(&mine);
        in_child(|| {
            freed(&mine);
            for _ in 0..by_qemu(500, 100) {
                let library = engine.add_object(&bytes).unwrap();
                assert!(address(&library) != kept && !inherited.contains(&address(&library)));
                freed(&library);
            }
        });
    });
    // The parent gets them again: nobody else had them here.
    lived.iter().for_each(freed);
    let again = (0..by_qemu(3000, 1000)).any(|_| {
        let library = engine.add_object(&bytes).unwrap();
        let address = address(&library);
        freed(&library);
        inherited.contains(&address)
    });
    // What is packed afterwards finds room elsewhere first.
    assert!(again || common::packed());
    assert_eq!(engine.stats().arena.lost_bytes, 0);
}

fn stale_calls_trap_in_children() {
    let bytes = compile_bytes("counting.c", COUNTING, &[]);
    let engine = JitEngine::new().unwrap();
    let library = engine.add_object(&bytes).unwrap();
    // SAFETY: what it is called for.
    let stale: Int = *int(&library, "next");
    let child = fork(|| {
        freed(&library);
        // SAFETY: none: this is what must trap.
        unsafe { stale() };
    });
    assert_eq!(end_of(child), -libc::SIGSEGV);
    // SAFETY: here it is alive.
    assert_eq!(unsafe { stale() }, 101);
}

fn threads_link_while_children_begin() {
    let counting = compile_bytes("counting.c", COUNTING, &[]);
    let variables = compile_bytes("own.c", "__thread int v = 5; int get(void) { return v++; }", &[]);
    let failing = compile_bytes("failing.c", "int absent(void); int f(void) { return absent(); }", &[]);
    let engine = JitEngine::new().unwrap();
    let kept = engine.add_object(&counting).unwrap();
    assert_eq!(call(&kept, "next"), 101);
    let done = AtomicBool::new(false);
    let links = AtomicUsize::new(0);
    // The dynamic loader then "failed to map segment from shared object" in one of ten runs.
    let variables_too = !target::not_with_large_pages_of_qemu("its mmap gives up where the machine's gaps do not fit");
    thread::scope(|scope| {
        for i in 0..8 {
            let (engine, done, links, counting, variables, failing) =
                (&engine, &done, &links, &counting, &variables, &failing);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let library = engine.add_object(counting).unwrap();
                    assert_eq!(call(&library, "next"), 101);
                    if i % 2 == 0 {
                        if variables_too {
                            let own = engine.add_object(variables).unwrap();
                            assert_eq!(call(&own, "get"), 5);
                            freed(&own);
                        }
                        // SAFETY: it is to fail.
                        unsafe { engine.add_object(failing).unwrap().initialize() }.unwrap_err();
                    }
                    // Looks at this thread's stack.
                    let held = int(&library, "next");
                    let waited = library.remove_and_wait(Duration::ZERO).unwrap_err();
                    assert!(matches!(waited, Error::Library(LibraryError::RemovalTimedOut { .. })), "{waited:?}");
                    drop(held);
                    freed(&library);
                    links.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let ended: Vec<_> = (0..by_qemu(60, 6))
            .map(|_| {
                let before = links.load(Ordering::Relaxed);
                while links.load(Ordering::Relaxed) < before + 8 {
                    thread::yield_now();
                }
                end_of(fork(|| {
                    assert_eq!(call(&kept, "next"), 102);
                    for bytes in [&counting, &counting] {
                        let library = engine.add_object(bytes).unwrap();
                        assert_eq!(call(&library, "next"), 101);
                        freed(&library);
                    }
                    if variables_too {
                        let own = engine.add_object(&variables).unwrap();
                        assert_eq!(call(&own, "get"), 5);
                        freed(&own);
                    }
                }))
            })
            .collect();
        done.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(|end| *end == 0), "{ended:?}");
    });
    assert_eq!(call(&kept, "next"), 102);
}

fn several_threads_fork() {
    let bytes = compile_bytes("counting.c", COUNTING, &[]);
    let engine = JitEngine::new().unwrap();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..by_qemu(10, 2) {
                    let library = engine.add_object(&bytes).unwrap();
                    assert_eq!(call(&library, "next"), 101);
                    in_child(|| {
                        assert_eq!(call(&library, "next"), 102);
                        freed(&library);
                        assert_eq!(call(&engine.add_object(&bytes).unwrap(), "next"), 101);
                    });
                    freed(&library);
                }
            });
        }
    });
}

static INSIDE: Barrier = Barrier::new(2);
static FORKED: Barrier = Barrier::new(2);

extern "C" fn wait_for_fork() {
    INSIDE.wait();
    FORKED.wait();
}

fn what_others_were_initialising_is_lost() {
    let engine = JitEngine::new().unwrap();
    // SAFETY: `wait_for_fork` is void(void).
    let library =
        unsafe { engine.library("slow").symbol("wait_for_fork", wait_for_fork as *const ()).build().unwrap() };
    library.add_object(compile_bytes("early.c", "int early(void) { return 7; }", &[])).unwrap();
    let early = int(&library, "early");
    let source = "void wait_for_fork(void); static int ready; int value(void) { return ready; }
        __attribute__((constructor)) static void init(void) { wait_for_fork(); ready = 1; }";
    library.add_object(compile_bytes("slow.c", source, &[])).unwrap();
    thread::scope(|scope| {
        let initialises = scope.spawn(|| call(&library, "value"));
        INSIDE.wait();
        let child = fork(|| {
            // SAFETY: nothing runs that may not.
            let error = unsafe { library.initialize() }.unwrap_err();
            assert!(
                matches!(&error, Error::Library(LibraryError::LostInFork { library }) if library == "slow"),
                "{error:?}"
            );
            // What was there before is.
            // SAFETY: as compiled.
            assert_eq!((call(&library, "early"), unsafe { early() }), (7, 7));
            // The thread's hold on the code went with it.
            assert!(matches!(library.remove(), Removal::Waiting { holders: 1.. }));
            let again = engine.add_object(compile_bytes("early.c", "int early(void) { return 7; }", &[])).unwrap();
            assert_eq!(call(&again, "early"), 7);
        });
        let end = end_of(child);
        FORKED.wait();
        assert_eq!(initialises.join().unwrap(), 1);
        assert_eq!(end, 0);
    });
    assert_eq!(call(&library, "value"), 1);
}

static SIDE: AtomicI32 = AtomicI32::new(-1);

/// Forks from where it is called; `SIDE` is the child's process number in the parent, 0 in the child.
extern "C" fn fork_here() {
    SIDE.store(forked(), Ordering::SeqCst);
}

fn initialisers_may_fork() {
    let engine = JitEngine::new().unwrap();
    // SAFETY: `fork_here` is void(void).
    let library = unsafe { engine.library("forking").symbol("fork_here", fork_here as *const ()).build().unwrap() };
    let source = "void fork_here(void); static int ready; int value(void) { return ready; }
        __attribute__((constructor)) static void init(void) { fork_here(); ready = 1; }";
    library.add_object(compile_bytes("forking.c", source, &[])).unwrap();
    let value = call(&library, "value");
    if SIDE.load(Ordering::SeqCst) == 0 {
        let other = engine.add_object(compile_bytes("counting.c", COUNTING, &[])).unwrap();
        let right = value == 1 && call(&library, "value") == 1 && call(&other, "next") == 101;
        // SAFETY: the child's end.
        unsafe { libc::_exit(if right { 0 } else { 1 }) };
    }
    assert_eq!((value, end_of(SIDE.load(Ordering::SeqCst))), (1, 0));
    freed(&library);
}

/// Asks for another library of ours while the loader's lock is this thread's, and then forks.
static WAITS: OnceLock<(JitEngine, Vec<u8>)> = OnceLock::new();

extern "C" fn fork_in_the_loader() {
    // Another thread waits for the loader's lock, with all that goes with it.
    INSIDE.wait();
    thread::sleep(Duration::from_millis(200));
    let (engine, bytes) = WAITS.get().unwrap();
    let start = Instant::now();
    let child = fork(|| {});
    assert_eq!(end_of(child), 0);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(call(&engine.add_object(bytes).unwrap(), "next"), 101);
}

fn initialisers_of_shared_libraries_may_fork() {
    let engine = JitEngine::new().unwrap();
    WAITS.get_or_init(|| (engine.clone(), compile_bytes("counting.c", COUNTING, &[])));
    let source = "extern void (*hook)(void); void (*hook)(void);
        __attribute__((constructor)) static void init(void) { void (*f)(void) = (void (*)(void))HOOK; f(); }
        int value(void) { return 3; }";
    let hook = format!("-DHOOK={:#x}", fork_in_the_loader as *const () as usize);
    let shared = link_shared("libforking.so", &[&compile("forking_shared.c", source, &[&hook])], &[]);
    let variables = compile_bytes("own.c", "__thread int v = 5; int get(void) { return v++; }", &[]);
    let started = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Once before, as the first of many things needs the loader's lock.
            freed(&engine.add_object(&variables).unwrap());
            let own = engine.add_object(&variables).unwrap();
            started.wait();
            INSIDE.wait();
            // Has the loader open storage, for which it needs the lock.
            assert_eq!(call(&own, "get"), 5);
            freed(&own);
        });
        started.wait();
        // SAFETY: its initialiser does what this test is about.
        let library = unsafe { engine.library("with shared").shared_library(&shared).build().unwrap() };
        library
            .add_object(compile_bytes("uses.c", "int value(void); int twice(void) { return 2 * value(); }", &[]))
            .unwrap();
        assert_eq!(call(&library, "twice"), 6);
    });
}

/// What says what it does, on standard output.
const SPEAKING: &str = "#include <unistd.h>\n#include <stdlib.h>\n#include <pthread.h>
    static pid_t first;
    static void say(const char *text) {
        char line[32]; size_t n = 0;
        line[n++] = getpid() == first ? 'p' : 'c';
        while (*text) line[n++] = *text++;
        (void)!write(1, line, n);
    }
    static void at_exit(void) { say(\"at exit\\n\"); }
    static void prepare(void) { say(\"prepare\\n\"); }
    static void parent(void) { say(\"parent\\n\"); }
    static void in_child(void) { say(\"child\\n\"); atexit(at_exit); }
    __attribute__((constructor)) static void init(void) { first = getpid(); say(\"init\\n\"); pthread_atfork(prepare, parent, in_child); }
    __attribute__((destructor)) static void fini(void) { say(\"fini\\n\"); }
    int use(void) { atexit(at_exit); return 3; }";

/// Forks; the child calls `exit`, and then this process does. With the dynamic loader if that is asked for, else with
/// us.
fn ending_part() {
    let object = compile("speaking.c", SPEAKING, &[]);
    if std::env::var_os("SLABJIT_TEST_DLOPEN").is_some() {
        let shared = link_shared("libspeaking.so", &[&object], &[]);
        let path = std::ffi::CString::new(shared.to_str().unwrap()).unwrap();
        // SAFETY: a shared library whose function is as compiled.
        unsafe {
            let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
            assert!(!handle.is_null());
            let function = libc::dlsym(handle, c"use".as_ptr());
            assert_eq!(std::mem::transmute::<*mut libc::c_void, Int>(function)(), 3);
        }
    } else {
        let library = JitEngine::new().unwrap().add_object_file(object).unwrap();
        assert_eq!(call(&library, "use"), 3);
        std::mem::forget(library);
    }
    let child = forked();
    // SAFETY: both end as programs do.
    unsafe {
        if child == 0 {
            libc::exit(4);
        }
        assert_eq!(end_of(child), 4);
        libc::exit(5);
    }
}

/// Handlers and finalisers of each, in the same order.
fn children_end_as_with_dlopen() {
    let ours = child("ending_part");
    let oracle = crate::common::child_with("ending_part", &[("SLABJIT_TEST_DLOPEN", "1")]);
    // The two run at the same time.
    let of = |end: &ChildEnd| {
        ["p", "c"].map(|side| end.stdout.lines().filter_map(|l| l.strip_prefix(side)).collect::<Vec<_>>().join(", "))
    };
    let expected = ["init, prepare, parent, at exit, fini", "child, at exit, at exit, fini"].map(str::to_owned);
    assert_eq!((oracle.code, of(&oracle)), (Some(5), expected.clone()), "{oracle:?}");
    assert_eq!((ours.code, of(&ours)), (Some(5), expected), "{ours:?}");
}

/// While threads of the parent link, so that a fork waits for them.
fn dylibs_are_linked_in_children() {
    let engine = JitEngine::new().unwrap();
    let jit = engine.orc().build().unwrap();
    let main = jit.dylib("main");
    let object = |name: &str, value: i32| {
        let source = format!("static int n; int {name}(void) {{ return n += {value}; }}");
        compile_bytes("of_child.c", &source, &[])
    };
    main.add_object(object("linked", 1)).unwrap();
    main.add_object(object("waiting", 2)).unwrap();
    // SAFETY: int (void), here as below.
    let call = |name: &str| unsafe { main.get::<Int>(name).unwrap()() };
    assert_eq!(call("linked"), 1);
    let (template, new, linked) = (object("of_00000", 3), object("new", 7), object("linked", 1));
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        for of_thread in 0..2 {
            let (main, template, end) = (&main, &template, &end);
            scope.spawn(move || {
                for n in 0.. {
                    if end.load(Ordering::SeqCst) {
                        break;
                    }
                    let name = format!("of_{of_thread}{:04}", n % 10_000);
                    let tracker = main.tracker();
                    tracker.add_object(crate::orc::renamed(template, &[("of_00000", name.clone())])).unwrap();
                    // SAFETY: as above.
                    assert_eq!(unsafe { main.get::<Int>(&name).unwrap()() }, 3);
                    tracker.remove().unwrap();
                }
            });
        }
        for _ in 0..20 {
            in_child(|| {
                assert_eq!((call("linked"), call("waiting")), (2, 2));
                let tracker = main.tracker();
                tracker.add_object(&new).unwrap();
                assert_eq!(call("new"), 7);
                tracker.remove().unwrap();
                assert!(main.tracker().add_object(&linked).is_err());
            });
        }
        end.store(true, Ordering::SeqCst);
    });
    assert_eq!((call("linked"), call("waiting")), (2, 2));
}
