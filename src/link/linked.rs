//! What linking an object brought.

use std::ops::Range;
use std::sync::Arc;

use super::actions::Actions;
use super::thread_local::Variables;
use crate::memory::PublishedSlab;

/// What linking brought.
#[derive(Debug, Default)]
pub(super) struct Linked {
    /// `None` where the object has no thread-local variables. Dropped before the memory, whose addresses stand for them: others may
    /// get it at once.
    pub(super) variables: Option<Box<Variables>>,
    /// `None` where the object has no memory.
    pub(super) allocation: Option<Allocation>,
    /// What it and others have of linker sets.
    pub(super) sets: Option<Arc<PublishedSlab>>,
    /// Sections of linker sets that lie in the object itself, by index.
    pub(super) own_sets: Vec<(u32, Range<u64>)>,
    /// By index of the definition; 0 for those that were discarded.
    pub(super) definitions: Vec<u64>,
    /// Address of each initialiser or finaliser section, by its index in `ObjectIndex::arrays`; 0 where there is none.
    pub(super) arrays: Vec<u64>,
    /// Start of `.eh_frame`, or 0.
    pub(super) frames: u64,
    /// How many references go through bridges.
    pub(super) bridges: u32,
    /// Addresses of the slots of indirect functions.
    pub(super) slots: Vec<u64>,
}

/// The memory of one linked object. It is Rust's alone: LLVM holds no share.
#[derive(Debug)]
pub(super) struct Allocation {
    // Dropped in this order: the actions refer to the memory.
    _actions: Actions,
    slab: PublishedSlab,
}

impl Allocation {
    pub(super) fn new(slab: PublishedSlab, actions: Actions) -> Self {
        Self { _actions: actions, slab }
    }

    pub(super) fn slab(&self) -> &PublishedSlab {
        &self.slab
    }

    pub(super) fn slab_mut(&mut self) -> &mut PublishedSlab {
        &mut self.slab
    }

    /// Runs the actions, and leaves the memory.
    pub(super) fn into_slab(self) -> PublishedSlab {
        self.slab
    }
}
