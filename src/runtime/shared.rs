//! Shared libraries that were given to a library of ours.
#![allow(unsafe_code)] // dlopen, dlsym

use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};

use crate::fault::{Call, check};
use crate::{Error, Result, gate};

/// An open shared library; closed with its last clone.
#[derive(Debug, Clone)]
pub(crate) struct SharedLibrary {
    library: Arc<Open>,
}

#[derive(Debug)]
struct Open(ManuallyDrop<Library>);

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: taken once, here.
        let library = unsafe { ManuallyDrop::take(&mut self.0) };
        gate::loading(|| drop(library));
    }
}

impl SharedLibrary {
    /// Opens without adding its symbols to the process's scope.
    ///
    /// # Safety
    /// Its initialisers and finalisers may be run.
    pub(crate) unsafe fn open_local(path: &Path) -> Result<Self> {
        // SAFETY: by the caller.
        unsafe { Self::open(path, RTLD_NOW | RTLD_LOCAL) }
    }

    /// Opens for the whole process, and for its rest.
    ///
    /// # Safety
    /// Its initialisers and finalisers may be run.
    pub(crate) unsafe fn open_global(path: &Path) -> Result<()> {
        // SAFETY: by the caller.
        let library = unsafe { Self::open(path, RTLD_NOW | RTLD_GLOBAL)? };
        std::mem::forget(library);
        Ok(())
    }

    /// # Safety
    /// Its initialisers and finalisers may be run.
    unsafe fn open(path: &Path, flags: i32) -> Result<Self> {
        // SAFETY: by the caller.
        let open = || gate::loading(|| unsafe { Library::open(Some(path), flags) });
        let library = check(Call::OpenShared).map_err(|_| libloading::Error::DlOpenUnknown).and_then(|()| open());
        let library = library.map_err(|source| Error::SharedLibrary { path: PathBuf::from(path), source })?;
        Ok(Self { library: Arc::new(Open(ManuallyDrop::new(library))) })
    }

    /// The address of a symbol of the library or of what it depends on, if it is not 0.
    pub(crate) fn symbol(&self, name: &str) -> Option<u64> {
        // SAFETY: the address is taken as a number only.
        let symbol = gate::loading(|| unsafe { self.library.0.get::<*mut ()>(name) }).ok()?;
        let address = symbol.as_raw_ptr();
        (!address.is_null()).then_some(address as u64)
    }
}
