//! `SlabLayout::Packed`: small objects share pages, and nothing else.

use std::collections::HashSet;
use std::ops::Range;

use slabjit::{JitEngine, JitEngineBuilder, Library, PackedMode, SlabLayout};

use crate::common::{
    self, Checked, Mapping, call, child, compile, compile_bytes, freed, int, mapping_at, mappings, tests,
};
use crate::target::{by_qemu, not_under_qemu, only_on_x86_64, under_qemu};

tests![
    neighbours_share_pages_and_are_told_apart, what_reaches_less_has_one_slab, code_has_two_views, large_objects_have_a_slab,
    pages_may_be_striped, stale_data_reads_as_zero_and_stale_pages_trap, removed_objects_make_room;
    alone: memory_of_many_is_given_back, many_objects_take_few_mappings, only_links_can_write_where_it_is_hardened, children_do_not_get_the_writable_view,
        parent_and_child_part_ways, a_limit_of_file_sizes_is_no_signal, code_cannot_be_changed_from_elsewhere;
    parts: limited_part, stale_data_part, limited_growth_part,
];

fn packed() -> JitEngineBuilder {
    JitEngine::builder().slab_layout(SlabLayout::Packed)
}

/// An object of its own for each number.
fn numbered(number: i32) -> Vec<u8> {
    static ONE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    const MARK: i32 = 0x5bad_c0de;
    let source =
        "static const volatile int number = 0x5badc0de; static int calls; int value(void) { calls++; return number; }
        int count(void) { return calls; }";
    let mut bytes = ONE.get_or_init(|| compile_bytes("numbered.c", source, &[])).clone();
    let at = bytes.windows(4).position(|w| w == MARK.to_le_bytes()).unwrap();
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn page(address: usize) -> usize {
    address / rustix::param::page_size()
}

fn many_objects_take_few_mappings() {
    let engine = Checked::of(packed().build().unwrap());
    let before = mappings().len();
    let all: Vec<_> = (0..by_qemu(2000, 300) as i32).map(|i| (i, engine.add_object(numbered(i)).unwrap())).collect();
    assert!(all.iter().all(|(i, library)| call(library, "value") == *i));
    // Code and constants, each with what is not used yet; data; the second view.
    let more = mappings().len() - before;
    assert!(more <= 16, "{more} mappings");
    common::assert_no_rwx();
    // In another order, and while others go on.
    let (even, odd): (Vec<_>, Vec<_>) = all.into_iter().partition(|(i, _)| i % 2 == 0);
    odd.iter().for_each(|(_, library)| freed(library));
    for (i, library) in &even {
        assert_eq!((call(library, "value"), call(library, "count")), (*i, 2));
    }
    drop((even, odd));
    engine.finish();
}

fn neighbours_share_pages_and_are_told_apart() {
    let engine = Checked::of(packed().build().unwrap());
    let all: Vec<_> = (0..20).map(|i| engine.add_object_named(&format!("{i}.o"), numbered(i)).unwrap()).collect();
    let addresses: Vec<usize> = all.iter().map(|library| int(library, "value").address().addr()).collect();
    let pages: HashSet<usize> = addresses.iter().map(|address| page(*address)).collect();
    assert!(pages.len() <= 2, "{addresses:x?}");
    for ((address, library), i) in addresses.iter().zip(&all).zip(0..) {
        let told = engine.explain_address(*address as *const ()).unwrap();
        assert_eq!((told.object.as_str(), told.removed), (&*format!("{i}.o"), None));
        let slabs = library.slab_of("value").unwrap();
        let own = slabs.iter().find(|slab| slab.addresses.contains(address)).unwrap();
        assert_eq!(told.offset, address - own.addresses.start);
        // A list of ranges, one for each protection.
        let protections: Vec<_> = slabs.iter().map(|slab| slab.segments[0].protection).collect();
        assert!(protections.is_sorted() && protections.len() == 3, "{slabs:x?}");
    }
    let generations: HashSet<u64> =
        addresses.iter().map(|a| engine.explain_address(*a as *const ()).unwrap().generation).collect();
    assert_eq!(generations.len(), all.len());
    drop(all);
    engine.finish();
}

/// The mappings of memory that has two views.
fn views() -> impl Iterator<Item = Mapping> {
    mappings().into_iter().filter(|m| m.name.contains("memfd:slabjit "))
}

/// Those through which code and constants can be written.
fn writable_views() -> Vec<Range<usize>> {
    views().filter(|m| m.permissions.contains('w')).map(|m| m.start..m.end).collect()
}

/// Asserts that all code and constants in an arena can be written elsewhere.
fn assert_all_have_two_views(engine: &JitEngine) {
    let arena = engine.arena();
    let read: usize = views().filter(|m| arena.contains(&m.start)).map(|m| m.end - m.start).sum();
    let written: usize = writable_views().iter().map(ExactSizeIterator::len).sum();
    assert!(read == written && read != 0, "{read} bytes, of which {written} can be written");
}

fn code_has_two_views() {
    let engine = Checked::of(packed().build().unwrap());
    let library = engine.add_object(numbered(5)).unwrap();
    assert_eq!(call(&library, "value"), 5);
    assert_eq!(engine.stats().arena.packed, Some(PackedMode::TwoViews));
    let code = int(&library, "value").address().addr();
    let rights = mapping_at(code).permissions[..3].to_owned();
    // qemu-user shows what is mapped by itself as it is.
    assert!(rights == "r-x" || under_qemu() && rights == "r--", "{rights}");
    // Not where it could be computed from the arena's address.
    let arena = engine.arena();
    for view in writable_views() {
        assert!(view.end <= arena.start || arena.end <= view.start, "{view:x?} is in {arena:x?}");
    }
    drop(library);
    engine.finish();
}

fn only_links_can_write_where_it_is_hardened() {
    if not_under_qemu("its list of mappings does not tell shared memory") {
        return;
    }
    let engine = Checked::of(packed().hardened(true).build().unwrap());
    let mut all = Vec::new();
    for i in 0..50 {
        let library = engine.add_object(numbered(i)).unwrap();
        assert_eq!(call(&library, "value"), i);
        assert!(writable_views().is_empty());
        all.push(library);
        if i % 3 == 0 {
            freed(&all.swap_remove(all.len() / 2));
            assert!(writable_views().is_empty());
        }
    }
    drop(all);
    // The other way it can be seen.
    let engine = packed().build().unwrap();
    let library = engine.add_object(numbered(1)).unwrap();
    assert_eq!(call(&library, "value"), 1);
    assert_all_have_two_views(&engine);
}

/// A child that says with its exit code whether `body` held.
fn in_child(body: impl FnOnce() -> bool) {
    // SAFETY: the child goes on as this thread, and ends without what is the parent's.
    unsafe {
        libc::alarm(120);
        let child = libc::fork();
        if child == 0 {
            libc::alarm(120);
            let held = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(false);
            libc::_exit(i32::from(!held));
        }
        let mut status = -1;
        assert_eq!((libc::waitpid(child, &mut status, 0), status), (child, 0), "the child's end");
    }
}

fn children_do_not_get_the_writable_view() {
    if not_under_qemu("it ignores MADV_DONTFORK") {
        return;
    }
    let engine = packed().build().unwrap();
    let library = engine.add_object(numbered(3)).unwrap();
    assert_eq!(call(&library, "value"), 3);
    in_child(|| writable_views().is_empty() && call(&library, "value") == 3 && call(&library, "count") == 2);
    in_child(|| {
        // It has memory of its own for what it loads.
        let own = engine.add_object(numbered(4)).unwrap();
        call(&own, "value") == 4 && call(&library, "value") == 3
    });
    assert_eq!(call(&library, "count"), 1);
}

fn bytes_at(range: &Range<usize>) -> Vec<u8> {
    // SAFETY: the caller's library has them, and nobody writes there.
    unsafe { std::slice::from_raw_parts(range.start as *const u8, range.len()) }.to_vec()
}

/// Neither sees what the other one loads, removes and overwrites: not even in the rest of pages in which it has
/// something.
fn parent_and_child_part_ways() {
    let engine = packed().quarantine(0).build().unwrap();
    let kept: Vec<_> = (0..10).map(|i| engine.add_object(numbered(i)).unwrap()).collect();
    assert!(kept.iter().zip(0..).all(|(library, i)| call(library, "value") == i));
    let slabs: Vec<_> = kept.iter().map(|library| library.slab_of("value").unwrap()).collect();
    // All of the pages, and what is behind in the same pool, but for data, which each has for itself.
    let page_size = rustix::param::page_size();
    let constant: Vec<Range<usize>> = slabs[0][..2]
        .iter()
        .map(|slab| slab.addresses.start / page_size * page_size)
        .map(|start| start..start + 4 * page_size)
        .collect();
    let before: Vec<_> = constant.iter().map(bytes_at).collect();
    let [mut to_child, mut to_parent] = [std::io::pipe().unwrap(), std::io::pipe().unwrap()];
    // SAFETY: as above.
    let pid = unsafe { libc::fork() };
    let work = |first: i32| {
        // Every second one goes, and others come and go.
        kept.iter().step_by(2).for_each(freed);
        let others: Vec<Library> = (first..first + 300).map(|i| engine.add_object(numbered(i)).unwrap()).collect();
        assert!(others.iter().zip(first..).all(|(library, i)| call(library, "value") == i));
        others.iter().step_by(3).for_each(freed);
        assert!(kept.iter().zip(0..).skip(1).step_by(2).all(|(library, i)| call(library, "value") == i));
    };
    use std::io::{Read as _, Write as _};
    if pid == 0 {
        let held = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // SAFETY: a plain call.
            unsafe { libc::alarm(120) };
            // The parent has done its work.
            to_child.0.read_exact(&mut [0]).unwrap();
            let after: Vec<_> = constant.iter().map(bytes_at).collect();
            assert!(after == before, "the parent's changes are seen");
            assert!(kept.iter().zip(0..).all(|(library, i)| call(library, "value") == i));
            work(10_000);
            to_parent.1.write_all(&[1]).unwrap();
        }));
        // SAFETY: ends without what is the parent's.
        unsafe { libc::_exit(i32::from(held.is_err())) };
    }
    work(1000);
    to_child.1.write_all(&[1]).unwrap();
    to_parent.0.read_exact(&mut [0]).unwrap();
    // What the parent itself removed goes with the last of its unit only.
    let after: Vec<_> = constant.iter().map(bytes_at).collect();
    assert!(after == before, "what was there before the fork was overwritten");
    work(2000);
    let mut status = -1;
    // SAFETY: the child of above.
    assert_eq!((unsafe { libc::waitpid(pid, &mut status, 0) }, status), (pid, 0), "the child's end");
}

/// A difference of one byte, between sections of different protections.
fn what_reaches_less_has_one_slab() {
    if only_on_x86_64("there, bytes and half-words have no relative relocations that JITLink has") {
        return;
    }
    let source = ".text\n.globl value\nvalue: movl $7, %eax\n ret\n
        .section .rodata\n.globl distance\ndistance: .byte value - .\n .zero 3\n";
    let mut near = true;
    let engine = Checked::of(packed().out_of_range(slabjit::OutOfRange::Reject).build().unwrap());
    let library = engine.add_object(std::fs::read(compile("narrow.s", source, &[])).unwrap()).unwrap();
    // It is further than a byte reaches even so: what counts is that it is said, and that nothing of it is packed.
    // SAFETY: int (void).
    if let Err(error) = unsafe { library.get::<common::Int>("value") } {
        assert!(matches!(error, slabjit::Error::Link(slabjit::LinkError::ReferencesOutOfRange { .. })), "{error:?}");
        near = false;
    }
    assert!(!near, "a page is more than a byte reaches");
    drop(library);
    // 16 bits reach the next page.
    let source = source.replace(".byte value - .", ".short value - .");
    let library = engine.add_object(std::fs::read(compile("narrow.s", &source, &[])).unwrap()).unwrap();
    assert_eq!(call(&library, "value"), 7);
    let slabs = library.slab_of("value").unwrap();
    assert_eq!(slabs.len(), 1, "{slabs:x?}");
    // SAFETY: two bytes of constants.
    let (place, distance) = unsafe {
        let symbol = library.get::<*const i16>("distance").unwrap();
        (symbol.address().addr(), *symbol.address().cast::<i16>())
    };
    assert_eq!(place.wrapping_add_signed(distance.into()), int(&library, "value").address().addr());
    drop(library);
    engine.finish();
}

fn large_objects_have_a_slab() {
    let engine = Checked::of(packed().build().unwrap());
    let source = "static const char table[300000] = {1}; int value(void) { volatile long i = 0; return table[i]; }";
    let library = engine.add_object(compile_bytes("large.c", source, &[])).unwrap();
    assert_eq!(call(&library, "value"), 1);
    assert_eq!(library.slab_of("value").unwrap().len(), 1);
    drop(library);
    engine.finish();
}

fn pages_may_be_striped() {
    let engine = Checked::of(packed().page_striped(true).build().unwrap());
    assert_eq!(engine.stats().arena.packed, Some(PackedMode::PageStriped));
    let all: Vec<_> = (0..50).map(|i| engine.add_object(numbered(i)).unwrap()).collect();
    assert!(all.iter().zip(0..).all(|(library, i)| call(library, "value") == i));
    let pages: HashSet<usize> = all.iter().map(|library| page(int(library, "value").address().addr())).collect();
    assert_eq!(pages.len(), all.len(), "no two are in one page");
    drop(all);
    engine.finish();
}

/// Resident bytes of shared memory, by the pages of all views.
fn shared() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("RssShmem:")).expect("RssShmem in /proc/self/status");
    line.trim().trim_end_matches("kB").trim().parse::<usize>().unwrap() * 1024
}

const KERNEL: &str = "const char table[12500] = {1}; int value(void) { volatile long i = 0; return table[i]; }";

fn memory_of_many_is_given_back() {
    if not_under_qemu("the memory is qemu's, too") {
        return;
    }
    let engine = Checked::of(packed().build().unwrap());
    let bytes = compile_bytes("kernel.c", KERNEL, &[]);
    let mut all: Vec<_> = (0..1600).map(|_| engine.add_object(&bytes).unwrap()).collect();
    assert!(all.iter().all(|library| call(library, "value") == 1));
    let most = shared();
    assert!(most >= 1600 * 12_500, "{most}");
    let last = all.split_off(1599);
    all.iter().for_each(freed);
    let left = shared();
    assert!(left < 2 << 20, "{left} of {most}");
    assert_eq!(call(&last[0], "value"), 1);
    drop(last);
    engine.finish();
}

/// A process whose files may not be large gets a signal for it, unless it asks before.
fn a_limit_of_file_sizes_is_no_signal() {
    if not_under_qemu("it does not enforce RLIMIT_FSIZE") {
        return;
    }
    common::good_object();
    let end = child("limited_part");
    assert_eq!((end.code, end.stdout.trim()), (Some(0), "PageStriped"), "{end:?}");
    let end = child("limited_growth_part");
    assert_eq!((end.code, end.stdout.trim()), (Some(0), "true, TwoViews"), "{end:?}");
}

/// What is packed first is less.
fn limited_growth_part() {
    let kernel = compile_bytes("kernel.c", KERNEL, &[]);
    common::limit(libc::RLIMIT_FSIZE, 1 << 20);
    let engine = packed().build().unwrap();
    let all: Vec<_> = (0..80).map(|_| engine.add_object(&kernel).unwrap()).collect();
    assert!(all.iter().all(|library| call(library, "value") == 1));
    let own = all.iter().filter(|library| library.slab_of("value").unwrap().len() == 1).count();
    println!("{}, {:?}", own > 0 && own < 80, engine.stats().arena.packed.unwrap());
}

fn limited_part() {
    let bytes = numbered(9);
    common::limit(libc::RLIMIT_FSIZE, 4096);
    let engine = packed().build().unwrap();
    let library = engine.add_object(bytes).unwrap();
    assert_eq!(call(&library, "value"), 9);
    println!("{:?}", engine.stats().arena.packed.unwrap());
}

/// What a library that is removed leaves in `Packed`, as `JitEngineBuilder::quarantine` says: stale calls trap; stale
/// data does not, until all of its 64 KiB is removed.
fn stale_data_reads_as_zero_and_stale_pages_trap() {
    let end = child("stale_data_part");
    assert_eq!((end.signal, end.stdout.trim()), (Some(libc::SIGSEGV), "written"), "{end:?}");
}

fn stale_data_part() {
    use std::io::Write as _;
    let source = "int data = 42; const int constant[9] = {43}; int value(void) { return data; }";
    let (engine, bytes) = (packed().build().unwrap(), compile_bytes("stale.c", source, &[]));
    let neighbour = engine.add_object(&bytes).unwrap();
    assert_eq!(call(&neighbour, "value"), 42);
    let library = engine.add_object(&bytes).unwrap();
    // SAFETY: only addresses are taken; what is read and written there is removed data, as the test is about.
    unsafe {
        let data = *library.get::<*mut i32>("data").unwrap();
        let constant = *library.get::<*const i32>("constant").unwrap();
        assert_eq!((data.read_volatile(), constant.read_volatile()), (42, 43));
        freed(&library);
        assert_eq!((data.read_volatile(), constant.read_volatile()), (0, 0));
        data.write_volatile(7);
    }
    assert_eq!(call(&neighbour, "value"), 42);
    // Enough that the first of all that is removed is not kept for the next.
    let source = "char data[100000] = {1}; int value(void) { return 42; }";
    let bytes = compile_bytes("large.c", source, &[]);
    let all: Vec<_> = (0..20).map(|_| engine.add_object(&bytes).unwrap()).collect();
    // SAFETY: as above.
    let first = unsafe { *all[0].get::<*const u8>("data").unwrap() };
    assert!(all.iter().all(|library| call(library, "value") == 42));
    all.iter().for_each(freed);
    println!("written");
    std::io::stdout().flush().unwrap();
    // In its second unit: something of the first one lives.
    // SAFETY: none: this is what must trap.
    println!("read {}", unsafe { first.add(80_000).read_volatile() });
}

/// Those that are removed wait for others, and so do their addresses; not where there is no other room.
fn removed_objects_make_room() {
    // Near libraries there may be less room, as other tests have engines there.
    let builder = packed().arena_size(8 << 20).arena_placement(slabjit::ArenaPlacement::Anywhere);
    let engine = builder.build().unwrap();
    let source = "char data[30000] = {1}; int value(void) { return 42; }";
    let bytes = compile_bytes("thirty.c", source, &[]);
    let mut all = Vec::new();
    let fill = |all: &mut Vec<Library>| {
        loop {
            let library = engine.add_object(&bytes).unwrap();
            // SAFETY: `value` is int(void).
            match unsafe { library.get::<extern "C" fn() -> i32>("value") } {
                Ok(value) => assert_eq!(value(), 42),
                Err(error) => return assert!(error.to_string().contains("arena"), "{error}"),
            }
            all.push(library);
        }
    };
    fill(&mut all);
    let most = all.len();
    assert!(most > 150, "{most}");
    for gone in [1, 3, 10] {
        all.drain(7..7 + gone).for_each(|library| freed(&library));
        fill(&mut all);
        assert_eq!(all.len(), most, "{gone} were removed");
    }
}

// ---- who may change code ----

/// Everything that a process may try without the engine, or its child, to change code that is loaded. What worked.
fn attacks(code: usize) -> Vec<String> {
    let mut worked = Vec::new();
    let mut attack = |what: &str, works: bool| worked.extend(works.then(|| what.to_owned()));
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let path = entry.unwrap().path();
        let name = std::fs::read_link(&path).unwrap_or_default();
        if name.to_string_lossy().contains("memfd:slabjit ") {
            let number: i32 = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
            let rwx = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
            // SAFETY: writes a byte of a file, and maps fresh addresses.
            unsafe {
                attack("pwrite", libc::pwrite(number, [0_u8].as_ptr().cast(), 1, 1 << 20) == 1);
                let mapped = libc::mmap(std::ptr::null_mut(), 4096, rwx, libc::MAP_SHARED, number, 0);
                attack("mmap RWX", mapped != libc::MAP_FAILED);
            }
            attack("open", std::fs::OpenOptions::new().write(true).open(&path).is_ok());
        }
    }
    for mapping in mappings().iter().filter(|mapping| mapping.name.contains("memfd:slabjit ")) {
        let path = format!("/proc/self/map_files/{:x}-{:x}", mapping.start, mapping.end);
        attack("map_files", std::fs::OpenOptions::new().write(true).open(&path).is_ok());
        attack("map_files, to read", std::fs::File::open(path).is_ok());
    }
    let page_size = rustix::param::page_size();
    let at = std::ptr::with_exposed_provenance_mut::<libc::c_void>(code & !(page_size - 1));
    let (rw, x) = (libc::PROT_READ | libc::PROT_WRITE, libc::PROT_EXEC);
    // SAFETY: the page keeps its rights where this is refused, which is what is tested; a copy of it is nobody's.
    unsafe {
        attack("mprotect RW", libc::mprotect(at, page_size, rw) == 0);
        attack("mprotect RWX", libc::mprotect(at, page_size, rw | x) == 0);
        let copy = libc::mremap(at, 0, page_size, libc::MREMAP_MAYMOVE);
        attack("mremap, mprotect", copy != libc::MAP_FAILED && libc::mprotect(copy, page_size, rw) == 0);
    }
    if let Ok(memory) = std::fs::OpenOptions::new().write(true).open("/proc/self/mem") {
        attack("/proc/self/mem", std::os::unix::fs::FileExt::write_at(&memory, &[0], code as u64).is_ok());
    }
    worked
}

/// With CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE, all memory of all processes can be opened.
fn drop_capabilities() {
    #[repr(C)]
    struct Header(u32, i32);
    // SAFETY: _LINUX_CAPABILITY_VERSION_3, this thread; three words twice, as that version has them.
    let dropped = unsafe { libc::syscall(libc::SYS_capset, &Header(0x2008_0522, 0), [0_u32; 6].as_ptr()) };
    assert_eq!(dropped, 0);
}

fn code_cannot_be_changed_from_elsewhere() {
    if not_under_qemu("its mprotect asks the host for other rights than the program does") {
        return;
    }
    let bytes = numbered(11);
    drop_capabilities();
    for hardened in [false, true] {
        let engine = Checked::of(packed().hardened(hardened).build().unwrap());
        let library = engine.add_object(&bytes).unwrap();
        assert_eq!(call(&library, "value"), 11);
        let code = int(&library, "value").address().addr();
        in_child(|| attacks(code).is_empty() && call(&library, "value") == 11);
        assert_eq!(attacks(code), [""; 0]);
        match hardened {
            true => assert_eq!(writable_views(), []),
            false => assert_all_have_two_views(&engine),
        }
        assert_eq!(call(&library, "value"), 11);
        drop(library);
        engine.finish();
    }
}
