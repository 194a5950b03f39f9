//! Reading files: at once, or the parts that are wanted.

use std::borrow::Cow;
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::process::{Resource, getrlimit};

use crate::fault::{Call, check};
use crate::{Error, Result};

/// The contents of a file of proc(5), which does not say its size. `open` and `read` name the calls.
pub(crate) fn read(path: &Path, calls: [Call; 2]) -> io::Result<Vec<u8>> {
    // From an empty buffer, it would be read 32 bytes at first, then twice as many each time.
    read_into(path, calls, |_| Vec::with_capacity(16 << 10))
}

/// The same, in a buffer for the file, which is empty.
fn read_into(path: &Path, [open, read]: [Call; 2], buffer: impl FnOnce(&File) -> Vec<u8>) -> io::Result<Vec<u8>> {
    check(open)?;
    let mut file = File::open(path)?;
    check(read)?;
    let mut bytes = buffer(&file);
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The bytes of an object or archive.
pub(crate) fn read_object(path: &Path) -> Result<Vec<u8>> {
    read_object_into(path, |_| Vec::new())
}

/// The same, in such a buffer.
pub(crate) fn read_object_into(path: &Path, buffer: impl FnOnce(&File) -> Vec<u8>) -> Result<Vec<u8>> {
    read_into(path, [Call::OpenObject, Call::ReadObject], buffer)
        .map_err(|source| Error::Io { path: PathBuf::from(path), source })
}

/// The bytes at the beginning of a file.
pub(crate) fn read_start(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    check(Call::OpenObject)?;
    let file = File::open(path)?;
    check(Call::ReadObject)?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Smaller files are not worth a descriptor.
const KEPT_OPEN: u64 = 256 << 10;

/// Bytes of which parts are wanted.
#[derive(Debug)]
pub(crate) enum Contents {
    Memory(Arc<[u8]>),
    /// They are read when they are wanted. A mapping would need no descriptor, but would end the process if the file
    /// was cut short.
    File(OpenFile),
}

/// A file, and what it was when it was opened.
#[derive(Debug)]
pub(crate) struct OpenFile {
    file: File,
    path: PathBuf,
    then: Identity,
}

/// What tells a file from another, and from itself after it was written.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    file: (u64, u64),
    bytes: u64,
    written: (i64, i64),
}

impl Identity {
    fn of(status: &Metadata) -> Self {
        let (file, written) = ((status.dev(), status.ino()), (status.mtime(), status.mtime_nsec()));
        Self { file, bytes: status.size(), written }
    }
}

impl Contents {
    /// Opens an archive. Where it is small or no plain file, or descriptors are scarce, it is read at once.
    pub(crate) fn of_archive(path: &Path) -> Result<Self> {
        Self::open(path).map_err(|source| Error::Io { path: path.into(), source })
    }

    fn open(path: &Path) -> io::Result<Self> {
        check(Call::OpenObject)?;
        let mut file = File::open(path)?;
        check(Call::ReadObject)?;
        let status = file.metadata()?;
        if !status.is_file() || status.size() < KEPT_OPEN || is_scarce(&file) {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            return Ok(Self::Memory(bytes.into()));
        }
        Ok(Self::File(OpenFile::new(file, path, &status)))
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File(file) => file.then.bytes,
        }
    }

    /// A part of it, which must lie within.
    ///
    /// # Errors
    /// [`Error::Io`], also for a file that has changed since it was opened.
    pub(crate) fn read(&self, range: Range<usize>) -> Result<Cow<'_, [u8]>> {
        match self {
            Self::Memory(bytes) => Ok(Cow::Borrowed(bytes.get(range).unwrap_or_default())),
            Self::File(file) => match file.read(range) {
                Ok(bytes) => Ok(Cow::Owned(bytes)),
                Err(source) => Err(Error::Io { path: file.path.clone(), source }),
            },
        }
    }
}

/// Returns whether a descriptor's number says that the process has not many more.
pub(crate) fn is_scarce(file: &File) -> bool {
    let half = getrlimit(Resource::Nofile).current.map_or(u64::MAX, |most| most / 2);
    u64::try_from(file.as_raw_fd()).is_ok_and(|number| number >= half)
}

/// A file that can be mapped.
#[derive(Debug)]
pub(crate) struct LastingFile(OpenFile);

impl LastingFile {
    /// # Safety
    /// Nobody cuts the file short or writes it while a part of it is mapped.
    #[allow(unsafe_code, reason = "mapped bytes are read as those of memory")]
    pub(crate) unsafe fn new(file: OpenFile) -> Self {
        Self(file)
    }

    /// Returns the file, if it is what it was when it was opened.
    pub(crate) fn unchanged(&self) -> Option<&File> {
        self.0.is_unchanged().unwrap_or(false).then(|| self.0.file())
    }

    /// Returns the file, which was just opened.
    pub(crate) fn file(&self) -> &File {
        self.0.file()
    }

    pub(crate) fn into_file(self) -> File {
        self.0.file
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.then.bytes
    }
}

impl OpenFile {
    /// Keeps a file open that has this status.
    pub(crate) fn new(file: File, path: &Path, status: &Metadata) -> Self {
        Self { file, path: path.into(), then: Identity::of(status) }
    }

    /// Returns whether it is what it was when it was opened, also if somebody closed all descriptors, and the number is
    /// another file's now.
    pub(crate) fn is_unchanged(&self) -> io::Result<bool> {
        Ok(Identity::of(&self.file.metadata()?) == self.then)
    }

    /// For who reads it from its beginning.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    fn read(&self, range: Range<usize>) -> io::Result<Vec<u8>> {
        check(Call::ReadObject)?;
        if !self.is_unchanged()? {
            let message = "the file was changed after it was added; add it again, and replace such files by renaming";
            return Err(io::Error::other(message));
        }
        let mut bytes = vec![0; range.len()];
        self.file.read_exact_at(&mut bytes, range.start as u64)?;
        Ok(bytes)
    }
}
