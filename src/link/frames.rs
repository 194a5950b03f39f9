//! Unwind tables, registered by us: LLVM's plugins deregister while handles may still hold the code.
//!
//! Each object by itself, although libgcc before 13 keeps a list: it reads its notes on what it has found after it has unlocked them
//! (`_Unwind_Find_FDE`), so that nothing can be registered anew, together with others, while somebody may be throwing through it.
#![allow(unsafe_code)] // libgcc's interface

use std::ffi::c_void;
use std::num::NonZero;

use crate::gate::Pass;

unsafe extern "C" {
    // libgcc_s, which Rust's standard library links on glibc (libgcc/unwind-dw2-fde.c).
    fn __register_frame(begin: *const c_void);
    fn __deregister_frame(begin: *const c_void);
}

/// The registered `.eh_frame` of one object; dropping it deregisters.
#[derive(Debug)]
pub(super) struct Frames {
    begin: NonZero<u64>,
}

impl Frames {
    /// # Safety
    /// `begin` is the address of an `.eh_frame` section that ends in a zero terminator (JITLink's EHFrameNullTerminator
    /// pass) and stays mapped and unchanged until the result is dropped.
    pub(super) unsafe fn register(begin: NonZero<u64>) -> Self {
        let _pass = Pass::take();
        // SAFETY: by the caller.
        unsafe { __register_frame(begin.get() as *const c_void) }
        Self { begin }
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        let _pass = Pass::take();
        // SAFETY: registered once by `register`; still mapped, as that function requires.
        unsafe { __deregister_frame(self.begin.get() as *const c_void) }
    }
}
