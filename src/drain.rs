//! What else has to finish before code goes.

use std::time::{Duration, Instant};

/// Something that must finish before a library's memory goes: work on a device that still reads it, say. See
/// [`Library::drain`](crate::Library::drain).
///
/// Every closure `Fn() -> bool + Send + Sync` is one, which says whether it has finished.
pub trait Drain: Send + Sync {
    /// Whether it has finished. Asked again and again until it has, by any thread, with no lock held; must not block. A panic
    /// counts as "not yet".
    fn is_finished(&self) -> bool;

    /// Waits until it has finished, or so long, and says whether it has. Asks again and again unless it is implemented.
    fn wait(&self, timeout: Duration) -> bool {
        let end = Instant::now() + timeout;
        let mut pause = Duration::from_micros(10);
        loop {
            if self.is_finished() {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
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
