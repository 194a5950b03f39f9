//! JITLink's deallocation actions.
#![allow(unsafe_code)] // FFI to LLVM

use std::{fmt, ptr};

use slabjit_llvm_wrap as shim;

use super::text::take_text;
use crate::gate::Pass;

/// JITLink's deallocation actions; dropping runs them, in reverse.
pub(super) struct Actions {
    raw: *mut shim::slabjit_actions,
}

// SAFETY: a list of calls that belongs to no session or thread.
unsafe impl Send for Actions {}
// SAFETY: nothing can be done with a shared reference.
unsafe impl Sync for Actions {}

impl Actions {
    /// # Safety
    /// `raw` is null, or comes from the shim and is owned by nobody else.
    pub(super) unsafe fn from_shim(raw: *mut shim::slabjit_actions) -> Self {
        Self { raw }
    }
}

impl fmt::Debug for Actions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Actions").field("any", &!self.raw.is_null()).finish()
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        let raw = std::mem::replace(&mut self.raw, ptr::null_mut());
        let _pass = Pass::take();
        // SAFETY: ours, and run once.
        if let Some(message) = take_text(unsafe { shim::slabjit_actions_run(raw) }) {
            tracing::error!(target: "slabjit", message, "a deallocation action failed");
        }
    }
}
