//! Loads images: places their segments, and makes their relocations. No linker takes part.
#![allow(unsafe_code, reason = "what is loaded is run")]

use smallvec::SmallVec;

use super::room::{Place, Room, WORD};
use crate::ImageError;
use crate::elf::image_file::{ImageIndex, ImageRelocation, Unfit};
use crate::elf::image_frames::is_sound;
use crate::elf::image_note::{DSO_HANDLE, Reference};
use crate::elf::put;
use crate::elf::relocations::DynamicKind;
use crate::live::linked::linked_object::{Allocation, Linked};
use crate::live::linker::{Batch, LinkedBatch, Linker};
use crate::live::resolve::decided::{Decided, External};
use crate::live::tls::{self, Descriptor, Variable, Variables};
use crate::memory::{BlamedSection, Contents, PlacementHints, WritableSlab};
use crate::read::LastingFile;
use crate::{Error, Result};

/// The loader of images.
pub(crate) struct ImageLoader;

// SAFETY: the addresses are those of the image's segments, which lie where `Placed` says; reading has checked that all
// tables lie in them, and that the unwind table ends.
unsafe impl Linker for ImageLoader {
    fn link(&self, batch: Batch<'_>) -> Result<LinkedBatch> {
        let (mut slabs, mut objects) = (SmallVec::new(), SmallVec::<[Linked; 1]>::new());
        let in_batch = batch.objects.len() > 1;
        for decided in &batch.objects {
            let Some(image) = decided.object.image.as_deref() else {
                let image = batch.objects.iter().find(|decided| decided.object.image.is_some());
                let object = image.map_or_else(String::new, |decided| decided.object.name.to_string());
                return Err(Error::Image(ImageError::NotAlone { object }));
            };
            let file = decided.object.file.as_deref().and_then(LastingFile::unchanged);
            let room = Room::new(image, file.is_some());
            if room.offsets.is_none() && image.keeps_distances() {
                // The system's pages are too large for that; what it takes instead was not read yet.
                let are_sound = image.has_sound_references(decided.object.index.machine, &decided.object.bytes);
                are_sound
                    .then_some(())
                    .ok_or_else(|| Error::Image(Unfit::REFERENCE.into_error(&decided.object.name.text())))?;
            }
            let company = PlacementHints { shares: true, batch: in_batch };
            let blame = |_| BlamedSection { name: "an image's segment".to_owned(), bytes: room.bytes() };
            let name = &decided.object.name;
            let mut slab = match &room.offsets {
                Some(offsets) => batch.arena.allocate_at(name, &room.requests, offsets, blame)?,
                None => batch.arena.allocate(name, &room.requests, company, blame)?,
            };
            room.fill(&mut slab, image, &decided.object.bytes, file);
            objects.push(Loading { decided, image, room }.write(&mut slab)?);
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

/// An image whose memory is wanted.
struct Loading<'a> {
    decided: &'a Decided,
    image: &'a ImageIndex,
    room: Room,
}

/// An image that has its memory.
struct Placed<'l, 'a> {
    of: &'l Loading<'a>,
    /// The address of each request.
    addresses: SmallVec<[u64; 4]>,
    segments: SmallVec<[PlacedSegment; 4]>,
    got: u64,
    dso_handle: Option<u64>,
}

/// A segment, in the file and in memory.
#[derive(Clone, Copy, Default)]
struct PlacedSegment {
    in_file: u64,
    bytes: u64,
    place: Place,
    address: u64,
}

impl<'a> Loading<'a> {
    fn write(&self, slab: &mut WritableSlab) -> Result<Linked> {
        let (object, image) = (&self.decided.object, self.image);
        let machine = object.index.machine;
        let addresses = slab.placements().iter().map(|placed| placed.address as u64).collect();
        let mut placed = Placed { of: self, addresses, segments: SmallVec::new(), got: 0, dso_handle: None };
        let segments = image.segments.iter().zip(&self.room.segments).map(|(segment, place)| {
            let (in_file, bytes, address) = (segment.address, segment.bytes, placed.at(*place));
            PlacedSegment { in_file, bytes, place: *place, address }
        });
        placed.segments = segments.collect();
        placed.got = placed.rebase(image.note.got).unwrap_or(0);
        placed.dso_handle = image.dso_handle.and_then(|import| self.import(import));
        let mut linked = self.relocate(&placed, slab)?;
        let (mut apart, mut together);
        let references: &mut dyn Iterator<Item = _> = if self.room.offsets.is_none() {
            apart = image.references(machine, &object.bytes);
            &mut apart
        } else {
            together = image.addresses(machine, &object.bytes);
            &mut together
        };
        for reference in references.map_while(Result::ok) {
            let target = placed.target(reference).zip(placed.rebase(reference.at));
            let written = target.and_then(|(target, at)| {
                let value = reference.kind.address_form()?.value(target, at, placed.got);
                let (request, offset) = placed.place(reference.at)?;
                self.room.note_code(slab, request, offset as usize, reference.kind.width.into());
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
        linked.definitions = self.addresses(&placed);
        linked.arrays = image.arrays.iter().map(|address| placed.rebase(*address).unwrap_or(0)).collect();
        linked.frames = if image.frames == 0 { 0 } else { placed.rebase(image.frames).unwrap_or(0) };
        self.place_variables(&placed, &mut linked, slab);
        Ok(linked)
    }

    /// Makes the relocations by the loader. The result has what they ask of the link beside that.
    fn relocate(&self, placed: &Placed<'_, '_>, slab: &mut WritableSlab) -> Result<Linked> {
        let (object, image) = (&self.decided.object, self.image);
        let places = PlacedSegment::default();
        // Segments that keep the file's distances are one, whose end counts.
        let targets = match (&self.room.offsets, &*placed.segments) {
            (Some(_), [first, .., last]) => {
                PlacedSegment { bytes: last.in_file + last.bytes - first.in_file + 1, ..*first }
            }
            _ => PlacedSegment::default(),
        };
        let (memory, linked) = (slab.all_contents_mut(), Linked::default());
        let mut relocating = Relocating { placed, memory, linked, descriptors: 0, places, targets };
        image.relr_places(&object.bytes).for_each(|at| relocating.without_addend(at));
        let (machine, bytes) = (object.index.machine, &object.bytes);
        image.relocations(machine, bytes, &mut relocating, Relocating::relative, Relocating::other)?;
        Ok(relocating.linked)
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
        memory: &mut Contents<'_>,
    ) -> Option<u64> {
        let variable = self.variable(relocation)?.moved(relocation.addend as u64);
        let (function, second) = match Descriptor::of(variable) {
            Descriptor::Fixed { function, distance } => (function, distance as u64),
            Descriptor::Dynamic { function } => {
                let words = [variable.module.to_le_bytes(), variable.offset.to_le_bytes()].concat();
                let at = pair.wrapping_sub(placed.at((self.room.descriptors.0, 0)));
                put(memory.get_mut(self.room.descriptors.0)?, at as usize, &words);
                (function, pair)
            }
        };
        placed.write(memory, relocation.at + WORD, &second.to_le_bytes());
        Some(function)
    }

    fn unresolved(&self, relocation: ImageRelocation) -> Error {
        let index = &self.decided.object.index;
        let import = relocation.import.and_then(|import| index.imports.get(import as usize));
        let symbol = import.map_or("", |import| index.name(import.name)).to_owned();
        Error::Image(ImageError::NoVariable { object: self.decided.object.name.to_string(), symbol })
    }

    /// Returns the addresses of the segments, then that of the thread-local block.
    fn addresses(&self, placed: &Placed<'_, '_>) -> Vec<u64> {
        self.room.segments.iter().chain([&self.room.block]).map(|place| placed.at(*place)).collect()
    }

    /// Gives threads' blocks their contents.
    fn place_variables(&self, placed: &Placed<'_, '_>, linked: &mut Linked, slab: &WritableSlab) {
        let Decided { object, number, storage, .. } = self.decided;
        let (Some(storage), Some((address, contents, _))) = (storage, self.image.thread_local) else { return };
        let first = self.image.segments.len() as u32 + 1;
        let block = placed.at(self.room.block);
        let places = [(first, block), (first + 1, block + contents)];
        linked.variables = Some(Box::new(Variables::new(object, *number, storage, &places)));
        if let Some(relocated) = placed.rebase(address).and_then(|address| slab.written(address as usize)) {
            // SAFETY: the contents are written there, and nothing of the image has run.
            unsafe { tls::copy_contents(object, *number, storage, &[(first, relocated as u64)]) };
        }
    }
}

/// An image whose relocations are being made.
struct Relocating<'p, 'l, 'a> {
    placed: &'p Placed<'l, 'a>,
    memory: Contents<'p>,
    linked: Linked,
    /// How many descriptors were written.
    descriptors: u64,
    /// The segments of the last place and of the last address: most lie where those before them do.
    places: PlacedSegment,
    targets: PlacedSegment,
}

impl Relocating<'_, '_, '_> {
    /// Moves an address that has been written.
    fn without_addend(&mut self, at: u64) {
        if let Some(word) = self.word(at) {
            let address = u64::from_le_bytes(*word);
            let moved = self.moved(address).to_le_bytes();
            self.word(at).into_iter().for_each(|word| *word = moved);
        }
    }

    fn relative(&mut self, at: u64, address: u64) -> bool {
        let moved = self.moved(address).to_le_bytes();
        self.word(at).into_iter().for_each(|word| *word = moved);
        true
    }

    /// Returns where an address of the file is.
    #[inline]
    fn moved(&mut self, address: u64) -> u64 {
        let Self { placed, targets, .. } = self;
        let target = placed.segment_after(targets, address).map(|offset| targets.address + offset);
        placed.handle_at(address).or(target).unwrap_or(0)
    }

    /// Returns the word at an address of the file.
    #[inline]
    fn word(&mut self, at: u64) -> Option<&mut [u8; 8]> {
        let Self { placed, memory, places, .. } = self;
        let offset = placed.segment_after(places, at)?;
        let (request, start) = places.place;
        memory.get_mut(request)?.get_mut((start + offset) as usize..)?.first_chunk_mut()
    }

    fn other(&mut self, relocation: ImageRelocation) -> Result<()> {
        let (placed, of) = (self.placed, self.placed.of);
        let ImageRelocation { at, kind, .. } = relocation;
        let value = if kind == DynamicKind::Descriptor {
            let pair = placed.at(of.room.descriptors) + 2 * WORD * self.descriptors;
            self.descriptors += 1;
            of.write_descriptor(placed, relocation, pair, &mut self.memory)
        } else {
            placed.value(relocation)
        };
        placed.write(&mut self.memory, at, &value.ok_or_else(|| of.unresolved(relocation))?.to_le_bytes());
        if kind == DynamicKind::Indirect {
            self.linked.slots.extend(placed.rebase(at));
        }
        Ok(())
    }
}

impl Placed<'_, '_> {
    fn at(&self, (request, offset): Place) -> u64 {
        self.addresses.get(request).copied().unwrap_or(0) + offset
    }

    /// Returns the segment that has an address of the file, its end included, and the offset there.
    fn segment(&self, address: u64) -> Option<(&PlacedSegment, u64)> {
        let segment = self.segments.iter().find(|segment| address.wrapping_sub(segment.in_file) <= segment.bytes)?;
        Some((segment, address - segment.in_file))
    }

    /// Returns the offset of an address in its segment. Looks at `last` first, and leaves the segment there.
    fn segment_after(&self, last: &mut PlacedSegment, address: u64) -> Option<u64> {
        let offset = address.wrapping_sub(last.in_file);
        if offset < last.bytes {
            return Some(offset);
        }
        let (segment, offset) = self.segment(address)?;
        *last = *segment;
        Some(offset)
    }

    /// Returns the address that `__dso_handle` was bound to, if that has this address in the file.
    fn handle_at(&self, address: u64) -> Option<u64> {
        self.dso_handle.filter(|_| address == self.of.image.note.dso_handle)
    }

    /// Returns the place of an address of the file.
    fn place(&self, address: u64) -> Option<Place> {
        let (PlacedSegment { place: (request, at), .. }, offset) = self.segment(address)?;
        Some((*request, at + offset))
    }

    /// Returns the address of what has an address in the file.
    fn rebase(&self, address: u64) -> Option<u64> {
        if let Some(handle) = self.handle_at(address) {
            return Some(handle);
        }
        let (segment, offset) = self.segment(address)?;
        Some(segment.address + offset)
    }

    /// Returns the address that a reference writes: it moves with the segment of its symbol.
    fn target(&self, reference: Reference) -> Option<u64> {
        let image = self.of.image;
        if reference.segment == DSO_HANDLE {
            return Some(reference.target.wrapping_sub(image.note.dso_handle).wrapping_add(self.dso_handle?));
        }
        let segment = image.segments.iter().position(|segment| segment.class == reference.segment)?;
        let place = self.at(*self.of.room.segments.get(segment)?);
        Some(reference.target.wrapping_sub(image.segments.get(segment)?.address).wrapping_add(place))
    }

    fn write(&self, memory: &mut Contents<'_>, at: u64, bytes: &[u8]) {
        if let Some((request, offset)) = self.place(at)
            && let Some(memory) = memory.get_mut(request)
        {
            put(memory, offset as usize, bytes);
        }
    }

    fn value(&self, relocation: ImageRelocation) -> Option<u64> {
        let ImageRelocation { kind, import, addend, .. } = relocation;
        let variable = || Some(self.of.variable(relocation)?.moved(addend as u64));
        match kind {
            DynamicKind::Indirect => self.rebase(addend as u64),
            DynamicKind::Address | DynamicKind::Slot => Some(self.of.import(import?)?.wrapping_add_signed(addend)),
            DynamicKind::Module => Some(self.of.variable(relocation)?.module),
            DynamicKind::Offset => Some(variable()?.offset),
            DynamicKind::Distance => Some(variable()?.distance? as u64),
            // `relative` and `write_descriptor` give these.
            DynamicKind::Relative | DynamicKind::Descriptor => None,
        }
    }
}
