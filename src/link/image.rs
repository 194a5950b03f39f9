//! One linked object of a library.
#![allow(unsafe_code)] // registers frames

use std::num::NonZero;
use std::sync::Arc;

use super::arrays::Arrays;
use super::frames::{CodeRange, Frames};
use super::imported::Imported;
use super::linked::{Allocation, Linked};
use super::prepared::PreparedObject;
use super::thread_local::Variables;
use crate::memory::{PublishedSlab, SlabRange};
use crate::name::Name;

/// One linked object.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) object: Name,
    /// Position of the object in its library.
    pub(super) number: u32,
    /// The same for all that were linked together, and for nobody else.
    pub(super) batch: u32,
    /// References that go through bridges.
    pub(super) bridges: u32,
    // Dropped in this order: frames describe the memory.
    _frames: Option<Frames>,
    /// Nobody uses it any more: threads that have destructors registered hold the library.
    _variables: Option<Box<Variables>>,
    allocation: Option<Allocation>,
    /// What it and others that were linked with it have of linker sets.
    sets: Option<Arc<PublishedSlab>>,
    /// `None` where there is nothing to call.
    pub(super) arrays: Option<Box<Arrays>>,
    /// All of its initialisers have run.
    pub(super) initialised: bool,
    pub(super) imports: Box<[Imported]>,
}

impl Image {
    /// Registers the object's frames and reads its initialisers.
    pub(super) fn new(
        library: &Name,
        object: &PreparedObject,
        (number, batch): (u32, u32),
        imports: Box<[Imported]>,
        mut linked: Linked,
    ) -> Self {
        if let Some(allocation) = &mut linked.allocation {
            allocation.slab_mut().belong_to(library, &object.kept_name);
        }
        let begin = NonZero::new(linked.frames).filter(|_| linked.allocation.is_some());
        let code = linked.allocation.as_ref().and_then(|allocation| {
            let (code, arena) = (allocation.slab().code()?, allocation.slab().arena());
            Some(CodeRange { addresses: code.start as u64..code.end as u64, arena: arena.start as u64 })
        });
        // SAFETY: JITLink terminates the section (EHFrameNullTerminator); it is published, and the image drops the frames
        // before the memory, when nobody holds the code.
        let frames = begin.map(|begin| unsafe { Frames::register(begin, code) });
        // SAFETY: the addresses are those of the same sections in the published memory.
        let arrays = unsafe { Arrays::read(&object.index, &linked.arrays, linked.slots) };
        // What a fuzzer makes up is linked, and never run.
        let arrays = if cfg!(slabjit_fuzzing) { Arrays::default() } else { arrays };
        Self {
            object: object.kept_name.clone(),
            number,
            batch,
            bridges: linked.bridges,
            _frames: frames,
            _variables: linked.variables,
            allocation: linked.allocation,
            sets: linked.sets,
            arrays: (!arrays.is_empty()).then(|| Box::new(arrays)),
            initialised: false,
            imports,
        }
    }

    /// Ends all but the memory.
    pub(super) fn into_slab(self) -> Option<PublishedSlab> {
        let Self { _frames, _variables, allocation, .. } = self;
        drop((_frames, _variables));
        allocation.map(Allocation::into_slab)
    }

    /// Its slab, and the one that it has with others.
    pub(super) fn ranges(&self) -> Vec<SlabRange> {
        let mut ranges = self.allocation.as_ref().map_or_else(Vec::new, |allocation| allocation.slab().ranges());
        ranges.extend(self.sets.iter().flat_map(|slab| slab.ranges()));
        ranges
    }
}
