//! Stock LLJIT: one JITDylib, a tracker for each object.

use std::ffi::CStr;

use super::{Hold, Loaded, Object, Side};
use crate::lljit::{Linker, Lljit, Tracker};

struct Stock(Lljit);

// SAFETY: an LLJIT locks its session; adding, looking up and removing may be done from any thread.
unsafe impl Send for Stock {}
// SAFETY: as above.
unsafe impl Sync for Stock {}

/// The first of those that are removed together has the tracker.
struct Held(Option<Tracker>);

// SAFETY: as for `Stock`.
unsafe impl Send for Held {}

/// One with this linker.
pub fn lljit(linker: Linker) -> Result<Box<dyn Side>, String> {
    Ok(Box::new(Stock(Lljit::new(linker)?)))
}

impl Side for Stock {
    fn load(&self, object: &mut Object) -> Result<Loaded, String> {
        // SAFETY: it is linked below.
        let tracker = unsafe { self.0.add_lent(self.0.main(), [&*object.bytes]) }?;
        if let Some(initialiser) = &object.initialiser {
            let address = self.0.look_up(initialiser)?;
            // SAFETY: initialisers take nothing and return nothing, and have not run yet.
            unsafe { std::mem::transmute::<usize, extern "C" fn()>(address as usize)() };
        }
        let address = self.0.look_up(&object.entry)?;
        let loaded = Self::loaded(std::slice::from_ref(object), &[address], tracker)?.pop();
        loaded.ok_or_else(|| "nothing was loaded".into())
    }

    fn load_together(&self, objects: &mut [Object]) -> Result<Vec<Loaded>, String> {
        // SAFETY: they are linked below.
        let tracker = unsafe { self.0.add_lent(self.0.main(), objects.iter().map(|object| &*object.bytes)) }?;
        let names: Vec<&CStr> = objects.iter().map(|object| &*object.entry).collect();
        let addresses = self.0.look_up_all(&names)?;
        Self::loaded(objects, &addresses, tracker)
    }
}

impl Stock {
    /// The functions of objects, and what keeps these.
    fn loaded(objects: &[Object], addresses: &[u64], tracker: Tracker) -> Result<Vec<Loaded>, String> {
        let mut tracker = Some(tracker);
        let loaded = |(object, address): (&Object, &u64)| {
            let address = *address as usize;
            // SAFETY: just found, and removed by nobody else.
            unsafe { object.ask(address) }?;
            Ok(Loaded { address: Some(address), hold: Box::new(Held(tracker.take())) })
        };
        objects.iter().zip(addresses).map(loaded).collect()
    }
}

impl Hold for Held {
    fn unload(self: Box<Self>) -> Result<(), String> {
        self.0.map_or(Ok(()), Tracker::remove)
    }
}
