//! The registers of an interrupted thread, by their DWARF numbers.
#![allow(unsafe_code, reason = "reads what a signal handler is given")]

use std::ffi::c_void;

#[cfg(target_arch = "x86_64")]
mod numbers {
    pub(in crate::crash) const COUNT: usize = 17;
    pub(in crate::crash) const FRAME: usize = 6;
    pub(in crate::crash) const STACK: usize = 7;
    /// The column of the return address.
    pub(in crate::crash) const RETURN: usize = 16;
}

#[cfg(target_arch = "aarch64")]
mod numbers {
    pub(in crate::crash) const COUNT: usize = 32;
    pub(in crate::crash) const FRAME: usize = 29;
    pub(in crate::crash) const STACK: usize = 31;
    /// The link register.
    pub(in crate::crash) const RETURN: usize = 30;
}

pub(super) use numbers::{COUNT, FRAME, RETURN, STACK};

/// The registers of a frame. A caller's are known as far as its callees saved them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Registers {
    pub(super) pc: usize,
    pub(super) values: [Option<usize>; COUNT],
}

/// What an instruction did with an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
    Execute,
}

impl Registers {
    pub(super) fn get(&self, number: usize) -> Option<usize> {
        self.values.get(number).copied().flatten()
    }

    pub(super) fn stack(&self) -> usize {
        self.get(STACK).unwrap_or_default()
    }
}

#[cfg(target_arch = "x86_64")]
impl Registers {
    /// # Safety
    /// The pointer is what a signal handler is given as its third argument.
    pub(super) unsafe fn of(context: *const c_void) -> Self {
        use libc::{REG_R8, REG_RAX, REG_RBP, REG_RBX, REG_RCX, REG_RDI, REG_RDX, REG_RIP, REG_RSI, REG_RSP};
        // SAFETY: by the caller.
        let known = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        let get = |index: libc::c_int| known[index as usize] as usize;
        let mut values = [None; COUNT];
        let first = [REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP];
        first.into_iter().enumerate().for_each(|(number, index)| values[number] = Some(get(index)));
        (8..16).for_each(|number| values[number as usize] = Some(get(REG_R8 + number - 8)));
        Self { pc: get(REG_RIP), values }
    }
}

#[cfg(target_arch = "aarch64")]
impl Registers {
    /// # Safety
    /// The pointer is what a signal handler is given as its third argument.
    pub(super) unsafe fn of(context: *const c_void) -> Self {
        // SAFETY: by the caller.
        let known = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
        let mut values = [None; COUNT];
        known.regs.iter().zip(&mut values).for_each(|(from, to)| *to = Some(*from as usize));
        values[STACK] = Some(known.sp as usize);
        Self { pc: known.pc as usize, values }
    }
}

/// Returns how the fault's address was used, if the processor says so.
///
/// # Safety
/// The pointer is what a handler of SIGSEGV or SIGBUS is given as its third argument.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn access(context: *const c_void) -> Option<Access> {
    const PAGE_FAULT: i64 = 14;
    // SAFETY: by the caller.
    let known = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let error = known[libc::REG_ERR as usize];
    let access = if error & 1 << 4 != 0 {
        Access::Execute
    } else if error & 1 << 1 != 0 {
        Access::Write
    } else {
        Access::Read
    };
    (known[libc::REG_TRAPNO as usize] == PAGE_FAULT).then_some(access)
}

/// Returns how the fault's address was used, if the processor says so.
///
/// # Safety
/// The pointer is what a handler of SIGSEGV or SIGBUS is given as its third argument.
#[cfg(target_arch = "aarch64")]
pub(super) unsafe fn access(context: *const c_void) -> Option<Access> {
    /// `ESR_MAGIC`; then the size of the record, and the register.
    const ESR: u32 = 0x4553_5201;
    /// `__reserved` of `struct sigcontext` begins at a multiple of 16.
    const RECORDS: std::ops::Range<usize> = 0..4096;
    // SAFETY: by the caller. The C library's structure ends in the kernel's records.
    let known = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
    let records = (&raw const known.pstate).wrapping_add(1).addr().next_multiple_of(16);
    let mut at = RECORDS.start;
    while at + 16 <= RECORDS.end {
        let record = std::ptr::with_exposed_provenance::<u32>(records + at);
        // SAFETY: within the records.
        let (magic, bytes) = unsafe { (record.read(), record.add(1).read() as usize) };
        if magic == ESR {
            // SAFETY: as above.
            let esr = unsafe { record.add(2).cast::<u64>().read() };
            return match esr >> 26 & 0x3f {
                0x20 | 0x21 => Some(Access::Execute),
                0x24 | 0x25 if esr & 1 << 6 != 0 => Some(Access::Write),
                0x24 | 0x25 => Some(Access::Read),
                _ => None,
            };
        }
        if magic == 0 || bytes < 16 {
            break;
        }
        at += bytes;
    }
    None
}

/// Returns the address of an instruction that trapped, which the processor may have left behind.
pub(super) fn trapped_at(signal: i32, from_kernel: bool, pc: usize) -> usize {
    // `int3` has one byte.
    if cfg!(target_arch = "x86_64") && signal == libc::SIGTRAP && from_kernel { pc.wrapping_sub(1) } else { pc }
}

/// Returns the address without a signature of the return address.
pub(super) fn without_signature(address: usize) -> usize {
    // Addresses of user space have 52 bits at most.
    if cfg!(target_arch = "aarch64") { address & ((1 << 52) - 1) } else { address }
}
