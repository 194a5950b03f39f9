//! A kernel on a device, loaded from an object and removed while the device is busy with it: `cargo run --release
//! --features cuda --example cuda_saxpy`.
//!
//! Without a CUDA driver, or without a device, it says so and ends.
//!
//! For a machine that has a GPU and neither a compiler nor LLVM, build both here, and copy them there:
//! ```text
//! cargo build --release --no-default-features --features llvm19-1-prefer-static,cuda --example cuda_saxpy
//! target/release/examples/cuda_saxpy --make-object saxpy.o        (calls gcc)
//! ./cuda_saxpy saxpy.o                                            (there)
//! ```
#![allow(unsafe_code, reason = "calls the kernel")]

use std::error::Error;
use std::ffi::c_void;
use std::path::Path;
use std::process::Command;
use std::ptr;
use std::time::{Duration, Instant};

use slabjit::cuda::{Driver, Work};
use slabjit::{JitEngine, Removal, Symbol};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const ELEMENTS: usize = 64 << 20;
const A: f32 = 0.5;
/// How often the kernel is launched while it is removed.
const LAUNCHES: u32 = 2000;

type Saxpy = unsafe extern "C" fn(*mut c_void, f32, u64, u64, u32, u32) -> i32;

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    match &arguments[..] {
        [] => {
            let folder = tempfile::tempdir()?;
            let object = folder.path().join("saxpy.o");
            make_object(&object)?;
            run(&object)
        }
        [option, object] if option == "--make-object" => make_object(object.as_ref()),
        [object] => run(object.as_ref()),
        _ => Err("cuda_saxpy [OBJECT], or cuda_saxpy --make-object OBJECT".into()),
    }
}

/// Compiles the host's half, which takes the device's in.
fn make_object(object: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("host.c"), include_str!("host.c"))?;
    std::fs::write(folder.path().join("saxpy.ptx"), include_str!("saxpy.ptx"))?;
    let object = std::path::absolute(object)?;
    let mut gcc = Command::new("gcc");
    let status = gcc.current_dir(&folder).args(["-c", "-O2", "-fPIC", "host.c", "-o"]).arg(object).status()?;
    if status.success() { Ok(()) } else { Err("gcc failed".into()) }
}

/// x and y of element i: values with a fraction, 1024 different pairs.
fn input(i: usize) -> (f32, f32) {
    let i = (i % 1024) as f32;
    (i / 3.0, 1000.0 - i / 7.0)
}

/// What the kernel does, as the CPU has it.
fn expected(i: usize, times: u32) -> f32 {
    let (x, y) = input(i);
    (0..times).fold(y, |y, _| A.mul_add(x, y))
}

fn run(object: &Path) -> Result<()> {
    let driver = match Driver::load() {
        Ok(driver) => driver,
        Err(
            error @ (slabjit::Error::Cuda(slabjit::CudaError::DriverNotFound { .. })
            | slabjit::Error::Cuda(slabjit::CudaError::NoDevice)),
        ) => {
            println!("nothing is run: {error}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let device = driver.device(0)?;
    let (major, minor) = driver.version()?;
    println!("{}, CUDA {major}.{minor}", device.name()?);

    let engine = JitEngine::new()?;
    let start = Instant::now();
    let library = engine.library("saxpy").isolated().device(&device).build()?;
    library.add_object_file(object)?;
    // SAFETY: the types are those of host.c; the module is loaded before it is used.
    let (saxpy, module, stream) = unsafe {
        library.initialize_on(&device, |library| {
            let load: Symbol<unsafe extern "C" fn() -> i32> = library.get("saxpy_load")?;
            succeeded("saxpy_load", load())
        })?;
        let module: Symbol<unsafe extern "C" fn() -> *mut c_void> = library.get("saxpy_module")?;
        let make: Symbol<unsafe extern "C" fn(*mut *mut c_void) -> i32> = library.get("saxpy_stream")?;
        let _current = device.make_current()?;
        let mut stream = ptr::null_mut();
        succeeded("saxpy_stream", make(&raw mut stream))?;
        (library.get::<Saxpy>("saxpy")?, module(), stream)
    };
    println!("object loaded, and its module: {:?}", start.elapsed());

    let (x, y) = (device.allocate(ELEMENTS * 4)?, device.allocate(ELEMENTS * 4)?);
    let (host_x, host_y): (Vec<f32>, Vec<f32>) = (0..ELEMENTS).map(input).unzip();
    let launch = |times| -> slabjit::Result<i32> {
        // SAFETY: as host.c declares it, with buffers of so many elements; the context is current.
        Ok(unsafe { saxpy(stream, A, x.address(), y.address(), ELEMENTS as u32, times) })
    };
    // SAFETY: the stream is the device's, and lives to the end; the buffers have as many bytes.
    let time = unsafe {
        device.write(x.address(), bytes(&host_x), stream)?;
        // The first launch brings the code to the device.
        device.write(y.address(), bytes(&host_y), stream)?;
        let (code, first) = device.time(stream, || launch(1))?;
        succeeded("saxpy", code)?;
        println!("first launch: {first:?}");
        check(&read(&device, y.address(), stream)?, 1)?;
        let (code, time) = device.time(stream, || launch(1))?;
        succeeded("saxpy", code)?;
        time
    };
    let gigabytes = (ELEMENTS * 12) as f64 / 1e9;
    println!("{ELEMENTS} elements: {time:?}, {:.0} GB/s; equal to the scalar loop", gigabytes / time.as_secs_f64());

    // The stream is busy, and the library is removed.
    // SAFETY: as above.
    unsafe { device.write(y.address(), bytes(&host_y), stream)? };
    let start = Instant::now();
    {
        let _current = device.make_current()?;
        succeeded("saxpy", launch(LAUNCHES)?)?;
    }
    // SAFETY: both are the device's; the stream lives to the end, and nobody else unloads the module.
    library.drain(unsafe { Work::on(&device).stream(stream)?.module(module)? })?;
    drop(saxpy);
    let removal = library.remove();
    println!("removed {:?} after the first of {LAUNCHES} launches: {removal:?}", start.elapsed());
    if matches!(removal, Removal::Freed) {
        println!("the device was faster");
    }
    library.remove_and_wait(Duration::from_secs(60))?;
    println!("code and module gone after {:?}", start.elapsed());
    // SAFETY: as above.
    check(&unsafe { read(&device, y.address(), stream)? }, LAUNCHES)?;
    println!(
        "all {LAUNCHES} launches equal to the scalar loop; {} bytes of the arena in use",
        engine.stats().arena.slab_bytes
    );
    // The stream goes with its context, when the last user of the device does.
    Ok(())
}

fn succeeded(function: &str, code: i32) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(format!("{function} failed with CUresult {code}").into()) }
}

/// # Safety
/// The stream and the memory are the device's.
unsafe fn read(device: &slabjit::cuda::Device, y: u64, stream: *mut c_void) -> Result<Vec<f32>> {
    let mut result = vec![0_f32; ELEMENTS];
    // SAFETY: by the caller; floats are bytes, and any bytes are floats.
    unsafe {
        let bytes = std::slice::from_raw_parts_mut(result.as_mut_ptr().cast(), ELEMENTS * 4);
        device.read(bytes, y, stream)?;
    }
    Ok(result)
}

/// Every element, against the scalar loop, bit for bit.
fn check(result: &[f32], times: u32) -> Result<()> {
    let expected: Vec<f32> = (0..1024).map(|i| expected(i, times)).collect();
    match result.iter().enumerate().find(|(i, value)| value.to_bits() != expected[i % 1024].to_bits()) {
        None => Ok(()),
        Some((i, value)) => Err(format!("element {i} is {value}, not {}", expected[i % 1024]).into()),
    }
}

fn bytes(floats: &[f32]) -> &[u8] {
    // SAFETY: floats are bytes.
    unsafe { std::slice::from_raw_parts(floats.as_ptr().cast(), std::mem::size_of_val(floats)) }
}
