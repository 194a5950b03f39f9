//! Looks names up. Kinds of symbols as ORC carries them.
#![allow(unsafe_code, reason = "FFI to LLVM")]

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use slabjit_llvm_wrap as shim;

use super::later::leave;
use super::pool::Pool;
use crate::elf::SymbolKind;
use crate::fork_guard::ForkGuard;
use crate::guarded::guarded;
use crate::link::llvm::callbacks::lossy;
use crate::live::lifetime::wakeup::Signal;

/// A symbol that was found.
#[derive(Debug)]
pub(super) struct LookedUp {
    pub(super) address: u64,
    pub(super) kind: SymbolKind,
}

pub(super) enum Failure {
    /// Nothing defines the name.
    Missing,
    /// LLVM's words.
    Failed(String),
}

pub(super) type Outcome = Result<LookedUp, Failure>;

type Done = Box<dyn FnOnce(Outcome) + Send>;

/// Looks up a name that a dylib exports, or, with `hidden`, has, of a session that lives until `done` is called: once, by
/// any thread, without a lock, but within LLVM. What a user gave is done [later](super::later).
pub(super) fn request(
    pool: Option<&Arc<Pool>>,
    dylib: *mut c_void,
    name: &str,
    hidden: bool,
    done: impl FnOnce(Outcome) + Send + 'static,
) {
    if let Some(pool) = pool {
        pool.go_on();
    }
    let done: Box<Done> = Box::new(Box::new(done));
    let pass = ForkGuard::take();
    // SAFETY: the caller's dylib; the name is lent; `ended` takes the function back.
    unsafe {
        let name = (name.as_ptr().cast(), name.len());
        shim::slabjit_dylib_look_up(dylib, name.0, name.1, hidden.into(), ended, Box::into_raw(done).cast());
    }
    drop(pass);
    leave();
}

/// Looks a name up in a dylib of a session that lives, and waits until all that it needs is linked: by the pool, or on
/// this thread, unless another one is at it.
pub(super) fn look_up(pool: Option<&Arc<Pool>>, dylib: *mut c_void, name: &str, hidden: bool) -> Outcome {
    let outcome = Arc::new(Signal::<Option<Outcome>>::default());
    // A thread of the pool waits for tasks, too.
    let own = pool.filter(|pool| pool.is_ours());
    let told = own.cloned();
    let tell = Arc::clone(&outcome);
    request(pool, dylib, name, hidden, move |ended| {
        tell.update(|outcome| *outcome = Some(ended));
        if let Some(pool) = told {
            pool.wake();
        }
    });
    // Within another task, those of this look-up wait for that to end.
    while outcome.change(|outcome| outcome.is_none()) && run_waiting_task() {}
    if let Some(pool) = own {
        pool.work_until(|| outcome.change(|outcome| outcome.is_some()));
    }
    outcome.wait(Option::take)
}

/// Runs a task that waits for this thread, if one does.
fn run_waiting_task() -> bool {
    let pass = ForkGuard::take();
    // SAFETY: the session that the task is of lives: a look-up in it, up this stack, has not ended.
    let has_run = unsafe { shim::slabjit_run_waiting_task() != 0 };
    drop(pass);
    leave();
    has_run
}

unsafe extern "C" fn ended(user: *mut c_void, address: u64, kind: u8, missing: c_int, text: *const c_char, len: usize) {
    // SAFETY: of `request`; called once.
    let done = unsafe { Box::from_raw(user.cast::<Done>()) };
    guarded((), || {
        let outcome = match (text.is_null(), missing != 0) {
            (true, _) => Ok(LookedUp { address, kind: kind_of_orc(kind) }),
            (false, true) => Err(Failure::Missing),
            // SAFETY: lent for this call.
            (false, false) => Err(Failure::Failed(unsafe { lossy(text, len) })),
        };
        done(outcome);
    });
}

/// Returns a kind as ORC carries it.
pub(super) fn kind_for_orc(kind: SymbolKind) -> u8 {
    match kind {
        SymbolKind::Function => shim::SLABJIT_FUNCTION,
        SymbolKind::Data => 2,
        SymbolKind::ThreadLocal => 3,
        SymbolKind::Unknown => 0,
    }
}

pub(super) fn kind_of_orc(kind: u8) -> SymbolKind {
    match kind {
        shim::SLABJIT_FUNCTION => SymbolKind::Function,
        2 => SymbolKind::Data,
        3 => SymbolKind::ThreadLocal,
        _ => SymbolKind::Unknown,
    }
}
