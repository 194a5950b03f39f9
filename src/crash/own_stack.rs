//! A stack for the report: what is left of a thread's alternate stack may not be enough, and a fault in the report must
//! not spoil the frames that lead to the handler.
#![allow(unsafe_code, reason = "changes the stack pointer")]

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;

const BYTES: usize = 128 << 10;

#[repr(align(64))]
struct Stack(UnsafeCell<MaybeUninit<[u8; BYTES]>>);

// SAFETY: one thread at a time uses it, see `run`.
unsafe impl Sync for Stack {}

static STACK: Stack = Stack(UnsafeCell::new(MaybeUninit::uninit()));

/// Where a thread goes on that gives the report up: its stack pointer, and an address in [`switch`].
#[derive(Debug, Default, Clone, Copy)]
#[repr(C)]
struct Resume {
    stack: usize,
    address: usize,
}

struct State {
    resume: Resume,
    /// The thread's alternate stack, or that it has none.
    alternate: libc::stack_t,
}

struct Current(UnsafeCell<MaybeUninit<State>>);

// SAFETY: as for `STACK`.
unsafe impl Sync for Current {}

static CURRENT: Current = Current(UnsafeCell::new(MaybeUninit::uninit()));

/// What runs on that stack, and whether it came to its end.
struct Call<F> {
    body: Option<F>,
    ended: bool,
}

impl<F: FnOnce()> Call<F> {
    extern "C" fn run(call: *mut c_void) {
        // SAFETY: of `run`, below.
        let (call, state) = unsafe { (&mut *call.cast::<Self>(), (*CURRENT.0.get()).assume_init_mut()) };
        let none = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        // SAFETY: this thread runs on neither.
        unsafe { libc::sigaltstack(&raw const none, &raw mut state.alternate) };
        if let Some(body) = call.body.take() {
            body();
        }
        call.ended = true;
        // SAFETY: as above; it is as it was.
        unsafe { libc::sigaltstack(&raw const state.alternate, std::ptr::null_mut()) };
    }
}

/// Runs `body` on the stack of reports, and returns whether it came to its end.
///
/// Meanwhile the thread has no alternate stack: a fault's frame would overwrite those of the handler.
///
/// # Safety
/// One thread at a time calls this, in a signal handler. `body` owns nothing: it may end in the middle.
pub(super) unsafe fn run<F: FnOnce()>(body: F) -> bool {
    let mut call = Call { body: Some(body), ended: false };
    // SAFETY: plain old data; by the caller it is this thread's.
    let state = unsafe {
        let alternate = std::mem::zeroed();
        (*CURRENT.0.get()).write(State { resume: Resume::default(), alternate })
    };
    let resume = &raw mut state.resume;
    let top = STACK.0.get().cast::<u8>().wrapping_add(BYTES);
    let call = &raw mut call;
    // SAFETY: by the caller nobody else is on that stack; the function takes what it is given, and the pointer has all
    // uses of it.
    unsafe {
        switch(Call::<F>::run, call.cast(), top, resume);
        (*call).ended
    }
}

/// Makes a signal handler return to the end of [`run`], instead of to the fault in `body` that it was called for.
///
/// # Safety
/// The signal has interrupted `body` of this thread's [`run`]; `context` is what its handler was given.
pub(super) unsafe fn leave(context: *mut c_void) {
    // SAFETY: by the caller.
    let (context, state) = unsafe { (&mut *context.cast::<libc::ucontext_t>(), (*CURRENT.0.get()).assume_init_ref()) };
    context.uc_stack = state.alternate;
    #[cfg(target_arch = "x86_64")]
    {
        context.uc_mcontext.gregs[libc::REG_R12 as usize] = state.resume.stack as i64;
        context.uc_mcontext.gregs[libc::REG_RIP as usize] = state.resume.address as i64;
    }
    #[cfg(target_arch = "aarch64")]
    {
        context.uc_mcontext.regs[20] = state.resume.stack as u64;
        context.uc_mcontext.pc = state.resume.address as u64;
    }
}

/// Calls a function on another stack. Whoever jumps to `resume.address`, with `resume.stack` in r12 (x20), comes back
/// from it, too.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn switch(run: extern "C" fn(*mut c_void), data: *mut c_void, top: *mut u8, resume: *mut Resume) {
    std::arch::naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov r12, rsp",
        "lea rax, [rip + 2f]",
        "mov [rcx], rsp",
        "mov [rcx + 8], rax",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsp, rdx",
        "call rax",
        "2:",
        "mov rsp, r12",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// Calls a function on another stack. Whoever jumps to `resume.address`, with `resume.stack` in r12 (x20), comes back
/// from it, too.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn switch(run: extern "C" fn(*mut c_void), data: *mut c_void, top: *mut u8, resume: *mut Resume) {
    std::arch::naked_asm!(
        "stp x29, x30, [sp, #-160]!",
        "stp x19, x20, [sp, #16]",
        "stp x21, x22, [sp, #32]",
        "stp x23, x24, [sp, #48]",
        "stp x25, x26, [sp, #64]",
        "stp x27, x28, [sp, #80]",
        "stp d8, d9, [sp, #96]",
        "stp d10, d11, [sp, #112]",
        "stp d12, d13, [sp, #128]",
        "stp d14, d15, [sp, #144]",
        "mov x20, sp",
        "adr x9, 2f",
        "stp x20, x9, [x3]",
        "mov x9, x0",
        "mov x0, x1",
        "mov sp, x2",
        "blr x9",
        "2:",
        "mov sp, x20",
        "ldp d14, d15, [sp, #144]",
        "ldp d12, d13, [sp, #128]",
        "ldp d10, d11, [sp, #112]",
        "ldp d8, d9, [sp, #96]",
        "ldp x27, x28, [sp, #80]",
        "ldp x25, x26, [sp, #64]",
        "ldp x23, x24, [sp, #48]",
        "ldp x21, x22, [sp, #32]",
        "ldp x19, x20, [sp, #16]",
        "ldp x29, x30, [sp], #160",
        "ret",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_runs_elsewhere_and_comes_back() {
        let mut place = 0;
        // SAFETY: this test alone calls it, though in no handler.
        let ended = unsafe { run(|| place = (&raw const place).addr().wrapping_sub(1)) };
        assert!(ended && place != 0);
        // SAFETY: as above.
        let ended = unsafe {
            run(|| {
                let on_stack = 0_u8;
                place = (&raw const on_stack).addr();
            })
        };
        let stack = STACK.0.get().addr();
        assert!(ended && (stack..stack + BYTES).contains(&place));
    }
}
