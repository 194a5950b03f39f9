//! Symbols that the process exports.
#![allow(unsafe_code, reason = "dlsym")]

use std::ffi::{CStr, CString, OsStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libloading::os::unix::{Library, RTLD_LAZY};

use crate::fork_guard;

/// Returns the address from `dlsym(RTLD_DEFAULT)`, if it is not 0: the exported symbols of the executable and its
/// libraries, including those opened RTLD_GLOBAL.
pub(crate) fn symbol(name: &str) -> Option<u64> {
    // SAFETY: this handle is always valid.
    unsafe { symbol_of(libc::RTLD_DEFAULT, name) }
}

/// Returns the address of a symbol, if it is not 0. A name `name@VERSION` stands for that version, as in assemblers
/// (`.symver`).
///
/// # Safety
/// The handle is the dynamic loader's.
pub(super) unsafe fn symbol_of(handle: *mut c_void, name: &str) -> Option<u64> {
    let (name, version) = match name.split_once('@') {
        Some((name, version)) if !name.is_empty() => (name, Some(version.trim_start_matches('@'))),
        _ => (name, None),
    };
    let name = CString::new(name).ok()?;
    let version = version.map(CString::new).transpose().ok()?;
    // SAFETY: NUL-terminated names, and the handle by the caller's contract. An indirect function's resolver may run;
    // the dynamic loader answers for it.
    let address = fork_guard::loading(|| unsafe {
        match &version {
            None => libc::dlsym(handle, name.as_ptr()),
            Some(version) => libc::dlvsym(handle, name.as_ptr(), version.as_ptr()),
        }
    });
    (!address.is_null()).then_some(address as u64)
}

/// A shared library of the process, kept open.
pub(crate) struct Loaded(*mut c_void);

/// Returns the shared library that contains an address of code; `None` for the executable.
pub(crate) fn library_at(code: *const ()) -> Option<Loaded> {
    /// `RTLD_NOLOAD` (dlfcn.h): opens only loaded libraries.
    const NO_LOAD: c_int = 4;
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    fork_guard::loading(|| {
        // SAFETY: `dladdr` accepts any address, and returns whether it has written.
        if unsafe { libc::dladdr(code.cast(), found.as_mut_ptr()) } == 0 {
            return None;
        }
        // SAFETY: written above; the name is the dynamic loader's, which keeps it while the library's code runs.
        let path = unsafe { CStr::from_ptr(found.assume_init().dli_fname) };
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        // SAFETY: it is open, so nothing of it runs now.
        let library = unsafe { Library::open(Some(path), RTLD_LAZY | NO_LOAD) }.ok()?;
        Some(Loaded(library.into_raw()))
    })
}

impl Loaded {
    /// Returns the address of a symbol in it or in its dependencies.
    pub(crate) fn symbol(&self, name: &str) -> Option<u64> {
        // SAFETY: the handle is open as long as `self`.
        unsafe { symbol_of(self.0, name) }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: `into_raw` gave the handle, and it is closed once, here.
        fork_guard::loading(|| drop(unsafe { Library::from_raw(self.0) }));
    }
}
