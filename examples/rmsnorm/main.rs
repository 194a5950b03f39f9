//! The main job: an RMSNorm kernel, compiled ahead of time from C, loaded from the bytes of its object and run.
//!
//! `cargo run --release --example rmsnorm` compiles `rmsnorm.c` with gcc twice: as it is, and in the shape that made
//! this crate necessary (two sections named `.text`, AX and WA, and a `.fini_array`). Both are loaded, run on a
//! 4096×4096 input, and checked against a scalar reference. Then it measures the time from bytes to the first call, and
//! the same for `ld -shared` and `dlopen`.

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use slabjit::{JitEngine, Symbol};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// `void rmsnorm(const float *x, const float *weight, float *y, long rows, long columns, float eps)`
type RmsNorm = unsafe extern "C" fn(*const f32, *const f32, *mut f32, i64, i64, f32);
/// `const char *rmsnorm_path(void)`
type RmsNormPath = unsafe extern "C" fn() -> *const std::ffi::c_char;

const ROWS: usize = 4096;
const COLUMNS: usize = 4096;
const EPS: f32 = 1e-6;
/// The kernel sums 4096 squares in f32, eight or more sums side by side; the reference in f64. What is left is
/// rounding.
const TOLERANCE: f64 = 2e-6;

fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    if let Some(shared) = std::env::var_os("RMSNORM_CALL_SHARED") {
        return call_shared(Path::new(&shared)); // in a child process; see `what_the_linker_makes`
    }
    let input = Input::new();

    let engine = JitEngine::new()?;
    println!("slabjit on LLVM {}", slabjit::llvm_version());
    for (name, flags) in
        [("rmsnorm", &[][..]), ("rmsnorm, two .text sections", &["-DFOUNDING_SHAPE", "-Wa,--no-warn"][..])]
    {
        let object = compile(folder.path(), name, flags)?;
        let bytes = std::fs::read(&object)?;
        println!("\n== {name}: {} bytes", bytes.len());

        // What preparation finds and changes; linking does the same by itself.
        let plan = engine.check_object_named(name, &bytes)?;
        for section in plan.sections.iter().filter(|s| s.segment.is_some() && s.size > 0) {
            let segment = section.segment.as_deref().unwrap_or_default();
            println!(
                "   section {:2} {:22} {:4} {:6} bytes, mapped {segment}",
                section.index, section.name, section.flags, section.size
            );
        }
        match plan.changes.as_slice() {
            [] => println!("   preparation changed nothing"),
            changes => changes.iter().for_each(|change| println!("   preparation: {change}")),
        }

        // Nothing of the object runs here; `get` links and initialises it.
        let library = engine.add_object_named(name, &bytes)?;
        // SAFETY: the types are those in rmsnorm.c, and so are they below; the object has no initialisers that run
        // code.
        let (rmsnorm, path): (Symbol<RmsNorm>, Symbol<RmsNormPath>) =
            unsafe { (library.get("rmsnorm")?, library.get("rmsnorm_path")?) };
        for slab in library.slab_of("rmsnorm")? {
            println!("   slab {}", slab.to_string().replace('\n', "\n   "));
        }

        let start = Instant::now();
        let output = input.run(&rmsnorm);
        let took = start.elapsed();
        let error = input.largest_relative_error(&output);
        // SAFETY: it returns a string constant.
        let path = unsafe { std::ffi::CStr::from_ptr(path()) }.to_string_lossy();
        println!(
            "   {ROWS}x{COLUMNS} in {:.1} ms ({path}), largest relative error {error:.1e} (at most {TOLERANCE:.0e})",
            took.as_secs_f64() * 1e3
        );
        if error > TOLERANCE {
            return Err(format!("{name}: the result is wrong").into());
        }

        let ours = median(101, || {
            let start = Instant::now();
            let library = engine.add_object(&bytes)?;
            // SAFETY: as above.
            call_once(*unsafe { library.get::<RmsNorm>("rmsnorm")? });
            Ok((start.elapsed(), library))
        })?;
        println!("   bytes to first call: slabjit          {:>8.0} us (median of 101)", ours.as_secs_f64() * 1e6);
        what_the_linker_makes(&bytes, folder.path())?;
        drop(library); // `rmsnorm` and `path` still hold the code
    }
    drop((folder, engine));
    // What `ld` made of the second object is still open, and its finaliser would store into read-only memory at exit.
    std::io::stdout().flush()?;
    // SAFETY: nothing is left that has to be written or removed.
    unsafe { libc::_exit(0) }
}

/// The same way without this crate: a linker process, a temporary shared object, the dynamic loader.
fn what_the_linker_makes(bytes: &[u8], folder: &Path) -> Result<()> {
    let (object, shared) = (folder.join("linked.o"), folder.join("linked.so"));
    let link = || -> Result<()> {
        std::fs::write(&object, bytes)?;
        let output = Command::new("ld").args(["-shared", "-o"]).args([&shared, &object]).output()?;
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into()) }
    };
    // The first call in a child process: with two sections named .text it does not end well.
    link()?;
    let status = Command::new(std::env::current_exe()?).env("RMSNORM_CALL_SHARED", &shared).status()?;
    let works = status.success();
    let theirs = median(21, || {
        let start = Instant::now();
        link()?;
        // SAFETY: opening it runs nothing; it is not called where that would crash.
        let library = unsafe { libloading::Library::new(&shared)? };
        // SAFETY: the type is that in rmsnorm.c.
        let rmsnorm = *unsafe { library.get::<RmsNorm>(b"rmsnorm")? };
        if works {
            call_once(rmsnorm);
        }
        let took = start.elapsed();
        if !works {
            std::mem::forget(library); // closing it would crash, too: its finaliser stores there
            return Ok((took, None));
        }
        Ok((took, Some(library)))
    })?;
    let note =
        if works { String::new() } else { format!(", without a call: that ends in {status}, .text is read-only") };
    println!(
        "                        ld -shared + dlopen   {:>8.0} us (median of 21{note})",
        theirs.as_secs_f64() * 1e6
    );
    Ok(())
}

fn call_shared(path: &Path) -> Result<()> {
    // SAFETY: the file was made from rmsnorm.c.
    let library = unsafe { libloading::Library::new(path)? };
    // SAFETY: as above.
    call_once(*unsafe { library.get::<RmsNorm>(b"rmsnorm")? });
    Ok(())
}

/// The first call of a loaded kernel, on as little as possible.
fn call_once(rmsnorm: RmsNorm) {
    let (x, weight, mut y) = ([1.0f32; 8], [2.0f32; 8], [0.0f32; 8]);
    // SAFETY: the arrays are those that the kernel is told of.
    unsafe { rmsnorm(x.as_ptr(), weight.as_ptr(), y.as_mut_ptr(), 1, 8, EPS) };
    assert!(y.iter().all(|y| (y - 2.0).abs() < 1e-4), "{y:?}");
}

/// The median time of some runs; what a run returns is dropped outside of the measurement.
fn median<T>(runs: usize, mut run: impl FnMut() -> Result<(Duration, T)>) -> Result<Duration> {
    let mut times = (0..runs).map(|_| run().map(|(time, _)| time)).collect::<Result<Vec<_>>>()?;
    times.sort();
    Ok(times[runs / 2])
}

fn compile(folder: &Path, name: &str, flags: &[&str]) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/rmsnorm/rmsnorm.c");
    let object = folder.join(name.replace([' ', ','], "-")).with_extension("o");
    let mut gcc = Command::new("gcc");
    gcc.args(["-c", "-O2", "-fPIC", "-fno-math-errno"]).args(flags).arg(source).arg("-o").arg(&object);
    let status = gcc.status().map_err(|e| format!("cannot run gcc: {e}"))?;
    if status.success() { Ok(object) } else { Err("gcc failed".into()) }
}

struct Input {
    x: Vec<f32>,
    weight: Vec<f32>,
}

impl Input {
    fn new() -> Self {
        let mut state = 1u64;
        let mut random = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        Self {
            x: (0..ROWS * COLUMNS).map(|_| random() * 4.0).collect(),
            weight: (0..COLUMNS).map(|_| 1.0 + random() * 0.5).collect(),
        }
    }

    fn run(&self, rmsnorm: &Symbol<RmsNorm>) -> Vec<f32> {
        let mut y = vec![0.0f32; ROWS * COLUMNS];
        // SAFETY: x and y have ROWS × COLUMNS elements, the weight has COLUMNS.
        unsafe { rmsnorm(self.x.as_ptr(), self.weight.as_ptr(), y.as_mut_ptr(), ROWS as i64, COLUMNS as i64, EPS) };
        y
    }

    /// Against RMSNorm in plain Rust and f64.
    fn largest_relative_error(&self, output: &[f32]) -> f64 {
        let mut largest = 0.0f64;
        for (x, y) in self.x.chunks(COLUMNS).zip(output.chunks(COLUMNS)) {
            let squares: f64 = x.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
            let scale = 1.0 / (squares / COLUMNS as f64 + f64::from(EPS)).sqrt();
            for ((&x, &weight), &y) in x.iter().zip(&self.weight).zip(y) {
                let expected = f64::from(x) * scale * f64::from(weight);
                let error = (f64::from(y) - expected).abs() / expected.abs().max(f64::from(f32::MIN_POSITIVE));
                // NaN is an error, too.
                largest = if error <= largest { largest } else { error };
            }
        }
        if largest.is_nan() { f64::INFINITY } else { largest }
    }
}
