//! What was to become of the signals before: they get there in the end.
#![allow(unsafe_code, reason = "signal handlers")]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};

/// The signals of processors' traps.
pub(super) const SIGNALS: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGTRAP, libc::SIGFPE];

static PREVIOUS: [Previous; SIGNALS.len()] = [const { Previous::new() }; SIGNALS.len()];

/// A signal's action: `struct sigaction`, without a lock.
struct Previous {
    handler: AtomicUsize,
    flags: AtomicI32,
    mask: AtomicU64,
    /// It was to be called once, and was.
    used: AtomicBool,
}

impl Previous {
    const fn new() -> Self {
        Self {
            handler: AtomicUsize::new(libc::SIG_DFL),
            flags: AtomicI32::new(0),
            mask: AtomicU64::new(0),
            used: AtomicBool::new(false),
        }
    }

    fn of(signal: c_int) -> Option<&'static Self> {
        SIGNALS.iter().position(|other| *other == signal).and_then(|i| PREVIOUS.get(i))
    }

    fn handler(&self) -> usize {
        if self.used.load(Ordering::Relaxed) { libc::SIG_DFL } else { self.handler.load(Ordering::Relaxed) }
    }
}

/// Signals by bits, as the kernel has them. The C library's structure has room for more, which the kernel leaves alone.
fn bits(set: *const libc::sigset_t) -> u64 {
    // SAFETY: the first eight bytes are there, and the function reads no others.
    (1..=64).filter(|signal| unsafe { libc::sigismember(set, *signal) } == 1).fold(0, |bits, s| bits | 1 << (s - 1))
}

fn set(bits: u64) -> libc::sigset_t {
    // SAFETY: plain old data; the calls change only it, and refuse the C library's own signals.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in (1..=64).filter(|signal| bits >> (signal - 1) & 1 != 0) {
            libc::sigaddset(&raw mut set, signal);
        }
        set
    }
}

/// Has a function called for a signal, on the thread's alternate stack if it has one, and keeps the action before.
///
/// Other traps may come while it runs: they are its own. All other signals wait.
///
/// # Safety
/// The function may be called for the signal at any time, and calls [`go_on`].
pub(super) unsafe fn replace(signal: c_int, handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void)) {
    let Some(previous) = Previous::of(signal) else { return };
    let waiting = SIGNALS.iter().fold(u64::MAX, |bits, signal| bits & !(1 << (signal - 1)));
    // SAFETY: plain old data.
    let (mut before, mut action): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    action.sa_mask = set(waiting);
    let keep = |before: &libc::sigaction| {
        previous.handler.store(before.sa_sigaction, Ordering::Relaxed);
        previous.flags.store(before.sa_flags, Ordering::Relaxed);
        previous.mask.store(bits(&raw const before.sa_mask), Ordering::Relaxed);
    };
    // It is known before the handler is called. The calls cannot fail: the signal is one that may be handled.
    // SAFETY: plain calls; by the caller the handler may be called.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), &raw mut before);
        keep(&before);
        libc::sigaction(signal, &raw const action, &raw mut before);
    }
    // Another thread may have changed it in between.
    keep(&before);
}

/// Returns whether the signal has no effect: the processor's traps have, even where they are to be ignored.
pub(super) fn is_ignored(signal: c_int, from_kernel: bool) -> bool {
    !from_kernel && Previous::of(signal).is_some_and(|previous| previous.handler() == libc::SIG_IGN)
}

/// Does what was to be done about the signal.
///
/// # Safety
/// The arguments are those of a handler, which does nothing more than return.
pub(super) unsafe fn go_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, from_kernel: bool) {
    let Some(previous) = Previous::of(signal) else { return };
    match previous.handler() {
        _ if is_ignored(signal, from_kernel) => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: by the caller.
            unsafe { end_process(signal, info, from_kernel) };
        }
        handler => {
            let flags = previous.flags.load(Ordering::Relaxed);
            if flags & libc::SA_RESETHAND != 0 {
                previous.used.store(true, Ordering::Relaxed);
            }
            let own = if flags & libc::SA_NODEFER == 0 { 1 << (signal - 1) } else { 0 };
            // SAFETY: by the caller.
            let interrupted = bits(unsafe { &raw const (*context.cast::<libc::ucontext_t>()).uc_sigmask });
            let mask = set(interrupted | previous.mask.load(Ordering::Relaxed) | own);
            // SAFETY: a plain call. When the handler returns, the kernel restores the mask.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut()) };
            if flags & libc::SA_SIGINFO != 0 {
                type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
                // SAFETY: whoever installed it said that it has this type.
                unsafe { std::mem::transmute::<usize, Handler>(handler)(signal, info, context) };
            } else {
                // SAFETY: as above.
                unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(c_int)>(handler)(signal) };
            }
        }
    }
}

/// Ends the process by the signal, as soon as the handler returns: a core then shows the registers of the fault.
///
/// # Safety
/// As for [`go_on`].
unsafe fn end_process(signal: c_int, info: *mut libc::siginfo_t, from_kernel: bool) {
    // SAFETY: plain calls; the information is a handler's.
    let code = unsafe {
        let mut default: libc::sigaction = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &raw const default, std::ptr::null_mut());
        (*info).si_code
    };
    // The instruction traps once more. x86-64 goes on behind a breakpoint, and some memory errors are nobody's.
    let goes_on = cfg!(target_arch = "x86_64") && signal == libc::SIGTRAP;
    if from_kernel && !goes_on && (signal, code) != (libc::SIGBUS, libc::BUS_MCEERR_AO) {
        return;
    }
    // SAFETY: plain calls. The signal is pending until the handler returns.
    unsafe {
        let own = set(1 << (signal - 1));
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const own, std::ptr::null_mut());
        let (process, thread) = (libc::getpid(), libc::syscall(libc::SYS_gettid));
        if libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, info) != 0 {
            libc::syscall(libc::SYS_tgkill, process, thread, signal);
        }
    }
}
