//! The suite in one process: every case and every test of the tables, on several threads, in random order, but for
//! those that have processes of their own in any case.
//!
//! Half of the cases share one engine. `SLABJIT_SEED` repeats an order; `SLABJIT_THREADS` sets the number of threads
//! (4; under qemu-user 1).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use libtest_mimic::Failed;

use crate::case;
use crate::common::{self, Checked, Random, Test};
use crate::target::{QEMU_THREADS, under_qemu};

enum Item {
    Test(Test),
    Case(case::Variant),
    CaseInSharedEngine(case::Variant),
}

/// Whether a test of this table cannot share a process with others.
pub fn needs_a_process(table: &str, test: &Test) -> bool {
    test.alone || table == "faults"
}

/// Runs everything; false if something failed.
pub fn run_all(only: &[String]) -> bool {
    let time = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 % 1_000_000_000;
    let seed = std::env::var("SLABJIT_SEED").map_or(time, |s| s.parse().expect("SLABJIT_SEED is a number"));
    let usual = if under_qemu() { QEMU_THREADS } else { 4 };
    let threads = std::env::var("SLABJIT_THREADS").map_or(usual, |s| s.parse().expect("SLABJIT_THREADS is a number"));
    let mut random = Random::new(seed);
    let mut items: Vec<(String, Item)> = Vec::new();
    for (table, tests, _) in crate::TABLES {
        let here = tests.iter().filter(|test| !needs_a_process(table, test));
        items.extend(here.map(|t| (format!("{table}::{}", t.name), Item::Test(*t))));
    }
    for variant in case::all() {
        let item = if random.below(2) == 0 { Item::Case } else { Item::CaseInSharedEngine };
        items.push((variant.name(), item(variant)));
    }
    items.retain(|(name, _)| only.is_empty() || only.iter().any(|o| name.contains(o.as_str())));
    random.shuffle(&mut items);
    println!("{} tests on {threads} threads in one process, SLABJIT_SEED={seed}", items.len());

    let shared = Checked::new();
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((name, item)) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(message) = run(item, &shared) {
                        println!("FAILED {name}: {message}");
                        failed.lock().unwrap().push(name.as_str());
                    }
                }
            });
        }
    });
    if let Err(message) = caught(|| {
        shared.finish();
        Ok(())
    }) {
        println!("FAILED the shared engine at the end: {message}");
        failed.lock().unwrap().push("the shared engine");
    }
    let failed = failed.into_inner().unwrap();
    println!(
        "test result: {}. {} passed; {} failed; 0 ignored; 0 measured; 0 filtered out (SLABJIT_SEED={seed})",
        if failed.is_empty() { "ok" } else { "FAILED" },
        items.len() + 1 - failed.len(),
        failed.len()
    );
    failed.is_empty()
}

fn run(item: &Item, shared: &Checked) -> Result<(), String> {
    match item {
        Item::Test(test) => caught(|| common::run(*test)),
        Item::CaseInSharedEngine(variant) => caught(|| variant.run(shared)),
        Item::Case(variant) => caught(|| {
            let engine = Checked::for_a_case();
            variant.run(&engine)?;
            engine.finish();
            Ok(())
        }),
    }
}

fn caught(f: impl FnOnce() -> Result<(), Failed>) -> Result<(), String> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => result.map_err(|f| f.message().unwrap_or("failed").to_owned()),
        Err(panic) => Err(match panic.downcast::<String>() {
            Ok(text) => *text,
            Err(panic) => panic.downcast::<&str>().map_or_else(|_| "panicked".into(), |t| t.to_string()),
        }),
    }
}
