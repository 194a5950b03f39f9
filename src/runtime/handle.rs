//! A module of thread-local variables, as the dynamic loader knows it.
#![allow(unsafe_code)] // dlclose

use std::ffi::c_void;
use std::ptr::NonNull;

use crate::gate;

/// The loader's handle of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle(pub(super) NonNull<c_void>);

// SAFETY: the loader's handle may be used from any thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// Called once, by whoever owns the module.
    pub(super) fn close(self) {
        // SAFETY: our handle; the code that refers to its variables is gone or never ran (by its owner, `Image`).
        if unsafe { gate::loading(|| libc::dlclose(self.0.as_ptr())) } != 0 {
            tracing::error!(target: "slabjit", "the dynamic loader kept a module of thread-local variables");
        }
    }
}
