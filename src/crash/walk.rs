//! The calls that lead to an instruction, from its registers and the stack. It takes no lock and allocates nothing:
//! libgcc's unwinder does both.
#![allow(unsafe_code, reason = "reads what the kernel saved")]

use super::frame_table;
use super::modules::Module;
use super::readable::Readable;
use super::registers::{FRAME, RETURN, Registers, STACK, without_signature};
use super::rules;
use crate::memory::{Occupant, Owner, owner};

/// A function's place in the chain of calls.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    /// The instruction that trapped or was interrupted, or a return address.
    pub(super) address: usize,
    pub(super) is_return: bool,
    /// No table says that it is there: a word of the stack looks like it.
    pub(super) is_guess: bool,
}

impl Frame {
    /// Returns an address within the instruction: a return address may be another function's.
    pub(super) fn inside(&self) -> usize {
        self.address - usize::from(self.is_return && self.address > 0)
    }
}

/// What a walk is told by.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a signal handler has no memory for a box")]
enum Next {
    /// A frame, and its registers.
    Frame(Frame, Registers),
    /// Words of the stack from here on.
    Words(usize),
    End,
}

/// The frames from the innermost one on.
#[derive(Debug)]
pub(super) struct Walk {
    next: Next,
    /// Whether the next frame's instruction was interrupted, and is not one that called.
    first: bool,
    memory: Readable,
}

/// Bytes of the stack that are searched where no table leads on.
const SEARCHED: usize = 16 << 10;
/// The largest distance of two frame pointers.
const LARGEST: usize = 1 << 20;

impl Walk {
    pub(super) fn new(mut registers: Registers, address: usize) -> Self {
        registers.pc = address;
        let frame = Frame { address, is_return: false, is_guess: false };
        Self { next: Next::Frame(frame, registers), first: true, memory: Readable::default() }
    }

    /// Returns what comes behind a frame.
    fn behind(&mut self, frame: Frame, registers: &Registers) -> Next {
        let first = self.first;
        let found = self.by_table(frame, registers);
        let (caller, is_return) = match found {
            Found::Caller(caller, is_return) => (caller, is_return),
            Found::End => return Next::End,
            // A call went there, and nothing has run.
            Found::NoCode if first => match self.by_call(registers) {
                Some(caller) => (caller, true),
                None => return Next::Words(registers.stack()),
            },
            Found::NoCode | Found::NoTable => match self.by_pointer(registers) {
                Some(caller) => (caller, true),
                None => return Next::Words(registers.stack()),
            },
        };
        // A signal's frame may lie on another stack than what it interrupted.
        self.first = !is_return;
        let progress = caller.stack() > registers.stack() || first && caller.pc != registers.pc || self.first;
        if caller.pc == 0 || !progress {
            return Next::End;
        }
        Next::Frame(Frame { address: caller.pc, is_return, is_guess: false }, caller)
    }

    fn by_table(&self, frame: Frame, registers: &Registers) -> Found {
        if let Some(interrupted) = self.by_signal(frame, registers) {
            return Found::Caller(interrupted, false);
        }
        let address = frame.inside();
        let entry = match owner(address, false) {
            Some(Owner::Arena(Some(Occupant { frames: table @ 1.., removed: None, .. }))) => {
                frame_table::in_section(table as usize, address, &self.memory)
            }
            Some(Owner::Arena(Some(Occupant { removed: None, .. }))) => None,
            Some(_) => return Found::NoCode,
            None => match Module::at(address) {
                Some(module) => frame_table::in_module(&module, address, &self.memory),
                None => return Found::NoCode,
            },
        };
        let Some(entry) = entry else { return Found::NoTable };
        match rules::caller(&entry, address, registers, &self.memory) {
            None => Found::NoTable,
            Some(None) => Found::End,
            Some(Some(caller)) => Found::Caller(caller, !entry.function.is_signal_trampoline()),
        }
    }

    /// Returns what a signal interrupted, if the frame is the kernel's, which may have no table.
    #[cfg(target_arch = "aarch64")]
    fn by_signal(&self, frame: Frame, registers: &Registers) -> Option<Registers> {
        // `mov x8, #__NR_rt_sigreturn; svc #0`
        const RETURNS: [u32; 2] = [0xd280_1168, 0xd400_0001];
        let address = frame.address;
        if [self.memory.half(address)?, self.memory.half(address.wrapping_add(4))?] != RETURNS {
            return None;
        }
        let context = registers.stack().checked_add(size_of::<libc::siginfo_t>())?;
        if !self.memory.all(context, size_of::<libc::ucontext_t>()) {
            return None;
        }
        // SAFETY: the kernel's frame has the signal's information, and then its context.
        Some(unsafe { Registers::of(std::ptr::with_exposed_provenance(context)) })
    }

    /// Returns what a signal interrupted, if the frame is the kernel's and has no table: on x86-64 it is the C
    /// library's, which has one.
    #[cfg(target_arch = "x86_64")]
    #[allow(clippy::unused_self, reason = "as on AArch64")]
    fn by_signal(&self, _: Frame, _: &Registers) -> Option<Registers> {
        None
    }

    /// Returns the registers of a caller whose call has just been made.
    fn by_call(&self, registers: &Registers) -> Option<Registers> {
        let mut caller = *registers;
        if cfg!(target_arch = "x86_64") {
            caller.pc = self.memory.word(registers.stack())?;
            caller.values[STACK] = Some(registers.stack() + size_of::<usize>());
        } else {
            caller.pc = without_signature(registers.get(RETURN)?);
        }
        self.is_call(caller.pc).then_some(caller)
    }

    /// Returns the registers of a caller by a frame pointer that looks like one.
    fn by_pointer(&self, registers: &Registers) -> Option<Registers> {
        let frame = registers.get(FRAME)?;
        let distance = frame.checked_sub(registers.stack())?;
        if distance > LARGEST || !frame.is_multiple_of(size_of::<usize>()) {
            return None;
        }
        let (before, pc) = (self.memory.word(frame)?, self.memory.word(frame + size_of::<usize>())?);
        let mut caller = Registers { pc: without_signature(pc), values: [None; _] };
        caller.values[FRAME] = Some(before);
        caller.values[STACK] = Some(frame + 2 * size_of::<usize>());
        self.is_call(caller.pc).then_some(caller)
    }

    /// Returns the first return address of loaded code among words of the stack, and the place behind it.
    fn by_words(&self, from: usize) -> Option<(Frame, usize)> {
        let from = from.next_multiple_of(size_of::<usize>());
        for at in (from..from.checked_add(SEARCHED)?).step_by(size_of::<usize>()) {
            let address = self.memory.word(at)?;
            let is_loaded = || matches!(owner(address - 1, false), Some(Owner::Arena(Some(o))) if o.removed.is_none());
            if address > 0 && is_loaded() && self.is_behind_call(address) {
                return Some((Frame { address, is_return: true, is_guess: true }, at + size_of::<usize>()));
            }
        }
        None
    }

    /// Returns whether code is known that could return there.
    fn is_call(&self, address: usize) -> bool {
        let Some(inside) = address.checked_sub(1) else { return false };
        let known = match owner(inside, false) {
            Some(Owner::Arena(occupant)) => occupant.is_some_and(|occupant| occupant.removed.is_none()),
            _ => Module::at(inside).is_some(),
        };
        known && self.is_behind_call(address)
    }

    #[cfg(target_arch = "x86_64")]
    fn is_behind_call(&self, address: usize) -> bool {
        // `call` has an opcode e8 and four bytes, or ff with a ModRM byte /2 and up to five more.
        let Some(start) = address.checked_sub(8) else { return false };
        let Some(bytes) = self.memory.word(start).map(usize::to_le_bytes) else { return false };
        bytes[3] == 0xe8 || bytes.windows(2).skip(1).any(|two| two[0] == 0xff && two[1] & 0x38 == 0x10)
    }

    #[cfg(target_arch = "aarch64")]
    fn is_behind_call(&self, address: usize) -> bool {
        let Some(call) = address.checked_sub(4).and_then(|at| self.memory.half(at)) else { return false };
        // BL; BLR, also with a check of the address.
        call >> 26 == 0b10_0101 || call & 0xfeff_f000 == 0xd63f_0000
    }
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a signal handler has no memory for a box")]
enum Found {
    /// The caller, and whether its address is one to return to.
    Caller(Registers, bool),
    /// Nothing called it.
    End,
    /// The address is in no code.
    NoCode,
    /// It is, and no table has it.
    NoTable,
}

impl Iterator for Walk {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        match std::mem::replace(&mut self.next, Next::End) {
            Next::Frame(frame, registers) => {
                self.next = self.behind(frame, &registers);
                Some(frame)
            }
            Next::Words(from) => {
                let (frame, behind) = self.by_words(from)?;
                self.next = Next::Words(behind);
                Some(frame)
            }
            Next::End => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::{c_int, c_void};
    use std::sync::Mutex;

    use super::*;
    use crate::crash::modules;
    use crate::live::lifetime::backtrace::return_addresses;

    /// The frames by libgcc, and by a walk.
    static FOUND: Mutex<(Vec<usize>, Vec<Frame>)> = Mutex::new((Vec::new(), Vec::new()));

    extern "C" fn walk(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
        // SAFETY: a handler is given it.
        let registers = unsafe { Registers::of(context) };
        let frames = Walk::new(registers, registers.pc).take(1000).collect();
        *FOUND.lock().unwrap() = (return_addresses(), frames);
    }

    extern "C" fn compare(_: *const c_void, _: *const c_void) -> c_int {
        // SAFETY: a plain call, which comes back.
        unsafe { libc::raise(libc::SIGUSR1) };
        0
    }

    #[test]
    fn a_walk_finds_what_libgcc_finds() {
        modules::prepare();
        // SAFETY: the handler has this type, and is called below: it does not interrupt an allocation.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            (action.sa_sigaction, action.sa_flags) = (walk as *const () as usize, libc::SA_SIGINFO);
            assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
            // Through the C library.
            let mut words = [0_u32; 2];
            libc::qsort(words.as_mut_ptr().cast(), 2, 4, Some(compare));
        }
        let (expected, found) = std::mem::take(&mut *FOUND.lock().unwrap());
        assert!(found.iter().all(|frame| !frame.is_guess), "{found:x?}");
        assert!(found.iter().skip(1).all(|frame| frame.is_return), "{found:x?}");
        let found: Vec<usize> = found.iter().map(|frame| frame.address).collect();
        let at = expected.iter().position(|address| *address == found[0]).unwrap();
        // libgcc's list ends in 0 on some systems.
        let expected: Vec<usize> = expected[at..].iter().copied().filter(|address| *address != 0).collect();
        assert!(found.len() > 8, "{found:x?}");
        assert_eq!(found, expected);
    }
}
