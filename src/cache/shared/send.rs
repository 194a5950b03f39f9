//! What is compiled here goes to the store, on threads beside the caller.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use super::breaker::Leave;
use super::far::{Far, LARGEST, cannot_sign, not_here, refused_here};
use super::refusal::Refusal;
use super::signing::SecretKey;
use super::store::{StoreError, TooLong};
use crate::cache::key::CacheKey;
use crate::cache::local::{self, Found};
use crate::cache::record::{self, Record, Signed};
use crate::{CacheError, Error, Result, image};

impl Far {
    /// Has an entry of the cache's folder sent.
    pub(super) fn send(self: &Arc<Self>, key: &CacheKey) {
        if self.read_only || self.requires_signature && self.signer.is_none() {
            return;
        }
        let (has_room, starts) = self.queue.add(key);
        if !has_room {
            self.not_sent(1);
        }
        if starts {
            let sender = Sender(Arc::clone(self));
            // If the system refuses the thread, the sender is dropped, which counts what nobody sends.
            let _ = thread::Builder::new().name("slabjit-send".to_owned()).spawn(move || sender.run());
        }
    }

    fn not_sent(&self, keys: u64) {
        self.counters.count(|counters| counters.not_sent += keys);
    }

    fn send_all(&self) {
        while let Some(key) = self.queue.next() {
            // A store that is left alone is not asked for this, either.
            let leave = self.breaker.ask(Instant::now());
            if leave == Leave::No {
                self.queue.failed();
                let dropped = self.queue.give_up();
                self.not_sent(1 + dropped);
                return;
            }
            match self.send_now(&key) {
                Ok(_) => self.breaker.succeeded(),
                Err(error) => {
                    tracing::warn!(target: "slabjit", %key, "{error}");
                    self.queue.failed();
                    self.not_sent(1);
                    // How long it takes says nothing: nobody waits, and values are large.
                    let is_stores = matches!(error, Error::Cache(CacheError::Store { .. }));
                    self.counters.count(|counters| counters.store_failures += u64::from(is_stores));
                    // What was to find out whether it answers has not.
                    if is_stores || leave == Leave::Probe {
                        self.breaker.failed(Instant::now(), false);
                    }
                }
            }
        }
    }

    /// Sends an entry, unless the store has a good one; returns whether it did.
    pub(super) fn send_now(&self, key: &CacheKey) -> Result<bool> {
        let Some(Found { mut record, contents, .. }) = local::read(&self.local.folder, key, None)? else {
            return Err(not_here(&self.local, key));
        };
        let contents = contents.bytes;
        if contents.len() as u64 > LARGEST {
            let refusal = Refusal::TooLong { bytes: contents.len() as u64 };
            return Err(refused_here(key, refusal));
        }
        if record.signatures.is_empty() {
            complete(&mut record, key, &contents, self.signer.as_deref()).map_err(cannot_sign)?;
            self.local.keep_record(key, &record)?;
        } else if self.requires_signature {
            // What was fetched from elsewhere: to sign it would vouch for it.
            self.trust.check(key, &record).map_err(|refusal| refused_here(key, refusal))?;
        }
        let failed = |source| self.failed("write to", source);
        let (name, text) = (Record::file_name(key), record.text(key));
        let mut is_sent = false;
        // Contents before what leads to them.
        if !self.put(&record.contents_name(), &contents).map_err(failed)? && !self.has(&record).map_err(failed)? {
            self.store.delete(&record.contents_name()).map_err(failed)?;
            self.put(&record.contents_name(), &contents).map_err(failed)?;
        }
        if self.put(&name, text.as_bytes()).map_err(failed)? {
            is_sent = true;
        } else if !self.has_good(key, &name, &record).map_err(failed)? {
            self.store.delete(&name).map_err(failed)?;
            is_sent = self.put(&name, text.as_bytes()).map_err(failed)?;
            if !is_sent && !self.has_good(key, &name, &record).map_err(failed)? {
                return Err(self.failed("write to", "it has something else, which cannot be replaced".into()));
            }
        }
        self.counters.count(|counters| counters.sent += u64::from(is_sent));
        Ok(is_sent)
    }

    fn put(&self, name: &str, value: &[u8]) -> Result<bool, StoreError> {
        let is_put = self.store.put_if_absent(name, value)?;
        self.counters.count(|counters| counters.sent_bytes += if is_put { value.len() as u64 } else { 0 });
        Ok(is_put)
    }

    /// Returns whether the store has the contents of a record.
    fn has(&self, record: &Record) -> Result<bool, StoreError> {
        let contents = self.get(&record.contents_name(), record.bytes())?;
        Ok(contents.is_some_and(|contents| record.is_of(&contents)))
    }

    /// Returns whether the record that the store has can be used, and what it leads to is there. `own` is the one that
    /// would take its place, whose contents are there.
    fn has_good(&self, key: &CacheKey, name: &str, own: &Record) -> Result<bool, StoreError> {
        let Some(text) = self.get(name, record::LARGEST)? else { return Ok(false) };
        match self.trust.read(&text, key, Some(own.kind), self.requires_signature) {
            Ok(record) if record.contents_name() == own.contents_name() => Ok(true),
            Ok(record) if record.bytes() <= LARGEST => self.has(&record),
            _ => Ok(false),
        }
    }

    /// Gets a value; one that is too long is as good as none.
    fn get(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, StoreError> {
        match self.store.get(name, most) {
            Err(error) if error.is::<TooLong>() => Ok(None),
            result => result,
        }
    }
}

/// What a thread that sends has. The queue counts the thread until this is dropped, also by a panic.
struct Sender(Arc<Far>);

impl Sender {
    fn run(self) {
        self.0.send_all();
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let Self(far) = self;
        if thread::panicking() {
            far.queue.failed();
            far.not_sent(1);
            far.breaker.failed(Instant::now(), false);
        }
        far.not_sent(far.queue.end());
    }
}

/// Adds what the code needs of the CPU to a record, and signs it.
pub(super) fn complete(
    record: &mut Record,
    key: &CacheKey,
    contents: &[u8],
    signer: Option<&SecretKey>,
) -> Result<(), StoreError> {
    // What others have signed stays as it is.
    if record.signatures.is_empty() {
        record.cpu = image::needs_of_all(contents);
    }
    if let Some(signer) = signer {
        let signature = signer.sign(record.statement(key).as_bytes())?;
        record.signatures.push(Signed { by: signer.public().id(), signature });
    }
    Ok(())
}
