//! Functions of the packed calling convention.
#![allow(unsafe_code, reason = "calls them")]

use std::fmt;
use std::ptr;

use super::{Any, Arguments, FromValue, Runtime, Value};
use crate::tvm_ffi::abi::{TVMFFIAny, TVMFFISafeCallType};
use crate::{Error, Library, Result, Symbol, TvmFfiError};

/// A function `__tvm_ffi_<name>` of a library, which it keeps alive as a [`Symbol`] does.
///
/// It is `Send` and `Sync`; the function itself decides whether several threads may call it at once. Errors belong to
/// threads.
#[derive(Clone)]
pub struct Function {
    name: Box<str>,
    call: Symbol<TVMFFISafeCallType>,
    runtime: Runtime,
}

impl Function {
    /// The prefix of a function's symbol.
    pub const PREFIX: &'static str = "__tvm_ffi_";

    /// Looks up a function by its name, without the prefix, and the [`Runtime`] in which it raises errors.
    ///
    /// # Errors
    /// As for [`Library::get`]: [`LibraryError::SymbolNotFound`](crate::LibraryError::SymbolNotFound),
    /// [`LibraryError::WrongSymbolKind`](crate::LibraryError::WrongSymbolKind) for data, and those of linking and
    /// initialising.
    ///
    /// # Safety
    /// As for [`Library::get`] and [`Runtime::of`]: `__tvm_ffi_<name>` is a `TVMFFISafeCallType`.
    pub unsafe fn get(library: &Library, name: &str) -> Result<Self> {
        // SAFETY: by the caller's contract.
        unsafe {
            let call = library.get(&format!("{}{name}", Self::PREFIX))?;
            Ok(Self { name: name.into(), call, runtime: Runtime::of(library)? })
        }
    }

    /// Calls it, and converts its result to an `R`: see [`Arguments`] and [`FromValue`].
    ///
    /// By the convention, a failing function raises an error and does not return 0. An earlier error that was not taken
    /// counts as that of the next function that fails without raising one.
    ///
    /// # Errors
    /// [`TvmFfiError::Raised`](crate::TvmFfiError::Raised) with the function's error,
    /// [`TvmFfiError::Failed`](crate::TvmFfiError::Failed) if it failed without one;
    /// [`TvmFfiError::Result`](crate::TvmFfiError::Result) if its result is no `R`, which is then dropped;
    /// [`TvmFfiError::Arguments`](crate::TvmFfiError::Arguments) if there are more than 2³¹ − 1 arguments.
    ///
    /// # Safety
    /// - The function may run with these arguments, now and on this thread. It does not unwind: by the convention it
    ///   catches exceptions.
    /// - Returned objects that another library has made are dropped before that library's code is unloaded.
    /// - Pointers in arguments have the types that the function expects. It does not write to a tensor made from a
    ///   shared slice, and keeps no reference to memory that lasts only during the call.
    #[inline]
    pub unsafe fn call<'a, R: FromValue>(&self, arguments: impl Arguments<'a>) -> Result<R> {
        // SAFETY: by the caller's contract.
        let value = arguments.with(|arguments| unsafe { self.call_with(arguments) })?;
        R::from_value(value).map_err(|found| self.unexpected(R::EXPECTED, &found))
    }

    /// # Safety
    /// As for `call`.
    #[inline]
    unsafe fn call_with(&self, arguments: &[Any<'_>]) -> Result<Value> {
        let count = self.count(arguments.len())?;
        let arguments: *const TVMFFIAny = arguments.as_ptr().cast();
        let mut result = Any::NONE;
        // SAFETY: by the caller's contract; an `Any` is a `TVMFFIAny`.
        match unsafe { (self.call)(ptr::null_mut(), arguments, count, result.as_mut_ptr()) } {
            0 => Ok(Value::returned(result, self.call.hold())),
            code => Err(self.runtime.failure(&self.name, code)),
        }
    }

    /// Converts the number of arguments to the convention's type.
    fn count(&self, arguments: usize) -> Result<i32> {
        i32::try_from(arguments).map_err(|_| {
            Error::TvmFfi(TvmFfiError::Arguments {
                library: self.library(),
                function: self.name.to_string(),
                count: arguments,
            })
        })
    }

    #[cold]
    fn unexpected(&self, expected: &'static str, found: &Value) -> Error {
        let found = found.type_index().to_string();
        Error::TvmFfi(TvmFfiError::Result { library: self.library(), function: self.name.to_string(), expected, found })
    }

    fn library(&self) -> String {
        self.call.hold().library().to_string()
    }

    /// Returns its name, without the prefix.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the runtime in which it raises errors.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Returns the symbol.
    pub fn symbol(&self) -> &Symbol<TVMFFISafeCallType> {
        &self.call
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").field("name", &self.name).field("symbol", &self.call).finish_non_exhaustive()
    }
}
