//! One process, and one thread of it, compiles or fetches for a key; the others wait for it.
//!
//! The lock is a file's, which the system unlocks when its process ends. Whoever waits too long, or cannot lock, goes
//! on: the lock spares work, and nothing depends on it.

use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use super::folder::Folder;
use super::key::CacheKey;
use super::local::Local;
use crate::file;

/// Intervals at which a waiting thread asks again: the first, and the longest.
const AGAIN: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(10));

/// The right to compile or fetch for a key, until it is dropped.
pub(super) struct Flight {
    held: Option<(Folder, String, OwnedFd)>,
    /// For how long others had it.
    pub(super) waited: Duration,
}

impl Flight {
    /// Waits while others have it, for so long at most.
    pub(super) fn board(local: &Local, key: &CacheKey, patience: Duration) -> Self {
        let (start, name) = (Instant::now(), format!("{key}.lock"));
        let (mut again, mut waited) = (AGAIN.0, Duration::ZERO);
        let held = local.temporary().ok().and_then(|folder| {
            loop {
                match file::lock(&folder.open, name.as_str()) {
                    Ok(Some(lock)) => break Some((folder, name, lock)),
                    Ok(None) if start.elapsed() < patience => {
                        thread::sleep(again);
                        again = (again * 2).min(AGAIN.1);
                        waited = start.elapsed();
                    }
                    _ => break None,
                }
            }
        });
        Self { held, waited }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some((folder, name, lock)) = self.held.take() {
            // Its name first: whoever has opened it notices that it is not the one that has the name.
            let _ = file::remove(&folder.open, name.as_str());
            // Another copy of the descriptor may be in a child that has not started its program yet.
            file::unlock(&lock);
        }
    }
}
