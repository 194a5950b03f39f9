//! The runtime in which a library's functions raise errors.
#![allow(unsafe_code, reason = "calls the runtime, and reads its errors")]

use std::ffi::{c_int, c_void};
use std::ptr;

use super::raised::{texts, was_raised};
use crate::tvm_ffi::abi::{DLDevice, TVMFFIObject, TypeIndex};
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
}

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
        let (move_from_raised, set_stream) =
            unsafe { (library.import("TVMFFIErrorMoveFromRaised")?, library.import("TVMFFIEnvSetStream")?) };
        Ok(Self { library: library.name().into(), move_from_raised, set_stream })
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
            return Err(Error::TvmFfi(TvmFfiError::Runtime { library: self.library.to_string(), symbol: NAME }));
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
