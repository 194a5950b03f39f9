//! What the process exports.
#![allow(unsafe_code)] // dlsym

use std::ffi::CString;

use crate::gate;

/// The address that `dlsym(RTLD_DEFAULT)` finds, if it is not 0: the executable's exported symbols and those of its
/// libraries, including what was opened RTLD_GLOBAL.
pub(crate) fn symbol(name: &str) -> Option<u64> {
    let name = CString::new(name).ok()?;
    // SAFETY: a NUL-terminated name. An indirect function's resolver may run; the dynamic loader answers for it.
    let address = unsafe { gate::loading(|| libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr())) };
    (!address.is_null()).then_some(address as u64)
}
