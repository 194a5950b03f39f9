//! Every system call of the cache, one thin function each. Files are named in a folder that is open.
//!
//! Only `open_followed` follows a symbolic link as the last part of a path, and nothing waits for a FIFO's other end.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, FlockOperation, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW, flock, fstat, fsync, mkdirat,
    openat, renameat, statat, unlinkat, utimensat,
};
use rustix::io::Errno;
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

/// The same, through symbolic links.
#[cfg(feature = "shared-cache")]
pub(crate) fn open_followed(folder: impl AsFd, name: impl Arg) -> io::Result<OwnedFd> {
    check(Call::OpenCached)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::empty())?)
}

/// Makes a file that was not there, for this user alone.
pub(crate) fn create(folder: impl AsFd, name: impl Arg) -> io::Result<OwnedFd> {
    check(Call::CreateCached)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?)
}

/// Locks the file of this name, and makes it if it is missing; `None` while others have it. The system unlocks it when
/// no process has it open any more.
pub(crate) fn lock(folder: impl AsFd, name: impl Arg + Copy) -> io::Result<Option<OwnedFd>> {
    check(Call::LockCached)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(&folder, name, flags, Mode::RUSR | Mode::WUSR)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    // Who had it may have removed its name in between.
    let (own, named) = (fstat(&file)?, statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW));
    Ok(named.is_ok_and(|named| (named.st_dev, named.st_ino) == (own.st_dev, own.st_ino)).then_some(file))
}

/// Unlocks a file, also for other processes that have it open by inheritance.
pub(crate) fn unlock(file: impl AsFd) {
    let _ = flock(file, FlockOperation::Unlock);
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

/// Sets a file's times to now; those of a symbolic link itself.
pub(crate) fn touch(folder: impl AsFd, name: impl Arg) -> io::Result<()> {
    check(Call::TouchCached)?;
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    Ok(utimensat(folder, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
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
