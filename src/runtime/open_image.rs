//! Opens generated images through the dynamic loader, from memory files.
#![allow(unsafe_code, reason = "dlopen of a generated file")]

use std::ffi::{CStr, c_void};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, ftruncate, memfd_create, openat};
use rustix::io::{Errno, fcntl_dupfd_cloexec, pwrite, retry_on_intr};

use super::handle::Handle;
use super::image_name::{IMAGE_PREFIX, unique_path};
use crate::fault::{Call, check};
use crate::{file_limit, fork_guard};

/// The reason why there is no module.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// A system call failed.
    System(&'static str, io::Error),
    /// The loader refused with this message.
    Loader(String),
}

impl OpenError {
    /// Returns the text, and the system's error if there is one.
    pub(crate) fn into_parts(self) -> (String, Option<io::Error>) {
        match self {
            Self::System(call, error) => (call.to_owned(), Some(error)),
            Self::Loader(message) => (message, None),
        }
    }
}

/// The libraries that see the names of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    Local,
    Global,
}

/// Opens an image of this size, given as offsets and bytes, through the dynamic loader. It takes the loader's lock: no
/// lock of ours may be held, nor a library's claim.
pub(super) fn open_image<'a>(
    name: &CStr,
    size: u64,
    pieces: impl Iterator<Item = (u64, &'a [u8])>,
    reach: Reach,
) -> Result<Handle, OpenError> {
    file_limit::check(size).map_err(|error| OpenError::System("ftruncate", error.into()))?;
    let file = image_file(name).map_err(|error| OpenError::System("memfd_create", error.into()))?;
    retry_on_intr(|| check(Call::SizeImage).and_then(|()| ftruncate(&file, size)))
        .map_err(|error| OpenError::System("ftruncate", error.into()))?;
    for (offset, bytes) in pieces {
        write_all_at(&file, bytes, offset).map_err(|error| OpenError::System("pwrite", error))?;
    }
    let file = moved(file);
    let path = unique_path(&file);
    let handle = load(&path, reach).map_err(|message| match find(&path) {
        Ok(()) => OpenError::Loader(message),
        Err(error) => OpenError::System("opening it under /proc/thread-self/fd", error.into()),
    })?;
    let handle = Handle(handle);
    handle.rename(IMAGE_PREFIX, NAME);
    Ok(handle)
}

/// The loader's name of an open image, which `dladdr` and debuggers show: that of its file means nothing, and may soon be
/// another file's. There is no such file. It is shorter than the names with which images are opened.
const NAME: &CStr = c"/proc/self/slabjit";

/// Returns whether a name of the loader's is that of an open image, of any copy of this crate.
pub(crate) fn is_image(name: &CStr) -> bool {
    name == NAME
}

/// The least number of an image's descriptor, if there may be so many.
const HIGH: i32 = 1000;

/// Gives an open file a high number. Debuggers open the loader's names of images: they look into their own table of
/// open files, and wait for ever for what a pipe of theirs has.
fn moved(file: OwnedFd) -> OwnedFd {
    check(Call::MoveImage).and_then(|()| fcntl_dupfd_cloexec(&file, HIGH)).unwrap_or(file)
}

/// Opens an image through the loader, or returns its message.
fn load(path: &CStr, reach: Reach) -> Result<NonNull<c_void>, String> {
    check(Call::OpenImage).map_err(|error| error.to_string())?;
    let reach = if reach == Reach::Global { libc::RTLD_GLOBAL } else { libc::RTLD_LOCAL };
    // SAFETY: a NUL-terminated path of a file without code: its relocations call nothing, and it has no initialisers.
    let handle = unsafe { fork_guard::loading(|| libc::dlopen(path.as_ptr(), libc::RTLD_NOW | reach)) };
    NonNull::new(handle).ok_or_else(|| {
        // SAFETY: the last error of this thread; the string is copied before the next call.
        let message = unsafe { libc::dlerror() };
        // SAFETY: not null, and then NUL-terminated.
        let message = (!message.is_null()).then(|| unsafe { CStr::from_ptr(message) }.to_string_lossy());
        let message = message.as_deref().unwrap_or("dlopen failed");
        // The path means nothing to a reader.
        let text = message.rsplit_once(&*path.to_string_lossy()).map_or(message, |(_, rest)| rest);
        text.trim_start_matches([':', ' ']).to_owned()
    })
}

/// Checks whether the loader can have opened an image; otherwise the system refused.
fn find(path: &CStr) -> Result<(), Errno> {
    check(Call::FindImage)?;
    openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map(drop)
}

/// Creates a file without a name, which must not be executed: some systems refuse files without this flag
/// (`vm.memfd_noexec`), and kernels before 6.3 do not know it.
fn image_file(name: &CStr) -> Result<OwnedFd, Errno> {
    let create = |call, flags| check(call).and_then(|()| memfd_create(name, flags));
    match create(Call::CreateImage, MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => create(Call::CreateOldImage, MemfdFlags::CLOEXEC),
        result => result,
    }
}

fn write_all_at(file: &OwnedFd, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = retry_on_intr(|| check(Call::WriteImage).and_then(|()| pwrite(file.as_fd(), bytes, offset)))?;
        if n == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = bytes.get(n..).unwrap_or_default();
        offset += n as u64;
    }
    Ok(())
}
