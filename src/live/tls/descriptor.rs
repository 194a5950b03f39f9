//! Functions that TLS descriptors point to.
//!
//! Code calls them with the descriptor's address in one register and expects the variable's distance from the thread
//! pointer there; everything else is as it was ("TLS Descriptors for x86", Oliva and Aráoz; AAELF64, "TLS
//! descriptors").
#![allow(unsafe_code, reason = "assembly")]

use std::arch::naked_asm;

use crate::live::tls::Variable;
#[cfg(target_arch = "x86_64")]
use crate::live::vectors_asm::call_keeping_vectors;
#[cfg(target_arch = "aarch64")]
use crate::live::vectors_asm::{pop_vectors, push_vectors};
#[cfg(target_arch = "x86_64")]
use crate::live::xsave::{self, COMPONENTS, STATE_BYTES};

/// The two words of a descriptor, and what the second points to, if it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Descriptor {
    /// The second word is the distance.
    Fixed { function: u64, distance: i64 },
    /// The second word is the address of a module's number and an offset.
    Dynamic { function: u64 },
}

impl Descriptor {
    pub(crate) fn of(variable: Variable) -> Self {
        #[cfg(target_arch = "x86_64")]
        xsave::ask();
        match variable.distance {
            Some(distance) => Self::Fixed { function: fixed as *const () as u64, distance },
            None => Self::Dynamic { function: dynamic as *const () as u64 },
        }
    }
}

/// Serves a variable at a fixed distance.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
extern "C" fn fixed() {
    naked_asm!("endbr64", "mov 8(%rax), %rax", "ret", options(att_syntax))
}

/// Serves any other variable.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
extern "C" fn dynamic() {
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
        "push %rbx",
        "push %r8",
        "push %r9",
        "push %r10",
        "push %r11",
        "mov 8(%rax), %rdi",
        call_keeping_vectors!("call *__tls_get_addr@GOTPCREL(%rip)", "%rbx"),
        "mov %rbx, %rax",
        "sub %fs:0, %rax",
        "lea -72(%rbp), %rsp",
        "pop %r11",
        "pop %r10",
        "pop %r9",
        "pop %r8",
        "pop %rbx",
        "pop %rcx",
        "pop %rdx",
        "pop %rsi",
        "pop %rdi",
        "pop %rbp",
        ".cfi_def_cfa %rsp, 8",
        "ret",
        ".cfi_endproc",
        components = const COMPONENTS,
        state_bytes = sym STATE_BYTES,
        options(att_syntax)
    )
}

/// Serves a variable at a fixed distance.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
extern "C" fn fixed() {
    naked_asm!("hint #34", "ldr x0, [x0, #8]", "ret",)
}

/// Serves any other variable. Keeps all registers that a function may change, but x0.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
extern "C" fn dynamic() {
    naked_asm!(
        ".cfi_startproc",
        "hint #34",
        "stp x29, x30, [sp, #-160]!",
        ".cfi_def_cfa_offset 160",
        ".cfi_offset x29, -160",
        ".cfi_offset x30, -152",
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        "stp x1, x2, [sp, #16]",
        "stp x3, x4, [sp, #32]",
        "stp x5, x6, [sp, #48]",
        "stp x7, x8, [sp, #64]",
        "stp x9, x10, [sp, #80]",
        "stp x11, x12, [sp, #96]",
        "stp x13, x14, [sp, #112]",
        "stp x15, x16, [sp, #128]",
        "stp x17, x18, [sp, #144]",
        push_vectors!(),
        "ldr x0, [x0, #8]",
        "bl __tls_get_addr",
        "mrs x1, tpidr_el0",
        "sub x0, x0, x1",
        pop_vectors!(),
        "ldp x1, x2, [sp, #16]",
        "ldp x3, x4, [sp, #32]",
        "ldp x5, x6, [sp, #48]",
        "ldp x7, x8, [sp, #64]",
        "ldp x9, x10, [sp, #80]",
        "ldp x11, x12, [sp, #96]",
        "ldp x13, x14, [sp, #112]",
        "ldp x15, x16, [sp, #128]",
        "ldp x17, x18, [sp, #144]",
        ".cfi_def_cfa_register sp",
        "ldp x29, x30, [sp], #160",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
    )
}
