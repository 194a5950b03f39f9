//! The devices that a library is for: they stay as long as its code.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::fork_guard::Mutex;
use crate::live::lifetime::init_lock::{Claim, InitLock};
use crate::name::Name;
use crate::runtime::cuda_driver::{Current, Device};
use crate::{Error, LibraryError, Result};

/// The devices of one library.
#[derive(Debug, Default)]
pub(crate) struct Devices(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    loaded_for: Option<Device>,
    initialised: Vec<Arc<Initialisation>>,
}

/// The state of a library on a device.
#[derive(Debug)]
struct Initialisation {
    device: Device,
    lock: InitLock,
    done: AtomicBool,
}

impl Devices {
    pub(crate) fn loaded_for(device: Device) -> Self {
        Self(Mutex::new(Held { loaded_for: Some(device), initialised: Vec::new() }))
    }

    pub(crate) fn device(&self) -> Option<Device> {
        self.0.lock().loaded_for.clone()
    }

    /// Makes the context current of the device that the library was loaded for.
    pub(crate) fn make_current(&self) -> Result<Option<Current>> {
        self.device().map(|device| device.make_current()).transpose()
    }

    /// Does the same, and ignores failures: for finalisers, which run in children of `fork`, too, and after the
    /// driver's end.
    pub(crate) fn make_current_for_the_end(&self) -> Option<Current> {
        let device = self.device().filter(|device| device.driver().is_ours())?;
        let failed =
            |error: &Error| tracing::debug!(target: "slabjit", %error, "finalisers run without their device's context");
        device.make_current().inspect_err(failed).ok()
    }

    fn initialisation(&self, device: &Device) -> Arc<Initialisation> {
        let known = &mut self.0.lock().initialised;
        match known.iter().find(|known| known.device == *device) {
            Some(known) => Arc::clone(known),
            None => {
                let new = Arc::new(Initialisation {
                    device: device.clone(),
                    lock: InitLock::default(),
                    done: AtomicBool::new(false),
                });
                known.push(Arc::clone(&new));
                new
            }
        }
    }

    /// Runs `initialise` unless that has been done for the device; other threads wait meanwhile, unless `initialise`
    /// itself would have to wait for that.
    pub(crate) fn initialise(
        &self,
        library: &Name,
        device: &Device,
        initialise: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        device.driver().check_process()?;
        let this = self.initialisation(device);
        while !this.done.load(Ordering::Acquire) {
            this.lock.wait();
            let _claim = match this.lock.claim() {
                Claim::Taken => continue,
                Claim::OursAlready | Claim::Circular => return Ok(()),
                Claim::Lost => return Err(Error::Library(LibraryError::LostInFork { library: library.to_string() })),
                Claim::Ours(claim) => claim,
            };
            if !this.done.load(Ordering::Acquire) {
                let _current = device.make_current()?;
                initialise()?;
                this.done.store(true, Ordering::Release);
            }
            break;
        }
        Ok(())
    }

    /// Releases the devices at the code's end.
    pub(crate) fn release(&self) {
        // The lock is not held: dropping calls the driver.
        let held = std::mem::take(&mut *self.0.lock());
        drop(held);
    }
}
