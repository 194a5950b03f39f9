//! The living half, with code that `ld` has linked: from symbols to removal, in both layouts, with no LLVM in it.
#![allow(unsafe_code, reason = "calls linked code")]

mod ld_linker;

use std::ffi::{c_char, c_int};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use ld_linker::LdLinker;

use crate::elf::{Preparation, Target, testing};
use crate::live::context::Context;
use crate::live::images::Images;
use crate::memory::{ArenaConfig, PackedConfig};
use crate::threads::Threads;
use crate::{
    Error, Library, LibraryBuilder, LibraryError, Limits, LinkError, OutOfRange, Removal, SectionConflicts, Symbol,
};

/// An engine of the living half, and its linker.
struct Engine {
    context: Arc<Context>,
    linker: Arc<LdLinker>,
}

const ARM: bool = cfg!(target_arch = "aarch64");

impl Engine {
    fn new(packed: bool) -> Self {
        let machine = if ARM { crate::elf::EM_AARCH64 } else { crate::elf::EM_X86_64 };
        let target = Target { machine, llvm: 22 };
        let preparation = Preparation::new(target, SectionConflicts::default(), Limits::default(), Vec::new());
        let arena = ArenaConfig { packed: packed.then(PackedConfig::default), ..ArenaConfig::default() };
        let linker = Arc::new(LdLinker::default());
        let loader = Arc::new(crate::image::ImageLoader);
        let images = Images { loader, verify: false, ignore_cpu_needs: false, keep_objects: false };
        let context = Context::new(
            &arena,
            preparation,
            OutOfRange::default(),
            Threads::default(),
            Some(Arc::clone(&linker) as _),
            images,
        );
        Self { context: context.unwrap(), linker }
    }

    fn library(&self, name: &str) -> LibraryBuilder {
        LibraryBuilder::new(Arc::clone(&self.context), name)
    }

    fn add(&self, library: &Library, name: &str, object: &[u8]) {
        self.linker.keep(name, object);
        library.add_object_named(name, object).unwrap();
    }

    /// Returns a library that has these objects of C.
    fn c(&self, name: &str, sources: &[&str]) -> Library {
        let library = self.library(name).build().unwrap();
        for (i, source) in sources.iter().enumerate() {
            self.add(&library, &format!("{name}{i}.o"), &c(source));
        }
        library
    }
}

fn c(source: &str) -> Vec<u8> {
    let compiler = if ARM { "aarch64-linux-gnu-gcc" } else { "gcc" };
    let dialect = if ARM { "-mtls-dialect=trad" } else { "-mtls-dialect=gnu" };
    testing::build(compiler, &["-c", "-fPIC", "-O1", dialect], "c", source)
}

fn cxx(source: &str) -> Vec<u8> {
    let compiler = if ARM { "aarch64-linux-gnu-g++" } else { "g++" };
    testing::build(compiler, &["-c", "-fPIC", "-O1"], "cc", source)
}

type Number = unsafe extern "C" fn() -> c_int;

fn symbol(library: &Library, name: &str) -> Symbol<Number> {
    // SAFETY: functions of the sources here, which take nothing and return an `int`.
    unsafe { library.get(name) }.unwrap()
}

fn number(library: &Library, name: &str) -> c_int {
    // SAFETY: as above.
    unsafe { symbol(library, name)() }
}

fn in_both_layouts(test: impl Fn(&Engine)) {
    for packed in [false, true] {
        test(&Engine::new(packed));
    }
}

#[test]
fn calls_constants_and_data() {
    in_both_layouts(|engine| {
        let library = engine.c(
            "sums",
            &["static const int table[] = {3, 5, 7}; int count = 1; static int zero[1000];
               int pick(int i) { return table[i]; }
               int sum(void) { count += pick(1) + zero[7]; return count; }"],
        );
        assert_eq!((number(&library, "sum"), number(&library, "sum")), (6, 11));
        // SAFETY: that `int`.
        let count: Symbol<*const c_int> = unsafe { library.get("count") }.unwrap();
        // SAFETY: as above; nobody writes it now.
        assert_eq!(unsafe { **count }, 11);
        let slabs = library.slab_of("sum").unwrap();
        assert!(slabs.iter().all(|slab| slab.in_arena), "{slabs:?}");
    });
}

#[test]
fn objects_of_a_batch_and_of_other_libraries_refer_to_each_other() {
    in_both_layouts(|engine| {
        let base = engine.c("base", &["int seven(void) { return 7; } int level = 2;"]);
        let library = engine.library("user").link(&base).build().unwrap();
        engine.add(
            &library,
            "a.o",
            &c("int other(void); int seven(void); int all(void) { return other() * seven(); }"),
        );
        engine.add(&library, "b.o", &c("extern int level; int other(void) { return level + 1; }"));
        assert_eq!(number(&library, "all"), 21);
        // The references keep it.
        assert_eq!(base.remove(), Removal::Waiting { holders: 1 });
        assert_eq!(number(&library, "all"), 21);
        assert_eq!(library.remove(), Removal::Freed);
        assert_eq!(base.remove(), Removal::Freed);
    });
}

#[test]
fn undefined_names_are_told_and_added() {
    in_both_layouts(|engine| {
        let library = engine.c("lacks", &["int missing(void); int ask(void) { return missing(); }"]);
        // SAFETY: nothing runs.
        let error = unsafe { library.get::<Number>("ask") }.unwrap_err();
        assert!(
            matches!(&error, Error::Link(LinkError::UndefinedSymbols { symbols, .. }) if symbols[0].name == "missing"),
            "{error}"
        );
        engine.add(&library, "late.o", &c("int missing(void) { return 9; }"));
        assert_eq!(number(&library, "ask"), 9);
    });
}

#[test]
fn initialisers_run_once_and_in_order_and_finalisers_at_the_end() {
    extern "C" fn note(value: c_int) {
        NOTED.lock().unwrap().push(value);
    }
    static NOTED: std::sync::Mutex<Vec<c_int>> = std::sync::Mutex::new(Vec::new());
    in_both_layouts(|engine| {
        // SAFETY: the address is that of `note`.
        let library = unsafe { engine.library("order").symbol("note", note as *const ()).build() }.unwrap();
        let source = "void note(int);
            __attribute__((constructor(200))) static void second(void) { note(2); }
            __attribute__((constructor(101))) static void first(void) { note(1); }
            __attribute__((constructor)) static void third(void) { note(3); }
            __attribute__((destructor)) static void last(void) { note(5); }
            int atexit(void (*)(void));
            static void handler(void) { note(4); }
            int get(void) { return atexit(handler); }";
        engine.add(&library, "order.o", &c(source));
        let get = symbol(&library, "get");
        // SAFETY: `int get(void)`.
        assert_eq!(unsafe { get() }, 0);
        assert_eq!(*NOTED.lock().unwrap(), [1, 2, 3]);
        assert_eq!(library.remove(), Removal::Waiting { holders: 1 });
        drop(get);
        assert_eq!(library.remove(), Removal::Freed);
        // As `dlclose` has it: `__cxa_finalize` is the first entry of a shared library's `.fini_array`, and is called
        // last.
        assert_eq!(std::mem::take(&mut *NOTED.lock().unwrap()), [1, 2, 3, 5, 4]);
    });
}

#[test]
fn indirect_functions_are_resolved() {
    in_both_layouts(|engine| {
        let library = engine.c(
            "indirect",
            &["static int chosen(void) { return 77; }
               static void *resolve(void) { return chosen; }
               __attribute__((ifunc(\"resolve\"), visibility(\"hidden\"))) int choose(void);
               int ask(void) { return choose() + 1; }"],
        );
        assert_eq!(number(&library, "ask"), 78);
    });
}

#[test]
fn exceptions_pass_through_code_and_leave_initialisers_as_errors() {
    in_both_layouts(|engine| {
        // SAFETY: libstdc++ may be opened.
        let library = unsafe { engine.library("throws").shared_library("libstdc++.so.6").build() }.unwrap();
        let source = "#include <stdexcept>
            static int deep(int n) { if (n == 0) throw std::runtime_error(\"deep\"); return deep(n - 1) + 1; }
            extern \"C\" int caught() { try { return deep(5); } catch (const std::runtime_error &e) { return e.what()[0]; } }";
        engine.add(&library, "throws.o", &cxx(source));
        assert_eq!(number(&library, "caught"), c_int::from(b'd'));
        let bad = "#include <stdexcept>
            static int fails() { throw std::runtime_error(\"no room for tables\"); }
            static int value = fails();
            extern \"C\" int get() { return value; }";
        engine.add(&library, "bad.o", &cxx(bad));
        // SAFETY: functions of these sources.
        let error = unsafe { library.get::<Number>("get") }.unwrap_err();
        assert!(
            matches!(&error, Error::Link(LinkError::InitializerFailed { object, message }) if object == "bad.o" && message == "no room for tables"),
            "{error}"
        );
        assert_eq!(number(&library, "caught"), c_int::from(b'd'));
    });
}

#[test]
fn each_thread_has_its_variables() {
    in_both_layouts(|engine| {
        let library = engine.c(
            "threads",
            &["__thread int counter = 40; __thread int zero; static int here; __thread int *pointer = &here;
               int count(void) { zero += 1; return ++counter + zero; }
               int is_here(void) { return pointer == &here; }"],
        );
        assert_eq!((number(&library, "count"), number(&library, "count")), (42, 44));
        let other = library.clone();
        assert_eq!(thread::spawn(move || number(&other, "count")).join().unwrap(), 42);
        assert_eq!(number(&library, "count"), 46);
        assert_eq!(number(&library, "is_here"), 1);
    });
}

#[test]
fn a_child_of_fork_calls_and_removes() {
    in_both_layouts(|engine| {
        let library = engine.c("forked", &["static int n = 5; int next(void) { return ++n; }"]);
        let next = symbol(&library, "next");
        // SAFETY: `int next(void)`.
        assert_eq!(unsafe { next() }, 6);
        // SAFETY: the child calls what is loaded, removes it and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            let right = unsafe { next() } == 7;
            drop(next);
            let freed = library.remove() == Removal::Freed;
            // SAFETY: ends the child.
            unsafe { libc::_exit(if right && freed { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: the child of above.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        // SAFETY: as above. What is packed is shared with a child: data, too.
        assert!([7, 8].contains(&unsafe { next() }));
    });
}

#[test]
fn what_is_removed_is_known_and_traps() {
    in_both_layouts(|engine| {
        let library = engine.c("gone", &["int get(void) { return 1; }"]);
        let get = symbol(&library, "get");
        let address = get.address() as usize;
        let told = engine.context.arena.occupant(address).unwrap();
        assert_eq!((&*told.library.to_string(), told.removed), ("gone", None));
        let waiter = library.clone();
        let waits = thread::spawn(move || waiter.remove_and_wait(Duration::from_secs(20)));
        thread::sleep(Duration::from_millis(20));
        drop(get);
        waits.join().unwrap().unwrap();
        assert!(engine.context.arena.occupant(address).unwrap().removed.is_some());
        // SAFETY: the child calls what is not there any more, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above; the default handlers end it silently.
            unsafe {
                for signal in [libc::SIGSEGV, libc::SIGILL, libc::SIGTRAP] {
                    libc::signal(signal, libc::SIG_DFL);
                }
                let get: Number = std::mem::transmute(address);
                get();
                libc::_exit(0)
            };
        }
        let mut status = 0;
        // SAFETY: the child of above.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert!(libc::WIFSIGNALED(status), "{status:#x}");
    });
}

#[test]
fn what_a_linker_refuses_leaves_the_rest() {
    in_both_layouts(|engine| {
        let library = engine.c("kept", &["int first(void) { return 1; }"]);
        assert_eq!(number(&library, "first"), 1);
        engine.add(&library, "second.o", &c("int first(void); int second(void) { return first() + 1; }"));
        engine.linker.fail.store(true, Ordering::Relaxed);
        // SAFETY: functions of these sources.
        let error = unsafe { library.get::<Number>("second") }.unwrap_err();
        assert!(matches!(&error, Error::Link(LinkError::Failed { object, .. }) if object == "second.o"), "{error}");
        assert_eq!(number(&library, "first"), 1);
        assert_eq!(number(&library, "second"), 2);
    });
}

#[test]
fn threads_ask_for_the_same_library_at_once() {
    in_both_layouts(|engine| {
        let source = "static int runs; __attribute__((constructor)) static void run(void) { runs += 1; } int get(void) { return runs; }";
        let library = engine.c("shared", &[source]);
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let library = library.clone();
                thread::spawn(move || number(&library, "get"))
            })
            .collect();
        assert_eq!(threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>(), [1; 4]);
    });
}

#[test]
fn names_are_found_with_their_kinds() {
    let engine = Engine::new(false);
    let library = engine.c("kinds", &["const char text[] = \"seen\"; int function(void) { return 0; }"]);
    assert_eq!(library.symbols(), ["function", "text"]);
    // SAFETY: that array.
    let text: Symbol<*const c_char> = unsafe { library.get("text") }.unwrap();
    // SAFETY: as above; it ends in a NUL.
    assert_eq!(unsafe { std::ffi::CStr::from_ptr(*text) }.to_str(), Ok("seen"));
    // SAFETY: refused.
    let wrong = unsafe { library.get::<Number>("text") };
    assert!(matches!(wrong, Err(Error::Library(LibraryError::WrongSymbolKind { .. }))));
    // SAFETY: refused.
    let nowhere = unsafe { library.get::<Number>("nothing") };
    assert!(matches!(nowhere, Err(Error::Library(LibraryError::SymbolNotFound { .. }))));
}

#[test]
#[cfg(not(feature = "llvm"))]
fn without_a_linker_all_but_linking_works() {
    let engine = crate::JitEngine::new().unwrap();
    let object = c("int missing(void); int get(void) { return missing(); }");
    let plan = engine.check_object(&object).unwrap();
    assert!(plan.loads(), "{plan}");
    let library = engine.add_object(&object).unwrap();
    assert_eq!(library.symbols(), ["get"]);
    assert_eq!(library.undefined_symbols().unwrap()[0].name, "missing");
    library.add_object(c("int missing(void) { return 1; }")).unwrap();
    // SAFETY: nothing is linked.
    let error = unsafe { library.get::<Number>("get") }.unwrap_err();
    assert!(matches!(error, Error::Link(LinkError::NoLinker)), "{error}");
    assert!(error.to_string().contains("llvm19-1"), "{error}");
    assert_eq!(library.remove(), Removal::Freed);
    assert_eq!(engine.stats().libraries, 0);
}
