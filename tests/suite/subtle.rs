//! Places where linking goes wrong quietly: each test is an object, or several, that once gave a wrong answer.

use std::sync::Arc;

use slabjit::{ArenaPlacement, Error, JitEngine, Library, LibraryBuilder, LibraryError, LinkError, Symbol};

use crate::common::{
    Checked, Int, call, compile, compile_bytes, compile_with, freed, link_shared, temporary, tests, tool,
};
use crate::target::{by_arch, only_on_x86_64, tool_command};

tests![
    locals_of_one_name_have_got_entries_of_their_own,
    names_given_to_orc_are_no_names_of_users,
    indirect_calls_below_four_gib_stay_indirect,
    indirect_calls_with_prefixes_stay_indirect,
    initialisers_of_a_discarded_group_do_not_run,
    references_into_a_discarded_group_are_judged_as_ld_judges_them,
    what_is_ordered_with_a_discarded_section_goes_with_it,
    common_symbols_have_the_largest_alignment,
    an_archive_index_that_lies_is_followed_once,
    failed_initialisers_leak_nothing_while_others_hold_the_library,
    a_nested_batch_is_undone_with_the_outer_one,
    a_function_that_a_failing_initialiser_gave_out_stays,
    discarded_users_of_another_objects_symbols_on_two_threads,
    large_sections_lie_outside_the_arena,
    large_code_stays_with_its_tables,
    scopes_that_cannot_work_are_refused,
    undefined_symbols_can_be_asked_for,
    raw_is_the_lljit;
    alone: section_bounds_are_the_objects_own
];

fn library(engine: &Checked, name: &str, objects: &[(&str, &str, &[&str])]) -> Library {
    let library = engine.library(name).build().unwrap();
    for (file, source, flags) in objects {
        library.add_object_named(file, compile_bytes(file, source, flags)).unwrap();
    }
    library
}

fn locals_of_one_name_have_got_entries_of_their_own() {
    let engine = Checked::new();
    let half = |n: u32| {
        let code = by_arch(
            "movq foo@GOTPCREL(%rip),%rax\n movl (%rax),%eax",
            "adrp x0, :got:foo\n ldr x0, [x0, :got_lo12:foo]\n ldr w0, [x0]",
        );
        let source = format!(".text\n.globl get{n}\nget{n}: {code}\n ret\n.data\n.long 0\nfoo: .long {n}\n");
        // gas for AArch64 makes section and offset of a local symbol here, which LLVM does not link (the error says
        // so).
        compile_with(by_arch("gcc", "clang-22"), &format!("half{n}.s"), &source, &[])
    };
    let merged = temporary().join("halves.o");
    tool("ld", &["-r".as_ref(), "-o".as_ref(), merged.as_os_str(), half(1).as_os_str(), half(2).as_os_str()]);
    let library = engine.add_object_file(&merged).unwrap();
    assert_eq!((call(&library, "get1"), call(&library, "get2")), (1, 2));
    freed(&library);
    engine.finish();
}

/// Names like those that this crate once gave to symbols which objects of a batch need of each other.
fn names_given_to_orc_are_no_names_of_users() {
    let engine = Checked::new();
    unsafe extern "C" fn three() -> i32 {
        3
    }
    let names: Vec<String> = (0..8).map(|i| format!("x{i}")).collect();
    let declared: String = names.iter().map(|n| format!("int {n}(void);")).collect();
    let called: String = names.iter().map(|n| format!("+ {n}()")).collect();
    let user = format!("{declared} int seven(void); int sum(void) {{ return 100 * seven() {called}; }}");
    // SAFETY: the function is `int (void)`.
    let give = |b: LibraryBuilder, name: &String| unsafe { b.symbol(name, three as *const ()) };
    let library = names.iter().fold(engine.library("names"), give).build().unwrap();
    library.add_object(compile_bytes("user.c", &user, &["-fno-plt"])).unwrap();
    library.add_object(compile_bytes("seven.c", "int seven(void) { return 7; }", &[])).unwrap();
    assert_eq!(call(&library, "sum"), 700 + 8 * 3);
    freed(&library);
    engine.finish();
}

/// llvm#190968.
fn indirect_calls_below_four_gib_stay_indirect() {
    let engine = Checked::new();
    // lea 10(%rdi), %eax; ret
    const X86_64: &[u8] = &[0x8d, 0x47, 10, 0xc3];
    // add w0, w0, #10; ret
    const AARCH64: &[u8] = &[0x00, 0x28, 0x00, 0x11, 0xc0, 0x03, 0x5f, 0xd6];
    let code = by_arch(X86_64, AARCH64);
    // SAFETY: a fresh mapping below 4 GiB, written before it is made executable.
    let low = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let at = |address| libc::mmap(address as *mut _, 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        let page = (0x2000_0000_usize..0xf000_0000).step_by(0x100_0000).map(at).find(|p| *p != libc::MAP_FAILED);
        let page = page.filter(|p| p.addr() < 1 << 32).expect("a free page below 4 GiB");
        std::ptr::copy_nonoverlapping(code.as_ptr(), page.cast(), code.len());
        assert_eq!(libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_EXEC), 0);
        page
    };
    // SAFETY: there is a function of the type below.
    let library = unsafe { engine.library("low").symbol("f", low.cast_const().cast()).build().unwrap() };
    let source = "int f(int); int t(void) { return f(1) + 1; } int jumps(void) { return f(2); }";
    library.add_object(compile_bytes("low.c", source, &["-fno-plt", "-O2"])).unwrap();
    assert_eq!((call(&library, "t"), call(&library, "jumps")), (12, 12));
    freed(&library);
    engine.finish();
}

/// As compilers call `__tls_get_addr` without a PLT. LLVM 23 makes a call of it that crashes on AMD's processors.
fn indirect_calls_with_prefixes_stay_indirect() {
    if only_on_x86_64("AArch64 has no such prefixes") {
        return;
    }
    let engine = Checked::new();
    let call_it = "pushq %rax\n .byte 0x66\n rex64\n call *seven@GOTPCREL(%rip)\n popq %rcx\n ret";
    let prefixed = format!(".globl prefixed\nprefixed: {call_it}\n");
    let objects: [(&str, &str, &[&str]); 2] =
        [("seven.c", "int seven(void) { return 7; }", &[]), ("prefixed.s", &prefixed, &[])];
    let library = library(&engine, "prefixes", &objects);
    assert_eq!(call(&library, "prefixed"), 7);
    freed(&library);
    engine.finish();
}

fn initialisers_of_a_discarded_group_do_not_run() {
    let engine = Checked::new();
    let part = |n: u32| {
        let code = by_arch(
            "movq counter@GOTPCREL(%rip),%rax\n incl (%rax)",
            "adrp x0, :got:counter\n ldr x0, [x0, :got_lo12:counter]\n ldr w1, [x0]\n add w1, w1, #1\n str w1, [x0]",
        );
        format!(
            ".section .text.init,\"axG\",@progbits,grp,comdat\ninit: {code}\n ret\n\
             .weak grp\ngrp: ret\n.section .init_array,\"awG\",@init_array,grp,comdat\n.quad init\n\
             .text\n.globl part{n}\npart{n}: ret\n"
        )
    };
    let (one, two) = (part(1), part(2));
    let counter = "int counter; int get(void) { return counter; }";
    let objects: [(&str, &str, &[&str]); 3] = [("counter.c", counter, &[]), ("one.s", &one, &[]), ("two.s", &two, &[])];
    let library = library(&engine, "groups", &objects);
    assert_eq!(call(&library, "get"), 1);
    freed(&library);
    engine.finish();
}

/// Both objects have the group; the second one's copy is discarded.
fn references_into_a_discarded_group_are_judged_as_ld_judges_them() {
    let engine = Checked::new();
    let (set, call_local) = by_arch(("movl $SET, %eax", "call local"), ("mov w0, #SET", "bl local"));
    let set = |value: u32| set.replace("SET", &value.to_string());
    let user = format!(".text\n.globl user\nuser: {call_local}\n ret");
    let in_group = format!(".section .text.g,\"axG\",@progbits,grp,comdat\n {call_local}");
    let object = |n: u32, reference: &str| {
        let source = format!(
            ".section .text.g,\"axG\",@progbits,grp,comdat\n.weak grp\ngrp: nop\nlocal: {}\n ret\n\
             .text\n.globl part{n}\npart{n}: {}\n ret\n{reference}\n",
            set(7),
            set(n)
        );
        compile(&format!("refers{n}.s"), &source, &[])
    };
    let first = object(1, "");
    let mut refused = 0;
    let references = [
        ".data\n.quad 0, local",
        ".data\n.quad .text.g",
        &user,
        ".section .rodata,\"a\"\n.long local - .",
        &in_group,
        ".section .data.g,\"awG\",@progbits,grp,comdat\n.quad local",
        ".data\n.quad grp",
        ".section .gcc_except_table,\"a\"\n.quad local",
        ".section .debug_things,\"\"\n.quad local",
        ".section .text.g,\"axG\",@progbits,grp,comdat\n.cfi_startproc\nnop\n.cfi_endproc",
        ".section ordered,\"ao\",@progbits,.text.g\n.quad local",
    ];
    for reference in references {
        let second = object(2, reference);
        let ld = &mut tool_command("ld");
        let output = ld.arg("-shared").args([&first, &second]).args(["-o", "/dev/null"]).output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), !words.contains("defined in discarded section"), "{words}");
        let library = library(&engine, "refers", &[]);
        library.add_object_file(&first).unwrap();
        let added = library.add_object_named("second.o", std::fs::read(second).unwrap());
        if output.status.success() {
            added.unwrap_or_else(|error| panic!("ld links this: {reference}: {error}"));
            assert_eq!(call(&library, "part2"), 2);
        } else {
            let Err(Error::Link(LinkError::DiscardedReference { object, section, symbol, group, linked, .. })) = &added
            else {
                panic!("ld refuses this: {reference}: {added:?}");
            };
            assert_eq!((object.as_str(), group.as_str(), linked.ends_with("refers1.o")), ("second.o", "grp", true));
            // ld: `local' referenced in section `.data' of refers2.o: defined in discarded section …
            assert!(words.contains(&format!("`{symbol}' referenced in section `{section}'")), "{added:?}: {words}");
            refused += 1;
        }
        assert_eq!(call(&library, "part1"), 1);
        freed(&library);
    }
    assert!((1..references.len()).contains(&refused), "{refused}");
    engine.finish();
}

/// `SHF_LINK_ORDER`, as `__patchable_function_entries` has it.
fn what_is_ordered_with_a_discarded_section_goes_with_it() {
    let engine = Checked::new();
    let source = |n: u32| {
        format!(
            "extern long __start_set[], __stop_set[]; int count{n}(void) {{ return __stop_set - __start_set; }}
             asm(\".section .text.g,\\\"axG\\\",@progbits,grp,comdat\\n.weak grp\\ngrp: nop\\n\"
                 \".section set,\\\"awo\\\",@progbits,.text.g\\n.quad 0\\n.section set,\\\"aw\\\",@progbits\\n.quad 0\\n.text\");"
        )
    };
    let objects = [compile("set1.c", &source(1), &[]), compile("set2.c", &source(2), &[])];
    let shared = link_shared("sets.so", &[&objects[0], &objects[1]], &[]);
    // SAFETY: it has no initialisers of its own; the function is `int (void)`.
    let all = unsafe { libloading::Library::new(&shared).unwrap().get::<Int>(b"count1").unwrap()() };
    let library = library(&engine, "sets", &[]);
    objects.iter().for_each(|object| library.add_object_file(object).unwrap());
    assert_eq!([call(&library, "count1"), call(&library, "count2")], [all; 2]);
    freed(&library);
    engine.finish();
}

fn common_symbols_have_the_largest_alignment() {
    let engine = Checked::new();
    let small = "char buf[64]; int small(void) { return buf[0]; }";
    let aligned = "__attribute__((aligned(4096))) char buf[64]; int rest(void) { return (long)buf % 4096; }";
    let common: &[&str] = &["-fcommon"];
    let library = library(&engine, "common", &[("small.c", small, common), ("aligned.c", aligned, common)]);
    assert_eq!(call(&library, "rest"), 0);
    freed(&library);
    engine.finish();
}

fn an_archive_index_that_lies_is_followed_once() {
    let engine = Checked::new();
    let member = compile("honest_name.c", "int honest_name(void) { return 1; }", &[]);
    let path = temporary().join("lies.a");
    tool("ar", &["rcs".as_ref(), path.as_os_str(), member.as_os_str()]);
    let mut bytes = std::fs::read(&path).unwrap();
    // The index comes first.
    let at = bytes.windows(11).position(|w| w == b"honest_name").unwrap();
    bytes[at..at + 11].copy_from_slice(b"wanted_name");
    let user = "int wanted_name(void); int t(void) { return wanted_name(); }";
    let library = library(&engine, "lies", &[("user.c", user, &[])]);
    library.add_archive(&bytes).unwrap();
    // SAFETY: nothing runs.
    let error = unsafe { library.get::<Int>("t").unwrap_err() };
    assert!(
        matches!(&error, Error::Link(LinkError::UndefinedSymbols { symbols, .. }) if symbols[0].name == "wanted_name"),
        "{error}"
    );
    freed(&library);
    engine.finish();
}

const THROWS: &str = "struct T { T() { throw 42; } }; T t; extern \"C\" int bad() { return 2; }";

fn failed_initialisers_leak_nothing_while_others_hold_the_library() {
    let engine = Checked::new();
    let library = library(&engine, "held", &[("good.c", "int good(void) { return 1; }", &[])]);
    // SAFETY: `int good(void)`.
    let good: Symbol<Int> = unsafe { library.get("good").unwrap() };
    let before = engine.stats().arena.slab_bytes;
    library.add_object(compile_bytes("throws.cc", THROWS, &[])).unwrap();
    let mut after_first = None;
    for _ in 0..20 {
        // SAFETY: the initialiser throws, and that is all.
        let error = unsafe { library.get::<Int>("bad").unwrap_err() };
        assert!(matches!(error, Error::Link(LinkError::InitializerFailed { .. })), "{error}");
        // The library's `__dso_handle` stays; nothing else does.
        let now = engine.stats().arena.slab_bytes;
        assert_eq!(now, *after_first.get_or_insert(now));
        assert!(now <= before + 2 * 4096, "{before} {now}");
        // What was linked before is still found.
        assert_eq!(call(&library, "good"), 1);
    }
    drop(good);
    freed(&library);
    engine.finish();
}

/// An initialiser loads a third object, which refers to the first; then the second's initialiser throws.
fn a_nested_batch_is_undone_with_the_outer_one() {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};
    static LIBRARY: Mutex<Option<Library>> = Mutex::new(None);
    static FAILS: AtomicBool = AtomicBool::new(true);
    static THIRD: Mutex<Option<Vec<u8>>> = Mutex::new(None);
    extern "C" fn load_third() {
        if let Some(bytes) = THIRD.lock().unwrap().take() {
            let library = LIBRARY.lock().unwrap().clone().unwrap();
            library.add_object_named("third.o", bytes).unwrap();
            // SAFETY: `int three(void)`; it refers to what this initialiser belongs to.
            unsafe { library.initialize().unwrap() };
        }
    }
    extern "C" fn fails() -> i32 {
        FAILS.load(Ordering::Relaxed).into()
    }
    let engine = Checked::new();
    // SAFETY: both are what the sources below declare.
    let library = unsafe {
        let builder = engine.library("nested").symbol("load_third", load_third as *const ());
        builder.symbol("fails", fails as *const ()).build().unwrap()
    };
    let first = "void load_third(void); int value = 100; int one(void) { return value; }
        __attribute__((constructor)) static void init(void) { load_third(); }";
    let second = "extern \"C\" int fails(); struct S { S() { if (fails()) throw 1; } }; S s; extern \"C\" int two() { return 2; }";
    *THIRD.lock().unwrap() =
        Some(compile_bytes("third.c", "int one(void); int three(void) { return one() + 11; }", &[]));
    library.add_object_named("first.o", compile_bytes("first.c", first, &[])).unwrap();
    library.add_object_named("second.o", compile_bytes("second.cc", second, &[])).unwrap();
    *LIBRARY.lock().unwrap() = Some(library.clone());
    // SAFETY: the initialisers are those above.
    let error = unsafe { library.get::<Int>("one").unwrap_err() };
    assert!(
        matches!(&error, Error::Link(LinkError::InitializerFailed { object, .. }) if object == "second.o"),
        "{error}"
    );
    FAILS.store(false, Ordering::Relaxed);
    assert_eq!((call(&library, "one"), call(&library, "two"), call(&library, "three")), (100, 2, 111));
    *LIBRARY.lock().unwrap() = None;
    freed(&library);
    engine.finish();
}

fn a_function_that_a_failing_initialiser_gave_out_stays() {
    use std::sync::Mutex;
    static LIBRARY: Mutex<Option<Library>> = Mutex::new(None);
    static GIVEN: Mutex<Option<Symbol<Int>>> = Mutex::new(None);
    extern "C" fn give() {
        let library = LIBRARY.lock().unwrap().take().unwrap();
        // SAFETY: `int given(void)`, of the object whose initialiser this is.
        *GIVEN.lock().unwrap() = Some(unsafe { library.get("given").unwrap() });
    }
    let engine = Checked::new();
    // SAFETY: it is what the source declares.
    let library = unsafe { engine.library("giving").symbol("give", give as *const ()).build().unwrap() };
    let source = "extern \"C\" void give(); extern \"C\" int given() { return 42; }
        struct S { S() { give(); throw 1; } }; S s;";
    library.add_object_named("gives.o", compile_bytes("gives.cc", source, &[])).unwrap();
    *LIBRARY.lock().unwrap() = Some(library.clone());
    // SAFETY: the initialiser gives the function out, and throws.
    let error = unsafe { library.get::<Int>("given").unwrap_err() };
    assert!(matches!(error, Error::Link(LinkError::InitializerFailed { .. })), "{error}");
    let given = GIVEN.lock().unwrap().take().unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { given() }, 42);
    drop(given);
    freed(&library);
    engine.finish();
}

/// The second object's copy of an inline function is discarded, and with it its only reference to the first object.
fn discarded_users_of_another_objects_symbols_on_two_threads() {
    let engine = Checked::new();
    let user = |n: u32| {
        let source = format!(
            "extern \"C\" int foo(); struct S {{ __attribute__((noinline)) static int m() {{ return foo(); }} }};
             extern \"C\" int user{n}() {{ return S::m(); }}"
        );
        compile_bytes(&format!("user{n}.cc"), &source, &[])
    };
    let objects = [compile_bytes("foo.c", "int foo(void) { return 1; }", &[]), user(1), user(2), user(3)];
    let objects = Arc::new(objects);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (engine, objects) = (&engine, Arc::clone(&objects));
            scope.spawn(move || {
                for _ in 0..300 {
                    let library = engine.library("users").build().unwrap();
                    objects.iter().for_each(|bytes| library.add_object(bytes).unwrap());
                    assert_eq!(call(&library, "user3"), 1);
                }
            });
        }
    });
    engine.finish();
}

/// Shared objects and programs linked with -rdynamic export the bounds of their own sections.
fn section_bounds_are_the_objects_own() {
    let engine = Checked::new();
    let entries = |n: u32| {
        format!(
            "__attribute__((section(\"slabjit_set\"), used)) int entry = {n};
             extern int __start_slabjit_set[], __stop_slabjit_set[];
             int sum(void) {{ int s = 0; for (int *p = __start_slabjit_set; p < __stop_slabjit_set; p++) s += *p; return s; }}"
        )
    };
    let theirs = compile("theirs.c", &entries(300), &[]);
    let shared = link_shared("theirs.so", &[&theirs], &["-Wl,-z,start-stop-visibility=default"]);
    // SAFETY: it has no initialisers.
    unsafe { engine.preload_global(&shared).unwrap() };
    let library = library(&engine, "bounds", &[("ours.c", &entries(5), &[])]);
    assert_eq!(call(&library, "sum"), 5);
    freed(&library);
    engine.finish();
}

/// `.ldata` and `.lbss` are reached by 64-bit references only.
fn large_sections_lie_outside_the_arena() {
    if only_on_x86_64("AArch64 has no medium code model; memory::large_data_outside_the_arena has what it has") {
        return;
    }
    let engine = Checked::new();
    let source = "static volatile int table[1 << 18] = { [7] = 35 }; static volatile int zero[1 << 18];
        int read(void) { return table[7] + zero[7]; } int write(void) { zero[7] = 7; return 0; }";
    for pic in ["-fPIC", "-fno-pic"] {
        let flags = ["-mcmodel=medium", "-mlarge-data-threshold=0", pic];
        let library = engine.add_object(compile_bytes("large.c", source, &flags)).unwrap();
        assert_eq!((call(&library, "read"), call(&library, "write"), call(&library, "read")), (35, 0, 42));
        let slabs = library.slab_of("read").unwrap();
        let (near, far): (Vec<_>, Vec<_>) = slabs.iter().partition(|slab| slab.in_arena);
        assert_eq!(near.len(), 1, "{slabs:?}");
        assert!(near[0].addresses.len() < 1 << 20 && engine.arena().contains(&near[0].addresses.start), "{slabs:?}");
        assert_eq!(far.iter().map(|slab| slab.addresses.len()).sum::<usize>(), 2 << 20, "{slabs:?}");
        freed(&library);
    }
    engine.finish();
}

/// Code that says it may be far away, and that has a 32-bit reference to an entry that we make for it.
fn large_code_stays_with_its_tables() {
    if only_on_x86_64("AArch64 has no large sections") {
        return;
    }
    let arena = JitEngine::builder().arena_placement(ArenaPlacement::Low2GiB).build().unwrap();
    let engine = Checked::of(arena);
    let source = "__thread int y __attribute__((tls_model(\"initial-exec\"))) = 7; int f(void) { return ++y; }";
    let object = compile_with("clang-19", "large_tls.c", source, &["-mcmodel=large"]);
    assert!(tool("readelf", &["-SW".as_ref(), object.as_os_str()]).contains(".ltext"));
    let library = engine.add_object_file(&object).unwrap();
    assert_eq!((call(&library, "f"), call(&library, "f")), (8, 9));
    freed(&library);
    engine.finish();
}

fn scopes_that_cannot_work_are_refused() {
    let engine = Checked::new();
    let gone = engine.add_object(compile_bytes("gone.c", "int gone(void) { return 1; }", &[])).unwrap();
    freed(&gone);
    let error = engine.library("late").link(&gone).build().unwrap_err();
    assert!(matches!(error, Error::Library(LibraryError::Removed { .. })), "{error}");
    // SAFETY: the library is not built.
    let error = unsafe { engine.library("null").symbol("nothing", std::ptr::null()).build().unwrap_err() };
    assert!(
        matches!(&error, Error::Library(LibraryError::NullSymbol { symbol, .. }) if symbol == "nothing"),
        "{error}"
    );
    engine.finish();
}

fn undefined_symbols_can_be_asked_for() {
    let engine = Checked::new();
    let provider = engine.add_object(compile_bytes("given.c", "int given(void) { return 1; }", &[])).unwrap();
    let library = engine.library("wants").link(&provider).build().unwrap();
    let source = "int given(void); int absent(void); int f(void) { return given() + absent(); }";
    library.add_object_named("wants.o", compile_bytes("wants.c", source, &[])).unwrap();
    let missing = library.undefined_symbols().unwrap();
    assert_eq!(missing.iter().map(|u| u.name.as_str()).collect::<Vec<_>>(), ["absent"]);
    assert_eq!(missing[0].referenced_by, ["wants.o"]);
    library.add_object(compile_bytes("absent.c", "int absent(void) { return 41; }", &[])).unwrap();
    assert_eq!(library.undefined_symbols().unwrap(), []);
    assert_eq!(call(&library, "f"), 42);
    freed(&library);
    freed(&provider);
    engine.finish();
}

fn raw_is_the_lljit() {
    use slabjit::llvm_sys::orc2::lljit::LLVMOrcLLJITGetTripleString;
    let engine = Checked::new();
    // SAFETY: plain use of LLVM's C API, while the engine lives.
    let triple = unsafe { std::ffi::CStr::from_ptr(LLVMOrcLLJITGetTripleString(engine.raw().unwrap())) };
    assert!(triple.to_string_lossy().starts_with(std::env::consts::ARCH), "{triple:?}");
    engine.assert_usable();
    engine.finish();
}
