//! Functions of the packed calling convention.
#![allow(unsafe_code)] // calls them

use std::fmt;
use std::ptr;

use super::abi::{TVMFFIAny, TVMFFISafeCallType};
use super::{Any, Arguments, FromValue, Runtime, Value};
use crate::{Error, Library, Result, Symbol};

/// A function `__tvm_ffi_<name>` of a library, which it keeps alive as a [`Symbol`] does.
///
/// It is `Send` and `Sync`; whether it may be called by several threads at once is the function's own matter. Errors belong to threads.
#[derive(Clone)]
pub struct Function {
    name: Box<str>,
    call: Symbol<TVMFFISafeCallType>,
    runtime: Runtime,
}

impl Function {
    /// What comes before the name of a function in that of its symbol.
    pub const PREFIX: &'static str = "__tvm_ffi_";

    /// Looks a function up by its name, without the prefix, and the [`Runtime`] that it raises errors in.
    ///
    /// # Errors
    /// As for [`Library::get`]: [`Error::SymbolNotFound`], [`Error::WrongSymbolKind`] for data, and those of linking and initialising.
    ///
    /// # Safety
    /// As for [`Library::get`] and [`Runtime::of`]: `__tvm_ffi_<name>` is a `TVMFFISafeCallType`.
    pub unsafe fn get(library: &Library, name: &str) -> Result<Self> {
        // SAFETY: by the caller.
        unsafe {
            let call = library.get(&format!("{}{name}", Self::PREFIX))?;
            Ok(Self { name: name.into(), call, runtime: Runtime::of(library)? })
        }
    }

    /// Calls it, and takes its result for an `R`: see [`Arguments`] and [`FromValue`].
    ///
    /// By the convention, a function that fails raises an error and returns something else than 0. One that was raised before and left there
    /// counts as that of the next function that fails and raises none.
    ///
    /// # Errors
    /// [`Error::TvmFfiRaised`] with what the function raised, [`Error::TvmFfiFailed`] if it failed without; [`Error::TvmFfiResult`] if its
    /// result is no `R`; [`Error::TvmFfiArguments`] if there are more than 2³¹ − 1 arguments. A result that is not returned is let
    /// go of.
    ///
    /// # Safety
    /// - The function may be run with these arguments, now and by this thread. It does not unwind: the convention has it catch exceptions.
    /// - Objects that it returns and another library has made are dropped before that library's code goes.
    /// - Pointers in arguments are what the function takes them for. It writes to no tensor that was made of a shared slice, and
    ///   keeps nothing that is only there during the call.
    #[inline]
    pub unsafe fn call<'a, R: FromValue>(&self, arguments: impl Arguments<'a>) -> Result<R> {
        // SAFETY: by the caller.
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
        // SAFETY: by the caller; an `Any` is a `TVMFFIAny`.
        match unsafe { (self.call)(ptr::null_mut(), arguments, count, result.as_mut_ptr()) } {
            0 => Ok(Value::returned(result, self.call.hold())),
            code => Err(self.runtime.failure(&self.name, code)),
        }
    }

    /// As the convention counts.
    fn count(&self, arguments: usize) -> Result<i32> {
        i32::try_from(arguments).map_err(|_| Error::TvmFfiArguments {
            library: self.library(),
            function: self.name.to_string(),
            count: arguments,
        })
    }

    #[cold]
    fn unexpected(&self, expected: &'static str, found: &Value) -> Error {
        let found = found.type_index().to_string();
        Error::TvmFfiResult { library: self.library(), function: self.name.to_string(), expected, found }
    }

    fn library(&self) -> String {
        self.call.hold().library().to_string()
    }

    /// Its name, without the prefix.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The runtime that it raises errors in.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The symbol.
    pub fn symbol(&self) -> &Symbol<TVMFFISafeCallType> {
        &self.call
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").field("name", &self.name).field("symbol", &self.call).finish_non_exhaustive()
    }
}
