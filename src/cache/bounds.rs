//! The bounds of a cache's folder: what was not used for the longest time goes first.
//!
//! A file's time of modification is when it was last used. An entry and what it leads to are touched together, so that
//! they go together. A file that a process reads or has mapped stays for it, without its name.

use std::ffi::CString;
use std::time::{Duration, SystemTime};

use rustix::fs::FileType;

use super::folder::{Folder, failed, modified, random};
use crate::Result;
use crate::file;

/// The age at which a file that is used is touched: a use is a write only then.
pub(super) const TOUCHED_AFTER: Duration = Duration::from_secs(60 * 60);

/// A bound divided by this is written between two collections on average, and is what a collection makes room for: of
/// 100 000 entries, looking takes 0.5 s, and removing so many as long, on a disk that takes 70 µs for each file.
const STEPS: u64 = 32;

/// The most that a folder keeps.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bounds {
    pub(super) bytes: Option<u64>,
    pub(super) entries: Option<u64>,
}

/// What a collection found and removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Collected {
    /// Entries that are left.
    pub entries: u64,
    /// Bytes of the files that are left.
    pub bytes: u64,
    /// Entries that were removed.
    pub removed_entries: u64,
    /// Bytes of the files that were removed.
    pub removed_bytes: u64,
}

impl Bounds {
    /// Returns whether to collect after this many bytes were written for one entry. By chance: processes do not know of
    /// each other, and each of them writes but a part.
    pub(super) fn is_due(self, written: u64) -> bool {
        let is_due = |written: u64, bound: u64| random() % (bound / STEPS).max(1) < written;
        self.bytes.is_some_and(|bound| is_due(written, bound)) || self.entries.is_some_and(|bound| is_due(1, bound))
    }

    /// Returns the bounds with room for what comes next.
    pub(super) fn with_room(self) -> Self {
        let less = |bound: Option<u64>| bound.map(|bound| bound - bound / STEPS);
        Self { bytes: less(self.bytes), entries: less(self.entries) }
    }

    /// Removes files that were not used for the longest time, until the folder is within the bounds. Other processes
    /// may do so at the same time.
    pub(super) fn collect(self, folder: &Folder) -> Result<Collected> {
        let mut files = Vec::new();
        let mut collected = Collected::default();
        for name in file::names(&folder.open).map_err(|error| failed("getdents", &folder.path, error))? {
            let Some(is_entry) = is_entry(&name) else { continue };
            let Ok(status) = file::status_of(&folder.open, &name) else { continue };
            if FileType::from_raw_mode(status.st_mode) == FileType::RegularFile {
                let bytes = u64::try_from(status.st_size).unwrap_or(0);
                collected.bytes += bytes;
                collected.entries += u64::from(is_entry);
                files.push((modified(&status), is_entry, bytes, name));
            }
        }
        let exceeds = |collected: &Collected| {
            self.bytes.is_some_and(|most| collected.bytes > most)
                || self.entries.is_some_and(|most| collected.entries > most)
        };
        if exceeds(&collected) {
            files.sort_unstable();
        }
        let mut is_half = false;
        for (_, is_entry, bytes, name) in files {
            // What an entry leads to is a little older.
            if !(exceeds(&collected) || is_half && is_entry) {
                break;
            }
            is_half = !is_entry;
            if file::remove(&folder.open, &name).is_ok() {
                collected.removed_bytes += bytes;
                collected.removed_entries += u64::from(is_entry);
            }
            // One that another process has removed is gone, too. One that cannot be removed must not cost all others.
            collected.bytes -= bytes;
            collected.entries -= u64::from(is_entry);
        }
        Ok(collected)
    }
}

/// Touches what an entry leads to and then the entry, if one of them was not for long.
pub(super) fn touch(folder: &Folder, files: &[(String, SystemTime)]) {
    let now = SystemTime::now();
    let is_old = |at: &SystemTime| now.duration_since(*at).is_ok_and(|age| age >= TOUCHED_AFTER);
    if files.iter().any(|(_, at)| is_old(at)) {
        for (name, _) in files {
            // On a disk that cannot be written, nothing is removed, either.
            let _ = file::touch(&folder.open, name.as_str());
        }
    }
}

/// Returns whether a name is an entry's, or else one of the cache's other files; `None` for what is not the cache's.
fn is_entry(name: &CString) -> Option<bool> {
    let (hash, rest) = name.to_bytes().split_at_checked(2 * blake3::OUT_LEN)?;
    let is_ours = hash.iter().all(u8::is_ascii_hexdigit);
    match rest {
        b".key" if is_ours => Some(true),
        b".o" | b".so" | b".key.refused" | b".o.refused" | b".so.refused" if is_ours => Some(false),
        _ => None,
    }
}
