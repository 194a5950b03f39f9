//! Counts a library's holders and the threads that wait for its end. `models/` checks the orderings.

use crate::sync::{AtomicBool, AtomicUsize, Ordering, fence};

/// Counts the code's holders, and says whether it is gone.
#[derive(Debug)]
pub(crate) struct RefCount {
    /// The number of holders, and whether nobody has become one since the code is [watched](RefCount::watch).
    holders: AtomicUsize,
    gone: AtomicBool,
}

const WATCHED: usize = 1 << (usize::BITS - 1);

impl RefCount {
    /// Returns a count of one holder.
    pub(crate) fn new() -> Self {
        Self { holders: AtomicUsize::new(1), gone: AtomicBool::new(false) }
    }

    pub(crate) fn holders(&self) -> usize {
        self.holders.load(Ordering::Acquire) & !WATCHED
    }

    /// Watches for new holders, and for what is [told](Self::disturb).
    pub(crate) fn watch(&self) {
        self.holders.fetch_or(WATCHED, Ordering::SeqCst);
    }

    /// Returns whether nobody has become a holder since [`watch`](Self::watch), and nothing was told.
    pub(crate) fn is_undisturbed(&self) -> bool {
        self.holders.load(Ordering::Acquire) & WATCHED != 0
    }

    /// Tells who watches that the code is about to let go of what it keeps.
    pub(crate) fn disturb(&self) {
        self.holders.fetch_and(!WATCHED, Ordering::AcqRel);
    }

    /// Returns whether finalisers have run, and the memory is freed.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Records that the code has ended. To be followed by [`Waiting::any`].
    pub(crate) fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Adds a holder, unless there is none any more.
    pub(crate) fn hold(&self) -> bool {
        let more = |word: usize| (word & !WATCHED != 0).then_some((word & !WATCHED) + 1);
        self.holders.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Removes a holder. True for the last.
    pub(crate) fn release(&self) -> bool {
        let last = self.holders.fetch_sub(1, Ordering::Release) & !WATCHED == 1;
        if last {
            // Other threads' use of the code comes before its end.
            fence(Ordering::Acquire);
        }
        last
    }
}

/// Counts the threads that wait until some code is gone.
#[derive(Debug)]
pub(crate) struct Waiting(pub(crate) AtomicUsize);

impl Waiting {
    /// Adds a waiting thread. To be followed by a look at [`RefCount::is_gone`].
    pub(crate) fn begin(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        // Either the ending thread sees the waiting one, or this thread sees that the code is gone.
        fence(Ordering::SeqCst);
    }

    pub(crate) fn end(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns whether a thread may wait for code that is gone.
    pub(crate) fn any(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) > 0
    }
}
