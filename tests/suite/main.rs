//! The test suite: tables of tests, and the cases of `tests/cases`, each compiled by every compiler at every level.
//!
//! `cargo test --test suite` and nextest run it like any other tests; `SLABJIT_SHUFFLE=1 cargo test --test suite` runs
//! what needs no process of its own in one, with threads, in random order (see `shuffled.rs`), and with
//! `SLABJIT_ALONE=1` there is only the rest. Arguments select tests by a part of their names.
//! `SLABJIT_OBJECTS=FOLDER` runs nothing, and writes the objects of all cases into a folder, as seeds for `ci/fuzz`.

mod api;
mod bad_input;
mod batches;
mod beside;
#[cfg(target_arch = "x86_64")]
mod blocker;
mod cache;
mod case;
#[cfg(feature = "cli")]
mod cli;
mod common;
mod crash;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "cli")]
mod debuggers;
mod dependences;
mod distance;
mod dylib_archives;
mod dylib_calls;
mod dylib_growth;
#[cfg(feature = "inkwell")]
mod dylib_links;
#[cfg(feature = "inkwell")]
mod dylib_modules;
#[cfg(feature = "inkwell")]
mod dylib_transforms;
mod dylibs;
mod executable_stack;
mod export;
mod failed_links;
#[cfg(slabjit_faults)]
mod faults;
mod forks;
mod functions;
mod growth;
mod host_symbols;
mod images;
#[cfg(feature = "inkwell")]
mod ir;
mod kernels;
mod kernels_autotuner;
mod kernels_planner;
mod large;
#[cfg(feature = "inkwell")]
mod lazy_modules;
mod lifetime;
#[path = "../stock/lljit.rs"]
mod lljit;
mod loader;
mod memory;
mod names;
mod no_execution;
mod odd_objects;
mod orc;
mod orc_examples;
mod ownership;
mod packed;
#[cfg(target_arch = "x86_64")]
mod placement;
mod plan;
mod priorities;
#[cfg(feature = "cli")]
mod programs;
mod random;
mod reach;
mod runtime_dyld;
mod sets;
mod shared_work;
mod shuffled;
mod stale;
mod state;
mod static_variables;
mod subtle;
mod symbolize;
mod target;
mod thread_local;
mod threads;
mod tls_races;
mod trace;
#[cfg(feature = "tvm-ffi")]
mod tvm_ffi;
mod unwind;
mod user_code;

use std::process::ExitCode;

use common::{Part, Test};

/// Every table: its name, its tests, and what they run in processes of their own.
const TABLES: &[(&str, &[Test], &[Part])] = &[
    ("api", api::TESTS, api::PARTS),
    ("bad_input", bad_input::TESTS, bad_input::PARTS),
    ("batches", batches::TESTS, batches::PARTS),
    ("beside", beside::TESTS, beside::PARTS),
    ("cache", cache::TESTS, cache::PARTS),
    #[cfg(feature = "cli")]
    ("cli", cli::TESTS, cli::PARTS),
    ("crash", crash::TESTS, crash::PARTS),
    #[cfg(feature = "cuda")]
    ("cuda", cuda::TESTS, cuda::PARTS),
    #[cfg(feature = "cli")]
    ("debuggers", debuggers::TESTS, debuggers::PARTS),
    ("dependences", dependences::TESTS, dependences::PARTS),
    ("distance", distance::TESTS, distance::PARTS),
    ("executable_stack", executable_stack::TESTS, executable_stack::PARTS),
    ("export", export::TESTS, export::PARTS),
    ("failed_links", failed_links::TESTS, failed_links::PARTS),
    #[cfg(slabjit_faults)]
    ("faults", faults::TESTS, faults::PARTS),
    ("forks", forks::TESTS, forks::PARTS),
    ("functions", functions::TESTS, functions::PARTS),
    ("growth", growth::TESTS, growth::PARTS),
    ("host_symbols", host_symbols::TESTS, host_symbols::PARTS),
    ("images", images::TESTS, images::PARTS),
    #[cfg(feature = "inkwell")]
    ("ir", ir::TESTS, ir::PARTS),
    ("kernels", kernels::TESTS, kernels::PARTS),
    ("kernels_autotuner", kernels_autotuner::TESTS, kernels_autotuner::PARTS),
    ("kernels_planner", kernels_planner::TESTS, kernels_planner::PARTS),
    ("large", large::TESTS, large::PARTS),
    ("lifetime", lifetime::TESTS, lifetime::PARTS),
    ("loader", loader::TESTS, loader::PARTS),
    ("memory", memory::TESTS, memory::PARTS),
    ("names", names::TESTS, names::PARTS),
    ("no_execution", no_execution::TESTS, no_execution::PARTS),
    ("odd_objects", odd_objects::TESTS, odd_objects::PARTS),
    ("orc", orc::TESTS, orc::PARTS),
    ("orc_examples", orc_examples::TESTS, orc_examples::PARTS),
    ("dylib_archives", dylib_archives::TESTS, dylib_archives::PARTS),
    ("dylib_growth", dylib_growth::TESTS, dylib_growth::PARTS),
    #[cfg(feature = "inkwell")]
    ("dylib_links", dylib_links::TESTS, dylib_links::PARTS),
    ("dylibs", dylibs::TESTS, dylibs::PARTS),
    #[cfg(feature = "inkwell")]
    ("dylib_modules", dylib_modules::TESTS, dylib_modules::PARTS),
    #[cfg(feature = "inkwell")]
    ("dylib_transforms", dylib_transforms::TESTS, dylib_transforms::PARTS),
    #[cfg(feature = "inkwell")]
    ("lazy_modules", lazy_modules::TESTS, lazy_modules::PARTS),
    ("ownership", ownership::TESTS, ownership::PARTS),
    ("packed", packed::TESTS, packed::PARTS),
    #[cfg(target_arch = "x86_64")]
    ("placement", placement::TESTS, placement::PARTS),
    ("plan", plan::TESTS, plan::PARTS),
    #[cfg(feature = "cli")]
    ("programs", programs::TESTS, programs::PARTS),
    ("priorities", priorities::TESTS, priorities::PARTS),
    ("random", random::TESTS, random::PARTS),
    ("reach", reach::TESTS, reach::PARTS),
    ("runtime_dyld", runtime_dyld::TESTS, runtime_dyld::PARTS),
    ("sets", sets::TESTS, sets::PARTS),
    ("shared_work", shared_work::TESTS, shared_work::PARTS),
    ("stale", stale::TESTS, stale::PARTS),
    ("subtle", subtle::TESTS, subtle::PARTS),
    ("symbolize", symbolize::TESTS, symbolize::PARTS),
    ("static_variables", static_variables::TESTS, static_variables::PARTS),
    ("thread_local", thread_local::TESTS, thread_local::PARTS),
    ("threads", threads::TESTS, threads::PARTS),
    ("tls_races", tls_races::TESTS, tls_races::PARTS),
    ("trace", trace::TESTS, trace::PARTS),
    #[cfg(feature = "tvm-ffi")]
    ("tvm_ffi", tvm_ffi::TESTS, tvm_ffi::PARTS),
    ("unwind", unwind::TESTS, unwind::PARTS),
    ("user_code", user_code::TESTS, user_code::PARTS),
];

fn main() -> ExitCode {
    if common::run_as_child() {
        return ExitCode::SUCCESS;
    }
    let passed = if let Some(folder) = std::env::var_os("SLABJIT_OBJECTS") {
        case::all().iter().for_each(|variant| variant.write_objects(folder.as_ref()));
        true
    } else if std::env::var_os("SLABJIT_SHUFFLE").is_some() {
        let only: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
        shuffled::run_all(&only)
    } else {
        let only_alone = std::env::var_os("SLABJIT_ALONE").is_some();
        let of_tables = TABLES.iter().flat_map(|(table, tests, _)| {
            let wanted = move |test: &&Test| !only_alone || shuffled::needs_a_process(table, test);
            tests.iter().filter(wanted).map(|test| common::trial(table, *test))
        });
        let cases = if only_alone { Vec::new() } else { case::all() };
        let trials = of_tables.chain(cases.into_iter().map(case::Variant::trial)).collect();
        let mut arguments = libtest_mimic::Arguments::from_args();
        if target::under_qemu() {
            arguments.test_threads.get_or_insert(target::QEMU_THREADS);
        }
        !libtest_mimic::run(&arguments, trials).has_failed()
    };
    common::remove_temporary_files();
    if passed { ExitCode::SUCCESS } else { ExitCode::from(101) }
}
