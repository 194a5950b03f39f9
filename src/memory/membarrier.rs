//! Synchronisation of the other threads' cores with new code, which AArch64's cache maintenance does not cover.
//!
//! Arm Architecture Reference Manual (DDI 0487), "Concurrent modification and execution of instructions": after the
//! writing core has cleaned and invalidated caches, every core that is to run the new instructions needs a context
//! synchronisation event (an `isb`, say) of its own, or it may still run what it fetched before, such as the code that
//! lay at the address until it was freed. membarrier(2), `MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE` (Linux 4.16),
//! makes every running thread of the process execute one; threads that do not run have one when they are scheduled.
//!
//! x86-64 needs it less: its instruction caches are coherent with stores (Intel SDM vol. 3, "Self-Modifying Code"), and
//! cores forget pages that are unmapped before their addresses get other code. If no page is unmapped ("Cross-Modifying
//! Code"), the cores are synchronised once for all removed code of a pool, before new objects are packed over it
//! (`packed::Epoch::settle`).

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::io::Errno;
use rustix::thread::MembarrierCommand;

/// Whether this process has registered for the command.
struct Registration(AtomicU8);

const UNKNOWN: u8 = 0;
const READY: u8 = 1;
/// The kernel has no such call (before 4.16), or a filter refuses it.
const ABSENT: u8 = 2;

static REGISTRATION: Registration = Registration(AtomicU8::new(UNKNOWN));

/// Registers this process, unless that was tried before.
pub(super) fn register() {
    if REGISTRATION.0.load(Ordering::Relaxed) == UNKNOWN && crate::fault::check(crate::fault::Call::SyncCores).is_ok() {
        REGISTRATION.register(|command| Ok(rustix::thread::membarrier(command)?));
    }
}

/// Synchronises the cores: after code was written, cleaned out of the data cache and made executable, before its
/// address is given out (AArch64); or after code was overwritten, before new code is written there.
///
/// Does nothing if the kernel has no such call: new code at an address where no core has run code is visible
/// nevertheless.
pub(super) fn synchronize() {
    let refused = crate::fault::check(crate::fault::Call::SyncCores).err();
    REGISTRATION.synchronize(|command| match refused {
        Some(errno) => Err(errno.into()),
        None => Ok(rustix::thread::membarrier(command)?),
    });
}

impl Registration {
    fn register(&self, mut call: impl FnMut(MembarrierCommand) -> io::Result<()>) -> bool {
        let registered = call(MembarrierCommand::RegisterPrivateExpeditedSyncCore);
        match &registered {
            Ok(()) => self.0.store(READY, Ordering::Relaxed),
            Err(error) if [Errno::NOSYS, Errno::INVAL, Errno::PERM].contains(&errno(error)) => {
                self.0.store(ABSENT, Ordering::Relaxed);
            }
            Err(_) => {}
        }
        registered.is_ok()
    }

    fn synchronize(&self, mut call: impl FnMut(MembarrierCommand) -> io::Result<()>) {
        // Tries twice, in case this process turns out not to be registered. A child of fork inherits the registration
        // with its address space (Linux, kernel/fork.c, dup_mm), but no manual page promises that.
        for _ in 0..2 {
            match self.0.load(Ordering::Relaxed) {
                ABSENT => return,
                READY => {}
                _ if self.register(&mut call) => {}
                _ => return,
            }
            match call(MembarrierCommand::PrivateExpeditedSyncCore) {
                Err(error) if errno(&error) == Errno::PERM => self.0.store(UNKNOWN, Ordering::Relaxed),
                _ => return,
            }
        }
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use MembarrierCommand::{PrivateExpeditedSyncCore as Sync, RegisterPrivateExpeditedSyncCore as Register};

    use super::*;

    /// Returns the commands of several calls to a kernel that gives these answers, and then success.
    fn commands(registration: &Registration, calls: usize, answers: &[Option<Errno>]) -> Vec<MembarrierCommand> {
        let mut commands = Vec::new();
        for _ in 0..calls {
            registration.synchronize(|command| {
                commands.push(command);
                answers.get(commands.len() - 1).copied().flatten().map_or(Ok(()), |errno| Err(errno.into()))
            });
        }
        commands
    }

    fn of_new(calls: usize, answers: &[Option<Errno>]) -> Vec<MembarrierCommand> {
        commands(&Registration(AtomicU8::new(UNKNOWN)), calls, answers)
    }

    #[test]
    fn the_process_is_registered_once() {
        assert_eq!(of_new(3, &[]), [Register, Sync, Sync, Sync]);
    }

    #[test]
    fn a_kernel_without_it_is_asked_once() {
        for missing in [Errno::NOSYS, Errno::INVAL, Errno::PERM] {
            assert_eq!(of_new(3, &[Some(missing)]), [Register]);
        }
    }

    #[test]
    fn what_may_pass_is_tried_again() {
        assert_eq!(of_new(2, &[Some(Errno::NOMEM)]), [Register, Register, Sync]);
        assert_eq!(of_new(2, &[None, Some(Errno::NOMEM)]), [Register, Sync, Sync]);
    }

    #[test]
    fn a_process_that_is_not_registered_any_more_registers_again() {
        let inherited = Registration(AtomicU8::new(READY));
        assert_eq!(commands(&inherited, 2, &[Some(Errno::PERM)]), [Sync, Register, Sync, Sync]);
        // The number of attempts is limited.
        let refused = Some(Errno::PERM);
        assert_eq!(of_new(1, &[None, refused, None, refused]), [Register, Sync, Register, Sync]);
    }

    /// Uses the kernel itself (or qemu-user, which passes the call on).
    #[test]
    fn the_kernel_takes_the_commands() {
        let supported = rustix::thread::membarrier_query();
        let registration = Registration(AtomicU8::new(UNKNOWN));
        registration.synchronize(|command| Ok(rustix::thread::membarrier(command)?));
        let expected = if supported.contains_command(Sync) { READY } else { ABSENT };
        assert_eq!(registration.0.load(Ordering::Relaxed), expected);
    }
}
