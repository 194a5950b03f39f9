//! Our memory manager compared with JITLink's, of slabjit-stock:
//! `RUSTFLAGS="--cfg slabjit_faults" cargo test --release memory::tests::managers -- --ignored --nocapture
//! --test-threads 1`.

use std::time::Instant;

use super::*;

/// Code and constants, as JITLink requests them for an object with one function.
fn one_function() -> [SegmentRequest; 2] {
    let [code, constants, _] = small_object();
    [code, constants]
}

/// Measures seconds for each of `count` objects, with `live` others: first to allocate, write, publish and record its
/// memory, then to free it.
fn manager_time(arena: &Arc<Arena>, live: usize, count: usize) -> [f64; 2] {
    let load = || {
        let company = PlacementHints { shares: true, batch: false };
        let slab = arena.allocate(&"bench.o".into(), &one_function(), company, |_| BlamedSection::default()).unwrap();
        slab.placements().iter().for_each(|placed| write(placed.written, &[1; 100]));
        let mut slab = slab.publish().unwrap();
        slab.belong_to(&"library".into(), &"bench.o".into(), &Default::default());
        slab
    };
    let mut all: Vec<_> = (0..live).map(|_| load()).collect();
    let start = Instant::now();
    all.extend((0..count).map(|_| load()));
    let loaded = start.elapsed();
    let start = Instant::now();
    all.truncate(live);
    [loaded, start.elapsed()].map(|time| time.as_secs_f64() / count as f64)
}

/// Compares with JITLink's in-process memory manager.
#[test]
#[ignore = "a measurement"]
fn of_memory_managers() {
    const ROUNDS: usize = 9;
    const COUNT: usize = 2000;
    let folder = tempfile::tempdir().unwrap();
    let (c, o) = (folder.path().join("small.c"), folder.path().join("small.o"));
    std::fs::write(&c, "int kernel(int x) { return x + 42; }").unwrap();
    let compiled = std::process::Command::new("cc").args(["-O2", "-fPIC", "-c", "-o"]).arg(&o).arg(&c).status();
    assert!(compiled.unwrap().success());
    let object = std::fs::read(&o).unwrap();
    let stock = |live| {
        let mut seconds = [0.0; 2];
        // SAFETY: bytes and their number, and a place for two numbers.
        let error = unsafe {
            let bytes = object.as_ptr().cast();
            slabjit_stock::slabjit_stock_manager_time(bytes, object.len(), live, COUNT, &mut seconds)
        };
        assert!(error.is_null());
        seconds
    };
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    for live in [1000, 20_000] {
        let config = ArenaConfig::default();
        let packed = ArenaConfig { packed: Some(PackedConfig::default()), ..config.clone() };
        let arenas = [config, packed].map(|config| Arena::reserve(&config).unwrap());
        let sides = |side: usize| if side == 0 { stock(live) } else { manager_time(&arenas[side - 1], live, COUNT) };
        let rounds: Vec<[[f64; 2]; 3]> = (0..ROUNDS)
            .map(|round| {
                let mut times = [[0.0; 2]; 3];
                (0..3).map(|k| (round + k) % 3).for_each(|side| times[side] = sides(side));
                times
            })
            .collect();
        for (side, name) in [(1, "PerObject"), (2, "Packed")] {
            let part = |of: fn(&[f64; 2]) -> f64| {
                let ratio = median(rounds.iter().map(|times| of(&times[side]) / of(&times[0])).collect());
                let [ours, theirs] =
                    [side, 0].map(|s| median(rounds.iter().map(|times| of(&times[s])).collect()) * 1e6);
                format!("{ratio:.2} ({ours:.2} of {theirs:.2} µs)")
            };
            let (give, take, all) = (part(|t| t[0]), part(|t| t[1]), part(|t| t[0] + t[1]));
            println!("{live:>6} live, {name:<9} give {give}, take back {take}, together {all}");
        }
    }
}
