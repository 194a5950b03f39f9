//! Memory and time of an autotuner's device kernels.
#![allow(unsafe_code, reason = "copies memory that the tuner's caller vouches for")]

use std::ffi::c_void;
use std::time::Duration;

use crate::kernel::NotedRegion;
use crate::runtime::cuda_driver::{Device, Memory};
use crate::{HostMemory, HostSaved, MemorySpace, Region, Result, TuningMemory};

/// Memory and clock for an [`Autotuner`](crate::Autotuner) of kernels that run in one stream of a device. Written
/// buffers are saved in the device's memory and restored in the stream, and the time is that between two events. Host
/// and managed buffers are saved by the host after the stream has finished.
///
/// ```no_run
/// # fn tune(device: &slabjit::cuda::Device, stream: *mut std::ffi::c_void) {
/// use slabjit::Autotuner;
/// use slabjit::cuda::TuningStream;
///
/// // SAFETY: the stream lives longer than the tuner.
/// let tuner = Autotuner::with_memory(unsafe { TuningStream::new(device, stream) });
/// # }
/// ```
#[derive(Debug)]
pub struct TuningStream {
    device: Device,
    stream: *mut c_void,
}

// SAFETY: a handle of the driver, which threads may share.
unsafe impl Send for TuningStream {}
// SAFETY: as above.
unsafe impl Sync for TuningStream {}

/// The saved contents of a region.
#[derive(Debug)]
pub struct Saved(Where);

#[derive(Debug)]
enum Where {
    Host(HostSaved),
    Device(NotedRegion, Memory),
}

impl TuningStream {
    /// Creates it for candidates that launch their work into this stream (`CUstream`; null is the legacy default
    /// stream).
    ///
    /// # Safety
    /// It is a stream of the device's primary context, and is not destroyed before this is dropped.
    pub unsafe fn new(device: &Device, stream: *mut c_void) -> Self {
        Self { device: device.clone(), stream }
    }

    fn wait(&self) -> Result<()> {
        let event = self.device.event()?;
        // SAFETY: by the contract of `new`.
        unsafe { event.record(self.stream)? };
        event.wait()
    }

    /// Copies the blocks of a region to contiguous memory, or back.
    fn copy(&self, region: &Region, memory: &Memory, back: bool) -> Result<()> {
        let (bytes, mut packed) = (region.block_bytes(), memory.address());
        for block in region.blocks() {
            let block = block.addr() as u64;
            let (to, from) = if back { (block, packed) } else { (packed, block) };
            // SAFETY: the stream by the contract of `new`; blocks are of buffers of this device, by the caller of the
            // tuner, and the memory is ours, of their size.
            unsafe { self.device.copy(to, from, bytes, self.stream)? };
            packed += bytes as u64;
        }
        // Afterwards the memory may be freed, and other streams may read.
        self.wait()
    }
}

impl TuningMemory for TuningStream {
    type Saved = Saved;

    fn save(&self, region: &Region) -> Result<Saved> {
        match region.space() {
            MemorySpace::Device(ordinal) if ordinal as usize == self.device.ordinal() => {
                let memory = self.device.allocate(region.bytes())?;
                self.copy(region, &memory, false)?;
                Ok(Saved(Where::Device(region.noted(), memory)))
            }
            MemorySpace::Device(_) => Err(region
                .refused(&format!("the tuner is for a stream of device {}; make one for each", self.device.ordinal()))),
            MemorySpace::Host | MemorySpace::Managed => {
                self.wait()?;
                HostMemory.save(region).map(|saved| Saved(Where::Host(saved)))
            }
        }
    }

    fn restore(&self, region: &Region, saved: &Saved) -> Result<()> {
        match &saved.0 {
            Where::Device(of, memory) if *of == region.noted() => self.copy(region, memory, true),
            Where::Device(..) => Err(region.refused("what is to be restored there was saved of another region")),
            Where::Host(saved) => {
                self.wait()?;
                HostMemory.restore(region, saved)
            }
        }
    }

    fn time(&self, run: &mut dyn FnMut() -> Result<()>) -> Result<Duration> {
        // SAFETY: the stream by the contract of `new`.
        match unsafe { self.device.time(self.stream, run) } {
            Ok(((), time)) => Ok(time),
            Err(error) => {
                // Waits for the work that it launched before it failed; restoring the memory reports the driver's error
                // again.
                let _ = self.wait();
                Err(error)
            }
        }
    }
}
