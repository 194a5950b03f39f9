//! Shared libraries that a caller gave to a library of this crate.
#![allow(unsafe_code, reason = "dlopen, dlsym")]

use std::ffi::c_void;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY, RTLD_LOCAL, RTLD_NOW};

use super::loaded::{LoadedLibrary, loaded_libraries};
use super::process;
use crate::elf::{HOST_MACHINE, machine_text};
use crate::fault::{Call, check};
use crate::{Error, FileKind, LibraryError, Result, fork_guard};

/// When a library is searched for a name, beside other places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SearchOrder {
    /// Before given symbols and the process, its dependencies included.
    First,
    /// After the given symbols, and without its dependencies.
    AfterGiven,
    /// After the process.
    Last,
}

/// An open shared library; closed with its last clone.
#[derive(Debug, Clone)]
pub(crate) struct SharedLibrary {
    library: Arc<Open>,
    order: SearchOrder,
}

#[derive(Debug)]
struct Open {
    /// libloading's handle, which is used directly for versions of symbols, and returned to libloading at the end.
    handle: *mut c_void,
    path: Box<Path>,
}

// SAFETY: the dynamic loader's handles may be used by any thread.
unsafe impl Send for Open {}
// SAFETY: as above.
unsafe impl Sync for Open {}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: `into_raw` gave the handle, and it is closed once, here.
        fork_guard::loading(|| drop(unsafe { Library::from_raw(self.handle) }));
    }
}

impl SharedLibrary {
    /// Opens a library without adding its symbols to the process's scope. A name without a slash is searched in the
    /// folders first.
    ///
    /// # Safety
    /// Its initialisers and finalisers may be run.
    pub(crate) unsafe fn open_local(path: &Path, folders: &[PathBuf]) -> Result<Self> {
        // Like the dynamic loader, searches only for names without a slash.
        let in_folder = |folder: &PathBuf| Some(folder.join(path)).filter(|path| path.is_file());
        let found = if has_slash(path) { None } else { folders.iter().find_map(in_folder) };
        let path = found.as_deref().unwrap_or(path);
        // SAFETY: by the caller's contract.
        unsafe { Self::open(path, RTLD_NOW | RTLD_LOCAL) }
    }

    /// Opens a library for the whole process, and until its end.
    ///
    /// # Safety
    /// Its initialisers and finalisers may be run.
    pub(crate) unsafe fn open_global(path: &Path) -> Result<()> {
        // SAFETY: by the caller's contract.
        let library = unsafe { Self::open(path, RTLD_NOW | RTLD_GLOBAL)? };
        std::mem::forget(library);
        Ok(())
    }

    /// # Safety
    /// Its initialisers and finalisers may be run.
    unsafe fn open(path: &Path, flags: i32) -> Result<Self> {
        // SAFETY: by the caller's contract.
        let open = || fork_guard::loading(|| unsafe { Library::open(Some(path), flags) });
        let library = check(Call::OpenShared).map_err(|_| libloading::Error::DlOpenUnknown).and_then(|()| open());
        match library {
            Ok(library) => Ok(Self::opened(library, path)),
            Err(source) => {
                check_kind(path)?;
                Err(Error::Library(LibraryError::SharedLibrary { path: PathBuf::from(path), source: source.into() }))
            }
        }
    }

    /// Opens a library that the process has loaded, if it is still loaded.
    pub(super) fn open_loaded(path: &Path) -> Option<Self> {
        // SAFETY: nothing is loaded, so no initialiser runs; a finaliser runs only if another user closes it meanwhile.
        let library = fork_guard::loading(|| unsafe { Library::open(Some(path), RTLD_LAZY | libc::RTLD_NOLOAD) });
        library.ok().map(|library| Self::opened(library, path))
    }

    fn opened(library: Library, path: &Path) -> Self {
        Self { library: Arc::new(Open { handle: library.into_raw(), path: path.into() }), order: SearchOrder::First }
    }

    /// Returns the path or name that it was opened with.
    pub(crate) fn path(&self) -> &Path {
        &self.library.path
    }

    /// Returns the same library, to be searched at another time.
    pub(crate) fn searched(self, order: SearchOrder) -> Self {
        Self { order, ..self }
    }

    pub(crate) fn order(&self) -> SearchOrder {
        self.order
    }

    /// Returns the address of a symbol of the library or of its dependencies, if it is not 0.
    pub(crate) fn symbol(&self, name: &str) -> Option<u64> {
        // SAFETY: the handle is open.
        let address = unsafe { process::symbol_of(self.library.handle, name) }?;
        (self.order != SearchOrder::AfterGiven || self.has(address)).then_some(address)
    }

    /// Returns whether an address is in the library itself.
    fn has(&self, address: u64) -> bool {
        /// `dladdr1`: the third argument is a place for a `struct link_map *` (glibc, dlfcn.h).
        const RTLD_DL_LINKMAP: libc::c_int = 2;
        let [mut own, mut of_address] = [std::ptr::null_mut::<c_void>(); 2];
        let mut info = std::mem::MaybeUninit::<libc::Dl_info>::uninit();
        // SAFETY: the handle is open; the results have places. The maps are compared, and not dereferenced.
        let (asked, found) = fork_guard::loading(|| unsafe {
            (
                libc::dlinfo(self.library.handle, libc::RTLD_DI_LINKMAP, (&raw mut own).cast()),
                libc::dladdr1(address as *const c_void, info.as_mut_ptr(), &raw mut of_address, RTLD_DL_LINKMAP),
            )
        });
        asked == 0 && found != 0 && own == of_address
    }
}

const ET_REL: u16 = object::elf::ET_REL.0;
const ET_EXEC: u16 = object::elf::ET_EXEC.0;
const ET_DYN: u16 = object::elf::ET_DYN.0;

fn has_slash(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().contains(&b'/')
}

/// Checks by a file's first bytes that a path which could not be opened leads to a shared library for this machine: the
/// dynamic loader says little, and calls an archive "invalid ELF header". A name without a slash is left to the loader,
/// which searches for it.
fn check_kind(path: &Path) -> Result<()> {
    if !has_slash(path) {
        return Ok(());
    }
    let refused = |found| Err(Error::Library(LibraryError::NotASharedLibrary { path: path.to_owned(), found }));
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::Library(LibraryError::SharedLibraryNotFound { path: path.to_owned() }));
        }
        // The loader will report the reason.
        Err(_) => return Ok(()),
        Ok(file) if file.is_dir() => return refused(FileKind::Folder),
        Ok(file) if !file.is_file() => return refused(FileKind::Special),
        Ok(_) => {}
    }
    let mut bytes = Vec::new();
    if std::fs::File::open(path).and_then(|file| file.take(64).read_to_end(&mut bytes)).is_err() {
        return Ok(());
    }
    what_else(&bytes).map_or(Ok(()), refused)
}

/// Recognises the kind of a file by its first bytes; `None` for a shared library for this machine.
fn what_else(bytes: &[u8]) -> Option<FileKind> {
    let half = |at: usize| Some(u16::from_le_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    match bytes {
        [] => return Some(FileKind::Empty),
        [b'\x7f', b'E', b'L', b'F', ..] => {}
        _ if bytes.starts_with(b"!<arch>") => return Some(FileKind::Archive),
        _ if ["/* GNU ld", "OUTPUT_FORMAT", "GROUP", "INPUT"]
            .iter()
            .any(|start| bytes.starts_with(start.as_bytes())) =>
        {
            return Some(FileKind::LinkerScript);
        }
        _ => return Some(FileKind::NotElf),
    }
    let kinds = (bytes.get(4).copied(), bytes.get(5).copied(), half(18), half(16));
    match kinds {
        (Some(2), Some(1), Some(HOST_MACHINE), Some(ET_DYN)) => None,
        (Some(2), Some(1), Some(HOST_MACHINE), Some(ET_REL)) => Some(FileKind::RelocatableObject),
        (Some(2), Some(1), Some(HOST_MACHINE), Some(ET_EXEC)) => Some(FileKind::Executable),
        (_, Some(2), ..) => Some(FileKind::BigEndian),
        (Some(2), Some(1), Some(machine), _) if machine != HOST_MACHINE => {
            Some(FileKind::OtherMachine { machine: machine_text(machine) })
        }
        (Some(1), ..) => Some(FileKind::ThirtyTwoBit),
        _ => Some(FileKind::Damaged),
    }
}

/// Returns the file of a loaded library, given the name or path that it was opened with.
pub(crate) fn file_of(path: &Path) -> PathBuf {
    if path.components().nth(1).is_some() {
        return path.into();
    }
    let is_it = |library: &LoadedLibrary| Path::new(&library.name).file_name() == Some(path.as_os_str());
    loaded_libraries().into_iter().find(is_it).map_or_else(|| path.into(), |library| library.name.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::{EM_AARCH64, EM_X86_64};

    #[test]
    fn what_is_no_shared_library_is_named() {
        let header = |class: u8, encoding: u8, kind: u16, machine: u16| {
            let mut bytes = vec![0x7f, b'E', b'L', b'F', class, encoding, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            bytes.extend([kind.to_le_bytes(), machine.to_le_bytes()].concat());
            bytes.extend([0; 44]);
            bytes
        };
        let (other, machine) = if HOST_MACHINE == EM_X86_64 { (EM_AARCH64, "AArch64") } else { (EM_X86_64, "x86-64") };
        assert_eq!(what_else(&header(2, 1, ET_DYN, HOST_MACHINE)), None);
        let cases: [(Vec<u8>, FileKind); 11] = [
            (Vec::new(), FileKind::Empty),
            (b"!<arch>\n/".to_vec(), FileKind::Archive),
            (b"/* GNU ld script".to_vec(), FileKind::LinkerScript),
            (b"GROUP ( libx.so.1 )".to_vec(), FileKind::LinkerScript),
            (b"text".to_vec(), FileKind::NotElf),
            (header(2, 1, ET_REL, HOST_MACHINE), FileKind::RelocatableObject),
            (header(2, 1, ET_EXEC, HOST_MACHINE), FileKind::Executable),
            (header(2, 1, ET_DYN, other), FileKind::OtherMachine { machine }),
            (header(1, 1, ET_DYN, 3), FileKind::ThirtyTwoBit),
            (header(2, 1, ET_DYN, HOST_MACHINE)[..18].to_vec(), FileKind::Damaged),
            (header(2, 2, 0x300, 0), FileKind::BigEndian),
        ];
        for (bytes, expected) in cases {
            assert_eq!(what_else(&bytes), Some(expected));
        }
    }
}
