//! Turns by which one thread opens storage at a fixed distance before it knows whether it will be the one that links.
//!
//! There is little room for such storage. Threads that ask for one library at a time would each take some, though one
//! of them links, and its own might not fit. So each takes its turn, from before it opens storage until it has the
//! library or has given the storage up. Nobody waits for a library meanwhile.

use std::thread::{self, ThreadId};
use std::time::Duration;

use crate::live::lifetime::wakeup::Signal;

/// The limit of a wait. The thread with the turn may wait for the dynamic loader's lock, and the thread with that
/// lock may be the one that waits for the turn (an initialiser of a shared library): it goes on without.
const PATIENCE: Duration = Duration::from_secs(1);

/// The thread whose turn it is.
static TURN: Signal<Option<ThreadId>> = Signal::new(None);

/// A thread's turn, until it is dropped.
pub(crate) struct Turn(());

impl Turn {
    /// Waits for the turn; `None` if that took too long.
    pub(crate) fn wait() -> Option<Self> {
        TURN.wait_for(PATIENCE, |turn| {
            turn.is_none().then(|| {
                *turn = Some(thread::current().id());
                Self(())
            })
        })
    }

    /// Ends the turns of other threads in a child of `fork`, which does not have them.
    pub(crate) fn end_those_of_others() {
        let me = thread::current().id();
        TURN.update(|turn| *turn = turn.filter(|thread| *thread == me));
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        TURN.update(|turn| *turn = None);
    }
}
