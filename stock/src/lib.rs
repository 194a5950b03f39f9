//! What slabjit is compared with: stock LLVM, where its C API does not reach. Extern declarations, and nothing else.
//!
//! The contract of every function is in `cpp/stock.cpp`. Without a feature there is nothing here.

#[cfg(any(feature = "llvm15-0", feature = "llvm15-0-prefer-static", feature = "llvm15-0-no-llvm-linking"))]
use llvm_sys_150 as llvm_sys;
#[cfg(any(feature = "llvm16-0", feature = "llvm16-0-prefer-static", feature = "llvm16-0-no-llvm-linking"))]
use llvm_sys_160 as llvm_sys;
#[cfg(any(feature = "llvm19-1", feature = "llvm19-1-prefer-static", feature = "llvm19-1-no-llvm-linking"))]
use llvm_sys_191 as llvm_sys;
#[cfg(any(feature = "llvm22-1", feature = "llvm22-1-prefer-static", feature = "llvm22-1-no-llvm-linking"))]
use llvm_sys_221 as llvm_sys;

/// Declares them with the types of the LLVM in use.
macro_rules! declare {
    ($($feature:literal)*) => {
        #[cfg(any($(feature = $feature),*))]
        mod declared {
            use std::ffi::c_char;

            use super::llvm_sys::error::LLVMErrorRef;
            use super::llvm_sys::execution_engine::LLVMExecutionEngineRef;
            use super::llvm_sys::orc2::{LLVMOrcExecutionSessionRef, LLVMOrcJITDylibRef, LLVMOrcObjectLayerRef};

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
                /// Gives MCJIT an object in place of a module to compile.
                pub fn slabjit_stock_mcjit_add_object(
                    engine: LLVMExecutionEngineRef,
                    bytes: *const c_char,
                    size: usize,
                ) -> LLVMErrorRef;
            }
        }
        #[cfg(any($(feature = $feature),*))]
        pub use declared::*;
    };
}
declare!(
    "llvm15-0" "llvm15-0-prefer-static" "llvm15-0-no-llvm-linking"
    "llvm16-0" "llvm16-0-prefer-static" "llvm16-0-no-llvm-linking"
    "llvm19-1" "llvm19-1-prefer-static" "llvm19-1-no-llvm-linking"
    "llvm22-1" "llvm22-1-prefer-static" "llvm22-1-no-llvm-linking"
);
