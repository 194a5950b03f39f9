//! Real objects: links every member of archives one by one, and does the same with stock LLJIT of the same LLVM.
//!
//! `cargo test --test archives -- --archives [options] ARCHIVE...` prints a table: linked, refused by cause, failed
//! without a named cause; and what stock links that is not linked here. Nothing of an object runs: every undefined name
//! has the address of a trap, and initialisers are not called. `ci/archives` gets the archives.
//!
//! LLVM 15 and 16 have no stock LLJIT that links such objects with JITLink: there stock is left out.
//!
//! Options: `--jobs N` processes at a time (all cores); `--sample K` takes every Kth member; `--contents K` compares
//! what is in memory for every Kth of those (default: all; 0: none); `--timeout S` seconds for one member (60); `--only
//! TEXT` takes members whose name contains it; `--list` prints each member with what became of it; `--no-stock` leaves
//! stock out; `--images` links each member into an image, and loads that (without stock; what GNU ld takes must be
//! taken here); `--pinned FILE` compares what became of the members of each archive with counts that are known.
//!
//! The exit code is 0 if nothing failed, all contents are right, and whatever stock links is linked here too, as is
//! what uses thread-local storage or indirect functions. Some of that needs more room than glibc has for it unless it
//! is told so: `GLIBC_TUNABLES=glibc.rtld.optional_static_tls=BYTES`.
//!
//! Without `--archives` it runs the tests of itself.

mod companion;
mod contents;
mod elf;
#[cfg(feature = "llvm")]
#[path = "../stock/lljit.rs"]
mod lljit;
mod low;
mod members;
mod ours;
mod outcome;
mod pinned;
#[cfg(feature = "llvm")]
mod stock;
mod table;
mod tests;
#[cfg(not(feature = "llvm"))]
mod without_llvm;
mod worker;

use std::cell::Cell;
use std::process::ExitCode;

#[cfg(not(feature = "llvm"))]
use without_llvm::{lljit, stock};
use worker::Options;

/// The dynamic loader aligns static thread-local storage as the program wants it, and takes in no library that wants
/// more.
#[repr(align(64))]
struct Aligned(Cell<u8>);

thread_local!(static ALIGNED: Aligned = const { Aligned(Cell::new(0)) });

fn main() -> ExitCode {
    // Or the compiler leaves it out.
    ALIGNED.with(|aligned| std::hint::black_box(aligned.0.as_ptr()));
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(at) = arguments.iter().position(|a| a == "--archives") else { return tests::run() };
    let arguments = arguments.split_off(at + 1);
    match link(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("archives: {message}");
            ExitCode::from(2)
        }
    }
}

fn link(arguments: Vec<String>) -> Result<bool, String> {
    let mut options = Options::default();
    let (mut paths, mut list, mut pinned) = (Vec::new(), false, None);
    let mut rest = arguments.into_iter();
    while let Some(argument) = rest.next() {
        let mut number = || -> Result<usize, String> {
            let value = rest.next().and_then(|v| v.parse().ok());
            value.ok_or_else(|| format!("{argument} needs a number"))
        };
        match argument.as_str() {
            "--jobs" => options.jobs = number()?.max(1),
            "--sample" => options.sample = number()?.max(1),
            "--contents" => options.contents = number()?,
            "--timeout" => options.timeout = u32::try_from(number()?).map_err(|e| e.to_string())?,
            "--only" => options.only = rest.next().ok_or("--only needs a text")?,
            "--list" => list = true,
            "--no-stock" => options.stock = false,
            "--pinned" => pinned = Some(rest.next().ok_or("--pinned needs a file")?),
            "--images" => (options.images, options.stock) = (true, false),
            option if option.starts_with('-') => return Err(format!("unknown option {option}")),
            path => paths.push(path.to_owned()),
        }
    }
    if !options.images && cfg!(not(feature = "llvm")) {
        return Err("a build without LLVM links images alone: --images".to_owned());
    }
    options.stock &= lljit::is_jitlink();
    let archives = paths.iter().map(|path| members::read(path)).collect::<Result<Vec<_>, _>>()?;
    let pinned = pinned.map(|path| std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))).transpose()?;
    let mut results = worker::run(&archives, &options)?;
    let mut differences = Vec::new();
    if let Some(text) = pinned {
        let whole = options.sample == 1 && options.contents == 1 && options.only.is_empty();
        differences = pinned::excuse(&text, &archives, &mut results, whole);
        differences.extend(pinned::differences(&text, &archives, &results, whole)?);
    }
    Ok(table::print(&archives, &results, list, &differences))
}
