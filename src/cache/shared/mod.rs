//! The shared store behind a cache: what many machines compile is compiled once.
//!
//! ```text
//! KEY.key     a record, signed by whoever compiled
//! HASH.o      an object, named after the hash of its bytes; HASH.so, an image
//! ```
//!
//! The store is trusted with nothing. What comes from it is checked in this order: record, signature, contents by their
//! hash. A load asks it on a thread of its own, for a bounded time; whatever it does, the caller can compile.

mod breaker;
mod builder;
mod far;
mod options;
mod queue;
pub(crate) mod refusal;
mod send;
pub(crate) mod signing;
pub(crate) mod store;
pub(crate) mod stores;
#[cfg(test)]
mod tests;
pub(crate) mod trust;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::counters::Counters;
use super::key::CacheKey;
use super::local::{self, Found, Local};
use super::record::{Kind, Record};
use crate::{CacheError, Error, Result};
use breaker::Breaker;
use far::{Far, cannot_sign, not_here, refused_here};
pub(super) use options::Options;
use queue::Queue;
use signing::SecretKey;
use trust::Trust;

pub(super) struct Shared {
    trust: Arc<Trust>,
    /// Whether signatures count at each load.
    checks_loads: bool,
    /// What signs.
    signer: Option<Arc<SecretKey>>,
    local: Arc<Local>,
    counters: Arc<Counters>,
    far: Option<Arc<Far>>,
}

impl Shared {
    pub(super) fn new(options: Options, local: &Arc<Local>, counters: &Arc<Counters>) -> Self {
        let Options { store, mut trust, require_signature, check_each_load, read_only, signer, wait } = options;
        trust.keys.extend(signer.iter().map(|signer| signer.public().clone()));
        let trust = Arc::new(trust);
        let far = store.map(|store| {
            Arc::new(Far {
                store,
                trust: Arc::clone(&trust),
                signer: signer.clone(),
                requires_signature: require_signature,
                read_only,
                wait,
                breaker: Breaker::new(),
                queue: Queue::new(),
                local: Arc::clone(local),
                counters: Arc::clone(counters),
            })
        });
        Self {
            trust,
            checks_loads: check_each_load,
            signer,
            local: Arc::clone(local),
            counters: Arc::clone(counters),
            far,
        }
    }

    /// Returns how long the store is waited for.
    pub(super) fn wait(&self) -> Option<Duration> {
        self.far.as_ref().map(|far| far.wait)
    }

    /// Checks what is about to be loaded from a folder.
    pub(super) fn check_load(&self, key: &CacheKey, record: &Record) -> Result<()> {
        // What a revoked key has signed may have come before it was revoked.
        if !self.checks_loads && !self.trust.names_revoked(record) {
            return Ok(());
        }
        self.trust.check(key, record).map_err(|refusal| {
            self.counters.count(|counters| *counters.refused.entry(refusal.reason()).or_default() += 1);
            refused_here(key, refusal)
        })
    }

    /// Stores what was compiled here, in the folder now and in the store later.
    pub(super) fn keep(&self, key: &CacheKey, mut record: Record, contents: &[u8]) -> Result<()> {
        if self.checks_loads
            && let Some(signer) = &self.signer
        {
            send::complete(&mut record, key, contents, Some(signer)).map_err(cannot_sign)?;
        }
        self.local.keep(key, &record, contents)?;
        if let Some(far) = &self.far {
            far.send(key);
        }
        Ok(())
    }

    /// Asks the store for what a key leads to, and keeps it in the cache's folder.
    pub(super) fn fetch(&self, key: &CacheKey, kind: Kind) -> Result<Option<Vec<u8>>> {
        self.far.as_ref().map_or(Ok(None), |far| far.fetch(key, kind))
    }

    /// Signs an entry of the folder; returns whether that was needed.
    pub(super) fn sign(&self, key: &CacheKey) -> Result<bool> {
        let signer = self.signer.as_ref().ok_or_else(|| cannot_sign("sign_with has given none".into()))?;
        let Some(Found { mut record, contents, .. }) = local::read(&self.local.folder, key, None)? else {
            return Err(not_here(&self.local, key));
        };
        if signer.public().has_signed_record(&record, key) {
            return Ok(false);
        }
        if !record.signatures.is_empty() {
            // It would vouch for what nobody who is trusted has made.
            self.trust.check(key, &record).map_err(|refusal| refused_here(key, refusal))?;
        }
        send::complete(&mut record, key, &contents.bytes, Some(signer)).map_err(cannot_sign)?;
        self.local.keep_record(key, &record)?;
        Ok(true)
    }

    fn far(&self) -> Result<&Arc<Far>> {
        let none = || CacheError::Store { store: "a store".into(), doing: "ask", source: "the cache has none".into() };
        self.far.as_ref().ok_or_else(|| Error::Cache(none()))
    }

    /// Sends an entry of the folder; returns whether the store lacked it.
    pub(super) fn push(&self, key: &CacheKey) -> Result<bool> {
        self.far()?.send_now(key)
    }

    /// Brings an entry to the folder; returns whether the store has it.
    pub(super) fn pull(&self, key: &CacheKey) -> Result<bool> {
        let Some((record, contents)) = self.far()?.bring(key, None)? else { return Ok(false) };
        self.local.keep(key, &record, &contents)?;
        Ok(true)
    }

    /// Waits until what was compiled here is in the store; returns whether it is.
    pub(super) fn flush(&self, time: Duration) -> bool {
        self.far.as_ref().is_none_or(|far| far.queue.wait(time))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(far) = &self.far
            && !far.queue.wait(far.wait)
        {
            tracing::warn!(target: "slabjit", "some of what was compiled here is not in {}", far.store.describe());
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = self.far.as_ref().map(|far| far.store.describe());
        f.debug_struct("Shared").field("store", &store).field("trust", &self.trust).finish_non_exhaustive()
    }
}
