//! The text of a report.
#![allow(unsafe_code, reason = "reads what a signal handler is given")]

use std::ffi::{c_int, c_void};
use std::fmt::{self, Write as _};
use std::time::SystemTime;

use super::line::Line;
use super::modules::Module;
use super::registers::{self, Access, Registers};
use super::walk::{Frame, Walk};
use crate::memory::{Occupant, Owner, former_owner, owner};

/// What a signal handler is given.
#[derive(Debug)]
pub(super) struct Fault {
    signal: c_int,
    code: c_int,
    /// `si_addr`, where the signal has one.
    address: usize,
    sender: libc::pid_t,
    access: Option<Access>,
    registers: Registers,
}

/// Frames that are printed, and that are searched for loaded code.
const PRINTED: usize = 32;
const SEARCHED: usize = 256;
/// The largest distance of a stack pointer to an address behind the end of its stack.
const NEAR: usize = 64 << 10;
/// `SI_KERNEL`: of x86-64, where the processor does not say which address.
const FROM_KERNEL: c_int = 0x80;

impl Fault {
    /// # Safety
    /// The arguments are those of a signal handler.
    pub(super) unsafe fn of(signal: c_int, info: *const libc::siginfo_t, context: *const c_void) -> Self {
        // SAFETY: by the caller.
        let (info, registers) = unsafe { (&*info, Registers::of(context)) };
        let code = info.si_code;
        let (mut address, mut sender, mut access) = (0, 0, None);
        if code > 0 {
            // SAFETY: signals of the kernel have one.
            address = unsafe { info.si_addr() }.addr();
            if matches!(signal, libc::SIGSEGV | libc::SIGBUS) {
                // SAFETY: by the caller.
                access = unsafe { registers::access(context) };
            }
        } else {
            // SAFETY: signals of processes have one.
            sender = unsafe { info.si_pid() };
        }
        Self { signal, code, address, sender, access, registers }
    }

    /// Returns whether the instruction trapped, rather than that somebody sent the signal.
    pub(super) fn is_from_kernel(&self) -> bool {
        self.code > 0
    }

    /// Returns the address of the instruction.
    fn place(&self) -> usize {
        registers::trapped_at(self.signal, self.is_from_kernel(), self.registers.pc)
    }

    /// Returns the address that the instruction used, if it is known.
    fn used(&self) -> Option<usize> {
        let has = matches!(self.signal, libc::SIGSEGV | libc::SIGBUS) && self.code > 0 && self.code != FROM_KERNEL;
        has.then_some(self.address)
    }

    /// Returns whether the fault is that there is no code at its place.
    fn is_of_place(&self) -> bool {
        self.used() == Some(self.place())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.signal {
            libc::SIGSEGV => "SIGSEGV",
            libc::SIGBUS => "SIGBUS",
            libc::SIGILL => "SIGILL",
            libc::SIGTRAP => "SIGTRAP",
            _ => "SIGFPE",
        };
        write!(f, "{name} at {:#x}", self.place())?;
        if self.code <= 0 {
            return write!(f, ", sent by process {}", self.sender);
        }
        if self.is_of_place() {
            // SEGV_ACCERR
            return f.write_str(if self.code == 2 { ", where no code is" } else { ", where nothing is mapped" });
        }
        if let Some(address) = self.used() {
            let verb = match self.access {
                Some(Access::Write) => "writing",
                Some(Access::Execute) => "executing",
                Some(Access::Read) => "reading",
                None => "using",
            };
            write!(f, ", {verb} {address:#x}")?;
        }
        let cause = match (self.signal, self.code) {
            (libc::SIGSEGV, 1) => ", where nothing is mapped",
            (libc::SIGSEGV, 2) => ", which is protected",
            (libc::SIGSEGV, FROM_KERNEL) => {
                ", using an address that is not canonical, or an instruction that is not allowed"
            }
            (libc::SIGBUS, libc::BUS_ADRALN) => ", which is not aligned",
            (libc::SIGBUS, libc::BUS_ADRERR) => ", behind the end of a mapped file, or without memory",
            (libc::SIGFPE, 1) => ", integer division by zero",
            (libc::SIGFPE, 2) => ", integer overflow",
            (libc::SIGFPE, 3) => ", floating-point division by zero",
            (libc::SIGFPE, 4) => ", floating-point overflow",
            (libc::SIGFPE, 5) => ", floating-point underflow",
            (libc::SIGFPE, 6) => ", inexact floating-point result",
            (libc::SIGFPE, 7) => ", invalid floating-point operation",
            (libc::SIGILL, _) => ", illegal instruction",
            _ => "",
        };
        f.write_str(cause)
    }
}

/// Writes a report, if the fault is in loaded code or loaded code has led to it.
pub(super) fn report(fault: &Fault) {
    let place = fault.place();
    let walk = || Walk::new(fault.registers, place);
    let of = owner(place, false).or_else(|| {
        let is_nowhere = fault.is_of_place() && Module::at(place).is_none();
        if is_nowhere { former_owner(place) } else { None }
    });
    if of.is_none() && !walk().take(SEARCHED).any(|frame| is_loaded(&frame)) {
        return;
    }
    say(format_args!("slabjit: {fault}"));
    say_place("in", &Frame { address: place, is_return: false, is_guess: false }, of.as_ref());
    if let Some(of) = &of {
        say_end(of);
    }
    say_address(fault);
    let (mut last, mut repeated, mut printed) = (place, 0, 0);
    for frame in walk().skip(1).take(SEARCHED) {
        if frame.address == last {
            repeated += 1;
            continue;
        }
        say_repeated(&mut repeated);
        if printed == PRINTED {
            say(format_args!("slabjit:   and so on"));
            return;
        }
        printed += 1;
        last = frame.address;
        let how = match frame {
            Frame { is_guess: true, .. } => "perhaps called from",
            Frame { is_return: true, .. } => "called from",
            Frame { is_return: false, .. } => "in a signal handler that interrupted",
        };
        say_place(how, &frame, owner(frame.inside(), false).as_ref());
    }
    say_repeated(&mut repeated);
}

fn is_loaded(frame: &Frame) -> bool {
    matches!(owner(frame.inside(), false), Some(Owner::Arena(_)))
}

fn say(text: fmt::Arguments<'_>) {
    let mut line = Line::new();
    let _ = line.write_fmt(text);
    line.write();
}

fn say_repeated(repeated: &mut usize) {
    if std::mem::take(repeated) > 0 {
        say(format_args!("slabjit:   … the same again and again"));
    }
}

/// Says what has an address.
fn say_place(how: &str, frame: &Frame, of: Option<&Owner>) {
    let address = frame.address;
    let mut line = Line::new();
    let _ = write!(line, "slabjit:   {how} ");
    match of {
        Some(Owner::Arena(Some(occupant))) => {
            if let Some((name, offset)) = &occupant.function {
                let offset = offset + (address - frame.inside());
                let _ = write!(line, "{name}+{offset:#x}, ");
            }
            let _ = write!(line, "{}", Object { occupant, address });
        }
        Some(Owner::Arena(None)) => {
            let _ = write!(line, "{address:#x}, in an engine's arena, where no object is known");
        }
        Some(Owner::Former(_)) => {
            let _ = write!(line, "{address:#x}, in the arena of an engine that is gone");
        }
        None => match Module::at(frame.inside()) {
            Some(module) => {
                // SAFETY: its code is being run.
                line.push(unsafe { module.path() }.map_or(b"the program", |path| path.to_bytes()));
                let _ = write!(line, "+{:#x}", address.wrapping_sub(module.base));
            }
            None => {
                let _ = write!(line, "{address:#x}");
            }
        },
    }
    line.write();
}

/// An object, and an address in it.
struct Object<'a> {
    occupant: &'a Occupant,
    address: usize,
}

impl fmt::Display for Object<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Occupant { object, library, generation, start, function, .. } = self.occupant;
        write!(f, "object '{object}' of library '{library}' (generation {generation})")?;
        if function.is_none() {
            write!(f, ", offset {:#x} of its slab", self.address.wrapping_sub(*start))?;
        }
        Ok(())
    }
}

/// A time that has passed, in seconds.
struct Ago(SystemTime);

impl fmt::Display for Ago {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.elapsed() {
            Ok(ago) => write!(f, "{}.{:03} s ago", ago.as_secs(), ago.subsec_millis()),
            Err(_) => f.write_str("before"),
        }
    }
}

/// Says that code is not there any more, and what to do about it.
fn say_end(of: &Owner) {
    let remedy = "a function pointer outlived its Symbol. Keep the Symbol as long as the pointer is used";
    match of {
        Owner::Arena(Some(Occupant { removed: Some(removed), .. })) => {
            say(format_args!("slabjit:   the library was removed {}: {remedy}", Ago(*removed)));
        }
        Owner::Former(dropped) => {
            let ago = Ago(*dropped);
            say(format_args!("slabjit:   its last library was removed, and the engine dropped, {ago}: {remedy}"));
        }
        Owner::Arena(None) => say(format_args!(
            "slabjit:   code was removed from there, and its addresses have rested, or a pointer is wrong"
        )),
        Owner::Arena(Some(_)) => {}
    }
}

/// Says what is known of the address that the instruction used.
fn say_address(fault: &Fault) {
    let Some(address) = fault.used().filter(|_| !fault.is_of_place()) else { return };
    if let Some(Owner::Arena(Some(occupant))) = owner(address, true) {
        let mut line = Line::new();
        let _ = write!(line, "slabjit:   {address:#x} is in {}", Object { occupant: &occupant, address });
        if let Some(removed) = occupant.removed {
            let _ = write!(line, ", removed {}", Ago(removed));
        }
        line.write();
    } else if address.abs_diff(fault.registers.stack()) <= NEAR {
        say(format_args!("slabjit:   {address:#x} is near the stack pointer: the stack has probably overflowed"));
    }
}
