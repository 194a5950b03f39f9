//! Resource trackers: what is added with one goes with it.
#![allow(unsafe_code, reason = "FFI to LLVM")]

use std::ffi::c_void;
use std::sync::Arc;

use slabjit_llvm_wrap::llvm_sys::orc2::{
    LLVMOrcReleaseResourceTracker, LLVMOrcResourceTrackerRef, LLVMOrcResourceTrackerRemove,
};

use super::session::Session;
use crate::fork_guard::ForkGuard;
use crate::link::llvm::shim_text::take_error;
use crate::{Error, LinkError, Result};

/// A resource tracker of a dylib.
pub(crate) struct Tracker {
    session: Arc<Session>,
    raw: LLVMOrcResourceTrackerRef,
}

// SAFETY: ORC's trackers may be used from any thread.
unsafe impl Send for Tracker {}
// SAFETY: as above.
unsafe impl Sync for Tracker {}

impl Tracker {
    pub(super) fn new(session: Arc<Session>, raw: LLVMOrcResourceTrackerRef) -> Self {
        Self { session, raw }
    }

    pub(super) fn raw(&self) -> *mut c_void {
        self.raw.cast()
    }

    /// Removes what was added with it. What is held goes later.
    pub(crate) fn remove(&self) -> Result<()> {
        let _pass = ForkGuard::take();
        // SAFETY: the session lives.
        let text = unsafe { take_error(LLVMOrcResourceTrackerRemove(self.raw)) };
        text.map_or(Ok(()), |message| Err(Error::Link(LinkError::Session { message })))
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        let _pass = ForkGuard::take();
        let _lives = &self.session;
        // SAFETY: ours, released once, while the session lives.
        unsafe { LLVMOrcReleaseResourceTracker(self.raw) };
    }
}
