//! NVIDIA's devices (feature `cuda`): code that is loaded for one, and its end.
//!
//! The driver is found at run time ([`Driver::load`]); where there is none, that is an [`Error`](crate::Error).
//! NVIDIA's runtime libraries are given by the caller
//! ([`LibraryBuilder::shared_library`](crate::LibraryBuilder::shared_library)); nothing of them is provided here.
//!
//! A library that is loaded [for a device](crate::LibraryBuilder::device) finds the driver's functions, and runs its
//! initialisers and finalisers with that device's primary context current.
//! [`Library::initialize_on`](crate::Library::initialize_on) runs what has to be done once for each device. [`Work`]
//! keeps code until the device is done with it.
//!
//! Functions that the driver calls (`cuLaunchHostFunc`) may call nothing of CUDA's: they must not make or remove a
//! library while one waits for [`Work`].
//!
//! A child of `fork` cannot use a driver that its parent has loaded; here every function says so
//! ([`CudaError::AfterFork`](crate::CudaError::AfterFork)).

pub use crate::runtime::cuda_driver::{Current, Device, Driver, Event, Memory, Saved, TuningStream, Work};
