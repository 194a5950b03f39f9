//! Objects on disk, for processes that compile the same kernels at the same time.
//!
//! ```text
//! folder/KEY.key        what leads from a key to an object (`entry`)
//! folder/HASH.o         an object, named after the hash of its bytes
//! folder/*.refused      what had one of those names and was not to be used
//! folder/temporary/     files that are being written
//! ```
//!
//! There are no locks: a file is written elsewhere and renamed, so a name leads to a whole file or to none, whoever is killed when.
//! Whether a file is what it ought to be is found out at each load.

mod entry;
mod key;
#[cfg(test)]
mod tests;
mod trust;

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

/// A file in `temporary` that is older belongs to a process that was killed while it wrote.
const LEFTOVER_AGE: Duration = Duration::from_secs(60 * 60);

/// Bytes of the largest object that is kept.
const LARGEST_OBJECT: u64 = 4 << 30;

/// Objects on disk, shared by all processes of a user: a folder that leads from what an object was made from to its bytes.
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
/// # What it promises
/// - Bytes come back as they were put in, or not at all. Their length and hash are checked at each load; a file that is torn or was
///   changed is moved aside (`.refused` behind its name) and reported.
/// - Files and folders that another user owns, or that group or others may write to, are refused; so is what is no file.
/// - Any number of processes may read and write at once, and be killed at any time. Those that miss the same key at the same time
///   each compile, and the last one's object stays.
/// - A full or read-only disk keeps nothing from being compiled and loaded.
///
/// # Limits
/// It only grows: remove the folder, or any of its files, when you like (a process that uses it compiles again). File systems without
/// owners and modes (FAT, some network file systems) are refused or protect nothing. What root put there is another user's. Hashes are no
/// signatures: whoever runs as the same user can put in any object.
#[derive(Debug)]
pub struct ObjectCache {
    path: PathBuf,
    folder: OwnedFd,
}

/// What [`ObjectCache::get_or_compile`] found or made.
#[derive(Debug)]
#[non_exhaustive]
pub struct CachedObject {
    /// The object, for [`JitEngine::add_object`](crate::JitEngine::add_object).
    pub bytes: Vec<u8>,
    /// It was in the cache, and was not compiled.
    pub found: bool,
    /// Why it was not found although the cache has, or had, a file for it, and why it was not kept.
    pub problems: Vec<Error>,
}

impl ObjectCache {
    /// Opens a folder, and makes it with its parents if it is not there. What was left there for an hour by processes that were killed
    /// while they wrote is removed.
    ///
    /// # Errors
    /// [`Error::CacheFolder`] if another user owns the folder, if others may write to it, or if it is none (a symbolic link to one, too);
    /// [`Error::CacheReadOnly`] and [`Error::CacheFull`] if it cannot be made, [`Error::CacheSystem`] otherwise.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let path = folder.as_ref().to_owned();
        match file::create_folders(&path) {
            // What is there is no folder, which is an error of its own.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed("mkdir", &path, error)),
            _ => {}
        }
        let folder = open_folder(CWD, &path, &path)?;
        let cache = Self { path, folder };
        cache.remove_leftovers(LEFTOVER_AGE)?;
        Ok(cache)
    }

    /// The folder, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The object that was last put in for a key.
    ///
    /// # Errors
    /// [`Error::CacheFile`] if a file that belongs to the key is not to be used. It is moved aside, so that the key is missing from then
    /// on. [`Error::CacheSystem`] if something cannot be read.
    pub fn get(&self, key: &CacheKey) -> Result<Option<Vec<u8>>> {
        let name = Entry::file_name(key);
        let Some(text) = self.load(&name, 0..=entry::LARGEST)? else { return Ok(None) };
        let Some(entry) = Entry::read(&text, key) else {
            return Err(self.refuse(&name, "it is torn, or it is not the entry of its key"));
        };
        // Without its object the entry is one that somebody tidied up by halves.
        let name = entry.object_name();
        let length = entry.bytes();
        let Some(bytes) = self.load(&name, length..=length.min(LARGEST_OBJECT))? else { return Ok(None) };
        if Entry::of(&bytes) != entry {
            return Err(self.refuse(&name, "its bytes do not have the hash that it is named after"));
        }
        Ok(Some(bytes))
    }

    /// Keeps an object for a key. One that was there for the key is no longer found; others that are reading it are not disturbed.
    ///
    /// # Errors
    /// [`Error::CacheFull`], [`Error::CacheReadOnly`], [`Error::CacheFolder`] if the folder for temporary files is not to be used,
    /// [`Error::CacheSystem`]. What was found for the key before still is then.
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
        // An entry is only there when its object is.
        self.store(&temporary, &name, object)?;
        self.store(&temporary, &Entry::file_name(key), entry.text(key).as_bytes())
    }

    /// The object of a key; if there is none, what `compile` returns, which is kept for the next time.
    ///
    /// Nothing that goes wrong with the cache keeps the caller from the object: it is in [`CachedObject::problems`], and a warning event
    /// of `tracing`.
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

    /// A file's bytes, if it is there; it has to have one of these lengths.
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
        // One byte more shows a file that grows.
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX).saturating_add(1)];
        let read = read_all(&file, &mut bytes).map_err(system("read"))?;
        if read as u64 != length {
            return Err(self.refuse(name, "its length changes while it is read"));
        }
        bytes.truncate(read);
        Ok(Some(bytes))
    }

    /// Puts a file in place of what has its name.
    fn store(&self, temporary: &OwnedFd, name: &str, bytes: &[u8]) -> Result<()> {
        let unfinished = temporary_name();
        let path = self.path.join(TEMPORARY).join(&unfinished);
        let file = file::create(temporary, &unfinished).map_err(|error| failed("create", &path, error))?;
        let written = file_limit::check(bytes.len() as u64)
            .map_err(Into::into)
            .and_then(|()| write_all(&file, bytes))
            .map_err(|error| failed("write", &path, error))
            // File systems that allocate late say only now that the disk is full. And after a power failure, a name would lead to
            // a file that is not there yet: that would be noticed, but compiled again. The folder may lose the name.
            .and_then(|()| file::sync(&file).map_err(|error| failed("fsync", &path, error)))
            .and_then(|()| {
                let renamed = file::rename(temporary, &unfinished, &self.folder, name);
                renamed.map_err(|error| failed("rename", &self.path.join(name), error))
            });
        if written.is_err() {
            // If that fails, too, it is a leftover.
            let _ = file::remove(temporary, &unfinished);
        }
        written
    }

    /// Moves a file aside that is not to be used. A good one that another process has just put in its place may be moved instead, and
    /// is missing then.
    fn refuse(&self, name: &str, problem: impl Into<String>) -> Error {
        let aside = format!("{name}.refused");
        let moved = file::rename(&self.folder, name, &self.folder, &aside);
        Error::CacheFile {
            path: self.path.join(name),
            problem: problem.into(),
            moved_to: moved.map(|()| self.path.join(aside)),
        }
    }

    /// Removes temporary files older than that. Others may do the same at the same time, and one that remains does no harm.
    fn remove_leftovers(&self, age: Duration) -> Result<()> {
        let path = self.path.join(TEMPORARY);
        let temporary = match open_folder(&self.folder, Path::new(TEMPORARY), &path) {
            Err(Error::CacheSystem { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(()),
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
    let refused = |Distrust { problem, remedy }| Error::CacheFolder { path: path.to_owned(), problem, remedy };
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

/// A name that no other process uses: of a forked child, the random number may be its parent's.
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

/// What the system's refusal means for a cache.
fn failed(call: &'static str, path: &Path, source: io::Error) -> Error {
    let path = path.to_owned();
    let writes = matches!(call, "mkdir" | "create" | "write" | "fsync" | "rename");
    match Errno::from_io_error(&source) {
        Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => Error::CacheFull { path, source },
        Some(Errno::ROFS | Errno::ACCESS | Errno::PERM) if writes => Error::CacheReadOnly { path, source },
        _ => Error::CacheSystem { call, path, source },
    }
}
