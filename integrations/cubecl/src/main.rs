//! 500 kernels: an ExecutionEngine for each, as in runtimes without a loader, beside one engine with a cache.

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, ValueEnum};
use slabjit_cubecl::{CpuKernel, CpuLoader, Launch};

/// Loads and launches kernels in processes of their own, in turn, and prints medians.
#[derive(Parser)]
struct Arguments {
    /// How many kernels there are.
    #[arg(long, default_value_t = 500)]
    kernels: usize,
    /// How often each is measured.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// A program without LLVM (this one, built without its features), to measure, too.
    #[arg(long)]
    without_llvm: Option<PathBuf>,
    /// Loads and launches in one way, and prints what it took.
    #[arg(long, hide = true)]
    side: Option<Side>,
    /// The cache's folder.
    #[arg(long, hide = true)]
    cache: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Side {
    /// Compiles each kernel into an ExecutionEngine (MCJIT) of its own.
    #[cfg(feature = "compiler")]
    Mcjit,
    /// With the cache, empty or not.
    Slabjit,
}

/// Units of a cube.
const UNITS: u32 = 4;
const NUMBERS: usize = 1000;
/// What compiles them: that of feature `compiler`.
const COMPILER: &str = "LLVM 19, -O3";

/// IR of a kernel in cubecl's ABI: `y[i] = x[i] * x[i] * a + b` for the numbers of one unit in each cube.
fn ir(kernel: usize) -> String {
    let (a, b) = constants(kernel);
    // LLVM writes an f32 as the bits of the same f64.
    let [a, b] = [a, b].map(|number| format!("0x{:016X}", f64::from(number).to_bits()));
    format!(
        "define void @{name}(ptr %buffers, i32 %cubes, i32 %cubes_y, i32 %cubes_z, i32 %unit, i32 %unit_y, i32 %unit_z, \
         ptr %barriers, ptr %metadata) {{
entry:
  %x = load ptr, ptr %buffers
  %second = getelementptr ptr, ptr %buffers, i64 1
  %y = load ptr, ptr %second
  %numbers = load i64, ptr %metadata
  br label %cube
cube:
  %index = phi i32 [ 0, %entry ], [ %next, %done ]
  %more = icmp ult i32 %index, %cubes
  br i1 %more, label %body, label %end
body:
  %first = mul i32 %index, {UNITS}
  %at = add i32 %first, %unit
  %wide = zext i32 %at to i64
  %inside = icmp ult i64 %wide, %numbers
  br i1 %inside, label %work, label %done
work:
  %from = getelementptr float, ptr %x, i64 %wide
  %number = load float, ptr %from
  %square = fmul float %number, %number
  %scaled = fmul float %square, {a}
  %moved = fadd float %scaled, {b}
  %to = getelementptr float, ptr %y, i64 %wide
  store float %moved, ptr %to
  br label %done
done:
  %next = add i32 %index, 1
  br label %cube
end:
  ret void
}}
",
        name = name(kernel)
    )
}

fn name(kernel: usize) -> String {
    format!("kernel_{kernel}")
}

fn constants(kernel: usize) -> (f32, f32) {
    (1.0 + kernel as f32 / 16.0, kernel as f32)
}

/// Calls a kernel, and compares with a loop of Rust's.
fn check(kernel: usize, run: impl FnOnce(&mut [*mut c_void; 2], &mut [u64; 1], u32) -> Result<()>) -> Result<()> {
    let x: Vec<f32> = (0..NUMBERS).map(|number| number as f32 / 8.0).collect();
    let mut y = vec![0.0_f32; NUMBERS];
    let mut buffers = [x.as_ptr().cast_mut().cast(), y.as_mut_ptr().cast()];
    run(&mut buffers, &mut [NUMBERS as u64], (NUMBERS as u32).div_ceil(UNITS))?;
    let (a, b) = constants(kernel);
    let wrong = x.iter().zip(&y).position(|(x, y)| x * x * a + b != *y);
    ensure!(wrong.is_none(), "kernel {kernel} is wrong at {wrong:?}");
    Ok(())
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    match (arguments.side, &arguments.cache) {
        (Some(side), Some(cache)) => run(side, arguments.kernels, cache),
        _ => compare(&arguments),
    }
}

fn run(side: Side, kernels: usize, cache: &Path) -> Result<()> {
    let start = Instant::now();
    let compiled = match side {
        #[cfg(feature = "compiler")]
        Side::Mcjit => mcjit::run(kernels)?,
        Side::Slabjit => slabjit(kernels, cache)?,
    };
    let time = start.elapsed();
    let status = std::fs::read_to_string("/proc/self/status")?;
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("Linux says VmHWM")?;
    println!("{} {} {compiled}", time.as_micros(), most.trim().trim_end_matches(" kB"));
    Ok(())
}

fn slabjit(kernels: usize, cache: &Path) -> Result<usize> {
    let loader = CpuLoader::open(cache, COMPILER)?;
    let mut loaded = Vec::new();
    for kernel in 0..kernels {
        let (name, ir) = (name(kernel), ir(kernel));
        // SAFETY: the IR defines it so.
        let function: CpuKernel = unsafe { loader.kernel(&name, ir.as_bytes(), || compile(&name, &ir)) }?;
        check(kernel, |buffers, metadata, cubes| {
            let launch = Launch { buffers, metadata, cubes: [cubes, 1, 1], units: [UNITS, 1, 1], has_barriers: false };
            // SAFETY: two buffers of as many numbers as the metadata says.
            Ok(unsafe { function.launch(launch) }?)
        })?;
        loaded.push(function);
    }
    Ok(loaded.iter().filter(|kernel| kernel.was_compiled()).count())
}

#[cfg(feature = "compiler")]
fn compile(name: &str, ir: &str) -> Result<Vec<u8>> {
    Ok(slabjit::ir::compile(name, ir, slabjit::ir::OptLevel::Aggressive)?)
}

#[cfg(not(feature = "compiler"))]
fn compile(name: &str, _: &str) -> Result<Vec<u8>> {
    anyhow::bail!("the cache has no {name}, and this program has no compiler")
}

/// Runs processes of each kind in turn. The first with a cache finds an empty one.
fn compare(arguments: &Arguments) -> Result<()> {
    let own = std::env::current_exe()?;
    let mut rows: Vec<(&str, &Path, &str, bool)> = vec![
        #[cfg(feature = "compiler")]
        ("an ExecutionEngine for each", &own, "mcjit", true),
        ("slabjit, the first start", &own, "slabjit", true),
        ("slabjit, a restart", &own, "slabjit", false),
    ];
    if let Some(without) = &arguments.without_llvm {
        rows.push(("slabjit, a restart without LLVM", without, "slabjit", false));
    }
    let mut measured = vec![Vec::new(); rows.len()];
    for _ in 0..arguments.rounds.max(1) {
        let cache = tempfile::tempdir()?;
        for ((name, program, side, is_first), measured) in rows.iter().zip(&mut measured) {
            let start = Instant::now();
            let mut command = Command::new(program);
            command.args(["--side", side, "--kernels", &arguments.kernels.to_string(), "--cache"]).arg(cache.path());
            let output = command.output()?;
            let whole = start.elapsed();
            let said = String::from_utf8_lossy(&output.stdout);
            ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
            let numbers: Vec<u64> = said.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
            let [time, most, compiled] = numbers[..] else { anyhow::bail!("{name}: {said}") };
            let expected = if *is_first { arguments.kernels as u64 } else { 0 };
            ensure!(compiled == expected, "{name}: {compiled} kernels were compiled, and not {expected}");
            measured.push((whole, Duration::from_micros(time), most));
        }
    }
    println!(
        "{:34}{:>12}{:>20}{:>14}",
        format!("{} kernels", arguments.kernels),
        "process",
        "to all launches",
        "memory"
    );
    for ((name, ..), measured) in rows.iter().zip(measured) {
        let median = |of: fn(&(Duration, Duration, u64)) -> u128| {
            let mut all: Vec<_> = measured.iter().map(of).collect();
            all.sort_unstable();
            all[all.len() / 2] as f64
        };
        println!(
            "{name:34}{:>9.1} ms{:>17.1} ms{:>10.1} MiB",
            median(|(whole, ..)| whole.as_micros()) / 1000.0,
            median(|(_, time, _)| time.as_micros()) / 1000.0,
            median(|(.., most)| u128::from(*most)) / 1024.0,
        );
    }
    Ok(())
}

#[cfg(feature = "compiler")]
mod mcjit {
    //! What runtimes without a loader do: each kernel has an LLVM of its own.

    use anyhow::{Result, anyhow};
    use inkwell::OptimizationLevel;
    use inkwell::context::Context;
    use inkwell::memory_buffer::MemoryBuffer;
    use inkwell::passes::PassBuilderOptions;
    use inkwell::targets::{CodeModel, InitializationConfig, RelocMode, Target, TargetMachine};
    use slabjit_cubecl::KernelFn;

    use super::{UNITS, check, ir, name};

    pub fn run(kernels: usize) -> Result<usize> {
        let failed = |error: &dyn ToString| anyhow!("LLVM: {}", error.to_string());
        Target::initialize_native(&InitializationConfig::default()).map_err(|error| failed(&error))?;
        let triple = TargetMachine::get_default_triple();
        let target = Target::from_triple(&triple).map_err(|error| failed(&error))?;
        let (cpu, features) = (TargetMachine::get_host_cpu_name(), TargetMachine::get_host_cpu_features());
        let level = OptimizationLevel::Aggressive;
        let machine = || {
            let (cpu, features) = (cpu.to_str().unwrap_or(""), features.to_str().unwrap_or(""));
            target.create_target_machine(&triple, cpu, features, level, RelocMode::Default, CodeModel::JITDefault)
        };
        // Engines live as long as the program, with the contexts of their modules.
        let contexts: Vec<_> = (0..kernels).map(|_| Context::create()).collect();
        let mut engines = Vec::new();
        for (kernel, context) in contexts.iter().enumerate() {
            let (name, text) = (name(kernel), ir(kernel));
            let buffer = MemoryBuffer::create_from_memory_range_copy(text.as_bytes(), &name);
            let module = context.create_module_from_ir(buffer).map_err(|error| failed(&error))?;
            let machine = machine().ok_or_else(|| anyhow!("LLVM has no machine for {triple}"))?;
            module.run_passes("default<O3>", &machine, PassBuilderOptions::create()).map_err(|error| failed(&error))?;
            let engine = module.create_jit_execution_engine(level).map_err(|error| failed(&error))?;
            // SAFETY: the IR defines it so.
            let function = unsafe { engine.get_function::<KernelFn>(&name) }?;
            check(kernel, |buffers, metadata, cubes| {
                for unit in 0..UNITS {
                    let (buffers, metadata) = (buffers.as_mut_ptr(), metadata.as_mut_ptr());
                    // SAFETY: two buffers of as many numbers as the metadata says; the kernel has no barriers.
                    unsafe { function.call(buffers, cubes, 1, 1, unit, 0, 0, std::ptr::null_mut(), metadata) };
                }
                Ok(())
            })?;
            engines.push(engine);
        }
        Ok(engines.len())
    }
}
