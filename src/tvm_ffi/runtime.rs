//! The runtime in which a library's functions raise errors.
#![allow(unsafe_code, reason = "calls the runtime, and reads its errors")]

use std::ffi::{c_int, c_void};
use std::ptr;

use super::raised::{texts, was_raised};
use super::{Any, Arguments, FromValue, Object, Value};
use crate::tvm_ffi::abi::{DLDevice, TVMFFIAny, TVMFFIByteArray, TVMFFIObject, TypeIndex};
use crate::tvm_ffi::ffi_object::Reference;
use crate::{Error, Library, Result, Symbol, TvmFfiError};

/// The tvm-ffi runtime of a library: functions that the library's imports of these names bind to, or would bind to.
/// They come from libtvm_ffi.so, if the library was given it or the process has it, or from
/// [`LibraryBuilder::tvm_ffi`](crate::LibraryBuilder::tvm_ffi).
#[derive(Debug, Clone)]
pub struct Runtime {
    library: Box<str>,
    move_from_raised: Option<Symbol<unsafe extern "C" fn(*mut *mut TVMFFIObject)>>,
    set_stream: Option<Symbol<unsafe extern "C" fn(i32, i32, *mut c_void, *mut *mut c_void) -> c_int>>,
    get_global: Option<Symbol<unsafe extern "C" fn(*const TVMFFIByteArray, *mut *mut TVMFFIObject) -> c_int>>,
    call: Option<Symbol<unsafe extern "C" fn(*mut c_void, *const TVMFFIAny, i32, *mut TVMFFIAny) -> c_int>>,
}

const GET_GLOBAL: &str = "TVMFFIFunctionGetGlobal";
const CALL: &str = "TVMFFIFunctionCall";

/// A raised error.
pub(super) struct Raised {
    pub(super) kind: String,
    pub(super) message: String,
    pub(super) backtrace: Option<String>,
}

impl Runtime {
    /// Looks up the runtime. A missing function is reported when it is needed.
    ///
    /// # Errors
    /// [`LibraryError::Removed`](crate::LibraryError::Removed).
    ///
    /// # Safety
    /// The library's definitions of `TVMFFI…` conform to `tvm/ffi/c_api.h`.
    pub unsafe fn of(library: &Library) -> Result<Self> {
        // SAFETY: by the caller's contract.
        unsafe {
            Ok(Self {
                library: library.name().into(),
                move_from_raised: library.import("TVMFFIErrorMoveFromRaised")?,
                set_stream: library.import("TVMFFIEnvSetStream")?,
                get_global: library.import(GET_GLOBAL)?,
                call: library.import(CALL)?,
            })
        }
    }

    /// Returns a global function of libtvm_ffi.so or of a library that registers it there, such as `ffi.SystemLib`,
    /// which returns the module of a loaded object.
    ///
    /// # Errors
    /// [`TvmFfiError::Runtime`](crate::TvmFfiError::Runtime) if the library has no libtvm_ffi.so,
    /// [`TvmFfiError::NoGlobal`](crate::TvmFfiError::NoGlobal) if nothing has registered the function.
    pub fn global(&self, name: &str) -> Result<Object> {
        let get_global = self.get_global.as_ref().ok_or_else(|| self.missing(GET_GLOBAL))?;
        let bytes = TVMFFIByteArray { data: name.as_ptr(), size: name.len() };
        let mut function = ptr::null_mut();
        // SAFETY: by the contract of `of`; a name, and a place for a reference.
        match unsafe { get_global(&bytes, &mut function) } {
            0 => {}
            code => return Err(self.failure(GET_GLOBAL, code)),
        }
        // SAFETY: the reference is the caller's.
        let function = unsafe { Reference::owned(function) }.ok_or_else(|| {
            Error::TvmFfi(TvmFfiError::NoGlobal { library: self.library.to_string(), function: name.to_owned() })
        })?;
        Ok(Object::new(function, get_global.hold()))
    }

    /// Calls a function that is an object: [a global one](Self::global), or one that another call has returned, such as
    /// a module's. Errors name it by its type.
    ///
    /// # Errors
    /// As for [`Function::call`](super::Function::call); [`TvmFfiError::Runtime`](crate::TvmFfiError::Runtime) if the
    /// library has no libtvm_ffi.so; [`TvmFfiError::NotAFunction`](crate::TvmFfiError::NotAFunction) for another
    /// object.
    ///
    /// # Safety
    /// As for [`Function::call`](super::Function::call).
    pub unsafe fn call<'a, R: FromValue>(&self, function: &Object, arguments: impl Arguments<'a>) -> Result<R> {
        let call = self.call.as_ref().ok_or_else(|| self.missing(CALL))?;
        if function.type_index() != TypeIndex::FUNCTION {
            let (library, found) = (self.library.to_string(), function.type_index().to_string());
            return Err(Error::TvmFfi(TvmFfiError::NotAFunction { library, found }));
        }
        let name = || TypeIndex::FUNCTION.to_string();
        let value = arguments.with(|arguments: &[Any<'_>]| {
            let count = i32::try_from(arguments.len()).map_err(|_| {
                let (library, count) = (self.library.to_string(), arguments.len());
                Error::TvmFfi(TvmFfiError::Arguments { library, function: name(), count })
            })?;
            let mut result = Any::NONE;
            // SAFETY: by the caller's contract and that of `of`; an `Any` is a `TVMFFIAny`.
            match unsafe { call(function.as_ptr(), arguments.as_ptr().cast(), count, result.as_mut_ptr()) } {
                0 => Ok(Value::returned(result, call.hold())),
                code => Err(self.failure(&name(), code)),
            }
        })?;
        R::from_value(value).map_err(|found| {
            let (library, found) = (self.library.to_string(), found.type_index().to_string());
            Error::TvmFfi(TvmFfiError::Result { library, function: name(), expected: R::EXPECTED, found })
        })
    }

    fn missing(&self, symbol: &'static str) -> Error {
        Error::TvmFfi(TvmFfiError::Runtime { library: self.library.to_string(), symbol })
    }

    /// Sets this thread's stream for functions that use a device, and returns the previous one, null at first.
    ///
    /// # Errors
    /// [`TvmFfiError::Runtime`](crate::TvmFfiError::Runtime) if the runtime has no `TVMFFIEnvSetStream`,
    /// [`TvmFfiError::Raised`](crate::TvmFfiError::Raised) if it fails.
    ///
    /// # Safety
    /// A stream of the device, or null for its default one, which lives while functions are called with it.
    pub unsafe fn set_stream(&self, device: DLDevice, stream: *mut c_void) -> Result<*mut c_void> {
        const NAME: &str = "TVMFFIEnvSetStream";
        let Some(set_stream) = &self.set_stream else {
            return Err(self.missing(NAME));
        };
        let mut before = ptr::null_mut();
        // SAFETY: by the caller's contract, and that of `of`.
        match unsafe { set_stream(device.device_type.0.cast_signed(), device.device_id, stream, &mut before) } {
            0 => Ok(before),
            code => Err(self.failure(NAME, code)),
        }
    }

    /// Makes the error of a function that did not return 0.
    #[cold]
    pub(super) fn failure(&self, function: &str, code: c_int) -> Error {
        let (library, function) = (self.library.to_string(), function.to_owned());
        match self.take_raised() {
            Some(Raised { kind, message, backtrace }) => {
                Error::TvmFfi(TvmFfiError::Raised { library, function, kind, message, backtrace })
            }
            None => Error::TvmFfi(TvmFfiError::Failed { library, function, code }),
        }
    }

    fn take_raised(&self) -> Option<Raised> {
        let mut error = ptr::null_mut();
        // SAFETY: by the contract of `of`; a place for a pointer.
        unsafe { self.move_from_raised.as_ref()?(&mut error) };
        // SAFETY: the reference that was moved out of the runtime.
        let error = unsafe { Reference::owned(error)? };
        if error.type_index() != TypeIndex::ERROR {
            return Some(Raised { kind: String::new(), message: was_raised(error.type_index()), backtrace: None });
        }
        // SAFETY: it is an error, and its bytes are copied.
        let [kind, message, backtrace] =
            unsafe { texts(&error) }.map(|text| String::from_utf8_lossy(text).into_owned());
        let backtrace = Some(backtrace).filter(|text| !text.is_empty());
        Some(Raised { kind, message, backtrace })
    }
}
