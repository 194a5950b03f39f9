//! Stock LLJIT: one JITDylib, a tracker for each object.

use super::{Hold, Loaded, Object, Side};
use crate::lljit::{Linker, Lljit, Tracker};

struct Stock(Lljit);

// SAFETY: an LLJIT locks its session; adding, looking up and removing may be done from any thread.
unsafe impl Send for Stock {}
// SAFETY: as above.
unsafe impl Sync for Stock {}

struct Held(Tracker);

// SAFETY: as for `Stock`.
unsafe impl Send for Held {}

/// One with this linker.
pub fn lljit(linker: Linker) -> Result<Box<dyn Side>, String> {
    Ok(Box::new(Stock(Lljit::new(linker)?)))
}

impl Side for Stock {
    fn load(&self, object: &Object) -> Result<Loaded, String> {
        let tracker = self.0.add(self.0.main(), &object.bytes)?;
        if let Some(initialiser) = &object.initialiser {
            let address = self.0.look_up(initialiser)?;
            // SAFETY: initialisers take nothing and return nothing, and have not run yet.
            unsafe { std::mem::transmute::<usize, extern "C" fn()>(address as usize)() };
        }
        let address = self.0.look_up(&object.entry)? as usize;
        // SAFETY: just found, and removed by nobody else.
        unsafe { object.ask(address) }?;
        Ok(Loaded { address, hold: Box::new(Held(tracker)) })
    }
}

impl Hold for Held {
    fn unload(self: Box<Self>) -> Result<(), String> {
        self.0.remove()
    }
}
