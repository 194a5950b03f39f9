//! What a cache counts.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::fork_guard::Mutex;

/// What a cache did since it was opened, in this process: see [`ObjectCache::counters`](crate::ObjectCache::counters).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheCounters {
    /// Loads from the cache's own folder.
    pub hits: u64,
    /// Loads from layers.
    pub layer_hits: u64,
    /// Loads from the shared store.
    pub store_hits: u64,
    /// Loads that found nothing.
    pub misses: u64,
    /// Bytes of all objects and images that were found.
    pub found_bytes: u64,
    /// Bytes that came from the shared store, also of what was refused.
    pub fetched_bytes: u64,
    /// Bytes that went to the shared store.
    pub sent_bytes: u64,
    /// Entries that went to the shared store.
    pub sent: u64,
    /// Entries that should have gone to the shared store and did not: it failed, or too many waited.
    pub not_sent: u64,
    /// What was refused, by reason: see `store::Refusal::reason`.
    pub refused: BTreeMap<&'static str, u64>,
    /// Calls of the shared store that failed or took too long.
    pub store_failures: u64,
    /// Loads that did not ask the shared store, as it had failed before.
    pub store_skipped: u64,
    /// Time for which callers waited: for the shared store, and for others that compiled the same.
    pub waited: Duration,
}

pub(super) struct Counters(Mutex<CacheCounters>);

impl Counters {
    pub(super) const fn new(start: CacheCounters) -> Self {
        Self(Mutex::new(start))
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut CacheCounters)) {
        change(&mut self.0.lock());
    }

    pub(super) fn get(&self) -> CacheCounters {
        self.0.lock().clone()
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
