//! NVIDIA's driver, found at run time: devices' primary contexts, and the device work that the end of a library waits
//! for.
//!
//! ```text
//! functions  the driver's functions, by name, with the types of cudarc's bindings
//! driver     libcuda, opened and initialised once for a process
//! device     a primary context, retained while it is used; made current, and restored
//! work       a Drain: streams and events that are polled, and modules that are unloaded after them
//! memory     memory of a device, and copies
//! timing     events, and the time between two of them
//! tuning     memory and time of kernels, for an autotuner
//! ```
//!
//! Only types and signatures come from cudarc: its functions look a name up at their first call, panic if it is
//! missing, and return a Rust enum, for which a newer driver's code would be undefined behaviour. Here all names are
//! looked up at once, and codes are numbers.
//!
//! A child of `fork` cannot use the parent's devices (CUDA C Programming Guide, "Initialization"), so no function of
//! the driver is called there.

mod device;
mod driver;
mod error;
mod functions;
mod memory;
mod timing;
mod tuning;
mod work;

pub use device::{Current, Device};
pub use driver::Driver;
pub use error::{CudaError, DeviceHandleProblem};
pub use memory::Memory;
pub use timing::Event;
pub use tuning::{Saved, TuningStream};
pub use work::Work;
