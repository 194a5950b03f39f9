//! What an object may call: `cargo run --example host_symbols`.
//!
//! A Rust program exports nothing by default (that takes `-rdynamic`), so loaded code does not find the program's
//! functions by itself. `.symbol` names those that it may call, `.shared_library` opens a library for it, and
//! `.isolated` keeps it from everything else in the process.

use std::ffi::{CStr, c_char};
use std::process::Command;

use slabjit::{Error, JitEngine, LinkError, Symbol};

const SOURCE: &str = "
    void host_log(const char *message, double value);
    double cbrt(double);
    double edge_of_cube(double volume) {
        double edge = cbrt(volume);
        host_log(\"the edge is\", edge);
        return edge;
    }";

/// What the kernel calls. It must not unwind, as `extern \"C\"` says.
extern "C" fn host_log(message: *const c_char, value: f64) {
    // SAFETY: kernels pass a string.
    let message = unsafe { CStr::from_ptr(message) }.to_string_lossy();
    println!("kernel: {message} {value}");
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = JitEngine::new()?;
    let bytes = compile(SOURCE)?;

    // SAFETY: libm does nothing that matters when it is opened, and `host_log` is what the source declares.
    let library = unsafe {
        engine
            .library("cube")
            .shared_library("libm.so.6")
            .symbol("host_log", host_log as *const ())
            .isolated() // nothing of the process but these
            .build()?
    };
    library.add_object_named("cube.o", &bytes)?;
    // SAFETY: the type is that of the C source.
    let edge: Symbol<unsafe extern "C" fn(f64) -> f64> = unsafe { library.get("edge_of_cube")? };
    // SAFETY: it takes any number.
    assert!((unsafe { edge(27.0) } - 3.0).abs() < 1e-12);

    // Without them, the error names all that is missing.
    let library = engine.library("nothing").isolated().build()?;
    library.add_object_named("cube.o", &bytes)?;
    // SAFETY: it does not get as far as running something.
    match unsafe { library.initialize() } {
        Err(error @ Error::Link(LinkError::UndefinedSymbols { .. })) => println!("as expected: {error}"),
        other => return Err(format!("expected two undefined symbols, got {other:?}").into()),
    }
    Ok(())
}

/// The object of some C source.
fn compile(source: &str) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let (input, output) = (folder.path().join("cube.c"), folder.path().join("cube.o"));
    std::fs::write(&input, source)?;
    let status = Command::new("gcc").args(["-c", "-O2", "-fPIC"]).arg(input).arg("-o").arg(&output).status()?;
    if status.success() { Ok(std::fs::read(output)?) } else { Err("gcc failed".into()) }
}
