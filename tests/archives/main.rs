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
//! taken here).
//!
//! The exit code is 0 if nothing failed, all contents are right, and whatever stock links is linked here too, as is
//! what uses thread-local storage or indirect functions. Some of that needs more room than glibc has for it unless it
//! is told so: `GLIBC_TUNABLES=glibc.rtld.optional_static_tls=BYTES`.
//!
//! Without `--archives` it runs the tests of itself.

mod companion;
mod contents;
mod elf;
#[path = "../stock/lljit.rs"]
mod lljit;
mod low;
mod members;
mod ours;
mod outcome;
mod stock;
mod table;
mod tests;
mod worker;

use std::cell::Cell;
use std::process::ExitCode;

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
    let (mut paths, mut list) = (Vec::new(), false);
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
            "--images" => (options.images, options.stock) = (true, false),
            option if option.starts_with('-') => return Err(format!("unknown option {option}")),
            path => paths.push(path.to_owned()),
        }
    }
    options.stock &= lljit::is_jitlink();
    let archives = paths.iter().map(|path| members::read(path)).collect::<Result<Vec<_>, _>>()?;
    let results = worker::run(&archives, &options)?;
    Ok(table::print(&archives, &results, list))
}
