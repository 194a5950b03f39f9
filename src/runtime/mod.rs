//! Interface to the host: symbols of the process, shared libraries, thread-local storage, and NVIDIA's driver.

#[cfg(feature = "cuda")]
pub(crate) mod cuda_driver;
pub(crate) mod executable_stack;
pub(crate) mod exported;
mod exports;
mod fixed_storage;
mod handle;
pub(crate) mod helpers;
mod image_name;
mod loaded;
mod open_image;
pub(crate) mod process;
mod shared;
pub(crate) mod thread_local;
pub(crate) mod vectors;

pub(crate) use exported::Exported;
pub(crate) use exports::exporters;
pub(crate) use loaded::{LoadedLibrary, loaded_libraries};
pub(crate) use open_image::OpenError;
pub(crate) use shared::SharedLibrary;
