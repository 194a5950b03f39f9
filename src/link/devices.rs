//! The devices that a library is for: they stay as long as its code.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::claims::{self, Claim};
use crate::gate::Mutex;
use crate::name::Name;
use crate::runtime::cuda::{Current, Device};
use crate::{Error, Result};

/// Those of one library.
#[derive(Debug, Default)]
pub(super) struct Devices(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    loaded_for: Option<Device>,
    initialised: Vec<Arc<Initialisation>>,
}

/// Of a library, on a device.
#[derive(Debug)]
struct Initialisation {
    device: Device,
    done: AtomicBool,
}

impl Initialisation {
    /// What it is claimed by.
    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl Drop for Initialisation {
    fn drop(&mut self) {
        claims::forget(self.key());
    }
}

impl Devices {
    pub(super) fn loaded_for(device: Device) -> Self {
        Self(Mutex::new(Held { loaded_for: Some(device), initialised: Vec::new() }))
    }

    pub(super) fn device(&self) -> Option<Device> {
        self.0.lock().loaded_for.clone()
    }

    /// Has the context current of the device that the library was loaded for.
    pub(super) fn make_current(&self) -> Result<Option<Current>> {
        self.device().map(|device| device.make_current()).transpose()
    }

    /// The same where it may be in vain: for finalisers, which run in children of `fork`, too, and after the driver's end.
    pub(super) fn make_current_for_the_end(&self) -> Option<Current> {
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
                let new = Arc::new(Initialisation { device: device.clone(), done: AtomicBool::new(false) });
                known.push(Arc::clone(&new));
                new
            }
        }
    }

    /// Runs `initialise` unless that has been done for the device; who asks meanwhile waits, unless `initialise` itself would have to wait
    /// for that.
    pub(super) fn initialise(
        &self,
        library: &Name,
        device: &Device,
        initialise: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        device.driver().check_process()?;
        let this = self.initialisation(device);
        while !this.done.load(Ordering::Acquire) {
            claims::wait(this.key());
            let _claim = match claims::claim(this.key()) {
                Claim::Taken => continue,
                Claim::OursAlready | Claim::Circular => return Ok(()),
                Claim::Lost => return Err(Error::LostInFork { library: library.to_string() }),
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

    /// The code has come to its end.
    pub(super) fn release(&self) {
        // Without the lock: it calls the driver.
        let held = std::mem::take(&mut *self.0.lock());
        drop(held);
    }
}
