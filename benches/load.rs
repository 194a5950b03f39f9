//! From bytes to the first call, and removal, beside stock LLJIT of the same LLVM with JITLink and its in-process memory manager
//! (LLVM 15 and 16, too, where LLJIT does not choose that by itself).
//!
//! `cargo bench --bench load` prints ratios (ours / stock; below 1 is better) of medians of interleaved rounds in one run,
//! with 1000 live objects, and resident memory per object measured in a process for each side. It asserts nothing but that
//! answers are right.

#[path = "../tests/stock/lljit.rs"]
mod lljit;
mod objects;

use std::ffi::{CStr, CString};
use std::process::Command;
use std::time::{Duration, Instant};

use lljit::{Linker, Lljit, Tracker};
use objects::Template;
use slabjit::{JitEngine, Library, Symbol};

type Kernel = unsafe extern "C" fn(i32) -> i32;

const LIVE: usize = 1000;
const ROUNDS: usize = 15;
const PER_ROUND: usize = 200;

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

    let (mut ours, mut stock) = (Ours::new(), Stock::new());
    let live: Vec<usize> = (0..LIVE).collect();
    ours.add(&objects, &live);
    stock.add(&objects, &live);
    let (mut add, mut remove) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS + 1 {
        let names: Vec<usize> = (0..PER_ROUND).map(|i| LIVE + round * PER_ROUND + i).collect();
        let mut sides = [(Duration::ZERO, Duration::ZERO); 2];
        // Alternate who goes first: the second finds warmer caches.
        for side in [round % 2, 1 - round % 2] {
            sides[side] = if side == 0 { ours.round(&objects, &names) } else { stock.round(&objects, &names) };
        }
        // The first round warms up.
        if round > 0 {
            add.push((sides[0].0, sides[1].0));
            remove.push((sides[0].1, sides[1].1));
        }
    }
    report("bytes to first call", &add);
    report("removal", &remove);

    let rss = |side: &str| -> f64 {
        let output = Command::new(std::env::current_exe().unwrap()).args(["--rss", side]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or_else(|_| panic!("{output:?}"))
    };
    let (mine, theirs) = (rss("ours"), rss("stock"));
    println!("resident memory    ratio {:.3}   ours {mine:8.0} B/object   stock {theirs:8.0} B/object", mine / theirs);
    println!("10 000 add/remove cycles change resident memory by {} KiB", cycles(&objects));
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
        "{what:<18} ratio {:.3} ({:.3}..{:.3})   ours {:6.2} µs/object   stock {:6.2} µs/object",
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
    fn new() -> Self {
        Self { engine: JitEngine::new().unwrap(), live: Vec::new() }
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

    fn round(&mut self, objects: &Template, names: &[usize]) -> (Duration, Duration) {
        let inputs: Vec<_> = names.iter().map(|i| (objects.with_name(*i), objects.name(*i))).collect();
        let start = Instant::now();
        let loaded: Vec<_> = inputs.iter().map(|(bytes, name)| self.load(bytes, name)).collect();
        let added = start.elapsed();
        let start = Instant::now();
        drop(loaded);
        (added, start.elapsed())
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

    fn round(&mut self, objects: &Template, names: &[usize]) -> (Duration, Duration) {
        let inputs: Vec<_> =
            names.iter().map(|i| (objects.with_name(*i), CString::new(objects.name(*i)).unwrap())).collect();
        let start = Instant::now();
        let trackers: Vec<_> = inputs.iter().map(|(bytes, name)| self.load(bytes, name)).collect();
        let added = start.elapsed();
        let start = Instant::now();
        for tracker in trackers {
            tracker.remove().unwrap();
        }
        (added, start.elapsed())
    }
}

fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Resident bytes per object of one side, after a few that warm up: `--rss ours|stock [objects]`.
fn print_rss(side: &str, n: usize) {
    let objects = Template::small();
    let (warm, names): (Vec<usize>, Vec<usize>) = ((0..50).collect(), (50..50 + n).collect());
    let per_object = |before: usize| (resident() - before) as f64 / n as f64;
    if side == "ours" {
        let mut ours = Ours::new();
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

/// Change in resident KiB over 10 000 cycles, with names that never come again.
fn cycles(objects: &Template) -> isize {
    let ours = Ours::new();
    for i in 0..500 {
        ours.load(&objects.with_name(i), &objects.name(i));
    }
    let before = resident() as isize;
    for i in 500..10_500 {
        ours.load(&objects.with_name(i), &objects.name(i));
    }
    (resident() as isize - before) / 1024
}
