//! Thread-local variables where things happen at the same time, or half way: links that fail, threads that load and
//! unload, forks.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Barrier, LazyLock, Mutex};
use std::thread;
use std::time::Duration;

use slabjit::{Error, JitEngine, Library, LinkError, ObjectInput, ObjectPlugin, ObjectReport, Removal, Symbol};

use crate::common::{Checked, Int, call, child, compile, compile_bytes, freed, int, link_shared, tests, tool, within};
use crate::target::by_qemu;

tests![
    variables_of_a_failed_link_are_forgotten_before_its_memory,
    threads_load_and_unload_while_others_use_theirs,
    a_thread_with_open_files_of_its_own_loads,
    threads_take_a_member_once;
    alone: a_child_of_fork_ends_as_its_parent_does, threads_that_ask_first_need_room_once, threads_that_wait_need_no_room,
        an_initialiser_in_dlopen_asks_while_members_are_taken, fork_handlers_of_the_host_may_call_linked_code;
    parts: forking, forking_with_handlers,
];

const LIMIT: Duration = Duration::from_secs(120);
const DYNAMIC: &[&str] = &["-ftls-model=global-dynamic"];

/// While one thread still links the rest of a batch that has failed, another gets the memory of the object that failed.
fn variables_of_a_failed_link_are_forgotten_before_its_memory() {
    within(LIMIT, "failing and good links side by side", || {
        let variables: String = (0..8).map(|i| format!("__thread int v{i}[16] = {{{i}}};")).collect();
        let sum = (0..8).map(|i| format!("v{i}[0] * {}", 10_i32.pow(i))).collect::<Vec<_>>().join(" + ");
        let good = format!("{variables} int sum(void) {{ return {sum}; }}");
        let far = "__asm__(\".data\\n.globl field\\nfield: .long far\\n.text\\n\");";
        let one_section = compile_bytes("good.c", &good, DYNAMIC);
        let sections = compile_bytes("failing.c", &format!("{good} {far}"), &[DYNAMIC[0], "-fdata-sections"]);
        let slow = ".data\n.globl many\nmany:\n.rept 40000\n.quad many\n.endr\n";
        let slow = compile_bytes("slow.s", slow, &[]);
        let engine = Checked::new();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..by_qemu(40, 8) {
                    let far = std::ptr::without_provenance(0x007e_adbe_f000_0000);
                    // SAFETY: nothing is opened, and nothing runs.
                    let library = unsafe { engine.library("failing").symbol("far", far).build().unwrap() };
                    library.add_object(&sections).unwrap();
                    library.add_object(&slow).unwrap();
                    // SAFETY: it is to fail.
                    let error = unsafe { library.initialize() }.unwrap_err();
                    assert!(matches!(error, Error::Link(LinkError::ReferencesOutOfRange { .. })), "{error:?}");
                    freed(&library);
                }
                done.store(true, Ordering::Relaxed);
            });
            while !done.load(Ordering::Relaxed) {
                let library = engine.add_object(&one_section).unwrap();
                assert_eq!(call(&library, "sum"), 76_543_210);
                freed(&library);
            }
        });
        engine.finish();
    });
}

fn threads_load_and_unload_while_others_use_theirs() {
    within(LIMIT, "threads that load, unload and use", || {
        let source = "extern __thread int process_errno __asm__(\"errno\"); int close(int);
            int __cxa_thread_atexit_impl(void (*)(void *), void *, void *); extern char __dso_handle;
            static __thread int n = 100; static __thread char room[3000] = {1};
            static void end(void *p) { ++*(int *)p; }
            int use(void) {
                if (n == 100) __cxa_thread_atexit_impl(end, &n, &__dso_handle);
                process_errno = 0; close(-1);
                room[n]++;
                return ++n * 100 + process_errno + room[n];
            }";
        let bytes = compile_bytes("use.c", source, DYNAMIC);
        let engine = Checked::new();
        let rounds = by_qemu(100, 20);
        // EBADF
        let used = |nth: i32| (100 + nth) * 100 + 9;
        thread::scope(|scope| {
            // It is there before any library is, and has a block of each.
            let (to_old, work) = channel::<Symbol<Int>>();
            let old = scope.spawn(move || {
                for f in work {
                    // SAFETY: as in `call`.
                    assert_eq!([0; 2].map(|_| unsafe { f() }), [used(1), used(2)]);
                }
            });
            let load = |_| {
                let (engine, bytes, to_old) = (&engine, &bytes, to_old.clone());
                scope.spawn(move || {
                    for round in 0..rounds {
                        let library = engine.add_object(bytes).unwrap();
                        let f = int(&library, "use");
                        to_old.send(f.clone()).unwrap();
                        // A destructor that waits on a thread of its own: the loading threads would keep all.
                        let young = thread::spawn(move || {
                            // SAFETY: as in `call`.
                            [0; 2].map(|_| unsafe { f() })
                        });
                        if round % 2 == 0 {
                            library.remove();
                        }
                        assert_eq!(young.join().unwrap(), [used(1), used(2)]);
                    }
                })
            };
            for loading in [0; 3].map(load) {
                loading.join().unwrap();
            }
            drop(to_old);
            // A scope waits for its threads' closures, not for their destructors.
            old.join().unwrap();
        });
        engine.finish();
    });
}

/// The loader opens the image by a path that names one of the thread's open files, not one of the process's first
/// thread.
fn a_thread_with_open_files_of_its_own_loads() {
    let bytes = compile_bytes("own_files.c", "static __thread int n = 3; int next(void) { return ++n; }", DYNAMIC);
    let loaded = thread::spawn(move || {
        // SAFETY: a plain call; from here on this thread's table of open files is a copy.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0, "{}", std::io::Error::last_os_error());
        let engine = Checked::new();
        let library = engine.add_object(&bytes).unwrap();
        assert_eq!(call(&library, "next"), 4);
        freed(&library);
        engine.finish();
    });
    loaded.join().unwrap();
}

/// The room for blocks at a fixed distance is for one of these, and not for two (FACTS: 1664 bytes).
fn threads_that_ask_first_need_room_once() {
    within(LIMIT, "threads that ask for one library at a time", || {
        let plain = "static __thread char room[900] = {1}; int next(void) { return ++room[0]; }";
        let pointing = "static int two = 2; static __thread int *at = &two; static __thread char room[900];
            int next(void) { return *at + room[0]++; }";
        let engine = Checked::new();
        let failing =
            "static __thread char room[900]; int nowhere(void); int next(void) { return nowhere() + room[0]; }";
        for (name, source, works) in
            [("plain.c", plain, true), ("pointing.c", pointing, true), ("failing.c", failing, false)]
        {
            let bytes = compile_bytes(name, source, &["-ftls-model=initial-exec"]);
            for round in 0..by_qemu(100, 10) {
                let library = engine.add_object(&bytes).unwrap();
                let together = Barrier::new(8);
                let results: Vec<_> = thread::scope(|scope| {
                    let ask = || {
                        together.wait();
                        // SAFETY: as in `call`.
                        unsafe { library.get::<Int>("next").map(|f| f()) }
                    };
                    let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
                    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
                });
                let as_expected = |result: &Result<i32, Error>| match result {
                    Ok(two) => works && *two == 2,
                    Err(error) => !works && matches!(error, Error::Link(LinkError::UndefinedSymbols { .. })),
                };
                assert!(results.iter().all(as_expected), "{name}, round {round}: {results:?}");
                freed(&library);
            }
        }
        engine.finish();
    });
}

/// While threads wait for another's initialiser, none of them keeps room.
fn threads_that_wait_need_no_room() {
    static GO_ON: Mutex<()> = Mutex::new(());
    static STARTED: AtomicBool = AtomicBool::new(false);
    extern "C" fn wait_here() {
        STARTED.store(true, Ordering::Relaxed);
        drop(GO_ON.lock().unwrap());
    }
    within(LIMIT, "threads that wait for an initialiser", || {
        let waiting = "void wait_here(void); __attribute__((constructor)) static void init(void) { wait_here(); }";
        let waiting = compile_bytes("waiting.c", waiting, &[]);
        let source = "static __thread char room[900] = {1}; int next(void) { return ++room[0]; }";
        let bytes = compile_bytes("plain.c", source, &["-ftls-model=initial-exec"]);
        let engine = Checked::new();
        // SAFETY: `wait_here` is `void (void)`.
        let library = unsafe { engine.library("waiting").symbol("wait_here", wait_here as *const ()).build().unwrap() };
        library.add_object(waiting).unwrap();
        let stopped = GO_ON.lock().unwrap();
        thread::scope(|scope| {
            // SAFETY: as above.
            scope.spawn(|| unsafe { library.initialize() }.unwrap());
            while !STARTED.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            library.add_object(bytes).unwrap();
            let ask = || call(&library, "next");
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            thread::sleep(Duration::from_millis(100));
            drop(stopped);
            for thread in threads {
                assert_eq!(thread.join().unwrap(), 2);
            }
        });
        freed(&library);
        engine.finish();
    });
}

fn member_of_archive(name: &str, source: &str) -> PathBuf {
    let member = compile(name, source, DYNAMIC);
    let archive = member.with_extension("a");
    tool("ar", &["rcs".as_ref(), archive.as_os_str(), member.as_os_str()]);
    archive
}

const MEMBER: &str = "static __thread int in_member = 3; int from_member(void) { return ++in_member; }";
const USER: &str = "int from_member(void); int all(void) { return 10 * from_member(); }";

fn threads_take_a_member_once() {
    let (archive, user) = (member_of_archive("member.c", MEMBER), compile_bytes("user.c", USER, &[]));
    let engine = Checked::new();
    for _ in 0..by_qemu(100, 10) {
        let library = engine.add_object(&user).unwrap();
        library.add_archive_file(&archive).unwrap();
        let together = Barrier::new(8);
        thread::scope(|scope| {
            let ask = || {
                together.wait();
                assert_eq!(call(&library, "all"), 40);
            };
            (0..8).for_each(|_| drop(scope.spawn(ask)));
        });
        freed(&library);
    }
    engine.finish();
}

/// Has something done when a member of an archive is prepared on a thread of this name.
struct AtMember(&'static str, fn());

impl ObjectPlugin for AtMember {
    fn name(&self) -> &str {
        "at member"
    }

    fn prepare<'data>(
        &self,
        object: ObjectInput<'data>,
        _: &mut ObjectReport,
    ) -> Result<Cow<'data, [u8]>, Box<dyn std::error::Error + Send + Sync>> {
        if object.name().contains("member.o") && thread::current().name() == Some(self.0) {
            self.1();
        }
        Ok(Cow::Borrowed(object.bytes()))
    }
}

/// One thread has got as far as a library's archives when another, in `dlopen`, asks for that library.
fn an_initialiser_in_dlopen_asks_while_members_are_taken() {
    static LIBRARY: Mutex<Option<Library>> = Mutex::new(None);
    static OPENS: LazyLock<Barrier> = LazyLock::new(|| Barrier::new(2));
    static INSIDE: LazyLock<Barrier> = LazyLock::new(|| Barrier::new(2));
    static SEEN: Mutex<i32> = Mutex::new(0);
    fn has_the_other_open() {
        OPENS.wait();
        INSIDE.wait();
    }
    extern "C" fn in_initialiser() {
        INSIDE.wait();
        let library = LIBRARY.lock().unwrap().clone().unwrap();
        *SEEN.lock().unwrap() = call(&library, "all");
    }
    let initialiser = format!(
        "__attribute__((constructor)) static void init(void) {{ ((void (*)(void)){:#x})(); }}",
        in_initialiser as *const () as usize
    );
    let shared = link_shared("libasking.so", &[&compile("asking.c", &initialiser, &[])], &[]);
    let engine = JitEngine::builder().plugin(AtMember("asks", has_the_other_open)).build().unwrap();
    let library = engine.add_object(compile_bytes("user.c", USER, &[])).unwrap();
    library.add_archive_file(member_of_archive("member.c", MEMBER)).unwrap();
    *LIBRARY.lock().unwrap() = Some(library.clone());
    let (done, wait) = channel();
    let opens = thread::spawn(move || {
        OPENS.wait();
        // SAFETY: its initialiser is above.
        unsafe { libloading::Library::new(&shared) }.unwrap()
    });
    let asks = thread::Builder::new().name("asks".to_owned());
    let asks = asks.spawn(move || done.send(call(&library, "all")).unwrap()).unwrap();
    if wait.recv_timeout(Duration::from_secs(30)).is_err() {
        // The process's exit handlers would wait for the dynamic loader, too.
        eprintln!("they wait for each other");
        std::process::abort();
    }
    asks.join().unwrap();
    drop(opens.join().unwrap());
    assert_eq!(*SEEN.lock().unwrap(), 40);
    freed(&LIBRARY.lock().unwrap().take().unwrap());
}

fn forking() {
    let source = "#include <unistd.h>
        int __cxa_thread_atexit_impl(void (*)(void *), void *, void *); extern char __dso_handle;
        static void end(void *p) { (void)!write(1, \"end\\n\", 4); }
        __attribute__((destructor)) static void fini(void) { (void)!write(1, \"fini\\n\", 5); }
        int use(void) { return __cxa_thread_atexit_impl(end, 0, &__dso_handle); }";
    let engine = JitEngine::new().unwrap();
    let library = engine.add_object(compile_bytes("forking.c", source, &[])).unwrap();
    assert_eq!(call(&library, "use"), 0);
    assert_eq!(library.remove(), Removal::Waiting { holders: 1 });
    // SAFETY: the child only ends, as a program does.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::exit(0);
        }
        let mut status = 0;
        libc::waitpid(child, &raw mut status, 0);
        assert_eq!(status, 0);
        assert_eq!(libc::write(1, c"parent\n".as_ptr().cast(), 7), 7);
        libc::exit(0);
    }
}

/// Each has its own threads, handlers and finalisers.
fn a_child_of_fork_ends_as_its_parent_does() {
    let end = child("forking");
    assert_eq!((end.code, end.stdout.as_str()), (Some(0), "end\nfini\nparent\nend\nfini\n"), "{end:?}");
}

/// What the host's fork handlers call.
static USE: AtomicUsize = AtomicUsize::new(0);

extern "C" fn call_use() {
    // SAFETY: `forking_with_handlers` puts the address of an `int (void)` there, and holds the library.
    let used = unsafe { std::mem::transmute::<usize, Int>(USE.load(Ordering::Relaxed))() };
    assert_eq!(used, 0);
}

fn forking_with_handlers() {
    let source = "int __cxa_thread_atexit_impl(void (*)(void *), void *, void *); extern char __dso_handle;
        int atexit(void (*)(void));
        static void end(void *p) {}
        static void at_exit(void) {}
        int use(void) { return __cxa_thread_atexit_impl(end, 0, &__dso_handle) | atexit(at_exit); }";
    // SAFETY: before any handler of the engine's, so that these run between them; it ends a process that hangs. The
    // child only ends.
    unsafe {
        libc::alarm(30);
        assert_eq!(libc::pthread_atfork(Some(call_use), Some(call_use), Some(call_use)), 0);
        let engine = JitEngine::new().unwrap();
        let library = engine.add_object(compile_bytes("with_handlers.c", source, &[])).unwrap();
        let symbol = int(&library, "use");
        USE.store(*symbol as usize, Ordering::Relaxed);
        let child = libc::fork();
        if child == 0 {
            libc::_exit(call(&library, "use"));
        }
        let mut status = -1;
        libc::waitpid(child, &raw mut status, 0);
        assert_eq!(status, 0);
        assert_eq!(call(&library, "use"), 0);
        libc::_exit(0);
    }
}

/// They run while the engine keeps other threads from what a child could not take.
fn fork_handlers_of_the_host_may_call_linked_code() {
    let end = child("forking_with_handlers");
    assert_eq!(end.code, Some(0), "{end:?}");
}
