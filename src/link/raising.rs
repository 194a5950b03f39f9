//! Where linked code raises errors in a tvm-ffi runtime that is not ours. Ours copies errors that the code has made itself,
//! as they may outlive it; that of libtvm_ffi keeps what it is given, so it is given a copy.

use std::sync::Arc;

use super::entry_points::{entry_points, thunk};
use crate::Result;
use crate::gate::Mutex;
use crate::memory::{Arena, PublishedSlab};
use crate::name::Name;
use crate::tvm_ffi::{SET_RAISED, is_set_raised, set_raised_in};

/// Entry points of one library: the runtime's function behind each, the address, and its memory.
#[derive(Debug, Default)]
pub(super) struct Raising(Mutex<Vec<(u64, u64, PublishedSlab)>>);

impl Raising {
    /// Whether calls of this function of a runtime go through an entry point.
    pub(super) fn wants(name: &str, function: u64) -> bool {
        name == SET_RAISED && !is_set_raised(function)
    }

    /// The entry point for a function of a runtime.
    pub(super) fn entry_point(&self, function: u64, arena: &Arc<Arena>, library: &Name) -> Result<u64> {
        let mut known = self.0.lock();
        if let Some((_, address, _)) = known.iter().find(|(other, ..)| *other == function) {
            return Ok(*address);
        }
        let target = set_raised_in as *const () as usize;
        let (address, slab) = entry_points(arena, library, SET_RAISED, |_| [thunk(function as usize, 1, target)])?;
        known.push((function, address as u64, slab));
        Ok(address as u64)
    }

    /// The library's code is gone.
    pub(super) fn end(&self) {
        let slabs = std::mem::take(&mut *self.0.lock());
        drop(slabs);
    }
}
