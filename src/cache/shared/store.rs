//! What a shared store does.

use std::error::Error;

/// Why a store could not do something; the message goes to whoever asked the cache.
pub type StoreError = Box<dyn Error + Send + Sync>;

/// The error of a store whose value has more bytes than were asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the value has more than {most} bytes")]
pub struct TooLong {
    /// The bytes that were asked for.
    pub most: u64,
}

/// A store that many machines share. [`open`](crate::store::open) makes those that the crate has clients for.
///
/// Loads call these methods on threads of the cache's own, several at a time, and wait for them no longer than
/// [`store_wait`](crate::ObjectCacheBuilder::store_wait). A call that never returns keeps its thread.
/// [`push`](crate::ObjectCache::push) and [`pull`](crate::ObjectCache::pull) call them on the caller's. Names are 68 or
/// fewer characters of `0-9 a-z .`; values of one name that starts with a hash do not change, except records
/// (`.key`), which may be replaced after they were deleted.
pub trait Store: Send + Sync {
    /// Returns the value of a name; `None` if there is none.
    ///
    /// # Errors
    /// The store's, and [`TooLong`] if the value has more than `most` bytes. No more than these may be held in memory.
    fn get(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, StoreError>;

    /// Stores a value if the name has none; returns whether it did. A store that cannot decide that alone may replace
    /// the value, which is the same or as good.
    ///
    /// # Errors
    /// The store's.
    fn put_if_absent(&self, name: &str, value: &[u8]) -> Result<bool, StoreError>;

    /// Deletes a name, which may have no value.
    ///
    /// # Errors
    /// The store's.
    fn delete(&self, name: &str) -> Result<(), StoreError>;

    /// Names the store in messages, without passwords.
    fn describe(&self) -> String {
        "the shared store".to_owned()
    }
}
