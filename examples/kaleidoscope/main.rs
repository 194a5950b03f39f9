//! Kaleidoscope, the language of LLVM's tutorial, with functions that are compiled when they are first called:
//! `cargo run --release --example kaleidoscope --features inkwell [FILE]`.
//!
//! A definition becomes a module of a dylib, added lazily. A second definition of a name redirects the first one's
//! stub, for all callers. An expression at the top is a module of its own, which is taken back once it has run.

mod compiler;

use std::error::Error;

use compiler::{Compiler, Item};
use slabjit::ir::OptLevel;
use slabjit::orc::Dylib;
use slabjit::{JitEngine, Symbol};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Writes a character, as the tutorial's host function does.
extern "C" fn putchard(character: f64) -> f64 {
    print!("{}", char::from(character as u8));
    0.0
}

fn main() -> Result<()> {
    if let Some(file) = std::env::args().nth(1) {
        run(&std::fs::read_to_string(file)?, |value| println!("{value}"))?;
        return Ok(());
    }
    let mut values = Vec::new();
    let functions = run(include_str!("program.k"), |value| values.push(value))?;
    println!("{values:?}, by {functions} objects");
    // By loops of Rust.
    let fibonacci = (1..20).fold((0.0, 1.0), |(a, b), _| (b, a + b)).1;
    let sum: f64 = (1..=100).map(f64::from).sum();
    let product: f64 = (1..=10).map(f64::from).product();
    assert_eq!(values, [fibonacci, sum, product, 1.0, 0.0, 3f64.sqrt(), 42.0, 43.0, 0.0]);
    Ok(())
}

/// Runs a program, and returns how many objects were linked for its functions: stubs, and what was called.
fn run(source: &str, mut result: impl FnMut(f64)) -> Result<usize> {
    let engine = JitEngine::new()?;
    let dylib = engine.orc().build()?.dylib("kaleidoscope");
    // SAFETY: it is called as `double (double)`.
    unsafe { dylib.define("putchard", putchard as *const ())? };
    let mut compiler = Compiler::new(source);
    while let Some(item) = compiler.next()? {
        match item {
            Item::Function { name, symbol, module } => {
                dylib.add_bitcode_lazily(&name, module, OptLevel::Default)?;
                if name != symbol {
                    // SAFETY: functions of one type, as the compiler has checked; no thread is in the old one.
                    drop(unsafe { dylib.redirect(&name, &find(&dylib, &symbol)?)? });
                }
            }
            Item::Expression { symbol, module } => {
                let tracker = dylib.tracker();
                tracker.add_bitcode(&symbol, module, OptLevel::Default)?;
                let function = find(&dylib, &symbol)?;
                // SAFETY: of this type, and has no argument.
                result(unsafe { function() });
                tracker.remove()?;
            }
        }
    }
    Ok(engine.stats().libraries)
}

/// Finds a function, which is not called with the wrong number of arguments.
fn find(dylib: &Dylib, name: &str) -> slabjit::Result<Symbol<unsafe extern "C" fn() -> f64>> {
    // SAFETY: all results are `double`; there are no initialisers.
    unsafe { dylib.get(name) }
}
