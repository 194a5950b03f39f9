//! A process from its start to its first token.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use slabjit::JitEngine;
use slabjit_candle_kernels::Kernels;

use crate::model::Model;
use crate::ops::{CandleOps, KernelOps, Precision};
use crate::weights::Weights;
use crate::{PROMPT, SEED, median};

/// How a process begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Start {
    /// With candle's operators.
    Candle,
    /// With the kernels' image.
    Image,
    /// With the kernels' object, which LLVM links.
    #[cfg(feature = "link")]
    Link,
}

/// Prints the first token, the time that the kernels took in microseconds, and the most memory in KiB.
pub fn first_token(start: Start) -> Result<()> {
    let weights = Weights::random(SEED)?;
    let begin = Instant::now();
    let engine = JitEngine::new()?;
    let kernels = match start {
        Start::Candle => None,
        Start::Image => Some(Kernels::load(&engine)?),
        #[cfg(feature = "link")]
        Start::Link => Some(Kernels::link(&engine, Kernels::load(&engine)?.variant)?),
    };
    let loaded = begin.elapsed();
    let text = match &kernels {
        None => Model::new(&CandleOps, &weights, Precision::F32)?.generate(&PROMPT, 1, || {})?,
        Some(kernels) => {
            Model::new(&KernelOps::new(kernels)?, &weights, Precision::F32)?.generate(&PROMPT, 1, || {})?
        }
    };
    let status = std::fs::read_to_string("/proc/self/status")?;
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("Linux says VmHWM")?;
    let most = most.trim().trim_end_matches(" kB");
    println!("{} {} {most}", text[0], loaded.as_micros());
    Ok(())
}

/// Runs processes of each kind in turn, and prints medians.
pub fn compare(rounds: usize) -> Result<()> {
    let starts = [
        ("candle", Start::Candle),
        ("kernels, image", Start::Image),
        #[cfg(feature = "link")]
        ("kernels, linked by LLVM", Start::Link),
    ];
    let mut measured = vec![Vec::new(); starts.len()];
    let mut first = None;
    for _ in 0..rounds.max(1) {
        for ((name, _), measured) in starts.iter().zip(&mut measured) {
            let kind = name.rsplit(' ').next().map_or("candle", |kind| if kind == "LLVM" { "link" } else { kind });
            let begin = Instant::now();
            let output = Command::new(std::env::current_exe()?).args(["--start", kind]).output()?;
            let time = begin.elapsed();
            let said = String::from_utf8_lossy(&output.stdout);
            ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
            let numbers: Vec<u64> = said.split_whitespace().map(str::parse).collect::<std::result::Result<_, _>>()?;
            let [token, loaded, most] = numbers[..] else { anyhow::bail!("{name}: {said}") };
            ensure!(*first.get_or_insert(token) == token, "{name}: another first token");
            measured.push((time, Duration::from_micros(loaded), most));
        }
    }
    println!("{:26}{:>16}{:>16}{:>14}", "from start to first token", "process", "its kernels", "memory");
    for ((name, _), measured) in starts.iter().zip(measured) {
        let time = median(measured.iter().map(|(time, ..)| *time).collect());
        let loaded = median(measured.iter().map(|(_, loaded, _)| *loaded).collect());
        let mut most: Vec<_> = measured.iter().map(|(.., most)| *most).collect();
        most.sort_unstable();
        let most = most[most.len() / 2] as f64 / 1024.0;
        println!("{name:26}{time:>16.1?}{loaded:>16.1?}{most:>10.1} MiB");
    }
    Ok(())
}
