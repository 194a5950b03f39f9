//! The return addresses on the calling thread's stack.
#![allow(unsafe_code, reason = "libgcc's interface")]

use std::ffi::{c_int, c_void};

use crate::fork_guard::ForkGuard;

unsafe extern "C" {
    // libgcc_s (Itanium C++ ABI: Exception Handling, and libgcc/unwind.inc). It asks no allocator of the caller's.
    fn _Unwind_Backtrace(
        callback: extern "C" fn(context: *mut c_void, addresses: *mut c_void) -> c_int,
        addresses: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

/// The limit of inspected frames.
const MOST: usize = 4096;
/// `_URC_NO_REASON`.
const GO_ON: c_int = 0;
/// `_URC_END_OF_STACK`; every other answer would do.
const ENOUGH: c_int = 5;

/// Returns the return addresses of this thread's functions, as far as they have unwind tables, and the first that has
/// none.
pub(crate) fn return_addresses() -> Vec<usize> {
    extern "C" fn add(context: *mut c_void, addresses: *mut c_void) -> c_int {
        // SAFETY: libgcc lends the context, and passes on what it was given below.
        let (addresses, address) = unsafe { (&mut *addresses.cast::<Vec<usize>>(), _Unwind_GetIP(context)) };
        addresses.push(address);
        if addresses.len() < MOST { GO_ON } else { ENOUGH }
    }
    let mut addresses = Vec::new();
    // A child does not get libgcc's lock back.
    let _pass = ForkGuard::take();
    // SAFETY: the callback is called before this returns, and does not unwind: pushing may abort, but not panic.
    unsafe { _Unwind_Backtrace(add, (&raw mut addresses).cast()) };
    addresses
}
