//! libcuda.
#![allow(unsafe_code)] // calls the driver

use std::ffi::{CStr, c_int};
use std::fmt;
use std::path::Path;

use once_cell::race::OnceBox;

use super::functions::{Code, Functions, NO_DEVICE, OUT_OF_MEMORY, SUCCESS};
use crate::runtime::SharedLibrary;
use crate::{Error, Result, gate};

/// As NVIDIA installs it (its SONAME), and as some installations have it beside that or instead.
const NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

/// NVIDIA's driver, opened and initialised: `libcuda.so.1`, of CUDA 11.0 (R450) or newer.
///
/// It stays open to the process's end.
///
/// ```no_run
/// # fn main() -> slabjit::Result<()> {
/// use slabjit::cuda::Driver;
///
/// let engine = slabjit::JitEngine::new()?;
/// let device = Driver::load()?.device(0)?;
/// // SAFETY: the libraries may be opened.
/// let library = unsafe { engine.library("kernels").device(&device).shared_library("libcudart.so.12").build()? };
/// library.add_object_file("kernels.o")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct Driver {
    loaded: &'static Loaded,
}

struct Loaded {
    library: SharedLibrary,
    functions: Functions,
}

/// Which process this is: a child of `fork` is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    /// For children of `vfork` and `clone`, which run no handlers of ours.
    id: u32,
    /// For children with the same number, in a namespace of their own.
    generation: u32,
}

impl Process {
    fn this() -> Self {
        Self { id: std::process::id(), generation: gate::generation() }
    }
}

/// The process that has called `cuInit`, however that ended.
static PROCESS: OnceBox<Process> = OnceBox::new();

/// Threads that are the first may all open it; what one of them opened counts. Nobody waits, so that nothing is lost in a fork.
static LOADED: OnceBox<Loaded> = OnceBox::new();

impl Driver {
    /// Opens the driver as the dynamic loader finds it (`LD_LIBRARY_PATH`, then the system's folders), and initialises it (`cuInit`): once
    /// for the process, and again after an error.
    ///
    /// # Errors
    /// [`Error::DriverNotFound`], [`Error::DriverTooOld`], [`Error::NoDevice`], [`Error::Cuda`] with what `cuInit` said;
    /// [`Error::DeviceAfterFork`] in a child of a process that has tried.
    pub fn load() -> Result<Self> {
        if PROCESS.get().is_some_and(|process| *process != Process::this()) {
            return Err(Error::DeviceAfterFork);
        }
        Ok(Self { loaded: LOADED.get_or_try_init(|| Loaded::open().map(Box::new))? })
    }

    /// The version of CUDA that the driver implements, as (12, 8).
    ///
    /// # Errors
    /// [`Error::Cuda`], [`Error::DeviceAfterFork`].
    pub fn version(&self) -> Result<(u32, u32)> {
        self.check_process()?;
        let mut version: c_int = 0;
        // SAFETY: a place for an int.
        let code = unsafe { (self.functions().cuDriverGetVersion)(&raw mut version) };
        self.check("cuDriverGetVersion", None, code)?;
        let version = u32::try_from(version).unwrap_or(0);
        Ok((version / 1000, version % 1000 / 10))
    }

    /// How many devices there are (`CUDA_VISIBLE_DEVICES` counts).
    ///
    /// # Errors
    /// [`Error::Cuda`], [`Error::DeviceAfterFork`].
    pub fn device_count(&self) -> Result<usize> {
        self.check_process()?;
        let mut count: c_int = 0;
        // SAFETY: a place for an int.
        let code = unsafe { (self.functions().cuDeviceGetCount)(&raw mut count) };
        match code {
            NO_DEVICE => Ok(0),
            _ => self.check("cuDeviceGetCount", None, code).map(|()| usize::try_from(count).unwrap_or(0)),
        }
    }

    /// What it was opened as.
    pub fn path(&self) -> &Path {
        self.loaded.library.path()
    }

    /// Where its functions are looked up for code that is loaded for a device.
    pub(crate) fn library(&self) -> &SharedLibrary {
        &self.loaded.library
    }

    pub(super) fn functions(&self) -> &'static Functions {
        &self.loaded.functions
    }

    /// Whether this is the process that has loaded it. No function of the driver may be called in another.
    pub(crate) fn is_ours(&self) -> bool {
        PROCESS.get() == Some(&Process::this())
    }

    pub(crate) fn check_process(&self) -> Result<()> {
        if self.is_ours() { Ok(()) } else { Err(Error::DeviceAfterFork) }
    }

    /// Turns what a function of the driver returned into an error.
    pub(super) fn check(&self, function: &'static str, device: Option<usize>, code: Code) -> Result<()> {
        match code {
            SUCCESS => Ok(()),
            OUT_OF_MEMORY => Err(Error::DeviceOutOfMemory { function, device }),
            _ => Err(self.functions().error(function, device, code)),
        }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("path", &self.path()).finish_non_exhaustive()
    }
}

impl Loaded {
    fn open() -> Result<Self> {
        let library = find()?;
        let functions = Functions::of(&library)
            .map_err(|missing| Error::DriverTooOld { path: library.path().to_owned(), missing })?;
        PROCESS.get_or_init(|| Box::new(Process::this()));
        // SAFETY: the flags have to be 0.
        match unsafe { (functions.cuInit)(0) } {
            SUCCESS => Ok(Self { library, functions }),
            code => {
                let error = match code {
                    NO_DEVICE => Error::NoDevice,
                    _ => functions.error("cuInit", None, code),
                };
                // It may have begun something: it stays, as it would if it had succeeded.
                std::mem::forget(library);
                Err(error)
            }
        }
    }
}

fn find() -> Result<SharedLibrary> {
    let mut messages = Vec::new();
    for name in NAMES {
        // SAFETY: NVIDIA's driver, which programs may open at any time; its initialisers do as those of a library that the program is
        // linked with.
        match unsafe { SharedLibrary::open_local(Path::new(name), &[]) } {
            Ok(library) => return Ok(library),
            Err(Error::SharedLibrary { source, .. }) => messages.push(crate::error::innermost(&source)),
            Err(other) => messages.push(other.to_string()),
        }
    }
    Err(Error::DriverNotFound { messages })
}

impl Functions {
    /// An error with the driver's own name and text of a code.
    fn error(&self, function: &'static str, device: Option<usize>, code: Code) -> Error {
        let text = |function: unsafe extern "C" fn(Code, *mut *const std::ffi::c_char) -> Code| {
            let mut text = std::ptr::null();
            // SAFETY: a place for a pointer. Both functions may be called before cuInit, and give null for a code that they do not know.
            let code = unsafe { function(code, &raw mut text) };
            // SAFETY: a string that is the driver's for good.
            let known = (code == SUCCESS && !text.is_null()).then(|| unsafe { CStr::from_ptr(text) });
            known.map(|text| text.to_string_lossy().into_owned())
        };
        let name = text(self.cuGetErrorName).unwrap_or_else(|| "unknown error".to_owned());
        let text = text(self.cuGetErrorString).unwrap_or_else(|| "the driver has no text for it".to_owned());
        Error::Cuda { function, device, code, name, text }
    }
}
