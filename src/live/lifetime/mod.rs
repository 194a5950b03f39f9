//! References to a library's code, its unloading, and its exit handlers and finalisers.

pub(crate) mod atexit;
pub(crate) mod backtrace;
pub(crate) mod code_ref;
pub(crate) mod cycles;
#[cfg(feature = "cuda")]
pub(crate) mod devices;
pub(crate) mod entry_points;
pub(crate) mod exit_handlers;
pub(crate) mod exporting;
pub(crate) mod init_lock;
pub(crate) mod leaving;
pub(crate) mod loaded_library;
pub(crate) mod own_symbols;
#[cfg(feature = "tvm-ffi")]
pub(crate) mod raising;
pub(crate) mod refcount;
pub(crate) mod registry;
pub(crate) mod thread_atexit;
pub(crate) mod unload_waits;
pub(crate) mod wakeup;
