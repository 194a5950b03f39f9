//! The store. A load asks it on a thread of its own, and waits for a bounded time.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::breaker::{Breaker, Leave};
use super::queue::Queue;
use super::refusal::Refusal;
use super::signing::SecretKey;
use super::store::{Store, StoreError};
use super::trust::{Trust, check_cpu};
use crate::cache::counters::Counters;
use crate::cache::key::CacheKey;
use crate::cache::local::{self, Local};
use crate::cache::record::{self, Kind, Record};
use crate::{CacheError, Error, Result};

/// The longest object or image that is fetched or sent.
pub(super) const LARGEST: u64 = 1 << 30;

/// A store, and what is needed to use it.
pub(super) struct Far {
    pub(super) store: Arc<dyn Store>,
    pub(super) trust: Arc<Trust>,
    pub(super) signer: Option<Arc<SecretKey>>,
    pub(super) requires_signature: bool,
    pub(super) read_only: bool,
    pub(super) wait: Duration,
    pub(super) breaker: Breaker,
    pub(super) queue: Queue,
    pub(super) local: Arc<Local>,
    pub(super) counters: Arc<Counters>,
}

impl Far {
    pub(super) fn fetch(self: &Arc<Self>, key: &CacheKey, kind: Kind) -> Result<Option<Vec<u8>>> {
        let start = Instant::now();
        let leave = self.breaker.ask(start);
        if leave != Leave::Ask {
            self.counters.count(|counters| counters.store_skipped += 1);
        }
        if leave == Leave::No {
            return Ok(None);
        }
        let (far, of, (sender, receiver)) = (Arc::clone(self), key.clone(), mpsc::sync_channel(1));
        let fetch = move || {
            // A client that panics has failed, too.
            let unfinished = Unfinished(&far.breaker);
            let result = far.bring(&of, Some(kind));
            std::mem::forget(unfinished);
            far.judge(&result, start);
            let result = result.map(|found| found.map(|(record, contents)| far.found(&of, &record, contents, start)));
            // Nobody may be waiting any more.
            let _ = sender.send(result);
        };
        if let Err(error) = thread::Builder::new().name("slabjit-fetch".to_owned()).spawn(fetch) {
            self.breaker.failed(Instant::now(), false);
            return Err(self.failed("start a thread for", error.into()));
        }
        if leave == Leave::Probe {
            return Ok(None);
        }
        let answer = receiver.recv_timeout(self.wait);
        self.counters.count(|counters| counters.waited += start.elapsed());
        match answer {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => {
                self.counters.count(|counters| counters.store_failures += 1);
                self.breaker.failed(Instant::now(), true);
                Err(self.failed("fetch from", format!("it did not answer within {:?}", self.wait).into()))
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.failed("fetch from", "its client panicked".into())),
        }
    }

    /// Tells the breaker how a fetch went that began then. A store that gives wrong things answers.
    fn judge<T>(&self, result: &Result<T>, start: Instant) {
        let is_late = start.elapsed() >= self.wait;
        match result {
            Err(Error::Cache(CacheError::Store { .. })) => {
                self.counters.count(|counters| counters.store_failures += 1);
                self.breaker.failed(Instant::now(), is_late);
            }
            _ if is_late => self.breaker.failed(Instant::now(), true),
            _ => self.breaker.succeeded(),
        }
    }

    /// Keeps what was fetched, and counts it.
    fn found(&self, key: &CacheKey, record: &Record, contents: Vec<u8>, start: Instant) -> Vec<u8> {
        // Whoever asked may have compiled and stored it meanwhile.
        let is_late = start.elapsed() >= self.wait;
        if !(is_late && matches!(local::read_record(&self.local.folder, key), Ok(Some(_))))
            && let Err(error) = self.local.keep(key, record, &contents)
        {
            tracing::warn!(target: "slabjit", %key, "{error}");
        }
        tracing::debug!(target: "slabjit", %key, bytes = contents.len(), "found in the shared store");
        self.counters.count(|counters| {
            counters.store_hits += 1;
            counters.found_bytes += contents.len() as u64;
        });
        contents
    }

    /// Fetches and checks what a key leads to. For a load, `kind` is what is loaded; this CPU has to run it then.
    pub(super) fn bring(&self, key: &CacheKey, kind: Option<Kind>) -> Result<Option<(Record, Vec<u8>)>> {
        let name = Record::file_name(key);
        let get = |name: &str, most| self.store.get(name, most).map_err(|source| self.failed("read", source));
        let Some(text) = get(&name, record::LARGEST)? else { return Ok(None) };
        self.counters.count(|counters| counters.fetched_bytes += text.len() as u64);
        let record = self
            .trust
            .read(&text, key, kind, self.requires_signature)
            .and_then(|record| if kind.is_some() { check_cpu(&record).map(|()| record) } else { Ok(record) })
            .map_err(|refusal| self.refused(&name, &text, refusal))?;
        let (name, bytes) = (record.contents_name(), record.bytes());
        if bytes > LARGEST {
            return Err(self.refused(&name, &[], Refusal::TooLong { bytes }));
        }
        // A record without what it leads to: it was deleted, or a client uploads in another order.
        let Some(contents) = get(&name, bytes)? else { return Ok(None) };
        self.counters.count(|counters| counters.fetched_bytes += contents.len() as u64);
        if !record.is_of(&contents) {
            return Err(self.refused(&name, &contents, Refusal::OtherContents));
        }
        Ok(Some((record, contents)))
    }

    /// Counts what was refused, and keeps it aside.
    fn refused(&self, name: &str, bytes: &[u8], refusal: Refusal) -> Error {
        self.counters.count(|counters| *counters.refused.entry(refusal.reason()).or_default() += 1);
        if !bytes.is_empty() && bytes.len() as u64 <= LARGEST {
            let aside = || self.local.folder.store(&self.local.temporary()?, &format!("{name}.refused"), bytes, false);
            if let Err(error) = aside() {
                tracing::warn!(target: "slabjit", "{error}");
            }
        }
        Error::Cache(CacheError::Refused { from: self.store.describe(), name: name.to_owned(), refusal })
    }

    pub(super) fn failed(&self, doing: &'static str, source: StoreError) -> Error {
        Error::Cache(CacheError::Store { store: self.store.describe(), doing, source })
    }
}

/// Tells the breaker of a failure, unless it is forgotten.
struct Unfinished<'b>(&'b Breaker);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.0.failed(Instant::now(), false);
    }
}

pub(super) fn cannot_sign(source: StoreError) -> Error {
    Error::Cache(CacheError::Sign { source })
}

/// Returns the error for an entry of the folder that is not trusted.
pub(super) fn refused_here(key: &CacheKey, refusal: Refusal) -> Error {
    Error::Cache(CacheError::Refused { from: "the cache's folder".into(), name: Record::file_name(key), refusal })
}

/// Returns the error for an entry that the folder should have.
pub(super) fn not_here(local: &Local, key: &CacheKey) -> Error {
    Error::Cache(CacheError::Missing { path: local.folder.path.clone(), key: key.to_string() })
}
