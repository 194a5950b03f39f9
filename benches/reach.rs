//! What judging references costs: preparation of a 1 MB object with 10 000 relocations, against the whole way from its
//! bytes to the first address, in which the linker looks at every reference twice more. And what a plan of it costs.
//!
//! With `-- --profile` it only loads, again and again, for a profiler to tell validation, survey and check apart.
//!
//! Run with `cargo bench --bench reach`; for the other LLVM add `--no-default-features --features llvm22-1`.

use std::fmt::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use slabjit::{JitEngine, Library, Symbol};

const RELOCATIONS: usize = 10_000;
const ROUNDS: usize = 31;

fn main() {
    let object = compile();
    let engine = JitEngine::new().unwrap();
    let plan = engine.check_object(&object).unwrap();
    let relocations: u64 = plan.relocations.iter().map(|r| r.always + r.in_arena + r.bridged + r.refused).sum();
    assert!(plan.loads(), "{plan}");
    println!(
        "LLVM {}, {} bytes, {relocations} relocations, medians of {ROUNDS}",
        slabjit::llvm_version(),
        object.len()
    );

    if std::env::args().any(|argument| argument == "--profile") {
        (0..300).for_each(|_| drop(load(&engine, &object)));
        return;
    }
    let (mut prepare, mut link, mut check, mut ratios) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (_library, prepared, whole) = load(&engine, &object);
        let start = Instant::now();
        engine.check_object(&object).unwrap();
        let checked = start.elapsed();
        // The first round warms up.
        if round > 0 {
            prepare.push(prepared);
            link.push(whole);
            check.push(checked);
            ratios.push(prepared.as_secs_f64() / whole.as_secs_f64());
        }
    }
    ratios.sort_by(f64::total_cmp);
    println!("preparation        {:8.3} ms", median(prepare));
    println!("bytes to address   {:8.3} ms", median(link));
    println!("check_object       {:8.3} ms", median(check));
    println!("preparation / whole {:.3} ({:.3}..{:.3})", ratios[ROUNDS / 2], ratios[0], ratios[ROUNDS - 1]);
}

/// Loads the object; how long preparation took, and all of it.
fn load(engine: &JitEngine, object: &[u8]) -> (Library, Duration, Duration) {
    let start = Instant::now();
    let library = engine.add_object(object).unwrap();
    let prepared = start.elapsed();
    // SAFETY: a function without parameters, which is not called; there are no initialisers.
    let _first: Symbol<unsafe extern "C" fn()> = unsafe { library.get("f0").unwrap() };
    (library, prepared, start.elapsed())
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e3
}

/// Functions that take addresses, read data and call each other; a table of pointers; and what fills a megabyte.
fn compile() -> Vec<u8> {
    let mut source = String::from(".text\n");
    let functions = RELOCATIONS / 5;
    for i in 0..functions {
        let next = (i * 7 + 1) % functions;
        let body = if cfg!(target_arch = "x86_64") {
            format!(" leaq d{i}(%rip),%rax\n movl d{next}(%rip),%ecx\n call f{next}@PLT\n ret\n .zero 420, 0x90\n")
        } else {
            format!(" adrp x0, d{i}\n ldr w1, [x0, :lo12:d{i}]\n bl f{next}\n ret\n .zero 420\n")
        };
        write!(source, ".globl f{i}\nf{i}:\n{body}").unwrap();
    }
    source.push_str(".data\n");
    for i in 0..functions {
        let word = if cfg!(target_arch = "x86_64") { ".quad" } else { ".xword" };
        write!(source, ".globl d{i}\n.balign 8\nd{i}: {word} f{i}\n {word} d{}\n", (i + 1) % functions).unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let (path, object) = (dir.path().join("reach.s"), dir.path().join("reach.o"));
    std::fs::write(&path, source).unwrap();
    assert!(Command::new("cc").arg("-c").arg(&path).arg("-o").arg(&object).status().unwrap().success());
    std::fs::read(&object).unwrap()
}
