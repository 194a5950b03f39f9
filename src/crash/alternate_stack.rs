//! Alternate stacks for signal handlers.
#![allow(unsafe_code, reason = "sigaltstack(2) and the memory for it")]

use std::ffi::c_void;
use std::io;
use std::marker::PhantomData;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use crate::fault::{Call, check};

/// A thread's alternate stack, on which its signals are handled; see [`AlternateStack::of_this_thread`].
#[derive(Debug)]
pub struct AlternateStack {
    /// The mapping; `None` if the thread had an alternate stack before.
    memory: Option<(*mut c_void, usize)>,
    /// It belongs to this thread, and no other.
    _not_send: PhantomData<*const ()>,
}

/// For handlers, besides the registers that the kernel saves.
const BYTES: usize = 64 << 10;

impl AlternateStack {
    /// Gives this thread an alternate stack until the result is dropped; it keeps one that it has already.
    ///
    /// A thread whose stack overflows has no room for a signal handler: without an alternate stack, the kernel ends the
    /// process by SIGSEGV at once. Rust's standard library gives one to its threads, also to the main thread, unless a
    /// handler of SIGSEGV or SIGBUS was there before it. Threads that other code starts have none.
    ///
    /// # Errors
    /// The system has no memory for it.
    pub fn of_this_thread() -> io::Result<Self> {
        // SAFETY: plain old data, and a call with a place for its result.
        let before = unsafe {
            let mut before: libc::stack_t = std::mem::zeroed();
            libc::sigaltstack(std::ptr::null(), &raw mut before);
            before
        };
        if before.ss_flags & libc::SS_DISABLE == 0 {
            return Ok(Self { memory: None, _not_send: PhantomData });
        }
        let page = rustix::param::page_size();
        // SAFETY: a plain call: what a frame takes with this processor's registers, if the kernel says so.
        let frame = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize;
        let bytes = (BYTES + frame).next_multiple_of(page);
        check(Call::MapSignalStack)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: without a fixed address the kernel takes unused addresses.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), page + bytes, access, MapFlags::PRIVATE | MapFlags::STACK) }?;
        let own = Self { memory: Some((start, page + bytes)), _not_send: PhantomData };
        let stack = libc::stack_t { ss_sp: start.wrapping_byte_add(page), ss_flags: 0, ss_size: bytes };
        // SAFETY: the first page is ours; a stack that overflows traps there. If not, it has a page more.
        let _ = unsafe { mprotect(start, page, MprotectFlags::empty()) };
        // SAFETY: the memory stays until the stack is given up.
        match unsafe { libc::sigaltstack(&raw const stack, std::ptr::null_mut()) } {
            0 => Ok(own),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for AlternateStack {
    fn drop(&mut self) {
        let Some((start, bytes)) = self.memory else { return };
        // SAFETY: plain old data, plain calls. The thread's stack is given up if it is still this one, and unmapped if
        // nothing runs on it.
        unsafe {
            let mut now: libc::stack_t = std::mem::zeroed();
            libc::sigaltstack(std::ptr::null(), &raw mut now);
            let is_ours = (start.addr()..start.addr() + bytes).contains(&now.ss_sp.addr());
            if is_ours {
                let none = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
                if libc::sigaltstack(&raw const none, std::ptr::null_mut()) != 0 {
                    return;
                }
            }
            let _ = munmap(start, bytes);
        }
    }
}
