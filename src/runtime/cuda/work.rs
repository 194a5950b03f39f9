//! What a library's end waits for on a device.
#![allow(unsafe_code)] // calls the driver

use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::Mutex;

use cudarc::driver::sys::{CUevent, CUmodule, CUstream, CUstreamCaptureMode};

use super::Device;
use super::device::report;
use super::functions::{CAPTURE_IMPLICIT, CAPTURED_EVENT, Code, NOT_READY, SUCCESS};
use crate::{Drain, Error, Result};

/// Work on a device that uses a library's code or data, as a [`Drain`]: the library stays until all of the streams and events that are
/// given here have come to their end, then the modules that are given here are unloaded, and then its memory goes.
///
/// ```no_run
/// # use std::ffi::c_void;
/// # use slabjit::{Library, cuda::Device};
/// # fn drain(library: &Library, device: &Device, stream: *mut c_void, module: *mut c_void) -> slabjit::Result<()> {
/// use slabjit::cuda::Work;
///
/// // SAFETY: the stream lives until the library has gone, and nobody else unloads the module.
/// library.drain(unsafe { Work::on(device).stream(stream)?.module(module)? })?;
/// library.remove()?; // Removal::Waiting, while the stream is busy
/// # Ok(())
/// # }
/// ```
///
/// While something else holds the library (a [`Symbol`](crate::Symbol), a library that is linked with it), it has not finished, and the driver is
/// not asked. Then streams and events are polled (`cuStreamQuery`, `cuEventQuery`), and nothing blocks. Captures of graphs by other threads are not
/// disturbed, and a stream that is being captured counts as busy. Where the driver answers with an error, which after a failed launch it does
/// to the end of the process, the memory is kept, the error is reported once (`tracing`, at error level), and it is asked again:
/// [`Library::remove`](crate::Library::remove) says `Waiting`, [`remove_and_wait`](crate::Library::remove_and_wait) runs into its timeout.
/// A module whose unloading failed is not unloaded again, and keeps the memory for good. In a child of `fork` the driver is not asked, and
/// what waits is kept.
///
/// What is dropped before it was given to a library waits for nothing and unloads nothing.
pub struct Work {
    device: Device,
    /// Taken by who asks. Nobody waits for it.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    streams: Vec<CUstream>,
    events: Vec<CUevent>,
    modules: Vec<CUmodule>,
    /// A module could not be unloaded.
    failed: bool,
    /// All is over. Streams and events may be gone since.
    finished: bool,
    /// The error that was reported last.
    reported: String,
}

// SAFETY: handles of the driver, which threads may share.
unsafe impl Send for State {}

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;

impl Work {
    /// Nothing, as yet.
    pub fn on(device: &Device) -> Self {
        Self { device: device.clone(), state: Mutex::default() }
    }

    /// Waits for all that is in a stream when it is asked: a `CUstream`, or `cudaStream_t`, which is the same. Null is the legacy default
    /// stream.
    ///
    /// It stays the caller's.
    ///
    /// # Errors
    /// [`Error::DeviceHandle`] for `CU_STREAM_PER_THREAD`, which is another on each thread: record an event in it, and give that.
    ///
    /// # Safety
    /// It is a stream of the device's primary context, and is not destroyed before this has finished.
    pub unsafe fn stream(mut self, stream: *mut c_void) -> Result<Self> {
        if stream.addr() == PER_THREAD {
            return Err(Error::DeviceHandle {
                handle: "CU_STREAM_PER_THREAD",
                problem: "is another stream on each thread that asks; record an event in it (cuEventRecord), and give that to Work::event",
            });
        }
        self.state().streams.push(stream.cast());
        Ok(self)
    }

    /// Waits for an event (`CUevent`, `cudaEvent_t`), as it was recorded last when it is asked.
    ///
    /// It stays the caller's.
    ///
    /// # Errors
    /// [`Error::DeviceHandle`] if it is null.
    ///
    /// # Safety
    /// It is an event of the device's primary context, was recorded last in a stream that was not being captured, and is not destroyed before this has
    /// finished.
    pub unsafe fn event(mut self, event: *mut c_void) -> Result<Self> {
        not_null("CUevent", event)?;
        self.state().events.push(event.cast());
        Ok(self)
    }

    /// Unloads a module (`CUmodule`) when all else of this has finished, after those that were given later.
    ///
    /// # Errors
    /// [`Error::DeviceHandle`] if it is null.
    ///
    /// # Safety
    /// It is a module of the device's primary context. It is this one's from now on: nobody else unloads it, the library's finalisers
    /// included, and nothing that runs out of it is in other streams than those given here.
    pub unsafe fn module(mut self, module: *mut c_void) -> Result<Self> {
        not_null("CUmodule", module)?;
        self.state().modules.push(module.cast());
        Ok(self)
    }

    fn state(&mut self) -> &mut State {
        self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Whether streams and events have come to their end, and modules are unloaded.
    fn finish(&self, state: &mut State) -> Result<bool> {
        let _current = self.device.make_current()?;
        let _relaxed = Relaxed::set(&self.device)?;
        let functions = self.device.driver().functions();
        for &stream in &state.streams {
            let mut capturing = 0_u32;
            // SAFETY: streams of this context, by who gave them. The status is an enum of C's.
            unsafe {
                // Asking one that is being captured would end the capture.
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
            // SAFETY: events of this context, by who gave them.
            if !self.is_over("cuEventQuery", unsafe { (functions.cuEventQuery)(event) })? {
                return Ok(false);
            }
        }
        while let Some(module) = state.modules.pop() {
            // SAFETY: ours, by who gave it, and nothing of it runs; unloaded once, whatever the driver says.
            let code = unsafe { (functions.cuModuleUnload)(module) };
            state.failed |= code != SUCCESS;
            self.device.check("cuModuleUnload", code)?;
        }
        Ok(!state.failed)
    }

    /// Success is an answer; so is "not ready", and that a stream which waits for the legacy default stream is being captured.
    fn is_over(&self, function: &'static str, code: Code) -> Result<bool> {
        match code {
            NOT_READY | CAPTURE_IMPLICIT | CAPTURED_EVENT => Ok(false),
            _ => self.device.check(function, code).map(|()| true),
        }
    }
}

fn not_null(handle: &'static str, pointer: *mut c_void) -> Result<()> {
    if pointer.is_null() { Err(Error::DeviceHandle { handle, problem: "is null" }) } else { Ok(()) }
}

impl Drain for Work {
    /// Whoever holds the code may launch more, out of the modules that would be unloaded.
    fn is_finished_while_held(&self) -> bool {
        false
    }

    fn is_finished(&self) -> bool {
        // In a child nobody may hold the lock; and another thread that asks will act on the answer.
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
        // It is asked again and again, and says the same.
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

/// Another thread may be capturing a graph, in the mode that forbids all threads what may disturb it, such as a query of an event: not what
/// is done here.
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

/// Sets the thread's mode, and gives the one before.
fn exchange(device: &Device, mode: &mut u32) -> Code {
    // SAFETY: a mode, in place of which comes the one before. It is an enum of C's.
    unsafe { (device.driver().functions().cuThreadExchangeStreamCaptureMode)(ptr::from_mut(mode).cast()) }
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        let code = exchange(self.device, &mut self.previous);
        report(self.device.check("cuThreadExchangeStreamCaptureMode", code), code);
    }
}
