//! The cache's own folder: records and what they lead to.

use std::io;
use std::time::{Duration, SystemTime};

use rustix::fs::FileType;
use rustix::io::Errno;

use super::bounds::{self, Bounds, Collected};
use super::folder::{Folder, Loaded, failed};
use super::key::CacheKey;
use super::listing::{CacheEntry, Verified};
use super::record::{self, Kind, Record};

use crate::file;
use crate::{CacheError, Error, Result};

pub(super) const TEMPORARY: &str = "temporary";

/// The largest object or image that is kept, in bytes.
pub(super) const LARGEST_OBJECT: u64 = 4 << 30;

#[derive(Debug)]
pub(super) struct Local {
    pub(super) folder: Folder,
    pub(super) bounds: Bounds,
    pub(super) synced: bool,
}

/// A record, and what it leads to.
pub(super) struct Found {
    pub(super) record: Record,
    pub(super) contents: Loaded,
    /// When the record was written or touched.
    used: SystemTime,
}

impl Local {
    /// Finds what was last stored for a key, and notes that it was used.
    pub(super) fn find(&self, key: &CacheKey, kind: Kind) -> Result<Option<Found>> {
        let found = read(&self.folder, key, Some(kind))?;
        if let Some(Found { record, contents, used }) = &found {
            let files = [(record.contents_name(), contents.modified), (Record::file_name(key), *used)];
            bounds::touch(&self.folder, &files);
        }
        Ok(found)
    }

    /// Stores something for a key.
    pub(super) fn keep(&self, key: &CacheKey, record: &Record, contents: &[u8]) -> Result<()> {
        let name = record.contents_name();
        if record.bytes() > LARGEST_OBJECT {
            return Err(failed("write", &self.folder.path.join(name), Errno::FBIG.into()));
        }
        let temporary = self.temporary()?;
        // The contents are stored before their record. Without the sync, a power failure could leave a name without its
        // contents, which a load would detect, and compile again; also, file systems that allocate late report a full
        // disk only then. The folder itself may lose the name.
        self.folder.store(&temporary, &name, contents, self.synced)?;
        self.store_record(&temporary, key, record)?;
        if self.bounds.is_due(record.bytes())
            && let Err(error) = self.bounds.with_room().collect(&self.folder)
        {
            // It is stored all the same.
            tracing::warn!(target: "slabjit", %error, "the cache is not brought within its bounds");
        }
        Ok(())
    }

    /// Stores the record of something that is there.
    #[cfg(feature = "shared-cache")]
    pub(super) fn keep_record(&self, key: &CacheKey, record: &Record) -> Result<()> {
        self.store_record(&self.temporary()?, key, record)
    }

    fn store_record(&self, temporary: &Folder, key: &CacheKey, record: &Record) -> Result<()> {
        self.folder.store(temporary, &Record::file_name(key), record.text(key).as_bytes(), self.synced)
    }

    /// Returns the folder of files that are being written, and makes it if it is missing.
    pub(super) fn temporary(&self) -> Result<Folder> {
        match file::create_folder(&self.folder.open, TEMPORARY) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(failed("mkdir", &self.folder.path.join(TEMPORARY), error))
            }
            _ => self.folder.inner(TEMPORARY),
        }
    }

    /// Returns the keys of all records, in no order.
    pub(super) fn keys(&self) -> Result<Vec<CacheKey>> {
        let names = file::names(&self.folder.open).map_err(|error| failed("getdents", &self.folder.path, error))?;
        Ok(names.iter().filter_map(|name| Record::key_of(name.to_str().ok()?)).collect())
    }

    /// Returns all entries, without reading what they lead to.
    pub(super) fn entries(&self) -> Result<Vec<CacheEntry>> {
        let record = |key: &CacheKey| read_record(&self.folder, key).ok().flatten();
        let mut entries: Vec<_> = self
            .keys()?
            .into_iter()
            .filter_map(|key| record(&key).map(|(record, used)| CacheEntry::of(key, &record, used)))
            .collect();
        entries.sort_unstable_by_key(|entry| entry.used);
        Ok(entries)
    }

    pub(super) fn verify(&self) -> Result<Verified> {
        let mut verified = Verified::default();
        for key in self.keys()? {
            match read(&self.folder, &key, None) {
                Ok(Some(found)) => {
                    verified.entries += 1;
                    verified.bytes += found.contents.bytes.len() as u64;
                }
                Ok(None) => {}
                Err(error) => verified.problems.push(error),
            }
        }
        Ok(verified)
    }

    pub(super) fn gc(&self) -> Result<Collected> {
        self.bounds.collect(&self.folder)
    }

    /// Removes temporary files older than `age`. Other processes may do so at the same time, and a remaining file does
    /// no harm.
    pub(super) fn remove_leftovers(&self, age: Duration) -> Result<()> {
        let path = self.folder.path.join(TEMPORARY);
        let temporary = match self.folder.inner(TEMPORARY) {
            Err(Error::Cache(CacheError::System { source, .. })) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(());
            }
            folder => folder?,
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let before = i64::try_from(now.saturating_sub(age).as_secs()).unwrap_or(i64::MAX);
        for name in file::names(&temporary.open).map_err(|error| failed("getdents", &path, error))? {
            let Ok(status) = file::status_of(&temporary.open, &name) else { continue };
            let is_file = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
            if is_file && status.st_mtime <= before {
                let _ = file::remove(&temporary.open, &name);
            }
        }
        Ok(())
    }
}

/// Reads a record, and when it was written or touched.
pub(super) fn read_record(folder: &Folder, key: &CacheKey) -> Result<Option<(Record, SystemTime)>> {
    let name = Record::file_name(key);
    let Some(text) = folder.load(&name, 0..=record::LARGEST)? else { return Ok(None) };
    match Record::read(&text.bytes, key) {
        Some(record) => Ok(Some((record, text.modified))),
        None => Err(folder.refuse(&name, "it is torn, or it is not the record of its key")),
    }
}

/// Reads a record, of one kind or of any, and what it leads to.
pub(super) fn read(folder: &Folder, key: &CacheKey, kind: Option<Kind>) -> Result<Option<Found>> {
    let Some((record, used)) = read_record(folder, key)? else { return Ok(None) };
    if kind.is_some_and(|kind| kind != record.kind) {
        let name = Record::file_name(key);
        return Err(folder.refuse(&name, format!("it is the record of an {}", record.kind.word())));
    }
    // A record without what it leads to was tidied up halfway.
    let name = record.contents_name();
    let length = record.bytes();
    let Some(contents) = folder.load(&name, length..=length.min(LARGEST_OBJECT))? else { return Ok(None) };
    if !record.is_of(&contents.bytes) {
        return Err(folder.refuse(&name, "its bytes do not have the hash that it is named after"));
    }
    Ok(Some(Found { record, contents, used }))
}
