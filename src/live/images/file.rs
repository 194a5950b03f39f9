//! Images in files, whose pages processes share.
#![allow(unsafe_code, reason = "says which files can be mapped")]

use std::borrow::Cow;
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::elf::image_file::LARGE;
use crate::fault::{Call, check};
use crate::memory::FilePages;
use crate::read::{LastingFile, OpenFile, is_scarce};
use crate::{Error, Result};

/// An image's bytes.
pub(crate) enum Source<'a> {
    Bytes(Cow<'a, [u8]>),
    /// Pages of a file that nobody but root and this user can change.
    File(LastingFile, FilePages),
}

impl Source<'_> {
    /// Opens a file. A mapped file that is cut short ends the process, and one that is written changes what runs; so
    /// one that others may write, or whose folder they may, is read.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let open = || {
            check(Call::OpenObject)?;
            let mut file = File::open(path)?;
            let status = file.metadata()?;
            let is_worth = status.is_file() && status.size() >= LARGE && !is_scarce(&file);
            if is_worth && is_ours(&status) && is_in_our_folder(path) {
                // SAFETY: only root and this user may write it, and they replace such files by renaming, as
                // `JitEngine::add_image_file` demands.
                let lasting = unsafe { LastingFile::new(OpenFile::new(file, path, &status)) };
                match FilePages::map(&lasting) {
                    Ok(pages) => return Ok(Self::File(lasting, pages)),
                    Err(_) => file = lasting.into_file(),
                }
            }
            check(Call::ReadObject)?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(Self::Bytes(bytes.into()))
        };
        open().map_err(|source: io::Error| Error::Io { path: path.into(), source })
    }
}

/// Returns whether nobody but root and this user may write it.
fn is_ours(status: &Metadata) -> bool {
    const BY_OTHERS: u32 = 0o022;
    let user = rustix::process::geteuid().as_raw();
    [0, user].contains(&status.uid()) && status.mode() & BY_OTHERS == 0
}

fn is_in_our_folder(path: &Path) -> bool {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    folder.metadata().is_ok_and(|status| is_ours(&status))
}
