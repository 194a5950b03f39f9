//! How many instructions it takes to load an object: valgrind counts them, in runs that differ in the number of objects
//! alone. They are the process's own; the kernel's are not among them.

use std::path::Path;
use std::process::Command;

use crate::child::{Heap, command, under};

/// Instructions for each of so many objects.
///
/// # Errors
/// Why they cannot be counted.
pub fn count(side: &str, workload: &Path, objects: usize) -> Result<f64, String> {
    let [less, more] = [1, 2].map(|times| total(side, workload, times * objects));
    Ok((more? - less?) / objects as f64)
}

fn total(side: &str, workload: &Path, objects: usize) -> Result<f64, String> {
    let counts = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    let mut valgrind = Command::new("valgrind");
    // Code may come to lie where other code was.
    valgrind.args(["--quiet", "--tool=callgrind", "--smc-check=all-non-file"]);
    valgrind.arg(format!("--callgrind-out-file={}", counts.path().display()));
    under(valgrind, &command(side, workload, None, Heap::Usual)?, |child| child.live(objects).map(drop))?;
    let text = std::fs::read_to_string(counts.path()).map_err(|error| error.to_string())?;
    let line = text.lines().find_map(|line| line.strip_prefix("summary: "));
    line.and_then(|count| count.trim().parse().ok()).ok_or_else(|| "valgrind counted nothing".into())
}
