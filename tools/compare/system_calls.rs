//! How many system calls it takes to load an object, and to unload it: strace counts them in runs that differ in that
//! alone.

use std::path::Path;
use std::process::Command;

use crate::child::{Child, Heap, command, under};

/// System calls of each of so many objects, to load and to unload it.
///
/// # Errors
/// Why they cannot be counted.
pub fn count(side: &str, workload: &Path, objects: usize) -> Result<(f64, f64), String> {
    let none = total(side, workload, &mut |_| Ok(()))?;
    let load = total(side, workload, &mut |child| child.live(objects).map(drop))?;
    let both = total(side, workload, &mut |child| {
        child.live(objects)?;
        child.unload()
    })?;
    let each = |more: f64, less: f64| (more - less) / objects as f64;
    Ok((each(load, none), each(both, load)))
}

fn total(side: &str, workload: &Path, body: &mut dyn FnMut(&mut Child) -> Result<(), String>) -> Result<f64, String> {
    let summary = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    let mut strace = Command::new("strace");
    strace.args(["-f", "-c", "-o"]).arg(summary.path());
    under(strace, &command(side, workload, None, Heap::Usual)?, body)?;
    let text = std::fs::read_to_string(summary.path()).map_err(|error| error.to_string())?;
    let line = text.lines().rev().find(|line| line.ends_with(" total"));
    let calls = line.and_then(|line| line.split_whitespace().nth(3)).and_then(|calls| calls.parse().ok());
    calls.ok_or_else(|| "strace is missing, or may not trace".into())
}
