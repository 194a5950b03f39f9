//! The drains that code has to wait for before it ends.

use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::Drain;
use crate::fork_guard::{Guard, Mutex};

/// The drains of one library. A finished one is dropped as soon as that is seen: it may hold the library itself.
#[derive(Default)]
pub(crate) struct UnloadWaits(Mutex<Vec<Arc<dyn Drain>>>);

thread_local! {
    /// Drains that this thread is asking or waiting for, by the addresses of their lists.
    static ASKED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// This thread asks the drains of one library until this is dropped. They may do what they like, and are not asked
/// within themselves.
struct Asking(usize);

impl Asking {
    /// Begins asking; none if this thread is asking them already.
    fn begin(drains: &UnloadWaits) -> Option<Self> {
        let begun = ASKED.try_with(|asked| {
            let mut asked = asked.borrow_mut();
            let is_new = !asked.contains(&drains.key());
            if is_new {
                asked.push(drains.key());
            }
            is_new
        });
        // A thread that ends may have taken the list down.
        begun.unwrap_or(true).then(|| Self(drains.key()))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let _ = ASKED.try_with(|asked| asked.borrow_mut().retain(|key| *key != self.0));
    }
}

impl fmt::Debug for UnloadWaits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UnloadWaits").field(&self.list().len()).finish()
    }
}

impl UnloadWaits {
    fn list(&self) -> Guard<'_, Vec<Arc<dyn Drain>>> {
        self.0.lock()
    }

    pub(crate) fn add(&self, drain: Box<dyn Drain>) {
        self.list().push(drain.into());
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Returns whether this thread is asking one of them, or waiting for it.
    pub(crate) fn are_being_asked(&self) -> bool {
        ASKED.try_with(|asked| asked.borrow().contains(&self.key())).unwrap_or(false)
    }

    /// Returns how many have not finished. No lock is held while they are asked. Within one of them, none is asked.
    pub(crate) fn unfinished(&self, code_is_held: bool) -> usize {
        let Some(asking) = Asking::begin(self) else { return self.list().len() };
        let asked = self.list().clone();
        let has_finished =
            |drain: &dyn Drain| if code_is_held { drain.is_finished_while_held() } else { drain.is_finished() };
        let finished: Vec<_> = asked.iter().filter(|drain| answer(|| has_finished(&***drain))).collect();
        drop(asking);
        let dropped: Vec<_> = {
            let mut list = self.list();
            list.extract_if(.., |drain| finished.iter().any(|other| Arc::ptr_eq(drain, other))).collect()
        };
        let left = self.list().len();
        drop((asked, dropped));
        left
    }

    /// Waits for one of them, if there is one, at most for `time`.
    pub(crate) fn wait(&self, time: Duration) {
        let first = self.list().first().cloned();
        if let Some(drain) = first
            && let Some(_asking) = Asking::begin(self)
        {
            answer(|| drain.wait(time));
        }
    }
}

/// Returns a drain's answer. A panic is the user's, and must not end in our code.
fn answer(ask: impl FnOnce() -> bool) -> bool {
    catch_unwind(AssertUnwindSafe(ask)).unwrap_or_else(|_| {
        tracing::error!(target: "slabjit", "a Drain panicked");
        false
    })
}
