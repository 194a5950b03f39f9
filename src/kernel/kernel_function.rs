//! Parameter and return types of kernel functions, and their comparison with a signature.

use std::any::type_name;
use std::fmt;

use crate::kernel::element::{ElementType, Scalar, ScalarType, Word};
use crate::kernel::signature::{Inner, Kind, Returns};
use crate::{Error, KernelError, Result};

/// The type of a C function's parameter: a [`Scalar`], or a pointer.
pub trait FunctionParameter: Copy + 'static + sealed::Sealed {
    #[doc(hidden)]
    fn kind() -> FunctionParameterKind;
    #[doc(hidden)]
    fn from_word(word: Word) -> Self;
}

#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct FunctionParameterKind(Taken);

#[derive(Debug, Clone, Copy)]
enum Taken {
    Scalar(ScalarType),
    Pointer { to: &'static str, mutable: bool, may_hold: fn(ElementType) -> bool },
}

impl<T: Scalar> FunctionParameter for T {
    fn kind() -> FunctionParameterKind {
        FunctionParameterKind(Taken::Scalar(T::TYPE))
    }

    fn from_word(word: Word) -> Self {
        Scalar::from_word(word)
    }
}

impl<T: 'static> FunctionParameter for *const T {
    fn kind() -> FunctionParameterKind {
        FunctionParameterKind(pointer::<T>(false))
    }

    fn from_word(word: Word) -> Self {
        word.cast_const().cast()
    }
}

impl<T: 'static> FunctionParameter for *mut T {
    fn kind() -> FunctionParameterKind {
        FunctionParameterKind(pointer::<T>(true))
    }

    fn from_word(word: Word) -> Self {
        word.cast()
    }
}

fn pointer<T: 'static>(mutable: bool) -> Taken {
    Taken::Pointer { to: type_name::<T>(), mutable, may_hold: ElementType::is_pointee::<T> }
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scalar(kind) => write!(f, "a scalar, {kind}"),
            Self::Pointer { to, mutable, .. } => write!(f, "*{} {to}", if *mutable { "mut" } else { "const" }),
        }
    }
}

/// The return type of a kernel's function: none, or a status (`int`, or an unsigned one such as `CUresult`).
pub trait FunctionReturn: 'static + sealed::Sealed {
    #[doc(hidden)]
    const RETURNS: Returns;
    /// Returns the status, which is 0 for success.
    #[doc(hidden)]
    fn status(self) -> i64;
}

impl FunctionReturn for () {
    const RETURNS: Returns = Returns::Nothing;
    fn status(self) -> i64 {
        0
    }
}

impl FunctionReturn for i32 {
    const RETURNS: Returns = Returns::Status;
    fn status(self) -> i64 {
        self.into()
    }
}

impl FunctionReturn for u32 {
    const RETURNS: Returns = Returns::Status;
    fn status(self) -> i64 {
        self.into()
    }
}

/// Traits that only this crate implements, for kernel functions and their parts.
pub(super) mod sealed {
    pub trait Sealed {}

    impl<T: crate::kernel::Scalar> Sealed for T {}
    impl<T> Sealed for *const T {}
    impl<T> Sealed for *mut T {}
    impl Sealed for () {}
}

impl Inner {
    /// Checks that the signature matches a function's parameters and result.
    pub(super) fn check_function(&self, takes: &[FunctionParameterKind], returns: Returns) -> Result<()> {
        let mismatch = |argument: Option<&str>, problem: String| {
            let (kernel, argument) = (self.name.clone(), argument.map(str::to_owned));
            Err(Error::Kernel(KernelError::FunctionMismatch { kernel, argument, problem }))
        };
        if takes.len() != self.parameters.len() {
            let (taken, expected) = (takes.len(), self.parameters.len());
            return mismatch(None, format!("the function takes {taken} arguments, the signature has {expected}"));
        }
        for (parameter, FunctionParameterKind(taken)) in self.parameters.iter().zip(takes) {
            let fits = match (&parameter.kind, taken) {
                (Kind::Scalar(ScalarType::Pointer), Taken::Pointer { .. }) => true,
                (Kind::Scalar(expected), Taken::Scalar(taken)) => expected == taken,
                (Kind::Buffer(buffer), Taken::Pointer { mutable, may_hold, .. }) => {
                    may_hold(buffer.element) && (*mutable || !buffer.access.writes())
                }
                _ => false,
            };
            if !fits {
                let problem = format!("the function takes {taken}, the signature has {}", parameter.kind);
                return mismatch(Some(&parameter.name), problem);
            }
        }
        if returns != self.returns {
            let problem = match returns {
                Returns::Status => {
                    "the function returns an integer; say with KernelSignatureBuilder::status that it is one"
                }
                Returns::Nothing => "the function returns nothing, the signature has a status",
            };
            return mismatch(None, problem.to_owned());
        }
        Ok(())
    }
}
