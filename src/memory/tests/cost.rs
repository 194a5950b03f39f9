//! The cost of a small slab: `cargo test --release memory::tests::cost -- --ignored --nocapture --test-threads 1`.

use std::time::Instant;

use super::*;
use crate::memory::ranges::Ranges;
use crate::{ArenaPlacement, JitEngine};

/// Measures nanoseconds for each of `rounds` calls, the best of five passes.
fn best(rounds: usize, mut body: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        (0..rounds).for_each(|_| body());
        best = best.min(start.elapsed().as_nanos() as f64 / rounds as f64);
    }
    best
}

fn touch(start: usize, page: usize) {
    (0..3).for_each(|i| write(start + i * page, &[1]));
}

/// Does the work of JITLink's own manager for an object.
fn stock_map(page: usize) -> usize {
    // SAFETY: fresh memory, protected as a whole page each.
    unsafe {
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        let at = libc::mmap(std::ptr::null_mut(), 3 * page, rw, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        touch(at.expose_provenance(), page);
        libc::mprotect(at, page, libc::PROT_READ | libc::PROT_EXEC);
        libc::mprotect(at.byte_add(page), page, libc::PROT_READ);
        at.expose_provenance()
    }
}

fn stock_unmap(at: usize, page: usize) {
    // SAFETY: made by `stock_map`, and unmapped once.
    unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(at), 3 * page) };
}

fn slab(arena: &Arc<Arena>) -> PublishedSlab {
    let slab = arena
        .allocate(&"bench.o".into(), &small_object(), PlacementHints { shares: true, batch: false }, |_| {
            BlamedSection::default()
        })
        .unwrap();
    slab.placements().iter().for_each(|p| write(p.address, &[1]));
    slab.publish().unwrap()
}

#[test]
#[ignore = "a measurement"]
fn of_a_slab_of_three_pages() {
    let arena = arena(ArenaConfig::MAX);
    let page = arena.page();
    let rounds = 20_000;
    println!("allocate, touch three pages, publish, free, in ns");
    println!("  stock (mmap, 2 mprotect, munmap)  {:.0}", best(rounds, || stock_unmap(stock_map(page), page)));
    println!("  slab, populated                   {:.0}", best(rounds, || drop(slab(&arena))));
    println!("  slab, by page faults              {:.0}", without_populate(|| best(rounds, || drop(slab(&arena)))));

    const LIVE: usize = 5000;
    println!("with {LIVE} live: allocate to publish, and free, in ns each");
    for round in 0..2 {
        let start = Instant::now();
        let stock: Vec<_> = (0..LIVE).map(|_| stock_map(page)).collect();
        let middle = Instant::now();
        (0..LIVE).for_each(|i| stock_unmap(stock[i * 7 % LIVE], page));
        report("stock", round, start, middle, LIVE);

        let populated = || live_slabs(&arena, LIVE);
        let (start, middle) = populated();
        report("slab, populated", round, start, middle, LIVE);
        let (start, middle) = without_populate(populated);
        report("slab, by page faults", round, start, middle, LIVE);
    }
}

fn live_slabs(arena: &Arc<Arena>, live: usize) -> (Instant, Instant) {
    let start = Instant::now();
    let mut slabs: Vec<_> = (0..live).map(|_| Some(slab(arena))).collect();
    let middle = Instant::now();
    (0..live).for_each(|i| slabs[i * 7 % live] = None);
    (start, middle)
}

fn report(what: &str, round: usize, start: Instant, middle: Instant, n: usize) {
    let each = |d: std::time::Duration| d.as_nanos() as f64 / n as f64;
    println!("  pass {round}: {what:<22} {:>6.0} {:>6.0}", each(middle - start), each(middle.elapsed()));
}

/// Refuses populating without a system call, so that every page comes by a fault.
fn without_populate<R>(body: impl FnOnce() -> R) -> R {
    let (result, _) = fault::with(|_, call| call == Call::Populate, body);
    result
}

/// The cost of the search for a place near the libraries.
#[test]
#[ignore = "a measurement"]
fn of_an_engine() {
    let microseconds = |placement: ArenaPlacement| {
        best(200, || drop(JitEngine::builder().arena_placement(placement).build().unwrap())) / 1000.0
    };
    let maps = std::fs::read("/proc/self/maps").unwrap();
    println!("µs for an engine, with {} mappings", maps.iter().filter(|byte| **byte == b'\n').count());
    for _ in 0..3 {
        for placement in [ArenaPlacement::Anywhere, ArenaPlacement::PreferNearLibraries] {
            println!("  {:<20} {:.1}", format!("{placement:?}"), microseconds(placement));
        }
    }
}

#[test]
#[ignore = "a measurement"]
fn of_the_free_list() {
    for live in [1, 100, 10_000, 100_000] {
        let page = 4096;
        let mut ranges = Ranges::new(0..ArenaConfig::MAX, page);
        let mut random = 1_usize;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            random >> 33
        };
        let mut slabs: Vec<_> = (0..live).map(|_| ranges.allocate((1 + next() % 4) * page, page).unwrap()).collect();
        let each = best(200_000, || {
            let slot = next() % live;
            ranges.free(slabs[slot].clone());
            slabs[slot] = ranges.allocate((1 + next() % 4) * page, page).unwrap();
        });
        println!("{live:>7} live: free and allocate {each:.0} ns");
    }
}
