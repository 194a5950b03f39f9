//! A program of `slabjit run`: its functions are called as the C library calls those of a program that was linked.
#![allow(unsafe_code, reason = "calls into linked code, the C library's floating-point environment")]

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

/// The process has become that of a program.
static PROGRAM: AtomicBool = AtomicBool::new(false);
/// Nothing of the program has run yet.
static FRESH: AtomicBool = AtomicBool::new(false);

/// Lets exceptions that leave a library's function on the main thread, or any other, end the process from now on.
pub(crate) fn begin_program() {
    PROGRAM.store(true, Ordering::Relaxed);
    FRESH.store(true, Ordering::Relaxed);
}

pub(crate) fn is_program() -> bool {
    PROGRAM.load(Ordering::Relaxed)
}

unsafe extern "C-unwind" {
    /// Calls `function(a, b, c)`. Its frame has no caller that an unwinder knows of, as `_start` has none: an exception
    /// that nobody catches ends in `std::terminate`, before anything is unwound, and forced unwinding (`pthread_exit`)
    /// ends here.
    fn slabjit_outermost(a: usize, b: usize, c: usize, function: *const ()) -> c_int;
}

// The return address's columns: System V AMD64 ABI, figure 3.36; DWARF for the Arm 64-bit Architecture, 4.1.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .text.slabjit_outermost, \"ax\", @progbits",
    ".globl slabjit_outermost",
    ".hidden slabjit_outermost",
    ".type slabjit_outermost, @function",
    "slabjit_outermost:",
    ".cfi_startproc",
    ".cfi_undefined 16",
    "push rbp",
    ".cfi_adjust_cfa_offset 8",
    // The chain of frame pointers ends here, too.
    "xor ebp, ebp",
    "call rcx",
    "pop rbp",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_endproc",
    ".size slabjit_outermost, . - slabjit_outermost",
    ".popsection",
);
#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".pushsection .text.slabjit_outermost, \"ax\", @progbits",
    ".globl slabjit_outermost",
    ".hidden slabjit_outermost",
    ".type slabjit_outermost, @function",
    "slabjit_outermost:",
    ".cfi_startproc",
    ".cfi_undefined 30",
    "stp x29, x30, [sp, #-16]!",
    ".cfi_adjust_cfa_offset 16",
    // The chain of frame pointers ends here, too.
    "mov x29, #0",
    "blr x3",
    "ldp x29, x30, [sp], #16",
    ".cfi_adjust_cfa_offset -16",
    "ret",
    ".cfi_endproc",
    ".size slabjit_outermost, . - slabjit_outermost",
    ".popsection",
);

/// Calls a function where unwinding ends.
///
/// # Safety
/// The function may be called with these arguments, or with the first of them, and returns an `int` or nothing.
pub(crate) unsafe fn call(function: *const (), [a, b, c]: [usize; 3]) -> c_int {
    // SAFETY: by the caller.
    unsafe { slabjit_outermost(a, b, c, function) }
}

#[link(name = "m")]
unsafe extern "C" {
    fn feclearexcept(exceptions: c_int) -> c_int;
}

/// All of `FE_ALL_EXCEPT` (bits/fenv.h).
const ALL_EXCEPTIONS: c_int = if cfg!(target_arch = "x86_64") { 0x3d } else { 0x1f };

/// Clears floating-point flags just before the first code of a program: linking has set them, not the program.
pub(crate) fn forget_floating_point() {
    if FRESH.swap(false, Ordering::Relaxed) {
        // SAFETY: a plain call, for flags that nobody reads here.
        unsafe { feclearexcept(ALL_EXCEPTIONS) };
    }
}
