//! The dynamic loader's handle of a module with thread-local variables.
#![allow(unsafe_code, reason = "dlclose")]

use std::ffi::c_void;
use std::ptr::NonNull;

use crate::fork_guard;

/// The loader's handle of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle(pub(super) NonNull<c_void>);

// SAFETY: the loader's handle may be used from any thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// Closes the module.
    ///
    /// # Safety
    /// Called once, by whoever owns the module, when the code that refers to its variables is gone or never ran.
    pub(super) unsafe fn close(self) {
        // SAFETY: by the caller.
        if unsafe { fork_guard::loading(|| libc::dlclose(self.0.as_ptr())) } != 0 {
            tracing::error!(target: "slabjit", "the dynamic loader kept a module of thread-local variables");
        }
    }
}
