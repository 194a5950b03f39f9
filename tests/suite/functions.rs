//! Names of functions: what the object's symbol table has, and what `dladdr` says of the same object as a shared
//! library.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use slabjit::{JitEngine, Library, SlabLayout};

use crate::common::{self, Checked, compile_bytes, freed, link_shared, tests, tool};
use crate::target::by_arch;

tests![
    functions_are_those_of_the_symbol_table,
    an_address_has_the_name_that_dladdr_says,
    functions_keep_their_names_in_a_batch,
    functions_of_dylibs_have_names,
    names_are_right_while_others_come_and_go,
];

const SOURCE: &str = "
    __attribute__((noinline)) static int inner(int n) { return n * 3; }
    int outer(int n) { return inner(n) + inner(n + 1); }
    __attribute__((alias(\"outer\"))) int another_name(int n);
    __attribute__((visibility(\"hidden\"))) int hidden_one(int n) { return n - 1; }
    __attribute__((weak, section(\".text.apart\"))) int weak_one(int n) { return n - 2; }
    int data = 5;
";

fn layouts() -> [JitEngine; 2] {
    [SlabLayout::PerObject, SlabLayout::Packed].map(|layout| JitEngine::builder().slab_layout(layout).build().unwrap())
}

/// Names and sizes of what an object has in executable sections, by readelf.
fn of_symbol_table(object: &std::path::Path) -> BTreeSet<(String, usize)> {
    let sections = tool("readelf", &["-SW".as_ref(), object.as_os_str()]);
    let executable: BTreeSet<&str> = sections
        .lines()
        .filter_map(|line| line.split_once('[')?.1.split_once(']'))
        .filter(|(_, line)| line.split_whitespace().nth(6).is_some_and(|flags| flags.contains('X')))
        .map(|(number, _)| number.trim())
        .collect();
    let symbols = tool("readelf", &["-sW".as_ref(), object.as_os_str()]);
    let of = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, _, size, kind, _, _, section, name] = words[..] else { return None };
        let named = matches!(kind, "FUNC" | "NOTYPE") && executable.contains(section) && !name.starts_with('$');
        named.then(|| (name.to_owned(), size.parse().unwrap()))
    };
    symbols.lines().filter_map(of).collect()
}

fn functions_are_those_of_the_symbol_table() {
    let object = common::compile("functions.c", SOURCE, &[]);
    let expected = of_symbol_table(&object);
    let names: BTreeSet<&str> = expected.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["another_name", "hidden_one", "inner", "outer", "weak_one"].into());
    // A function without a size, a label of a compiler's, and a second function up to the section's end.
    let source = by_arch("f: ret\n.L1: nop\ng: nop\nret\n", "f: ret\n.L1: nop\ng: nop\nret\n");
    let assembled = compile_bytes("functions.s", &format!(".text\n.globl f\n{source}"), &[]);
    for engine in layouts() {
        let library = engine.library("functions").build().unwrap();
        library.add_object_file(&object).unwrap();
        assert!(library.functions().unwrap().is_empty(), "nothing is linked");
        // SAFETY: nothing runs.
        unsafe { library.initialize().unwrap() };
        let functions = library.functions().unwrap();
        let found: BTreeSet<_> = functions.iter().map(|f| (f.name.clone(), f.addresses.len())).collect();
        assert_eq!(found, expected);
        assert!(functions.is_sorted_by_key(|f| f.addresses.start));
        for name in ["outer", "weak_one"] {
            let function = functions.iter().find(|f| f.name == name).unwrap();
            // SAFETY: nothing is called.
            let symbol = unsafe { library.get::<*const u8>(name).unwrap() };
            assert_eq!(function.addresses.start, symbol.address().addr());
        }
        freed(&library);
        let library = engine.add_object(&assembled).unwrap();
        // SAFETY: as above.
        unsafe { library.initialize().unwrap() };
        let functions = library.functions().unwrap();
        let [f, g] = &functions[..] else { panic!("{functions:?}") };
        assert_eq!((&*f.name, &*g.name, f.addresses.end), ("f", "g", g.addresses.end));
        let at = |address: usize| engine.explain_address(std::ptr::without_provenance(address)).unwrap().function;
        let told = |address: usize| at(address).map(|f| (f.name.to_string(), f.offset));
        let start = f.addresses.start;
        assert_eq!(told(start), Some(("f".into(), 0)));
        assert_eq!(told(g.addresses.start - 1), Some(("f".into(), g.addresses.start - 1 - start)));
        assert_eq!(told(g.addresses.start + 1), Some(("g".into(), 1)));
        freed(&library);
        // Its names rest as long as its addresses.
        assert_eq!(told(start), Some(("f".into(), 0)));
    }
}

/// What the dynamic loader says of an address.
fn dladdr(address: usize) -> (String, usize) {
    // SAFETY: the record is filled by the call; its text belongs to a library that stays.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        assert_ne!(libc::dladdr(address as *const c_void, &mut info), 0);
        let name = CStr::from_ptr(info.dli_sname).to_str().unwrap().to_owned();
        (name, address - info.dli_saddr.addr())
    }
}

fn an_address_has_the_name_that_dladdr_says() {
    let source =
        "int first(int n) { return n * 5; } int second(int n) { return n ^ 7; } int third(int n) { return -n; }";
    let object = common::compile("dladdr.c", source, &[]);
    let shared = link_shared("dladdr.so", &[&object], &[]);
    // SAFETY: it has no initialisers of its own.
    let opened = unsafe { libloading::Library::new(shared).unwrap() };
    for engine in layouts() {
        let library = engine.add_object_file(&object).unwrap();
        for name in ["first", "second", "third"] {
            // SAFETY: nothing is called.
            let (ours, theirs) = unsafe {
                let theirs = opened.get::<*const u8>(CString::new(name).unwrap().as_bytes_with_nul()).unwrap();
                (library.get::<*const u8>(name).unwrap().address().addr(), (*theirs).addr())
            };
            let function = library.functions().unwrap().into_iter().find(|f| f.name == name).unwrap();
            for offset in 0..function.addresses.len() {
                let told = engine.explain_address(std::ptr::without_provenance(ours + offset)).unwrap();
                let told = told.function.unwrap();
                assert_eq!((told.name.to_string(), told.offset), dladdr(theirs + offset));
            }
        }
        freed(&library);
    }
    // It stays open, as its texts are lent.
    std::mem::forget(opened);
}

fn names(library: &Library) -> BTreeSet<String> {
    library.functions().unwrap().into_iter().map(|function| function.name).collect()
}

/// Symbols that others of a batch refer to, and local ones of one name, have other names while they are linked.
fn functions_keep_their_names_in_a_batch() {
    let one = compile_bytes(
        "one.c",
        "__attribute__((noinline)) static int same(int n) { return n + 1; }
         __attribute__((visibility(\"hidden\"))) int shared_one(int n) { return same(n) * 2; }
         int shared_two(int n) { return same(n + 5); }",
        &["-fno-inline"],
    );
    let two = compile_bytes(
        "two.c",
        "int shared_one(int); int shared_two(int);
         __attribute__((noinline)) static int same(int n) { return n - 1; }
         int uses(int n) { return shared_one(same(n)) + shared_two(n); }",
        &["-fno-inline"],
    );
    for engine in layouts() {
        let library = engine.library("batch").build().unwrap();
        library.add_objects([&two, &one]).unwrap();
        // SAFETY: `int uses(int)`.
        assert_eq!(unsafe { library.get::<extern "C" fn(i32) -> i32>("uses").unwrap()(4) }, 8 + 10);
        assert_eq!(names(&library), ["same", "shared_one", "shared_two", "uses"].map(String::from).into());
        assert_eq!(library.functions().unwrap().len(), 5);
        freed(&library);
    }
}

fn functions_of_dylibs_have_names() {
    let engine = Checked::new();
    let main = engine.orc().build().unwrap().dylib("main");
    main.add_object_named("d.o", compile_bytes("of_dylib.c", "int of_dylib(int n) { return n + 9; }", &[])).unwrap();
    // SAFETY: of this type.
    let function = unsafe { main.get::<extern "C" fn(i32) -> i32>("of_dylib").unwrap() };
    let told = engine.explain_address(function.address().wrapping_byte_add(1)).unwrap();
    assert!(told.to_string().starts_with("of_dylib+0x1 in 'd.o' of library 'main' "), "{told}");
    drop((function, main));
    engine.finish();
}

/// Libraries of few and many functions take each other's addresses, and what was kept of them, while threads ask who is
/// there: each is told the function of a library with that library's name.
fn names_are_right_while_others_come_and_go() {
    const KINDS: [(&str, usize); 3] = [("short", 1), ("name_of_medium_length", 7), ("quite_a_long_name_of_many", 60)];
    let objects = KINDS.map(|(name, count)| {
        let function = |i| {
            let name = format!("{name}_{i}");
            format!(".globl {name}\n.type {name}, %function\n{name}: ret\n.size {name}, . - {name}\n")
        };
        let functions: String = (0..count).map(function).collect();
        compile_bytes(&format!("{name}.s"), &format!(".text\n{functions}"), &[])
    });
    for layout in [SlabLayout::PerObject, SlabLayout::Packed] {
        let end = Instant::now() + Duration::from_millis(500);
        let engine = JitEngine::builder().slab_layout(layout).quarantine(256 << 10).build().unwrap();
        let load = |kind: usize| {
            let library = engine.library(KINDS[kind].0).build().unwrap();
            library.add_object(&objects[kind]).unwrap();
            // SAFETY: its functions do nothing.
            unsafe { library.initialize().unwrap() };
            library
        };
        let of = |library: &Library| library.functions().unwrap().into_iter().map(|f| f.addresses.start);
        let kept = load(2);
        let kept_at: Vec<usize> = of(&kept).collect();
        // Those that came and went.
        let places: Vec<usize> = (0..90).flat_map(|n| of(&load(n % 3)).collect::<Vec<_>>()).collect();
        let (done, ask) = (AtomicBool::new(false), |address: usize, is_kept: bool| {
            let Some(told) = engine.explain_address(std::ptr::without_provenance(address)) else {
                assert!(!is_kept);
                return 0;
            };
            let Some(function) = told.function else {
                assert!(!is_kept, "{told}");
                return 0;
            };
            let (library, function) = (told.library.to_string(), function.name.to_string());
            assert!(function.strip_prefix(&*library).is_some_and(|rest| rest.starts_with('_')), "{told}");
            1
        });
        let named: usize = std::thread::scope(|scope| {
            let asking = [0, 1].map(|first| {
                let (done, ask, kept_at, places) = (&done, &ask, &kept_at, &places);
                scope.spawn(move || {
                    let mut named = 0;
                    while !done.load(Ordering::Relaxed) {
                        kept_at.iter().skip(first).step_by(2).for_each(|at| named += ask(*at, true));
                        places.iter().skip(first).step_by(2).for_each(|at| named += ask(*at, false));
                    }
                    named
                })
            });
            let mut kind = 0;
            while Instant::now() < end || kind < 30 {
                let (one, other) = (load(kind % 3), load((kind + 1) % 3));
                freed(&one);
                freed(&other);
                kind += 1;
            }
            done.store(true, Ordering::Relaxed);
            asking.map(|thread| thread.join().unwrap()).iter().sum()
        });
        assert!(named > 100, "{named}");
    }
}
