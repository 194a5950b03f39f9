//! Engines whose threads share the work on many objects: the result is that of one thread.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use slabjit::{Error, JitEngine, Library, LinkError, ObjectInput, ObjectPlugin, ObjectReport};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::common::{Checked, call, compile_bytes, freed, tests};
use crate::large::{self, Template, archive};
use crate::target::by_qemu;

tests![
    a_chain_is_linked_by_several,
    objects_without_references_are_linked_by_several,
    members_of_archives_are_prepared_by_several,
    the_first_object_that_is_refused_is_named,
    a_link_that_fails_takes_all_with_it,
    plugins_run_on_the_callers_thread;
    alone: the_callers_subscriber_sees_all, children_share_their_own_work
];

/// As many as are worth four threads.
const MANY: usize = 600;

fn shared(threads: usize) -> Checked {
    Checked::of(JitEngine::builder().threads(threads).build().unwrap())
}

/// Functions that are each one of its own.
fn alone(count: usize) -> Vec<Vec<u8>> {
    let wanted = b"number_000000";
    let source = "static const volatile int value = 12345678; int number_000000(void) { return value; }";
    let bytes = compile_bytes("shared_alone.c", source, &[]);
    let all = |of: &[u8]| (0..bytes.len()).filter(|at| bytes[*at..].starts_with(of)).collect::<Vec<_>>();
    let (names, values) = (all(wanted), all(&12_345_678_i32.to_le_bytes()));
    let object = |number: usize| {
        let mut bytes = bytes.clone();
        for at in &names {
            bytes[*at..at + wanted.len()].copy_from_slice(format!("number_{number:06}").as_bytes());
        }
        for at in &values {
            bytes[*at..at + 4].copy_from_slice(&(number as i32).to_le_bytes());
        }
        bytes
    };
    (0..count).map(object).collect()
}

fn chain() -> Vec<Vec<u8>> {
    Template::new("shared_chain.c", "").objects(MANY)
}

fn a_chain_is_linked_by_several() {
    let objects = chain();
    let engine = shared(4);
    for _ in 0..by_qemu(5, 1) {
        let library = engine.add_objects(&objects).unwrap();
        assert_eq!(call(&library, &large::name(0)), MANY as i32 + 7);
        assert_eq!(call(&library, &large::name(MANY / 2)), (MANY - MANY / 2) as i32 + 7);
        freed(&library);
    }
    engine.finish();
}

fn objects_without_references_are_linked_by_several() {
    let objects = alone(MANY);
    let engine = shared(4);
    for _ in 0..by_qemu(5, 1) {
        let library = engine.add_objects(&objects).unwrap();
        for number in 0..MANY {
            assert_eq!(call(&library, &format!("number_{number:06}")), number as i32);
        }
        freed(&library);
    }
    engine.finish();
}

fn members_of_archives_are_prepared_by_several() {
    // All are wanted at once, but for the last.
    let mut members = alone(MANY);
    let names: Vec<_> = (0..MANY).map(|number| format!("number_{number:06}")).collect();
    let declared: String = names.iter().map(|name| format!("int {name}(void), last(void);\n")).collect();
    let sum: String = names.iter().map(|name| format!(" + {name}()")).collect();
    let root = compile_bytes("shared_root.c", &format!("{declared} long root(void) {{ return 0L{sum}; }}"), &[]);
    members.push(compile_bytes("shared_unwanted.c", "int absent(void); int unwanted(void) { return absent(); }", &[]));
    let engine = shared(3);
    let library = engine.library("shared").build().unwrap();
    library.add_object(root).unwrap();
    library.add_archive(archive(&members)).unwrap();
    // SAFETY: it is `long root(void)`.
    let root = unsafe { library.get::<extern "C" fn() -> i64>("root") }.unwrap();
    assert_eq!(root(), (0..MANY as i64).sum::<i64>());
    drop(root);
    freed(&library);
    engine.finish();
}

fn the_first_object_that_is_refused_is_named() {
    let mut objects = alone(MANY);
    let refused = |objects: &[Vec<u8>], threads| {
        let engine = shared(threads);
        let error = engine.add_objects(objects).err().map(|error| format!("{error} {error:?}"));
        engine.assert_unchanged();
        engine.finish();
        error
    };
    assert_eq!(refused(&objects, 4), None);
    objects[MANY - 20].truncate(100);
    objects[MANY / 2][4..6].copy_from_slice(&[9, 9]);
    let expected = refused(&objects, 1);
    assert!(expected.is_some());
    for _ in 0..by_qemu(20, 2) {
        assert_eq!(refused(&objects, 4), expected);
    }
}

/// One of many has a reference that cannot reach: 32 bits, and an address that has more.
fn a_link_that_fails_takes_all_with_it() {
    let mut objects = chain();
    let far = std::ptr::without_provenance::<()>(0x007e_adbe_f000_0000);
    let bad = compile_bytes(
        "shared_far.c",
        "__asm__(\".data\\n.globl g\\ng: .long far\\n\"); int bad(void) { return 1; }",
        &[],
    );
    objects.insert(MANY / 3, bad);
    let fail = |library: &Library| {
        // SAFETY: there are no initialisers.
        let error = unsafe { library.initialize() }.unwrap_err();
        assert!(matches!(&error, Error::Link(LinkError::ReferencesOutOfRange { .. })), "{error:?}");
        error.to_string()
    };
    let text = |threads: usize| {
        let engine = shared(threads);
        // SAFETY: nothing is called.
        let library = unsafe { engine.library("far").symbol("far", far).build().unwrap() };
        library.add_objects(&objects).unwrap();
        let text = fail(&library);
        // All wait as before.
        assert_eq!(fail(&library), text);
        freed(&library);
        engine.finish();
        text
    };
    let expected = text(1);
    for _ in 0..by_qemu(5, 1) {
        assert_eq!(text(4), expected);
    }
}

/// Notes the threads that it is called by, and whether two are in it at once.
#[derive(Default)]
struct Callers {
    inside: AtomicUsize,
    overlapped: AtomicBool,
    threads: Mutex<Vec<ThreadId>>,
}

struct Plugin(Arc<Callers>);

impl ObjectPlugin for Plugin {
    fn name(&self) -> &str {
        "callers"
    }

    fn prepare<'data>(
        &self,
        object: ObjectInput<'data>,
        _: &mut ObjectReport,
    ) -> Result<Cow<'data, [u8]>, Box<dyn std::error::Error + Send + Sync>> {
        let Callers { inside, overlapped, threads } = &*self.0;
        overlapped.fetch_or(inside.fetch_add(1, Ordering::SeqCst) != 0, Ordering::SeqCst);
        threads.lock().unwrap().push(thread::current().id());
        inside.fetch_sub(1, Ordering::SeqCst);
        Ok(Cow::Borrowed(object.bytes()))
    }
}

fn plugins_run_on_the_callers_thread() {
    let callers = Arc::<Callers>::default();
    let builder = JitEngine::builder().threads(4).plugin(Plugin(Arc::clone(&callers)));
    let engine = Checked::of(builder.build().unwrap());
    let library = engine.add_objects(chain()).unwrap();
    assert_eq!(call(&library, &large::name(0)), MANY as i32 + 7);
    assert!(!callers.overlapped.load(Ordering::SeqCst));
    let threads = std::mem::take(&mut *callers.threads.lock().unwrap());
    assert_eq!(threads, vec![thread::current().id(); MANY + 1]);
    freed(&library);
    engine.finish();
}

/// Counts spans, and notes the threads that open some. The first waits for another.
#[derive(Clone)]
struct Spans(Arc<Seen>);

struct Seen {
    threads: usize,
    by: Mutex<(usize, BTreeSet<String>)>,
    came: Condvar,
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.name() == "slabjit::prepare"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        let mut by = self.0.by.lock().unwrap();
        by.0 += 1;
        by.1.insert(format!("{:?} {:?}", thread::current().id(), thread::current().name()));
        let id = Id::from_u64(by.0 as u64);
        self.0.came.notify_all();
        let alone = |by: &mut (usize, BTreeSet<String>)| by.1.len() < self.0.threads;
        let (_by, waited) = self.0.came.wait_timeout_while(by, Duration::from_secs(60), alone).unwrap();
        assert!(!waited.timed_out(), "nobody else came");
        id
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn the_callers_subscriber_sees_all() {
    let objects = alone(MANY);
    for (threads, least) in [(1, 1), (4, 2)] {
        let spans = Spans(Arc::new(Seen { threads: least, by: Mutex::default(), came: Condvar::new() }));
        tracing::subscriber::with_default(spans.clone(), || {
            let engine = shared(threads);
            let library = engine.add_objects(&objects).unwrap();
            freed(&library);
            engine.finish();
        });
        let by = spans.0.by.lock().unwrap();
        assert_eq!(by.0, MANY);
        assert!((least..=threads).contains(&by.1.len()), "{:?}", by.1);
    }
}

/// One thread shares its work with others while another begins children, which do the same.
fn children_share_their_own_work() {
    let objects = chain();
    let engine = JitEngine::builder().threads(3).build().unwrap();
    let load = || {
        let library = engine.add_objects(&objects).unwrap();
        assert_eq!(call(&library, &large::name(0)), MANY as i32 + 7);
        freed(&library);
    };
    let (done, loads) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        // Under qemu-user 7.2 a child cannot make a thread if another thread made one during the fork: the emulator's own
        // lock stays locked (`clone_lock`). A program of 15 lines in C shows it.
        let others = by_qemu(2, 0);
        for _ in 0..others {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    load();
                    loads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for child in 0..by_qemu(30, 2) {
            while others > 0 && loads.load(Ordering::Relaxed) < child {
                thread::yield_now();
            }
            // SAFETY: the child goes on as this thread, and ends without what the parent has to do. What hangs ends by
            // a signal.
            let status = unsafe {
                libc::alarm(by_qemu(60, 300) as u32);
                let child = libc::fork();
                assert!(child >= 0);
                if child == 0 {
                    libc::alarm(by_qemu(60, 300) as u32);
                    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(load));
                    libc::_exit(i32::from(ended.is_err()));
                }
                let mut status = -1;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                status
            };
            assert_eq!(status, 0);
        }
        done.store(true, Ordering::Relaxed);
    });
    // SAFETY: as above.
    unsafe { libc::alarm(0) };
}
