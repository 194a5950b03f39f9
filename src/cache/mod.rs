//! The object cache: compiled objects on disk, for processes that compile the same kernels at the same time.
//!
//! ```text
//! folder/KEY.key        an entry, which leads from a key to an object (`entry`)
//! folder/HASH.o         an object, named after the hash of its bytes
//! folder/*.refused      files with such a name that were refused
//! folder/temporary/     files that are being written
//! ```
//!
//! There are no locks: a file is written elsewhere and renamed, so a name leads to a whole file or to none, even if a
//! process is killed. Each load checks the file.

mod entry;
mod error;
mod key;
#[cfg(test)]
mod tests;
mod trust;

pub use error::CacheError;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, FileType};
use rustix::io::Errno;

use crate::{Error, Result};
use crate::{file, file_limit};
use entry::Entry;
pub use key::CacheKey;
use trust::Distrust;

const TEMPORARY: &str = "temporary";

/// The age at which a file in `temporary` counts as left by a killed process.
const LEFTOVER_AGE: Duration = Duration::from_secs(60 * 60);

/// The largest object that is kept, in bytes.
const LARGEST_OBJECT: u64 = 4 << 30;

/// A folder of objects on disk, shared by all processes of a user. A key made from an object's inputs leads to its
/// bytes.
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
/// - Any number of processes may read and write at once, and be killed at any time. Processes that miss the same key at
///   the same time each compile, and the last one's object stays.
/// - A full or read-only disk prevents no compilation and no load.
///
/// # Limits
/// The cache only grows: you may remove the folder, or any of its files, at any time (a running process compiles
/// again). File systems without owners and modes (FAT, some network file systems) are refused, or protect nothing.
/// Hashes are not signatures: a process of the same user can store any object.
#[derive(Debug)]
pub struct ObjectCache {
    path: PathBuf,
    folder: OwnedFd,
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
        let path = folder.as_ref().to_owned();
        match file::create_folders(&path) {
            // An existing file of that name gets an error of its own below.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed("mkdir", &path, error)),
            _ => {}
        }
        let folder = open_folder(CWD, &path, &path)?;
        let cache = Self { path, folder };
        cache.remove_leftovers(LEFTOVER_AGE)?;
        Ok(cache)
    }

    /// Returns the folder's path, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the object that was last stored for a key.
    ///
    /// # Errors
    /// [`CacheError::File`](crate::CacheError::File) if a file of the key is unusable. It is moved aside, so that the
    /// key is missing from then on. [`CacheError::System`](crate::CacheError::System) if something cannot be read.
    pub fn get(&self, key: &CacheKey) -> Result<Option<Vec<u8>>> {
        let name = Entry::file_name(key);
        let Some(text) = self.load(&name, 0..=entry::LARGEST)? else { return Ok(None) };
        let Some(entry) = Entry::read(&text, key) else {
            return Err(self.refuse(&name, "it is torn, or it is not the entry of its key"));
        };
        // An entry without its object was tidied up halfway.
        let name = entry.object_name();
        let length = entry.bytes();
        let Some(bytes) = self.load(&name, length..=length.min(LARGEST_OBJECT))? else { return Ok(None) };
        if Entry::of(&bytes) != entry {
            return Err(self.refuse(&name, "its bytes do not have the hash that it is named after"));
        }
        Ok(Some(bytes))
    }

    /// Stores an object for a key, in place of an earlier one. Processes that are reading the earlier one are not
    /// disturbed.
    ///
    /// # Errors
    /// [`CacheError::Full`](crate::CacheError::Full), [`CacheError::ReadOnly`](crate::CacheError::ReadOnly),
    /// [`CacheError::Folder`](crate::CacheError::Folder) if the folder for temporary files is unusable,
    /// [`CacheError::System`](crate::CacheError::System). An earlier object for the key stays.
    pub fn put(&self, key: &CacheKey, object: &[u8]) -> Result<()> {
        let entry = Entry::of(object);
        let name = entry.object_name();
        if entry.bytes() > LARGEST_OBJECT {
            return Err(failed("write", &self.path.join(name), Errno::FBIG.into()));
        }
        let path = self.path.join(TEMPORARY);
        match file::create_folder(&self.folder, TEMPORARY) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed("mkdir", &path, error)),
            _ => {}
        }
        let temporary = open_folder(&self.folder, Path::new(TEMPORARY), &path)?;
        // The object is stored before its entry.
        self.store(&temporary, &name, object)?;
        self.store(&temporary, &Entry::file_name(key), entry.text(key).as_bytes())
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
        let mut problems = Vec::new();
        let mut report = |error: Error| {
            tracing::warn!(target: "slabjit", %key, "{error}");
            problems.push(error);
        };
        let found = self.get(key).unwrap_or_else(|error| {
            report(error);
            None
        });
        if let Some(bytes) = found {
            return Ok(CachedObject { bytes, found: true, problems });
        }
        let bytes = compile()?;
        if let Err(error) = self.put(key, &bytes) {
            report(error);
        }
        Ok(CachedObject { bytes, found: false, problems })
    }

    /// Reads a file if it exists; its length must be in this range.
    fn load(&self, name: &str, lengths: std::ops::RangeInclusive<u64>) -> Result<Option<Vec<u8>>> {
        let system = |call| move |error| failed(call, &self.path.join(name), error);
        let file = match file::open(&self.folder, name) {
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
        if let Err(Distrust { problem, .. }) = trust::check(&status, &self.path.join(name)) {
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
        Ok(Some(bytes))
    }

    /// Writes a file and replaces the one of this name.
    fn store(&self, temporary: &OwnedFd, name: &str, bytes: &[u8]) -> Result<()> {
        let unfinished = temporary_name();
        let path = self.path.join(TEMPORARY).join(&unfinished);
        let file = file::create(temporary, &unfinished).map_err(|error| failed("create", &path, error))?;
        let written = file_limit::check(bytes.len() as u64)
            .map_err(Into::into)
            .and_then(|()| write_all(&file, bytes))
            .map_err(|error| failed("write", &path, error))
            // File systems that allocate late report a full disk only now. Without the sync, a power failure could
            // leave a name without its contents, which a load would detect, and compile again. The folder itself may
            // lose the name.
            .and_then(|()| file::sync(&file).map_err(|error| failed("fsync", &path, error)))
            .and_then(|()| {
                let renamed = file::rename(temporary, &unfinished, &self.folder, name);
                renamed.map_err(|error| failed("rename", &self.path.join(name), error))
            });
        if written.is_err() {
            // If that fails too, the file is removed later as a leftover.
            let _ = file::remove(temporary, &unfinished);
        }
        written
    }

    /// Moves an unusable file aside. If another process has just replaced it, the new one may be moved instead, and the
    /// key is missing.
    fn refuse(&self, name: &str, problem: impl Into<String>) -> Error {
        let aside = format!("{name}.refused");
        let moved = file::rename(&self.folder, name, &self.folder, &aside);
        Error::Cache(CacheError::File {
            path: self.path.join(name),
            problem: problem.into(),
            moved_to: moved.map(|()| self.path.join(aside)),
        })
    }

    /// Removes temporary files older than `age`. Other processes may do so at the same time, and a remaining file does
    /// no harm.
    fn remove_leftovers(&self, age: Duration) -> Result<()> {
        let path = self.path.join(TEMPORARY);
        let temporary = match open_folder(&self.folder, Path::new(TEMPORARY), &path) {
            Err(Error::Cache(CacheError::System { source, .. })) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(());
            }
            folder => folder?,
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let before = i64::try_from(now.saturating_sub(age).as_secs()).unwrap_or(i64::MAX);
        for name in file::names(&temporary).map_err(|error| failed("getdents", &path, error))? {
            let Ok(status) = file::status_of(&temporary, &name) else { continue };
            let is_file = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
            if is_file && status.st_mtime <= before {
                let _ = file::remove(&temporary, &name);
            }
        }
        Ok(())
    }
}

/// Opens a folder that only this user may write to.
fn open_folder(at: impl std::os::fd::AsFd, name: &Path, path: &Path) -> Result<OwnedFd> {
    let refused =
        |Distrust { problem, remedy }| Error::Cache(CacheError::Folder { path: path.to_owned(), problem, remedy });
    let folder = file::open_folder(at, name).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NOTDIR | Errno::LOOP) => refused(Distrust {
            problem: "it is not a folder, or a symbolic link to one".into(),
            remedy: "give the path of the folder itself".into(),
        }),
        _ => failed("open", path, error),
    })?;
    let status = file::status(&folder).map_err(|error| failed("fstat", path, error))?;
    trust::check(&status, path).map_err(refused)?;
    Ok(folder)
}

/// Returns a name that no other process uses; a forked child may share its parent's random number.
fn temporary_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let process = std::process::id();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{process}-{:016x}", RandomState::new().hash_one((process, number)))
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

/// Maps a system call's error to an error of the cache.
fn failed(call: &'static str, path: &Path, source: io::Error) -> Error {
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
