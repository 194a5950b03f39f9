//! Loads images: places their segments, and makes their relocations. No linker takes part.
#![allow(unsafe_code, reason = "what is loaded is run")]

use crate::ImageError;
use crate::elf::image_file::{ImageIndex, ImageOperation, ImageRelocation, ImageSegment};
use crate::elf::image_frames::is_sound;
use crate::elf::image_note::{DSO_HANDLE, Reference};
use crate::elf::{SymbolKind, put};
use crate::functions::FunctionList;
use crate::live::linked::linked_object::{Allocation, Linked};
use crate::live::linker::{Batch, LinkedBatch, Linker};
use crate::live::resolve::decided::{Decided, External};
use crate::live::tls::{self, Descriptor, Variable, Variables};
use crate::memory::{BlamedSection, Lifetime, PlacementHints, Protection, SegmentRequest, WritableSlab};
use crate::{Error, Result};

/// The loader of images.
pub(crate) struct ImageLoader;

// SAFETY: the addresses are those of the image's segments, which lie where `Placed` says; reading has checked that all
// tables lie in them, and that the unwind table ends.
unsafe impl Linker for ImageLoader {
    fn link(&self, batch: Batch<'_>) -> Result<LinkedBatch> {
        let (mut slabs, mut objects) = (Vec::new(), Vec::new());
        let in_batch = batch.objects.len() > 1;
        for decided in &batch.objects {
            let Some(image) = decided.object.image.as_deref() else {
                let image = batch.objects.iter().find(|decided| decided.object.image.is_some());
                let object = image.map_or_else(String::new, |decided| decided.object.name.to_string());
                return Err(Error::Image(ImageError::NotAlone { object }));
            };
            let loading = Loading::new(decided, image);
            let company = PlacementHints { shares: true, batch: in_batch };
            let blame = |_| BlamedSection { name: "an image's segment".to_owned(), bytes: loading.bytes() };
            let mut slab = batch.arena.allocate(&decided.object.name, &loading.requests, company, blame)?;
            objects.push(loading.write(&mut slab)?);
            slabs.push(slab);
        }
        match WritableSlab::publish_all(slabs) {
            Ok(slabs) => {
                for (linked, slab) in objects.iter_mut().zip(slabs) {
                    linked.allocation = Some(Allocation::new(slab, None));
                }
                Ok(LinkedBatch { objects, sets: None })
            }
            Err((error, slabs)) => {
                // Variables come first: see `Linked`.
                drop(objects);
                drop(slabs);
                Err(error)
            }
        }
    }
}

const PROTECTIONS: [Protection; 3] = [Protection::ReadExecute, Protection::Read, Protection::ReadWrite];
const WORD: u64 = 8;

/// Where something goes: the number of a request, and the offset there.
type Place = (usize, u64);

/// An image whose memory is wanted.
struct Loading<'a> {
    decided: &'a Decided,
    image: &'a ImageIndex,
    requests: Vec<SegmentRequest>,
    /// The place of each segment.
    segments: Vec<Place>,
    /// Of the words that descriptors refer to.
    descriptors: Place,
    /// Of the thread-local block's placeholder, which has no contents.
    block: Place,
}

/// An image that has its memory.
struct Placed<'l, 'a> {
    of: &'l Loading<'a>,
    /// The address of each request.
    addresses: Vec<u64>,
    got: u64,
    dso_handle: Option<u64>,
}

impl<'a> Loading<'a> {
    fn new(decided: &'a Decided, image: &'a ImageIndex) -> Self {
        let request = |protection| SegmentRequest {
            protection,
            lifetime: Lifetime::Standard,
            alignment: 1,
            content_bytes: 0,
            zero_fill_bytes: 0,
            outside: false,
        };
        let mut requests: Vec<SegmentRequest> = PROTECTIONS.map(request).into();
        let mut segments = Vec::with_capacity(image.segments.len());
        for segment in &image.segments {
            let number = match (segment.executable, segment.writable) {
                (true, _) => 0,
                (false, false) => 1,
                (false, true) => 2,
            };
            let Some(request) = requests.get_mut(number) else { continue };
            // It lies at the same offset from a multiple of its alignment as in the file.
            request.alignment = request.alignment.max(segment.alignment);
            let at = request.content_bytes.next_multiple_of(segment.alignment) + segment.address % segment.alignment;
            segments.push((number, at));
            request.content_bytes = at + segment.file.len() as u64;
            request.zero_fill_bytes = segment.bytes - segment.file.len() as u64;
        }
        let mut add = |number: usize, alignment: u64, content: u64, zeros: u64| {
            let Some(request) = requests.get_mut(number).filter(|_| content + zeros != 0) else { return (number, 0) };
            request.alignment = request.alignment.max(alignment);
            let end = request.content_bytes + request.zero_fill_bytes;
            let at = end.next_multiple_of(alignment);
            if content != 0 {
                request.content_bytes = at + content;
            } else {
                request.zero_fill_bytes = at + zeros - request.content_bytes;
            }
            (number, at)
        };
        let descriptors = add(1, WORD, 2 * WORD * image.descriptors as u64, 0);
        let block = add(2, WORD, 0, image.thread_local.map_or(0, |(.., bytes)| bytes.max(1)));
        Self { decided, image, requests, segments, descriptors, block }
    }

    fn bytes(&self) -> u64 {
        self.requests.iter().map(|request| request.content_bytes + request.zero_fill_bytes).sum()
    }

    fn write(&self, slab: &mut WritableSlab) -> Result<Linked> {
        let (object, image) = (&self.decided.object, self.image);
        let machine = object.index.machine;
        let addresses = slab.placements().iter().map(|placed| placed.address as u64).collect();
        let mut placed = Placed { of: self, addresses, got: 0, dso_handle: None };
        placed.got = placed.rebase(image.note.got).unwrap_or(0);
        placed.dso_handle = image.dso_handle.and_then(|import| self.import(import));
        for (segment, (request, at)) in image.segments.iter().zip(&self.segments) {
            let contents = object.bytes.get(segment.file.clone()).unwrap_or_default();
            if let Some(memory) = slab.contents_mut(*request) {
                put(memory, *at as usize, contents);
            }
        }
        let mut linked = Linked::default();
        let mut descriptors = 0;
        for relocation in image.relocations(machine, &object.bytes) {
            let ImageRelocation { at, operation, .. } = relocation;
            let value = if operation == ImageOperation::Descriptor {
                let pair = placed.at(self.descriptors) + 2 * WORD * descriptors;
                descriptors += 1;
                self.write_descriptor(&placed, relocation, pair, slab)
            } else {
                placed.value(relocation)
            };
            let value = value.ok_or_else(|| self.unresolved(relocation))?;
            placed.write(slab, at, &value.to_le_bytes());
            if operation == ImageOperation::Indirect {
                linked.slots.extend(placed.rebase(at));
            }
        }
        for reference in image.references(machine, &object.bytes) {
            let target = placed.target(reference).zip(placed.rebase(reference.at));
            let written = target.and_then(|(target, at)| {
                let value = reference.kind.address_form()?.value(target, at, placed.got);
                let (request, offset) = placed.place(reference.at)?;
                reference.kind.encode(slab.contents_mut(request)?.get_mut(offset as usize..)?, value).ok()
            });
            written.ok_or_else(|| {
                let (object, offset) = (object.name.to_string(), reference.at);
                Error::Image(ImageError::Far { object, offset, relocation: reference.kind.name })
            })?;
        }
        if image.frames != 0 && !self.has_sound_frames(&placed, slab) {
            let (object, problem) = (object.name.to_string(), "its unwind table cannot be read");
            return Err(Error::Image(ImageError::Damaged { object, problem }));
        }
        linked.definitions = self.definitions(&placed);
        linked.arrays = image.arrays.iter().map(|address| placed.rebase(*address).unwrap_or(0)).collect();
        linked.frames = if image.frames == 0 { 0 } else { placed.rebase(image.frames).unwrap_or(0) };
        linked.functions = self.functions(&linked.definitions, &placed);
        self.place_variables(&placed, &mut linked, slab);
        Ok(linked)
    }

    /// Returns whether the unwind table is still one after what was written into it.
    fn has_sound_frames(&self, placed: &Placed<'_, '_>, slab: &mut WritableSlab) -> bool {
        let frames = self.image.frames;
        let segment = self.image.segment_at(frames).and_then(|at| self.image.segments.get(at));
        let Some((segment, (request, offset))) = segment.zip(placed.place(frames)) else { return false };
        // Reading has checked that it begins there.
        let bytes = (segment.address + segment.file.len() as u64).saturating_sub(frames);
        let table =
            slab.contents_mut(request).and_then(|memory| memory.get(offset as usize..(offset + bytes) as usize));
        table.is_some_and(is_sound)
    }

    /// Returns the address that an import was bound to.
    fn import(&self, import: u32) -> Option<u64> {
        match self.decided.externals.get(import as usize)? {
            External::Absolute(address) => Some(*address),
            _ => None,
        }
    }

    fn variable(&self, relocation: ImageRelocation) -> Option<Variable> {
        match relocation.import {
            Some(import) => tls::find(self.import(import)?, 0),
            None => Some(self.decided.storage.as_ref()?.start()),
        }
    }

    /// Returns the first word of a descriptor; the second is written.
    fn write_descriptor(
        &self,
        placed: &Placed<'_, '_>,
        relocation: ImageRelocation,
        pair: u64,
        slab: &mut WritableSlab,
    ) -> Option<u64> {
        let variable = self.variable(relocation)?.moved(relocation.addend as u64);
        let (function, second) = match Descriptor::of(variable) {
            Descriptor::Fixed { function, distance } => (function, distance as u64),
            Descriptor::Dynamic { function } => {
                let words = [variable.module.to_le_bytes(), variable.offset.to_le_bytes()].concat();
                let at = pair.wrapping_sub(placed.at((self.descriptors.0, 0)));
                put(slab.contents_mut(self.descriptors.0)?, at as usize, &words);
                (function, pair)
            }
        };
        placed.write(slab, relocation.at + WORD, &second.to_le_bytes());
        Some(function)
    }

    fn unresolved(&self, relocation: ImageRelocation) -> Error {
        let index = &self.decided.object.index;
        let import = relocation.import.and_then(|import| index.imports.get(import as usize));
        let symbol = import.map_or("", |import| index.name(import.name)).to_owned();
        Error::Image(ImageError::NoVariable { object: self.decided.object.name.to_string(), symbol })
    }

    fn definitions(&self, placed: &Placed<'_, '_>) -> Vec<u64> {
        let index = &self.decided.object.index;
        let contents = self.image.thread_local.map_or(0, |(_, contents, _)| contents);
        let segments = self.image.segments.len() as u32;
        let address = |definition: &crate::elf::Definition| {
            if definition.absolute {
                return Some(definition.value);
            }
            if definition.kind == SymbolKind::ThreadLocal {
                let is_zero = definition.section > segments + 1;
                return Some(placed.at(self.block) + definition.value + if is_zero { contents } else { 0 });
            }
            let segment = self.image.segments.get(definition.section.checked_sub(1)? as usize)?;
            placed.rebase(segment.address + definition.value)
        };
        index.definitions.iter().map(|definition| address(definition).unwrap_or(0)).collect()
    }

    fn functions(&self, addresses: &[u64], placed: &Placed<'_, '_>) -> FunctionList {
        let index = &self.decided.object.index;
        let mut list = FunctionList::default();
        for (definition, address) in index.definitions.iter().zip(addresses) {
            if definition.kind == SymbolKind::Function && definition.size != 0 {
                list.push(index.name(definition.name), *address, definition.size);
            }
        }
        for (name, address, bytes) in self.image.locals(&self.decided.object.bytes) {
            let segment = self.image.segment_at(address).and_then(|at| self.image.segments.get(at));
            let fits =
                |segment: &ImageSegment| segment.executable && bytes <= segment.address + segment.bytes - address;
            if bytes != 0 && segment.is_some_and(fits) {
                placed.rebase(address).into_iter().for_each(|at| list.push(name, at, bytes));
            }
        }
        list
    }

    /// Gives threads' blocks their contents.
    fn place_variables(&self, placed: &Placed<'_, '_>, linked: &mut Linked, slab: &WritableSlab) {
        let Decided { object, number, storage, .. } = self.decided;
        let (Some(storage), Some((address, contents, _))) = (storage, self.image.thread_local) else { return };
        let first = self.image.segments.len() as u32 + 1;
        let block = placed.at(self.block);
        let places = [(first, block), (first + 1, block + contents)];
        linked.variables = Some(Box::new(Variables::new(object, *number, storage, &places)));
        if let Some(relocated) = placed.rebase(address).and_then(|address| slab.written(address as usize)) {
            // SAFETY: the contents are written there, and nothing of the image has run.
            unsafe { tls::copy_contents(object, *number, storage, &[(first, relocated as u64)]) };
        }
    }
}

impl Placed<'_, '_> {
    fn at(&self, (request, offset): Place) -> u64 {
        self.addresses.get(request).copied().unwrap_or(0) + offset
    }

    /// Returns the place of an address of the file.
    fn place(&self, address: u64) -> Option<Place> {
        let segment = self.of.image.segment_at(address)?;
        let (request, at) = *self.of.segments.get(segment)?;
        Some((request, at + (address - self.of.image.segments.get(segment)?.address)))
    }

    /// Returns the address of what has an address in the file.
    fn rebase(&self, address: u64) -> Option<u64> {
        if let Some(handle) = self.dso_handle.filter(|_| address == self.of.image.note.dso_handle) {
            return Some(handle);
        }
        Some(self.at(self.place(address)?))
    }

    /// Returns the address that a reference writes: it moves with the segment of its symbol.
    fn target(&self, reference: Reference) -> Option<u64> {
        let image = self.of.image;
        if reference.segment == DSO_HANDLE {
            return Some(reference.target.wrapping_sub(image.note.dso_handle).wrapping_add(self.dso_handle?));
        }
        let segment = image.segments.iter().position(|segment| segment.class == reference.segment)?;
        let place = self.at(*self.of.segments.get(segment)?);
        Some(reference.target.wrapping_sub(image.segments.get(segment)?.address).wrapping_add(place))
    }

    fn write(&self, slab: &mut WritableSlab, at: u64, bytes: &[u8]) {
        if let Some((request, offset)) = self.place(at)
            && let Some(memory) = slab.contents_mut(request)
        {
            put(memory, offset as usize, bytes);
        }
    }

    fn value(&self, relocation: ImageRelocation) -> Option<u64> {
        let ImageRelocation { operation, import, addend, .. } = relocation;
        let variable = || Some(self.of.variable(relocation)?.moved(addend as u64));
        match operation {
            ImageOperation::Relative => Some(self.rebase(addend as u64).unwrap_or(0)),
            ImageOperation::Indirect => self.rebase(addend as u64),
            ImageOperation::Address => Some(self.of.import(import?)?.wrapping_add_signed(addend)),
            ImageOperation::Module => Some(self.of.variable(relocation)?.module),
            ImageOperation::Offset => Some(variable()?.offset),
            ImageOperation::Distance => Some(variable()?.distance? as u64),
            ImageOperation::Descriptor => None,
        }
    }
}
