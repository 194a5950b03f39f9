//! JITLink's deallocation actions.
#![allow(unsafe_code, reason = "FFI to LLVM")]

use std::{fmt, ptr};

use slabjit_llvm_wrap as shim;

use crate::fork_guard::ForkGuard;
use crate::link::llvm::shim_text::take_text;

/// JITLink's deallocation actions; dropping runs them in reverse.
pub(in crate::link) struct Actions {
    raw: *mut shim::slabjit_actions,
}

// SAFETY: a list of calls that belongs to no session or thread.
unsafe impl Send for Actions {}
// SAFETY: a shared reference allows no operation.
unsafe impl Sync for Actions {}

impl Actions {
    /// Returns `None` for null: usually there are no actions.
    ///
    /// # Safety
    /// `raw` is null, or comes from the shim and has no other owner.
    pub(in crate::link) unsafe fn from_shim(raw: *mut shim::slabjit_actions) -> Option<Self> {
        (!raw.is_null()).then_some(Self { raw })
    }
}

impl fmt::Debug for Actions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Actions").finish_non_exhaustive()
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        let raw = std::mem::replace(&mut self.raw, ptr::null_mut());
        let _pass = ForkGuard::take();
        // SAFETY: ours, and run once; the text is taken once.
        if let Some(message) = unsafe { take_text(shim::slabjit_actions_run(raw)) } {
            tracing::error!(target: "slabjit", message, "a deallocation action failed");
        }
    }
}
