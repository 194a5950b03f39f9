//! Dylibs keep nothing of what was removed, whatever it was called: neither we nor ORC. What is added takes as long as
//! what was added before.

use std::time::Duration;

use slabjit::orc::{Dylib, Tracker};
use slabjit::{Error, LibraryError, LinkError, SlabLayout};

use crate::common::{Checked, child_with, compile_bytes, tests, thread_time};
use crate::dylib_calls::{call, cause, find};
use crate::orc::renamed;
use crate::state;
use crate::target::{not_under_qemu, under_valgrind};

tests![what_was_removed_leaves_nothing; alone: adding_is_linear; parts: many_names];

fn what_was_removed_leaves_nothing() {
    if not_under_qemu("it executes what was where other code is now") {
        return;
    }
    let end = child_with("many_names", &[state::ENVIRONMENT]);
    println!("{}", end.stdout);
    assert_eq!(end.code, Some(0), "{end:?}");
}

/// How many names each round has.
const NAMES: usize = 6000;

/// A kind of thing that is added, used and removed under a name. The number divides how many names it gets.
type Kind = (&'static str, usize, fn(&Dylib, &Templates, &str));

const KINDS: &[Kind] = &[
    ("functions", 1, |main, templates, name| {
        let tracker = main.tracker();
        tracker.add_object(renamed(&templates.function, &[("value_000000", name.to_owned())])).unwrap();
        assert_eq!(call(main, name, 1), 3);
        tracker.remove().unwrap();
    }),
    ("initialisers", 1, |main, templates, name| {
        let tracker = main.tracker();
        tracker.add_object(renamed(&templates.initialised, &[("value_000000", name.to_owned())])).unwrap();
        assert_eq!(call(main, name, 1), 8);
        tracker.remove().unwrap();
    }),
    ("objects that nobody needed", 1, |main, templates, name| {
        main.add_object(renamed(&templates.initialised, &[("value_000000", name.to_owned())])).unwrap();
        main.clear().unwrap();
    }),
    ("failures", 1, |main, templates, name| {
        let tracker = main.tracker();
        tracker.add_object(renamed(&templates.failing, &[("value_000000", name.to_owned())])).unwrap();
        let error = find(main, name).unwrap_err();
        assert!(matches!(cause(&error), Error::Link(LinkError::UndefinedSymbols { .. })), "{error:?}");
        tracker.remove().unwrap();
    }),
    ("objects that are refused", 1, |main, templates, _| {
        let taken = || renamed(&templates.function, &[("value_000000", "value_taken_".to_owned())]);
        let first = main.tracker();
        first.add_object(taken()).unwrap();
        main.tracker().add_object(taken()).unwrap_err();
        first.remove().unwrap();
    }),
    ("names that are nowhere", 1, |main, _, name| {
        let error = find(main, name).unwrap_err();
        assert!(matches!(error, Error::Library(LibraryError::SymbolNotFound { .. })), "{error:?}");
    }),
    #[cfg(feature = "inkwell")]
    ("functions that are compiled when they are called", 60, |main, _, name| {
        let tracker = main.tracker();
        let module = format!("define i32 @{name}(i32 %n) {{\n %m = add i32 %n, 2\n ret i32 %m\n}}");
        tracker.add_bitcode_lazily(name, module, slabjit::ir::OptLevel::None).unwrap();
        assert_eq!(call(main, name, 1), 3);
        tracker.remove().unwrap();
    }),
];

struct Templates {
    function: Vec<u8>,
    initialised: Vec<u8>,
    failing: Vec<u8>,
}

fn many_names() {
    state::prepare();
    let initialised = "static int ready; int value_000000(int n) { return n + ready; }
        __attribute__((constructor)) static void init(void) { ready = 7; }";
    let templates = Templates {
        function: compile_bytes("grows.c", "int value_000000(int n) { return n + 2; }", &[]),
        initialised: compile_bytes("grows_init.c", initialised, &[]),
        failing: compile_bytes("fails.c", "int nowhere(int); int value_000000(int n) { return nowhere(n); }", &[]),
    };
    let builder = slabjit::JitEngine::builder().slab_layout(SlabLayout::Packed).quarantine(16 << 10);
    let engine = Checked::of(builder.build().unwrap());
    let main = engine.orc().build().unwrap().dylib("main");
    let (mut next, mut grown) = (0, Vec::new());
    for (what, of, run) in KINDS {
        let mut least = || {
            // What is kept until it is much comes and goes.
            let bytes = (0..3).map(|_| {
                for _ in 0..NAMES / of {
                    next += 1;
                    run(&main, &templates, &format!("value_{next:06}"));
                }
                state::bytes_in_use()
            });
            bytes.min().unwrap()
        };
        let before = least();
        let more = least().saturating_sub(before);
        println!("{what}: {more} bytes more after {} names", 3 * NAMES / of);
        // A name takes 40 bytes at least, in each of three times as many, and a module some thousands. LLVM's table of
        // names grows by 64 KiB at a time, and names are swept once they are 4096.
        if more >= 30 * NAMES {
            grown.push(*what);
        }
    }
    assert_eq!(grown, [""; 0]);
    drop(main);
    engine.finish();
}

/// Adds so many of something.
type Adding = (&'static str, usize, fn(&Tracker, &[u8], usize));

const ADDING: &[Adding] = &[
    ("objects of one tracker", 4000, |tracker, template, n| {
        for i in 0..n {
            tracker.add_object(renamed(template, &[("value_000000", format!("value_{i:06}"))])).unwrap();
        }
    }),
    #[cfg(feature = "inkwell")]
    ("functions that are compiled when they are called", 4000, |tracker, _, n| {
        let function = |i: usize| format!("define void @value_{i}() {{\n ret void\n}}\n");
        let module: String = (0..n).map(function).collect();
        tracker.add_bitcode_lazily("module", module, slabjit::ir::OptLevel::None).unwrap();
    }),
];

fn adding_is_linear() {
    if not_under_qemu("it measures time") || under_valgrind() {
        return;
    }
    let template = compile_bytes("grows.c", "int value_000000(int n) { return n + 2; }", &[]);
    let engine = Checked::new();
    let main = engine.orc().build().unwrap().dylib("main");
    for (what, n, add) in ADDING {
        let time = |n: usize| {
            let tracker = main.tracker();
            let before = thread_time();
            add(&tracker, &template, n);
            let time = thread_time() - before;
            tracker.remove().unwrap();
            time
        };
        let (mut few, mut many) = (Duration::MAX, Duration::MAX);
        // Other processes disturb.
        let linear = (0..5).any(|_| {
            (few, many) = (few.min(time(*n)), many.min(time(4 * n)));
            many < few * 8
        });
        println!("{what}: {n} in {few:?}, {} in {many:?}", 4 * n);
        assert!(linear, "{what}: {n} in {few:?}, {} in {many:?}", 4 * n);
    }
    drop(main);
    engine.finish();
}
