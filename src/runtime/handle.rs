//! The dynamic loader's handle of a module.
#![allow(unsafe_code, reason = "dlclose, dlinfo")]

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use crate::fork_guard;

/// The loader's handle of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle(pub(super) NonNull<c_void>);

// SAFETY: the loader's handle may be used from any thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    pub(super) fn raw(self) -> *mut c_void {
        self.0.as_ptr()
    }

    /// Returns the difference between addresses in the file and in memory, if the loader knows the module.
    pub(super) fn base(self) -> Option<usize> {
        let mut map: *const usize = ptr::null();
        // SAFETY: the request writes one word (dlinfo(3)).
        let asked = unsafe { libc::dlinfo(self.raw(), libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) };
        // SAFETY: the first field of `struct link_map` is that difference (<link.h>).
        (asked == 0 && !map.is_null()).then(|| unsafe { *map })
    }

    /// Closes the module.
    ///
    /// # Safety
    /// Called once, by whoever owns the module, when the code that refers to its variables, if it has any, is gone or
    /// never ran.
    pub(super) unsafe fn close(self) {
        // SAFETY: by the caller.
        if unsafe { fork_guard::loading(|| libc::dlclose(self.0.as_ptr())) } != 0 {
            tracing::error!(target: "slabjit", "the dynamic loader did not close a module");
        }
    }
}
