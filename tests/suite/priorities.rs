//! Priorities of initialisers over several objects; what a linker makes of them is in `tests/cases/init_*`.

use std::sync::atomic::{AtomicBool, Ordering};

use slabjit::{Error, Library, LinkError};

use crate::case::{take_trace, trace};
use crate::common::{self, Checked, compile, freed};

common::tests![what_was_initialised_is_undone, later_batches_are_finalised_first, an_initialiser_may_link_more,];

static THROWS: AtomicBool = AtomicBool::new(false);

extern "C" fn throws() -> i32 {
    THROWS.load(Ordering::Relaxed).into()
}

fn library(engine: &Checked) -> Library {
    // SAFETY: libstdc++ and libgcc are the compilers'; the symbols are as their users declare them.
    unsafe {
        let builder = engine.library("priorities").shared_library("libstdc++.so.6").shared_library("libgcc_s.so.1");
        let builder = builder.symbol("throws", throws as *const ()).symbol("trace", trace as *const ());
        builder.build().unwrap()
    }
}

/// Adds an object whose initialisers and finalisers, with these priorities, leave these traces; 0 is none.
fn add(library: &Library, name: &str, initialisers: &[(u32, i32)], finalisers: &[(u32, i32)], more: &str) {
    let mut text = "extern \"C\" void trace(int); extern \"C\" int throws(void);\n".to_owned();
    for (kind, list) in [("constructor", initialisers), ("destructor", finalisers)] {
        for (i, (priority, value)) in list.iter().enumerate() {
            let priority = if *priority == 0 { String::new() } else { format!("({priority})") };
            text += &format!("__attribute__(({kind}{priority})) static void {kind}{i}(void) {{ trace({value}); }}\n");
        }
    }
    library.add_object_file(compile(&format!("{name}.cc"), &format!("{text}{more}"), &[])).unwrap();
}

/// An object is initialised when all of its initialisers have run; one without any, when those before it are.
fn what_was_initialised_is_undone() {
    let engine = Checked::new();
    take_trace();
    let library = library(&engine);
    let throwing = "__attribute__((constructor(200))) static void middle(void) { if (throws()) throw 1; trace(5); }";
    add(&library, "a", &[(101, 1), (0, 6)], &[(0, -1)], "");
    add(&library, "c", &[], &[(0, -3)], "");
    add(&library, "d", &[(101, 2), (150, 4)], &[(0, -4)], "");
    add(&library, "b", &[(101, 3)], &[(0, -2), (300, -20)], throwing);
    add(&library, "e", &[(0, 7)], &[(400, -5)], "");
    for _ in 0..2 {
        THROWS.store(true, Ordering::Relaxed);
        // SAFETY: the initialiser throws, which is caught.
        let error = unsafe { library.initialize() }.unwrap_err();
        assert!(
            matches!(&error, Error::Link(LinkError::InitializerFailed { object, .. }) if object.ends_with("b.o")),
            "{error:?}"
        );
        assert_eq!(take_trace(), [1, 2, 3, 4, -4]);
    }
    THROWS.store(false, Ordering::Relaxed);
    // SAFETY: the initialisers leave traces.
    unsafe { library.initialize().unwrap() };
    assert_eq!(take_trace(), [1, 2, 3, 4, 5, 6, 7]);
    freed(&library);
    assert_eq!(take_trace(), [-2, -4, -3, -1, -5, -20]);
    engine.finish();
}

fn later_batches_are_finalised_first() {
    let engine = Checked::new();
    take_trace();
    let library = library(&engine);
    // SAFETY: here and below, the initialisers leave traces.
    let initialise = || unsafe { library.initialize().unwrap() };
    add(&library, "one", &[(300, 2), (102, 1)], &[(300, -2), (102, -1)], "");
    initialise();
    add(&library, "two", &[(101, 3)], &[(101, -3)], "");
    add(&library, "three", &[(0, 4)], &[(0, -4)], "");
    initialise();
    assert_eq!(take_trace(), [1, 2, 3, 4]);
    freed(&library);
    assert_eq!(take_trace(), [-4, -3, -2, -1]);
    engine.finish();
}

/// Objects that an initialiser adds, and asks for, are initialised in between, and finalised before all of the outer
/// batch.
fn an_initialiser_may_link_more() {
    static INNER: std::sync::Mutex<Option<(Library, std::path::PathBuf)>> = std::sync::Mutex::new(None);
    extern "C" fn more() {
        let Some((library, object)) = INNER.lock().unwrap().take() else { return };
        library.add_object_file(&object).unwrap();
        // SAFETY: the initialiser leaves a trace.
        unsafe { library.initialize().unwrap() };
    }
    let engine = Checked::new();
    take_trace();
    // SAFETY: `more` and `trace` are as their users declare them.
    let library = unsafe {
        let builder = engine.library("outer").symbol("more", more as *const ());
        builder.symbol("trace", trace as *const ()).build().unwrap()
    };
    let inner = "extern \"C\" void trace(int); __attribute__((constructor)) static void i(void) { trace(2); }
        __attribute__((destructor)) static void f(void) { trace(-2); }";
    *INNER.lock().unwrap() = Some((library.clone(), compile("inner.cc", inner, &[])));
    let asks = "extern \"C\" void more(void); __attribute__((constructor(200))) static void ask(void) { more(); }";
    add(&library, "plain", &[(0, 3)], &[(0, -3)], "");
    add(&library, "asks", &[(101, 1), (300, 9)], &[(101, -1)], asks);
    // SAFETY: as above.
    unsafe { library.initialize().unwrap() };
    assert_eq!(take_trace(), [1, 2, 9, 3]);
    freed(&library);
    assert_eq!(take_trace(), [-2, -3, -1]);
    engine.finish();
}
