//! Variables at a fixed distance from the thread pointer that are initialised with addresses: threads have their copies
//! before anything is linked.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;

use slabjit::{Library, Symbol};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::common::{Checked, compile, compile_bytes, freed, link_shared, tests};
use crate::target::by_arch;

tests![addresses_are_in_every_thread; alone: what_is_linked_for_storage_that_moved_is_linked_again];

type Int = unsafe extern "C" fn() -> i32;

const STATIC: &[&str] = &["-ftls-model=initial-exec"];
/// By the loader's number of the module, which has to be right too.
const DYNAMIC: &[&str] = &["-ftls-model=global-dynamic", by_arch("-mtls-dialect=gnu", "-mtls-dialect=trad")];

/// What the pointers lead to is in the same object, in another, and in the process.
const POINTERS: &str = "static int own = 3; extern int beside[]; int close(int);
    __thread int *to_own = &own, *to_beside = beside + 1; __thread int (*to_close)(int) = close; __thread int plain = 40;";
const USER: &str = "extern __thread int *to_own, *to_beside, (*to_close)(int), plain; int beside[2] = { 100, 200 };
    int use(void) { return *to_own + *to_beside + to_close(-1) * 1000 + plain++; }";

/// Calls `use` on a thread that was there before, on this one, and on one that comes later; twice each.
fn on_all_threads(link: impl FnOnce() -> Library) -> (Library, [[i32; 2]; 3]) {
    let (to_old, for_old) = channel::<Symbol<Int>>();
    let (answer, from_old) = channel();
    // SAFETY: `use` is `int (void)`.
    let twice = |f: Symbol<Int>| [0; 2].map(|_| unsafe { f() });
    let old = thread::spawn(move || for_old.iter().for_each(|f| answer.send(twice(f)).unwrap()));
    let library = link();
    // SAFETY: as above; the objects have no initialisers.
    let f = || unsafe { library.get::<Int>("use").unwrap() };
    to_old.send(f()).unwrap();
    let first = from_old.recv().unwrap();
    drop(to_old);
    old.join().unwrap();
    let (here, young) = (f(), f());
    let results = [first, twice(here), thread::spawn(move || twice(young)).join().unwrap()];
    (library, results)
}

// 3 + 200 - 1000 + 40, and `plain` counts in each thread.
const EXPECTED: [[i32; 2]; 3] = [[-757, -756]; 3];

fn addresses_are_in_every_thread() {
    let engine = Checked::new();
    let one = format!("{POINTERS} {USER}");
    for objects in [
        &[("one.c", one.as_str(), STATIC)][..],
        &[("pointers.c", POINTERS, DYNAMIC), ("user.c", USER, STATIC)],
        &[("user.c", USER, STATIC), ("pointers.c", POINTERS, STATIC)],
    ] {
        let (library, results) = on_all_threads(|| {
            let library = engine.library("pointing").build().unwrap();
            for (file, source, flags) in objects {
                library.add_object_named(file, compile_bytes(file, source, flags)).unwrap();
            }
            library
        });
        assert_eq!(results, EXPECTED, "{:?}", objects[0].0);
        freed(&library);
    }
    engine.finish();
}

/// Has something done at the beginning of the next link, when storage is there already.
struct AtLink<F>(Mutex<Option<F>>, Mutex<u32>);

impl<F: FnOnce() + Send + 'static> Subscriber for &'static AtLink<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "slabjit"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        if span.metadata().name() == "slabjit::link" {
            *self.1.lock().unwrap() += 1;
            if let Some(what) = self.0.lock().unwrap().take() {
                what();
            }
        }
        Id::from_u64(1)
    }

    fn event(&self, _: &Event<'_>) {}
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The loader gives numbers of modules and room in static storage to whoever comes first.
fn what_is_linked_for_storage_that_moved_is_linked_again() {
    let shared = |name: &str, flags: &[&str]| -> PathBuf {
        let object = compile(&format!("{name}.c"), "__thread int v = 1; int *where(void) { return &v; }", flags);
        link_shared(&format!("lib{name}.so"), &[&object], &[])
    };
    let open = |path: &PathBuf| {
        // SAFETY: ours; it has no initialisers.
        unsafe { libloading::Library::new(path) }.unwrap()
    };
    let engine = Checked::new();
    let run = |meanwhile: Box<dyn FnOnce() + Send>, links: u32| {
        let at_link = Box::leak(Box::new(AtLink(Mutex::new(Some(meanwhile)), Mutex::new(0))));
        let at_link: &'static AtLink<_> = at_link;
        let (library, results) = on_all_threads(|| {
            let library = engine.library("pointing").build().unwrap();
            library.add_object_named("user.c", compile_bytes("user.c", USER, STATIC)).unwrap();
            library.add_object_named("pointers.c", compile_bytes("pointers.c", POINTERS, DYNAMIC)).unwrap();
            let more = "extern __thread int plain; int plain_now(void) { return plain; }";
            library.add_object_named("more.c", compile_bytes("more.c", more, DYNAMIC)).unwrap();
            // SAFETY: there are no initialisers.
            tracing::subscriber::with_default(at_link, || unsafe { library.initialize() }).unwrap();
            library
        });
        assert_eq!(results, EXPECTED);
        // SAFETY: it is `int (void)`.
        assert_eq!(unsafe { library.get::<Int>("plain_now").unwrap()() }, 42, "the same variable by the other model");
        assert_eq!(*at_link.1.lock().unwrap(), links);
        freed(&library);
    };
    run(Box::new(|| {}), 1);
    // Its number becomes free, and is the lowest.
    let dynamic = open(&shared("free_number", DYNAMIC));
    run(Box::new(|| drop(dynamic)), 2);
    // It comes behind the storage in the room for static storage.
    let path = shared("static_room", STATIC);
    run(Box::new(move || std::mem::forget(open(&path))), 2);
    engine.finish();
}
