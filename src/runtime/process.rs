//! What the process exports.
#![allow(unsafe_code)] // dlsym

use std::ffi::{CString, c_void};

use crate::gate;

/// The address that `dlsym(RTLD_DEFAULT)` finds, if it is not 0: the executable's exported symbols and those of its
/// libraries, including what was opened RTLD_GLOBAL.
pub(crate) fn symbol(name: &str) -> Option<u64> {
    // SAFETY: a handle that is always valid.
    unsafe { symbol_of(libc::RTLD_DEFAULT, name) }
}

/// The address of a symbol, if it is not 0; of `name@VERSION`, that version's, as assemblers write it (`.symver`).
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
    // SAFETY: NUL-terminated names, and the handle by the caller. An indirect function's resolver may run; the dynamic loader answers for it.
    let address = gate::loading(|| unsafe {
        match &version {
            None => libc::dlsym(handle, name.as_ptr()),
            Some(version) => libc::dlvsym(handle, name.as_ptr(), version.as_ptr()),
        }
    });
    (!address.is_null()).then_some(address as u64)
}
