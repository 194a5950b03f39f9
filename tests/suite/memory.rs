//! Address space: one slab for each object, one near arena for each engine, W^X at every moment. The kernel's own list
//! of mappings (/proc/self/maps) is what the engine is measured by.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{self, Checked, compile, compile_bytes, mapping_at, mappings, resident, virtual_size};
use crate::target::{by_arch, by_qemu, not_under_qemu, only_on_x86_64, under_qemu};
use slabjit::{Error, JitEngine, Library, MemoryError, SlabLayout, Symbol};

common::tests![
    one_contiguous_slab_per_object,
    permissions,
    slab_is_what_the_kernel_shows,
    all_slabs_in_one_near_arena,
    two_text_sections_keep_their_permissions,
    alignment_up_to_two_mebibytes,
    alignment_above_two_mebibytes,
    arena_exhausted_then_removal,
    arena_of_eight_mebibytes,
    free_space_coalesces,
    large_data_outside_the_arena,
    hidden_symbols_across_many_objects,
    nothing_is_writable_and_executable_while_loading;
    alone: half_a_gibibyte_of_bss, bss_is_zero_when_memory_is_used_again, address_space_limit, no_address_space, freed_pages_are_returned,
        mappings_do_not_grow_with_objects, mappings_end_before_the_kernels_limit, a_namespace_takes_less_than_a_kibibyte,
        names_of_functions_take_few_bytes,
];

/// 2 GiB − 32 MiB: an arena's largest size.
const REACH: usize = (2 << 30) - (32 << 20);

type Address = Symbol<*const u8>;

fn address(library: &Library, name: &str) -> usize {
    // SAFETY: the address is not used as anything else.
    let symbol: Address = unsafe { library.get(name).unwrap() };
    *symbol as usize
}

fn function(library: &Library, name: &str) -> usize {
    // SAFETY: not called.
    unsafe { *library.get::<extern "C" fn()>(name).unwrap() as usize }
}

const ALL_KINDS: &str = "int data[2000] = {1}; int zero[3000]; const int constant[2000] = {2};
    static int *relocated[] = {data, zero}; int **relocated_at(void) { return relocated; }
    int function(void) { return data[1] + zero[1] + constant[1]; }";

/// The addresses of the slab of a library's one object.
#[track_caller]
fn only_slab(library: &Library) -> Range<usize> {
    let slabs = library.slab_of("function").unwrap();
    assert_eq!(slabs.len(), 1, "one slab in the default layout: {slabs:x?}");
    slabs[0].addresses.clone()
}

fn one_contiguous_slab_per_object() {
    let engine = Checked::of(common::per_object().build().unwrap());
    let path = compile("kinds.c", ALL_KINDS, &["-ffunction-sections", "-fdata-sections"]);
    let libraries: Vec<Library> = (0..3).map(|_| engine.add_object_file(&path).unwrap()).collect();
    let mut slabs = Vec::new();
    for library in &libraries {
        let places = [
            function(library, "function"),
            address(library, "data"),
            address(library, "zero"),
            address(library, "constant"),
        ];
        let slab = only_slab(library);
        for (place, size) in places.into_iter().zip([1, 8000, 12000, 8000]) {
            assert!(slab.start <= place && place + size <= slab.end, "{place:#x} is outside of {slab:x?}");
        }
        slabs.push(slab);
    }
    slabs.sort_by_key(|s| s.start);
    assert!(slabs.windows(2).all(|w| w[0].end <= w[1].start), "slabs overlap: {slabs:x?}");
    drop(libraries);
    engine.finish();
}

fn permissions() {
    let engine = Checked::new();
    let library = engine.add_object_file(compile("kinds.c", ALL_KINDS, &[])).unwrap();
    let of = |address: usize| mapping_at(address).permissions[..3].to_owned();
    assert_eq!(of(function(&library, "function")), common::as_shown("r-x"));
    assert_eq!(of(address(&library, "constant")), "r--");
    assert_eq!(of(address(&library, "data")), "rw-");
    assert_eq!(of(address(&library, "zero")), "rw-");
    drop(library);
    engine.finish();
}

fn slab_is_what_the_kernel_shows() {
    let engine = Checked::of(common::per_object().build().unwrap());
    let library = engine.add_object_file(compile("kinds.c", ALL_KINDS, &[])).unwrap();
    function(&library, "function");
    let slab = only_slab(&library);
    let inside: Vec<_> = mappings().into_iter().filter(|m| m.start < slab.end && m.end > slab.start).collect();
    let covered: usize = inside.iter().map(|m| m.end.min(slab.end) - m.start.max(slab.start)).sum();
    assert_eq!(covered, slab.end - slab.start, "{slab:x?} is not all mapped: {inside:x?}");
    let order: Vec<_> = inside.iter().map(|m| &m.permissions[..3]).filter(|p| *p != "---").collect();
    let expected: &[&str] = if under_qemu() { &["r--", "rw-"] } else { &["r-x", "r--", "rw-"] };
    assert_eq!(order, expected, "grouped by permission: {inside:x?}");
    drop(library);
    engine.finish();
}

fn all_slabs_in_one_near_arena() {
    let bytes = compile_bytes("kinds.c", ALL_KINDS, &[]);
    let engine = Checked::new();
    let libraries: Vec<_> = (0..300).map(|_| engine.add_object(&bytes).unwrap()).collect();
    let places: Vec<_> = libraries.iter().flat_map(|l| [function(l, "function"), address(l, "zero")]).collect();
    let (low, high) = (places.iter().min().unwrap(), places.iter().max().unwrap());
    assert!(high - low < REACH, "{low:#x}..{high:#x}");
    drop(libraries);
    engine.finish();
}

fn two_text_sections_keep_their_permissions() {
    let code = by_arch(
        "mov counter(%rip), %eax\n incl counter(%rip)",
        "adrp x1, counter\n ldr w0, [x1, :lo12:counter]\n add w2, w0, #1\n str w2, [x1, :lo12:counter]",
    );
    let source = format!(
        ".text\n.globl function\n.type function, @function\nfunction: {code}\n ret\n
         .section .text,\"aw\",@progbits,unique,1\n.globl counter\n.type counter, @object\ncounter: .long 5\n.size counter, 4\n
         .section .note.GNU-stack,\"\",@progbits\n"
    );
    let engine = Checked::new();
    let library = engine.add_object_file(compile("two_text.s", &source, &[])).unwrap();
    assert_eq!(&mapping_at(function(&library, "function")).permissions[..3], common::as_shown("r-x"));
    assert_eq!(&mapping_at(address(&library, "counter")).permissions[..3], "rw-");
    // SAFETY: `function` is int(void).
    let count = unsafe { library.get::<extern "C" fn() -> i32>("function").unwrap() };
    assert_eq!((count(), count(), count()), (5, 6, 7));
    drop((count, library));
    engine.finish();
}

// ---- alignment and size ----

/// Reached in 32 bits, and so in the arena.
fn aligned(bytes: usize) -> Vec<u8> {
    let code = by_arch(
        "mov constant(%rip), %eax\n add data(%rip), %eax\n add zero(%rip), %eax",
        "adrp x0, constant\n adrp x1, data\n ldr w1, [x1, :lo12:data]\n adrp x2, zero",
    );
    let source = format!(
        ".text\n.globl near\n.type near, @function\nnear: {code}\n ret\n
         .section .rodata\n.globl constant\n.type constant, @object\n.balign {bytes}\nconstant: .quad 1\n
         .data\n.globl data\n.type data, @object\n.balign {bytes}\ndata: .quad 2\n
         .bss\n.globl zero\n.type zero, @object\n.balign {bytes}\nzero: .skip 8\n
         .section .note.GNU-stack,\"\",@progbits\n"
    );
    compile_bytes(&format!("aligned_{bytes}.s"), &source, &[])
}

fn alignment_up_to_two_mebibytes() {
    let engine = Checked::new();
    let mut libraries = Vec::new();
    for alignment in [64, 4096, 8192, 65536, 1 << 20, 2 << 20] {
        // Something small before it, so that what is free does not happen to begin at a round address.
        let small = engine.add_object_file(common::good_object()).unwrap();
        function(&small, "text");
        let library = engine.add_object(aligned(alignment)).unwrap();
        for name in ["constant", "data", "zero"] {
            let place = address(&library, name);
            assert_eq!(place % alignment, 0, "{name} with alignment {alignment} is at {place:#x}");
            assert!(engine.arena().contains(&place));
        }
        libraries.extend([small, library]);
    }
    drop(libraries);
    engine.finish();
}

fn alignment_above_two_mebibytes() {
    let engine = Checked::new();
    let result = engine.add_object(aligned(4 << 20)).and_then(|library| {
        // SAFETY: nothing to run.
        unsafe { library.initialize() }
    });
    let error = result.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Memory(MemoryError::UnsupportedAlignment { alignment: 0x40_0000, limit: 0x20_0000, .. })
        ),
        "{error:?}"
    );
    engine.assert_usable();
    engine.finish();
}

fn half_a_gibibyte_of_bss() {
    let source = "char huge[512 << 20]; int touch(long i) { return huge[i]++; } const char *end(void) { return huge + sizeof huge; }";
    let path = compile("huge.c", source, &[]);
    let engine = Checked::new();
    engine.assert_usable();
    let before = resident();
    let library = engine.add_object_file(&path).unwrap();
    // SAFETY: `touch` is int(long), its argument within `huge`.
    let touch = unsafe { library.get::<extern "C" fn(i64) -> i32>("touch").unwrap() };
    let added = resident().saturating_sub(before);
    // Under qemu-user the process is qemu's, too, whose buffer for translated code grows by huge pages.
    assert!(added < by_qemu(1, 8) << 20, "512 MiB of .bss added {added} resident bytes");
    for place in [0, 1 << 20, 300 << 20, (512 << 20) - 1] {
        assert_eq!((touch(place), touch(place)), (0, 1));
    }
    drop((touch, library));
    engine.finish();
}

fn bss_is_zero_when_memory_is_used_again() {
    let dirty = compile_bytes(
        "dirty.c",
        "char bytes[1 << 20]; char *fill(void) { return __builtin_memset(bytes, 255, sizeof bytes); }",
        &[],
    );
    let clean = compile_bytes(
        "clean.c",
        "char bytes[1 << 20]; int sum(void) { int s = 0; for (int i = 0; i < sizeof bytes; i++) s += bytes[i]; return \
         s; }",
        &[],
    );
    let engine = Checked::of(JitEngine::builder().arena_size(8 << 20).build().unwrap());
    for _ in 0..50 {
        let library = engine.add_object(&dirty).unwrap();
        // SAFETY: `fill` is char *(void).
        unsafe { library.get::<extern "C" fn() -> usize>("fill").unwrap()() };
        common::freed(&library);
        let library = engine.add_object(&clean).unwrap();
        // SAFETY: `sum` is int(void).
        assert_eq!(unsafe { library.get::<extern "C" fn() -> i32>("sum").unwrap()() }, 0);
        common::freed(&library);
    }
    engine.finish();
}

// ---- the arena ----

fn buffer(mebibytes: usize) -> Vec<u8> {
    compile_bytes(
        &format!("buffer_{mebibytes}.c"),
        &format!("char big_buffer[{mebibytes} << 20]; int value(void) {{ return big_buffer[5] + 42; }}"),
        &[],
    )
}

fn value(library: &Library) -> Result<i32, Error> {
    // SAFETY: `value` is int(void).
    unsafe { library.get::<extern "C" fn() -> i32>("value").map(|f| f()) }
}

fn arena_exhausted_then_removal() {
    // Near libraries there may be less room, as other tests have engines there.
    let builder = JitEngine::builder().arena_size(64 << 20).arena_placement(slabjit::ArenaPlacement::Anywhere);
    let engine = Checked::of(builder.build().unwrap());
    let bytes = buffer(40);
    let first = engine.add_object(&bytes).unwrap();
    assert_eq!(value(&first).unwrap(), 42);
    let second = engine.add_object(&bytes).unwrap();
    let error = value(&second).unwrap_err();
    assert!(
        matches!(&error, Error::Memory(MemoryError::ArenaExhausted { section, section_bytes: 0x280_0000, .. }) if section == ".bss"),
        "{error:?}"
    );
    assert_eq!(value(&first).unwrap(), 42, "what was loaded goes on working");
    common::freed(&first);
    assert_eq!(value(&second).unwrap(), 42, "there is room now");
    common::freed(&second);
    engine.finish();
}

fn arena_of_eight_mebibytes() {
    let engine = Checked::of(JitEngine::builder().arena_size(8 << 20).build().unwrap());
    engine.assert_usable();
    let library = engine.add_object(buffer(4)).unwrap();
    assert_eq!(value(&library).unwrap(), 42);
    drop(library);
    engine.finish();
}

fn free_space_coalesces() {
    // Near libraries there may be less room, as other tests have engines there.
    let builder = JitEngine::builder().arena_size(64 << 20).arena_placement(slabjit::ArenaPlacement::Anywhere);
    let engine = Checked::of(builder.build().unwrap());
    let small = buffer(1);
    let mut libraries: Vec<_> = (0..40).map(|_| engine.add_object(&small).unwrap()).collect();
    for library in &libraries {
        assert_eq!(value(library).unwrap(), 42);
    }
    // Removed in an order that leaves holes first.
    let mut random = common::Random::new(3);
    random.shuffle(&mut libraries);
    for library in libraries {
        common::freed(&library);
    }
    let library = engine.add_object(buffer(48)).unwrap();
    assert_eq!(value(&library).unwrap(), 42);
    drop(library);
    engine.finish();
}

/// Sections that only 64-bit references reach may lie elsewhere, and so be larger than what is left of the arena.
fn large_data_outside_the_arena() {
    if only_on_x86_64("there are no such sections") {
        return;
    }
    let source = "char weights[100 << 20]; int value(void) { volatile long i = 5; return weights[i] + 42; }";
    let bytes = compile_bytes("weights.c", source, &["-mcmodel=medium"]);
    let engine = Checked::of(JitEngine::builder().arena_size(32 << 20).build().unwrap());
    let library = engine.add_object(&bytes).unwrap();
    assert_eq!(value(&library).unwrap(), 42);
    assert_eq!(engine.stats().arena.outside_bytes, 100 << 20);
    drop(library);
    engine.finish();
}

fn hidden_symbols_across_many_objects() {
    let engine = Checked::new();
    let library = engine.library("many").build().unwrap();
    for i in 0..50 {
        let next = if i == 49 { "0".into() } else { format!("h{}()", i + 1) };
        let source = format!(
            "__attribute__((visibility(\"hidden\"))) int h{0}(void); char padding{i}[4 << 20];
             __attribute__((visibility(\"hidden\"))) int h{i}(void) {{ return padding{i}[9] + 1 + {next}; }}",
            i + 1
        );
        library.add_object(compile_bytes(&format!("hidden_{i}.c"), &source, &[])).unwrap();
    }
    let entry = "__attribute__((visibility(\"hidden\"))) int h0(void); int value(void) { return h0(); }";
    library.add_object(compile_bytes("hidden_entry.c", entry, &[])).unwrap();
    assert_eq!(value(&library).unwrap(), 50);
    common::freed(&library);
    engine.finish();
}

fn nothing_is_writable_and_executable_while_loading() {
    let bytes = compile_bytes("kinds.c", ALL_KINDS, &[]);
    let engine = Checked::new();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut looks = 0;
            while !done.load(Ordering::Relaxed) {
                common::assert_no_rwx();
                looks += 1;
            }
            looks
        });
        for _ in 0..300 {
            let library = engine.add_object(&bytes).unwrap();
            function(&library, "function");
            common::freed(&library);
        }
        done.store(true, Ordering::Relaxed);
        assert!(watcher.join().unwrap() > 10);
    });
    engine.finish();
}

// ---- limits of the process (each in one of its own) ----

fn limit_address_space(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a plain system call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

/// The arena is halved until it fits.
fn address_space_limit() {
    if not_under_qemu("it does not enforce RLIMIT_AS") {
        return;
    }
    common::good_object();
    limit_address_space(virtual_size() + (300 << 20));
    let engine = Checked::new();
    engine.assert_usable();
    engine.finish();
}

fn no_address_space() {
    if not_under_qemu("it does not enforce RLIMIT_AS") {
        return;
    }
    let _ = JitEngine::new().unwrap();
    limit_address_space(virtual_size() + (6 << 20));
    let error = JitEngine::new().expect_err("there is no room for 8 MiB");
    assert!(matches!(error, Error::Memory(MemoryError::AddressSpace { minimum: 0x80_0000, .. })), "{error:?}");
    limit_address_space(libc::RLIM_INFINITY);
    let engine = Checked::new();
    engine.assert_usable();
    engine.finish();
}

fn freed_pages_are_returned() {
    let bytes = compile_bytes(
        "fill.c",
        "char big[64 << 20]; int value(void) { __builtin_memset(big, 1, sizeof big); return big[7]; }",
        &[],
    );
    let engine = Checked::new();
    engine.assert_usable();
    let before = resident();
    let library = engine.add_object(&bytes).unwrap();
    assert_eq!(value(&library).unwrap(), 1);
    assert!(resident() > before + (60 << 20));
    common::freed(&library);
    drop(library);
    let after = resident();
    assert!(after < before + (by_qemu(4, 12) << 20), "{before} before, {after} after removal");
    engine.finish();
}

/// vm.max_map_count is 65530 by default: mappings may grow, but not by more than three for each object (R-X, R--, RW-).
fn mappings_do_not_grow_with_objects() {
    let bytes = compile_bytes("kinds.c", ALL_KINDS, &[]);
    let engine = Checked::new();
    engine.assert_usable();
    let before = mappings().len();
    let libraries: Vec<_> = (0..500).map(|_| engine.add_object(&bytes).unwrap()).collect();
    libraries.iter().for_each(|l| {
        function(l, "function");
    });
    let grown = mappings().len() - before;
    assert!(grown <= 3 * 500 + 16, "500 objects took {grown} mappings");
    drop(libraries);
    assert!(mappings().len() <= before + 16, "{} mappings, before {before}", mappings().len());
    engine.finish();
}

/// Where the last mapping is taken, malloc and the dynamic loader end the process. The refusal comes before, says what
/// to do, and what it says helps.
fn mappings_end_before_the_kernels_limit() {
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    let limit: usize = text.trim().parse().unwrap();
    if not_under_qemu("it would take minutes") {
        return;
    }
    if limit > 200_000 {
        println!("not run: vm.max_map_count is {limit}, which takes too long to reach");
        return;
    }
    let engine = Checked::of(common::per_object().build().unwrap());
    let bytes = compile_bytes("small.c", "int small(int x) { return x + 42; }", &[]);
    let call = |library: &Library| {
        // SAFETY: `int small(int)`.
        unsafe { library.get::<extern "C" fn(i32) -> i32>("small").map(|small| small(1)) }
    };
    // Each with a name of its own.
    let objects = |count: usize| {
        (0..count).map(|number| {
            let (mut bytes, digits) = (bytes.clone(), format!("{number:05}"));
            while let Some(at) = bytes.windows(5).position(|window| window == b"small" || window == b"SMALL") {
                bytes[at..at + 5].copy_from_slice(digits.as_bytes());
            }
            bytes
        })
    };
    let mut libraries = Vec::new();
    let (refused, error) = loop {
        assert!(libraries.len() < limit, "no end of mappings");
        let library = engine.add_object(&bytes).unwrap();
        match call(&library) {
            Ok(value) => assert_eq!(value, 43),
            Err(error) => break (library, error),
        }
        libraries.push(library);
    };
    let Error::Memory(MemoryError::MappingLimit { mappings: told, limit: allowed, .. }) = &error else {
        panic!("{error}")
    };
    assert_eq!(*allowed as usize, limit);
    let there = mappings().len();
    assert!(there.abs_diff(*told as usize) < 8, "{there} mappings, told {told}");
    assert!((limit - 2048..limit - 512).contains(&there), "{there} mappings of {limit}");
    let text = error.to_string();
    assert!(["vm.max_map_count", "SlabLayout::Packed", "remove"].iter().all(|word| text.contains(word)), "{text}");
    // A batch takes them when it is published, and not before.
    let batch = engine.add_objects(objects(5000)).unwrap();
    // SAFETY: there are no initialisers.
    let refused_batch = unsafe { batch.initialize() };
    assert!(matches!(refused_batch, Err(Error::Memory(MemoryError::MappingLimit { .. }))), "{refused_batch:?}");
    assert_eq!(mappings().len().abs_diff(there), 0);
    // Others have what they need.
    std::thread::spawn(|| drop(vec![1_u8; 64 << 20])).join().unwrap();
    assert!([0, libraries.len() - 1].iter().all(|at| call(&libraries[*at]).is_ok_and(|value| value == 43)));
    // Packed objects take no mapping each.
    let packed = JitEngine::builder().slab_layout(slabjit::SlabLayout::Packed).build().unwrap();
    let small: Vec<_> = (0..1000).map(|_| packed.add_object(&bytes).unwrap()).collect();
    assert!(small.iter().all(|library| call(library).unwrap() == 43));
    // Nor do larger ones, which have pages of their own until there are too many mappings.
    let source = "const char table[50000] = {1}; int small(int x) { return x + 41 + table[0]; }";
    let larger = compile_bytes("larger.c", source, &[]);
    let there = mappings().len();
    let larger: Vec<_> = (0..50).map(|_| packed.add_object(&larger).unwrap()).collect();
    assert!(larger.iter().all(|library| call(library).unwrap() == 43));
    let grown = mappings().len() - there;
    assert!(grown < 16, "50 objects took {grown} mappings");
    drop(larger);
    libraries.truncate(libraries.len() / 2);
    assert_eq!(call(&refused).unwrap(), 43, "nothing was lost");
    // As many as there would be room for if nobody thought of those that are not published yet.
    drop(libraries);
    let batch_of_all = engine.add_objects(objects(limit)).unwrap();
    // SAFETY: there are no initialisers.
    let error = unsafe { batch_of_all.initialize() }.unwrap_err();
    assert!(matches!(error, Error::Memory(MemoryError::MappingLimit { .. })), "{error}");
    // SAFETY: as above.
    unsafe { batch.initialize() }.expect("there is room now");
    drop((refused, small, packed, batch, batch_of_all));
    engine.finish();
}

/// Of malloc's memory: empty, and with an object that is linked and called.
fn a_namespace_takes_less_than_a_kibibyte() {
    const COUNT: usize = 10_000;
    const MOST: usize = 1024;
    // SAFETY: a plain call.
    let allocated = || unsafe { libc::mallinfo2() }.uordblks;
    let engine = JitEngine::new().unwrap();
    let object = compile_bytes("namespace.c", "int value(void) { return 7; }", &[]);
    let load = || {
        let library = engine.add_object(&object).unwrap();
        assert_eq!(common::call(&library, "value"), 7);
        library
    };
    // What is made once.
    let _first = load();
    let make = |number: usize| engine.library(&format!("library {number}")).build().unwrap();
    let mut libraries = Vec::with_capacity(2 * COUNT);
    let before = allocated();
    libraries.extend((0..COUNT).map(make));
    let empty = (allocated() - before) / COUNT;
    let before = allocated();
    libraries.extend((0..COUNT).map(|_| load()));
    let loaded = (allocated() - before) / COUNT;
    println!("{empty} bytes for an empty library, {loaded} for one with a function");
    assert!(empty <= MOST && loaded <= MOST, "{empty} and {loaded} bytes");
}

/// What tables grow out of, malloc keeps for the next.
fn resident_without_free_memory() -> usize {
    // SAFETY: it only gives back what is free.
    unsafe { libc::malloc_trim(0) };
    resident()
}

/// What the loader, debuggers and reports keep of a function (`Packed`), beside its name, which two of them have.
fn names_of_functions_take_few_bytes() {
    const MOST: usize = 80;
    const NAME: usize = "function_00".len();
    if not_under_qemu("it weighs this process") {
        return;
    }
    let engine = JitEngine::builder().slab_layout(SlabLayout::Packed).build().unwrap();
    if !engine.stats().arena.known_to_loader {
        println!("not weighed: the dynamic loader does not know the arena");
        return;
    }
    // Local functions, or labels, which are none.
    let object = |prefix: &str, functions: usize| {
        let mut source = String::from(".data\n.globl variable\nvariable: .quad .text\n.text\n");
        for i in 0..functions {
            let name = format!("{prefix}function_{i:02}");
            source += &format!(".type {name}, %function\n{name}: nop\n .size {name}, . - {name}\n");
        }
        compile_bytes(&format!("names{prefix}{functions}.s"), &source, &[])
    };
    let load = |object: &[u8], count: usize| {
        let load = |_| {
            let library = engine.add_object(object).unwrap();
            address(&library, "variable");
            library
        };
        let before = resident_without_free_memory();
        let libraries: Vec<Library> = (0..count).map(load).collect();
        (resident_without_free_memory() - before, libraries)
    };
    // Memory of what was removed would be used again, by one and not by the other.
    let mut kept = Vec::new();
    for (functions, objects) in [(1, 20_000), (40, 2000)] {
        let (nameless, named) = (object(".L", functions), object("", functions));
        let mut weigh = |object: &[u8], count: usize| {
            let (bytes, libraries) = load(object, count);
            kept.push(libraries);
            bytes
        };
        weigh(&nameless, 300);
        weigh(&named, 300);
        let (without, with) = (weigh(&nameless, objects), weigh(&named, objects));
        let each = (with - without) / objects / functions;
        println!("{functions} in an object: {each} bytes each, {} of them the name", 2 * (NAME + 1));
        assert!(each <= MOST + NAME + 1, "{each} bytes for one of {functions} functions");
    }
}
