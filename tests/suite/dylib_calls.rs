//! Looks up and calls what the tests of `slabjit::orc` define.

use slabjit::orc::Dylib;
use slabjit::{Error, LinkError, Symbol};

/// The type of the tests' functions.
pub type Int = unsafe extern "C" fn(i32) -> i32;

pub fn find(dylib: &Dylib, name: &str) -> slabjit::Result<Symbol<Int>> {
    // SAFETY: the tests' functions are of this type, and their initialisers may run.
    unsafe { dylib.get::<Int>(name) }
}

pub fn call(dylib: &Dylib, name: &str, n: i32) -> i32 {
    let function = find(dylib, name).unwrap();
    // SAFETY: of this type.
    unsafe { function(n) }
}

/// The error that a failed look-up names as its cause.
pub fn cause(error: &Error) -> &Error {
    let Error::Link(LinkError::SymbolFailed { cause, .. }) = error else { panic!("{error:?}") };
    cause.downcast_ref().unwrap()
}
