//! No lock is held while code of the user's runs: wherever it runs, it may wait for another thread that loads, calls
//! and removes.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use slabjit::{Drain, JitEngine, Library, ObjectInput, ObjectPlugin, ObjectReport, Removal};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::common::{call, child, compile_bytes, freed, int, tests};
use crate::target::by_qemu;

tests![
    constructors_destructors_and_exit_handlers, resolvers, destructors_of_threads, drains, plugins;
    alone: subscribers, sixteen_threads_whose_initialisers_and_finalisers_load;
    parts: subscribers_part,
];

/// As long as another thread may take for a little, before it counts as one that waits for us.
const LIMIT: Duration = Duration::from_secs(60);

/// What the other thread works with.
struct Other {
    engine: JitEngine,
    /// Has been used before.
    base: Library,
    object: Vec<u8>,
    failing: Vec<u8>,
}

static OTHER: Mutex<Option<Arc<Other>>> = Mutex::new(None);
/// The library whose code runs: the other thread looks at it, too.
static OWN: Mutex<Option<Library>> = Mutex::new(None);
static TIMES: AtomicUsize = AtomicUsize::new(0);

/// One test at a time, as linked code calls back without an argument.
static ONE: Mutex<()> = Mutex::new(());

/// Runs `body` with an engine that the other thread uses, too; user code calls [`another_thread_works`] so many times.
fn with_engine(engine: JitEngine, times: usize, body: impl FnOnce(&JitEngine)) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let source = "int base(void) { return 2; }";
    let base = engine.add_object(compile_bytes("base.c", source, &[])).unwrap();
    assert_eq!(call(&base, "base"), 2);
    let object = "#include <stdlib.h>\nint base(void); static int ready; static void end(void) { ready = 0; }
        __attribute__((constructor)) static void init(void) { ready = base(); atexit(end); }
        __attribute__((destructor)) static void fini(void) { ready = 0; }
        static int twenty(void) { return 20; } static void *resolve(void) { return (void *)twenty; }
        int chosen(void) __attribute__((ifunc(\"resolve\"))); int value(void) { return chosen() * ready; }";
    let object = compile_bytes("other.c", object, &[]);
    let failing = compile_bytes("failing.c", "int absent(void); int f(void) { return absent(); }", &[]);
    let other = Other { engine: engine.clone(), base, object, failing };
    *OTHER.lock().unwrap() = Some(Arc::new(other));
    TIMES.store(0, Ordering::SeqCst);
    body(&engine);
    assert_eq!(TIMES.load(Ordering::SeqCst), times);
    *OWN.lock().unwrap() = None;
    *OTHER.lock().unwrap() = None;
}

/// Has another thread load, call, fail to link and remove, and waits for it. A process in which that takes too long
/// ends.
extern "C" fn another_thread_works() {
    let (done, wait) = std::sync::mpsc::channel();
    let works = thread::spawn(move || {
        let other = OTHER.lock().unwrap().clone().unwrap();
        let Other { engine, base, object, failing } = &*other;
        let library = engine.library("other").link(base).build().unwrap();
        library.add_object(object).unwrap();
        assert_eq!((call(&library, "value"), call(base, "base")), (40, 2));
        // SAFETY: it is to fail.
        unsafe { engine.add_object(failing).unwrap().initialize() }.unwrap_err();
        assert!(engine.explain_address(*int(base, "base") as *const ()).is_some());
        engine.stats();
        if let Some(own) = &*OWN.lock().unwrap() {
            own.symbols();
        }
        freed(&library);
        done.send(()).unwrap();
    });
    if wait.recv_timeout(LIMIT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
        eprintln!("the other thread waits for a lock that is held while this code runs");
        std::process::abort();
    }
    works.join().unwrap();
    TIMES.fetch_add(1, Ordering::SeqCst);
}

/// A library whose code may call [`another_thread_works`].
fn calling(engine: &JitEngine, name: &str, source: &str) -> Library {
    // SAFETY: the function is void(void).
    let library = unsafe {
        engine.library(name).symbol("another_thread_works", another_thread_works as *const ()).build().unwrap()
    };
    *OWN.lock().unwrap() = Some(library.clone());
    library.add_object(compile_bytes(name, source, &[])).unwrap();
    library
}

fn constructors_destructors_and_exit_handlers() {
    with_engine(JitEngine::new().unwrap(), 4, |engine| {
        let source = "#include <stdlib.h>\nvoid another_thread_works(void);
            static void end(void) { another_thread_works(); }
            __attribute__((constructor)) static void init(void) { another_thread_works(); atexit(end); }
            __attribute__((destructor)) static void fini(void) { another_thread_works(); }
            int value(void) { return 1; }";
        let library = calling(engine, "hooks.c", source);
        let value = int(&library, "value");
        assert_eq!(TIMES.load(Ordering::SeqCst), 1);
        assert_eq!(library.remove(), Removal::Waiting { holders: 1 });
        // They run with the last holder.
        drop(value);
        assert_eq!(TIMES.load(Ordering::SeqCst), 3);
        // And where a link's last steps are undone.
        let source = "void another_thread_works(void);
            __attribute__((constructor)) static void init(void) { another_thread_works(); throw 1; }
            extern \"C\" int value() { return 1; }";
        let source = source.replace("void another_thread_works(void);", "extern \"C\" void another_thread_works();");
        // SAFETY: its initialiser throws, which is what this is about.
        let error = unsafe { calling(engine, "throwing.cpp", &source).initialize() }.unwrap_err();
        assert!(matches!(error, slabjit::Error::Link(slabjit::LinkError::InitializerFailed { .. })), "{error:?}");
    });
}

fn resolvers() {
    with_engine(JitEngine::new().unwrap(), 1, |engine| {
        let source = "void another_thread_works(void); static int three(void) { return 3; }
            static void *resolve(void) { another_thread_works(); return (void *)three; }
            int chosen(void) __attribute__((ifunc(\"resolve\"))); int value(void) { return chosen(); }";
        let library = calling(engine, "resolver.c", source);
        assert_eq!(call(&library, "value"), 3);
        freed(&library);
    });
}

fn destructors_of_threads() {
    with_engine(JitEngine::new().unwrap(), 2, |engine| {
        let source = "int __cxa_thread_atexit_impl(void (*)(void *), void *, void *); extern char __dso_handle;
            void another_thread_works(void); static void end(void *p) { another_thread_works(); }
            __attribute__((destructor)) static void fini(void) { another_thread_works(); }
            int use(void) { return __cxa_thread_atexit_impl(end, 0, &__dso_handle); }";
        let library = calling(engine, "of_threads.c", source);
        thread::scope(|scope| {
            // The thread's end is the library's, too.
            scope.spawn(|| {
                assert_eq!(call(&library, "use"), 0);
                assert_eq!(library.remove(), Removal::Waiting { holders: 1 });
            });
        });
        let start = std::time::Instant::now();
        // A scope does not wait for destructors of thread-local variables.
        while TIMES.load(Ordering::SeqCst) < 2 && start.elapsed() < LIMIT {
            thread::yield_now();
        }
    });
}

/// Something to wait for, whose every function waits for the other thread. That one asks, too, and is told without.
#[derive(Default)]
struct Slow {
    asked: AtomicBool,
    finished: AtomicBool,
}

impl Drain for Slow {
    fn is_finished(&self) -> bool {
        if !self.asked.swap(true, Ordering::SeqCst) {
            another_thread_works();
        }
        self.finished.load(Ordering::SeqCst)
    }

    fn wait(&self, _: Duration) -> bool {
        another_thread_works();
        self.finished.store(true, Ordering::SeqCst);
        true
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        another_thread_works();
    }
}

fn drains() {
    with_engine(JitEngine::new().unwrap(), 3, |engine| {
        let library = calling(engine, "drained.c", "int value(void) { return 1; }");
        assert_eq!(call(&library, "value"), 1);
        library.drain(Slow::default()).unwrap();
        library.remove_and_wait(LIMIT).unwrap();
    });
}

struct Working;

impl ObjectPlugin for Working {
    fn name(&self) -> &str {
        "working"
    }

    fn prepare<'data>(
        &self,
        object: ObjectInput<'data>,
        _: &mut ObjectReport,
    ) -> Result<Cow<'data, [u8]>, Box<dyn StdError + Send + Sync>> {
        // Not for the other thread's own.
        if object.name().contains("plugged") {
            another_thread_works();
        }
        Ok(Cow::Borrowed(object.bytes()))
    }
}

fn plugins() {
    with_engine(JitEngine::builder().plugin(Working).build().unwrap(), 1, |engine| {
        let library = calling(engine, "plugged.c", "int value(void) { return 1; }");
        let named = engine.library("named").build().unwrap();
        named.add_object_named("plugged", compile_bytes("plugged.c", "int value(void) { return 1; }", &[])).unwrap();
        assert_eq!(call(&named, "value"), 1);
        freed(&named);
        freed(&library);
    });
}

/// Has another thread work whenever anything is reported by the thread that the test runs on.
struct Subscribes(thread::ThreadId);

static TOLD: AtomicBool = AtomicBool::new(false);

impl Subscribes {
    fn works(&self) {
        if thread::current().id() == self.0 && TOLD.load(Ordering::SeqCst) {
            another_thread_works();
        }
    }
}

impl Subscriber for Subscribes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "slabjit"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        self.works();
        Id::from_u64(1)
    }

    fn event(&self, _: &Event<'_>) {
        self.works();
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {
        self.works();
    }

    fn exit(&self, _: &Id) {
        self.works();
    }
}

fn subscribers_part() {
    let engine = JitEngine::new().unwrap();
    with_engine(engine, 0, |engine| {
        let library = engine.library("told").build().unwrap();
        *OWN.lock().unwrap() = Some(library.clone());
        let object = compile_bytes("told.c", "int value(void) { return 42; }", &[]);
        tracing::subscriber::set_global_default(Subscribes(thread::current().id())).unwrap();
        TOLD.store(true, Ordering::SeqCst);
        library.add_object(&object).unwrap();
        assert_eq!(call(&library, "value"), 42);
        freed(&library);
        TOLD.store(false, Ordering::SeqCst);
        // Of prepare, link and remove: made, entered and left; and what was linked.
        assert_eq!(TIMES.swap(0, Ordering::SeqCst), 3 * 3 + 1);
    });
}

fn subscribers() {
    let end = child("subscribers_part");
    assert_eq!(end.code, Some(0), "{end:?}");
}

// ---- all at once ----

static SHARED: OnceLock<(JitEngine, Library, Vec<u8>)> = OnceLock::new();
static LOADED: AtomicUsize = AtomicUsize::new(0);

/// Looks up, loads and removes, from initialisers and finalisers of 16 threads.
extern "C" fn look_up_load_and_remove() {
    let (engine, library, bytes) = SHARED.get().unwrap();
    assert_eq!(call(library, "value"), 40);
    let own = engine.add_object(bytes).unwrap();
    assert_eq!(call(&own, "value"), 40);
    freed(&own);
    LOADED.fetch_add(1, Ordering::Relaxed);
}

fn sixteen_threads_whose_initialisers_and_finalisers_load() {
    let engine = JitEngine::new().unwrap();
    let plain = compile_bytes("plain.c", "int value(void) { return 40; }", &[]);
    let library = engine.add_object(&plain).unwrap();
    SHARED.get_or_init(|| (engine.clone(), library, plain));
    let source = "void hook(void); static int ready; int value(void) { return ready; }
        __attribute__((constructor)) static void init(void) { hook(); ready = 1; }
        __attribute__((destructor)) static void fini(void) { hook(); }";
    let bytes = compile_bytes("both.c", source, &[]);
    let rounds = by_qemu(50, 3);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..rounds {
                    let hook = look_up_load_and_remove as *const ();
                    // SAFETY: the function is void(void).
                    let library = unsafe { engine.library("both").symbol("hook", hook).build().unwrap() };
                    library.add_object(&bytes).unwrap();
                    assert_eq!(call(&library, "value"), 1);
                    freed(&library);
                }
            });
        }
    });
    assert_eq!(LOADED.load(Ordering::Relaxed), 16 * 2 * rounds);
}
