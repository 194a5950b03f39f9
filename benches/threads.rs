//! Loading by several threads, on one engine, on one for each, and in batches, beside one thread: `cargo bench --bench
//! threads`.
//!
//! Threads wait for each round at a barrier. Then one thread adds all objects at once to engines that share the work
//! among so many threads (`JitEngineBuilder::threads`). Last, each thread sorts numbers of its own, which shares nothing
//! and shows what the processors can do: two that are one core's, as in many virtual machines, may take as long as one.
//! What is printed is the time by the clock that each object takes, and its ratio to that of one thread in the same
//! round: medians of interleaved rounds.

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
            let work = |t: usize, numbers: Range<usize>| load(&engines[t % engines.len()], &small, numbers, batch);
            let times = rounds(most, work);
            print(&format!("{name:<9} {} engine(s), {batch:>3} at once", engines.len()), &times);
        }
        let engine = |threads| JitEngine::builder().slab_layout(layout).threads(threads).build().unwrap();
        let times = together(&(1..=most).map(engine).collect::<Vec<_>>(), &small);
        print(&format!("{name:<9} by one caller, {PER_ROUND} at once"), &times);
    }
    print("sorting", &rounds(most, |_, numbers| numbers.map(sort).collect::<Vec<_>>()));
}

fn print(what: &str, times: &[Vec<Duration>]) {
    for (threads, of) in (1..).zip(times) {
        let [ratio, each] = [
            spread(of.iter().zip(&times[0]).map(|(a, b)| a.as_secs_f64() / b.as_secs_f64())),
            spread(of.iter().map(|time| time.as_secs_f64() * 1e6 / PER_ROUND as f64)),
        ];
        println!(
            "{what}, {threads} thread(s): {:.2} µs/object, {:.2} of one thread's ({:.2}..{:.2})",
            each[1], ratio[1], ratio[0], ratio[2]
        );
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
///
/// `work` gets the number of its thread, and those of its objects; what it returns is dropped outside of the time.
fn rounds<T>(most: usize, work: impl Fn(usize, Range<usize>) -> T + Sync) -> Vec<Vec<Duration>> {
    let (start, end, gone) = (Barrier::new(most + 1), Barrier::new(most + 1), Barrier::new(most + 1));
    let task = Mutex::new(Some(Round { threads: 0, first: LIVE }));
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); most];
    thread::scope(|scope| {
        for t in 0..most {
            let (work, task, start, end, gone) = (&work, &task, &start, &end, &gone);
            scope.spawn(move || {
                loop {
                    start.wait();
                    let Some((threads, first)) = task.lock().unwrap().as_ref().map(|r| (r.threads, r.first)) else {
                        break;
                    };
                    let each = if t < threads { PER_ROUND / threads } else { 0 };
                    let first = first + t * each;
                    let loaded = work(t, first..first + each);
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

/// How long each engine takes for all objects of a round at once, round by round.
fn together(engines: &[JitEngine], small: &Template) -> Vec<Vec<Duration>> {
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); engines.len()];
    for round in 0..=ROUNDS {
        for k in 0..engines.len() {
            let at = (round + k) % engines.len();
            let first = LIVE + round * PER_ROUND;
            let began = Instant::now();
            let loaded = load(&engines[at], small, first..first + PER_ROUND, PER_ROUND);
            let time = began.elapsed();
            drop(loaded);
            // The first warms up.
            if round > 0 {
                times[at].push(time);
            }
        }
    }
    times
}

/// Sorts some numbers; takes about as long as loading an object.
fn sort(seed: usize) -> u64 {
    let mut next = seed as u64;
    let mut numbers: Vec<u64> = std::iter::repeat_with(|| {
        next = next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        next
    })
    .take(300)
    .collect();
    numbers.sort();
    numbers[0]
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
