//! The one interface between the living half and a linker.
#![allow(unsafe_code, reason = "an unsafe trait: linked code is run")]

use std::sync::Arc;

use smallvec::SmallVec;

use super::linked::linked_object::Linked;
use super::resolve::decided::Decided;
use super::resolve::linker_sets::{Memory, Plan};
use crate::Result;
use crate::memory::Arena;
use crate::name::Name;

/// Turns prepared objects into linked memory.
///
/// # Safety
/// [`link`](Self::link) returns the batch: for each object its published memory, whose addresses are those of the
/// object's definitions, initialisers, slots and `.eh_frame`. The frames end in a zero terminator.
pub(crate) unsafe trait Linker: Send + Sync {
    /// Links all objects of a batch, or none. Nothing of them runs, and nothing of them is kept after an error.
    fn link(&self, batch: Batch<'_>) -> Result<LinkedBatch>;
}

/// Objects that are linked together, with every symbol decided.
pub(crate) struct Batch<'a> {
    /// Their library, for messages and for the log of addresses.
    pub(crate) library: &'a Name,
    /// Where their memory is taken from.
    pub(crate) arena: &'a Arc<Arena>,
    pub(crate) objects: Vec<Decided>,
    /// The linker sets that they have to do with.
    pub(crate) sets: &'a Plan,
}

/// The result of linking a batch.
pub(crate) struct LinkedBatch {
    /// The linked objects, in the order of the batch; published, and not initialised.
    pub(crate) objects: SmallVec<[Linked; 1]>,
    /// The memory of the linker sets that the objects put together.
    pub(crate) sets: Option<Arc<Memory>>,
}
