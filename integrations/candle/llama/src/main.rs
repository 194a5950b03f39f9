//! A decoder in the shape of Llama with random weights: candle's operators beside kernels that slabjit loads.

mod agreement;
mod cold;
mod model;
mod ops;
mod weights;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use slabjit::JitEngine;
use slabjit_candle_kernels::Kernels;

use crate::cold::Start;
use crate::model::Model;
use crate::ops::{CandleOps, KernelOps, Ops, Precision};
use crate::weights::{CONFIG, Weights};

const PROMPT: [u32; 8] = [1, 17, 42, 1999, 5, 700, 1234, 64];
/// With these weights, the best token of each step leads by 0.3, ten times what rounding moves a score.
const SEED: u64 = 704;

/// Generates tokens with candle's operators and with kernels, in turn, and compares texts and times.
#[derive(Parser)]
struct Arguments {
    /// How products with weights are computed; all of them if it is not given.
    #[arg(long)]
    precision: Option<Precision>,
    /// Tokens to generate.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    tokens: u64,
    /// How often each is measured; the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Measures processes from their start to their first token instead.
    #[arg(long)]
    cold: bool,
    /// Begins in one way, prints the first token, and what it took.
    #[arg(long, hide = true)]
    start: Option<Start>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(start) = arguments.start {
        return cold::first_token(start);
    }
    if arguments.cold {
        return cold::compare(arguments.rounds);
    }
    let tokens = arguments.tokens as usize;
    ensure!(PROMPT.len() + tokens <= CONFIG.capacity, "{tokens} tokens do not fit into {}", CONFIG.capacity);
    let weights = Weights::random(SEED)?;
    let engine = JitEngine::new()?;
    let kernels = Kernels::load(&engine)?;
    println!("kernels for {}", kernels.variant);
    let precisions = match arguments.precision {
        Some(precision) => vec![precision],
        None => vec![Precision::F32, Precision::Q8, Precision::Q4],
    };
    for precision in precisions {
        let ops = KernelOps::new(&kernels)?;
        let with_candle = Model::new(&CandleOps, &weights, precision)?;
        let with_kernels = Model::new(&ops, &weights, precision)?;
        let x = weights.embedding.narrow(0, 0, 1)?;
        ops.tune(&kernels, with_kernels.largest(), &x)?;
        let (mut candle, mut ours) = (Vec::new(), Vec::new());
        let mut text = Vec::new();
        for _ in 0..arguments.rounds.max(1) {
            let expected = timed(&with_candle, tokens, &mut candle)?;
            text = timed(&with_kernels, tokens, &mut ours)?;
            same("kernels' text differs from candle's", &text, &expected)?;
        }
        if precision != Precision::F32 {
            agreement::check(&weights, precision, &with_candle, &with_kernels, &[&PROMPT, &text[..]].concat())?;
        }
        let (candle, ours) = (median(candle), median(ours));
        let per_second = |time: Duration| (PROMPT.len() + tokens - 1) as f64 / time.as_secs_f64();
        println!(
            "{precision:?}: {} tokens, {} of them different; candle {:.0} tokens/s, kernels {:.0}: {:.2} times",
            text.len(),
            text.iter().collect::<std::collections::HashSet<_>>().len(),
            per_second(candle),
            per_second(ours),
            candle.as_secs_f64() / ours.as_secs_f64(),
        );
        // The kernels are loaded anew before each token, and the last ones are unloaded.
        let mut replaced = Ok(());
        let replaced_text = with_kernels.generate(&PROMPT, tokens, || {
            if replaced.is_ok() {
                replaced = Kernels::load(&engine).map_err(Into::into).and_then(|next| ops.replace(&next));
            }
        })?;
        replaced?;
        same("text changes while kernels are replaced", &replaced_text, &text)?;
    }
    Ok(())
}

fn same(problem: &str, given: &[u32], expected: &[u32]) -> Result<()> {
    let first = given.iter().zip(expected).take_while(|(given, expected)| given == expected).count();
    ensure!(given == expected, "the {problem} from token {first} on:\n{given:?}\n{expected:?}");
    Ok(())
}

fn timed<O: Ops>(model: &Model<'_, O>, tokens: usize, times: &mut Vec<Duration>) -> Result<Vec<u32>> {
    let start = Instant::now();
    let text = model.generate(&PROMPT, tokens, || {})?;
    times.push(start.elapsed());
    Ok(text)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
