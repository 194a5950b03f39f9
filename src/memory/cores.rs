//! Lets the other threads' cores see new code: what cache maintenance on one core cannot do on AArch64.
//!
//! Arm Architecture Reference Manual (DDI 0487), "Concurrent modification and execution of instructions": after the writing core
//! has cleaned and invalidated caches, every core that is to run the new instructions needs a context synchronisation event (an
//! `isb`, say) of its own, or it may still run what it fetched before, such as the code that lay at the address until it was freed.
//! membarrier(2), `MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE` (Linux 4.16), makes every running thread of the process execute
//! one; threads that do not run have one when they are scheduled.
//!
//! x86-64 needs it less: its instruction caches are coherent with stores (Intel SDM vol. 3, "Self-Modifying Code"), and where pages go
//! before their addresses get other code, every core forgets them. Where no page goes ("Cross-Modifying Code"), cores are told once of all
//! removed code of a pool that others are about to be packed over (`packed::Epoch::settle`).

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::io::Errno;
use rustix::thread::MembarrierCommand;

/// Whether this process has registered, which the command asks for.
struct Registration(AtomicU8);

const UNKNOWN: u8 = 0;
const READY: u8 = 1;
/// The kernel has no such call (before 4.16), or a filter refuses it.
const ABSENT: u8 = 2;

static REGISTRATION: Registration = Registration(AtomicU8::new(UNKNOWN));

/// Registers this process, if that has not been tried.
pub(super) fn register() {
    if REGISTRATION.0.load(Ordering::Relaxed) == UNKNOWN && crate::fault::check(crate::fault::Call::SyncCores).is_ok() {
        REGISTRATION.register(|command| Ok(rustix::thread::membarrier(command)?));
    }
}

/// After code was written, cleaned out of the data cache, and made executable; before its address is given to anybody (AArch64). Or after
/// code was overwritten, before other code comes there.
///
/// Nothing fails where the kernel has no such call: code that no core has run at its address before is seen all the same.
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
        // A second time, if it turns out that this process is not registered. A child of fork has what its parent registered,
        // together with all else of its address space (Linux, kernel/fork.c, dup_mm), but no manual page promises that.
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

    /// The commands of some calls to a kernel that gives these answers, and success when there are no more.
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
        // Nor is it tried for ever.
        let refused = Some(Errno::PERM);
        assert_eq!(of_new(1, &[None, refused, None, refused]), [Register, Sync, Register, Sync]);
    }

    /// With the kernel itself (and qemu-user, which passes the call on).
    #[test]
    fn the_kernel_takes_the_commands() {
        let supported = rustix::thread::membarrier_query();
        let registration = Registration(AtomicU8::new(UNKNOWN));
        registration.synchronize(|command| Ok(rustix::thread::membarrier(command)?));
        let expected = if supported.contains_command(Sync) { READY } else { ABSENT };
        assert_eq!(registration.0.load(Ordering::Relaxed), expected);
    }
}
