//! A compiler for small expressions, whose functions are replaced while other threads call them:
//! `cargo run --release --example expressions --features inkwell`.
//!
//! What inkwell's `ExecutionEngine` cannot do: a handle here has nothing to do with the context that the module was
//! made in, may be called by any thread, and keeps its code alive; what was replaced goes when the last call of it has
//! ended.

mod compiler;

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use compiler::compile;
use slabjit::{JitEngine, Library, Removal, Symbol};

type Function = Symbol<unsafe extern "C" fn(f64, f64) -> f64>;

/// Each is used for a while. All are `x + y` where x = y.
const SOURCES: [&str; 4] = ["x + y", "2 * x", "(x * x + y * y) / (x + y) + x - 0", "y - -1 * x"];

fn main() -> Result<(), Box<dyn Error>> {
    let engine = JitEngine::new()?;
    // What is wrong with an expression is said before anything is made.
    println!("1 + (x * : {}", compile(&engine, "1 + (x * ").map(drop).unwrap_err());

    let (library, function) = load(&engine, SOURCES[0])?;
    let (current, ending, calls) = (RwLock::new(function), AtomicBool::new(false), AtomicU64::new(0));
    let mut library = library;
    let (mut replacements, mut waited) = (0_u64, 0_u64);
    std::thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut x = 1.0;
                while !ending.load(Ordering::Relaxed) {
                    // A clone keeps the code: the lock is not held while it runs.
                    let function = current.read().unwrap_or_else(PoisonError::into_inner).clone();
                    for _ in 0..1000 {
                        // SAFETY: every expression is compiled to a function of two numbers.
                        let result = unsafe { function(x, x) };
                        assert!((result - 2.0 * x).abs() <= 1e-9 * x, "{result} of {x}");
                        x = if x > 1e6 { 1.0 } else { x + 1.0 };
                    }
                    calls.fetch_add(1000, Ordering::Relaxed);
                }
            });
        }
        let replaced = replace(&engine, &current, &mut library, &mut replacements, &mut waited);
        ending.store(true, Ordering::Relaxed);
        replaced
    })?;
    println!(
        "{replacements} replacements under {} calls; {waited} times the code that was replaced was still being \
         called, and went afterwards",
        calls.into_inner()
    );
    drop((current, library));
    assert_eq!(engine.stats().libraries, 0, "all of it is gone");
    Ok(())
}

/// Replaces the function for a second.
fn replace(
    engine: &JitEngine,
    current: &RwLock<Function>,
    library: &mut Library,
    replacements: &mut u64,
    waited: &mut u64,
) -> Result<(), Box<dyn Error>> {
    let end = Instant::now() + Duration::from_secs(1);
    for source in SOURCES.iter().cycle() {
        if Instant::now() > end {
            break;
        }
        let (next, function) = load(engine, source)?;
        *current.write().unwrap_or_else(PoisonError::into_inner) = function;
        // Whoever has a handle may go on calling it.
        *waited += u64::from(matches!(std::mem::replace(library, next).remove(), Removal::Waiting { .. }));
        *replacements += 1;
    }
    Ok(())
}

fn load(engine: &JitEngine, source: &str) -> Result<(Library, Function), Box<dyn Error>> {
    let library = compile(engine, source)?;
    // SAFETY: `compile` makes a function of two numbers, and no initialisers.
    let function = unsafe { library.get("expression")? };
    Ok((library, function))
}
