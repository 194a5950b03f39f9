//! Thread-local storage and indirect functions: which thread sees what, who holds what, and what is refused.

/// What another copy of the crate in the process has: its counters are its own.
#[path = "../../src/runtime/image_name.rs"]
mod image_name_of_another_copy;

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;

use slabjit::{Error, JitEngine, Library, LibraryError, LinkError, Removal, Symbol};

use crate::common::{
    self, Checked, Int, call, child_with, compile, compile_bytes, compile_with, freed, int, link_shared, open_files,
    resident, tests, tool,
};
use crate::target::{by_arch, by_qemu, not_under_qemu};

tests![
    threads_begin_with_the_initial_value,
    destructors_hold_the_library,
    destructors_of_a_failed_initialiser_keep_what_they_need,
    a_destructor_registered_by_a_finaliser_runs_after_it,
    a_library_uses_variables_of_another_library,
    variables_of_the_process_and_of_shared_libraries,
    isolated_libraries_have_their_own_variables,
    archive_members_bring_their_variables,
    a_later_batch_finds_variables_of_an_earlier_one,
    every_form_of_code_finds_its_variables,
    variables_cannot_be_asked_for,
    kinds_of_names_that_disagree_are_refused,
    signal_handlers_find_variables_on_small_stacks,
    a_failed_initialiser_leaves_fresh_variables,
    large_alignments,
    resolvers_run_outside_every_lock,
    a_resolver_that_throws,
    indirect_functions_that_are_weak_or_discarded;
    alone: the_surplus_is_used_up_and_comes_back, nothing_is_left, no_open_file_is_left_for_storage,
        no_file_may_be_as_large_as_storage, storage_without_proc, loaders_names_are_never_mistaken,
        two_copies_of_the_crate_share_no_variables, a_variable_whose_distance_cannot_be_measured;
    parts: larger_surplus,
];

const DYNAMIC: &[&str] = &["-ftls-model=global-dynamic"];
const STATIC: &[&str] = &["-ftls-model=initial-exec"];
const COUNTER: &str = "static __thread int counter = 5; int next(void) { return ++counter; }";

#[track_caller]
fn library(engine: &JitEngine, objects: &[(&str, &str, &[&str])]) -> Library {
    let library = engine.library("library").build().unwrap();
    for (file, source, flags) in objects {
        library.add_object_named(file, compile_bytes(file, source, flags)).unwrap();
    }
    library
}

#[track_caller]
fn error(library: &Library) -> Error {
    // SAFETY: nothing runs: it is to fail.
    unsafe { library.initialize() }.unwrap_err()
}

// ---- threads ----

fn threads_begin_with_the_initial_value() {
    for flags in [DYNAMIC, STATIC] {
        let engine = Checked::new();
        let (to_old, work) = channel::<Symbol<Int>>();
        let (answer, from_old) = channel();
        let old = thread::spawn(move || {
            for f in work {
                // SAFETY: as in `call`.
                answer.send([0; 2].map(|_| unsafe { f() })).unwrap();
            }
        });
        let library = library(&engine, &[("counter.c", COUNTER, flags)]);
        assert_eq!(call(&library, "next"), 6);
        to_old.send(int(&library, "next")).unwrap();
        assert_eq!(from_old.recv().unwrap(), [6, 7], "a thread that was there before");
        let f = int(&library, "next");
        // SAFETY: as in `call`.
        let young = thread::spawn(move || [0; 2].map(|_| unsafe { f() }));
        assert_eq!(young.join().unwrap(), [6, 7], "a thread that came later");
        assert_eq!(call(&library, "next"), 7);
        drop(to_old);
        old.join().unwrap();
        freed(&library);
        engine.finish();
    }
}

/// What destructors on other threads have told.
static TOLD: Mutex<Vec<(usize, i32)>> = Mutex::new(Vec::new());

extern "C" fn tell(library: usize, value: i32) {
    TOLD.lock().unwrap().push((library, value));
}

fn take_told(library: usize) -> Vec<i32> {
    let mut told = TOLD.lock().unwrap();
    let taken = told.iter().filter(|(l, _)| *l == library).map(|(_, value)| *value).collect();
    told.retain(|(l, _)| *l != library);
    taken
}

fn telling(engine: &JitEngine, path: &std::path::Path) -> Library {
    // SAFETY: `tell` is what the objects take it for; the shared libraries are the compiler's.
    let library = unsafe {
        let builder = engine.library("telling").symbol("tell", tell as *const ());
        builder.shared_library("libstdc++.so.6").build().unwrap()
    };
    library.add_object_file(path).unwrap();
    library
}

fn destructors_hold_the_library() {
    let cpp = "extern \"C\" void tell(unsafe_long, int);
        struct Telling { int n; Telling(int n) : n(n) {} ~Telling() { tell(ID, n); } };
        static thread_local Telling first(1), second(2);
        struct AtEnd { ~AtEnd() { tell(ID, 9); } } at_end;
        extern \"C\" int touch() { return ++first.n + ++second.n; }";
    // glibc's own interface, which Rust's standard library uses.
    let c = "int __cxa_thread_atexit_impl(void (*)(void *), void *, void *); extern char __dso_handle;
        void tell(unsafe_long, int);
        static __thread int first = 1, second = 2;
        static void told(void *p) { tell(ID, *(int *)p); }
        int touch(void) {
            if (first == 1) {
                __cxa_thread_atexit_impl(told, &first, &__dso_handle);
                __cxa_thread_atexit_impl(told, &second, &__dso_handle);
            }
            return ++first + ++second;
        }
        __attribute__((destructor)) static void end(void) { tell(ID, 9); }";
    for (id, name, source, flags) in
        [(1, "telling.cc", cpp, DYNAMIC), (2, "telling_static.cc", cpp, STATIC), (3, "telling.c", c, DYNAMIC)]
    {
        let engine = Checked::new();
        let source = source.replace("ID", &id.to_string()).replace("unsafe_long", "unsigned long");
        let library = telling(&engine, &compile(name, &source, flags));
        let (go, wait) = channel::<()>();
        let (done, touched) = channel();
        let f = int(&library, "touch");
        let thread = thread::spawn(move || {
            // SAFETY: as in `call`.
            done.send(unsafe { f() }).unwrap();
            drop(f);
            wait.recv().unwrap();
        });
        assert_eq!(touched.recv().unwrap(), 5);
        // Two destructors, on a thread that goes on: the code stays.
        while library.remove() != (Removal::Waiting { holders: 2 }) {
            thread::yield_now();
        }
        assert!(take_told(id).is_empty());
        assert!(engine.stats().arena.slabs > 0);
        go.send(()).unwrap();
        thread.join().unwrap();
        assert_eq!(
            take_told(id),
            [3, 2, 9],
            "{name}: from the last to the first, then what the library does at its end"
        );
        assert_eq!(library.remove(), Removal::Freed);
        engine.finish();
    }
}

fn destructors_of_a_failed_initialiser_keep_what_they_need() {
    let source = "extern \"C\" void tell(unsigned long, int);
        struct Telling { int n; Telling(int n) : n(n) {} ~Telling() { tell(5, n); } };
        static thread_local Telling telling(3);
        static int fails = (++telling.n, throw 1, 0);";
    let engine = Checked::new();
    let path = compile("fails_telling.cc", source, DYNAMIC);
    let library = telling(&engine, &path);
    let same = library.clone();
    thread::spawn(move || assert!(matches!(error(&same), Error::Link(LinkError::InitializerFailed { .. }))))
        .join()
        .unwrap();
    assert_eq!(take_told(5), [4], "the thread has ended");
    freed(&library);
    engine.finish();
}

fn a_destructor_registered_by_a_finaliser_runs_after_it() {
    let source = "int __cxa_thread_atexit_impl(void (*)(void *), void *, void *); extern char __dso_handle;
        void tell(unsigned long, int);
        static void told(void *p) { tell(4, (int)(long)p); }
        __attribute__((destructor)) static void end(void) {
            __cxa_thread_atexit_impl(told, (void *)7, &__dso_handle);
            tell(4, 6);
        }";
    let engine = Checked::new();
    let library = telling(&engine, &compile("late.c", source, &[]));
    // SAFETY: as in `call`.
    unsafe { library.initialize().unwrap() };
    assert!(take_told(4).is_empty());
    freed(&library);
    assert_eq!(take_told(4), [6, 7]);
    engine.finish();
}

/// On x86-64, descriptors' functions keep vector registers on the stack; how large the processor's whole state is, is
/// no matter.
fn signal_handlers_find_variables_on_small_stacks() {
    let source = "#define _GNU_SOURCE
        #include <signal.h>
        static __thread volatile int count = 1;
        static void handle(int n) { count++; }
        static _Alignas(64) unsigned char memory[32768];
        enum { SIZE = 8192, BELOW = sizeof memory - SIZE };
        int handled(void) {
            count++; // This thread has its copy.
            for (int i = 0; i < BELOW; i++) memory[i] = 0xa5;
            stack_t small = {.ss_sp = memory + BELOW, .ss_size = SIZE}, old;
            struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK}, before;
            if (sigaltstack(&small, &old) || sigaction(SIGURG, &action, &before)) return -1;
            raise(SIGURG);
            sigaction(SIGURG, &before, 0);
            sigaltstack(&old, 0);
            int beyond = 0;
            for (int i = 0; i < BELOW; i++) beyond += memory[i] != 0xa5;
            return beyond * 10 + count;
        }";
    let x86_64: &[&str] = &["-ftls-model=global-dynamic", "-mtls-dialect=gnu2"];
    let flags = by_arch(x86_64, DYNAMIC);
    let engine = Checked::new();
    let library = library(&engine, &[("small_stack.c", source, flags)]);
    assert_eq!(call(&library, "handled"), 3);
    freed(&library);
    engine.finish();
}

// ---- who has the variable ----

fn a_library_uses_variables_of_another_library() {
    let engine = Checked::new();
    let user = "extern __thread int shared; int use(void) { return shared += 10; }";
    for (defined, used) in [(DYNAMIC, DYNAMIC), (STATIC, STATIC), (STATIC, DYNAMIC)] {
        let provider = "__thread int shared = 1; int bump(void) { return ++shared; }";
        let first = library(&engine, &[("provider.c", provider, defined)]);
        assert_eq!(call(&first, "bump"), 2);
        let second = engine.library("second").link(&first).build().unwrap();
        second.add_object(compile_bytes("user.c", user, used)).unwrap();
        assert_eq!(call(&second, "use"), 12);
        assert_eq!(call(&first, "bump"), 13);
        assert_eq!(first.remove(), Removal::Waiting { holders: 1 });
        assert_eq!(call(&second, "use"), 23);
        freed(&second);
        assert_eq!(first.remove(), Removal::Freed);
    }
    // What is not at a fixed distance cannot be reached as if it were.
    let first = library(&engine, &[("provider.c", "__thread int shared = 1;", DYNAMIC)]);
    let second = engine.library("second").link(&first).build().unwrap();
    second.add_object_named("user.o", compile_bytes("user.c", user, STATIC)).unwrap();
    let refused = error(&second);
    let text = refused.to_string();
    assert!(matches!(refused, Error::Link(LinkError::ThreadLocal { .. })), "{refused:?}");
    assert!(["user.o", "'shared'", "fixed distance", "global-dynamic"].iter().all(|t| text.contains(t)), "{text}");
    freed(&second);
    freed(&first);
    engine.finish();
}

fn variables_of_the_process_and_of_shared_libraries() {
    // With descriptors, glibc puts the variable into static storage while there is room.
    let dialect = by_arch("-mtls-dialect=gnu", "-mtls-dialect=trad");
    let provider = compile(
        "tls_shared.c",
        "__thread int in_shared = 30; int bump_shared(void) { return ++in_shared; }",
        &[dialect],
    );
    let path = link_shared("libtls_shared.so", &[&provider], &[]);
    let source = "extern __thread int in_shared; extern __thread int process_errno __asm__(\"errno\");
        int close(int); int bump_shared(void);
        int both(void) { process_errno = 0; close(-1); in_shared += 100; return bump_shared() + 1000 * process_errno; }
        int *where(void) { return &in_shared; }";
    let engine = Checked::new();
    // A library that was opened later is not in static storage, so only the dynamic models can reach it.
    for flags in [DYNAMIC, by_arch(&["-ftls-model=global-dynamic", "-mtls-dialect=gnu2"], DYNAMIC)] {
        // SAFETY: the shared library is ours.
        let library = unsafe { engine.library("shared").shared_library(&path).build().unwrap() };
        library.add_object(compile_bytes("process.c", source, flags)).unwrap();
        // EBADF
        assert_eq!(call(&library, "both"), 9131);
        let f = int(&library, "both");
        // SAFETY: as in `call`.
        assert_eq!(thread::spawn(move || unsafe { f() }).join().unwrap(), 9131, "another thread has its own");
        freed(&library);
    }
    // SAFETY: as above.
    let library = unsafe { engine.library("shared").shared_library(&path).build().unwrap() };
    library.add_object_named("fixed.o", compile_bytes("process.c", source, STATIC)).unwrap();
    let refused = error(&library);
    assert!(
        matches!(&refused, Error::Link(LinkError::ThreadLocal { .. })) && refused.to_string().contains("'in_shared'"),
        "{refused}"
    );
    freed(&library);
    engine.finish();
}

/// Two threads have to agree on where a variable of the process is.
fn a_variable_whose_distance_cannot_be_measured() {
    if not_under_qemu("it does not enforce RLIMIT_AS") {
        return;
    }
    let engine = Checked::new();
    engine.assert_usable();
    let source = "extern __thread int process_errno __asm__(\"errno\"); int f(void) { return process_errno; }";
    let library = library(&engine, &[("fixed.c", source, STATIC)]);
    // Less than the stack of a thread.
    let all = common::limit(libc::RLIMIT_AS, common::virtual_size() + (1 << 20));
    let cause = thread::Builder::new().spawn(|| ()).unwrap_err();
    let refused = error(&library);
    common::limit(libc::RLIMIT_AS, all);
    assert!(
        matches!(&refused, Error::Link(LinkError::ThreadLocalStorage { object, .. }) if object == "fixed.c"),
        "{refused:?}"
    );
    assert!(refused.to_string().contains(&cause.to_string()), "{refused} does not tell of {cause}");
    freed(&library);
    engine.finish();
}

fn isolated_libraries_have_their_own_variables() {
    let engine = Checked::new();
    let library = engine.library("isolated").isolated().build().unwrap();
    library.add_object(compile_bytes("counter.c", COUNTER, DYNAMIC)).unwrap();
    assert_eq!(call(&library, "next"), 6);
    freed(&library);
    engine.finish();
}

fn archive_members_bring_their_variables() {
    let member = "__thread int in_member = 3; extern __thread int process_errno __asm__(\"errno\");
        int from_member(void) { process_errno = 5; return ++in_member + process_errno; }";
    for flags in [DYNAMIC, STATIC] {
        let engine = Checked::new();
        let member = compile("tls_member.c", member, flags);
        let archive = member.with_extension("a");
        tool("ar", &["rcs".as_ref(), archive.as_os_str(), member.as_os_str()]);
        let user = "extern __thread int in_member; int from_member(void); static __thread int own = 100;
            int all(void) { in_member += 10; return from_member() + ++own; }";
        let library = library(&engine, &[("user.c", user, flags)]);
        library.add_archive_file(&archive).unwrap();
        assert_eq!(call(&library, "all"), 14 + 5 + 101);
        freed(&library);
        engine.finish();
    }
}

fn a_later_batch_finds_variables_of_an_earlier_one() {
    let engine = Checked::new();
    let library = library(
        &engine,
        &[(
            "first.c",
            "__thread int shared = 1; __thread int hidden __attribute__((visibility(\"hidden\"))) = 2; int \
             first(void) { return shared; }",
            DYNAMIC,
        )],
    );
    assert_eq!(call(&library, "first"), 1);
    let later =
        "extern __thread int shared; static __thread int own = 10; int later(void) { return ++shared + ++own; }";
    library.add_object(compile_bytes("later.c", later, DYNAMIC)).unwrap();
    assert_eq!(call(&library, "later"), 13);
    assert_eq!(call(&library, "first"), 2);
    // One call for variables of two modules would find one of them in the wrong place.
    let together = "extern __thread int hidden __attribute__((visibility(\"hidden\"))); static __thread int own = 10;
        int together(void) { return ++hidden + ++own; }";
    let x86_64: &[&str] = &["-ftls-model=local-dynamic", "-mtls-dialect=gnu"];
    let flags = by_arch(x86_64, &["-ftls-model=local-dynamic", "-mllvm", "-aarch64-elf-ldtls-generation"]);
    let together = std::fs::read(compile_with(by_arch("gcc", "clang-22"), "together.c", together, flags)).unwrap();
    library.add_object_named("together.o", &together).unwrap();
    let refused = error(&library);
    assert!(
        matches!(&refused, Error::Link(LinkError::ThreadLocal { .. })) && refused.to_string().contains("'hidden'"),
        "{refused}"
    );
    assert_eq!(call(&library, "first"), 2, "what was linked before still works");
    freed(&library);
    let hidden = "__thread int hidden __attribute__((visibility(\"hidden\"))) = 20;";
    let library = self::library(&engine, &[("hidden.c", hidden, DYNAMIC)]);
    library.add_object_named("together.o", &together).unwrap();
    assert_eq!(call(&library, "together"), 21 + 11, "in one batch");
    freed(&library);
    engine.finish();
}

/// What gcc makes for a model, with a kind of relocation that tells it.
type Form = (&'static [&'static str], &'static str);

const X86_64_FORMS: &[Form] = &[
    (&["-ftls-model=global-dynamic"], "R_X86_64_TLSGD"),
    (&["-ftls-model=global-dynamic", "-fno-plt"], "R_X86_64_TLSGD"),
    (&["-ftls-model=global-dynamic", "-mcmodel=large"], "R_X86_64_TLSGD"),
    (&["-ftls-model=global-dynamic", "-mtls-dialect=gnu2"], "R_X86_64_GOTPC32_TLSDESC"),
    (&["-ftls-model=local-dynamic"], "R_X86_64_TLSLD"),
    (&["-ftls-model=local-dynamic", "-mtls-dialect=gnu2"], "_TLS_MODULE_BASE_"),
    (&["-ftls-model=initial-exec"], "R_X86_64_GOTTPOFF"),
    (&["-ftls-model=local-exec", "-fPIE"], "R_X86_64_TPOFF32"),
];

const AARCH64_FORMS: &[Form] = &[
    (&["-ftls-model=global-dynamic"], "R_AARCH64_TLSDESC_ADR_PAGE21"),
    (&["-ftls-model=global-dynamic", "-mtls-dialect=trad"], "R_AARCH64_TLSGD_ADR_PAGE21"),
    (&["-ftls-model=initial-exec"], "R_AARCH64_TLSIE_ADR_GOTTPREL_PAGE21"),
    (&["-ftls-model=initial-exec", "-mcmodel=tiny"], "R_AARCH64_TLSIE_LD_GOTTPREL_PREL19"),
    (&["-ftls-model=local-exec", "-fPIE", "-mtls-size=12"], "R_AARCH64_TLSLE_ADD_TPREL_LO12 "),
    (&["-ftls-model=local-exec", "-fPIE", "-mtls-size=24"], "R_AARCH64_TLSLE_ADD_TPREL_HI12"),
    (&["-ftls-model=local-exec", "-fPIE", "-mtls-size=32"], "R_AARCH64_TLSLE_MOVW_TPREL_G1"),
];

fn every_form_of_code_finds_its_variables() {
    let source = "__thread int a = 3; static __thread int b[3] = {1, 2, 3};
        int f(void) { a += 1; b[2] += a; return a * 100 + b[2]; }";
    for (flags, kind) in by_arch(X86_64_FORMS, AARCH64_FORMS) {
        let engine = Checked::for_a_case();
        let object = compile("forms.c", source, flags);
        let relocations = tool("readelf", &["-rW".as_ref(), object.as_os_str()]);
        assert!(relocations.contains(kind), "{flags:?} is no test of {kind}: {relocations}");
        let library = engine.add_object_file(&object).unwrap();
        assert_eq!((call(&library, "f"), call(&library, "f")), (407, 512), "{flags:?}");
        let f = int(&library, "f");
        // SAFETY: as in `call`.
        assert_eq!(thread::spawn(move || unsafe { f() }).join().unwrap(), 407, "{flags:?}");
        freed(&library);
        engine.finish();
    }
}

// ---- refusals ----

fn variables_cannot_be_asked_for() {
    let engine = Checked::new();
    let library = library(&engine, &[("variable.c", "__thread int variable = 1;", DYNAMIC)]);
    // SAFETY: it is only asked for.
    let refused = unsafe { library.get::<*const i32>("variable") }.map(drop).unwrap_err();
    assert!(
        matches!(&refused, Error::Library(LibraryError::ThreadLocalSymbol { symbol, .. }) if symbol == "variable"),
        "{refused:?}"
    );
    freed(&library);
    engine.finish();
}

fn kinds_of_names_that_disagree_are_refused() {
    let engine = Checked::new();
    let as_thread_local = "extern __thread int name; int f(void) { return name; }";
    let as_plain = "extern int name; int f(void) { return name; }";
    for (user, definition) in [(as_thread_local, "int name = 1;"), (as_plain, "__thread int name = 1;")] {
        let library = library(&engine, &[("user.c", user, DYNAMIC), ("definition.c", definition, DYNAMIC)]);
        let refused = error(&library);
        assert!(
            matches!(&refused, Error::Link(LinkError::ThreadLocal { object, what }) if object == "user.c" && what.contains("'name'")),
            "{refused:?}"
        );
        freed(&library);
    }
    let library = library(&engine, &[("user.c", as_thread_local, DYNAMIC)]);
    assert!(matches!(error(&library), Error::Link(LinkError::UndefinedSymbols { .. })));
    freed(&library);
    // One thread's variable would be everybody's.
    let plain_errno = "extern int process_errno __asm__(\"errno\"); int f(void) { return process_errno; }";
    let library = self::library(&engine, &[("errno.c", plain_errno, &[])]);
    let refused = error(&library);
    assert!(
        matches!(&refused, Error::Link(LinkError::ThreadLocal { object, what }) if object == "errno.c" && what.contains("'errno'")),
        "{refused:?}"
    );
    freed(&library);
    // The same in a member of an archive.
    let member = compile("errno_member.c", plain_errno, &[]);
    let archive = member.with_extension("a");
    tool("ar", &["rcs".as_ref(), archive.as_os_str(), member.as_os_str()]);
    let library = self::library(&engine, &[("user.c", "int f(void); int g(void) { return f(); }", &[])]);
    library.add_archive_file(&archive).unwrap();
    let refused = error(&library);
    assert!(
        matches!(&refused, Error::Link(LinkError::ThreadLocal { object, what }) if object.contains("errno_member.o") && what.contains("'errno'")),
        "{refused:?}"
    );
    freed(&library);
    engine.finish();
}

// ---- what goes, and when ----

fn a_failed_initialiser_leaves_fresh_variables() {
    let source = "static __thread int counter = 5; extern \"C\" int next() { return ++counter; } int attempts();
        static int fails = (next(), attempts() == 1 ? throw 1 : 0);";
    static ATTEMPTS: Mutex<i32> = Mutex::new(0);
    extern "C" fn attempts() -> i32 {
        let mut attempts = ATTEMPTS.lock().unwrap();
        *attempts += 1;
        *attempts
    }
    let engine = Checked::new();
    // SAFETY: the function is `int ()`; the shared library is the compiler's.
    let library = unsafe {
        let builder = engine.library("fails").symbol("_Z8attemptsv", attempts as *const ());
        builder.shared_library("libstdc++.so.6").build().unwrap()
    };
    library.add_object_file(compile("fails.cc", source, DYNAMIC)).unwrap();
    assert!(matches!(error(&library), Error::Link(LinkError::InitializerFailed { .. })));
    assert_eq!(engine.stats().arena.slabs, 0);
    assert_eq!(call(&library, "next"), 7, "the initialiser of the second attempt made it 6");
    freed(&library);
    engine.finish();
}

fn large_alignments() {
    let engine = Checked::new();
    for alignment in [64, 4096, 65536, 2 << 20] {
        let source = format!(
            "static __thread char small = 7, wide[3] __attribute__((aligned({alignment}))) = \"hi\";
             int f(void) {{ return (int)((unsigned long)wide % {alignment}) + wide[1] + small; }}"
        );
        let library = library(&engine, &[("wide.c", &source, DYNAMIC)]);
        let f = int(&library, "f");
        // SAFETY: as in `call`.
        assert_eq!(thread::spawn(move || unsafe { f() }).join().unwrap(), 'i' as i32 + 7, "{alignment}");
        assert_eq!(call(&library, "f"), 'i' as i32 + 7, "{alignment}");
        freed(&library);
    }
    engine.finish();
}

/// Files and modules that are open.
fn open_things() -> (usize, usize) {
    unsafe extern "C" fn count(_: *mut libc::dl_phdr_info, _: usize, n: *mut libc::c_void) -> i32 {
        // SAFETY: the pointer to a number that is passed below.
        unsafe { *n.cast::<usize>() += 1 };
        0
    }
    let mut modules = 0_usize;
    // SAFETY: the callback gets the pointer to the number.
    unsafe { libc::dl_iterate_phdr(Some(count), (&raw mut modules).cast()) };
    (open_files(), modules)
}

fn nothing_is_left() {
    let engine = Checked::new();
    let packed = common::something_packed(&engine);
    let before = open_things();
    let mut memory = None;
    for flags in [DYNAMIC, STATIC, DYNAMIC, STATIC] {
        for _ in 0..by_qemu(250, 10) {
            let library = library(&engine, &[("counter.c", COUNTER, flags)]);
            assert_eq!(call(&library, "next"), 6);
            assert_eq!(open_things(), (before.0, before.1 + 1));
            freed(&library);
            assert_eq!(open_things(), before);
        }
        memory.get_or_insert_with(resident);
    }
    if !not_under_qemu("memory of the process is qemu's, too") {
        let grown = resident().saturating_sub(memory.unwrap_or(0));
        // What was packed keeps its memory while it rests.
        let rests = if common::packed() { 750 << 10 } else { 0 };
        assert!(grown < rests + (256 << 10), "750 cycles added {grown} bytes");
    }
    // A hundred at once, in one library and each in its own.
    let sources: Vec<_> = (0..100)
        .map(|i| (format!("c{i}.c"), format!("__thread int v{i} = {i}; int next{i}(void) {{ return ++v{i}; }}")))
        .collect();
    let objects: Vec<(&str, &str, &[&str])> = sources.iter().map(|(n, s)| (n.as_str(), s.as_str(), DYNAMIC)).collect();
    let one = library(&engine, &objects);
    let each: Vec<_> = objects.iter().map(|object| library(&engine, &[*object])).collect();
    for (i, own) in each.iter().enumerate() {
        let name = format!("next{i}");
        assert_eq!((call(&one, &name), call(own, &name)), (i as i32 + 1, i as i32 + 1));
    }
    assert_eq!(open_things(), (before.0, before.1 + 101));
    // In any order.
    each.iter().rev().step_by(2).chain(each.iter().step_by(2)).for_each(|own| {
        own.remove();
    });
    assert_eq!(call(&one, "next99"), 101);
    freed(&one);
    drop(each);
    assert_eq!(open_things(), before);
    // Failures: a name that is missing, and one that fits nowhere.
    let source = "static __thread int x; int missing(void); int f(void) { return missing() + ++x; }";
    let failing = library(&engine, &[("failing.c", source, DYNAMIC)]);
    assert!(matches!(error(&failing), Error::Link(LinkError::UndefinedSymbols { .. })));
    assert_eq!(open_things(), before);
    freed(&failing);
    drop(packed);
    engine.finish();
}

/// What the system does not give is no fault of how the object was compiled.
#[track_caller]
fn assert_refused(refused: &Error, remedy: &str) {
    assert!(
        matches!(refused, Error::Link(LinkError::ThreadLocalStorage { object, .. }) if object == "counter.c"),
        "{refused:?}"
    );
    let text = refused.to_string();
    assert!(text.contains(remedy) && !text.contains("compile"), "{text}");
}

fn no_open_file_is_left_for_storage() {
    let engine = Checked::new();
    for flags in [DYNAMIC, STATIC] {
        let library = library(&engine, &[("counter.c", COUNTER, flags)]);
        let before = open_things();
        // For none, and for the image, but not for the loader.
        let all = common::limit(libc::RLIMIT_NOFILE, 3);
        let none = error(&library);
        // SAFETY: a plain call; the next descriptor is free.
        let next = unsafe { libc::dup(0) };
        assert_eq!(next, -1);
        common::limit(libc::RLIMIT_NOFILE, all);
        // SAFETY: as above; the descriptor is ours to close.
        let next = unsafe {
            let next = libc::dup(0);
            assert_eq!(libc::close(next), 0);
            next as u64
        };
        common::limit(libc::RLIMIT_NOFILE, next + 1);
        let one = error(&library);
        common::limit(libc::RLIMIT_NOFILE, all);
        assert_refused(&none, "ulimit -n");
        assert!(none.to_string().contains("memfd_create"), "{none}");
        assert_refused(&one, "ulimit -n");
        assert_eq!((open_things(), engine.stats().arena.slabs), (before, 0));
        assert_eq!(call(&library, "next"), 6, "when there are files again");
        freed(&library);
    }
    engine.finish();
}

/// The signal for who makes a file too large would end the process.
fn no_file_may_be_as_large_as_storage() {
    if not_under_qemu("it does not enforce RLIMIT_FSIZE") {
        return;
    }
    let engine = Checked::new();
    for flags in [DYNAMIC, STATIC] {
        let library = library(&engine, &[("counter.c", COUNTER, flags)]);
        let before = open_things();
        for bytes in [0, 100] {
            let all = common::limit(libc::RLIMIT_FSIZE, bytes);
            let refused = error(&library);
            common::limit(libc::RLIMIT_FSIZE, all);
            assert_refused(&refused, "ulimit -f");
        }
        assert_eq!((open_things(), engine.stats().arena.slabs), (before, 0));
        assert_eq!(call(&library, "next"), 6, "when files may be larger again");
        freed(&library);
    }
    engine.finish();
}

/// The loader finds storage there.
fn storage_without_proc() {
    if not_under_qemu("a mount is the machine's") {
        return;
    }
    let engine = Checked::new();
    let libraries = [DYNAMIC, STATIC].map(|flags| library(&engine, &[("counter.c", COUNTER, flags)]));
    let proc = std::path::Path::new("/proc");
    if let Err(error) = common::mount_alone().and_then(|()| common::mount(proc, 0, c"size=4k")) {
        println!("not run: this process may not mount anything ({error})");
        return;
    }
    let refused = libraries.each_ref().map(error);
    // SAFETY: a string that ends with NUL.
    assert_eq!(unsafe { libc::umount(c"/proc".as_ptr()) }, 0, "{}", std::io::Error::last_os_error());
    refused.iter().for_each(|refused| assert_refused(refused, "mount /proc"));
    for library in &libraries {
        assert_eq!(call(library, "next"), 6, "when it is mounted again");
        freed(library);
    }
    engine.finish();
}

/// The loader goes by paths, and the numbers of files come again.
fn loaders_names_are_never_mistaken() {
    let engine = Checked::new();
    let libraries: Vec<_> = (0..50)
        .map(|i| {
            let source = format!("static __thread int v[{}] = {{{i}}}; int first(void) {{ return v[0]; }}", i + 1);
            let library = library(&engine, &[("same.c", &source, DYNAMIC)]);
            assert_eq!(call(&library, "first"), i);
            library
        })
        .collect();
    for (i, library) in libraries.iter().enumerate() {
        assert_eq!(call(library, "first"), i as i32);
    }
    libraries.iter().for_each(freed);
    engine.finish();
}

/// The other copy's images are opened as the crate does (`Module::open`).
fn two_copies_of_the_crate_share_no_variables() {
    use image_name_of_another_copy::unique_path;
    use rustix::fs::{MemfdFlags, memfd_create};
    let theirs = compile("theirs.c", "__thread int theirs[100] = {77}; int first(void) { return theirs[0]; }", DYNAMIC);
    let theirs = std::fs::read(link_shared("libtheirs.so", &[&theirs], &[])).unwrap();
    let open = |_| {
        let mut file = std::fs::File::from(memfd_create("theirs", MemfdFlags::CLOEXEC).unwrap());
        std::io::Write::write_all(&mut file, &theirs).unwrap();
        let file = std::os::fd::OwnedFd::from(file);
        let path = unique_path(&file);
        // SAFETY: ours; it has no initialisers.
        unsafe { libloading::Library::new(path.to_str().unwrap()) }.unwrap()
    };
    let engine = Checked::new();
    // Theirs are there when ours come, and the other way round.
    let opened: Vec<_> = (0..4).map(open).collect();
    let ours: Vec<_> = (0..8).map(|_| library(&engine, &[("counter.c", COUNTER, DYNAMIC)])).collect();
    ours.iter().for_each(|library| assert_eq!(call(library, "next"), 6));
    let later: Vec<_> = (4..8).map(open).collect();
    for theirs in opened.iter().chain(&later) {
        // SAFETY: it is `int (void)`.
        assert_eq!(unsafe { theirs.get::<Int>("first").unwrap()() }, 77);
    }
    ours.iter().for_each(freed);
    engine.finish();
}

fn static_bytes(engine: &JitEngine, bytes: usize) -> Result<Library, (Library, Error)> {
    let source = format!("static __thread char c[{bytes}]; int f(void) {{ return ++c[{}]; }}", bytes - 1);
    let library = library(engine, &[("static.c", &source, STATIC)]);
    // SAFETY: nothing runs.
    match unsafe { library.initialize() } {
        Ok(()) => Ok(library),
        Err(error) => Err((library, error)),
    }
}

fn the_surplus_is_used_up_and_comes_back() {
    let engine = Checked::new();
    let packed = common::something_packed(&engine);
    let before = open_things();
    let mut most = None;
    for round in 0..4 {
        // FACTS: 1664 bytes fit, with glibc's default of 512 and what it has for its own use.
        let mut held = Vec::new();
        let (library, error) = loop {
            match static_bytes(&engine, 256) {
                Ok(library) => held.push(library),
                Err(failed) => break failed,
            }
        };
        assert!((2..=64).contains(&held.len()), "{}", held.len());
        assert_eq!(*most.get_or_insert(held.len()), held.len(), "round {round}");
        let text = error.to_string();
        assert!(
            matches!(&error, Error::Link(LinkError::StaticThreadLocal { object, bytes: 256, .. }) if object == "static.c"),
            "{error:?}"
        );
        assert!(text.contains("glibc.rtld.optional_static_tls") && text.contains("global-dynamic"), "{text}");
        for library in &held {
            assert_eq!(call(library, "f"), 1);
        }
        // The dynamic models need no surplus.
        let other = self::library(&engine, &[("counter.c", COUNTER, DYNAMIC)]);
        assert_eq!(call(&other, "next"), 6);
        freed(&other);
        freed(&library);
        // In any order, though glibc takes back the last block only.
        if round % 2 == 0 {
            held.reverse();
        }
        held.iter().step_by(2).chain(held.iter().skip(1).step_by(2)).for_each(freed);
        assert_eq!(open_things(), before, "round {round}");
    }
    assert!(static_bytes(&engine, 100_000).is_err());
    let end = child_with("larger_surplus", &[("GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=200000")]);
    assert_eq!(end.code, Some(0), "{end:?}");
    drop(packed);
    engine.finish();
}

fn larger_surplus() {
    let engine = Checked::new();
    let library = static_bytes(&engine, 100_000).map_err(|(_, error)| error).unwrap();
    assert_eq!(call(&library, "f"), 1);
    freed(&library);
    engine.finish();
}

// ---- indirect functions ----

fn resolvers_run_outside_every_lock() {
    let engine = Checked::new();
    static LOADED: Mutex<Option<(Library, Library)>> = Mutex::new(None);
    extern "C" fn ask_host() -> i32 {
        let (own, other) = LOADED.lock().unwrap().clone().unwrap();
        let there = thread::spawn(move || call(&other, "plain")).join().unwrap();
        // Its own library is being initialised by this thread: what is linked is found.
        there + i32::from(own.symbols().contains(&"picked".to_owned()))
    }
    let other = library(&engine, &[("plain.c", "int plain(void) { return 40; }", &[])]);
    let source = "int ask_host(void); static int asked; static int answer(void) { return asked + 1; }
        static int (*resolve(void))(void) { asked = ask_host(); return answer; }
        int picked(void) __attribute__((ifunc(\"resolve\")));
        static int early; __attribute__((constructor)) static void init(void) { early = picked(); }
        int seen(void) { return early * 100 + picked(); }";
    // SAFETY: the function is `int (void)`.
    let own = unsafe { engine.library("own").symbol("ask_host", ask_host as *const ()).build().unwrap() };
    own.add_object(compile_bytes("asks.c", source, &[])).unwrap();
    *LOADED.lock().unwrap() = Some((own.clone(), other.clone()));
    assert_eq!(call(&own, "seen"), 4242);
    *LOADED.lock().unwrap() = None;
    // The address that is handed out is the stub's, which is what other code has.
    let pointer = engine.library("pointer").link(&own).build().unwrap();
    pointer.add_object(compile_bytes("at.c", "int picked(void); void *at(void) { return picked; }", &[])).unwrap();
    // SAFETY: `at` is `void *(void)`.
    let at = unsafe { pointer.get::<unsafe extern "C" fn() -> *const ()>("at").unwrap()() };
    assert_eq!(at, int(&own, "picked").address());
    freed(&pointer);
    freed(&own);
    freed(&other);
    engine.finish();
}

fn a_resolver_that_throws() {
    let engine = Checked::new();
    let source = "extern \"C\" { static void *resolve() { throw 1; } int picked() __attribute__((ifunc(\"resolve\"))); int f() { return picked(); } }";
    // SAFETY: the shared library is the compiler's.
    let library = unsafe { engine.library("throws").shared_library("libstdc++.so.6").build().unwrap() };
    library.add_object_named("throws.o", compile_bytes("throws.cc", source, &[])).unwrap();
    let failed = error(&library);
    assert!(
        matches!(&failed, Error::Link(LinkError::InitializerFailed { object, .. }) if object == "throws.o"),
        "{failed:?}"
    );
    assert_eq!(engine.stats().arena.slabs, 0);
    freed(&library);
    engine.finish();
}

fn indirect_functions_that_are_weak_or_discarded() {
    let engine = Checked::new();
    let indirect = |n: i32, binding: &str| {
        format!(
            ".text\n.globl use{n}\nuse{n}: {}\n
             .type picked, {}gnu_indirect_function\n.{binding} picked\npicked: {}\n
             answer{n}: {}\n ret\n",
            by_arch("jmp picked@PLT", "b picked"),
            by_arch("@", "%"),
            if cfg!(target_arch = "x86_64") {
                format!("lea answer{n}(%rip), %rax\n ret")
            } else {
                format!("adr x0, answer{n}\n ret")
            },
            if cfg!(target_arch = "x86_64") { format!("mov ${n}, %eax") } else { format!("mov w0, #{n}") },
        )
    };
    let object = |name: &str, source: &str| std::fs::read(compile_with("clang-22", name, source, &[])).unwrap();
    for (first, second, counts) in [("weak", "globl", 2), ("globl", "weak", 1), ("weak", "weak", 1)] {
        let library = library(&engine, &[]);
        library.add_object(object("one.s", &indirect(1, first))).unwrap();
        library.add_object(object("two.s", &indirect(2, second))).unwrap();
        assert_eq!((call(&library, "use1"), call(&library, "use2")), (counts, counts), "{first} and {second}");
        assert_eq!(call(&library, "picked"), counts);
        freed(&library);
    }
    engine.finish();
}
