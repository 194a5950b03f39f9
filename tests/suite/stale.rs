//! Addresses of what was removed: they trap, nobody else gets them for a while, and it can be told whose they were.

use std::fmt::Write as _;
use std::sync::OnceLock;

use crate::common::{self, Checked, Int, child, compile_bytes, freed, int};
use slabjit::{Explanation, JitEngine};

common::tests![
    stale_pointer_traps,
    stale_call_is_explained_by_a_signal_handler,
    stale_addresses_are_not_reused,
    without_a_quarantine_addresses_are_reused,
    live_addresses_are_explained,
    long_names_are_cut,
    quarantine_gives_way_to_a_full_arena,
    memory_is_reused_where_addresses_are_not,
    nothing_of_removed_objects_shows_between_sections,
    stale_pointer_traps_though_others_have_its_memory;
    parts: stale_part, stale_large_part, explained_part,
];

fn stale_part() {
    let engine = JitEngine::new().unwrap();
    let library = engine.add_object_file(common::good_object()).unwrap();
    // SAFETY: what it is called for.
    let stale: Int = *int(&library, "text");
    freed(&library);
    println!("removed");
    // SAFETY: none: this is what must trap.
    unsafe { stale() };
    println!("returned");
}

fn stale_pointer_traps() {
    let end = child("stale_part");
    assert_eq!(end.signal, Some(common::stale_signal()), "{end:?}");
    assert_eq!(end.stdout, "removed\n");
}

static ENGINE: OnceLock<JitEngine> = OnceLock::new();

/// A place for text that needs no memory.
struct Text([u8; 512], usize);

impl std::fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.get_mut(self.1..self.1 + text.len()).ok_or(std::fmt::Error)?.copy_from_slice(text.as_bytes());
        self.1 += text.len();
        Ok(())
    }
}

extern "C" fn explain(signal: libc::c_int, info: *const libc::siginfo_t, context: *const libc::c_void) {
    // SAFETY: a handler is given the context, and one of SIGSEGV the address; write and _exit may be called from it.
    unsafe {
        let address = if signal == libc::SIGSEGV { (*info).si_addr() } else { common::trapped_at(context) };
        let mut text = Text([0; 512], 0);
        match ENGINE.get().and_then(|engine| engine.explain_address(address as *const ())) {
            Some(explanation) => write!(text, "{explanation}").unwrap(),
            None => text.write_str("unknown").unwrap(),
        }
        libc::write(1, text.0.as_ptr().cast(), text.1);
        libc::_exit(42);
    }
}

fn explained_part() {
    let engine = ENGINE.get_or_init(|| JitEngine::new().unwrap());
    let library = engine.add_object_named("kernels/gone.o", std::fs::read(common::good_object()).unwrap()).unwrap();
    let stale: Int = *int(&library, "text");
    freed(&library);
    // Others do not make it forgotten, nor do they come to lie there.
    let others: Vec<_> = (0..100).map(|_| engine.add_object_file(common::good_object()).unwrap()).collect();
    others.iter().for_each(|other| assert_ne!(int(other, "text").address(), stale as *const ()));
    drop(others);
    // SAFETY: the handler has this signature; the stale call is what must trap.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = explain as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(common::stale_signal(), &raw const action, std::ptr::null_mut()), 0);
        stale();
    }
    println!("returned");
}

fn stale_call_is_explained_by_a_signal_handler() {
    let end = child("explained_part");
    assert_eq!(end.code, Some(42), "{end:?}");
    assert!(
        end.stdout.starts_with("text+0x0 in 'kernels/gone.o' of library 'kernels/gone.o' (generation 1), offset 0x"),
        "{end:?}"
    );
    assert!(end.stdout.contains(" of its slab, removed 0."), "{end:?}");
}

fn explained(engine: &JitEngine, address: *const ()) -> Explanation {
    engine.explain_address(address).unwrap_or_else(|| panic!("nothing is known of {address:?}"))
}

/// Over a thousand removals and loads, in engines of which each has other addresses at rest.
fn stale_addresses_are_not_reused() {
    let engine = Checked::new();
    let bytes = compile_bytes("stale.c", "int stale(void) { return 7; }", &[]);
    let mut seen = std::collections::HashMap::new();
    for i in 0..1000_u64 {
        let library = engine.add_object_named(&format!("{i}.o"), &bytes).unwrap();
        let address = int(&library, "stale").address();
        let told = explained(&engine, address);
        assert_eq!((told.object.as_str(), told.removed), (&*format!("{i}.o"), None));
        assert_eq!(seen.insert(address, (i, told.generation)), None, "{address:?} had another object before");
        freed(&library);
    }
    for (address, (i, generation)) in seen {
        let told = explained(&engine, address);
        assert_eq!((told.object.as_str(), told.generation), (&*format!("{i}.o"), generation));
        assert!(told.removed.is_some());
    }
    engine.finish();
}

fn without_a_quarantine_addresses_are_reused() {
    let engine = Checked::of(JitEngine::builder().quarantine(0).build().unwrap());
    let bytes = compile_bytes("stale.c", "int stale(void) { return 7; }", &[]);
    let mut generations = Vec::new();
    let addresses = [(); 2].map(|()| {
        let library = engine.add_object(&bytes).unwrap();
        let address = int(&library, "stale").address();
        generations.push(explained(&engine, address).generation);
        freed(&library);
        assert_eq!(engine.explain_address(address), None);
        address
    });
    assert_eq!(addresses[0], addresses[1]);
    assert_ne!(generations[0], generations[1]);
    engine.finish();
}

fn live_addresses_are_explained() {
    let engine = Checked::new();
    let library = engine.library("model").build().unwrap();
    for (object, value) in [("first.o", 1), ("second.o", 2)] {
        let source = format!("int table{value}[5000] = {{1}}; int value{value}(void) {{ return {value}; }}");
        library.add_object_named(object, compile_bytes("explained.c", &source, &[])).unwrap();
    }
    for (object, name) in [("first.o", "value1"), ("second.o", "value2"), ("first.o", "table1"), ("second.o", "table2")]
    {
        // SAFETY: nothing is called.
        let symbol = unsafe { library.get::<*const u8>(name).unwrap() };
        for inside in [symbol.as_raw(), symbol.as_raw().wrapping_add(3)] {
            let told = explained(&engine, inside.cast());
            assert_eq!((&*told.library, &*told.object, told.removed), ("model", object, None));
            let slabs = library.slab_of(name).unwrap();
            let slab = slabs.iter().find(|slab| slab.addresses.contains(&inside.addr())).unwrap();
            assert_eq!(told.offset, inside.addr() - slab.addresses.start);
        }
    }
    for nobody in [crate::main as *const (), std::ptr::null(), std::ptr::without_provenance(usize::MAX)] {
        assert_eq!(engine.explain_address(nobody), None);
    }
    freed(&library);
    engine.finish();
}

fn long_names_are_cut() {
    let engine = Checked::new();
    let name = format!("/cache/{}/kernel.o", "0123456789abcdef".repeat(8));
    let library = engine.add_object_named(&name, std::fs::read(common::good_object()).unwrap()).unwrap();
    let told = explained(&engine, int(&library, "text").address());
    assert!(name.ends_with(told.object.strip_prefix('…').unwrap()) && told.object.ends_with("/kernel.o"), "{told}");
    freed(&library);
    engine.finish();
}

/// Whatever rests, all of the arena can be had.
fn quarantine_gives_way_to_a_full_arena() {
    let engine = Checked::of(JitEngine::builder().arena_size(8 << 20).quarantine(1 << 30).build().unwrap());
    let bytes = compile_bytes("filling.c", "const char filling[1 << 20] = {1}; int stale(void) { return 7; }", &[]);
    for _ in 0..30 {
        let library = engine.add_object(&bytes).unwrap();
        assert_eq!(common::call(&library, "stale"), 7);
        freed(&library);
        assert!(engine.stats().arena.quarantined_bytes <= 8 << 20);
    }
    engine.finish();
}

/// Code and constants of 300 KB, on pages of their own with either layout.
fn large_object() -> Vec<u8> {
    compile_bytes("large.c", "const char table[300000] = {6}; int stale(void) { return table[0] + 1; }", &[])
}

/// The next large object gets the memory of a removed one, and nobody the addresses.
fn memory_is_reused_where_addresses_are_not() {
    const LIMIT: usize = 1 << 20;
    let object = large_object();
    for limit in [LIMIT, 0] {
        let engine = Checked::of(JitEngine::builder().warm_pages(limit).build().unwrap());
        let mut seen = Vec::new();
        for _ in 0..10 {
            let library = engine.add_object(&object).unwrap();
            assert_eq!(common::call(&library, "stale"), 7);
            let address = int(&library, "stale").address();
            assert!(!seen.contains(&address), "{address:?} is used again");
            freed(&library);
            let warm = engine.stats().arena.warm_bytes;
            if limit == 0 {
                assert_eq!(warm, 0)
            } else {
                assert!((300_000..=LIMIT).contains(&warm), "{warm}")
            }
            seen.push(address);
            assert!(seen.iter().all(|address| explained(&engine, *address).removed.is_some()));
        }
        engine.finish();
    }
}

/// What lies between sections is zero, though others have had the memory.
fn nothing_of_removed_objects_shows_between_sections() {
    let engine = Checked::of(JitEngine::new().unwrap());
    for bytes in [300_000, 250_001, 299_990] {
        let source = format!(
            ".section .rodata.a, \"a\"\n.globl first\nfirst: .fill {bytes}, 1, 0xa5\n\
             .section .rodata.b, \"a\"\n.balign 4096\n.globl second\nsecond: .fill 5000, 1, 0xa5\n"
        );
        let library = engine.add_object(compile_bytes("gaps.s", &source, &[])).unwrap();
        // SAFETY: of this type, whatever is there.
        let [first, second] = ["first", "second"].map(|name| unsafe { library.get::<*const u8>(name).unwrap() });
        // SAFETY: the pages of a segment, which has both sections; the second ends within one.
        let all =
            unsafe { std::slice::from_raw_parts(*first, second.address().addr() + 8192 - first.address().addr()) };
        let (first_bytes, rest) = all.split_at(bytes);
        let (gap, rest) = rest.split_at(rest.len() - 8192);
        let (second_bytes, behind) = rest.split_at(5000);
        assert!(first_bytes.iter().chain(second_bytes).all(|byte| *byte == 0xa5));
        assert!(gap.iter().chain(behind).all(|byte| *byte == 0), "{bytes}");
        drop((first, second));
        freed(&library);
    }
    engine.finish();
}

fn stale_large_part() {
    let engine = JitEngine::new().unwrap();
    let object = large_object();
    let library = engine.add_object(&object).unwrap();
    // SAFETY: what it is called for.
    let stale: Int = *int(&library, "stale");
    freed(&library);
    let next = engine.add_object(&object).unwrap();
    println!("{}", common::call(&next, "stale"));
    // SAFETY: none: this is what must trap.
    unsafe { stale() };
    println!("returned");
}

fn stale_pointer_traps_though_others_have_its_memory() {
    let end = child("stale_large_part");
    assert_eq!((end.signal, end.stdout.as_str()), (Some(libc::SIGSEGV), "7\n"), "{end:?}");
}
