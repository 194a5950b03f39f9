//! Events, and the time between them.
#![allow(unsafe_code, reason = "calls the driver")]

use std::ffi::c_void;
use std::ptr;
use std::time::Duration;

use cudarc::driver::sys::CUevent;

use crate::Result;
use crate::runtime::cuda_driver::Device;
use crate::runtime::cuda_driver::device::report;

/// A point in a stream that has a time (`CUevent`); destroyed on drop.
#[derive(Debug)]
pub struct Event {
    device: Device,
    handle: CUevent,
}

// SAFETY: a handle of the driver, which threads may share.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Device {
    /// Creates an event with a time.
    ///
    /// # Errors
    /// [`CudaError::Call`](crate::CudaError::Call),
    /// [`CudaError::DeviceOutOfMemory`](crate::CudaError::DeviceOutOfMemory),
    /// [`CudaError::AfterFork`](crate::CudaError::AfterFork).
    pub fn event(&self) -> Result<Event> {
        let _current = self.make_current()?;
        let mut handle = ptr::null_mut();
        // SAFETY: a place for a handle. No flags: it has a time.
        let code = unsafe { (self.driver().functions().cuEventCreate)(&raw mut handle, 0) };
        self.check("cuEventCreate", code)?;
        Ok(Event { device: self.clone(), handle })
    }

    /// Measures the device's time for the work that a closure enqueues in a stream (`CUstream`; null is the legacy
    /// default stream). Returns it with the closure's result. The context is current while the closure runs. Waits for
    /// the stream.
    ///
    /// # Errors
    /// Those of the closure; [`CudaError::Call`](crate::CudaError::Call), also for errors of the work on the device;
    /// [`CudaError::AfterFork`](crate::CudaError::AfterFork).
    ///
    /// # Safety
    /// The stream is one of the device's primary context, and stays.
    pub unsafe fn time<R>(&self, stream: *mut c_void, enqueue: impl FnOnce() -> Result<R>) -> Result<(R, Duration)> {
        let _current = self.make_current()?;
        let (start, end) = (self.event()?, self.event()?);
        // SAFETY: by the caller's contract.
        unsafe { start.record(stream)? };
        let result = enqueue()?;
        // SAFETY: as above.
        unsafe { end.record(stream)? };
        end.wait()?;
        Ok((result, end.since(&start)?))
    }
}

impl Event {
    /// Records it in a stream (`CUstream`; null is the legacy default stream), after the work there.
    ///
    /// # Errors
    /// [`CudaError::Call`](crate::CudaError::Call), [`CudaError::AfterFork`](crate::CudaError::AfterFork).
    ///
    /// # Safety
    /// The stream is one of the device's primary context.
    pub unsafe fn record(&self, stream: *mut c_void) -> Result<()> {
        let _current = self.device.make_current()?;
        // SAFETY: by the caller's contract.
        let code = unsafe { (self.device.driver().functions().cuEventRecord)(self.handle, stream.cast()) };
        self.device.check("cuEventRecord", code)
    }

    /// Waits until the device has reached it; returns at once if it was never recorded.
    ///
    /// # Errors
    /// [`CudaError::Call`](crate::CudaError::Call), also for errors of earlier work on the device;
    /// [`CudaError::AfterFork`](crate::CudaError::AfterFork).
    pub fn wait(&self) -> Result<()> {
        let _current = self.device.make_current()?;
        // SAFETY: ours.
        let code = unsafe { (self.device.driver().functions().cuEventSynchronize)(self.handle) };
        self.device.check("cuEventSynchronize", code)
    }

    /// Returns the time from an earlier event to this one, to about half a microsecond. Zero if the device reached this
    /// one first.
    ///
    /// # Errors
    /// [`CudaError::Call`](crate::CudaError::Call) with `CUDA_ERROR_NOT_READY` if the device has not reached both, with
    /// `CUDA_ERROR_INVALID_HANDLE` if one was never recorded; [`CudaError::AfterFork`](crate::CudaError::AfterFork).
    pub fn since(&self, earlier: &Event) -> Result<Duration> {
        let _current = self.device.make_current()?;
        let mut milliseconds = 0.0_f32;
        let elapsed = self.device.driver().functions().cuEventElapsedTime;
        // SAFETY: a place for a float; both events are ours.
        let code = unsafe { elapsed(&raw mut milliseconds, earlier.handle, self.handle) };
        self.device.check("cuEventElapsedTime", code)?;
        Ok(Duration::try_from_secs_f64(f64::from(milliseconds) / 1e3).unwrap_or_default())
    }

    /// Returns the handle (`CUevent`), which this owns.
    pub fn as_raw(&self) -> *mut c_void {
        self.handle.cast()
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // A child of `fork` does not own it.
        if self.device.driver().is_ours() {
            // SAFETY: ours, and destroyed once; its context need not be current.
            let code = unsafe { (self.device.driver().functions().cuEventDestroy_v2)(self.handle) };
            report(self.device.check("cuEventDestroy_v2", code), code);
        }
    }
}
