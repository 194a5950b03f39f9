//! Events, and the time between them.
#![allow(unsafe_code)] // calls the driver

use std::ffi::c_void;
use std::ptr;
use std::time::Duration;

use cudarc::driver::sys::CUevent;

use super::Device;
use super::device::report;
use crate::Result;

/// A point in a stream that has a time (`CUevent`); destroyed when this is dropped.
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
    /// An event with a time.
    ///
    /// # Errors
    /// [`Error::Cuda`](crate::Error::Cuda), [`Error::DeviceOutOfMemory`](crate::Error::DeviceOutOfMemory),
    /// [`Error::DeviceAfterFork`](crate::Error::DeviceAfterFork).
    pub fn event(&self) -> Result<Event> {
        let _current = self.make_current()?;
        let mut handle = ptr::null_mut();
        // SAFETY: a place for a handle. No flags: it has a time.
        let code = unsafe { (self.driver().functions().cuEventCreate)(&raw mut handle, 0) };
        self.check("cuEventCreate", code)?;
        Ok(Event { device: self.clone(), handle })
    }

    /// How long the device takes for what a closure puts into a stream (`CUstream`; null is the legacy default stream), and what the
    /// closure returns. The context is current while it runs. Waits for the stream.
    ///
    /// # Errors
    /// Those of the closure; [`Error::Cuda`](crate::Error::Cuda), also for what failed on the device;
    /// [`Error::DeviceAfterFork`](crate::Error::DeviceAfterFork).
    ///
    /// # Safety
    /// The stream is one of the device's primary context, and stays.
    pub unsafe fn time<R>(&self, stream: *mut c_void, enqueue: impl FnOnce() -> Result<R>) -> Result<(R, Duration)> {
        let _current = self.make_current()?;
        let (start, end) = (self.event()?, self.event()?);
        // SAFETY: by the caller.
        unsafe { start.record(stream)? };
        let result = enqueue()?;
        // SAFETY: as above.
        unsafe { end.record(stream)? };
        end.wait()?;
        Ok((result, end.since(&start)?))
    }
}

impl Event {
    /// Puts it into a stream (`CUstream`; null is the legacy default stream), behind what is there.
    ///
    /// # Errors
    /// [`Error::Cuda`](crate::Error::Cuda), [`Error::DeviceAfterFork`](crate::Error::DeviceAfterFork).
    ///
    /// # Safety
    /// The stream is one of the device's primary context.
    pub unsafe fn record(&self, stream: *mut c_void) -> Result<()> {
        let _current = self.device.make_current()?;
        // SAFETY: by the caller.
        let code = unsafe { (self.device.driver().functions().cuEventRecord)(self.handle, stream.cast()) };
        self.device.check("cuEventRecord", code)
    }

    /// Waits until the device has come to it; not at all if it was never recorded.
    ///
    /// # Errors
    /// [`Error::Cuda`](crate::Error::Cuda), also for what failed on the device before it;
    /// [`Error::DeviceAfterFork`](crate::Error::DeviceAfterFork).
    pub fn wait(&self) -> Result<()> {
        let _current = self.device.make_current()?;
        // SAFETY: ours.
        let code = unsafe { (self.device.driver().functions().cuEventSynchronize)(self.handle) };
        self.device.check("cuEventSynchronize", code)
    }

    /// How long after an earlier event the device came to this one, to about half a microsecond. Zero if it came to this one first.
    ///
    /// # Errors
    /// [`Error::Cuda`](crate::Error::Cuda) with `CUDA_ERROR_NOT_READY` if it has not come to both, with `CUDA_ERROR_INVALID_HANDLE` if one
    /// was never recorded; [`Error::DeviceAfterFork`](crate::Error::DeviceAfterFork).
    pub fn since(&self, earlier: &Event) -> Result<Duration> {
        let _current = self.device.make_current()?;
        let mut milliseconds = 0.0_f32;
        let elapsed = self.device.driver().functions().cuEventElapsedTime;
        // SAFETY: a place for a float; both events are ours.
        let code = unsafe { elapsed(&raw mut milliseconds, earlier.handle, self.handle) };
        self.device.check("cuEventElapsedTime", code)?;
        Ok(Duration::try_from_secs_f64(f64::from(milliseconds) / 1e3).unwrap_or_default())
    }

    /// The handle (`CUevent`), which is this one's.
    pub fn as_raw(&self) -> *mut c_void {
        self.handle.cast()
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // In a child of `fork` it is the parent's.
        if self.device.driver().is_ours() {
            // SAFETY: ours, and destroyed once; its context need not be current.
            let code = unsafe { (self.device.driver().functions().cuEventDestroy_v2)(self.handle) };
            report(self.device.check("cuEventDestroy_v2", code), code);
        }
    }
}
