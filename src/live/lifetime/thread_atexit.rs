//! Destructors of thread-local objects: what `__cxa_thread_atexit` means to linked code.
//!
//! glibc runs them when the thread ends and keeps the shared object until then, which it finds by its `__dso_handle`.
//! It knows none of ours, so each destructor comes with a reference to its library.
#![allow(unsafe_code, reason = "C ABI, calls into linked code")]

use std::ffi::{c_int, c_void};

use crate::live::lifetime::code_ref::{CodeRef, Kept};
use crate::live::lifetime::exit_handlers::Handler;
use crate::live::lifetime::own_symbols::{Owner, owner};

/// A destructor that a thread has yet to run.
struct Pending {
    handler: Handler,
    code: CodeRef<dyn Kept>,
}

unsafe extern "C" {
    // glibc, stdlib/cxa_thread_atexit_impl.c
    fn __cxa_thread_atexit_impl(function: usize, argument: usize, dso: usize) -> c_int;
    /// The handle of the shared object or executable with this crate in it.
    static __dso_handle: u8;
}

/// `int __cxa_thread_atexit(void (*f)(void *), void *argument, void *dso)`, Itanium C++ ABI 3.3.6.4; glibc's
/// `__cxa_thread_atexit_impl` is the same.
///
/// # Safety
/// The function may be called with the argument when this thread ends, as long as what the handle belongs to is there.
pub(crate) unsafe extern "C" fn cxa_thread_atexit(function: usize, argument: usize, dso: usize) -> c_int {
    match owner(dso) {
        Owner::Library(code, handlers) => {
            let handler = Handler::new(function, argument);
            handlers.note_thread(handler);
            let pending = Box::into_raw(Box::new(Pending { handler, code }));
            // SAFETY: `run` gets the box once, on this thread. Our own code stays until then, by our own handle.
            unsafe {
                __cxa_thread_atexit_impl(
                    run as *const () as usize,
                    pending.expose_provenance(),
                    (&raw const __dso_handle).addr(),
                )
            }
        }
        // Its finalisers are running, nothing can hold it any longer: the destructor runs at once after them.
        Owner::Ending(handlers) => {
            handlers.register(Handler::new(function, argument));
            0
        }
        // The handle is not a library's of ours: the process handles it.
        // SAFETY: passed on as it came.
        Owner::Process => unsafe { __cxa_thread_atexit_impl(function, argument, dso) },
    }
}

extern "C" fn run(pending: *mut c_void) {
    // SAFETY: `cxa_thread_atexit` made the box and gave it away; glibc calls once.
    let Pending { handler, code } = *unsafe { Box::from_raw(pending.cast::<Pending>()) };
    // SAFETY: the reference keeps the code.
    unsafe { handler.call(code.library()) };
    // Its finalisers may run here, and its memory go: nothing of it is under way on this thread.
    drop(code);
}
