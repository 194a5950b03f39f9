//! Assembly that keeps vector registers over a call: the call's arguments may be in them, or the caller's values.

/// Text that calls a function, moves its result to a register, and keeps all that [`COMPONENTS`] names; `%rbp` holds the
/// frame. `xsave`'s area is smaller than a guard page, and its header must be zero; `fxsave` where the system has no
/// `xsave`. The operands `state_bytes` and `components` are those of `xsave.rs`. Changes `rax`, `rcx`, `rdx` and `rsp`.
///
/// [`COMPONENTS`]: crate::live::xsave::COMPONENTS
#[cfg(target_arch = "x86_64")]
macro_rules! call_keeping_vectors {
    ($call:literal, $result:literal) => {
        concat!(
            "mov {state_bytes}(%rip), %rcx\n",
            "test %rcx, %rcx\n",
            "jz 2f\n",
            "sub %rcx, %rsp\n",
            "and $-64, %rsp\n",
            "xor %eax, %eax\n",
            "mov %rax, 512(%rsp)\n",
            "mov %rax, 520(%rsp)\n",
            "mov %rax, 528(%rsp)\n",
            "mov %rax, 536(%rsp)\n",
            "mov %rax, 544(%rsp)\n",
            "mov %rax, 552(%rsp)\n",
            "mov %rax, 560(%rsp)\n",
            "mov %rax, 568(%rsp)\n",
            "mov ${components}, %eax\n",
            "xor %edx, %edx\n",
            "xsave (%rsp)\n",
            $call,
            "\nmov %rax, ",
            $result,
            "\nmov ${components}, %eax\n",
            "xor %edx, %edx\n",
            "xrstor (%rsp)\n",
            "jmp 3f\n",
            "2:\n",
            "sub $512, %rsp\n",
            "and $-64, %rsp\n",
            "fxsave (%rsp)\n",
            $call,
            "\nmov %rax, ",
            $result,
            "\nfxrstor (%rsp)\n",
            "3:",
        )
    };
}
#[cfg(target_arch = "x86_64")]
pub(crate) use call_keeping_vectors;

/// Text that pushes all vector registers.
#[cfg(target_arch = "aarch64")]
macro_rules! push_vectors {
    () => {
        concat!(
            "sub sp, sp, #512\n",
            "stp q0, q1, [sp, #0]\n",
            "stp q2, q3, [sp, #32]\n",
            "stp q4, q5, [sp, #64]\n",
            "stp q6, q7, [sp, #96]\n",
            "stp q8, q9, [sp, #128]\n",
            "stp q10, q11, [sp, #160]\n",
            "stp q12, q13, [sp, #192]\n",
            "stp q14, q15, [sp, #224]\n",
            "stp q16, q17, [sp, #256]\n",
            "stp q18, q19, [sp, #288]\n",
            "stp q20, q21, [sp, #320]\n",
            "stp q22, q23, [sp, #352]\n",
            "stp q24, q25, [sp, #384]\n",
            "stp q26, q27, [sp, #416]\n",
            "stp q28, q29, [sp, #448]\n",
            "stp q30, q31, [sp, #480]\n",
        )
    };
}
#[cfg(target_arch = "aarch64")]
pub(crate) use push_vectors;

/// Text that pops all vector registers.
#[cfg(target_arch = "aarch64")]
macro_rules! pop_vectors {
    () => {
        concat!(
            "ldp q0, q1, [sp, #0]\n",
            "ldp q2, q3, [sp, #32]\n",
            "ldp q4, q5, [sp, #64]\n",
            "ldp q6, q7, [sp, #96]\n",
            "ldp q8, q9, [sp, #128]\n",
            "ldp q10, q11, [sp, #160]\n",
            "ldp q12, q13, [sp, #192]\n",
            "ldp q14, q15, [sp, #224]\n",
            "ldp q16, q17, [sp, #256]\n",
            "ldp q18, q19, [sp, #288]\n",
            "ldp q20, q21, [sp, #320]\n",
            "ldp q22, q23, [sp, #352]\n",
            "ldp q24, q25, [sp, #384]\n",
            "ldp q26, q27, [sp, #416]\n",
            "ldp q28, q29, [sp, #448]\n",
            "ldp q30, q31, [sp, #480]\n",
            "add sp, sp, #512",
        )
    };
}
#[cfg(target_arch = "aarch64")]
pub(crate) use pop_vectors;
