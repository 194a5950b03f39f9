//! Errors of the object cache.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::error_text::debug;

/// An error of an object cache on disk.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// A folder that an [`ObjectCache`](crate::ObjectCache) must not use, as others might put files into it.
    #[error("the cache cannot use '{}': {problem}; {remedy}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The problem.
        problem: String,
        /// The remedy.
        remedy: String,
    },

    /// A file of an [`ObjectCache`](crate::ObjectCache) that is torn, or that others made or may change. It was not
    /// used.
    #[error("the cache does not use '{}': {problem}; {}", path.display(), moved(moved_to))]
    File {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
        /// Its new path, out of the way; or the reason why it could not be moved.
        moved_to: io::Result<PathBuf>,
    },

    /// There is no space for a file of an [`ObjectCache`](crate::ObjectCache).
    #[error(
        "the cache has no room for '{}': {source}; free space there, or raise the limit (the user's quota, or ulimit -f)", path.display()
    )]
    Full {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },

    /// An [`ObjectCache`](crate::ObjectCache) is read-only. Its objects are still found.
    #[error(
        "the cache cannot be written to, at '{}': {source}; mount it writable (chmod u+w if it is a matter of permissions), or choose another folder", path.display()
    )]
    ReadOnly {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },

    /// A shared store failed, or took too long. Nothing of it was used; what is missing is compiled here.
    #[cfg(feature = "shared-cache")]
    #[error("the cache could not {doing} {store}: {source}; what is missing is compiled here")]
    Store {
        /// The store.
        store: String,
        /// What the cache wanted.
        doing: &'static str,
        /// The store's error.
        source: crate::store::StoreError,
    },

    /// A record could not be signed.
    #[cfg(feature = "shared-cache")]
    #[error("an entry of the cache cannot be signed: {source}; it is not sent to the shared store")]
    Sign {
        /// The reason.
        source: crate::store::StoreError,
    },

    /// An entry that was named is not in an [`ObjectCache`](crate::ObjectCache)'s own folder.
    #[cfg(feature = "shared-cache")]
    #[error("the cache '{}' has no entry {key}; slabjit cache ls lists those that it has", path.display())]
    Missing {
        /// The folder.
        path: PathBuf,
        /// The key.
        key: String,
    },

    /// What was to be revoked is no identifier of a key.
    #[cfg(feature = "shared-cache")]
    #[error(
        "'{id}' is no identifier of a key; give 16 hexadecimal digits (PublicKey::id), or the line of the public key"
    )]
    KeyId {
        /// What was given.
        id: String,
    },

    /// A URL of a shared store that cannot be opened.
    #[cfg(feature = "shared-cache")]
    #[error("the store '{url}' cannot be opened: {source}")]
    StoreUrl {
        /// The URL, without user, password and query.
        url: String,
        /// The reason.
        source: crate::store::StoreError,
    },

    /// Something of a shared store, or of a folder whose signatures are checked, was not used.
    #[cfg(feature = "shared-cache")]
    #[error("the cache does not use '{name}' of {from}: {refusal}; it is compiled here")]
    Refused {
        /// The store or folder.
        from: String,
        /// The file's name there.
        name: String,
        /// The reason.
        refusal: crate::store::Refusal,
    },

    /// A file that has no usable secret key.
    #[cfg(feature = "shared-cache")]
    #[error("the secret key in '{}' is not used: {problem}; {remedy}", path.display())]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
        /// The remedy.
        remedy: String,
    },

    /// The system refused a call of an [`ObjectCache`](crate::ObjectCache) for another reason.
    #[error("the cache failed at '{}': {call}: {source}", path.display())]
    System {
        /// The system call.
        call: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl fmt::Debug for CacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(self, f)
    }
}

fn moved(to: &io::Result<PathBuf>) -> String {
    match to {
        Ok(to) => format!("it was moved to '{}', and counts as missing", to.display()),
        Err(error) => format!("it could not be moved away ({error}), so remove it"),
    }
}
