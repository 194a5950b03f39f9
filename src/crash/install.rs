//! Installs the handler, once in a process.
#![allow(unsafe_code, reason = "installs a signal handler")]

use super::handler::handle;
use super::modules;
use super::previous::{SIGNALS, replace};
use crate::fork_guard::Mutex;

static INSTALLED: Mutex<bool> = Mutex::new(false);

/// Reports crashes in loaded code, of all engines, on standard error. Further calls do nothing.
///
/// This handles SIGSEGV, SIGBUS, SIGILL, SIGTRAP and SIGFPE for the whole process. If the instruction is in loaded
/// code, or loaded code has led to it, the handler writes what happened, in which function of which object and library,
/// since when the library is removed, what the address is that was used, and the calls that lead there. Otherwise it
/// writes nothing. Then it goes on to what was there before:
///
/// - A handler is called with the same arguments, and with the signals blocked that it asked for. It runs on the
///   thread's alternate stack if there is one, also without `SA_ONSTACK`.
/// - By default the process ends, with the same signal, and with a core that shows the fault.
/// - A signal that is ignored stays ignored if a process has sent it. A fault ends the process, as it does without
///   this.
///
/// Handlers that are installed later come first, and may call this one. None should be installed for a while only: a
/// program that restores the handler before takes this one away.
///
/// Call this after the runtimes that handle such signals themselves (CPython's `faulthandler`, sanitizers, the JVM).
///
/// # Signal safety
/// The handler takes no lock, allocates nothing, and calls nothing that does: it walks the stack by unwind tables
/// itself. (Before glibc 2.35 the dynamic loader's `dl_iterate_phdr` takes a lock.) It runs on a stack of its own. A
/// second fault in it ends the report, and the first one goes on to the handler before. Threads that crash at once
/// report one after the other, and wait for each other for up to 0.1 s.
///
/// # Stack overflows
/// A thread whose stack has overflowed has no room for the handler, and needs an alternate stack: see
/// [`AlternateStack::of_this_thread`](crate::crash::AlternateStack::of_this_thread).
pub fn install() {
    let mut installed = INSTALLED.lock();
    if std::mem::replace(&mut *installed, true) {
        return;
    }
    modules::prepare();
    for signal in SIGNALS {
        // SAFETY: the handler may be called at any time, and goes on to the one before.
        unsafe { replace(signal, handle) };
    }
}
