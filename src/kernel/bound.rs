//! A function together with its contract.

use std::fmt;
use std::sync::Arc;

use super::function::FunctionReturn;
use super::invoke::{Invoke, KernelFunction};
use super::signature::KernelSignature;
use crate::{Error, Result, Symbol};

/// A function that is called through its [`KernelSignature`]. It keeps the code alive, as the [`Symbol`] does. Clones share it.
#[derive(Clone)]
pub struct Kernel {
    pub(super) signature: KernelSignature,
    pub(super) function: Arc<dyn Invoke>,
}

impl KernelSignature {
    /// The kernel that a function is, if it takes and returns what this signature says.
    ///
    /// A buffer is a pointer: `*mut` where it is written, to its elements' type or to something that is no number (`c_void`). Types that
    /// Rust lacks are those of the same size (`u16` for [`F16`](crate::ElementType::F16)). Declare pointers that a function takes as
    /// integers (`CUdeviceptr`) as pointers; they are passed in the same way.
    ///
    /// # Errors
    /// [`Error::FunctionMismatch`].
    pub fn bind<F: KernelFunction>(&self, function: Symbol<F>) -> Result<Kernel> {
        self.inner.check_function(&F::parameters(), F::Return::RETURNS)?;
        Ok(Kernel { signature: self.clone(), function: Arc::new(function) })
    }
}

impl Kernel {
    /// What it takes.
    pub fn signature(&self) -> &KernelSignature {
        &self.signature
    }

    /// What a status says.
    pub(super) fn outcome(&self, status: i64) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        Err(Error::KernelFailed { kernel: self.signature.name().to_owned(), status })
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("signature", &self.signature).finish_non_exhaustive()
    }
}
