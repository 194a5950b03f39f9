//! Symbols of the host: the process and shared libraries.

mod fixed_storage;
mod image_name;
mod loaded;
pub(crate) mod process;
mod shared;
pub(crate) mod thread_local;

pub(crate) use loaded::{LoadedLibrary, loaded_libraries};
pub(crate) use shared::SharedLibrary;
