//! A library's own part of `libc_nonshared.a`: its `__dso_handle`, and functions that know it.
#![allow(unsafe_code, reason = "unsafe fns: linked code calls what is made here")]

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::Result;
use crate::fork_guard::Mutex;
use crate::live::lifetime::code_ref::{CodeRef, Kept};
use crate::live::lifetime::entry_points::{SLOT, entry_points, thunk};
use crate::live::lifetime::exit_handlers::Handlers;
use crate::memory::{Arena, PublishedSlab};
use crate::name::Name;

/// The number of functions that know the handle.
pub(crate) const FUNCTIONS: usize = 3;

/// A page in the arena with a library's `__dso_handle` and its entry points for functions that `libc_nonshared.a`
/// would have put into it.
#[derive(Debug)]
pub(crate) struct OwnSymbols {
    dso: usize,
    handlers: Arc<Handlers>,
    /// The slab; none once the library is gone.
    slab: Mutex<Option<PublishedSlab>>,
}

impl OwnSymbols {
    /// Makes entry points of `functions`: each gets the handle as the argument of this number, counted from 0.
    ///
    /// # Safety
    /// Each is a function whose last argument has this number, and takes a `__dso_handle`.
    pub(crate) unsafe fn new(
        arena: &Arc<Arena>,
        library: &Name,
        functions: [(usize, usize); FUNCTIONS],
    ) -> Result<Self> {
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

    pub(crate) fn handlers(&self) -> &Handlers {
        &self.handlers
    }

    /// Takes the functions away.
    ///
    /// # Safety
    /// The library's code is gone: nobody calls them any more.
    pub(crate) unsafe fn end(&self) {
        BY_DSO.lock().remove(&self.dso);
        let slab = self.slab.lock().take();
        drop(slab);
    }

    /// Returns the address of the handle.
    pub(crate) fn dso(&self) -> u64 {
        self.dso as u64
    }

    /// Returns the address of the entry point for the function of this number.
    pub(crate) fn entry(&self, function: usize) -> u64 {
        (self.dso + (function + 1) * SLOT) as u64
    }
}

type ByDso = BTreeMap<usize, Weak<Handlers>>;
static BY_DSO: Mutex<ByDso> = Mutex::new(BTreeMap::new());

/// Returns the handlers of the library whose `__dso_handle` this is.
pub(crate) fn handlers_of(dso: usize) -> Option<Arc<Handlers>> {
    BY_DSO.lock().get(&dso).and_then(Weak::upgrade)
}

/// The owner of a `__dso_handle`.
pub(crate) enum Owner {
    Library(CodeRef<dyn Kept>, Arc<Handlers>),
    /// A library without holders whose finalisers are running.
    Ending(Arc<Handlers>),
    Process,
}

pub(crate) fn owner(dso: usize) -> Owner {
    match handlers_of(dso) {
        Some(handlers) => match handlers.code() {
            Some(code) => Owner::Library(code, handlers),
            None => Owner::Ending(handlers),
        },
        None => Owner::Process,
    }
}
