//! Loading by several threads, on one engine, on one for each, and in batches, beside one thread: `cargo bench --bench
//! threads`.
//!
//! Threads wait for each round at a barrier. What is printed is the time by the clock that each object takes, and its
//! ratio to that of one thread in the same round: medians of interleaved rounds.

mod objects;

use std::ops::Range;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use objects::Template;
use slabjit::{JitEngine, Library, SlabLayout, Symbol};

type Kernel = unsafe extern "C" fn(i32) -> i32;

const ROUNDS: usize = 15;
/// What any number of threads up to 8 shares evenly.
const PER_ROUND: usize = 840;
const BATCH: usize = 35;
const LIVE: usize = 1000;

fn main() {
    let most = thread::available_parallelism().map_or(1, usize::from).min(8);
    let arguments: Vec<String> = std::env::args().collect();
    let only = arguments.iter().position(|a| a == "--only").map(|at| arguments[at + 1].clone());
    let small = Template::small();
    println!(
        "LLVM {}, {PER_ROUND} objects of {} bytes each round, {most} threads",
        slabjit::llvm_version(),
        small.len()
    );
    for (name, layout) in [("PerObject", SlabLayout::PerObject), ("Packed", SlabLayout::Packed)] {
        if only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        for (engines, batch) in [(1, 1), (most, 1), (1, BATCH)] {
            let engine = || JitEngine::builder().slab_layout(layout).build().unwrap();
            let engines: Vec<JitEngine> = (0..engines).map(|_| engine()).collect();
            let _live: Vec<_> = engines.iter().map(|engine| load(engine, &small, 0..LIVE, 1)).collect();
            let times = rounds(&engines, &small, most, batch);
            for (threads, of) in (1..).zip(&times) {
                let [ratio, each] = [
                    spread(of.iter().zip(&times[0]).map(|(a, b)| a.as_secs_f64() / b.as_secs_f64())),
                    spread(of.iter().map(|time| time.as_secs_f64() * 1e6 / PER_ROUND as f64)),
                ];
                println!(
                    "{name:<9} {} engine(s), {batch:>2} at once, {threads} thread(s): {:.2} µs/object, {:.2} of one \
                     thread's ({:.2}..{:.2})",
                    engines.len(),
                    each[1],
                    ratio[1],
                    ratio[0],
                    ratio[2]
                );
            }
        }
    }
}

/// The least, the median and the most.
fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    [values[0], values[values.len() / 2], values[values.len() - 1]]
}

/// What threads that stay are told.
struct Round {
    threads: usize,
    first: usize,
}

/// How long each number of threads takes for all objects of a round, round by round.
fn rounds(engines: &[JitEngine], small: &Template, most: usize, batch: usize) -> Vec<Vec<Duration>> {
    let (start, end, gone) = (Barrier::new(most + 1), Barrier::new(most + 1), Barrier::new(most + 1));
    let task = Mutex::new(Some(Round { threads: 0, first: LIVE }));
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); most];
    thread::scope(|scope| {
        for t in 0..most {
            let (engine, task, start, end, gone) = (&engines[t % engines.len()], &task, &start, &end, &gone);
            scope.spawn(move || {
                loop {
                    start.wait();
                    let Some((threads, first)) = task.lock().unwrap().as_ref().map(|r| (r.threads, r.first)) else {
                        break;
                    };
                    let each = if t < threads { PER_ROUND / threads } else { 0 };
                    let first = first + t * each;
                    let loaded = load(engine, small, first..first + each, batch);
                    end.wait();
                    drop(loaded);
                    gone.wait();
                }
            });
        }
        for round in 0..=ROUNDS {
            for k in 0..most {
                let threads = (round + k) % most + 1;
                if let Some(task) = &mut *task.lock().unwrap() {
                    *task = Round { threads, first: task.first + PER_ROUND };
                }
                let began = Instant::now();
                start.wait();
                end.wait();
                let time = began.elapsed();
                gone.wait();
                // The first warms up.
                if round > 0 {
                    times[threads - 1].push(time);
                }
            }
        }
        *task.lock().unwrap() = None;
        start.wait();
    });
    times
}

/// Loads objects, so many at once, and calls each.
fn load(engine: &JitEngine, small: &Template, numbers: Range<usize>, batch: usize) -> Vec<(Library, Symbol<Kernel>)> {
    let mut loaded = Vec::with_capacity(numbers.len());
    for first in numbers.clone().step_by(batch) {
        let numbers = first..(first + batch).min(numbers.end);
        let library = engine.add_objects(numbers.clone().map(|number| small.with_name(number))).unwrap();
        for number in numbers {
            // SAFETY: the signature is the one that was compiled; there are no initialisers.
            let kernel: Symbol<Kernel> = unsafe { library.get(&small.name(number)).unwrap() };
            // SAFETY: it takes any number.
            assert_eq!(unsafe { kernel(0) }, 42);
            loaded.push((library.clone(), kernel));
        }
    }
    loaded
}
