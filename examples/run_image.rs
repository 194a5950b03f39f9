//! The runner's half of shipping kernels: `cargo run --no-default-features --example run_image -- kernels.so` loads an
//! image that `link_image` has made. The program has no LLVM in it, and no compiler and no linker are needed.
//!
//! With `--dlopen` the dynamic loader opens the same file, for comparison.

use std::path::Path;

use slabjit::{JitEngine, Symbol};

/// `void rmsnorm(const float *x, const float *weight, float *y, long rows, long columns, float eps)`
type RmsNorm = unsafe extern "C" fn(*const f32, *const f32, *mut f32, i64, i64, f32);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next().ok_or("usage: run_image [--dlopen] FILE.so")?;
    if first == "--dlopen" {
        let file = std::path::absolute(arguments.next().ok_or("usage: run_image --dlopen FILE.so")?)?;
        // SAFETY: the image is link_image's, without initialisers.
        let library = unsafe { libloading::Library::new(file)? };
        // SAFETY: the type is that in rmsnorm.c.
        let rmsnorm = unsafe { library.get::<RmsNorm>(b"rmsnorm")? };
        return run(*rmsnorm);
    }
    let engine = JitEngine::new()?;
    let library = engine.add_image_file(Path::new(&first))?;
    // SAFETY: the type is that in rmsnorm.c; there are no initialisers.
    let rmsnorm: Symbol<RmsNorm> = unsafe { library.get("rmsnorm")? };
    run(*rmsnorm)
}

fn run(rmsnorm: RmsNorm) -> Result<(), Box<dyn std::error::Error>> {
    let (x, weight) = ([3.0_f32, -3.0, 3.0, -3.0], [1.0_f32, 2.0, 3.0, 4.0]);
    let mut y = [0.0_f32; 4];
    // SAFETY: one row of four columns, in buffers of four that do not overlap.
    unsafe { rmsnorm(x.as_ptr(), weight.as_ptr(), y.as_mut_ptr(), 1, 4, 0.0) };
    let right = y.iter().zip([1.0, -2.0, 3.0, -4.0]).all(|(y, expected)| (y - expected).abs() < 1e-5);
    if !right {
        return Err(format!("the kernel gives {y:?}").into());
    }
    let status = std::fs::read_to_string("/proc/self/status")?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("unknown");
    println!("the kernel is right; resident at most: {}", resident.trim());
    Ok(())
}
