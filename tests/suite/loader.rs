//! What the dynamic loader says of loaded code: `dladdr`, `backtrace_symbols`, `dl_iterate_phdr`, `_dl_find_object`.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use slabjit::{ArenaPlacement, JitEngine, Library, SlabLayout};

use crate::common::{self, Random, call, child, compile, compile_bytes, freed, link_shared, tests, within};
use crate::target::{by_qemu, not_under_qemu, under_qemu};

tests![
    dladdr_says_what_it_says_of_a_shared_library,
    local_and_hidden_functions_have_names,
    backtraces_have_names,
    a_module_covers_the_arena,
    names_are_found_by_nobody,
    removed_functions_have_no_name,
    engines_are_modules_of_their_own,
    many_functions,
    threads_ask_while_others_load,
    frames_without_tables_end_a_search;
    // `every_placement`: arenas of other tests take the addresses near libraries.
    alone: every_placement, children_have_their_own, engines_in_initialisers, engines_in_callbacks_of_the_loader,
        threads_of_initialisers_have_engines, callbacks_and_loads_at_once, engines_at_exit, no_module_without_proc,
        others_take_the_addresses, symbols_are_used_again;
    parts: engines_at_exit_part,
];

/// A name, if there is one, with the offset of the address.
type Named = Option<(String, usize)>;

fn text(text: *const libc::c_char) -> Option<String> {
    // SAFETY: a string of the loader's or null, by the callers.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// The module and the function of an address, as `dladdr` says.
fn dladdr(address: usize) -> Option<(String, Named)> {
    // SAFETY: the record is filled by the call, and its texts are of modules that stay meanwhile, or of tables that do.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let found = libc::dladdr(address as *const c_void, &mut info) != 0;
        found.then(|| {
            let named = text(info.dli_sname).map(|name| (name, address - info.dli_saddr.addr()));
            (text(info.dli_fname).unwrap(), named)
        })
    }
}

/// The function, in a module of this crate's.
#[track_caller]
fn named(address: usize) -> Named {
    let (module, named) = dladdr(address).expect("no module has the address");
    assert!(module.contains("slabjit"), "{module}");
    named
}

fn known(engine: &JitEngine) -> bool {
    engine.stats().arena.known_to_loader
}

/// An engine with a module. There is none with an older glibc.
fn engine() -> Option<JitEngine> {
    of(JitEngine::builder().build().unwrap())
}

fn of(engine: JitEngine) -> Option<JitEngine> {
    let version = common::glibc();
    let possible = version >= (2, 36);
    assert_eq!(known(&engine), possible, "glibc {version:?}");
    if !possible {
        println!("not run: glibc {version:?} has no module where it is wanted");
    }
    possible.then_some(engine)
}

fn initialized(engine: &JitEngine, object: &[u8]) -> Library {
    let library = engine.add_object(object).unwrap();
    // SAFETY: of the tests, without initialisers.
    unsafe { library.initialize().unwrap() };
    library
}

fn functions(library: &Library) -> BTreeMap<String, Range<usize>> {
    library.functions().unwrap().into_iter().map(|function| (function.name, function.addresses)).collect()
}

const SOURCE: &str = "
    int first(int n) { return n * 5; }
    int second(int n) { return n ^ 7; }
    __attribute__((aligned(64))) int third(int n) { volatile int k = n; while (k > 3) k /= 2; return -k; }
    __attribute__((weak)) int fourth(int n) { return n ? fourth(n - 1) * third(n) : 1; }
    __attribute__((alias(\"second\"))) int also_second(int n);
    int data[4];
";

/// Each byte of all functions and between them.
fn dladdr_says_what_it_says_of_a_shared_library() {
    let Some(engine) = engine() else { return };
    let object = compile("dladdr_all.c", SOURCE, &[]);
    let shared = link_shared("dladdr_all.so", &[&object], &[]);
    // SAFETY: it has no initialisers of its own.
    let opened = unsafe { libloading::Library::new(shared).unwrap() };
    let library = initialized(&engine, &std::fs::read(&object).unwrap());
    let ours = functions(&library);
    assert!(["first", "second", "also_second", "third", "fourth"].iter().all(|name| ours.contains_key(*name)));
    let start = ours["first"].start;
    let end = ours.values().map(|range| range.end).max().unwrap();
    // SAFETY: nothing is called.
    let theirs = unsafe { opened.get::<*const u8>(b"first\0").unwrap().addr() };
    let (mut gaps, mut with_names) = (0, 0);
    for offset in 0..end - start {
        let (one, other) = (named(start + offset), dladdr(theirs + offset).unwrap().1);
        // Either name of one function.
        let unaliased = |named: Named| named.map(|(name, offset)| (name.replace("also_second", "second"), offset));
        assert_eq!(unaliased(one.clone()), unaliased(other), "offset {offset}");
        gaps += usize::from(one.is_none());
        with_names += usize::from(one.is_some());
    }
    assert!(gaps > 0 && with_names > 40, "{gaps}, {with_names}");
    // It stays open, as its texts are lent.
    std::mem::forget(opened);
}

fn local_and_hidden_functions_have_names() {
    let source = "static __attribute__((noinline)) int inner(int n) { volatile int k = n; return k * 3; }
        __attribute__((visibility(\"hidden\"))) int hidden_one(int n) { return inner(n) + 1; }
        int outer(int n) { return hidden_one(n) + inner(n); }";
    for layout in [SlabLayout::PerObject, SlabLayout::Packed] {
        let Some(engine) = of(JitEngine::builder().slab_layout(layout).build().unwrap()) else { return };
        let library = initialized(&engine, &compile_bytes("local.c", source, &["-O2", "-fno-inline"]));
        let functions = functions(&library);
        assert!(["inner", "hidden_one", "outer"].iter().all(|name| functions.contains_key(*name)), "{functions:?}");
        for (name, addresses) in functions {
            for address in addresses.clone() {
                assert_eq!(named(address), Some((name.clone(), address - addresses.start)));
            }
        }
    }
}

unsafe extern "C" {
    fn backtrace(addresses: *mut *mut c_void, most: c_int) -> c_int;
    fn backtrace_symbols(addresses: *const *mut c_void, count: c_int) -> *mut *mut libc::c_char;
}

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

unsafe extern "C" fn take_backtrace() {
    let mut addresses = [std::ptr::null_mut(); 64];
    // SAFETY: room for as many; the texts are one block of malloc's.
    unsafe {
        let count = backtrace(addresses.as_mut_ptr(), 64);
        let texts = backtrace_symbols(addresses.as_ptr(), count);
        *LINES.lock().unwrap() = (0..count as usize).map(|i| text(*texts.add(i)).unwrap()).collect();
        libc::free(texts.cast());
    }
}

const CALLING: &str = "
    static __attribute__((noinline)) int within(void (*f)(void)) { f(); return 1; }
    int calls(void (*f)(void)) { return within(f) + 1; }";

fn backtraces_have_names() {
    let Some(engine) = engine() else { return };
    let library = engine.add_object(compile_bytes("calling.c", CALLING, &["-fno-inline"])).unwrap();
    // SAFETY: it is such a function.
    unsafe { library.get::<unsafe extern "C" fn(unsafe extern "C" fn()) -> c_int>("calls").unwrap()(take_backtrace) };
    let lines = LINES.lock().unwrap();
    let at = lines.iter().position(|line| line.contains("slabjit(within+0x")).unwrap_or_else(|| panic!("{lines:?}"));
    assert!(lines[at + 1].contains("slabjit(calls+0x"), "{lines:?}");
}

/// A search for an address that no frame describes comes to the module, and finds nothing there.
fn frames_without_tables_end_a_search() {
    let Some(engine) = engine() else { return };
    let flags = ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fno-inline"];
    let library = engine.add_object(compile_bytes("no_tables.c", CALLING, &flags)).unwrap();
    // SAFETY: it is such a function.
    unsafe { library.get::<unsafe extern "C" fn(unsafe extern "C" fn()) -> c_int>("calls").unwrap()(take_backtrace) };
    let lines = LINES.lock().unwrap();
    assert!(!lines.iter().any(|line| line.contains("calls+")), "{lines:?}");
}

/// Addresses of the module that `dl_iterate_phdr` has for an address, and whether it says that they may be run.
fn module_at(address: usize) -> Option<(Range<usize>, bool)> {
    struct Search {
        address: usize,
        found: Option<(Range<usize>, bool)>,
    }
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
        // SAFETY: by the call below, and by the loader.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
        // SAFETY: the loader's headers.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD) {
            let start = (info.dlpi_addr + header.p_vaddr) as usize;
            let range = start..start + header.p_memsz as usize;
            if range.contains(&search.address) {
                search.found = Some((range, header.p_flags == libc::PF_R | libc::PF_X));
            }
        }
        0
    }
    let mut search = Search { address, found: None };
    // SAFETY: the callback gets what it expects.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

/// `struct dl_find_object` (dlfcn.h).
#[repr(C)]
struct Found {
    flags: u64,
    start: usize,
    end: usize,
    map: *const usize,
    frames: *const c_void,
    reserved: [u64; 7],
}

/// The module that `_dl_find_object` has for an address.
fn object_at(address: usize) -> Option<Range<usize>> {
    // SAFETY: a function of glibc's from 2.35 on, and room for what it writes.
    unsafe {
        let find = libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr());
        assert!(!find.is_null());
        let find: unsafe extern "C" fn(usize, *mut Found) -> c_int = std::mem::transmute(find);
        let mut found: Found = std::mem::zeroed();
        (find(address, &mut found) == 0).then_some(found.start..found.end)
    }
}

fn a_module_covers_the_arena() {
    for size in [8 << 20, 64 << 20, usize::MAX] {
        let Some(engine) = of(JitEngine::builder().arena_size(size).build().unwrap()) else { return };
        let arena = engine.arena();
        for address in [arena.start, arena.start + arena.len() / 2, arena.end - 1] {
            assert_eq!(module_at(address), Some((arena.clone(), true)));
            let found = object_at(address).unwrap();
            assert!(found.start < arena.start && found.end == arena.end, "{found:x?} {arena:x?}");
            assert_eq!(named(address), None);
        }
        common::assert_no_rwx();
        drop(engine);
        // Another thread may take them at once.
        assert!(module_at(arena.start).is_none_or(|(module, _)| module != arena));
    }
}

fn names_are_found_by_nobody() {
    let Some(engine) = engine() else { return };
    let object = compile_bytes("alone.c", "int of_the_engine_only(void) { return 3; }", &[]);
    let library = engine.add_object(object).unwrap();
    assert_eq!(call(&library, "of_the_engine_only"), 3);
    let name = c"of_the_engine_only".as_ptr();
    // SAFETY: plain calls with strings.
    unsafe {
        assert!(libc::dlsym(libc::RTLD_DEFAULT, name).is_null());
        let all = libc::dlopen(std::ptr::null(), libc::RTLD_NOW);
        assert!(libc::dlsym(all, name).is_null());
        libc::dlclose(all);
    }
    let source = "extern __attribute__((weak)) int of_the_engine_only(void);
        int asks(void) { return of_the_engine_only ? of_the_engine_only() : -1; }";
    let shared = link_shared("libasks.so", &[&compile("asks.c", source, &[])], &[]);
    // SAFETY: without initialisers.
    let opened = unsafe { libloading::Library::new(shared).unwrap() };
    // SAFETY: it is such a function.
    assert_eq!(unsafe { opened.get::<unsafe extern "C" fn() -> c_int>(b"asks\0").unwrap()() }, -1);
    assert!(named(common::int(&library, "of_the_engine_only").address() as usize).is_some());
}

fn removed_functions_have_no_name() {
    let objects = ["one", "the_other_with_a_longer_name"]
        .map(|name| (name, compile_bytes(&format!("{name}.c"), &format!("int {name}(void) {{ return 1; }}"), &[])));
    for quarantine in [0, 64 << 20] {
        let Some(engine) = of(JitEngine::builder().quarantine(quarantine).build().unwrap()) else { return };
        let mut again = BTreeMap::<usize, usize>::new();
        for round in 0..200 {
            let (name, object) = &objects[round % 2];
            let library = initialized(&engine, object);
            let address = functions(&library)[*name].start;
            let behind = initialized(&engine, &objects[1].1);
            assert_eq!(named(address), Some(((*name).to_owned(), 0)), "round {round}");
            freed(&library);
            assert_eq!(named(address), None, "round {round}");
            freed(&behind);
            *again.entry(address).or_default() += 1;
        }
        assert!(quarantine > 0 || again.values().any(|times| *times > 50), "{again:?}");
    }
}

/// Functions come and go: their symbols do, too, once nothing is known of them any more.
fn symbols_are_used_again() {
    const ROUNDS: usize = 3000;
    if not_under_qemu("what is resident is mostly qemu's own") {
        return;
    }
    let Some(engine) = of(JitEngine::builder().quarantine(1 << 20).build().unwrap()) else { return };
    let object = compile_bytes("again.s", &assembly("again", 100), &[]);
    let round = || {
        let library = initialized(&engine, &object);
        assert_eq!(functions(&library).len(), 100);
        freed(&library);
    };
    (0..ROUNDS).for_each(|_| round());
    let before = common::resident();
    (0..ROUNDS).for_each(|_| round());
    let more = common::resident().saturating_sub(before);
    // Symbols alone would take 24 bytes a function.
    assert!(more < ROUNDS * 100 * 24 / 4, "{more} bytes more");
}

fn engines_are_modules_of_their_own() {
    let object = |n: usize| compile_bytes(&format!("of_{n}.c"), &format!("int of_{n}(void) {{ return {n}; }}"), &[]);
    let engines: Option<Vec<JitEngine>> = (0..5).map(|_| engine()).collect();
    let Some(engines) = engines else { return };
    let mut loaded: Vec<(JitEngine, Library, String)> = Vec::new();
    for (n, engine) in engines.into_iter().enumerate() {
        let library = initialized(&engine, &object(n));
        loaded.push((engine, library, format!("of_{n}")));
    }
    while !loaded.is_empty() {
        for (engine, library, name) in &loaded {
            let start = functions(library)[name].start;
            assert_eq!(named(start), Some((name.clone(), 0)));
            assert_eq!(module_at(start).map(|(module, _)| module), Some(engine.arena()));
        }
        loaded.remove(loaded.len() / 2);
    }
}

/// Assembly of functions `PREFIX_N` of 16 bytes.
fn assembly(prefix: &str, count: usize) -> String {
    let function = |n| {
        format!(
            ".globl {prefix}_{n}\n.type {prefix}_{n},%function\n{prefix}_{n}: ret\n.size {prefix}_{n},.-{prefix}_{n}\n.balign 16\n"
        )
    };
    (0..count).map(function).collect::<String>()
}

fn many_functions() {
    const COUNT: usize = 20_000;
    let Some(engine) = engine() else { return };
    let count = by_qemu(COUNT, 2000);
    let object = compile_bytes("many.s", &format!(".text\n.balign 16\n{}", assembly("many", count)), &[]);
    let small = compile_bytes("few.s", &format!(".text\n.balign 16\n{}", assembly("few", 3)), &[]);
    let few = initialized(&engine, &small);
    for _ in 0..2 {
        let library = initialized(&engine, &object);
        let functions = functions(&library);
        assert_eq!(functions.len(), count);
        let mut random = Random::new(1);
        for _ in 0..500 {
            let name = format!("many_{}", random.below(count));
            assert_eq!(named(functions[&name].start), Some((name.clone(), 0)));
        }
        freed(&library);
        assert!(functions.values().step_by(997).all(|range| named(range.start).is_none()));
    }
    for (name, addresses) in functions(&few) {
        assert_eq!(named(addresses.start), Some((name, 0)));
    }
}

fn threads_ask_while_others_load() {
    let Some(engine) = of(JitEngine::builder().quarantine(0).build().unwrap()) else { return };
    let objects: Vec<Vec<u8>> = (0..12)
        .map(|n| {
            let prefix = format!("load_{}", "x".repeat(n * 7));
            compile_bytes(&format!("load{n}.s"), &format!(".text\n.balign 16\n{}", assembly(&prefix, 1 + n * n)), &[])
        })
        .collect();
    let stays = initialized(&engine, &compile_bytes("stays.s", &format!(".text\n{}", assembly("stays", 3)), &[]));
    let stays = functions(&stays).into_iter().map(|(name, range)| (name, range.start)).collect::<Vec<_>>();
    let done = AtomicBool::new(false);
    let arena = engine.arena();
    std::thread::scope(|scope| {
        let (done, stays, arena) = (&done, &stays, &arena);
        let asking: Vec<_> = (0..3)
            .map(|seed| {
                scope.spawn(move || {
                    let (mut random, mut asked) = (Random::new(seed), 0_usize);
                    while !done.load(Ordering::Relaxed) {
                        let (name, start) = &stays[random.below(stays.len())];
                        assert_eq!(named(*start), Some((name.clone(), 0)));
                        // Whatever is there now: the first megabyte is in use again and again.
                        let address = arena.start + random.below(1 << 20);
                        let (module, _) = dladdr_only(address);
                        assert!(module);
                        asked += 1;
                    }
                    asked
                })
            })
            .collect();
        let loading: Vec<_> = (0..2)
            .map(|seed| {
                let (engine, objects) = (&engine, &objects);
                scope.spawn(move || {
                    let (mut random, mut live) = (Random::new(seed + 10), Vec::new());
                    for _ in 0..by_qemu(2000, 50) {
                        if live.len() < 20 {
                            live.push(initialized(engine, &objects[random.below(objects.len())]));
                        } else {
                            let library: Library = live.swap_remove(random.below(live.len()));
                            freed(&library);
                        }
                    }
                })
            })
            .collect();
        loading.into_iter().for_each(|thread| thread.join().unwrap());
        done.store(true, Ordering::Relaxed);
        assert!(asking.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>() > 100);
    });
}

/// Whether a module and a name are there; the name's text may change.
fn dladdr_only(address: usize) -> (bool, bool) {
    // SAFETY: the record is filled by the call.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let found = libc::dladdr(address as *const c_void, &mut info) != 0;
        // Its end is found at any time.
        let named = found && !info.dli_sname.is_null();
        (found, named && libc::strlen(info.dli_sname) < 1 << 20)
    }
}

fn every_placement() {
    let here = every_placement as *const () as usize;
    let mut placements =
        vec![ArenaPlacement::PreferNearLibraries, ArenaPlacement::Anywhere, ArenaPlacement::Near { address: here }];
    // qemu-user loads ld.so and libraries at both ends of the address space.
    if !under_qemu() {
        placements.extend([ArenaPlacement::NearLibraries, ArenaPlacement::Low2GiB]);
    }
    let object = compile_bytes("placed.c", "int placed(void) { return 4; }", &[]);
    for placement in placements {
        let build = || JitEngine::builder().arena_placement(placement).arena_size(32 << 20).build().unwrap();
        // The next one lies beside it.
        let Some(engines) = [of(build()), of(build())].into_iter().collect::<Option<Vec<_>>>() else { return };
        for engine in engines {
            let library = engine.add_object(&object).unwrap();
            assert_eq!(call(&library, "placed"), 4);
            let address = common::int(&library, "placed").address() as usize;
            assert_eq!(named(address), Some(("placed".to_owned(), 0)), "{placement:?}");
            let arena = engine.arena();
            assert!((32 << 20) - arena.len() <= rustix::param::page_size(), "{arena:x?}");
            match placement {
                ArenaPlacement::Low2GiB => assert!(arena.end < 1 << 31),
                ArenaPlacement::Near { .. } => {
                    assert!(arena.start.abs_diff(here).max(arena.end.abs_diff(here)) < 1 << 31)
                }
                _ => {}
            }
        }
    }
}

/// Runs `body` in a child, which ends with 0 if it returns.
fn in_child(body: impl FnOnce()) {
    // SAFETY: the child goes on as this thread, and ends without unwinding into what is the parent's.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            libc::alarm(by_qemu(60, 300) as u32);
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            libc::_exit(i32::from(ended.is_err()));
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert_eq!(status, 0);
    }
}

fn children_have_their_own() {
    let Some(engine) = engine() else { return };
    let objects = ["before", "in_child_1", "in_parent"]
        .map(|name| compile_bytes(&format!("{name}.c"), &format!("int {name}(void) {{ return 1; }}"), &[]));
    let before = initialized(&engine, &objects[0]);
    let removed = initialized(&engine, &objects[2]);
    let start = |library: &Library, name: &str| functions(library)[name].start;
    let (stays, goes) = (start(&before, "before"), start(&removed, "in_parent"));
    in_child(|| {
        assert_eq!(named(stays), Some(("before".to_owned(), 0)));
        let library = initialized(&engine, &objects[1]);
        let address = start(&library, "in_child_1");
        assert_eq!(named(address), Some(("in_child_1".to_owned(), 0)));
        removed.remove();
        assert_eq!(named(goes), None);
        let other = self::engine().unwrap();
        let library = initialized(&other, &objects[1]);
        assert_eq!(named(start(&library, "in_child_1")), Some(("in_child_1".to_owned(), 0)));
        // The grandchild inherits both.
        in_child(|| {
            assert_eq!(named(address), Some(("in_child_1".to_owned(), 0)));
            assert_eq!(named(start(&library, "in_child_1")), Some(("in_child_1".to_owned(), 0)));
        });
        let arena = other.arena();
        drop((library, other));
        assert_eq!(module_at(arena.start), None);
    });
    assert_eq!(named(goes), Some(("in_parent".to_owned(), 0)));
    assert_eq!(named(stays), Some(("before".to_owned(), 0)));
    let library = initialized(&engine, &objects[2]);
    assert_eq!(named(start(&library, "in_parent")), Some(("in_parent".to_owned(), 0)));
    // A child in which the last holder is dropped.
    let arena = engine.arena();
    in_child(move || {
        drop((before, removed, library, engine));
        assert_eq!(module_at(arena.start), None);
    });
}

/// Makes an engine, uses it and drops it. Returns whether it had a module.
fn make_use_and_drop() -> bool {
    let engine = JitEngine::builder().arena_size(32 << 20).build().unwrap();
    static OBJECT: OnceLock<Vec<u8>> = OnceLock::new();
    let object = || compile_bytes("short.c", "int short_lived(void) { return 9; }", &[]);
    let library = engine.add_object(OBJECT.get_or_init(object)).unwrap();
    assert_eq!(call(&library, "short_lived"), 9);
    known(&engine)
}

static KEPT: Mutex<Option<JitEngine>> = Mutex::new(None);

unsafe extern "C" fn in_initialiser() {
    assert!(make_use_and_drop());
    *KEPT.lock().unwrap() = Some(JitEngine::new().unwrap());
}

/// A thread that is ready makes it 1; 2 lets it go on, and it ends with 3.
static TURN: AtomicU32 = AtomicU32::new(0);

fn wait_for_turn(turn: u32) {
    while TURN.load(Ordering::Acquire) != turn {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// An initialiser that waits for a thread.
unsafe extern "C" fn has_a_thread_wait() {
    TURN.store(2, Ordering::Release);
    wait_for_turn(3);
}

unsafe extern "C" fn in_finaliser() {
    drop(KEPT.lock().unwrap().take());
    assert!(make_use_and_drop());
}

fn engines_in_initialisers() {
    if engine().is_none() {
        return;
    }
    make_use_and_drop();
    let source = "__attribute__((constructor)) static void init(void) { ((void (*)(void))INIT)(); }
        __attribute__((destructor)) static void fini(void) { ((void (*)(void))FINI)(); }";
    let at = |name, function: unsafe extern "C" fn()| format!("-D{name}={:#x}", function as *const () as usize);
    let flags = [at("INIT", in_initialiser), at("FINI", in_finaliser)];
    let object = compile("making.c", source, &[&flags[0], &flags[1]]);
    let shared = link_shared("libmaking.so", &[&object], &[]);
    within(Duration::from_secs(60), "engines in initialisers", move || {
        // SAFETY: the initialiser and the finaliser above.
        let opened = unsafe { libloading::Library::new(shared).unwrap() };
        let arena = KEPT.lock().unwrap().as_ref().unwrap().arena();
        assert_eq!(module_at(arena.start).unwrap().0, arena);
        drop(opened);
        assert!(KEPT.lock().unwrap().is_none());
        assert_eq!(module_at(arena.start), None);
    });
}

fn threads_of_initialisers_have_engines() {
    let Some(before) = engine() else { return };
    let arena = before.arena();
    let source = "__attribute__((constructor)) static void init(void) { ((void (*)(void))INIT)(); }";
    let flag = format!("-DINIT={:#x}", has_a_thread_wait as *const () as usize);
    let shared = link_shared("libthread.so", &[&compile("thread.c", source, &[&flag])], &[]);
    within(Duration::from_secs(60), "a thread of an initialiser", move || {
        let thread = std::thread::spawn(|| {
            // What a thread asks the loader for once.
            assert!(make_use_and_drop());
            TURN.store(1, Ordering::Release);
            wait_for_turn(2);
            let known = known(&JitEngine::builder().arena_size(8 << 20).build().unwrap());
            drop(before);
            TURN.store(3, Ordering::Release);
            assert!(!known, "it waits for the initialiser");
        });
        wait_for_turn(1);
        // SAFETY: the initialiser above.
        let opened = unsafe { libloading::Library::new(shared).unwrap() };
        thread.join().unwrap();
        assert!(module_at(arena.start).is_some(), "it was closed in an initialiser's thread");
        drop((opened, engine()));
        assert_eq!(module_at(arena.start), None);
    });
}

fn iterate(mut body: impl FnMut()) {
    unsafe extern "C" fn run(_: *mut libc::dl_phdr_info, _: usize, body: *mut c_void) -> c_int {
        // SAFETY: by the call below.
        unsafe { (*body.cast::<&mut dyn FnMut()>())() };
        0
    }
    let mut body: &mut dyn FnMut() = &mut body;
    // SAFETY: the callback gets what it expects; it does not unwind unless the test fails.
    unsafe { libc::dl_iterate_phdr(Some(run), (&raw mut body).cast()) };
}

fn engines_in_callbacks_of_the_loader() {
    let Some(first) = engine() else { return };
    make_use_and_drop();
    let arena = first.arena();
    let mut first = Some(first);
    iterate(|| {
        assert!(!make_use_and_drop(), "a module was opened in a callback");
        drop(first.take());
        assert!(module_at(arena.start).is_some(), "it was closed in a callback");
    });
    // It is closed by the next one.
    assert!(make_use_and_drop());
    assert_eq!(module_at(arena.start), None);
}

/// The loader's two locks are taken in one order only.
fn callbacks_and_loads_at_once() {
    if engine().is_none() {
        return;
    }
    let shared = link_shared("libnothing.so", &[&compile("nothing.c", "int nothing;", &[])], &[]);
    let name = CString::new(shared.to_str().unwrap()).unwrap();
    make_use_and_drop();
    within(Duration::from_secs(100), "callbacks and loads", move || {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // SAFETY: a library without initialisers.
                    unsafe { libc::dlclose(libc::dlopen(name.as_ptr(), libc::RTLD_NOW)) };
                }
            });
            scope.spawn(|| {
                for _ in 0..by_qemu(300, 10) {
                    drop(JitEngine::builder().arena_size(8 << 20).build().unwrap());
                }
            });
            let mut outside = Vec::new();
            for _ in 0..by_qemu(60, 3) {
                outside.push(JitEngine::builder().arena_size(8 << 20).build().unwrap());
                iterate(|| {
                    drop(JitEngine::builder().arena_size(8 << 20).build().unwrap());
                    drop(outside.pop());
                });
            }
            done.store(true, Ordering::Relaxed);
        });
    });
}

fn engines_at_exit() {
    let end = child("engines_at_exit_part");
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(["true before\ntrue at exit\n", "false before\nfalse at exit\n"].contains(&&*end.stdout), "{end:?}");
}

fn engines_at_exit_part() {
    extern "C" fn end() {
        drop(KEPT.lock().unwrap().take());
        let engine = JitEngine::new().unwrap();
        println!("{} at exit", known(&engine));
    }
    let engine = JitEngine::new().unwrap();
    println!("{} before", known(&engine));
    *KEPT.lock().unwrap() = Some(engine);
    // SAFETY: a function that stays.
    assert_eq!(unsafe { libc::atexit(end) }, 0);
}

/// Not seen by the loader, but otherwise as with a module.
fn without_a_module() {
    let engine = JitEngine::new().unwrap();
    assert!(!known(&engine));
    let library = engine.add_object(compile_bytes("unseen.c", "int unseen(void) { return 6; }", &[])).unwrap();
    assert_eq!(call(&library, "unseen"), 6);
    assert_eq!(dladdr(common::int(&library, "unseen").address() as usize), None);
    freed(&library);
    let arena = engine.arena();
    drop((library, engine));
    assert_eq!(module_at(arena.start), None);
}

fn no_module_without_proc() {
    #[cfg(slabjit_faults)]
    {
        use slabjit::fault::{self, Call};
        for refused in [
            Call::ReserveTables,
            Call::CreateImage,
            Call::SizeImage,
            Call::WriteImage,
            Call::OpenImage,
            Call::WriteModule,
            Call::MapArena,
            Call::Release,
        ] {
            let (_, calls) = fault::with(move |_, call| call == refused, without_a_module);
            assert!(calls.contains(&refused), "{refused:?}");
            common::assert_no_rwx();
        }
        // No room for names is no reason to have no module.
        let object = compile_bytes("unnamed.c", "int unnamed(void) { return 2; }", &[]);
        let engine = JitEngine::new().unwrap();
        let load = || {
            let library = engine.add_object(&object).unwrap();
            assert_eq!(call(&library, "unnamed"), 2);
            named(common::int(&library, "unnamed").address() as usize)
        };
        assert_eq!(fault::with(|_, call| call == Call::GrowTable, load).0, None);
        assert_eq!(load(), Some(("unnamed".to_owned(), 0)));
    }
    // Files that the parts above have compiled are there.
    let proc = std::path::Path::new("/proc");
    drop(compile_bytes("unseen.c", "int unseen(void) { return 6; }", &[]));
    if let Err(error) = common::mount_alone().and_then(|()| common::mount(proc, 0, c"size=4k")) {
        println!("not run: nothing can be mounted here: {error}");
        return;
    }
    without_a_module();
    // SAFETY: a string that ends with NUL.
    assert_eq!(unsafe { libc::umount(c"/proc".as_ptr()) }, 0);
    assert!(make_use_and_drop());
}

/// Others map something there while the arena is given to the loader.
fn others_take_the_addresses() {
    #[cfg(slabjit_faults)]
    {
        use std::cell::Cell;
        use std::rc::Rc;

        use slabjit::fault::{self, Call};

        let page = rustix::param::page_size();
        let place = ArenaPlacement::Near { address: 40 << 35 };
        let build = || JitEngine::builder().arena_placement(place).arena_size(32 << 20).build().unwrap();
        let Some(first) = of(build()) else { return };
        let arena = first.arena();
        drop(first);
        let take = move |at: usize| {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            // SAFETY: a mapping of the test's, where there is none.
            let mapped = unsafe { libc::mmap(at as *mut c_void, page, libc::PROT_NONE, flags, -1, 0) };
            assert_eq!(mapped.addr(), at);
        };
        // SAFETY: what was mapped by it.
        let give_back = move |at: usize| unsafe { assert_eq!(libc::munmap(at as *mut c_void, page), 0) };
        let middle = arena.start + (16 << 20);
        // Once or each time; for a moment or for good.
        for (times, stays) in [(1, false), (2, false), (100, false), (1, true)] {
            let (there, taken) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
            let (in_there, in_taken) = (Rc::clone(&there), Rc::clone(&taken));
            let disturb = move |_, call| {
                if !stays && in_there.replace(false) {
                    give_back(middle);
                }
                if call == Call::OpenImage && in_taken.get() < times {
                    in_taken.set(in_taken.get() + 1);
                    take(middle);
                    in_there.set(true);
                }
                false
            };
            let (engine, _) = fault::with(disturb, build);
            assert_eq!(taken.get(), times.min(3));
            assert_eq!(known(&engine), times < 3);
            // Where it has stayed, another place was found.
            assert_eq!(engine.arena() == arena, !stays, "{times}, {stays}: {:x?} {arena:x?}", engine.arena());
            let library = engine.add_object(compile_bytes("raced.c", "int raced(void) { return 8; }", &[])).unwrap();
            assert_eq!(call(&library, "raced"), 8);
            drop((library, engine));
            if there.get() {
                give_back(middle);
            }
        }
    }
}
