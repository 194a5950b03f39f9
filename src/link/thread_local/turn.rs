//! Which thread may open storage at a fixed distance before it knows whether it will be the one that links.
//!
//! There is little room for such storage. Threads that ask for one library at a time would each take some, though one of them links,
//! and its own might not fit. So each takes its turn, from before it opens storage until it has the library or has given the storage
//! up. Nobody waits for a library meanwhile.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long others are waited for. Whoever has the turn may wait for the dynamic loader's lock, and whoever has that lock may be the one
/// that waits for the turn (an initialiser of a shared library): it goes on without.
const PATIENCE: Duration = Duration::from_secs(1);

static TAKEN: Mutex<bool> = Mutex::new(false);
static FREE: Condvar = Condvar::new();

/// A thread's turn, until it is dropped.
pub(in super::super) struct Turn(());

impl Turn {
    /// Waits for it; `None` if that took too long.
    pub(in super::super) fn wait() -> Option<Self> {
        let waited = FREE.wait_timeout_while(taken(), PATIENCE, |taken| *taken);
        let (mut taken, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (!std::mem::replace(&mut *taken, true)).then_some(Self(()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *taken() = false;
        FREE.notify_one();
    }
}

fn taken() -> MutexGuard<'static, bool> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}
