//! Resource trackers: what is added with one goes with it.
#![allow(unsafe_code, reason = "FFI to LLVM")]

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use slabjit_llvm_wrap::llvm_sys::orc2::{
    LLVMOrcReleaseResourceTracker, LLVMOrcResourceTrackerRef, LLVMOrcResourceTrackerRemove,
};

use super::entry::Entry;
use super::later::leave;
use super::session::Session;
use crate::fork_guard::ForkGuard;
use crate::link::llvm::shim_text::take_error;
use crate::{Error, LinkError, Result};

/// A resource tracker of a dylib.
pub(crate) struct Tracker {
    session: Arc<Session>,
    entry: Arc<Entry>,
    raw: LLVMOrcResourceTrackerRef,
    /// How many names LLVM has been given with it.
    pub(super) names: AtomicUsize,
}

// SAFETY: ORC's trackers may be used from any thread.
unsafe impl Send for Tracker {}
// SAFETY: as above.
unsafe impl Sync for Tracker {}

impl Tracker {
    pub(super) fn new(session: Arc<Session>, entry: Arc<Entry>, raw: LLVMOrcResourceTrackerRef) -> Self {
        Self { session, entry, raw, names: AtomicUsize::new(0) }
    }

    pub(super) fn raw(&self) -> *mut c_void {
        self.raw.cast()
    }

    /// Has its names be counted elsewhere.
    pub(super) fn names_go_to(&self, other: &AtomicUsize) {
        other.fetch_add(self.names.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Removes what was added with it. What is held goes later.
    pub(crate) fn remove(&self) -> Result<()> {
        let pass = ForkGuard::take();
        // SAFETY: the session lives.
        let text = unsafe { take_error(LLVMOrcResourceTrackerRemove(self.raw)) };
        drop(pass);
        leave();
        self.session.remove_names(self.names.swap(0, Ordering::Relaxed));
        text.map_or(Ok(()), |message| Err(Error::Link(LinkError::Session { message })))
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        // What was added stays, and goes with the dylib's.
        self.names_go_to(&self.entry.names);
        let _pass = ForkGuard::take();
        // SAFETY: ours, released once, while the session lives.
        unsafe { LLVMOrcReleaseResourceTracker(self.raw) };
    }
}
