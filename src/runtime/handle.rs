//! The dynamic loader's handle of a module.
#![allow(unsafe_code, reason = "dlclose, dlinfo, and the name of a module")]

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{self, NonNull};

use crate::fork_guard;

/// The loader's handle of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle(pub(super) NonNull<c_void>);

// SAFETY: the loader's handle may be used from any thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// The first fields of `struct link_map` (<link.h>).
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *mut c_char,
}

impl Handle {
    pub(super) fn raw(self) -> *mut c_void {
        self.0.as_ptr()
    }

    /// Returns the difference between addresses in the file and in memory, if the loader knows the module.
    pub(super) fn base(self) -> Option<usize> {
        // SAFETY: the module is open.
        self.map().map(|map| unsafe { map.as_ref().base })
    }

    /// Gives a module that was opened by a path with this prefix another name, no longer than the path. glibc has a copy
    /// of the path as the module's name, in memory of its own, and another one to compare with (elf/dl-object.c). Whoever
    /// reads the name meanwhile finds an end.
    pub(super) fn rename(self, prefix: &str, to: &CStr) {
        let Some(map) = self.map() else { return };
        // SAFETY: the module is open.
        let name = unsafe { map.as_ref().name };
        // SAFETY: the loader's string.
        let before = if name.is_null() { c"" } else { unsafe { CStr::from_ptr(name) } }.to_bytes();
        if !before.starts_with(prefix.as_bytes()) || before.len() < to.to_bytes().len() {
            return;
        }
        for (i, byte) in to.to_bytes_with_nul().iter().enumerate() {
            // SAFETY: the name before was not shorter, and nobody else changes it.
            unsafe { name.add(i).write_volatile(byte.cast_signed() as c_char) };
        }
    }

    fn map(self) -> Option<NonNull<LinkMap>> {
        let mut map: *mut LinkMap = ptr::null_mut();
        // SAFETY: the request writes one word (dlinfo(3)).
        let asked = unsafe { libc::dlinfo(self.raw(), libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) };
        NonNull::new(map).filter(|_| asked == 0)
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
