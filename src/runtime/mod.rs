//! Symbols of the host: the process and shared libraries.

pub(crate) mod process;
mod shared;

pub(crate) use shared::SharedLibrary;
