//! Those who compile, each from the kernels to a function that can be called.

use std::ffi::{CStr, c_char};
use std::ptr;

use slabjit::JitEngine;
use slabjit::ir::OptLevel;
use slabjit::llvm_sys::core::*;
use slabjit::llvm_sys::execution_engine::*;
use slabjit::llvm_sys::ir_reader::LLVMParseIRInContext;
use slabjit::llvm_sys::orc2::lljit::{LLVMOrcDisposeLLJIT, LLVMOrcLLJITLookup};
use slabjit::llvm_sys::target_machine::*;
use slabjit::llvm_sys::transforms::pass_builder::*;

use crate::expressions::Kernel;
use crate::lljit::check;
use crate::{cranelift, ir};

/// Calls kernels by their numbers, one after the other: each writes as many elements behind those of the one before.
pub type Network =
    unsafe extern "C" fn(numbers: *const i32, count: i64, out: *mut f32, a: *const f32, b: *const f32, n: i64);

/// One who compiles.
#[derive(Clone, Copy)]
pub enum Side {
    Lazily,
    Eagerly,
    LazyLljit,
    Mcjit,
    Cranelift,
}

/// What all of LLVM's are told: nothing is left out, and the code is for this CPU.
const PASSES: &CStr = c"default<O2>";

impl Side {
    pub const ALL: [(Self, &str); 5] = [
        (Self::Lazily, "slabjit, lazily"),
        (Self::Eagerly, "slabjit, as one module"),
        (Self::LazyLljit, "LLVM's LLLazyJIT"),
        (Self::Mcjit, "MCJIT"),
        (Self::Cranelift, "cranelift-jit"),
    ];

    /// Compiles what it has to before a kernel can be called, and calls `run` with the function.
    ///
    /// # Errors
    /// In the side's words.
    pub fn with_network(self, kernels: &[Kernel], attributes: &str, run: impl FnOnce(Network)) -> Result<(), String> {
        match self {
            Self::Lazily | Self::Eagerly => {
                let engine = JitEngine::new().map_err(|error| error.to_string())?;
                let jit = engine.orc().build().map_err(|error| error.to_string())?;
                let dylib = jit.dylib("tensors");
                let text = ir::module(kernels, attributes);
                let added = match self {
                    Self::Lazily => dylib.add_bitcode_lazily("tensors", text, OptLevel::Default),
                    _ => dylib.add_bitcode("tensors", text, OptLevel::Default),
                };
                // SAFETY: the function has this type, and the module no initialisers.
                let network = added.and_then(|()| unsafe { dylib.get::<Network>("network") });
                let network = network.map_err(|error| error.to_string())?;
                // SAFETY: it is dropped behind this, and the dylib, which compiles what is called, after that.
                run(unsafe { std::mem::transmute::<*const (), Network>(network.address()) });
                Ok(())
            }
            Self::LazyLljit => lazy_lljit(&ir::module(kernels, attributes), run),
            Self::Mcjit => mcjit(&ir::module(kernels, attributes), run),
            Self::Cranelift => {
                let (module, network) = cranelift::compile(kernels)?;
                run(network);
                // SAFETY: nothing of it is used any more.
                unsafe { module.free_memory() };
                Ok(())
            }
        }
    }
}

/// What functions are marked with, so that every side of LLVM compiles for this machine.
pub fn attributes() -> String {
    // SAFETY: both return strings for the caller.
    let [cpu, features] = unsafe { [LLVMGetHostCPUName(), LLVMGetHostCPUFeatures()].map(|text| taken(text)) };
    format!(r#"nounwind "target-cpu"="{cpu}" "target-features"="{features}""#)
}

/// # Safety
/// One of LLVM's messages, which goes.
unsafe fn taken(message: *mut c_char) -> String {
    // SAFETY: by the caller.
    unsafe {
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        LLVMDisposeMessage(message);
        text
    }
}

fn lazy_lljit(text: &str, run: impl FnOnce(Network)) -> Result<(), String> {
    // SAFETY: plain use of the API; the function has this type, and the session is there while it runs.
    unsafe {
        let mut jit = ptr::null_mut();
        check(slabjit_stock::slabjit_stock_lazy(text.as_ptr().cast(), text.len(), PASSES.as_ptr(), &mut jit))?;
        let mut address = 0;
        let found = check(LLVMOrcLLJITLookup(jit, &mut address, c"network".as_ptr()));
        if found.is_ok() {
            run(std::mem::transmute::<usize, Network>(address as usize));
        }
        let ended = check(LLVMOrcDisposeLLJIT(jit));
        found.and(ended)
    }
}

fn mcjit(text: &str, run: impl FnOnce(Network)) -> Result<(), String> {
    // SAFETY: plain use of the C API; the engine owns the module, and is there while the function runs, which has this
    // type.
    unsafe {
        LLVMLinkInMCJIT();
        let context = LLVMContextCreate();
        let buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(text.as_ptr().cast(), text.len(), c"tensors".as_ptr());
        let (mut module, mut message) = (ptr::null_mut(), ptr::null_mut());
        if LLVMParseIRInContext(context, buffer, &mut module, &mut message) != 0 {
            return Err(taken(message));
        }
        let mut engine = ptr::null_mut();
        let mut options: LLVMMCJITCompilerOptions = std::mem::zeroed();
        LLVMInitializeMCJITCompilerOptions(&mut options, size_of_val(&options));
        options.OptLevel = 2;
        if LLVMCreateMCJITCompilerForModule(&mut engine, module, &mut options, size_of_val(&options), &mut message) != 0
        {
            return Err(taken(message));
        }
        let machine = LLVMGetExecutionEngineTargetMachine(engine);
        let settings = LLVMCreatePassBuilderOptions();
        let passed = LLVMRunPasses(module, PASSES.as_ptr(), machine, settings);
        check(passed)?;
        LLVMDisposePassBuilderOptions(settings);
        let address = LLVMGetFunctionAddress(engine, c"network".as_ptr());
        if address == 0 {
            return Err("MCJIT has no address of 'network'".into());
        }
        run(std::mem::transmute::<usize, Network>(address as usize));
        LLVMDisposeExecutionEngine(engine);
        LLVMContextDispose(context);
    }
    Ok(())
}
