//! How a cache is given a shared store, and what it does with one by hand.

use std::sync::Arc;
use std::time::Duration;

use super::signing::{PublicKey, SecretKey};
use super::store::Store;
use crate::{CacheKey, ObjectCache, ObjectCacheBuilder, Result};

/// Returns the identifier that a text gives, if it does.
fn id_of(text: &str) -> String {
    let text = text.trim();
    text.parse::<PublicKey>().map_or_else(|_| text.to_ascii_lowercase(), |key| key.id())
}

/// A shared store, with feature `shared-cache`.
impl ObjectCacheBuilder {
    /// Adds a store that many machines share, such as one of [`store::open`](crate::store::open). The cache looks there
    /// for what neither its folder nor a layer has, and puts there what it compiles, on threads of its own.
    ///
    /// By default nothing from the store is used unless a trusted key has signed it: give
    /// [`trusted_keys`](Self::trusted_keys), and [`sign_with`](Self::sign_with) where code is compiled.
    pub fn store(mut self, store: impl Store + 'static) -> Self {
        self.shared.store = Some(Arc::new(store));
        self
    }

    /// Trusts what these keys have signed. Several may be trusted at a time, so that they can be changed one by one.
    pub fn trusted_keys(mut self, keys: impl IntoIterator<Item = PublicKey>) -> Self {
        self.shared.trust.keys.extend(keys);
        self
    }

    /// Refuses what these keys have signed, also if they are trusted, and if it is in the cache's folder already. Each
    /// is an identifier ([`PublicKey::id`]) or a public key's line of text; [`open`](Self::open) refuses other texts.
    pub fn revoked_keys<I: AsRef<str>>(mut self, keys: impl IntoIterator<Item = I>) -> Self {
        self.shared.trust.revoked.extend(keys.into_iter().map(|key| id_of(key.as_ref())));
        self
    }

    /// Whether what comes from the store needs a signature; on by default. Without it, whoever can write to the store
    /// runs code on every machine that reads it.
    pub fn require_signature(mut self, require: bool) -> Self {
        self.shared.require_signature = require;
        self
    }

    /// Whether the cache's own folder and layers need signatures, too, at each load; off by default. What is compiled
    /// here is found again only if [`sign_with`](Self::sign_with) signs it.
    pub fn check_each_load(mut self, check: bool) -> Self {
        self.shared.check_each_load = check;
        self
    }

    /// Signs what is compiled here, and trusts what this key has signed elsewhere. Without it, and unless
    /// [`require_signature`](Self::require_signature) is off, nothing is put into the store.
    pub fn sign_with(mut self, key: SecretKey) -> Self {
        self.shared.signer = Some(Arc::new(key));
        self
    }

    /// Whether the store is only read; off by default.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.shared.read_only = read_only;
        self
    }

    /// How long a call waits for the store, two seconds by default. A store that takes longer, or fails five times in a
    /// row, is left alone for ten seconds, then for twice as long each time, five minutes at most.
    pub fn store_wait(mut self, time: Duration) -> Self {
        self.shared.wait = time;
        self
    }
}

/// A shared store, with feature `shared-cache`.
impl ObjectCache {
    /// Signs an entry of the cache's own folder by [`sign_with`](ObjectCacheBuilder::sign_with), such as one that was
    /// compiled before there was a key; returns whether it was not signed by it before.
    ///
    /// # Errors
    /// [`CacheError::Sign`](crate::CacheError::Sign) if it cannot be signed,
    /// [`CacheError::Refused`](crate::CacheError::Refused) if others than trusted keys have signed it,
    /// [`CacheError::Missing`](crate::CacheError::Missing) if it is not there, and
    /// [`CacheError::File`](crate::CacheError::File) if it cannot be used.
    pub fn sign(&self, key: &CacheKey) -> Result<bool> {
        self.shared.sign(key)
    }

    /// Sends an entry of the cache's own folder to the shared store now, however long that takes; returns whether the
    /// store had none that can be used.
    ///
    /// # Errors
    /// As for [`sign`](Self::sign), and [`CacheError::Store`](crate::CacheError::Store) if the store fails.
    pub fn push(&self, key: &CacheKey) -> Result<bool> {
        self.shared.push(key)
    }

    /// Brings an object or image from the shared store to the cache's own folder now, however long that takes; returns
    /// whether the store has it. The key of an image is that of [`CacheEntry::key`](crate::CacheEntry::key).
    ///
    /// # Errors
    /// [`CacheError::Store`](crate::CacheError::Store) if the store fails,
    /// [`CacheError::Refused`](crate::CacheError::Refused) if what it has is not trusted.
    pub fn pull(&self, key: &CacheKey) -> Result<bool> {
        self.shared.pull(key)
    }

    /// Waits until what was compiled here is in the shared store, for so long at most; returns whether all of it is
    /// since the last call. What is not is counted ([`counters`](Self::counters), `not_sent`), and `tracing` has the
    /// reasons; [`push`](Self::push) tries again. Dropping the cache waits as long as for the store
    /// ([`store_wait`](ObjectCacheBuilder::store_wait)).
    pub fn flush(&self, time: Duration) -> bool {
        self.shared.flush(time)
    }
}
