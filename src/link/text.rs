//! Texts that the shim returns.
#![allow(unsafe_code)] // FFI to LLVM

use std::ffi::{CStr, c_char};

use slabjit_llvm_wrap as shim;

/// The text that a function of the shim returned, if any.
pub(super) fn take_text(text: *mut c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: a string of the shim's is NUL-terminated, ours, and freed once.
    unsafe {
        let copy = CStr::from_ptr(text).to_string_lossy().into_owned();
        shim::slabjit_string_free(text);
        Some(copy)
    }
}
