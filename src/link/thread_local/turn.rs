//! Which thread may open storage at a fixed distance before it knows whether it will be the one that links.
//!
//! There is little room for such storage. Threads that ask for one library at a time would each take some, though one of them links,
//! and its own might not fit. So each takes its turn, from before it opens storage until it has the library or has given the storage
//! up. Nobody waits for a library meanwhile.

use std::thread::{self, ThreadId};
use std::time::Duration;

use super::super::signal::Signal;

/// How long others are waited for. Whoever has the turn may wait for the dynamic loader's lock, and whoever has that lock may be the one
/// that waits for the turn (an initialiser of a shared library): it goes on without.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whose turn it is.
static TURN: Signal<Option<ThreadId>> = Signal::new(None);

/// A thread's turn, until it is dropped.
pub(in super::super) struct Turn(());

impl Turn {
    /// Waits for it; `None` if that took too long.
    pub(in super::super) fn wait() -> Option<Self> {
        TURN.wait_for(PATIENCE, |turn| {
            turn.is_none().then(|| {
                *turn = Some(thread::current().id());
                Self(())
            })
        })
    }

    /// In a child of `fork`: it is nobody's turn who is not there.
    pub(in super::super) fn end_those_of_others() {
        let me = thread::current().id();
        TURN.update(|turn| *turn = turn.filter(|thread| *thread == me));
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        TURN.update(|turn| *turn = None);
    }
}
