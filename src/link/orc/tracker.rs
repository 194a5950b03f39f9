//! What is added to a dylib with a tracker goes with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::entry::Entry;
use super::later::leave;
use super::session::Session;
use super::trackers::{OrcTracker, Trackers};
use crate::{Error, LinkError, Result};

/// A tracker of a dylib, which keeps the session.
pub(crate) struct Tracker {
    session: Arc<Session>,
    entry: Arc<Entry>,
    trackers: Trackers,
    /// How many names LLVM has been given with it.
    pub(super) names: AtomicUsize,
}

impl Tracker {
    pub(super) fn new(session: Arc<Session>, entry: Arc<Entry>) -> Self {
        Self { session, entry, trackers: Trackers::default(), names: AtomicUsize::new(0) }
    }

    /// Returns ORC's, for so many more names.
    pub(super) fn with_room(&self, names: usize) -> Arc<OrcTracker> {
        self.trackers.with_room(self.entry.raw, self.entry.clears.load(Ordering::Acquire), names)
    }

    /// Takes note that nothing was added with ORC's.
    pub(super) fn give_back(&self, tracker: &Arc<OrcTracker>, names: usize) {
        self.trackers.give_back(tracker, names);
    }

    /// Has what was added be another one's, or the dylib's.
    pub(super) fn go_to(&self, other: Option<&Self>) {
        let (trackers, names) =
            other.map_or((&self.entry.kept, &self.entry.names), |other| (&other.trackers, &other.names));
        self.trackers.go_to(trackers);
        names.fetch_add(self.names.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Removes what was added with it. What is held goes later.
    pub(crate) fn remove(&self) -> Result<()> {
        let failed = self.trackers.remove();
        leave();
        self.session.remove_names(self.names.swap(0, Ordering::Relaxed));
        failed.map_or(Ok(()), |message| Err(Error::Link(LinkError::Session { message })))
    }
}

impl Drop for Tracker {
    /// What was added stays, and goes with the dylib's.
    fn drop(&mut self) {
        self.go_to(None);
    }
}
