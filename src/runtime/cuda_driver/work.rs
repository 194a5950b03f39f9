//! Device work that the end of a library waits for.
#![allow(unsafe_code, reason = "calls the driver")]

use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::Mutex;

use cudarc::driver::sys::{CUevent, CUmodule, CUstream, CUstreamCaptureMode};

use crate::runtime::cuda_driver::Device;
use crate::runtime::cuda_driver::device::report;
use crate::runtime::cuda_driver::functions::{CAPTURE_IMPLICIT, CAPTURED_EVENT, Code, NOT_READY, SUCCESS};
use crate::{CudaError, DeviceHandleProblem, Drain, Error, Result};

/// Work on a device that uses a library's code or data, as a [`Drain`]: the library stays until all given streams and
/// events have finished; then the given modules are unloaded, and its memory is freed.
///
/// ```no_run
/// # use std::ffi::c_void;
/// # use slabjit::{Library, cuda::Device};
/// # fn drain(library: &Library, device: &Device, stream: *mut c_void, module: *mut c_void) -> slabjit::Result<()> {
/// use slabjit::cuda::Work;
///
/// // SAFETY: the stream lives until the library has gone, and nobody else unloads the module.
/// library.drain(unsafe { Work::on(device).stream(stream)?.module(module)? })?;
/// library.remove(); // Removal::Waiting, while the stream is busy
/// # Ok(())
/// # }
/// ```
///
/// While something else holds the library (a [`Symbol`](crate::Symbol), a library that is linked with it), it has not
/// finished, and the driver is not asked. Then streams and events are polled (`cuStreamQuery`, `cuEventQuery`), without
/// blocking. Graph captures of other threads are not disturbed, and a stream under capture counts as busy. After an
/// error of the driver, which a failed launch causes until the end of the process, the memory is kept, the error is
/// reported once (`tracing`, at error level), and polling continues: [`Library::remove`](crate::Library::remove)
/// returns `Waiting`, and [`remove_and_wait`](crate::Library::remove_and_wait) times out. A module whose unloading
/// failed is not unloaded again, and keeps the memory for good. A child of `fork` does not ask the driver, and keeps
/// the memory.
///
/// If it is dropped before it was given to a library, it waits for nothing and unloads nothing.
pub struct Work {
    device: Device,
    /// Taken by the polling thread; no thread waits for it.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    streams: Vec<CUstream>,
    events: Vec<CUevent>,
    modules: Vec<CUmodule>,
    /// Whether a module could not be unloaded.
    failed: bool,
    /// Whether everything has finished. Streams and events may be destroyed since.
    finished: bool,
    /// The error that was reported last.
    reported: String,
}

// SAFETY: handles of the driver, which threads may share.
unsafe impl Send for State {}

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;

impl Work {
    /// Creates an empty one.
    pub fn on(device: &Device) -> Self {
        Self { device: device.clone(), state: Mutex::default() }
    }

    /// Adds a stream to wait for, with all its work at the time of polling: a `CUstream`, or `cudaStream_t`, which is
    /// the same. Null is the legacy default stream.
    ///
    /// The caller still owns it.
    ///
    /// # Errors
    /// [`CudaError::DeviceHandle`](crate::CudaError::DeviceHandle) for `CU_STREAM_PER_THREAD`, which is another stream
    /// on each thread: record an event in it, and add that.
    ///
    /// # Safety
    /// It is a stream of the device's primary context, and is not destroyed before this has finished.
    pub unsafe fn stream(mut self, stream: *mut c_void) -> Result<Self> {
        if stream.addr() == PER_THREAD {
            return Err(Error::Cuda(CudaError::DeviceHandle {
                handle: "CU_STREAM_PER_THREAD",
                problem: DeviceHandleProblem::PerThread,
            }));
        }
        self.state().streams.push(stream.cast());
        Ok(self)
    }

    /// Adds an event to wait for (`CUevent`, `cudaEvent_t`), in its last recording at the time of polling.
    ///
    /// The caller still owns it.
    ///
    /// # Errors
    /// [`CudaError::DeviceHandle`](crate::CudaError::DeviceHandle) if it is null.
    ///
    /// # Safety
    /// It is an event of the device's primary context, was recorded last in a stream that was not being captured, and
    /// is not destroyed before this has finished.
    pub unsafe fn event(mut self, event: *mut c_void) -> Result<Self> {
        not_null("CUevent", event)?;
        self.state().events.push(event.cast());
        Ok(self)
    }

    /// Adds a module (`CUmodule`) to unload after everything else, and after the modules that are added later.
    ///
    /// # Errors
    /// [`CudaError::DeviceHandle`](crate::CudaError::DeviceHandle) if it is null.
    ///
    /// # Safety
    /// It is a module of the device's primary context, and this owns it from now on: no other code unloads it, the
    /// library's finalisers included, and none of its code runs in other streams than those added here.
    pub unsafe fn module(mut self, module: *mut c_void) -> Result<Self> {
        not_null("CUmodule", module)?;
        self.state().modules.push(module.cast());
        Ok(self)
    }

    fn state(&mut self) -> &mut State {
        self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns whether all streams and events have finished and all modules are unloaded.
    fn finish(&self, state: &mut State) -> Result<bool> {
        let _current = self.device.make_current()?;
        let _relaxed = Relaxed::set(&self.device)?;
        let functions = self.device.driver().functions();
        for &stream in &state.streams {
            let mut capturing = 0_u32;
            // SAFETY: streams of this context, by the contract of `stream`. The status is a C enum.
            unsafe {
                // A query would end a capture of the stream.
                let code = (functions.cuStreamIsCapturing)(stream, (&raw mut capturing).cast());
                if !self.is_over("cuStreamIsCapturing", code)? || capturing != 0 {
                    return Ok(false);
                }
                if !self.is_over("cuStreamQuery", (functions.cuStreamQuery)(stream))? {
                    return Ok(false);
                }
            }
        }
        for &event in &state.events {
            // SAFETY: events of this context, by the contract of `event`.
            if !self.is_over("cuEventQuery", unsafe { (functions.cuEventQuery)(event) })? {
                return Ok(false);
            }
        }
        while let Some(module) = state.modules.pop() {
            // SAFETY: ours, by the contract of `module`, and none of its code runs; unloaded once, whatever the driver
            // returns.
            let code = unsafe { (functions.cuModuleUnload)(module) };
            state.failed |= code != SUCCESS;
            self.device.check("cuModuleUnload", code)?;
        }
        Ok(!state.failed)
    }

    /// Interprets a query's code. Success is an answer, and so is "not ready", also for a stream that waits for a
    /// legacy default stream under capture.
    fn is_over(&self, function: &'static str, code: Code) -> Result<bool> {
        match code {
            NOT_READY | CAPTURE_IMPLICIT | CAPTURED_EVENT => Ok(false),
            _ => self.device.check(function, code).map(|()| true),
        }
    }
}

fn not_null(handle: &'static str, pointer: *mut c_void) -> Result<()> {
    if pointer.is_null() {
        Err(Error::Cuda(CudaError::DeviceHandle { handle, problem: DeviceHandleProblem::Null }))
    } else {
        Ok(())
    }
}

impl Drain for Work {
    /// Returns false: a holder of the code may launch more work from the modules.
    fn is_finished_while_held(&self) -> bool {
        false
    }

    fn is_finished(&self) -> bool {
        // In a child another thread's copy of the lock may be taken; in the same process another polling thread acts on
        // the answer.
        if !self.device.driver().is_ours() {
            return false;
        }
        let Ok(mut state) = self.state.try_lock() else { return false };
        if state.failed || state.finished {
            return state.finished;
        }
        let error = match self.finish(&mut state) {
            Ok(finished) => {
                state.finished = finished;
                return finished;
            }
            Err(error) => error.to_string(),
        };
        // Repeated polling would repeat the report.
        let is_new = state.reported != error;
        state.reported.clone_from(&error);
        drop(state);
        if is_new {
            tracing::error!(target: "slabjit", error, "work on a device does not come to its end; the library's memory is kept");
        }
        false
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").field("device", &self.device).finish_non_exhaustive()
    }
}

/// A relaxed capture mode of this thread. Another thread's capture may forbid disturbing calls of all threads, such as
/// an event query; these queries disturb none.
struct Relaxed<'a> {
    device: &'a Device,
    previous: u32,
}

impl<'a> Relaxed<'a> {
    fn set(device: &'a Device) -> Result<Self> {
        let mut previous = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as u32;
        device.check("cuThreadExchangeStreamCaptureMode", exchange(device, &mut previous))?;
        Ok(Self { device, previous })
    }
}

/// Exchanges the thread's mode for the given one.
fn exchange(device: &Device, mode: &mut u32) -> Code {
    // SAFETY: a mode, which is replaced by the previous one. It is a C enum.
    unsafe { (device.driver().functions().cuThreadExchangeStreamCaptureMode)(ptr::from_mut(mode).cast()) }
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        let code = exchange(self.device, &mut self.previous);
        report(self.device.check("cuThreadExchangeStreamCaptureMode", code), code);
    }
}
