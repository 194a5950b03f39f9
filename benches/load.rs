//! From bytes to the first call, and removal, beside stock LLJIT of the same LLVM with JITLink and its in-process
//! memory manager (LLVM 15 and 16, too, where LLJIT does not choose that by itself).
//!
//! `cargo bench --bench load` prints ratios (ours / stock; below 1 is better) of medians of interleaved rounds in one
//! run, with 1000 live objects, and resident memory per object measured in a process for each side. It asserts nothing
//! but that answers are right.

#[path = "../tests/stock/lljit.rs"]
mod lljit;
mod objects;

use std::ffi::{CStr, CString};
use std::process::Command;
use std::time::{Duration, Instant};

use lljit::{Linker, Lljit, Tracker};
use objects::Template;
use slabjit::{JitEngine, Library, SlabLayout, Symbol};

type Kernel = unsafe extern "C" fn(i32) -> i32;

const LIVE: usize = 1000;
const ROUNDS: usize = 15;
const PER_ROUND: usize = 200;
const LAYOUTS: [(&str, SlabLayout); 2] = [("PerObject", SlabLayout::PerObject), ("Packed", SlabLayout::Packed)];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.iter().position(|a| a == "--rss") {
        Some(at) => print_rss(&arguments[at + 1], arguments.get(at + 2).map_or(LIVE, |n| n.parse().unwrap())),
        None => compare(),
    }
}

fn compare() {
    let objects = Template::small();
    println!(
        "LLVM {}, {} live objects of {} bytes, medians of {ROUNDS} interleaved rounds of {PER_ROUND}",
        slabjit::llvm_version(),
        LIVE,
        objects.len()
    );

    let (mut stock, mut ours) = (Stock::new(), LAYOUTS.map(|(_, layout)| Ours::new(layout)));
    let live: Vec<usize> = (0..LIVE).collect();
    stock.add(&objects, &live);
    ours.iter_mut().for_each(|ours| ours.add(&objects, &live));
    let mut times: Vec<[Times; 3]> = Vec::new();
    for round in 0..ROUNDS + 1 {
        let names: Vec<usize> = (0..PER_ROUND).map(|i| LIVE + round * PER_ROUND + i).collect();
        let mut sides = [Times::default(); 3];
        // Take turns in who goes first: the next finds warmer caches.
        for side in (0..3).map(|k| (round + k) % 3) {
            sides[side] = match side {
                0 => stock.round(&objects, &names),
                _ => ours[side - 1].round(&objects, &names),
            };
        }
        // The first round warms up.
        if round > 0 {
            times.push(sides);
        }
    }
    for (i, (name, _)) in LAYOUTS.iter().enumerate() {
        let pairs = |of: fn(&Times) -> Duration| times.iter().map(|t| (of(&t[i + 1]), of(&t[0]))).collect::<Vec<_>>();
        report(&format!("{name}: bytes to first call"), &pairs(|times| times.add));
        report(&format!("{name}: removal"), &pairs(|times| times.remove));
    }

    println!("{:<31} {:.3} µs/object", "its bytes, only copied", copied(&objects));

    let rss = |side: &str| -> f64 {
        let output = Command::new(std::env::current_exe().unwrap()).args(["--rss", side]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or_else(|_| panic!("{output:?}"))
    };
    let theirs = rss("stock");
    for (name, layout) in LAYOUTS {
        let mine = rss(name);
        println!(
            "{:<31} ratio {:.3}   ours {mine:6.0} B/object    stock {theirs:6.0} B/object",
            format!("{name}: resident memory"),
            mine / theirs
        );
        println!("{:<31} {} KiB", format!("{name}: 10 000 cycles"), cycles(&objects, layout));
    }
}

/// What nothing can go below: microseconds to copy an object's bytes into memory that is there.
fn copied(objects: &Template) -> f64 {
    let bytes = objects.with_name(0);
    let mut there = vec![1_u8; bytes.len() * PER_ROUND];
    let start = Instant::now();
    for room in there.chunks_exact_mut(bytes.len()) {
        room.copy_from_slice(std::hint::black_box(&bytes));
    }
    let time = start.elapsed();
    std::hint::black_box(&there);
    time.as_secs_f64() * 1e6 / PER_ROUND as f64
}

/// How long a round took, for all of its objects.
#[derive(Clone, Copy, Default)]
struct Times {
    add: Duration,
    remove: Duration,
}

fn report(what: &str, pairs: &[(Duration, Duration)]) {
    let median = |mut v: Vec<f64>| {
        v.sort_by(f64::total_cmp);
        v[v.len() / 2]
    };
    let each = |d: &Duration| d.as_secs_f64() * 1e6 / PER_ROUND as f64;
    let mut ratios: Vec<f64> = pairs.iter().map(|(a, b)| each(a) / each(b)).collect();
    ratios.sort_by(f64::total_cmp);
    println!(
        "{what:<31} ratio {:.3} ({:.3}..{:.3})   ours {:6.2} µs/object   stock {:6.2} µs/object",
        median(ratios.clone()),
        ratios[0],
        ratios[ratios.len() - 1],
        median(pairs.iter().map(|p| each(&p.0)).collect()),
        median(pairs.iter().map(|p| each(&p.1)).collect()),
    );
}

struct Ours {
    engine: JitEngine,
    live: Vec<(Library, Symbol<Kernel>)>,
}

impl Ours {
    fn new(layout: SlabLayout) -> Self {
        Self { engine: JitEngine::builder().slab_layout(layout).build().unwrap(), live: Vec::new() }
    }

    fn load(&self, bytes: &[u8], name: &str) -> (Library, Symbol<Kernel>) {
        let library = self.engine.add_object(bytes).unwrap();
        // SAFETY: the signature is the one that was compiled; there are no initialisers.
        let kernel: Symbol<Kernel> = unsafe { library.get(name).unwrap() };
        // SAFETY: it takes any number.
        assert_eq!(unsafe { kernel(0) }, 42);
        (library, kernel)
    }

    fn add(&mut self, objects: &Template, names: &[usize]) {
        for i in names {
            let loaded = self.load(&objects.with_name(*i), &objects.name(*i));
            self.live.push(loaded);
        }
    }

    fn round(&mut self, objects: &Template, names: &[usize]) -> Times {
        let inputs: Vec<_> = names.iter().map(|i| (objects.with_name(*i), objects.name(*i))).collect();
        let start = Instant::now();
        let loaded: Vec<_> = inputs.iter().map(|(bytes, name)| self.load(bytes, name)).collect();
        let add = start.elapsed();
        let start = Instant::now();
        drop(loaded);
        Times { add, remove: start.elapsed() }
    }
}

/// JITLink, in-process memory manager, frames registered; one JITDylib, a tracker per object.
struct Stock {
    jit: Lljit,
    live: Vec<Tracker>,
}

impl Stock {
    fn new() -> Self {
        Self { jit: Lljit::new(Linker::InProcess).unwrap(), live: Vec::new() }
    }

    fn load(&self, bytes: &[u8], name: &CStr) -> Tracker {
        let tracker = self.jit.add(self.jit.main(), bytes).unwrap();
        let address = self.jit.look_up(name).unwrap();
        // SAFETY: the signature is the one that was compiled, and it takes any number.
        unsafe {
            let kernel: Kernel = std::mem::transmute(address as usize);
            assert_eq!(kernel(0), 42);
        }
        tracker
    }

    fn add(&mut self, objects: &Template, names: &[usize]) {
        for i in names {
            let name = CString::new(objects.name(*i)).unwrap();
            self.live.push(self.load(&objects.with_name(*i), &name));
        }
    }

    fn round(&mut self, objects: &Template, names: &[usize]) -> Times {
        let inputs: Vec<_> =
            names.iter().map(|i| (objects.with_name(*i), CString::new(objects.name(*i)).unwrap())).collect();
        let start = Instant::now();
        let trackers: Vec<_> = inputs.iter().map(|(bytes, name)| self.load(bytes, name)).collect();
        let add = start.elapsed();
        let start = Instant::now();
        for tracker in trackers {
            tracker.remove().unwrap();
        }
        Times { add, remove: start.elapsed() }
    }
}

fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Resident bytes per object of one side, after a few that warm up: `--rss PerObject|Packed|stock [objects]`.
fn print_rss(side: &str, n: usize) {
    let objects = Template::small();
    let (warm, names): (Vec<usize>, Vec<usize>) = ((0..50).collect(), (50..50 + n).collect());
    let per_object = |before: usize| (resident() - before) as f64 / n as f64;
    if let Some((_, layout)) = LAYOUTS.iter().find(|(name, _)| *name == side) {
        let mut ours = Ours::new(*layout);
        ours.add(&objects, &warm);
        let before = resident();
        ours.add(&objects, &names);
        println!("{}", per_object(before));
    } else {
        let mut stock = Stock::new();
        stock.add(&objects, &warm);
        let before = resident();
        stock.add(&objects, &names);
        println!("{}", per_object(before));
    }
}

/// Change in resident KiB over 10 000 cycles, with names that never come again, once as many rest as may.
fn cycles(objects: &Template, layout: SlabLayout) -> isize {
    let ours = Ours::new(layout);
    let cycle = |i: usize| drop(ours.load(&objects.with_name(i), &objects.name(i)));
    (0..10_000).for_each(cycle);
    let before = resident() as isize;
    (10_000..20_000).for_each(cycle);
    (resident() as isize - before) / 1024
}
