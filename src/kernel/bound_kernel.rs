//! A kernel: a function bound to its signature.

use std::fmt;
use std::sync::Arc;

use crate::kernel::invoke::{Invoke, KernelFunction};
use crate::kernel::kernel_function::FunctionReturn;
use crate::kernel::signature::KernelSignature;
use crate::{Error, KernelError, Result, Symbol};

/// A function that is called through its [`KernelSignature`]. Like its [`Symbol`], it keeps the code alive; clones
/// share it.
#[derive(Clone)]
pub struct Kernel {
    pub(super) signature: KernelSignature,
    pub(super) function: Arc<dyn Invoke>,
}

impl KernelSignature {
    /// Binds a function, if it takes and returns what this signature says.
    ///
    /// A buffer is a pointer to its elements' type or to a type that is not a number (`c_void`); `*mut` if it is
    /// written. Types that Rust lacks are represented by types of the same size (`u16` for
    /// [`F16`](crate::ElementType::F16)). Declare a function's integer parameters for pointers (`CUdeviceptr`) as
    /// pointers; both are passed in the same way.
    ///
    /// # Errors
    /// [`KernelError::FunctionMismatch`](crate::KernelError::FunctionMismatch).
    pub fn bind<F: KernelFunction>(&self, function: Symbol<F>) -> Result<Kernel> {
        self.inner.check_function(&F::parameters(), F::Return::RETURNS)?;
        Ok(Kernel { signature: self.clone(), function: Arc::new(function) })
    }
}

impl Kernel {
    /// Returns its signature.
    pub fn signature(&self) -> &KernelSignature {
        &self.signature
    }

    /// Converts a status to a result.
    pub(super) fn outcome(&self, status: i64) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        Err(Error::Kernel(KernelError::Failed { kernel: self.signature.name().to_owned(), status }))
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("signature", &self.signature).finish_non_exhaustive()
    }
}
