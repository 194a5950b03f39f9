//! Every system call of the cache, one thin function each. Files are named in a folder that is open.
//!
//! Nothing here follows a symbolic link as the last part of a path, and nothing waits for a FIFO's other end.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, Stat, fstat, fsync, mkdirat, openat, renameat, statat, unlinkat};
use rustix::path::Arg;

use crate::fault::{Call, check};

/// Makes a folder with its parents, for this user alone. One that is there stays as it is.
pub(crate) fn create_folders(path: &Path) -> io::Result<()> {
    check(Call::MakeCache)?;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes a folder for this user alone. `AlreadyExists` if anything has the name.
pub(crate) fn create_folder(folder: impl AsFd, name: impl Arg) -> io::Result<()> {
    check(Call::MakeCacheFolder)?;
    Ok(mkdirat(folder, name, Mode::RWXU)?)
}

/// Opens a folder. `NotADirectory` if it is something else, or a symbolic link.
pub(crate) fn open_folder(folder: impl AsFd, path: impl Arg) -> io::Result<OwnedFd> {
    check(Call::OpenCacheFolder)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(folder, path, flags, Mode::empty())?)
}

/// Opens something to read. `ELOOP` if it is a symbolic link.
pub(crate) fn open(folder: impl AsFd, name: impl Arg) -> io::Result<OwnedFd> {
    check(Call::OpenCached)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::empty())?)
}

/// Makes a file that was not there, for this user alone.
pub(crate) fn create(folder: impl AsFd, name: impl Arg) -> io::Result<OwnedFd> {
    check(Call::CreateCached)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?)
}

/// Owner, kind, permissions, size and times of what is open.
pub(crate) fn status(file: impl AsFd) -> io::Result<Stat> {
    check(Call::StatCached)?;
    Ok(fstat(file)?)
}

/// The same of what has a name; of a symbolic link itself.
pub(crate) fn status_of(folder: impl AsFd, name: impl Arg) -> io::Result<Stat> {
    check(Call::StatCachedName)?;
    Ok(statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Reads some bytes; 0 at the end.
pub(crate) fn read(file: impl AsFd, bytes: &mut [u8]) -> io::Result<usize> {
    check(Call::ReadCached)?;
    Ok(rustix::io::read(file, bytes)?)
}

/// Writes some of the bytes.
pub(crate) fn write(file: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    check(Call::WriteCached)?;
    Ok(rustix::io::write(file, bytes)?)
}

/// Has everything that was written reach the disk.
pub(crate) fn sync(file: impl AsFd) -> io::Result<()> {
    check(Call::SyncCached)?;
    Ok(fsync(file)?)
}

/// Gives a file another name, in place of what has it.
pub(crate) fn rename(from: impl AsFd, old: impl Arg, to: impl AsFd, new: impl Arg) -> io::Result<()> {
    check(Call::RenameCached)?;
    Ok(renameat(from, old, to, new)?)
}

/// Removes a file.
pub(crate) fn remove(folder: impl AsFd, name: impl Arg) -> io::Result<()> {
    check(Call::RemoveCached)?;
    Ok(unlinkat(folder, name, AtFlags::empty())?)
}

/// The names in a folder, `.` and `..` with them.
pub(crate) fn names(folder: impl AsFd) -> io::Result<Vec<CString>> {
    check(Call::ListCached)?;
    Dir::read_from(folder)?.map(|entry| Ok(entry?.file_name().to_owned())).collect()
}
