//! A folder of files that are read whole, and replaced whole.

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use rustix::fs::{CWD, FileType, Stat};
use rustix::io::Errno;

use super::trust::{self, Distrust, Owners};
use crate::{CacheError, Error, Result};
use crate::{file, file_limit};

#[derive(Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    pub(super) open: OwnedFd,
    owners: Owners,
}

/// The bytes of a file, and when it was written or touched.
pub(super) struct Loaded {
    pub(super) bytes: Vec<u8>,
    pub(super) modified: SystemTime,
}

impl Folder {
    /// Opens the folder that is written to, which only this user may do. Makes it if it is missing.
    pub(super) fn own(path: &Path) -> Result<Self> {
        match file::create_folders(path) {
            // An existing file of that name gets an error of its own below.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed("mkdir", path, error)),
            _ => {}
        }
        Self::open_at(CWD, path, path, Owners::User)
    }

    /// Opens a folder that is only read: a layer of a container's file system, or one that is mounted.
    pub(super) fn layer(path: &Path) -> Result<Self> {
        Self::open_at(CWD, path, path, Owners::UserOrRoot)
    }

    /// Opens a folder in this one, for files that are being written.
    pub(super) fn inner(&self, name: &str) -> Result<Self> {
        Self::open_at(&self.open, Path::new(name), &self.path.join(name), self.owners)
    }

    fn open_at(at: impl AsFd, name: &Path, path: &Path, owners: Owners) -> Result<Self> {
        let refused =
            |Distrust { problem, remedy }| Error::Cache(CacheError::Folder { path: path.to_owned(), problem, remedy });
        let open = file::open_folder(at, name).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::NOTDIR | Errno::LOOP) => refused(Distrust {
                problem: "it is not a folder, or a symbolic link to one".into(),
                remedy: "give the path of the folder itself".into(),
            }),
            _ => failed("open", path, error),
        })?;
        let status = file::status(&open).map_err(|error| failed("fstat", path, error))?;
        trust::check(&status, path, owners).map_err(refused)?;
        Ok(Self { path: path.to_owned(), open, owners })
    }

    /// Reads a file if it exists; its length must be in this range.
    pub(super) fn load(&self, name: &str, lengths: RangeInclusive<u64>) -> Result<Option<Loaded>> {
        let system = |call| move |error| failed(call, &self.path.join(name), error);
        let file = match file::open(&self.open, name) {
            Ok(file) => file,
            Err(error) => {
                return match Errno::from_io_error(&error) {
                    Some(Errno::NOENT) => Ok(None),
                    Some(Errno::LOOP) => Err(self.refuse(name, "it is a symbolic link")),
                    Some(Errno::NXIO) => Err(self.refuse(name, "it is no file (Socket)")),
                    Some(Errno::ACCESS) => Err(self.refuse(name, "this user may not read it")),
                    _ => Err(system("open")(error)),
                };
            }
        };
        let status = file::status(&file).map_err(system("fstat"))?;
        let kind = FileType::from_raw_mode(status.st_mode);
        if kind != FileType::RegularFile {
            return Err(self.refuse(name, format!("it is no file ({kind:?})")));
        }
        if let Err(Distrust { problem, .. }) = trust::check(&status, &self.path.join(name), self.owners) {
            return Err(self.refuse(name, problem));
        }
        let length = u64::try_from(status.st_size).unwrap_or(u64::MAX);
        if !lengths.contains(&length) {
            return Err(self.refuse(name, format!("it has {length} bytes, and not {}", lengths.end())));
        }
        // One byte more detects a growing file.
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX).saturating_add(1)];
        let read = read_all(&file, &mut bytes).map_err(system("read"))?;
        if read as u64 != length {
            return Err(self.refuse(name, "its length changes while it is read"));
        }
        bytes.truncate(read);
        Ok(Some(Loaded { bytes, modified: modified(&status) }))
    }

    /// Writes a file and replaces the one of this name. `synced`: once it is on the disk.
    pub(super) fn store(&self, temporary: &Self, name: &str, bytes: &[u8], synced: bool) -> Result<()> {
        let unfinished = temporary_name();
        let path = temporary.path.join(&unfinished);
        let file = file::create(&temporary.open, &unfinished).map_err(|error| failed("create", &path, error))?;
        let written = file_limit::check(bytes.len() as u64)
            .map_err(Into::into)
            .and_then(|()| write_all(&file, bytes))
            .map_err(|error| failed("write", &path, error))
            .and_then(|()| {
                let synced = if synced { file::sync(&file) } else { Ok(()) };
                synced.map_err(|error| failed("fsync", &path, error))
            })
            .and_then(|()| {
                let renamed = file::rename(&temporary.open, &unfinished, &self.open, name);
                renamed.map_err(|error| failed("rename", &self.path.join(name), error))
            });
        if written.is_err() {
            // If that fails too, the file is removed later as a leftover.
            let _ = file::remove(&temporary.open, &unfinished);
        }
        written
    }

    /// Moves an unusable file aside, unless the folder is only read. If another process has just replaced it, the new
    /// one may be moved instead, and the key is missing.
    pub(super) fn refuse(&self, name: &str, problem: impl Into<String>) -> Error {
        let aside = format!("{name}.refused");
        let moved = match self.owners {
            Owners::User => file::rename(&self.open, name, &self.open, &aside),
            Owners::UserOrRoot => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
        };
        Error::Cache(CacheError::File {
            path: self.path.join(name),
            problem: problem.into(),
            moved_to: moved.map(|()| self.path.join(aside)),
        })
    }
}

/// Returns when a file was written or touched.
pub(super) fn modified(status: &Stat) -> SystemTime {
    let seconds = u64::try_from(status.st_mtime).unwrap_or(0);
    let nanoseconds = u32::try_from(status.st_mtime_nsec).unwrap_or(0);
    SystemTime::UNIX_EPOCH + std::time::Duration::new(seconds, nanoseconds)
}

fn read_all(file: &OwnedFd, bytes: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file::read(file, rest) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file::write(file, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns a name that no other process uses.
fn temporary_name() -> String {
    format!("{}-{:016x}", std::process::id(), random())
}

/// Returns another number each time; a forked child has others than its parent.
pub(super) fn random() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    RandomState::new().hash_one((std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// Maps a system call's error to an error of the cache.
pub(super) fn failed(call: &'static str, path: &Path, source: io::Error) -> Error {
    let path = path.to_owned();
    let writes = matches!(call, "mkdir" | "create" | "write" | "fsync" | "rename");
    match Errno::from_io_error(&source) {
        Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => Error::Cache(CacheError::Full { path, source }),
        Some(Errno::ROFS | Errno::ACCESS | Errno::PERM) if writes => {
            Error::Cache(CacheError::ReadOnly { path, source })
        }
        _ => Error::Cache(CacheError::System { call, path, source }),
    }
}
