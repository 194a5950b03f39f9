//! How many keep a library's code, whether it is gone, and who waits for that. `models/` checks the orderings.

use crate::sync::{AtomicBool, AtomicUsize, Ordering, fence};

/// Counts what keeps the code, and says whether it is gone.
#[derive(Debug)]
pub(crate) struct Life {
    holders: AtomicUsize,
    gone: AtomicBool,
}

impl Life {
    /// Held once.
    pub(super) fn new() -> Self {
        Self { holders: AtomicUsize::new(1), gone: AtomicBool::new(false) }
    }

    pub(super) fn holders(&self) -> usize {
        self.holders.load(Ordering::Acquire)
    }

    /// Finalisers have run, and the memory is freed.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Its end is over. To be followed by [`Waiting::any`].
    pub(super) fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// One more holder, unless there is none any more.
    pub(super) fn hold(&self) -> bool {
        let more = |holders: usize| (holders != 0).then_some(holders + 1);
        self.holders.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// One less. True for the last.
    pub(super) fn release(&self) -> bool {
        let last = self.holders.fetch_sub(1, Ordering::Release) == 1;
        if last {
            // What others did with the code comes before its end.
            fence(Ordering::Acquire);
        }
        last
    }
}

/// How many threads wait until something is gone.
#[derive(Debug)]
pub(super) struct Waiting(pub(super) AtomicUsize);

impl Waiting {
    /// To be followed by a look at [`Life::is_gone`].
    pub(super) fn begin(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        // Either who waits is seen by who ends something, or what has gone is seen here.
        fence(Ordering::SeqCst);
    }

    pub(super) fn end(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether somebody may wait for what has gone.
    pub(super) fn any(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) > 0
    }
}
