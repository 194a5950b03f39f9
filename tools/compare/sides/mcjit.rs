//! MCJIT, given objects in place of modules, so that it compiles nothing. It frees an engine only as a whole: one is
//! made for all that is unloaded together, and its making is counted.

use std::ffi::CStr;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use slabjit::llvm_sys::core::*;
use slabjit::llvm_sys::execution_engine::*;
use slabjit::llvm_sys::prelude::LLVMContextRef;
use slabjit::llvm_sys::target::{LLVM_InitializeNativeAsmPrinter, LLVM_InitializeNativeTarget};
use slabjit_stock::slabjit_stock_mcjit_add_object;

use super::{Hold, Loaded, Object, Side};
use crate::lljit::check;

#[derive(Default)]
struct Mcjit {
    /// Null between an `unload` and the next object.
    engine: Mutex<Engine>,
    kept: Mutex<Vec<Engine>>,
}

/// With the context of its one module, which is empty, and the bytes of its objects.
struct Engine(LLVMExecutionEngineRef, LLVMContextRef, Vec<Vec<u8>>);

// SAFETY: used under a lock.
unsafe impl Send for Engine {}

impl Default for Engine {
    fn default() -> Self {
        Self(ptr::null_mut(), ptr::null_mut(), Vec::new())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: nobody else has it, and what it loaded is called no more.
            unsafe {
                LLVMDisposeExecutionEngine(self.0);
                LLVMContextDispose(self.1);
            }
        }
    }
}

/// Nothing: the engine keeps its objects.
struct Held;

/// One.
pub fn mcjit() -> Result<Box<dyn Side>, String> {
    // SAFETY: plain use of the C API.
    unsafe {
        LLVMLinkInMCJIT();
        LLVM_InitializeNativeTarget();
        LLVM_InitializeNativeAsmPrinter();
    }
    Ok(Box::<Mcjit>::default())
}

impl Engine {
    fn make(&mut self) -> Result<(), String> {
        let mut message = ptr::null_mut();
        // SAFETY: plain use of the C API; the module is the engine's from now on.
        unsafe {
            let mut options: LLVMMCJITCompilerOptions = std::mem::zeroed();
            let size = size_of_val(&options);
            LLVMInitializeMCJITCompilerOptions(&mut options, size);
            self.1 = LLVMContextCreate();
            let module = LLVMModuleCreateWithNameInContext(c"empty".as_ptr(), self.1);
            if LLVMCreateMCJITCompilerForModule(&mut self.0, module, &mut options, size, &mut message) == 0 {
                return Ok(());
            }
            let text = CStr::from_ptr(message).to_string_lossy().into_owned();
            LLVMDisposeMessage(message);
            Err(text)
        }
    }

    fn address(&self, name: &CStr) -> Result<usize, String> {
        // SAFETY: there is an engine; it links what it was given.
        let address = unsafe { LLVMGetFunctionAddress(self.0, name.as_ptr()) };
        if address == 0 { Err(format!("MCJIT does not find {name:?}")) } else { Ok(address as usize) }
    }
}

impl Side for Mcjit {
    fn load(&self, object: &mut Object) -> Result<Loaded, String> {
        let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        engine.add(object)?;
        engine.loaded(object)
    }

    fn load_together(&self, objects: &mut [Object]) -> Result<Vec<Loaded>, String> {
        let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        objects.iter_mut().try_for_each(|object| engine.add(object))?;
        objects.iter().map(|object| engine.loaded(object)).collect()
    }

    fn unload(&self, _: Vec<Loaded>) -> Result<(), String> {
        drop(std::mem::take(&mut *self.engine.lock().unwrap_or_else(PoisonError::into_inner)));
        Ok(())
    }

    fn keep(&self) {
        let engine = std::mem::take(&mut *self.engine.lock().unwrap_or_else(PoisonError::into_inner));
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(engine);
    }
}

impl Engine {
    fn add(&mut self, object: &mut Object) -> Result<(), String> {
        if self.0.is_null() {
            self.make()?;
        }
        let bytes = std::mem::take(&mut object.bytes);
        // SAFETY: there is an engine, and the bytes are kept as long as it.
        unsafe { check(slabjit_stock_mcjit_add_object(self.0, bytes.as_ptr().cast(), bytes.len()))? };
        self.2.push(bytes);
        Ok(())
    }

    /// Links all that was added.
    fn loaded(&self, object: &Object) -> Result<Loaded, String> {
        if let Some(initialiser) = &object.initialiser {
            let address = self.address(initialiser)?;
            // SAFETY: initialisers take nothing and return nothing, and have not run yet.
            unsafe { std::mem::transmute::<usize, extern "C" fn()>(address)() };
        }
        let address = self.address(&object.entry)?;
        // SAFETY: just found, and the engine is disposed of under its lock.
        unsafe { object.ask(address) }?;
        Ok(Loaded { address: Some(address), hold: Box::new(Held) })
    }
}

impl Hold for Held {
    fn unload(self: Box<Self>) -> Result<(), String> {
        Ok(())
    }
}
