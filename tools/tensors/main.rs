//! A compiler of tensor expressions that emits more kernels than a run needs, and the time to its first result:
//! `cargo run --release -p slabjit-tools --features tensors --bin tensors`.
//!
//! A module has 2000 kernels, of which one run calls 20, through a table. slabjit compiles each when it is first
//! called, or the whole module; beside it LLVM's LLLazyJIT, MCJIT and cranelift-jit, from the same expressions. LLVM's
//! sides have the same IR, passes and CPU. All of them alternate in one process, each in a session of its own; the
//! first round warms up. Results are compared, bit by bit, with a loop over the elements.
//!
//! `--quick` takes 200 kernels and one round; `--kernels N`, `--needed N`, `--rounds N` set these numbers.

mod cranelift;
mod expressions;
mod ir;
#[path = "../../tests/stock/lljit.rs"]
mod lljit;
mod sides;

use std::process::ExitCode;
use std::time::Instant;

use expressions::Kernel;
use sides::{Network, Side};

struct Options {
    kernels: usize,
    needed: usize,
    rounds: usize,
}

fn main() -> ExitCode {
    match Options::parse(std::env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tensors: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut this = Self { kernels: 2000, needed: 20, rounds: 5 };
        while let Some(argument) = arguments.next() {
            let field = match &argument[..] {
                "--quick" => {
                    (this.kernels, this.rounds) = (200, 1);
                    continue;
                }
                "--kernels" => &mut this.kernels,
                "--needed" => &mut this.needed,
                "--rounds" => &mut this.rounds,
                _ => {
                    return Err(format!(
                        "unknown option '{argument}'; there are --quick, --kernels, --needed, --rounds"
                    ));
                }
            };
            let number = arguments.next().and_then(|number| number.parse().ok()).filter(|number| *number > 0);
            *field = number.ok_or_else(|| format!("{argument} needs a number above 0"))?;
        }
        if this.needed > this.kernels {
            return Err(format!("--needed {} is more than --kernels {}", this.needed, this.kernels));
        }
        Ok(this)
    }
}

/// Elements of a tensor.
const LENGTH: usize = 1000;

/// Seconds.
#[derive(Clone, Copy, Default)]
struct Times {
    /// From the expressions to the end of the first run.
    first: f64,
    /// A run more: the median of many.
    again: f64,
}

fn run(options: &Options) -> Result<(), String> {
    slabjit::ir::compile("warm", "", slabjit::ir::OptLevel::None).map_err(|error| error.to_string())?;
    let kernels = Kernel::random(options.kernels);
    // Spread over all of them.
    let numbers: Vec<i32> = (0..options.needed).map(|i| (i * options.kernels / options.needed) as i32).collect();
    let element = |i: usize, step: usize| (i * step % 2001) as f32 / 1000.0 - 1.0;
    let a: Vec<f32> = (0..LENGTH).map(|i| element(i, 7)).collect();
    let b: Vec<f32> = (0..LENGTH).map(|i| element(i, 13)).collect();
    let mut expected = vec![0.0; LENGTH * numbers.len()];
    for (number, out) in numbers.iter().zip(expected.chunks_mut(LENGTH)) {
        kernels[*number as usize].run(out, &a, &b);
    }
    let attributes = sides::attributes();
    let mut rounds = Vec::new();
    for _ in 0..=options.rounds {
        let mut times = [Times::default(); Side::ALL.len()];
        for ((side, name), times) in Side::ALL.iter().zip(&mut times) {
            let mut out = vec![0.0; expected.len()];
            let start = Instant::now();
            let call = |network: Network| {
                let (numbers, n) = (&numbers[..], LENGTH as i64);
                // SAFETY: the tensors have as many elements, and the result as many for each number, of kernels that
                // there are.
                let mut call = || unsafe {
                    network(numbers.as_ptr(), numbers.len() as i64, out.as_mut_ptr(), a.as_ptr(), b.as_ptr(), n)
                };
                call();
                times.first = start.elapsed().as_secs_f64();
                let again = (0..100).map(|_| {
                    let start = Instant::now();
                    call();
                    start.elapsed().as_secs_f64()
                });
                times.again = median(again.collect());
            };
            side.with_network(&kernels, &attributes, call).map_err(|error| format!("{name}: {error}"))?;
            let wrong = out.iter().zip(&expected).position(|(is, should)| is.to_bits() != should.to_bits());
            if let Some(at) = wrong {
                let kernel = numbers[at / LENGTH];
                return Err(format!(
                    "{name}: element {} of kernel_{kernel} is {}, not {}",
                    at % LENGTH,
                    out[at],
                    expected[at]
                ));
            }
        }
        rounds.push(times);
    }
    report(options, &rounds[1..]);
    Ok(())
}

/// Medians of the times, and of the ratios of the first to that of a round's first side.
fn report(options: &Options, rounds: &[[Times; Side::ALL.len()]]) {
    let Options { kernels, needed, .. } = options;
    println!("LLVM {}: {kernels} kernels, of which a run needs {needed}", slabjit::llvm_version_string());
    println!("{:<24} {:>16} {:>8} {:>14}", "", "first result, ms", "ratio", "next run, µs");
    for (at, (_, name)) in Side::ALL.iter().enumerate() {
        let of = |value: &dyn Fn(&[Times]) -> f64| median(rounds.iter().map(|times| value(&times[..])).collect());
        let first = of(&|times| times[at].first * 1e3);
        let ratio = of(&|times| times[at].first / times[0].first);
        println!("{name:<24} {first:>16.1} {ratio:>8.2} {:>14.1}", of(&|times| times[at].again * 1e6));
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
