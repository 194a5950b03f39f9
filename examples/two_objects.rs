//! A library of two objects that refer to each other: `cargo run --example two_objects`.
//!
//! Objects of one library see each other's names, hidden ones too, whichever was added first. Nothing is linked, and no
//! initialiser runs, until something is asked of the library.

use std::process::Command;

use slabjit::{JitEngine, Symbol};

const EVEN: &str = "
    #include <stdio.h>
    int is_odd(unsigned n);
    static int calls;
    __attribute__((visibility(\"hidden\"))) void count(void) { calls++; }
    __attribute__((constructor)) static void start(void) { puts(\"even.o is initialised\"); fflush(stdout); }
    int is_even(unsigned n) { count(); return n == 0 ? 1 : is_odd(n - 1); }
    int number_of_calls(void) { return calls; }";

const ODD: &str = "
    int is_even(unsigned n);
    __attribute__((visibility(\"hidden\"))) void count(void);
    int is_odd(unsigned n) { count(); return n == 0 ? 0 : is_even(n - 1); }";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = JitEngine::new()?;

    let parity = engine.library("parity").build()?;
    // Both, or none. With `add_object_named`, one after the other, messages would have names for them.
    parity.add_objects([compile("even", EVEN)?, compile("odd", ODD)?])?;
    println!("two objects are added");

    // SAFETY: the type is that of the C source; the initialiser above may run.
    let is_even: Symbol<unsafe extern "C" fn(u32) -> i32> = unsafe { parity.get("is_even")? };
    // SAFETY: as above.
    let calls: Symbol<unsafe extern "C" fn() -> i32> = unsafe { parity.get("number_of_calls")? };

    // The symbols keep the code alive; the library may go.
    drop(parity);
    // SAFETY: these functions take any number.
    let (ten, seven, calls) = unsafe { (is_even(10), is_even(7), calls()) };
    println!("is_even(10) = {ten}, is_even(7) = {seven}, in {calls} calls");
    assert_eq!((ten, seven, calls), (1, 0, 19));
    Ok(())
}

/// The object of some C source.
fn compile(name: &str, source: &str) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let (input, output) = (folder.path().join(name).with_extension("c"), folder.path().join(name).with_extension("o"));
    std::fs::write(&input, source)?;
    let status = Command::new("gcc").args(["-c", "-O2", "-fPIC"]).arg(input).arg("-o").arg(&output).status()?;
    if status.success() { Ok(std::fs::read(output)?) } else { Err("gcc failed".into()) }
}
