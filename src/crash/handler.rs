//! The signal handler: one report at a time, and then the handler before.
#![allow(unsafe_code, reason = "a signal handler")]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

use super::fault_report::{Fault, report};
use super::line::Line;
use super::{own_stack, previous};
use crate::memory::any_arena;

/// The thread that reports, or 0.
static REPORTING: AtomicI32 = AtomicI32::new(0);
/// The number of threads that report or wait for their turn.
static UNFINISHED: AtomicI32 = AtomicI32::new(0);

/// How often a thread asks whether another has finished its report, and how long it waits in between.
const TRIES: usize = 100;
const AGAIN: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };

enum Turn {
    Own,
    /// This thread has faulted in its report.
    Nested,
    /// Another thread does not finish.
    None,
}

fn this_thread() -> c_int {
    // SAFETY: a plain call. The C library's function is younger.
    unsafe { libc::syscall(libc::SYS_gettid) as c_int }
}

/// Takes the turn to report, or waits for it.
fn take_turn() -> Turn {
    let own = this_thread();
    for _ in 0..TRIES {
        match REPORTING.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return Turn::Own,
            Err(holder) if holder == own => return Turn::Nested,
            Err(holder) => {
                // The thread may have gone without an end of its report; in a child of `fork` it is not there.
                // SAFETY: plain calls.
                let gone = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), holder, 0) } != 0;
                if gone && REPORTING.compare_exchange(holder, own, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return Turn::Own;
                }
                // SAFETY: as above.
                unsafe { libc::nanosleep(&AGAIN, std::ptr::null_mut()) };
            }
        }
    }
    Turn::None
}

/// Waits for other threads' reports: the process may end now.
fn let_others_finish() {
    for _ in 0..TRIES {
        if UNFINISHED.load(Ordering::Relaxed) == 0 {
            return;
        }
        // SAFETY: a plain call.
        unsafe { libc::nanosleep(&AGAIN, std::ptr::null_mut()) };
    }
}

/// Reports a fault in loaded code, and goes on to the handler before.
pub(super) extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: this thread's errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    // SAFETY: a handler is given these.
    let fault = unsafe { Fault::of(signal, info, context) };
    if any_arena() && !previous::is_ignored(signal, fault.is_from_kernel()) {
        UNFINISHED.fetch_add(1, Ordering::Relaxed);
        let turn = take_turn();
        if let Turn::Own = turn {
            // SAFETY: whose turn it is is the only one; the report owns nothing.
            if !unsafe { own_stack::run(|| report(&fault)) } {
                let mut line = Line::new();
                line.push(b"slabjit:   the report ends here, as it has faulted itself");
                line.write();
            }
            REPORTING.store(0, Ordering::Release);
        }
        UNFINISHED.fetch_sub(1, Ordering::Relaxed);
        if let Turn::Nested = turn {
            // SAFETY: this thread's report was interrupted; the handler returns.
            unsafe { own_stack::leave(context) };
            return;
        }
        let_others_finish();
    }
    // SAFETY: as above; the handler returns.
    unsafe {
        *errno = before;
        previous::go_on(signal, info, context, fault.is_from_kernel());
    }
}
