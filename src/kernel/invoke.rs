//! Functions that may be kernels, and how words are passed to them.
#![allow(unsafe_code)] // calls loaded functions

use super::element::Word;
use super::function::{FunctionParameter, FunctionParameterKind, FunctionReturn, sealed};
use crate::Symbol;

/// A C function that may be a kernel: `extern "C"`, with up to 32 arguments, which are [`Scalar`](crate::Scalar)s and pointers, and that
/// returns nothing or a status ([`FunctionReturn`]).
pub trait KernelFunction: Copy + Send + Sync + 'static + sealed::Sealed {
    #[doc(hidden)]
    type Return: FunctionReturn;
    #[doc(hidden)]
    fn parameters() -> Vec<FunctionParameterKind>;
    /// # Safety
    /// As for the function, with what the words stand for. They are as many as it takes.
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

            #[allow(non_snake_case, unused_unsafe)] // one macro for all
            unsafe fn invoke(self, words: &[Word]) -> Returned {
                let &[$($name),*] = words else { unreachable!("a call has as many words as the signature arguments") };
                // SAFETY: by the caller.
                unsafe { self($($name::from_word($name)),*) }
            }
        }
    };
}

/// For each number of arguments.
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
    /// Its status.
    ///
    /// # Safety
    /// As for [`KernelFunction::invoke`].
    unsafe fn invoke(&self, words: &[Word]) -> i64;
}

impl<F: KernelFunction> Invoke for Symbol<F> {
    unsafe fn invoke(&self, words: &[Word]) -> i64 {
        // SAFETY: by the caller; the symbol keeps the code.
        unsafe { self.as_raw().invoke(words) }.status()
    }
}
