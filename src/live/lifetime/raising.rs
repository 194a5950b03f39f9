//! Entry points for linked code that raises errors in another tvm-ffi runtime than ours. Ours copies errors that the
//! code has made itself, as they may outlive it; that of libtvm_ffi keeps the given error, so it gets a copy.
#![allow(unsafe_code, reason = "an unsafe fn: linked code calls what is made here")]

use std::sync::Arc;

use crate::Result;
use crate::fork_guard::Mutex;
use crate::live::lifetime::entry_points::{entry_points, thunk};
use crate::memory::{Arena, PublishedSlab};
use crate::name::Name;
use crate::tvm_ffi::{SET_RAISED, is_set_raised, set_raised_in};

/// Entry points of one library: the runtime's function behind each, the address, and its memory.
#[derive(Debug, Default)]
pub(crate) struct Raising(Mutex<Vec<(u64, u64, PublishedSlab)>>);

impl Raising {
    /// Returns whether calls of this function of a runtime go through an entry point.
    pub(crate) fn wants(name: &str, function: u64) -> bool {
        name == SET_RAISED && !is_set_raised(function)
    }

    /// Makes an entry point for any function of a runtime. Nothing is called: linked code calls it in the place of the
    /// function.
    pub(crate) fn entry_point(&self, function: u64, arena: &Arc<Arena>, library: &Name) -> Result<u64> {
        let mut known = self.0.lock();
        if let Some((_, address, _)) = known.iter().find(|(other, ..)| *other == function) {
            return Ok(*address);
        }
        let target = set_raised_in as *const () as usize;
        let (address, slab) = entry_points(arena, library, SET_RAISED, |_| [thunk(function as usize, 1, target)])?;
        known.push((function, address as u64, slab));
        Ok(address as u64)
    }

    /// Takes the entry points away.
    ///
    /// # Safety
    /// The library's code is gone: nobody calls them any more.
    pub(crate) unsafe fn end(&self) {
        let slabs = std::mem::take(&mut *self.0.lock());
        drop(slabs);
    }
}
