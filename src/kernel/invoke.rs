//! Functions that may be kernels, and the passing of words to them.
#![allow(unsafe_code, reason = "calls loaded functions")]

use super::element::Word;
use crate::Symbol;
use crate::kernel::kernel_function::{FunctionParameter, FunctionParameterKind, FunctionReturn, sealed};

/// A C function that may be a kernel: `extern "C"`, with up to 32 arguments that are [`Scalar`](crate::Scalar)s or
/// pointers, and with no result or a status ([`FunctionReturn`]).
pub trait KernelFunction: Copy + Send + Sync + 'static + sealed::Sealed {
    #[doc(hidden)]
    type Return: FunctionReturn;
    #[doc(hidden)]
    fn parameters() -> Vec<FunctionParameterKind>;
    /// # Safety
    /// As for the function, with the values of the words. There are as many words as parameters.
    #[doc(hidden)]
    unsafe fn invoke(self, words: &[Word]) -> Self::Return;
}

macro_rules! function {
    ([$($safety:tt)?] $($name:ident)*) => {
        impl<Returned, $($name),*> sealed::Sealed for $($safety)? extern "C" fn($($name),*) -> Returned {}

        impl<Returned: FunctionReturn, $($name: FunctionParameter),*> KernelFunction
            for $($safety)? extern "C" fn($($name),*) -> Returned
        {
            type Return = Returned;

            fn parameters() -> Vec<FunctionParameterKind> {
                vec![$($name::kind()),*]
            }

            #[allow(non_snake_case, unused_unsafe, reason = "one macro for all")]
            unsafe fn invoke(self, words: &[Word]) -> Returned {
                let &[$($name),*] = words else { unreachable!("a call has as many words as the signature arguments") };
                // SAFETY: by the caller's contract.
                unsafe { self($($name::from_word($name)),*) }
            }
        }
    };
}

/// Implements the trait for each number of arguments.
macro_rules! functions {
    ($($first:ident $($rest:ident)*)?) => {
        function!([unsafe] $($first $($rest)*)?);
        function!([] $($first $($rest)*)?);
        $(functions!($($rest)*);)?
    };
}

functions!(A0 A1 A2 A3 A4 A5 A6 A7 A8 A9 A10 A11 A12 A13 A14 A15 A16 A17 A18 A19 A20 A21 A22 A23 A24 A25 A26 A27 A28 A29 A30 A31);

/// A function of any type.
pub(super) trait Invoke: Send + Sync {
    /// Calls the function and returns its status.
    ///
    /// # Safety
    /// As for [`KernelFunction::invoke`].
    unsafe fn invoke(&self, words: &[Word]) -> i64;
}

impl<F: KernelFunction> Invoke for Symbol<F> {
    unsafe fn invoke(&self, words: &[Word]) -> i64 {
        // SAFETY: by the caller's contract; the symbol keeps the code.
        unsafe { self.as_raw().invoke(words) }.status()
    }
}
