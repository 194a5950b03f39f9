//! Loads a million objects into one engine (`SlabLayout::Packed`), calls each, and removes them all:
//! `cargo run --release -p slabjit-tools --bin million`.
//!
//! Prints what each object took, to load with its first call and to remove, when there were 1000, 10 000 and so on: the
//! least of ten parts of the thousand objects before that, as other work on the machine only adds; and how many
//! mappings and how much memory the process has more than before. `million 20000` loads that many. Fails if an answer
//! is wrong.

#[path = "../benches/objects/mod.rs"]
mod objects;

use std::process::ExitCode;
use std::time::Instant;

use objects::Template;
use slabjit::{JitEngine, Library, SlabLayout, Symbol};

type Kernel = unsafe extern "C" fn(i32) -> i32;

/// Objects of which the time is told together.
const WINDOW: usize = 1000;
/// Parts of those.
const PARTS: usize = 10;

fn main() -> ExitCode {
    let count = std::env::args().nth(1).map_or(Ok(1_000_000), |text| text.parse());
    let Some(count) = count.ok().filter(|count| *count >= WINDOW) else {
        eprintln!("million: the number of objects is one from {WINDOW} on");
        return ExitCode::from(2);
    };
    match run(count) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("million: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(count: usize) -> slabjit::Result<()> {
    let objects = Template::small();
    let engine = JitEngine::builder().slab_layout(SlabLayout::Packed).build()?;
    println!("LLVM {}; {count} objects of {} bytes", slabjit::llvm_version_string(), objects.len());

    let load = |number: usize| -> slabjit::Result<(Library, Symbol<Kernel>)> {
        let library = engine.add_object(objects.with_name(number))?;
        // SAFETY: `int kernel_NNNNNNNN(int)`; there are no initialisers.
        let kernel: Symbol<Kernel> = unsafe { library.get(&objects.name(number))? };
        // SAFETY: it takes any number.
        assert_eq!(unsafe { kernel(number as i32) }, number as i32 + 42, "{} answers wrongly", objects.name(number));
        Ok((library, kernel))
    };
    // Warms up, and what an engine has for its first object is there.
    for number in 0..100 {
        load(number)?;
    }

    let before = Process::now();
    let mut live = Vec::with_capacity(count);
    let mut parts = Vec::with_capacity(PARTS);
    let mut first = None;
    println!("{:>9}  {:>11}  {:>9}  {:>8}  {:>11}", "live", "µs to load", "of first", "mappings", "MiB");
    while live.len() < count {
        let start = Instant::now();
        for _ in 0..WINDOW / PARTS {
            live.push(load(live.len())?);
        }
        parts.push(start.elapsed().as_secs_f64() * 1e6 / (WINDOW / PARTS) as f64);
        if live.len() % WINDOW == 0 {
            let each = parts.drain(..).fold(f64::INFINITY, f64::min);
            if is_told(live.len(), count) {
                let (now, first) = (Process::now(), *first.get_or_insert(each));
                println!(
                    "{:>9}  {each:>11.2}  {:>9.2}  {:>8}  {:>11.1}",
                    live.len(),
                    each / first,
                    now.mappings - before.mappings,
                    mib(now.resident - before.resident)
                );
            }
        }
    }
    // All are there at once.
    for (number, (_, kernel)) in live.iter().enumerate() {
        // SAFETY: as above.
        assert_eq!(unsafe { kernel(1) }, 43, "{} answers wrongly in the end", objects.name(number));
    }

    println!("{:>9}  {:>11}", "left", "µs to remove");
    while !live.is_empty() {
        let tells = is_told(live.len(), count);
        let some: Vec<_> = live.drain(live.len().saturating_sub(WINDOW)..).collect();
        let (n, start) = (some.len(), Instant::now());
        drop(some);
        let each = start.elapsed().as_secs_f64() * 1e6 / n as f64;
        if tells {
            println!("{:>9}  {each:>11.2}", live.len());
        }
    }
    drop(live);
    let kept = Process::now();
    // SAFETY: returns what malloc keeps for later.
    unsafe { libc::malloc_trim(0) };
    let (after, stats) = (Process::now(), engine.stats());
    println!(
        "peak {:.1} MiB; left {:.1} MiB and {:.1} MiB that malloc keeps for later, {} mappings, {} slabs",
        mib(after.peak - before.resident),
        mib(after.resident - before.resident),
        mib(kept.resident - after.resident),
        after.mappings - before.mappings,
        stats.arena.slabs
    );
    Ok(())
}

/// At powers of ten, and in the end.
fn is_told(live: usize, count: usize) -> bool {
    live == count || (live.ilog10() > 2 && live == 10_usize.pow(live.ilog10()))
}

fn mib(bytes: i64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// What this process has, as the kernel says.
struct Process {
    mappings: i64,
    resident: i64,
    peak: i64,
}

impl Process {
    fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let of = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<i64>().ok());
            kib.unwrap_or_default() * 1024
        };
        let mappings = std::fs::read_to_string("/proc/self/maps").unwrap_or_default().lines().count() as i64;
        Self { mappings, resident: of("VmRSS:"), peak: of("VmHWM:") }
    }
}
