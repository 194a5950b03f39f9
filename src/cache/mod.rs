//! The object cache: compiled objects and images on disk, for processes that compile the same kernels at the same time.
//!
//! ```text
//! folder/KEY.key        a record, which leads from a key to an object or image (`record`)
//! folder/HASH.o         an object, named after the hash of its bytes
//! folder/HASH.so        an image, likewise (`images`)
//! folder/*.refused      files with such a name that were refused
//! folder/temporary/     files that are being written, and locked while a key is compiled (`flight`)
//! ```
//!
//! What is read needs no lock: a file is written elsewhere and renamed, so a name leads to a whole file or to none,
//! even if a process is killed. Each load checks the file.

mod bounds;
mod builder;
mod counters;
mod error;
mod flight;
mod folder;
mod images;
mod key;
mod listing;
mod local;
mod record;
#[cfg(feature = "shared-cache")]
pub(crate) mod shared;
#[cfg(test)]
mod tests;
mod trust;

pub use bounds::Collected;
pub use builder::ObjectCacheBuilder;
pub use counters::CacheCounters;
pub use error::CacheError;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::{Error, Result};
use counters::Counters;
use flight::Flight;
use folder::Folder;
pub use images::CachedImage;
pub use key::{CacheKey, CacheKeyBuilder, KeyHashError};
pub use listing::{CacheEntry, MissExplanation, PartDifference, Verified};
use local::{Found, Local};
use record::{Kind, Record};

/// The age at which a file in `temporary` counts as left by a killed process.
const LEFTOVER_AGE: Duration = Duration::from_secs(60 * 60);

/// A folder of objects and images on disk, shared by all processes of a user. A key made from an object's inputs leads
/// to its bytes, and to the image that was linked of it ([`get_or_link`](Self::get_or_link)).
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use slabjit::{CacheKey, ObjectCache};
/// # fn compile(source: &str) -> std::io::Result<Vec<u8>> { Ok(source.into()) }
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path().join("kernels");
///
/// let cache = ObjectCache::open(&folder)?;
/// let source = "int add(int a, int b) { return a + b; }";
/// let key = CacheKey::new(["cc 12.2.0", "-O2 -fPIC", source]);
///
/// let object = cache.get_or_compile(&key, || compile(source))?;
/// // let kernel = engine.add_object_named(&key.to_string(), &object.bytes)?;
/// for problem in &object.problems {
///     eprintln!("{problem}"); // such as a full disk: the object was compiled, and is not kept
/// }
/// assert!(!object.found);
/// assert!(cache.get_or_compile(&key, || compile(source))?.found);
/// # Ok(())
/// # }
/// ```
///
/// # Guarantees
/// - Bytes come back as they were stored, or not at all. Each load checks length and hash; a torn or changed file is
///   moved aside (`.refused` behind its name) and reported.
/// - Files and folders of another user, root included, are refused, and so are those that group or others may write to,
///   and anything that is not a regular file.
/// - Any number of processes may read and write at once, and be killed at any time. Of those that miss the same key at
///   the same time one compiles, and the others wait for it, for a minute
///   ([`wait_for_others`](ObjectCacheBuilder::wait_for_others)).
/// - A full or read-only disk prevents no compilation and no load.
///
/// # Limits
/// Without bounds ([`builder`](Self::builder)) the cache only grows. You may remove the folder, or any of its files, at
/// any time (a running process compiles again). File systems without owners and modes (FAT, some network file systems)
/// are refused, or protect nothing. Hashes are not signatures: a process of the same user can store any object.
#[derive(Debug)]
pub struct ObjectCache {
    local: Arc<Local>,
    /// Folders that are only read.
    layers: Vec<Folder>,
    counters: Arc<Counters>,
    /// How long others that compile are waited for.
    patience: Duration,
    #[cfg(feature = "shared-cache")]
    shared: shared::Shared,
}

/// The result of [`ObjectCache::get_or_compile`].
#[derive(Debug)]
#[non_exhaustive]
pub struct CachedObject {
    /// The object, for [`JitEngine::add_object`](crate::JitEngine::add_object).
    pub bytes: Vec<u8>,
    /// Whether it came from the cache and was not compiled.
    pub found: bool,
    /// Errors of the cache: why a file for the object was not used, and why the object was not kept.
    pub problems: Vec<Error>,
}

impl ObjectCache {
    /// Opens a folder, creating it and its parents if missing. Removes temporary files that killed processes left there
    /// for an hour.
    ///
    /// # Errors
    /// [`CacheError::Folder`](crate::CacheError::Folder) if another user owns the folder, if others may write to it, or
    /// if it is not a folder (also if it is a symbolic link to one);
    /// [`CacheError::ReadOnly`](crate::CacheError::ReadOnly) and [`CacheError::Full`](crate::CacheError::Full) if it
    /// cannot be created, [`CacheError::System`](crate::CacheError::System) otherwise.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        Self::builder(folder).open()
    }

    /// Returns options for a cache in a folder: bounds, and folders that are only read.
    ///
    /// ```no_run
    /// # fn main() -> slabjit::Result<()> {
    /// use slabjit::ObjectCache;
    ///
    /// let cache = ObjectCache::builder("/var/cache/kernels")
    ///     .max_bytes(2 << 30)
    ///     .layer("/opt/model/kernels") // of the container image
    ///     .open()?;
    /// # drop(cache);
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(folder: impl AsRef<Path>) -> ObjectCacheBuilder {
        ObjectCacheBuilder::new(folder.as_ref())
    }

    /// Returns the folder's path, as it was given.
    pub fn path(&self) -> &Path {
        &self.local.folder.path
    }

    /// Removes what was not used for the longest time, until the folder is within its bounds, and says what is left. A
    /// process that reads or has mapped a file keeps it. Storing does the same from time to time.
    ///
    /// # Errors
    /// [`CacheError::System`](crate::CacheError::System) if the folder cannot be read.
    pub fn gc(&self) -> Result<Collected> {
        self.local.gc()
    }

    /// Returns the object that was last stored for a key.
    ///
    /// # Errors
    /// [`CacheError::File`](crate::CacheError::File) if a file of the key is unusable. It is moved aside, so that the
    /// key is missing from then on. [`CacheError::System`](crate::CacheError::System) if something cannot be read. With
    /// a shared store, `CacheError::Store` and `CacheError::Refused`.
    pub fn get(&self, key: &CacheKey) -> Result<Option<Vec<u8>>> {
        self.find(key, Kind::Object)
    }

    /// Returns what is in the cache's own folder; what was not used for the longest time comes first. Records that
    /// cannot be read are moved aside.
    ///
    /// # Errors
    /// [`CacheError::System`](crate::CacheError::System) if the folder cannot be read.
    pub fn entries(&self) -> Result<Vec<CacheEntry>> {
        self.local.entries()
    }

    /// Finds the entry of the cache's own folder that is nearest to a key, and says in which parts they differ. Both
    /// keys are made by [`CacheKey::builder`]; `None` if there is no such entry, or if the key has no parts.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let cache = slabjit::ObjectCache::open(folder.path().join("kernels"))?;
    /// use slabjit::CacheKey;
    ///
    /// let key = |options: &str| CacheKey::builder().part("options", options).part("source", "int x;").build();
    /// cache.put(&key("-O2"), b"an object")?;
    /// let why = cache.explain_miss(&key("-O3"))?.expect("there is an entry");
    /// assert_eq!(why.differs[0].name, "options");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`CacheError::System`](crate::CacheError::System) if the folder cannot be read.
    pub fn explain_miss(&self, key: &CacheKey) -> Result<Option<MissExplanation>> {
        if key.parts().is_empty() {
            return Ok(None);
        }
        Ok(listing::explain(key, self.entries()?))
    }

    /// Returns what this cache did since it was opened, in this process.
    pub fn counters(&self) -> CacheCounters {
        self.counters.get()
    }

    /// Stores an object for a key, in place of an earlier one. Processes that are reading the earlier one are not
    /// disturbed.
    ///
    /// # Errors
    /// [`CacheError::Full`](crate::CacheError::Full), [`CacheError::ReadOnly`](crate::CacheError::ReadOnly),
    /// [`CacheError::Folder`](crate::CacheError::Folder) if the folder for temporary files is unusable,
    /// [`CacheError::System`](crate::CacheError::System). An earlier object for the key stays.
    pub fn put(&self, key: &CacheKey, object: &[u8]) -> Result<()> {
        self.keep(key, Kind::Object, object)
    }

    /// Reads every entry of the cache's own folder and what it leads to. What cannot be used is moved aside, as
    /// [`get`](Self::get) does.
    ///
    /// # Errors
    /// [`CacheError::System`](crate::CacheError::System) if the folder cannot be read. What is wrong with files is in
    /// [`Verified::problems`].
    pub fn verify(&self) -> Result<Verified> {
        self.local.verify()
    }

    /// Returns the object of a key; if there is none, calls `compile` and stores its result.
    ///
    /// Errors of the cache do not fail the call: they are in [`CachedObject::problems`] and in warning events of
    /// `tracing`.
    ///
    /// # Errors
    /// Those of `compile`.
    pub fn get_or_compile<E>(
        &self,
        key: &CacheKey,
        compile: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<CachedObject, E> {
        let mut problems = Problems::of(key);
        if let Some(bytes) = problems.report(self.find_here(key, Kind::Object)).flatten() {
            return Ok(CachedObject { bytes, found: true, problems: problems.all });
        }
        let _flight = match self.find_there(key, Kind::Object, Some(self.patience), &mut problems) {
            Ok(bytes) => return Ok(CachedObject { bytes, found: true, problems: problems.all }),
            Err(flight) => flight,
        };
        let bytes = compile()?;
        problems.report(self.put(key, &bytes));
        Ok(CachedObject { bytes, found: false, problems: problems.all })
    }

    /// Returns what was last stored for a key.
    fn find(&self, key: &CacheKey, kind: Kind) -> Result<Option<Vec<u8>>> {
        let found = self.find_here(key, kind);
        if matches!(found, Ok(Some(_))) {
            return found;
        }
        let mut problems = Problems::default();
        match self.find_there(key, kind, self.store_wait(), &mut problems) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(_flight) => match problems.all.pop() {
                Some(error) if found.is_ok() => Err(error),
                _ => found,
            },
        }
    }

    /// Waits while others compile or fetch for a key, and then looks in the cache's own folder and in the shared store.
    /// If what the key leads to is nowhere, returns the right to make it.
    fn find_there(
        &self,
        key: &CacheKey,
        kind: Kind,
        patience: Option<Duration>,
        problems: &mut Problems,
    ) -> Result<Vec<u8>, Option<Flight>> {
        let flight = patience.map(|patience| Flight::board(&self.local, key, patience));
        let mut found = None;
        if let Some(flight) = &flight {
            self.counters.count(|counters| counters.waited += flight.waited);
            // Another may have stored it since it was looked for.
            found = self.find_own(key, kind).ok().flatten();
        }
        if found.is_none() {
            found = self.fetch(key, kind, problems);
        }
        found.ok_or_else(|| {
            self.counters.count(|counters| counters.misses += 1);
            flight
        })
    }

    /// Returns what was last stored for a key, in the cache's own folder or a layer.
    fn find_here(&self, key: &CacheKey, kind: Kind) -> Result<Option<Vec<u8>>> {
        let mut result = self.find_own(key, kind);
        for layer in &self.layers {
            if matches!(result, Ok(Some(_))) {
                break;
            }
            let found = local::read(layer, key, Some(kind)).and_then(|found| self.trusted(key, found));
            if let Ok(Some(bytes)) = &found {
                self.count_hit(key, bytes, |counters| counters.layer_hits += 1);
            }
            // The first error counts, unless another folder has it.
            if result.is_ok() || matches!(found, Ok(Some(_))) {
                result = found;
            }
        }
        result
    }

    fn find_own(&self, key: &CacheKey, kind: Kind) -> Result<Option<Vec<u8>>> {
        let found = self.local.find(key, kind).and_then(|found| self.trusted(key, found))?;
        if let Some(bytes) = &found {
            self.count_hit(key, bytes, |counters| counters.hits += 1);
        }
        Ok(found)
    }

    fn count_hit(&self, key: &CacheKey, found: &[u8], count: impl FnOnce(&mut CacheCounters)) {
        tracing::debug!(target: "slabjit", %key, bytes = found.len(), "found in the cache");
        self.counters.count(|counters| {
            count(counters);
            counters.found_bytes += found.len() as u64;
        });
    }

    /// Returns the contents of what was found, if the policy allows their use.
    #[cfg(feature = "shared-cache")]
    fn trusted(&self, key: &CacheKey, found: Option<Found>) -> Result<Option<Vec<u8>>> {
        let Some(Found { record, contents, .. }) = found else { return Ok(None) };
        self.shared.check_load(key, &record)?;
        Ok(Some(contents.bytes))
    }

    #[cfg(not(feature = "shared-cache"))]
    #[allow(clippy::unnecessary_wraps, clippy::unused_self, reason = "as with shared-cache")]
    fn trusted(&self, _: &CacheKey, found: Option<Found>) -> Result<Option<Vec<u8>>> {
        Ok(found.map(|found| found.contents.bytes))
    }

    /// Returns how long the shared store is waited for; `None` without one.
    fn store_wait(&self) -> Option<Duration> {
        #[cfg(feature = "shared-cache")]
        return self.shared.wait();
        #[cfg(not(feature = "shared-cache"))]
        return None;
    }

    /// Asks the shared store.
    #[cfg(feature = "shared-cache")]
    fn fetch(&self, key: &CacheKey, kind: Kind, problems: &mut Problems) -> Option<Vec<u8>> {
        problems.report(self.shared.fetch(key, kind)).flatten()
    }

    #[cfg(not(feature = "shared-cache"))]
    #[allow(clippy::unused_self, reason = "as with shared-cache")]
    fn fetch(&self, _: &CacheKey, _: Kind, _: &mut Problems) -> Option<Vec<u8>> {
        None
    }

    /// Stores something for a key.
    fn keep(&self, key: &CacheKey, kind: Kind, contents: &[u8]) -> Result<()> {
        let record = Record::of(key, kind, contents);
        #[cfg(feature = "shared-cache")]
        return self.shared.keep(key, record, contents);
        #[cfg(not(feature = "shared-cache"))]
        return self.local.keep(key, &record, contents);
    }
}

/// Errors that do not fail a call.
#[derive(Default)]
struct Problems {
    key: Option<CacheKey>,
    all: Vec<Error>,
}

impl Problems {
    fn of(key: &CacheKey) -> Self {
        Self { key: Some(key.clone()), all: Vec::new() }
    }

    fn report<T>(&mut self, result: Result<T>) -> Option<T> {
        let Err(error) = result else { return result.ok() };
        if let Some(key) = &self.key {
            tracing::warn!(target: "slabjit", %key, "{error}");
        }
        self.all.push(error);
        None
    }
}
