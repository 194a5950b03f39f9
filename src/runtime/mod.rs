//! Interface to the host: symbols of the process, shared libraries, thread-local storage, and NVIDIA's driver.

mod arena_module;
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
mod loader_locks;
mod open_image;
pub(crate) mod process;
mod shared;
pub(crate) mod thread_local;
pub(crate) mod vectors;

pub(crate) use arena_module::{ArenaModule, NotOpened, may_open};
pub(crate) use exported::Exported;
pub(crate) use exports::exporters;
pub(crate) use loaded::{LoadedLibrary, loaded_libraries};
pub(crate) use open_image::OpenError;
#[cfg(feature = "tvm-ffi")]
pub(crate) use open_image::is_image;
pub(crate) use shared::{SearchOrder, SharedLibrary, file_of};
