//! What code has to wait for before it ends.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::Drain;
use crate::gate::{Guard, Mutex};

/// Those of one library. What has finished is dropped as soon as that is seen: it may hold the library itself.
#[derive(Default)]
pub(super) struct Drains(Mutex<Vec<Arc<dyn Drain>>>);

impl fmt::Debug for Drains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Drains").field(&self.list().len()).finish()
    }
}

impl Drains {
    fn list(&self) -> Guard<'_, Vec<Arc<dyn Drain>>> {
        self.0.lock()
    }

    pub(super) fn add(&self, drain: Box<dyn Drain>) {
        self.list().push(drain.into());
    }

    /// How many have not finished. No lock is held while they are asked.
    pub(super) fn unfinished(&self, code_is_held: bool) -> usize {
        let asked = self.list().clone();
        let has_finished =
            |drain: &dyn Drain| if code_is_held { drain.is_finished_while_held() } else { drain.is_finished() };
        let finished: Vec<_> = asked.iter().filter(|drain| answer(|| has_finished(&***drain))).collect();
        let dropped: Vec<_> = {
            let mut list = self.list();
            list.extract_if(.., |drain| finished.iter().any(|other| Arc::ptr_eq(drain, other))).collect()
        };
        let left = self.list().len();
        drop((asked, dropped));
        left
    }

    /// Waits for one of them, if there is one, or so long.
    pub(super) fn wait(&self, time: Duration) {
        let first = self.list().first().cloned();
        if let Some(drain) = first {
            answer(|| drain.wait(time));
        }
    }
}

/// A panic is the user's, and must not end in ours.
fn answer(ask: impl FnOnce() -> bool) -> bool {
    catch_unwind(AssertUnwindSafe(ask)).unwrap_or_else(|_| {
        tracing::error!(target: "slabjit", "a Drain panicked");
        false
    })
}
