//! The one error type: what went wrong, where, and what to do about it. Each room has an enum of its own.

use std::fmt::{self, Write as _};
use std::io;
use std::path::PathBuf;

use crate::cache::CacheError;
use crate::elf::{ImageError, ObjectError};
use crate::error_text::debug;
#[cfg(feature = "inkwell")]
use crate::ir::IrError;
use crate::kernel::KernelError;
use crate::live::error::LinkError;
use crate::live::library::error::LibraryError;
use crate::memory::MemoryError;
#[cfg(feature = "cuda")]
use crate::runtime::cuda_driver::CudaError;
#[cfg(feature = "tvm-ffi")]
use crate::tvm_ffi::TvmFfiError;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong, one enum for each concern.
///
/// `Display` names object, section, offset, relocation and symbol where they apply, repeats LLVM's own words where LLVM
/// spoke, and says what to do next. `Debug` shows the same, and behind it the [sources](std::error::Error::source) that
/// `Display` does not repeat, so that `fn main() -> slabjit::Result<()>` prints what to do. Match on the variants; the
/// texts may change in any release.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes of an object are wrong.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// Objects were not linked, or not initialised.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A library cannot do, open or find what it is asked for.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// An arena has no room, or the system no memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// An object cache on disk is wrong.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// An image is not made or not loaded.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A kernel is not called or not tuned.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// LLVM IR is not compiled to an object.
    #[cfg(feature = "inkwell")]
    #[error(transparent)]
    Ir(#[from] IrError),
    /// A packed function was not called, or raised an error.
    #[cfg(feature = "tvm-ffi")]
    #[error(transparent)]
    TvmFfi(#[from] TvmFfiError),
    /// A device, or the driver, failed.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// A file could not be read.
    #[error("cannot read '{}': {source}", path.display())]
    Io {
        /// The file asked for.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// No candidate of an [`Autotuner`](crate::Autotuner) could be run. Memory is as it was.
    #[error("no candidate could be run for '{key}'{}", none_could_run(candidates))]
    NoCandidate {
        /// The key.
        key: String,
        /// The name of each candidate, and the reason why it could not be run.
        candidates: Vec<(String, Self)>,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(self, f)
    }
}

fn none_could_run(candidates: &[(String, Error)]) -> String {
    if candidates.is_empty() {
        return ": there is none".to_owned();
    }
    candidates.iter().fold(":".to_owned(), |mut s, (candidate, error)| {
        let _ = write!(s, "\n  {candidate}: {error}");
        s
    })
}
