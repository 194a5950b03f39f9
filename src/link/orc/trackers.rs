//! ORC's resource trackers.
#![allow(unsafe_code, reason = "FFI to LLVM")]

use std::ffi::c_void;
use std::sync::Arc;

use slabjit_llvm_wrap::llvm_sys::orc2::{
    LLVMOrcJITDylibCreateResourceTracker, LLVMOrcReleaseResourceTracker, LLVMOrcResourceTrackerRef,
    LLVMOrcResourceTrackerRemove,
};

use crate::fork_guard::{ForkGuard, Mutex};
use crate::link::llvm::shim_text::take_error;

/// So many names at most go to a tracker: for each object that is added, ORC copies the list of its tracker's names.
const ROOM: usize = 128;

/// One of ORC's, whose session lives.
pub(super) struct OrcTracker(LLVMOrcResourceTrackerRef);

/// Those that together have what somebody added.
#[derive(Default)]
pub(super) struct Trackers(Mutex<Vec<Part>>);

struct Part {
    tracker: Arc<OrcTracker>,
    names: usize,
    /// How many times the dylib had been cleared before: that removes what was added with a tracker, and ends it.
    clears: u64,
}

// SAFETY: ORC's trackers may be used from any thread.
unsafe impl Send for OrcTracker {}
// SAFETY: as above.
unsafe impl Sync for OrcTracker {}

impl OrcTracker {
    pub(super) fn raw(&self) -> *mut c_void {
        self.0.cast()
    }

    /// Returns LLVM's words if it fails.
    fn remove(&self) -> Option<String> {
        let _pass = ForkGuard::take();
        // SAFETY: the session lives.
        unsafe { take_error(LLVMOrcResourceTrackerRemove(self.0)) }
    }
}

impl Drop for OrcTracker {
    /// What it has would go to the dylib's own tracker, after a walk over all that the dylib has not linked yet.
    fn drop(&mut self) {
        let _pass = ForkGuard::take();
        // SAFETY: ours, released once, while the session lives.
        unsafe { LLVMOrcReleaseResourceTracker(self.0) };
    }
}

impl Trackers {
    /// Returns one for so many more names of an ORC dylib, whose session lives, and which was cleared so many times.
    pub(super) fn with_room(&self, dylib: *mut c_void, clears: u64, names: usize) -> Arc<OrcTracker> {
        let mut parts = self.0.lock();
        if let Some(last) = parts.last_mut().filter(|last| last.clears == clears && last.names + names <= ROOM) {
            last.names += names;
            return Arc::clone(&last.tracker);
        }
        // SAFETY: by the caller.
        let tracker = Arc::new(OrcTracker(unsafe { LLVMOrcJITDylibCreateResourceTracker(dylib.cast()) }));
        parts.push(Part { tracker: Arc::clone(&tracker), names, clears });
        tracker
    }

    /// Takes note that nothing was added with one that was returned for so many names. One that has nothing goes.
    pub(super) fn give_back(&self, tracker: &Arc<OrcTracker>, names: usize) {
        let mut parts = self.0.lock();
        let Some(at) = parts.iter().rposition(|part| Arc::ptr_eq(&part.tracker, tracker)) else { return };
        let part = &mut parts[at];
        part.names = part.names.saturating_sub(names);
        if part.names == 0 {
            parts.remove(at);
            drop(parts);
            let _ = tracker.remove();
        }
    }

    /// Has all of them go to others.
    pub(super) fn go_to(&self, others: &Self) {
        let parts = std::mem::take(&mut *self.0.lock());
        let mut others = others.0.lock();
        // The last one may have room.
        let end = others.len().saturating_sub(1);
        others.splice(end..end, parts);
    }

    /// Removes what was added with them. Returns LLVM's words for the first failure.
    pub(super) fn remove(&self) -> Option<String> {
        let parts = std::mem::take(&mut *self.0.lock());
        let mut failed = None;
        for Part { tracker, .. } in parts {
            let text = tracker.remove();
            failed = failed.or(text);
        }
        failed
    }

    /// Forgets them, once the dylib has been cleared.
    pub(super) fn forget(&self) {
        let parts = std::mem::take(&mut *self.0.lock());
        drop(parts);
    }
}
