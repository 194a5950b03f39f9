//! How a cache is opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::ObjectCache;
use super::bounds::Bounds;
use super::counters::CacheCounters;
use super::counters::Counters;
use super::folder::Folder;
use super::local::Local;
#[cfg(feature = "shared-cache")]
use super::shared::{Options, Shared};
use crate::Result;
use crate::live::lifetime::atexit;

/// How long others are waited for that compile the same.
const PATIENCE: Duration = Duration::from_secs(60);

/// Options of a cache; see [`ObjectCache::builder`].
#[derive(Debug, Clone)]
#[must_use = "nothing is opened until `open` is called"]
pub struct ObjectCacheBuilder {
    folder: PathBuf,
    layers: Vec<PathBuf>,
    bounds: Bounds,
    synced: bool,
    patience: Duration,
    #[cfg(feature = "shared-cache")]
    pub(super) shared: Options,
}

impl ObjectCacheBuilder {
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            layers: Vec::new(),
            bounds: Bounds::default(),
            synced: false,
            patience: PATIENCE,
            #[cfg(feature = "shared-cache")]
            shared: Options::default(),
        }
    }

    /// Keeps at most so many bytes in the folder: what was not used for the longest time goes. Storing looks through
    /// the whole folder by chance, on average once for each 32nd of the bound that is written. In between, there
    /// may be that much more.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.bounds.bytes = Some(bytes);
        self
    }

    /// Keeps at most so many entries in the folder, likewise. Each has two files.
    pub fn max_entries(mut self, entries: u64) -> Self {
        self.bounds.entries = Some(entries);
        self
    }

    /// Adds a folder that is only read, such as a layer of a container image. The cache looks there for what its own
    /// folder has not got, in the order of these calls. Root or this user owns it and its files, and nobody else may
    /// write to them.
    pub fn layer(mut self, folder: impl Into<PathBuf>) -> Self {
        self.layers.push(folder.into());
        self
    }

    /// Whether storing waits until the disk has the file, which takes milliseconds; off by default. Without that, a
    /// power failure may lose or tear what was stored last. A load notices a torn file, and it is compiled again.
    pub fn sync(mut self, sync: bool) -> Self {
        self.synced = sync;
        self
    }

    /// How long a call waits while another process or thread of this machine compiles or links for the same key, before
    /// it does so itself; a minute by default. The system tells when the other has ended, whatever way.
    pub fn wait_for_others(mut self, time: Duration) -> Self {
        self.patience = time;
        self
    }

    /// Opens the cache, and creates its own folder if it is missing.
    ///
    /// # Errors
    /// As for [`ObjectCache::open`], also for each layer.
    pub fn open(self) -> Result<ObjectCache> {
        // A child of `fork` has none of this process's threads and connections.
        atexit::hook_process();
        #[cfg(feature = "shared-cache")]
        self.shared.check()?;
        let folder = Folder::own(&self.folder)?;
        let layers = self.layers.iter().map(|path| Folder::layer(path)).collect::<Result<_>>()?;
        let local = Arc::new(Local { folder, bounds: self.bounds, synced: self.synced });
        local.remove_leftovers(super::LEFTOVER_AGE)?;
        let counters = Arc::new(Counters::new(CacheCounters::default()));
        Ok(ObjectCache {
            #[cfg(feature = "shared-cache")]
            shared: Shared::new(self.shared, &local, &counters),
            local,
            layers,
            counters,
            patience: self.patience,
        })
    }
}
