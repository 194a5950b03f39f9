//! Removes and unloads a library.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Library;

use crate::live::lifetime::backtrace;
use crate::live::lifetime::code_ref;
use crate::live::lifetime::cycles;
use crate::live::lifetime::exporting;
use crate::live::lifetime::loaded_library::{CodeRef, LoadedLibrary};
use crate::{Drain, Error, LibraryError, Removal, Result};

/// The longest wait for one of several conditions of a removal.
const SLICE: Duration = Duration::from_millis(10);

impl Library {
    /// Returns whether the library was removed.
    pub(crate) fn is_removed(&self) -> bool {
        self.state().stage.code().is_none()
    }

    /// Hides the names at once; the code is freed with its last holder.
    pub(crate) fn remove(&self) -> Removal {
        let code = self.state().remove();
        // The code is held, so that its finalisers do not run within the dynamic loader.
        self.withdraw_exports();
        // Finalisers run here if this was the last holder; no lock is held.
        drop(code);
        self.end_circles();
        code_ref::end_what_has_drained();
        let drains = self.unfinished_drains();
        if self.remains.life().is_gone() {
            return Removal::Freed;
        }
        Removal::Waiting { holders: self.remains.life().holders() + drains }
    }

    /// Ends the removed library's code if only code keeps it that it keeps itself, by names in the process.
    pub(super) fn end_circles(&self) {
        if exporting::any() && !self.remains.life().is_gone() {
            cycles::end_removed(vec![Arc::clone(&self.remains)]);
        }
    }

    /// Returns the number of unfinished drains. If there is none and no holder, the code has ended, also where this
    /// thread is looking through the draining code, and does not look within that.
    fn unfinished_drains(&self) -> usize {
        let drains = self.remains.unfinished_drains();
        if drains == 0 && self.remains.life().holders() == 0 {
            code_ref::end_if_drained(&*self.remains);
        }
        drains
    }

    /// Removes the library, and waits until it is gone, with its memory.
    pub(crate) fn remove_and_wait(&self, timeout: Duration) -> Result<()> {
        self.remove_and_wait_for_code(timeout)?;
        self.context.registry.leaving.end_now();
        Ok(())
    }

    fn remove_and_wait_for_code(&self, timeout: Duration) -> Result<()> {
        let start = Instant::now();
        if self.remove() == Removal::Freed {
            return Ok(());
        }
        if self.is_in_use_by_this_thread() {
            return Err(Error::Library(LibraryError::RemovalFromOwnCode { library: self.name.to_string() }));
        }
        loop {
            let (life, drains) = (self.remains.life(), self.unfinished_drains());
            code_ref::end_what_has_drained();
            if life.is_gone() {
                return Ok(());
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                let (library, holders) = (self.name.to_string(), life.holders());
                return Err(Error::Library(LibraryError::RemovalTimedOut {
                    library,
                    waited: timeout,
                    holders,
                    drains,
                }));
            }
            // A finished drain may have been a holder; and code without holders may have begun to drain just now.
            match drains == 0 || life.holders() != 0 {
                true => code_ref::wait(life, left.min(SLICE)),
                false => self.remains.wait_for_drains(left.min(SLICE)),
            }
        }
    }

    /// Returns whether this thread is running code that keeps the library, or a drain of such code, or is linking it.
    fn is_in_use_by_this_thread(&self) -> bool {
        let stack = backtrace::return_addresses();
        let runs = |code: &Arc<LoadedLibrary>| {
            (code.drains_are_being_asked() || stack.iter().any(|address| code.contains(*address)))
                && code.keeps(&self.remains)
        };
        self.init_lock.is_ours() || self.context.live().iter().any(runs)
    }

    /// Adds a drain that delays the library's end, also after its removal.
    pub(crate) fn drain(&self, drain: Box<dyn Drain>) -> Result<()> {
        // Held code does not end.
        let held = CodeRef::of(&self.remains).ok_or_else(|| self.removed())?;
        held.drain(drain);
        Ok(())
    }
}
