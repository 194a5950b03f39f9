//! Kernels of a device for an autotuner: their memory, and their time.
#![allow(unsafe_code)] // copies memory that the tuner's caller vouches for

use std::ffi::c_void;
use std::time::Duration;

use super::{Device, Memory};
use crate::kernel::NotedRegion;
use crate::{HostMemory, HostSaved, MemorySpace, Region, Result, TuningMemory};

/// Has an [`Autotuner`](crate::Autotuner) tune kernels that run in one stream of a device: what they write is saved in the device's memory and
/// restored in the stream, and their time is that between two events. Buffers of the host's and managed ones are saved by the host, when the stream has
/// come to its end.
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

/// What was in a region.
#[derive(Debug)]
pub struct Saved(Where);

#[derive(Debug)]
enum Where {
    Host(HostSaved),
    Device(NotedRegion, Memory),
}

impl TuningStream {
    /// For the candidates that launch what they launch into this stream (`CUstream`; null is the legacy default stream).
    ///
    /// # Safety
    /// It is a stream of the device's primary context, and is not destroyed before this is dropped.
    pub unsafe fn new(device: &Device, stream: *mut c_void) -> Self {
        Self { device: device.clone(), stream }
    }

    fn wait(&self) -> Result<()> {
        let event = self.device.event()?;
        // SAFETY: by who made this.
        unsafe { event.record(self.stream)? };
        event.wait()
    }

    /// Copies the blocks of a region one behind the other, or back.
    fn copy(&self, region: &Region, memory: &Memory, back: bool) -> Result<()> {
        let (bytes, mut packed) = (region.block_bytes(), memory.address());
        for block in region.blocks() {
            let block = block.addr() as u64;
            let (to, from) = if back { (block, packed) } else { (packed, block) };
            // SAFETY: the stream by who made this; blocks are of buffers of this device, by the caller of the tuner, and the memory is ours, of their size.
            unsafe { self.device.copy(to, from, bytes, self.stream)? };
            packed += bytes as u64;
        }
        // The memory may go, and other streams may look.
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
        // SAFETY: the stream by who made this.
        match unsafe { self.device.time(self.stream, run) } {
            Ok(((), time)) => Ok(time),
            Err(error) => {
                // What it launched before it failed comes to its end; what the driver says of that, it says again when memory is restored.
                let _ = self.wait();
                Err(error)
            }
        }
    }
}
