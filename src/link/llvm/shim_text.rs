//! Texts that the shim returns.
#![allow(unsafe_code, reason = "FFI to LLVM")]

use std::ffi::{CStr, c_char};

use slabjit_llvm_wrap as shim;
use slabjit_llvm_wrap::llvm_sys::error::{LLVMDisposeErrorMessage, LLVMErrorRef, LLVMGetErrorMessage};

/// Takes the text that a function of the shim returned, if any.
///
/// # Safety
/// The pointer is null, or what a function of the shim returned as a text; it is taken once.
pub(in crate::link) unsafe fn take_text(text: *mut c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: by the caller. A string of the shim's is NUL-terminated, and the caller's to free.
    unsafe {
        let copy = CStr::from_ptr(text).to_string_lossy().into_owned();
        shim::slabjit_string_free(text);
        Some(copy)
    }
}

/// Takes the text of an error that LLVM returned, if it is one.
///
/// # Safety
/// What a function of LLVM's returned; it is taken once.
pub(in crate::link) unsafe fn take_error(error: LLVMErrorRef) -> Option<String> {
    if error.is_null() {
        return None;
    }
    // SAFETY: by the caller. The message is NUL-terminated, and disposed of once.
    unsafe {
        let message = LLVMGetErrorMessage(error);
        let copy = CStr::from_ptr(message).to_string_lossy().into_owned();
        LLVMDisposeErrorMessage(message);
        Some(copy)
    }
}
