//! Loading, calling and unloading objects with this crate, beside what else there is, of the same LLVM:
//! `cargo run --release -p slabjit-tools --bin compare`.
//!
//! Each side has a process of its own, as a program has one linker. Their repetitions alternate; each side's first
//! warms up. Ratios are those of one repetition to the one of stock LLJIT (JITLink, in-process memory manager) in the
//! same turn: the median, and what it lies between; below 1 is better. In more processes, memory, system calls (by
//! strace) and, for small objects, instructions (by valgrind's callgrind) are counted.
//!
//! `--python PATH` adds apache-tvm-ffi-orcjit, which has an LLVM of its own, if that Python has it: "from Python",
//! which measures itself, with Python's own part; of small objects only, whose functions have its convention, and with
//! one thread.
//!
//! `--json` prints one document for machines; `--plot FILE` draws the tables; `--page FILE DOCUMENT...` writes a page of
//! such documents, and measures nothing; `--quick` is for CI, and checks that answers are right; `--only WORKLOAD` takes one (small, cpp, kernels, one-section, many-sections, merged,
//! large), `--rounds N` so many repetitions.

mod bench;
mod child;
mod codegen;
mod goals;
mod instructions;
#[path = "../../tests/stock/lljit.rs"]
mod lljit;
mod measure;
mod memory;
#[path = "../../benches/objects/mod.rs"]
mod objects;
mod page;
mod phases;
mod plot;
mod report;
mod sides;
mod system_calls;
mod workloads;

use std::path::Path;
use std::process::ExitCode;

use child::Heap;
use phases::Options;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        [child @ ("--child" | "--child-with-one-heap"), side, workload, ref python @ ..] => {
            let heap = if child == "--child" { Heap::Usual } else { Heap::One };
            child::be(side, workload, python.first().map(Path::new), heap).map(|()| true)
        }
        ["--page", page, ref documents @ ..] => page::write(Path::new(page), documents).map(|()| true),
        _ => Options::parse(&words).and_then(|options| run(&options)),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether all answers were right.
fn run(options: &Options) -> Result<bool, String> {
    let machine = machine();
    if !options.json {
        println!("LLVM {}; {machine}", slabjit::llvm_version_string());
    }
    let mut tables = Vec::new();
    let mut show = |table: report::Table| {
        if !options.json {
            table.print();
        }
        tables.push(table);
    };
    for workload in workloads::workloads(options.quick, options.only.as_deref()) {
        phases::beside(&workload, options, &mut show)?;
    }
    if options.only.as_deref().is_none_or(|only| only == "large") {
        phases::large(options, &mut show)?;
    }
    let reached = goals::reached(&tables);
    if options.json {
        let document = serde_json::json!({
            "llvm": slabjit::llvm_version_string(),
            "machine": machine,
            "base": sides::BASE,
            "tables": tables,
            "to_reach": reached,
        });
        println!("{document}");
    } else if !options.quick {
        goals::print(&reached);
    }
    if let Some(file) = &options.plot {
        plot::write(&tables, &machine, file)?;
    }
    let failures: Vec<String> = tables.iter().flat_map(report::Table::failures).collect();
    failures.iter().for_each(|failure| eprintln!("compare: {failure}"));
    Ok(failures.is_empty())
}

fn machine() -> String {
    let of = |file: &str, key: &str| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        line.map_or(String::new(), |line| line.trim_start_matches([' ', '\t', ':']).to_owned())
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = of("/proc/loadavg", "");
    let load = load.split(' ').next().unwrap_or_default();
    format!("{}, {cores} cores, load {load}", of("/proc/cpuinfo", "model name"))
}
