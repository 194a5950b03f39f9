//! Calls into linked code that may throw.
#![allow(unsafe_code, reason = "calls into linked code")]

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use super::foreign_exceptions;
use crate::fork_guard;
use crate::guarded::panic_message;
#[cfg(feature = "cli")]
use crate::live::outermost;
use crate::runtime::vectors::{Strings, Vectors};

/// Calls `function(argc, argv, envp)`, and turns a C++ exception or a Rust panic into its text.
///
/// # Safety
/// `function` is the address of a function of linked code that may be called with these or fewer arguments.
pub(crate) unsafe fn call(function: usize) -> Result<(), String> {
    // SAFETY: the trampoline gets what it expects; what runs is the caller's word.
    unsafe { catching(trampoline, ptr::without_provenance_mut(function)) }
}

/// Calls `function(argument)`, and turns a C++ exception or a Rust panic into its text. In a program of `slabjit run`
/// what leaves the function ends the process instead, as it ends any program.
///
/// # Safety
/// The call must be sound.
pub(crate) unsafe fn catching(
    function: unsafe extern "C-unwind" fn(*mut c_void),
    argument: *mut c_void,
) -> Result<(), String> {
    debug_assert!(!fork_guard::has_pass(), "linked code may fork, or wait for whoever does");
    #[cfg(feature = "cli")]
    if outermost::is_program() {
        // SAFETY: by the caller.
        unsafe { outermost::call(function as *const (), [argument.expose_provenance(), 0, 0]) };
        return Ok(());
    }
    // SAFETY: by the caller.
    let caught = catch_unwind(AssertUnwindSafe(|| unsafe { foreign_exceptions::call(function, argument) }));
    match caught {
        Ok(None) => Ok(()),
        Ok(Some(exception)) => Err(exception.end()),
        Err(panic) => Err(panic_message(&*panic)),
    }
}

unsafe extern "C-unwind" fn trampoline(function: *mut c_void) {
    type Initialiser = unsafe extern "C-unwind" fn(c_int, Strings, Strings);
    let Vectors { count, arguments, environment } = Vectors::of_process();
    // SAFETY: `call` passed the address of such a function.
    unsafe {
        let function: Initialiser = std::mem::transmute(function);
        function(count, arguments, environment);
    }
}
