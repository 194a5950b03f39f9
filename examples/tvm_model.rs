//! Runs a model that TVM has compiled into one object with its weights, and compares with numpy's answer.
//!
//! ci/tvm makes the files: cargo run --features tvm-ffi --example tvm_model -- FOLDER libtvm_ffi.so libtvm_runtime.so
#![allow(unsafe_code, reason = "loads and calls foreign code")]

use std::error::Error;
use std::path::Path;

use slabjit::JitEngine;
use slabjit::tvm_ffi::{Arguments, DLDataType, DLDevice, FromValue, Object, Runtime};

const CPU: DLDevice = DLDevice::CPU;
/// TVM's pooled allocator of intermediate results.
const POOLED: i64 = 2;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [folder, libraries @ ..] = &arguments[..] else {
        return Err("usage: tvm_model FOLDER libtvm_ffi.so libtvm_runtime.so".into());
    };
    let read = |name: &str| -> Result<Vec<f32>, Box<dyn Error>> {
        let bytes = std::fs::read(Path::new(folder).join(name))?;
        Ok(bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])).collect())
    };
    let (x, expected) = (read("x.bin")?, read("y.bin")?);

    let engine = JitEngine::new()?;
    let library = libraries.iter().fold(engine.library("mlp"), |builder, library| {
        // SAFETY: TVM's libraries register their functions, and nothing else.
        unsafe { builder.shared_library(library) }
    });
    let library = library.build()?;
    library.add_object_file(Path::new(folder).join("mlp.o"))?;
    // SAFETY: the object's initialisers register its functions and weights.
    unsafe { library.initialize()? };
    // SAFETY: the functions of tvm-ffi are those of TVM's library.
    let tvm = Tvm(unsafe { Runtime::of(&library)? });

    let module: Object = tvm.global("ffi.SystemLib", ("mlp_",))?;
    let load = tvm.function(&module, "vm_load_executable")?;
    let machine: Object = tvm.call(&load, ())?;
    let initialise = tvm.function(&machine, "vm_initialization")?;
    tvm.call::<()>(&initialise, (i64::from(CPU.device_type.0), 0, POOLED))?;

    let shape: Object = tvm.global("ffi.Shape", (4, 16))?;
    let input: Object = tvm.global("runtime.TVMTensorAllocWithScope", (&shape, DLDataType::F32, CPU, ()))?;
    let (place, numbers) = numbers(&input)?;
    assert_eq!(numbers, x.len());
    // SAFETY: the tensor has as many numbers, and only this program has it.
    unsafe { place.copy_from_nonoverlapping(x.as_ptr(), numbers) };
    let run = tvm.function(&machine, "main")?;
    let output: Object = tvm.call(&run, (&input,))?;
    let (place, numbers) = self::numbers(&output)?;
    // SAFETY: the tensor's numbers; it lives to the end.
    let y = unsafe { std::slice::from_raw_parts(place, numbers) };
    let most = y.iter().zip(&expected).map(|(given, expected)| (given - expected).abs()).fold(0.0, f32::max);
    println!("{} numbers, {most:e} from numpy's at most", y.len());
    if y.len() != expected.len() || most > 1e-4 {
        return Err(format!("TVM's model gave {y:?}, numpy {expected:?}").into());
    }
    Ok(())
}

/// TVM's runtime, whose functions check their arguments.
struct Tvm(Runtime);

impl Tvm {
    fn call<'a, R: FromValue>(&self, function: &Object, arguments: impl Arguments<'a>) -> slabjit::Result<R> {
        // SAFETY: the functions called here check their arguments, and keep references to what they keep.
        unsafe { self.0.call(function, arguments) }
    }

    fn global<'a, R: FromValue>(&self, name: &str, arguments: impl Arguments<'a>) -> slabjit::Result<R> {
        self.call(&self.0.global(name)?, arguments)
    }

    /// Returns a function of a module.
    fn function(&self, module: &Object, name: &str) -> slabjit::Result<Object> {
        self.global("ffi.ModuleGetFunction", (module, name, true))
    }
}

/// Returns where a tensor's numbers are, and how many.
fn numbers(tensor: &Object) -> Result<(*mut f32, usize), Box<dyn Error>> {
    let tensor = tensor.tensor().ok_or("it is no tensor")?;
    if tensor.device != CPU || tensor.dtype != DLDataType::F32 || tensor.byte_offset != 0 {
        return Err(format!("not numbers of this process: {tensor:?}").into());
    }
    let extents = usize::try_from(tensor.ndim)?;
    // SAFETY: a tensor has as many extents. TVM's are contiguous.
    let shape = unsafe { std::slice::from_raw_parts(tensor.shape, extents) };
    Ok((tensor.data.cast(), usize::try_from(shape.iter().product::<i64>())?))
}
