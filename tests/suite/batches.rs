//! `add_objects`: objects that come together, all or none, and are linked together.

use slabjit::{Error, JitEngine, Library, LibraryError, LinkError};

use crate::common::{self, Checked, call, compile_bytes, freed, mappings, packed};
use crate::target::not_under_qemu;

common::tests![
    objects_that_come_together_find_each_other,
    one_that_is_refused_keeps_the_others_out,
    what_was_there_before_is_as_it_was,
    many_names_come_and_go_again,
    groups_come_and_go_again,
    nothing_is_a_batch,
    a_library_that_is_removed_takes_nothing,
    one_that_cannot_be_linked_keeps_all_from_running;
    alone: neighbours_share_mappings,
];

fn library(engine: &JitEngine) -> Library {
    engine.library("batch").build().unwrap()
}

fn object(name: &str, source: &str) -> Vec<u8> {
    compile_bytes(&format!("batch_{name}.c"), source, &[])
}

fn missing(library: &Library, name: &str) -> bool {
    // SAFETY: nothing is called.
    let got = unsafe { library.get::<extern "C" fn() -> i32>(name) };
    matches!(got, Err(Error::Library(LibraryError::SymbolNotFound { .. })))
}

fn objects_that_come_together_find_each_other() {
    let engine = Checked::new();
    let source = |i: i32, next: i32| {
        format!(
            "int g{next}(int); __attribute__((visibility(\"hidden\"))) int hidden{i} = {i};
             int g{i}(int x) {{ return x ? g{next}(x - 1) + hidden{i} : 1000; }} int f{i}(void) {{ return g{i}(6); }}"
        )
    };
    let objects: Vec<_> = (0..3).map(|i| object(&format!("ring{i}"), &source(i, (i + 1) % 3))).collect();
    let library = engine.add_objects(&objects).unwrap();
    // Twice around the ring.
    assert_eq!([0, 1, 2].map(|i| call(&library, &format!("f{i}"))), [1006; 3]);
    // Later ones find earlier ones, and the other way round not before they are there.
    let slices: [&[u8]; 2] = [
        &object("later", "int f0(void); int later(void) { return f0() + 1; }"),
        &object("last", "int later(void); int last(void) { return later() + 1; }"),
    ];
    library.add_objects(slices).unwrap();
    assert_eq!(call(&library, "last"), 1008);
    freed(&library);
    engine.finish();
}

fn one_that_is_refused_keeps_the_others_out() {
    let engine = Checked::new();
    let (one, two) = (object("one", "int one(void) { return 1; }"), object("two", "int two(void) { return 2; }"));
    let again = object("again", "int one(void) { return 100; }");
    let library = library(&engine);
    let refused = library.add_objects([&one, &two, &again]).unwrap_err();
    let Error::Link(LinkError::DuplicateDefinition { symbol, first, second, .. }) = &refused else {
        panic!("{refused}")
    };
    assert_eq!(symbol, "one");
    assert_ne!(first, second, "{refused}");
    assert!(missing(&library, "one") && missing(&library, "two"));
    for torn in [&two[..two.len() / 2], b"no object", &[]] {
        let refused = library.add_objects([&one[..], torn]).unwrap_err();
        assert!(!matches!(refused, Error::Link(LinkError::DuplicateDefinition { .. })), "{refused}");
        assert!(engine.add_objects([torn, &one[..]]).is_err());
    }
    library.add_objects([&two, &again]).unwrap();
    assert_eq!((call(&library, "one"), call(&library, "two")), (100, 2));
    freed(&library);
    engine.finish();
}

/// A weak definition that a refused batch would have replaced, and a hidden one.
fn what_was_there_before_is_as_it_was() {
    let engine = Checked::new();
    let library = library(&engine);
    let weak = "__attribute__((weak)) int answer(void) { return 1; } __attribute__((weak)) int seen(void) { return 5; }
                int ask(void) { return answer(); }";
    library.add_object(object("weak", weak)).unwrap();
    let strong = object("strong", "int answer(void) { return 2; }");
    let hides = object(
        "hides",
        "__attribute__((weak, visibility(\"hidden\"))) int seen(void) { return 6; } int own(void) { return seen(); }",
    );
    let clash = object("clash", "int ask(void) { return 3; }");
    assert!(matches!(
        library.add_objects([&strong, &hides, &clash]),
        Err(Error::Link(LinkError::DuplicateDefinition { .. }))
    ));
    assert_eq!((call(&library, "ask"), call(&library, "seen")), (1, 5));
    freed(&library);
    engine.finish();
}

/// More names than are searched one by one.
fn many_names_come_and_go_again() {
    let engine = Checked::new();
    let named = |prefix: &str, count: usize, value: i32| {
        let text: String = (0..count).map(|i| format!("int {prefix}{i}(void) {{ return {value} + {i}; }}\n")).collect();
        object(&format!("{prefix}_{count}_{value}"), &text)
    };
    for before in [0, 3, 8, 9, 40] {
        let library = library(&engine);
        library.add_object(named("before", before, 100)).unwrap();
        let clash = object("clash", "int fresh0(void) { return -1; }");
        for _ in 0..3 {
            let batch = [named("fresh", 30, 200), named("more", 5, 300), clash.clone()];
            assert!(matches!(library.add_objects(batch), Err(Error::Link(LinkError::DuplicateDefinition { .. }))));
            assert!(missing(&library, "fresh29") && missing(&library, "more0"));
        }
        // At first as few as need no table, or no larger one.
        let mut there = vec![("before", before, 100)];
        for (prefix, count, value) in [("more", 5, 400), ("fresh", 3, 500), ("other", 40, 600)] {
            library.add_objects([named(prefix, count, value)]).unwrap();
            there.push((prefix, count, value));
            for (prefix, count, value) in &there {
                (0..*count as i32).for_each(|i| assert_eq!(call(&library, &format!("{prefix}{i}")), value + i));
            }
        }
        assert!(missing(&library, "fresh3"));
        freed(&library);
    }
    engine.finish();
}

/// A COMDAT group of an object that was not taken in the end is linked from the next one that has it.
fn groups_come_and_go_again() {
    let engine = Checked::new();
    let library = library(&engine);
    let inline = |name: &str, value: i32| {
        let source = format!(
            "template<int> struct Shared {{ __attribute__((noinline)) static int value() {{ return {value}; }} }};
             extern \"C\" int {name}(void) {{ return Shared<0>::value(); }}"
        );
        compile_bytes(&format!("batch_{name}.cpp"), &source, &[])
    };
    let clash = object("clash", "int first(void) { return -1; }");
    assert!(library.add_objects([&inline("first", 1), &clash]).is_err());
    library.add_objects([&inline("second", 2), &inline("third", 3)]).unwrap();
    assert_eq!((call(&library, "second"), call(&library, "third")), (2, 2), "the group of the first that is there");
    freed(&library);
    engine.finish();
}

fn nothing_is_a_batch() {
    let engine = Checked::new();
    let none: [&[u8]; 0] = [];
    let library = engine.add_objects(none).unwrap();
    // SAFETY: there is nothing to initialise.
    unsafe { library.initialize().unwrap() };
    library.add_objects(none).unwrap();
    assert!(missing(&library, "anything"));
    freed(&library);
    engine.finish();
}

fn a_library_that_is_removed_takes_nothing() {
    let engine = Checked::new();
    let library = library(&engine);
    freed(&library);
    let object = object("late", "int late(void) { return 1; }");
    assert!(matches!(library.add_objects([&object, &object]), Err(Error::Library(LibraryError::Removed { .. }))));
    engine.finish();
}

/// No memory is executable before all of them are linked, and no initialiser runs.
fn one_that_cannot_be_linked_keeps_all_from_running() {
    static RUNS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    extern "C" fn runs() {
        RUNS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    let engine = Checked::new();
    let starts = |name: &str| {
        let source = format!(
            "void batch_runs(void); __attribute__((constructor)) static void start(void) {{ batch_runs(); }}
             int {name}(void) {{ return 7; }}"
        );
        object(name, &source)
    };
    let (good, other) = (starts("good"), starts("other"));
    let wants = object("wants", "int lacking(void); int wants(void) { return lacking(); }");
    // SAFETY: the function is what the objects call.
    let library = unsafe { engine.library("starts").symbol("batch_runs", runs as *const ()).build().unwrap() };
    library.add_objects([&good, &wants, &other]).unwrap();
    // SAFETY: the initialisers may be run.
    let refused = unsafe { library.initialize() }.unwrap_err();
    assert!(matches!(refused, Error::Link(LinkError::UndefinedSymbols { .. })), "{refused}");
    assert_eq!(RUNS.load(std::sync::atomic::Ordering::Relaxed), 0);
    library.add_object(object("lacking", "int lacking(void) { return 8; }")).unwrap();
    assert_eq!((call(&library, "wants"), call(&library, "good")), (8, 7));
    assert_eq!(RUNS.load(std::sync::atomic::Ordering::Relaxed), 2);
    freed(&library);
    engine.finish();
}

/// Where each object has a slab of its own, those of a batch lie back to back: one mapping less for each.
fn neighbours_share_mappings() {
    const COUNT: usize = 40;
    if packed() || not_under_qemu("neighbours of one protection are one mapping there in any case") {
        return;
    }
    let engine = Checked::new();
    let objects: Vec<_> =
        (0..COUNT).map(|i| object(&format!("back{i}"), &format!("int back{i}(void) {{ return {i}; }}"))).collect();
    let of_arena = || mappings().iter().filter(|m| engine.arena().contains(&m.start)).count();
    let alone: Vec<Library> = objects.iter().map(|object| engine.add_object(object).unwrap()).collect();
    assert!(alone.iter().enumerate().all(|(i, library)| call(library, &format!("back{i}")) == i as i32));
    let apart = of_arena();
    drop(alone);
    let library = engine.add_objects(&objects).unwrap();
    assert!((0..COUNT).all(|i| call(&library, &format!("back{i}")) == i as i32));
    let together = of_arena();
    assert!(apart >= 2 * COUNT && together < COUNT + COUNT / 4, "{apart} apart, {together} together");
    freed(&library);
    engine.finish();
}
