//! Device memory.
#![allow(unsafe_code, reason = "calls the driver")]

use std::ffi::c_void;

use crate::Result;
use crate::runtime::cuda_driver::Device;
use crate::runtime::cuda_driver::device::report;

/// Bytes of a device's memory, freed on drop (`cuMemFree`, which waits for work that uses them).
#[derive(Debug)]
pub struct Memory {
    device: Device,
    address: u64,
    bytes: usize,
}

impl Memory {
    /// Returns the address (`CUdeviceptr`), as kernels take it; aligned to 256 bytes. 0 if there are no bytes.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns the device of this memory.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // A child of `fork` does not own it.
        if self.address == 0 || !self.device.driver().is_ours() {
            return;
        }
        match self.device.make_current() {
            Ok(_current) => {
                // SAFETY: allocated in this context, and freed once.
                let code = unsafe { (self.device.driver().functions().cuMemFree_v2)(self.address) };
                report(self.device.check("cuMemFree_v2", code), code);
            }
            Err(error) => tracing::error!(target: "slabjit", %error, "a device's memory was not freed"),
        }
    }
}

impl Device {
    /// Allocates memory on the device, with arbitrary contents.
    ///
    /// # Errors
    /// [`CudaError::DeviceOutOfMemory`](crate::CudaError::DeviceOutOfMemory),
    /// [`CudaError::Call`](crate::CudaError::Call), [`CudaError::AfterFork`](crate::CudaError::AfterFork).
    pub fn allocate(&self, bytes: usize) -> Result<Memory> {
        let mut memory = Memory { device: self.clone(), address: 0, bytes };
        let _current = self.make_current()?;
        // The driver refuses to allocate 0 bytes.
        if bytes > 0 {
            // SAFETY: a place for an address.
            let code = unsafe { (self.driver().functions().cuMemAlloc_v2)(&raw mut memory.address, bytes) };
            self.check("cuMemAlloc_v2", code)?;
        }
        Ok(memory)
    }

    /// Copies bytes of the device's memory to another place in it, in the order of a stream (`CUstream`; null is the
    /// legacy default stream). Returns when the copy is enqueued.
    ///
    /// # Errors
    /// [`CudaError::Call`](crate::CudaError::Call), [`CudaError::AfterFork`](crate::CudaError::AfterFork).
    ///
    /// # Safety
    /// The stream is one of the device's primary context. Both ranges are memory of the device, do not overlap, and
    /// stay until the stream has passed the copy; other uses of them wait for that.
    pub unsafe fn copy(&self, to: u64, from: u64, bytes: usize, stream: *mut c_void) -> Result<()> {
        let _current = self.make_current()?;
        // SAFETY: by the caller's contract.
        let code = unsafe { (self.driver().functions().cuMemcpyDtoDAsync_v2)(to, from, bytes, stream.cast()) };
        self.check("cuMemcpyDtoDAsync_v2", code)
    }

    /// Copies the host's bytes to the device's memory, after the work in a stream; returns when they are there.
    ///
    /// # Errors
    /// As for [`copy`](Self::copy), and errors of earlier work in the stream.
    ///
    /// # Safety
    /// As for [`copy`](Self::copy).
    pub unsafe fn write(&self, to: u64, from: &[u8], stream: *mut c_void) -> Result<()> {
        let (_current, functions) = (self.make_current()?, self.driver().functions());
        // SAFETY: by the caller's contract; the host's bytes are borrowed until the stream has passed the copy.
        unsafe {
            let code = (functions.cuMemcpyHtoDAsync_v2)(to, from.as_ptr().cast(), from.len(), stream.cast());
            self.check("cuMemcpyHtoDAsync_v2", code)?;
            self.check("cuStreamSynchronize", (functions.cuStreamSynchronize)(stream.cast()))
        }
    }

    /// Copies the device's memory to the host's bytes, after the work in a stream; returns when they are there.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    ///
    /// # Safety
    /// As for [`copy`](Self::copy).
    pub unsafe fn read(&self, to: &mut [u8], from: u64, stream: *mut c_void) -> Result<()> {
        let (_current, functions) = (self.make_current()?, self.driver().functions());
        // SAFETY: by the caller's contract; the host's bytes are borrowed until the stream has passed the copy, and all
        // values are valid.
        unsafe {
            let code = (functions.cuMemcpyDtoHAsync_v2)(to.as_mut_ptr().cast(), from, to.len(), stream.cast());
            self.check("cuMemcpyDtoHAsync_v2", code)?;
            self.check("cuStreamSynchronize", (functions.cuStreamSynchronize)(stream.cast()))
        }
    }
}
