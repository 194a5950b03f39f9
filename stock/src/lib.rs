//! What slabjit is compared with: stock LLVM, where its C API does not reach. Extern declarations, and nothing else.
//!
//! The contract of every function is in `cpp/stock.cpp`.
#![cfg(slabjit_llvm)]
#![warn(unreachable_pub)]

use std::ffi::{c_char, c_int};

use slabjit_llvm_wrap::llvm_sys::error::LLVMErrorRef;
use slabjit_llvm_wrap::llvm_sys::execution_engine::LLVMExecutionEngineRef;
use slabjit_llvm_wrap::llvm_sys::orc2::lljit::LLVMOrcLLJITRef;
use slabjit_llvm_wrap::llvm_sys::orc2::{LLVMOrcExecutionSessionRef, LLVMOrcJITDylibRef, LLVMOrcObjectLayerRef};

unsafe extern "C" {
    /// A linking layer with JITLink and its in-process memory manager.
    pub fn slabjit_stock_in_process_layer(
        session: LLVMOrcExecutionSessionRef,
        out: *mut LLVMOrcObjectLayerRef,
    ) -> LLVMErrorRef;
    /// A linking layer with JITLink and the memory manager that maps through a `MemoryMapper`.
    pub fn slabjit_stock_mapper_layer(
        session: LLVMOrcExecutionSessionRef,
        out: *mut LLVMOrcObjectLayerRef,
    ) -> LLVMErrorRef;
    /// Looks names up at once.
    pub fn slabjit_stock_look_up_all(
        session: LLVMOrcExecutionSessionRef,
        dylib: LLVMOrcJITDylibRef,
        names: *const *const c_char,
        count: usize,
        addresses: *mut u64,
    ) -> LLVMErrorRef;
    /// What JITLink's in-process memory manager takes for an object.
    pub fn slabjit_stock_manager_time(
        bytes: *const c_char,
        size: usize,
        live: usize,
        count: usize,
        seconds: *mut [f64; 2],
    ) -> LLVMErrorRef;
    /// An LLLazyJIT with a module of IR.
    pub fn slabjit_stock_lazy(
        text: *const c_char,
        size: usize,
        passes: *const c_char,
        out: *mut LLVMOrcLLJITRef,
    ) -> LLVMErrorRef;
    /// Runs the initialisers of a JITDylib by the LLJIT's platform, or, with `down`, its finalisers.
    pub fn slabjit_stock_initialize(jit: LLVMOrcLLJITRef, dylib: LLVMOrcJITDylibRef, down: c_int) -> LLVMErrorRef;
    /// Gives MCJIT an object in place of a module to compile.
    pub fn slabjit_stock_mcjit_add_object(
        engine: LLVMExecutionEngineRef,
        bytes: *const c_char,
        size: usize,
    ) -> LLVMErrorRef;
}
