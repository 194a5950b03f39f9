//! One linked object of a library.
#![allow(unsafe_code, reason = "registers frames")]

use std::num::NonZero;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::DebugInfo;
use crate::debuggers::{self, DebugImage, Names, jitdump};
use crate::live::images;
use crate::live::linked::init_fini::InitFini;
use crate::live::linked::linked_object::{Allocation, Linked};
use crate::live::resolve::imported::Imported;
use crate::live::resolve::prepared::PreparedObject;
use crate::live::tls::Variables;
use crate::live::unwind::{CodeRange, Frames, Table};
use crate::memory::{PublishedSlab, SlabRange};
use crate::name::Name;

/// One linked object.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) object: Name,
    /// Position of the object in its library.
    pub(crate) number: u32,
    /// The number of the batch, equal in all objects that were linked together, and in no others.
    pub(crate) batch: u32,
    /// The number of references that go through bridges.
    pub(crate) bridges: u32,
    // The fields are dropped in this order: names, debug information and frames describe the memory.
    names: Names,
    _debug: Option<Box<DebugImage>>,
    frames: Option<Frames>,
    /// Variables that no thread uses once this is dropped: threads with registered destructors hold the library.
    _variables: Option<Box<Variables>>,
    allocation: Option<Allocation>,
    /// The slab of linker sets that it shares with others that were linked with it.
    sets: Option<Arc<PublishedSlab>>,
    /// `None` where there is nothing to call.
    pub(crate) arrays: Option<Box<InitFini>>,
    /// True once all of its initialisers have run.
    pub(crate) initialised: bool,
    pub(crate) imports: Box<[Imported]>,
}

impl Image {
    /// Returns the table of frames of an object that was linked.
    pub(crate) fn table(linked: &Linked) -> Option<Table> {
        let slab = linked.allocation.as_ref()?.slab();
        let begin = NonZero::new(linked.frames)?;
        let arena = slab.arena().start as u64;
        let code = slab.code().map(|code| CodeRange { addresses: code.start as u64..code.end as u64, arena });
        Some(Table { begin, code })
    }

    /// Reads the object's initialisers.
    ///
    /// # Safety
    /// A [`Linker`](crate::live::linker::Linker) has linked it, from this object, and the frames are those of its
    /// [table](Self::table).
    pub(crate) unsafe fn new(
        library: &Name,
        object: &PreparedObject,
        (number, batch): (u32, u32),
        imports: Box<[Imported]>,
        (mut linked, frames): (Linked, Option<Frames>),
    ) -> Self {
        let names = std::mem::take(&mut linked.functions);
        let mut functions = match &object.image {
            Some(image) => images::functions(image, &object.bytes, &linked.definitions),
            None => names.sorted(),
        };
        functions.frames = linked.frames;
        if let Some(allocation) = &mut linked.allocation {
            allocation.slab_mut().belong_to(library, &object.name, &functions);
        }
        // An image's debug information has its own addresses, which debuggers could not move.
        let is_shown = object.index.debug == DebugInfo::Full && object.image.is_none();
        let names = match &object.image {
            _ if is_shown => Names::default(),
            None => Names::add(functions.all()),
            Some(image) => {
                let distance = images::code_distance(image, &linked.definitions).unwrap_or(0);
                Names::of_image(image, &object.bytes, object.file.as_deref(), distance)
            }
        };
        // SAFETY: by the linker, the code is published; the image owns it.
        unsafe { jitdump::record(functions.all()) };
        let code = linked.allocation.as_ref().and_then(|allocation| allocation.slab().code());
        let debug = code.and_then(|code| match &object.image {
            None => Some(DebugImage::new(code, linked.debug_image?, is_shown)),
            Some(_) if object.index.debug == DebugInfo::Names => None,
            Some(image) => {
                DebugImage::of_image(code, &object.bytes, images::code_distance(image, &linked.definitions)?)
            }
        });
        // SAFETY: by the linker, the addresses are those of the same sections in the published memory.
        let arrays = unsafe { InitFini::read(&object.index, &linked.arrays, linked.slots) };
        // A fuzzer's objects are linked, and never run.
        let arrays = if cfg!(slabjit_fuzzing) { InitFini::default() } else { arrays };
        Self {
            object: object.name.clone(),
            number,
            batch,
            bridges: linked.bridges,
            names,
            _debug: debug.map(Box::new),
            frames,
            _variables: linked.variables,
            allocation: linked.allocation,
            sets: linked.sets,
            arrays: (!arrays.is_empty()).then(|| Box::new(arrays)),
            initialised: false,
            imports,
        }
    }

    /// Ends several, whose code nobody uses any more, the last first. They are to be dropped.
    pub(crate) fn end_all(images: &mut [Self]) {
        Names::remove_all(images.iter_mut().map(|image| &mut image.names));
        Frames::drop_all(images.iter_mut().filter_map(|image| image.frames.take()));
        let mut slabs = SmallVec::<[_; 1]>::with_capacity(images.len());
        slabs.extend(images.iter_mut().rev().filter_map(Self::end_all_but_memory));
        debuggers::announce();
        PublishedSlab::give_back(&mut slabs);
    }

    /// Overwrites its memory, if all else of it may stay for a while. Returns how many bytes it has then. Its unwind
    /// table stays, as it is registered.
    pub(crate) fn overwrite(&mut self) -> Option<usize> {
        if self._debug.is_some() || self._variables.is_some() || self.sets.is_some() {
            return None;
        }
        let frames = self.frames.as_ref().map_or(Some(0..0), Frames::section)?;
        self.allocation.as_mut()?.overwrite(&frames)
    }

    /// Ends all but the memory, which it returns.
    fn end_all_but_memory(&mut self) -> Option<&mut PublishedSlab> {
        drop(std::mem::take(&mut self.names));
        (self._debug, self.frames, self._variables) = (None, None, None);
        self.allocation.as_mut().map(Allocation::end_all_but_memory)
    }

    /// Returns the names and addresses of its functions.
    pub(crate) fn functions(&self) -> Vec<(String, Range<usize>)> {
        self.allocation.as_ref().map_or_else(Vec::new, |allocation| allocation.slab().functions())
    }

    /// Returns its slab, and the one that it shares with others.
    pub(crate) fn ranges(&self) -> Vec<SlabRange> {
        let mut ranges = self.allocation.as_ref().map_or_else(Vec::new, |allocation| allocation.slab().ranges());
        ranges.extend(self.sets.iter().flat_map(|slab| slab.ranges()));
        ranges
    }
}
