//! What each library has of its own of `libc_nonshared.a`: its `__dso_handle`, and functions that know it.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use super::entry_points::{SLOT, entry_points, thunk};
use super::handlers::Handlers;
use super::hold::{Hold, Kept};
use crate::Result;
use crate::gate::Mutex;
use crate::memory::{Arena, PublishedSlab};
use crate::name::Name;

/// How many functions know the handle.
pub(super) const FUNCTIONS: usize = 3;

/// A page in the arena with a library's `__dso_handle` and its entry points for functions that `libc_nonshared.a`
/// would have put into it.
#[derive(Debug)]
pub(super) struct Support {
    dso: usize,
    handlers: Arc<Handlers>,
    /// None once the library is gone.
    slab: Mutex<Option<PublishedSlab>>,
}

impl Support {
    /// `functions`: each gets the handle as the argument of this number, counted from 0.
    pub(super) fn new(arena: &Arc<Arena>, library: &Name, functions: [(usize, usize); FUNCTIONS]) -> Result<Self> {
        let (dso, slab) = entry_points(arena, library, "__dso_handle", |dso| {
            let mut code: [Vec<u8>; FUNCTIONS + 1] = Default::default();
            for (code, (register, function)) in code.iter_mut().skip(1).zip(functions) {
                *code = thunk(dso, register, function);
            }
            code
        })?;
        let handlers = Arc::<Handlers>::default();
        BY_DSO.lock().insert(dso, Arc::downgrade(&handlers));
        Ok(Self { dso, handlers, slab: Mutex::new(Some(slab)) })
    }

    pub(super) fn handlers(&self) -> &Handlers {
        &self.handlers
    }

    /// The library's code is gone.
    pub(super) fn end(&self) {
        BY_DSO.lock().remove(&self.dso);
        let slab = self.slab.lock().take();
        drop(slab);
    }

    /// The address of the handle.
    pub(super) fn dso(&self) -> u64 {
        self.dso as u64
    }

    /// The address of the entry point for the function of this number.
    pub(super) fn entry(&self, function: usize) -> u64 {
        (self.dso + (function + 1) * SLOT) as u64
    }
}

type ByDso = BTreeMap<usize, Weak<Handlers>>;
static BY_DSO: Mutex<ByDso> = Mutex::new(BTreeMap::new());

/// Handlers of the library whose `__dso_handle` this is.
pub(super) fn handlers_of(dso: usize) -> Option<Arc<Handlers>> {
    BY_DSO.lock().get(&dso).and_then(Weak::upgrade)
}

/// Whose a `__dso_handle` is.
pub(super) enum Owner {
    Library(Hold<dyn Kept>, Arc<Handlers>),
    /// A library that nothing holds any more, and whose finalisers are running.
    Ending(Arc<Handlers>),
    Process,
}

pub(super) fn owner(dso: usize) -> Owner {
    match handlers_of(dso) {
        Some(handlers) => match handlers.code() {
            Some(code) => Owner::Library(code, handlers),
            None => Owner::Ending(handlers),
        },
        None => Owner::Process,
    }
}
