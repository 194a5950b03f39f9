//! The first call of a function: finds its code, and goes on there with the arguments as they were.
//!
//! A stub jumps here with the address of its word in a register that no argument is in (System V AMD64 ABI: r11;
//! AAPCS64: x17), and what was pushed by the caller on top of the stack.
#![allow(unsafe_code, reason = "assembly")]

use std::arch::naked_asm;

use super::stubs::resolve;
#[cfg(target_arch = "x86_64")]
use crate::live::vectors_asm::call_keeping_vectors;
#[cfg(target_arch = "aarch64")]
use crate::live::vectors_asm::{pop_vectors, push_vectors};
#[cfg(target_arch = "x86_64")]
use crate::live::xsave::{self, COMPONENTS, STATE_BYTES};

/// Returns the address that stubs jump to.
pub(in crate::link::orc) fn address() -> u64 {
    #[cfg(target_arch = "x86_64")]
    xsave::ask();
    first_call as *const () as u64
}

/// Keeps all registers that may have arguments.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
extern "C" fn first_call() {
    naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "push %rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset %rbp, -16",
        "mov %rsp, %rbp",
        ".cfi_def_cfa_register %rbp",
        "push %rdi",
        "push %rsi",
        "push %rdx",
        "push %rcx",
        "push %rax",
        "push %r8",
        "push %r9",
        "push %r10",
        "mov %r11, %rdi",
        call_keeping_vectors!("call {resolve}", "%r11"),
        "lea -64(%rbp), %rsp",
        "pop %r10",
        "pop %r9",
        "pop %r8",
        "pop %rax",
        "pop %rcx",
        "pop %rdx",
        "pop %rsi",
        "pop %rdi",
        "pop %rbp",
        ".cfi_def_cfa %rsp, 8",
        "jmp *%r11",
        ".cfi_endproc",
        components = const COMPONENTS,
        state_bytes = sym STATE_BYTES,
        resolve = sym resolve,
        options(att_syntax)
    )
}

/// Keeps all registers but x16 and x17, which any call may change on its way.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
extern "C" fn first_call() {
    naked_asm!(
        ".cfi_startproc",
        "hint #34",
        "stp x29, x30, [sp, #-160]!",
        ".cfi_def_cfa_offset 160",
        ".cfi_offset x29, -160",
        ".cfi_offset x30, -152",
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        "stp x0, x1, [sp, #16]",
        "stp x2, x3, [sp, #32]",
        "stp x4, x5, [sp, #48]",
        "stp x6, x7, [sp, #64]",
        "stp x8, x9, [sp, #80]",
        "stp x10, x11, [sp, #96]",
        "stp x12, x13, [sp, #112]",
        "stp x14, x15, [sp, #128]",
        "str x18, [sp, #144]",
        push_vectors!(),
        "mov x0, x17",
        "bl {resolve}",
        "mov x16, x0",
        pop_vectors!(),
        "ldp x0, x1, [sp, #16]",
        "ldp x2, x3, [sp, #32]",
        "ldp x4, x5, [sp, #48]",
        "ldp x6, x7, [sp, #64]",
        "ldp x8, x9, [sp, #80]",
        "ldp x10, x11, [sp, #96]",
        "ldp x12, x13, [sp, #112]",
        "ldp x14, x15, [sp, #128]",
        "ldr x18, [sp, #144]",
        "ldp x29, x30, [sp], #160",
        ".cfi_def_cfa sp, 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "br x16",
        ".cfi_endproc",
        resolve = sym resolve,
    )
}
