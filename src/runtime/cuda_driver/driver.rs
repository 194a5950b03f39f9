//! NVIDIA's driver library, libcuda.
#![allow(unsafe_code, reason = "calls the driver")]

use std::ffi::{CStr, c_int};
use std::fmt;
use std::path::Path;

use once_cell::race::OnceBox;

use crate::runtime::SharedLibrary;
use crate::runtime::cuda_driver::functions::{Code, Functions, NO_DEVICE, OUT_OF_MEMORY, SUCCESS};
use crate::{CudaError, Error, LibraryError, Result, fork_guard};

/// NVIDIA's SONAME, and a name that some installations have besides or instead.
const NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

/// NVIDIA's driver, opened and initialised: `libcuda.so.1`, of CUDA 11.0 (R450) or newer.
///
/// It stays open until the process ends.
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

/// The identity of a process; a child of `fork` has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    /// Differs in children of `vfork` and `clone`, which do not run our fork handlers.
    id: u32,
    /// Differs in children with the same number in a namespace of their own.
    generation: u32,
}

impl Process {
    fn this() -> Self {
        Self { id: std::process::id(), generation: fork_guard::generation() }
    }
}

/// The process that has called `cuInit`, successfully or not.
static PROCESS: OnceBox<Process> = OnceBox::new();

/// The driver. Several threads may open it first, and one result counts. No thread waits, so a fork loses nothing.
static LOADED: OnceBox<Loaded> = OnceBox::new();

impl Driver {
    /// Opens the driver as the dynamic loader finds it (`LD_LIBRARY_PATH`, then the system's folders), and initialises
    /// it (`cuInit`): once for the process, but again after an error.
    ///
    /// # Errors
    /// [`CudaError::DriverNotFound`](crate::CudaError::DriverNotFound),
    /// [`CudaError::DriverTooOld`](crate::CudaError::DriverTooOld),
    /// [`CudaError::NoDevice`](crate::CudaError::NoDevice), [`CudaError::Call`](crate::CudaError::Call) with the error
    /// of `cuInit`; [`CudaError::AfterFork`](crate::CudaError::AfterFork) in a child of a process that has tried.
    pub fn load() -> Result<Self> {
        if PROCESS.get().is_some_and(|process| *process != Process::this()) {
            return Err(Error::Cuda(CudaError::AfterFork));
        }
        Ok(Self { loaded: LOADED.get_or_try_init(|| Loaded::open().map(Box::new))? })
    }

    /// Returns the version of CUDA that the driver implements, such as (12, 8).
    ///
    /// # Errors
    /// [`CudaError::Call`](crate::CudaError::Call), [`CudaError::AfterFork`](crate::CudaError::AfterFork).
    pub fn version(&self) -> Result<(u32, u32)> {
        self.check_process()?;
        let mut version: c_int = 0;
        // SAFETY: a place for an int.
        let code = unsafe { (self.functions().cuDriverGetVersion)(&raw mut version) };
        self.check("cuDriverGetVersion", None, code)?;
        let version = u32::try_from(version).unwrap_or(0);
        Ok((version / 1000, version % 1000 / 10))
    }

    /// Returns the number of devices that `CUDA_VISIBLE_DEVICES` leaves.
    ///
    /// # Errors
    /// [`CudaError::Call`](crate::CudaError::Call), [`CudaError::AfterFork`](crate::CudaError::AfterFork).
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

    /// Returns the path or name that it was opened with.
    pub fn path(&self) -> &Path {
        self.loaded.library.path()
    }

    /// Returns the library that code loaded for a device looks the driver's functions up in.
    pub(crate) fn library(&self) -> &SharedLibrary {
        &self.loaded.library
    }

    pub(super) fn functions(&self) -> &'static Functions {
        &self.loaded.functions
    }

    /// Returns whether this process has loaded it. No other process may call its functions.
    pub(crate) fn is_ours(&self) -> bool {
        PROCESS.get() == Some(&Process::this())
    }

    pub(crate) fn check_process(&self) -> Result<()> {
        if self.is_ours() { Ok(()) } else { Err(Error::Cuda(CudaError::AfterFork)) }
    }

    /// Converts the result of a driver function to an error.
    pub(super) fn check(&self, function: &'static str, device: Option<usize>, code: Code) -> Result<()> {
        match code {
            SUCCESS => Ok(()),
            OUT_OF_MEMORY => Err(Error::Cuda(CudaError::DeviceOutOfMemory { function, device })),
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
            .map_err(|missing| Error::Cuda(CudaError::DriverTooOld { path: library.path().to_owned(), missing }))?;
        PROCESS.get_or_init(|| Box::new(Process::this()));
        // SAFETY: the flags are 0, as required.
        match unsafe { (functions.cuInit)(0) } {
            SUCCESS => Ok(Self { library, functions }),
            code => {
                let error = match code {
                    NO_DEVICE => Error::Cuda(CudaError::NoDevice),
                    _ => functions.error("cuInit", None, code),
                };
                // `cuInit` may have started something, so the library stays open, as after a success.
                std::mem::forget(library);
                Err(error)
            }
        }
    }
}

fn find() -> Result<SharedLibrary> {
    let mut messages = Vec::new();
    for name in NAMES {
        // SAFETY: NVIDIA's driver, which programs may open at any time; its initialisers behave like those of a library
        // that the program is linked with.
        match unsafe { SharedLibrary::open_local(Path::new(name), &[]) } {
            Ok(library) => return Ok(library),
            Err(Error::Library(LibraryError::SharedLibrary { source, .. })) => {
                messages.push(crate::error_text::innermost(&*source))
            }
            Err(other) => messages.push(other.to_string()),
        }
    }
    Err(Error::Cuda(CudaError::DriverNotFound { messages }))
}

impl Functions {
    /// Makes an error with the driver's own name and text of a code.
    fn error(&self, function: &'static str, device: Option<usize>, code: Code) -> Error {
        let text = |function: unsafe extern "C" fn(Code, *mut *const std::ffi::c_char) -> Code| {
            let mut text = std::ptr::null();
            // SAFETY: a place for a pointer. Both functions may be called before cuInit, and return null for an unknown
            // code.
            let code = unsafe { function(code, &raw mut text) };
            // SAFETY: a static string of the driver's.
            let known = (code == SUCCESS && !text.is_null()).then(|| unsafe { CStr::from_ptr(text) });
            known.map(|text| text.to_string_lossy().into_owned())
        };
        let name = text(self.cuGetErrorName).unwrap_or_else(|| "unknown error".to_owned());
        let text = text(self.cuGetErrorString).unwrap_or_else(|| "the driver has no text for it".to_owned());
        Error::Cuda(CudaError::Call { function, device, code, name, text })
    }
}
