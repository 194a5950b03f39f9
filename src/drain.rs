//! Conditions that must hold before a library's code is freed.

use std::time::{Duration, Instant};

/// A condition delays the freeing of a library's memory: work on a device that still reads it, say. See
/// [`Library::drain`](crate::Library::drain).
///
/// Every closure `Fn() -> bool + Send + Sync` is one, and returns whether it has finished.
pub trait Drain: Send + Sync {
    /// Returns whether it has finished. Any thread asks repeatedly until it has, with no lock held; must not block. A
    /// panic counts as "not yet". It may make and remove libraries: while it does, this thread does not ask it again.
    fn is_finished(&self) -> bool;

    /// Returns the same while a holder of the library's code may start more. A drain that ends something once it is
    /// asked, or that could finish and not be finished any more, says no; one that holds the library itself has to be
    /// asked then, too.
    fn is_finished_while_held(&self) -> bool {
        self.is_finished()
    }

    /// Waits until it has finished, or so long, and says whether it has. Asks again and again unless it is implemented.
    fn wait(&self, timeout: Duration) -> bool {
        let start = Instant::now();
        let mut pause = Duration::from_micros(10);
        loop {
            if self.is_finished() {
                return true;
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return false;
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(Duration::from_millis(1));
        }
    }
}

impl<F: Fn() -> bool + Send + Sync> Drain for F {
    fn is_finished(&self) -> bool {
        self()
    }
}
