//! Loads, calls, replaces, removes, fails and forks at random, from many threads, and checks every answer:
//! `cargo run --release -p slabjit-tools --bin soak -- --seconds 600 --threads 16`.
//!
//! One line of JSON at the end: how often each operation ran, failures by what was tried, stale calls that trapped, and
//! memory in bytes. It exits with 1 if an answer was wrong, or if more than 1 MiB, or anything else, is left.

mod dylibs;
mod memory;
mod objects;
mod stale;
mod worker;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use slabjit::{JitEngine, ObjectCache};

use memory::Left;
use objects::Objects;
use worker::{Shared, Tally, Worker};

/// What may be left of memory in use: tables that have just grown, and what malloc keeps.
const DRIFT: usize = 1 << 20;

/// Before memory is looked at for the first time, everything has been done so often that tables have the size they
/// need, and as many slabs rest as may.
const WARM_UP: u64 = 150_000;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether all was right.
fn run() -> Result<bool, Box<dyn std::error::Error>> {
    let (seconds, threads, seed) = arguments()?;
    memory::share_one_heap();
    stale::catch_traps();
    let folder = tempfile::tempdir()?;
    let objects = Objects::compile(folder.path())?;
    let cache = ObjectCache::open(folder.path().join("cache"))?;
    let engine = JitEngine::new()?;
    let mut shared = Shared::new(engine, objects, cache)?;

    // As many threads as later.
    let warm = Mutex::new(Tally::default());
    phase(&shared, threads, !seed, &|operations| operations < WARM_UP, &warm);
    shared.end_dylibs()?;
    let before = Left::now(&shared.engine);

    let (tally, start) = (Mutex::new(Tally::default()), Instant::now());
    let time = Duration::from_secs(seconds);
    let mut peak = before.memory;
    thread::scope(|scope| {
        let work = scope.spawn(|| phase(&shared, threads, seed, &|_| start.elapsed() < time, &tally));
        while !work.is_finished() {
            peak = peak.max(memory::resident());
            thread::sleep(Duration::from_millis(50));
        }
    });
    shared.end_dylibs()?;
    let after = Left::now(&shared.engine);

    let (mut tally, warm) = (into(tally), into(warm));
    tally.wrong.extend(warm.wrong);
    let drift = after.memory.saturating_sub(before.memory);
    let clean = after.counts == before.counts && drift < DRIFT;
    let failures: BTreeMap<_, _> = tally.failures.iter().collect();
    let summary = json!({
        "llvm": slabjit::llvm_version_string(),
        "seconds": start.elapsed().as_secs(),
        "threads": threads,
        "seed": seed,
        "operations": tally.operations.values().sum::<u64>(),
        "of_each": tally.operations,
        "answers": tally.answers,
        "wrong": tally.wrong.len(),
        "failures": failures,
        "stale_calls_trapped": tally.trapped,
        "memory": { "at_start": before.memory, "peak": peak, "final": after.memory, "drift": drift },
        "allocated": { "at_start": before.allocated, "final": after.allocated },
        "left": { "at_start": before.counts, "final": after.counts },
    });
    println!("{summary}");
    tally.wrong.iter().take(20).for_each(|wrong| eprintln!("wrong: {wrong}"));
    if !clean {
        eprintln!("left behind: {drift} bytes; {:?} became {:?}", before.counts, after.counts);
    }
    Ok(tally.wrong.is_empty() && clean)
}

/// Has threads work as long as `goes_on`, which is given how much one thread's share of the operations would be, and
/// waits for them.
fn phase(shared: &Shared, threads: u64, seed: u64, goes_on: &(dyn Fn(u64) -> bool + Sync), sum: &Mutex<Tally>) {
    thread::scope(|scope| {
        let workers = (0..threads).map(|thread| {
            scope.spawn(move || {
                let mut worker = Worker::new(shared, seed.wrapping_mul(0x9e37_79b9).wrapping_add(thread));
                while goes_on(worker.tally.done().saturating_mul(threads)) {
                    worker.step();
                }
                worker.tally
            })
        });
        // All of them first.
        let workers: Vec<_> = workers.collect();
        for worker in workers {
            let tally = worker.join().unwrap_or_else(|_| Tally::panicked());
            sum.lock().unwrap_or_else(std::sync::PoisonError::into_inner).add(tally);
        }
    });
    if let Err(error) = shared.clear() {
        sum.lock().unwrap_or_else(std::sync::PoisonError::into_inner).wrong.push(format!("the end: {error}"));
    }
}

fn into(tally: Mutex<Tally>) -> Tally {
    tally.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Seconds, threads, and what the random numbers begin with.
fn arguments() -> Result<(u64, u64, u64), String> {
    let usage = "usage: soak [--seconds N] [--threads T] [--seed S]";
    let (mut seconds, mut threads, mut seed) = (10, 16, 1);
    let mut arguments = std::env::args().skip(1);
    while let Some(option) = arguments.next() {
        let place = match option.as_str() {
            "--seconds" => &mut seconds,
            "--threads" => &mut threads,
            "--seed" => &mut seed,
            _ => return Err(format!("unknown argument {option}; {usage}")),
        };
        let value = arguments.next().ok_or_else(|| format!("{option} needs a number; {usage}"))?;
        *place = value.parse().map_err(|_| format!("{option} {value} is not a number; {usage}"))?;
    }
    if threads == 0 { Err(format!("there has to be a thread; {usage}")) } else { Ok((seconds, threads, seed)) }
}
