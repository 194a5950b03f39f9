//! Calls of what is gone: they trap, and the trap becomes an answer.

use std::cell::Cell;
use std::ffi::{c_int, c_void};

/// What a call that trapped returns.
const TRAPPED: i64 = 0x7472_6170;

thread_local! {
    /// The address that this thread calls and that is to trap; 0 for none.
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

/// Has calls made by [`traps`] return when they trap. Every other fault ends the process.
pub fn catch_traps() {
    // SAFETY: `trap` is a handler with three arguments that calls nothing but what a handler may.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = trap as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL] {
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

/// Calls an address. Whether that trapped before a single instruction ran.
///
/// # Safety
/// What is there, if anything, may be called without arguments.
pub unsafe fn traps(address: usize) -> bool {
    CALLS.set(address);
    // SAFETY: by the caller; `trap` returns for it.
    let answer = unsafe { std::mem::transmute::<usize, unsafe extern "C" fn() -> i64>(address)() };
    CALLS.set(0);
    answer == TRAPPED
}

extern "C" fn trap(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's arguments. The fault is at a function's first instruction, so that its caller's address is
    // where the ABI has it.
    unsafe {
        let fault = (*info).si_addr() as usize;
        let machine = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext;
        if fault == CALLS.get() && fault != 0 && pc(machine) == fault {
            return_to_caller(machine);
        } else {
            // Again, without us.
            libc::signal(signal, libc::SIG_DFL);
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn pc(machine: &libc::mcontext_t) -> usize {
    machine.gregs[libc::REG_RIP as usize] as usize
}

#[cfg(target_arch = "aarch64")]
fn pc(machine: &libc::mcontext_t) -> usize {
    machine.pc as usize
}

/// # Safety
/// The state is that at a function's first instruction.
#[cfg(target_arch = "x86_64")]
unsafe fn return_to_caller(machine: &mut libc::mcontext_t) {
    let stack = machine.gregs[libc::REG_RSP as usize];
    // SAFETY: by the caller, the stack's top is the return address.
    machine.gregs[libc::REG_RIP as usize] = unsafe { *(stack as *const i64) };
    machine.gregs[libc::REG_RSP as usize] = stack + 8;
    machine.gregs[libc::REG_RAX as usize] = TRAPPED;
}

/// # Safety
/// The state is that at a function's first instruction.
#[cfg(target_arch = "aarch64")]
unsafe fn return_to_caller(machine: &mut libc::mcontext_t) {
    machine.pc = machine.regs[30];
    machine.regs[0] = TRAPPED as u64;
}
