//! Loading by several threads, on one engine and on one for each, beside one thread: `cargo bench --bench threads`.
//!
//! Threads wait for each round at a barrier. What is printed is the time by the clock that each object takes, as a ratio to the one thread of the
//! same round: medians of interleaved rounds.

mod objects;

use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use objects::Template;
use slabjit::{JitEngine, Library, SlabLayout, Symbol};

type Kernel = unsafe extern "C" fn(i32) -> i32;

const ROUNDS: usize = 15;
const PER_ROUND: usize = 600;
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
        for shared in [true, false] {
            let engines: Vec<JitEngine> = (0..if shared { 1 } else { most })
                .map(|_| JitEngine::builder().slab_layout(layout).build().unwrap())
                .collect();
            let _live: Vec<_> = engines.iter().flat_map(|e| (0..LIVE).map(|i| load(e, &small, i))).collect();
            let times = rounds(&engines, &small, most);
            for (threads, of) in (1..).zip(&times) {
                let mut ratios: Vec<f64> =
                    of.iter().zip(&times[0]).map(|(a, b)| a.as_secs_f64() / b.as_secs_f64()).collect();
                ratios.sort_by(f64::total_cmp);
                let mut each: Vec<f64> = of.iter().map(|t| t.as_secs_f64() * 1e6 / PER_ROUND as f64).collect();
                each.sort_by(f64::total_cmp);
                println!(
                    "{name:<9} {} engine(s), {threads} thread(s): {:.2} µs/object, {:.2} of one thread ({:.2}..{:.2})",
                    engines.len(),
                    each[each.len() / 2],
                    ratios[ratios.len() / 2],
                    ratios[0],
                    ratios[ratios.len() - 1]
                );
            }
        }
    }
}

/// What threads that stay are told.
struct Round {
    threads: usize,
    first: usize,
}

/// How long each number of threads takes for all objects of a round, round by round.
fn rounds(engines: &[JitEngine], small: &Template, most: usize) -> Vec<Vec<Duration>> {
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
                    let loaded: Vec<_> = (0..each).map(|i| load(engine, small, first + t * each + i)).collect();
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

fn load(engine: &JitEngine, small: &Template, number: usize) -> (Library, Symbol<Kernel>) {
    let library = engine.add_object(small.with_name(number)).unwrap();
    // SAFETY: the signature is the one that was compiled; there are no initialisers.
    let kernel: Symbol<Kernel> = unsafe { library.get(&small.name(number)).unwrap() };
    // SAFETY: it takes any number.
    assert_eq!(unsafe { kernel(0) }, 42);
    (library, kernel)
}
