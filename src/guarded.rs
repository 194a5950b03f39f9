//! Panics do not leave functions that C calls.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a callback's body; a panic in it (a bug of ours) is reported and becomes `otherwise`.
pub(crate) fn guarded<R>(otherwise: R, body: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        tracing::error!(target: "slabjit", "a callback of slabjit panicked; please report this");
        otherwise
    })
}

/// Returns a panic's message, for errors.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panic: {}", text.unwrap_or("(no message)"))
}
