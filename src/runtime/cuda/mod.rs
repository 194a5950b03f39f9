//! NVIDIA's driver, found at run time: its devices' primary contexts, and what a library's end has to wait for there.
//!
//! ```text
//! functions  the driver's functions, by name, with the types of cudarc's bindings
//! driver     libcuda, opened and initialised once for a process
//! device     a primary context, retained while somebody uses it; made current and put back
//! work       a Drain: streams and events that are polled, and modules that are unloaded after them
//! memory     memory of a device, and copies
//! timing     events, and the time between two of them
//! tuning     memory and time of kernels, for an autotuner
//! ```
//!
//! Of cudarc there are types and signatures: its functions look a name up when they are first called, panic where it is missing, and return
//! a Rust enum, for which a code that a newer driver has added would be undefined behaviour. So names are looked up here, all at once, and
//! codes are numbers.
//!
//! A child of `fork` has nothing of the parent's devices (CUDA C Programming Guide, "Initialization"): no function of the driver is called
//! there.

mod device;
mod driver;
mod functions;
mod memory;
mod timing;
mod tuning;
mod work;

pub use device::{Current, Device};
pub use driver::Driver;
pub use memory::Memory;
pub use timing::Event;
pub use tuning::{Saved, TuningStream};
pub use work::Work;
