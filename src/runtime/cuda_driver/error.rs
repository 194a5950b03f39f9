//! Errors of CUDA devices.

use std::fmt;
use std::path::PathBuf;

use crate::error_text::debug;

/// An error of a device or of the driver.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// There is no CUDA driver.
    #[error("there is no CUDA driver: {}; install NVIDIA's driver, or start the container with the devices (--gpus all), or set LD_LIBRARY_PATH to libcuda's folder", messages.join("; "))]
    DriverNotFound {
        /// The dynamic loader's message for each name that was tried.
        messages: Vec<String>,
    },

    /// The driver lacks a function that this crate calls.
    #[error("the CUDA driver '{}' is too old: it has no {missing}; install one of CUDA 11.0 (R450) or newer", path.display())]
    DriverTooOld {
        /// The path or name that it was opened with.
        path: PathBuf,
        /// The first missing function.
        missing: &'static str,
    },

    /// The driver knows no device.
    #[error(
        "the CUDA driver finds no device; look at nvidia-smi, at CUDA_VISIBLE_DEVICES, and whether the container was \
         given one (--gpus all)"
    )]
    NoDevice,

    /// The ordinal exceeds the number of devices.
    #[error("there is no device {ordinal}: there are {count}, counted from 0 (CUDA_VISIBLE_DEVICES says which)")]
    NoSuchDevice {
        /// The requested ordinal.
        ordinal: usize,
        /// The number of devices.
        count: usize,
    },

    /// The device's memory, or the driver's on the host, is exhausted (`CUDA_ERROR_OUT_OF_MEMORY`).
    #[error(
        "{function} failed{}: out of memory (CUDA_ERROR_OUT_OF_MEMORY); free some, or look at nvidia-smi for who has \
         it",
        of_device(device)
    )]
    DeviceOutOfMemory {
        /// The driver's function.
        function: &'static str,
        /// The device's ordinal, if known.
        device: Option<usize>,
    },

    /// A function of the driver failed. The error may come from earlier work on the device.
    #[error("{function} failed{}: {name} ({code}): {text}{}", of_device(device), cuda_advice(*code))]
    Call {
        /// The function.
        function: &'static str,
        /// The device's ordinal, if known.
        device: Option<usize>,
        /// The `CUresult`.
        code: u32,
        /// The driver's name of the code.
        name: String,
        /// The driver's description of the code.
        text: String,
    },

    /// A child of `fork` asked for a device, a driver or memory of its parent.
    #[error(
        "CUDA cannot be used in a child of fork whose parent has loaded the driver; load it in the child first, or \
         have the child execute a program (exec)"
    )]
    AfterFork,

    /// A handle cannot be waited for.
    #[error("{}", device_handle(handle, *problem))]
    DeviceHandle {
        /// The kind of handle.
        handle: &'static str,
        /// The problem.
        problem: DeviceHandleProblem,
    },

    /// A library's initialisation on a device failed; see [`Library::initialize_on`](crate::Library::initialize_on).
    #[error(
        "initialising library '{library}' on device {device} failed: {source}; it is tried again when it is next \
         asked for"
    )]
    DeviceInitialization {
        /// The library.
        library: String,
        /// The device's ordinal.
        device: usize,
        /// The error that the caller's function returned.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl fmt::Debug for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(self, f)
    }
}

/// The problem with a handle of the driver's; see [`CudaError::DeviceHandle`](crate::CudaError::DeviceHandle).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceHandleProblem {
    /// The handle is null.
    Null,
    /// The handle is `CU_STREAM_PER_THREAD`, which stands for another stream on each thread.
    PerThread,
}

fn device_handle(handle: &str, problem: DeviceHandleProblem) -> String {
    match problem {
        DeviceHandleProblem::Null => format!("a {handle} was given that is null"),
        DeviceHandleProblem::PerThread => format!(
            "{handle} was given, which is another stream on each thread that asks; record an event in it \
             (cuEventRecord), and give that to Work::event"
        ),
    }
}

fn of_device(device: &Option<usize>) -> String {
    device.map_or_else(String::new, |device| format!(" for device {device}"))
}

/// Returns advice for a `CUresult`, whose numbers do not change.
fn cuda_advice(code: u32) -> &'static str {
    match code {
        34 => "; this libcuda is the toolkit's, for linking only: take its folder out of LD_LIBRARY_PATH",
        222 => "; the PTX is newer than the driver: make it for an older version of PTX, or update the driver",
        700 | 702 | 710 | 714..=719 => {
            "; the context is lost, and every call fails so from now on: find the kernel at fault with \
             compute-sanitizer, and start the process again"
        }
        803 | 804 => {
            "; the driver's library is not the kernel module's: restart the machine after an update, or do not mix \
             containers' libraries with it"
        }
        _ => "",
    }
}
