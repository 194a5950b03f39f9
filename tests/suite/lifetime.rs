//! Who owns what, for how long: handles, libraries, engines, finalisers, and the end of the process.

use std::sync::Mutex;

use crate::case::{take_trace, trace};
use crate::common::{self, Checked, child, compile, compile_bytes, mappings, resident};
use crate::target::{by_qemu, not_under_qemu};
use slabjit::{Error, JitEngine, Library, LibraryError, Removal, Symbol};

common::tests![
    handle_outlives_library_and_engine,
    data_handle_outlives_library_and_engine,
    linked_library_is_kept_by_its_user,
    chain_of_linked_libraries_is_freed_in_order,
    removal_of_an_unused_library,
    removal_before_the_first_get,
    removal_frees,
    removal_waits_for_holders,
    removal_waits_for_users,
    names_vanish_at_once,
    name_can_be_used_again,
    finalizers_run_exactly_once,
    finalizers_run_on_drop,
    finalizer_may_call_linked_library,
    finalizers_of_a_failed_link_do_not_run,
    exit_runs_handlers_and_finalizers_once,
    exit_runs_handlers_registered_by_calls,
    exit_unmaps_nothing,
    exit_after_removal_runs_nothing,
    quick_exit_runs_its_handlers;
    alone: ten_thousand_cycles, dropped_engine_leaves_nothing;
    parts: exit_part, exit_later_part, exit_unmap_part, exit_removed_part, quick_exit_part,
];

type IntFunction = extern "C" fn() -> i32;

fn int(library: &Library, name: &str) -> Symbol<IntFunction> {
    // SAFETY: the functions of this file's objects are int(void).
    unsafe { library.get(name).unwrap() }
}

/// A library whose objects may call `trace(int)`.
fn traced(engine: &JitEngine, name: &str, source: &str, links: &[&Library]) -> Library {
    // SAFETY: `trace` takes an int.
    let builder = unsafe { engine.library(name).symbol("trace", trace as *const ()) };
    let library = links.iter().fold(builder, |b, l| b.link(l)).build().unwrap();
    library.add_object_file(compile(&format!("{name}.c"), source, &[])).unwrap();
    library
}

const TRACED: &str = "#include <stdlib.h>
    void trace(int);
    static void handler(void) { trace(20); }
    __attribute__((constructor)) static void init(void) { trace(10); atexit(handler); }
    __attribute__((destructor)) static void fini(void) { trace(30); }
    static int state; int value(void) { return ++state; }";

// ---- handles ----

fn handle_outlives_library_and_engine() {
    take_trace();
    let engine = JitEngine::new().unwrap();
    let library = traced(&engine, "outlived", TRACED, &[]);
    let value = int(&library, "value");
    drop(library);
    assert_eq!(value(), 1);
    drop(engine);
    assert_eq!(value(), 2);
    let again = value.clone();
    drop(value);
    assert_eq!(again(), 3);
    assert_eq!(take_trace(), [10]);
    drop(again);
    assert_eq!(take_trace(), [30, 20]);
    common::assert_no_rwx();
}

fn data_handle_outlives_library_and_engine() {
    let engine = JitEngine::new().unwrap();
    let library = engine.add_object_file(compile("data.c", "const int table[3] = {1, 2, 39};", &[])).unwrap();
    // SAFETY: `table` is const int[3].
    let table: Symbol<*const [i32; 3]> = unsafe { library.get("table").unwrap() };
    drop(library);
    drop(engine);
    // SAFETY: the handle keeps it.
    assert_eq!(unsafe { (**table).iter().sum::<i32>() }, 42);
}

// ---- linked libraries ----

fn linked_library_is_kept_by_its_user() {
    let engine = Checked::new();
    let base = engine.add_object_file(compile("kept.c", "static int n; int kept(void) { return ++n; }", &[])).unwrap();
    let user = engine.library("user").link(&base).build().unwrap();
    user.add_object_file(compile("keeper.c", "int kept(void); int value(void) { return kept() + 40; }", &[])).unwrap();
    drop(base);
    let value = int(&user, "value");
    assert_eq!(value(), 41);
    drop(user);
    assert_eq!(value(), 42);
    drop(value);
    engine.finish();
}

fn chain_of_linked_libraries_is_freed_in_order() {
    take_trace();
    let engine = Checked::new();
    let library = |i: usize, links: &[&Library]| {
        let below = if i == 0 {
            "static int f_(void) { return 0; }".into()
        } else {
            format!("int f{0}(void); static int f_(void) {{ return f{0}(); }}", i - 1)
        };
        let source = format!(
            "{below} void trace(int); int f{i}(void) {{ return f_() + 1; }}
             __attribute__((constructor)) static void init(void) {{ trace({i} * 10 + f{i}()); }}
             __attribute__((destructor)) static void fini(void) {{ trace(-({i} * 10 + f{i}())); }}"
        );
        traced(&engine, &format!("chain{i}"), &source, links)
    };
    let zero = library(0, &[]);
    let one = library(1, &[&zero]);
    let two = library(2, &[&one]);
    drop((zero, one));
    let top = int(&two, "f2");
    assert_eq!(top(), 3);
    drop(two);
    assert_eq!(take_trace(), [1, 12, 23]);
    drop(top);
    assert_eq!(take_trace(), [-23, -12, -1]);
    engine.finish();
}

// ---- removal ----

fn removal_of_an_unused_library() {
    let engine = Checked::new();
    let library = engine.library("unused").build().unwrap();
    assert!(matches!(library.remove(), Removal::Freed));
    drop(library);
    engine.finish();
}

fn removal_before_the_first_get() {
    take_trace();
    let engine = Checked::new();
    let library = traced(&engine, "never_asked", TRACED, &[]);
    assert!(matches!(library.remove(), Removal::Freed));
    drop(library);
    assert_eq!(take_trace(), [0; 0]);
    engine.finish();
}

fn removal_frees() {
    let engine = Checked::of(common::per_object().build().unwrap());
    let library = engine.add_object_file(common::good_object()).unwrap();
    let address = int(&library, "text").address() as usize;
    assert_eq!(&common::mapping_at(address).permissions[..3], common::as_shown("r-x"));
    assert!(matches!(library.remove(), Removal::Freed));
    engine.assert_unchanged();
    assert!(matches!(library.remove(), Removal::Freed), "removal is idempotent");
    let executable = mappings()
        .into_iter()
        .find(|m| (m.start..m.end).contains(&address))
        .is_some_and(|m| m.permissions.contains('x'));
    assert!(!executable, "the code is still there");
    drop(library);
    engine.finish();
}

fn removal_waits_for_holders() {
    take_trace();
    let engine = Checked::new();
    let library = traced(&engine, "held", TRACED, &[]);
    let (one, two) = (int(&library, "value"), int(&library, "value"));
    let first = library.remove();
    assert!(matches!(first, Removal::Waiting { holders: 2 }), "{first:?}");
    assert_eq!(take_trace(), [10], "finalisers run when the last holder is gone");
    assert_eq!((one(), two()), (1, 2));
    drop(one);
    let second = library.remove();
    assert!(matches!(second, Removal::Waiting { holders: 1 }), "{second:?}");
    drop(two);
    assert_eq!(take_trace(), [30, 20]);
    engine.assert_unchanged();
    assert!(matches!(library.remove(), Removal::Freed));
    engine.finish();
}

fn removal_waits_for_users() {
    let engine = Checked::new();
    let base = engine.add_object_file(compile("used.c", "int used(void) { return 21; }", &[])).unwrap();
    let user = engine.library("user").link(&base).build().unwrap();
    user.add_object_file(compile("uses.c", "int used(void); int value(void) { return used() * 2; }", &[])).unwrap();
    assert_eq!(int(&user, "value")(), 42);
    assert!(matches!(base.remove(), Removal::Waiting { .. }));
    assert_eq!(int(&user, "value")(), 42);
    assert!(matches!(user.remove(), Removal::Freed));
    assert!(matches!(base.remove(), Removal::Freed));
    engine.finish();
}

fn names_vanish_at_once() {
    let engine = Checked::new();
    let library = engine.add_object_file(common::good_object()).unwrap();
    let other = library.clone();
    let held = int(&library, "text");
    assert_eq!(library.remove(), Removal::Waiting { holders: 1 });
    // SAFETY: nothing is found.
    let error = unsafe { other.get::<IntFunction>("text") }.err().unwrap();
    assert!(matches!(error, Error::Library(LibraryError::Removed { .. })), "{error:?}");
    let error = other.add_object_file(common::good_object()).err().unwrap();
    assert!(matches!(error, Error::Library(LibraryError::Removed { .. })), "{error:?}");
    drop(held);
    drop((library, other));
    engine.finish();
}

fn name_can_be_used_again() {
    let engine = Checked::new();
    for i in 0..20 {
        let bytes = compile_bytes("again.c", &format!("int value(void) {{ return {i}; }}"), &[]);
        let library = engine.library("again").build().unwrap();
        library.add_object(&bytes).unwrap();
        assert_eq!(int(&library, "value")(), i);
        common::freed(&library);
    }
    engine.finish();
}

// ---- finalisers ----

fn finalizers_run_exactly_once() {
    take_trace();
    let engine = Checked::new();
    let library = traced(&engine, "once", TRACED, &[]);
    int(&library, "value")();
    let also = library.clone();
    common::freed(&library);
    common::freed(&also);
    drop((library, also));
    assert_eq!(take_trace(), [10, 30, 20]);
    engine.finish();
}

fn finalizers_run_on_drop() {
    take_trace();
    let engine = Checked::new();
    let library = traced(&engine, "dropped", TRACED, &[]);
    int(&library, "value")();
    let also = library.clone();
    drop(library);
    assert_eq!(take_trace(), [10]);
    drop(also);
    assert_eq!(take_trace(), [30, 20]);
    engine.finish();
}

fn finalizer_may_call_linked_library() {
    take_trace();
    let engine = Checked::new();
    let base = traced(
        &engine,
        "log",
        "void trace(int); void log_it(int v) { trace(v + 1000); } int value(void) { return 1; }",
        &[],
    );
    let source = "void log_it(int); __attribute__((destructor)) static void fini(void) { log_it(7); } int value(void) { return 2; }";
    let user = traced(&engine, "logger", source, &[&base]);
    assert_eq!(int(&user, "value")(), 2);
    drop(base);
    drop(user);
    assert_eq!(take_trace(), [1007]);
    engine.finish();
}

fn finalizers_of_a_failed_link_do_not_run() {
    take_trace();
    let engine = Checked::new();
    let library =
        traced(&engine, "failed", &format!("{TRACED} int absent(void); int bad(void) {{ return absent(); }}"), &[]);
    // SAFETY: the link fails.
    assert!(unsafe { library.get::<IntFunction>("value") }.is_err());
    common::freed(&library);
    drop(library);
    assert_eq!(take_trace(), [0; 0]);
    engine.finish();
}

// ---- the end of the process ----

/// Objects of the parts write what happens to standard output, which their parents read.
const SPEAKING: &str = "#include <stdlib.h>
    #include <unistd.h>
    #define SAY(text) (void)!write(1, NAME text \"\\n\", sizeof(NAME text \"\\n\") - 1)
    static void first(void) { SAY(\" handler 1\"); }
    static void second(void) { SAY(\" handler 2\"); }
    static void quick(void) { SAY(\" quick\"); }
    __attribute__((constructor)) static void init(void) { SAY(\" init\"); atexit(first); atexit(second); at_quick_exit(quick); }
    __attribute__((destructor)) static void fini(void) { SAY(\" fini\"); }
    int value(void) { return 42; }";

fn speaking(engine: &JitEngine, name: &str) -> Library {
    let bytes = compile_bytes(&format!("{name}.c"), SPEAKING, &[&format!("-DNAME=\"{name}\"")]);
    let library = engine.add_object(&bytes).unwrap();
    assert_eq!(int(&library, "value")(), 42);
    library
}

fn exit_part() {
    let engine = JitEngine::new().unwrap();
    let _libraries = (speaking(&engine, "A"), speaking(&engine, "B"));
    std::process::exit(3);
}

/// What a linker-made program would write: handlers in reverse of their registration, then finalisers in reverse of
/// loading.
fn exit_runs_handlers_and_finalizers_once() {
    let end = child("exit_part");
    assert_eq!(end.code, Some(3), "{end:?}");
    let mut lines: Vec<_> = end.stdout.lines().collect();
    assert_eq!(&lines[..2], ["A init", "B init"], "{end:?}");
    lines.drain(..2);
    let place = |line: &str| {
        let places: Vec<_> = lines.iter().enumerate().filter(|(_, l)| **l == line).map(|(i, _)| i).collect();
        assert_eq!(places.len(), 1, "'{line}' once: {end:?}");
        places[0]
    };
    let handlers = ["B handler 2", "B handler 1", "A handler 2", "A handler 1"].map(place);
    assert!(handlers.is_sorted(), "handlers in reverse: {end:?}");
    assert!(place("B fini") < place("A fini"), "finalisers in reverse: {end:?}");
    assert_eq!(lines.len(), 6, "nothing else: {end:?}");
}

static AT_THE_END: Mutex<Option<IntFunction>> = Mutex::new(None);

extern "C" fn call_at_the_end() {
    let value = AT_THE_END.lock().unwrap().unwrap()();
    println!("still {value}");
}

fn exit_unmap_part() {
    // Registered before there is an engine, and so run after everything of the engine's.
    // SAFETY: `call_at_the_end` is a function of this program.
    unsafe { libc::atexit(call_at_the_end) };
    let engine = JitEngine::new().unwrap();
    let library = speaking(&engine, "A");
    *AT_THE_END.lock().unwrap() = Some(*int(&library, "value"));
    std::mem::forget((engine, library));
    std::process::exit(0);
}

fn exit_unmaps_nothing() {
    let end = child("exit_unmap_part");
    assert_eq!(end.code, Some(0), "{end:?}");
    assert_eq!(end.stdout.lines().last(), Some("still 42"), "{end:?}");
    assert!(end.stdout.contains("A handler 1") && end.stdout.contains("A fini"), "{end:?}");
}

const SPEAKING_LATER: &str = "#include <stdlib.h>
    #include <pthread.h>
    #include <unistd.h>
    static void first(void) { (void)!write(1, \"later\\n\", 6); }
    static void prepare(void) { (void)!write(1, \"prepare\\n\", 8); }
    int value(void) { return atexit(first) + pthread_atfork(prepare, 0, 0); }";

fn exit_later_part() {
    let engine = JitEngine::new().unwrap();
    let library = engine.add_object_file(compile("later.c", SPEAKING_LATER, &[])).unwrap();
    assert_eq!(int(&library, "value")(), 0);
    let source = "#include <unistd.h>
                  __attribute__((destructor)) static void fini(void) { (void)!write(1, \"fini\\n\", 5); } int value(void) { return 1; }";
    let finalised = engine.add_object_file(compile("only_fini.c", source, &[])).unwrap();
    assert_eq!(int(&finalised, "value")(), 1);
    // SAFETY: the child ends at once.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(0);
        }
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    std::process::exit(5);
}

/// Handlers of a library that has neither initialisers nor finalisers, and finalisers of one that has nothing else.
fn exit_runs_handlers_registered_by_calls() {
    let end = child("exit_later_part");
    assert_eq!((end.code, end.stdout.as_str()), (Some(5), "prepare\nlater\nfini\n"), "{end:?}");
}

fn exit_removed_part() {
    let engine = JitEngine::new().unwrap();
    let library = speaking(&engine, "A");
    common::freed(&library);
    let _ = std::io::Write::write_all(&mut std::io::stdout(), b"removed\n");
    std::process::exit(0);
}

fn exit_after_removal_runs_nothing() {
    let end = child("exit_removed_part");
    assert_eq!(end.code, Some(0), "{end:?}");
    assert_eq!(end.stdout.lines().last(), Some("removed"), "{end:?}");
    for line in ["A handler 1", "A handler 2", "A fini"] {
        assert_eq!(end.stdout.matches(line).count(), 1, "'{line}' once: {end:?}");
    }
    assert!(!end.stdout.contains("quick"), "{end:?}");
}

fn quick_exit_part() {
    unsafe extern "C" {
        fn quick_exit(code: i32) -> !;
    }
    let engine = JitEngine::new().unwrap();
    let library = speaking(&engine, "A");
    let removed = speaking(&engine, "B");
    common::freed(&removed);
    std::mem::forget((engine, library));
    // SAFETY: ends the process.
    unsafe { quick_exit(4) }
}

fn quick_exit_runs_its_handlers() {
    let end = child("quick_exit_part");
    assert_eq!(end.code, Some(4), "{end:?}");
    assert_eq!(end.stdout.matches("A quick").count(), 1, "{end:?}");
    assert!(!end.stdout.contains("B quick") && !end.stdout.contains("A fini"), "{end:?}");
}

// ---- leaks ----

/// Why resident bytes say nothing there.
const RESIDENT: &str = "what is resident is mostly qemu's own: translated code, tables of pages";

fn ten_thousand_cycles() {
    let bytes = compile_bytes(
        "cycle.c",
        "#include <stdlib.h>
         static int state[10]; static const char *volatile text = \"text\"; int absolute(int x) { return abs(x) + state[1]; }
         __attribute__((constructor)) static void init(void) { state[0] = text[0]; }
         static void handler(void) {} int value(void) { return atexit(handler) + state[0]; }",
        &[],
    );
    let engine = Checked::new();
    let cycle = || {
        let library = engine.add_object(&bytes).unwrap();
        assert_eq!(int(&library, "value")(), 't' as i32);
        common::freed(&library);
    };
    (0..500).for_each(|_| cycle());
    let (memory, files, maps) = (resident(), common::open_files(), mappings().len());
    (0..by_qemu(10_000, 1000)).for_each(|_| cycle());
    if !not_under_qemu(RESIDENT) {
        let grown = resident().saturating_sub(memory);
        println!("10 000 cycles added {grown} bytes");
        assert!(grown < 1 << 20, "10 000 cycles added {grown} bytes");
    }
    assert_eq!(common::open_files(), files);
    // Where something rests in every unit that is packed, what is gone has mappings of its own.
    let more = if common::packed() { 32 } else { 4 };
    assert!(mappings().len() <= maps + more, "{} mappings, before {maps}", mappings().len());
    engine.finish();
}

fn dropped_engine_leaves_nothing() {
    let bytes = std::fs::read(common::good_object()).unwrap();
    let cycle = || {
        let engine = JitEngine::new().unwrap();
        let library = engine.add_object(&bytes).unwrap();
        int(&library, "text");
    };
    (0..20).for_each(|_| cycle());
    let (memory, files, maps) = (resident(), common::open_files(), mappings().len());
    (0..by_qemu(200, 20)).for_each(|_| cycle());
    if !not_under_qemu(RESIDENT) {
        let grown = resident().saturating_sub(memory);
        assert!(grown < 2 << 20, "200 engines added {grown} bytes");
    }
    assert_eq!(common::open_files(), files);
    // Where something rests in every unit that is packed, what is gone has mappings of its own.
    let more = if common::packed() { 32 } else { 4 };
    assert!(mappings().len() <= maps + more, "{} mappings, before {maps}", mappings().len());
}
