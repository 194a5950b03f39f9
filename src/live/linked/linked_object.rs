//! The result of linking an object.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::functions::FunctionList;
use crate::live::tls::Variables;
use crate::memory::PublishedSlab;

/// The result of linking an object.
#[derive(Debug, Default)]
pub(crate) struct Linked {
    /// `None` where the object has no thread-local variables. Dropped before the memory, whose addresses stand for
    /// them: others may get it at once.
    pub(crate) variables: Option<Box<Variables>>,
    /// `None` where the object has no memory.
    pub(crate) allocation: Option<Allocation>,
    /// The slab of linker sets that it shares with other objects.
    pub(crate) sets: Option<Arc<PublishedSlab>>,
    /// Sections of linker sets that lie in the object itself, by index.
    pub(crate) own_sets: Vec<(u32, Range<u64>)>,
    /// Addresses by index of the definition; 0 for discarded definitions. Of an image: of its segments, then of its
    /// thread-local block.
    pub(crate) definitions: Vec<u64>,
    /// Address of each initialiser or finaliser section, by its index in `ObjectIndex::arrays`; 0 where there is none.
    pub(crate) arrays: Vec<u64>,
    /// Names of its code.
    pub(crate) functions: FunctionList,
    /// Debug information at its addresses, if it is kept.
    pub(crate) debug_image: Option<Vec<u8>>,
    /// Start of `.eh_frame`, or 0.
    pub(crate) frames: u64,
    /// The number of references that go through bridges.
    pub(crate) bridges: u32,
    /// Addresses of the slots of indirect functions.
    pub(crate) slots: Vec<u64>,
}

/// The memory of one linked object. It is Rust's alone: LLVM holds no share.
#[derive(Debug)]
pub(crate) struct Allocation {
    // The fields are dropped in this order: the linker's part refers to the memory.
    ending: Option<Box<dyn fmt::Debug + Send + Sync>>,
    slab: PublishedSlab,
}

impl Allocation {
    /// Combines a slab with `ending`, the linker's cleanup, which is dropped before the memory goes.
    pub(crate) fn new(slab: PublishedSlab, ending: Option<Box<dyn fmt::Debug + Send + Sync>>) -> Self {
        Self { ending, slab }
    }

    pub(crate) fn slab(&self) -> &PublishedSlab {
        &self.slab
    }

    pub(crate) fn slab_mut(&mut self) -> &mut PublishedSlab {
        &mut self.slab
    }

    /// Overwrites the memory but for `kept`, if that is possible, and the linker has no part in it. Returns how many
    /// bytes it has then.
    pub(crate) fn overwrite(&mut self, kept: &Range<usize>) -> Option<usize> {
        if self.ending.is_some() { None } else { self.slab.overwrite(kept) }
    }

    /// Drops the linker's part, and returns the memory.
    pub(crate) fn end_all_but_memory(&mut self) -> &mut PublishedSlab {
        self.ending = None;
        &mut self.slab
    }
}
