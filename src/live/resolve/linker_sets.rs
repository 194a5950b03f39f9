//! Linker sets: sections of one name that is an identifier of C, which code goes through from `__start_NAME` to
//! `__stop_NAME`.
//!
//! Sections of one name in objects that are linked together form one set, as in a shared library. JITLink links object
//! by object, and knows the bounds of an object's own sections only. So where several objects have sections of a set
//! that code reads, these lie in memory that is reserved before the first object is linked: their sizes are in the
//! headers, and nothing of a set is pruned. The sections of an unread set stay in their objects' slabs.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use crate::elf::Section;
use crate::fork_guard::Mutex;
use crate::live::resolve::decided::Decided;
use crate::live::resolve::prepared::PreparedObject;
use crate::live::resolve::set_bounds::{Bound, bound};
use crate::live::resolve::symbol_table::SymbolTable;
use crate::memory::{
    Arena, Blame, BlamedSection, Extent, Lifetime, PlacementHints, Protection, PublishedSlab, SegmentRequest,
    WritableSlab,
};
use crate::name::Name;
use crate::{Error, LinkError, LinkerSetUse, Result};

// ---- the sets of a library ----

/// The sets of a library's objects that are linked, or are being linked.
#[derive(Debug, Default)]
#[allow(clippy::box_collection, reason = "a pointer's size where there are none")]
pub(crate) struct Known(Option<Box<HashMap<Box<str>, KnownSet>>>);

#[derive(Debug, Default)]
struct KnownSet {
    /// Numbers of the objects that have sections of it, and of those that refer to its bounds.
    objects: Vec<u32>,
    readers: Vec<u32>,
    /// `None` while it is linked, and where it is not in one piece.
    bounds: Option<Range<u64>>,
}

impl Known {
    fn get(&self, set: &str) -> Option<&KnownSet> {
        self.0.as_ref()?.get(set)
    }

    /// Returns whether a set has sections.
    pub(crate) fn has(&self, set: &str) -> bool {
        self.get(set).is_some_and(|known| !known.objects.is_empty())
    }

    /// Refuses an object that has a section of a set whose bounds were read. `dead`: sections that are linked from
    /// another object, sorted.
    pub(crate) fn admit(
        &self,
        library: &Name,
        object: &PreparedObject,
        dead: &[u32],
        name_of: impl Fn(u32) -> String,
    ) -> Result<()> {
        if self.0.is_none() {
            return Ok(());
        }
        for &section in object.sets().iter().filter(|section| dead.binary_search(section).is_err()) {
            let set = object.index.section_name(section);
            if let Some(&reader) = self.get(set).and_then(|known| known.readers.first()) {
                return Err(late(library, object.name.to_string(), set, name_of(reader), LinkerSetUse::ReadBounds));
            }
        }
        Ok(())
    }

    /// Records that a batch is about to be linked.
    pub(crate) fn begin(&mut self, plan: &Plan) {
        for set in plan.sets.iter().filter(|set| !set.pieces.is_empty() || set.is_read()) {
            let known = self.0.get_or_insert_default().entry(set.name.clone()).or_default();
            known.objects.extend(set.pieces.iter().map(|piece| piece.number));
            known.objects.dedup();
            known.readers.extend(&set.readers);
            known.readers.dedup();
            if !set.pieces.is_empty() {
                known.bounds = None;
            }
        }
    }

    /// Records the bounds of a linked batch's sets.
    pub(crate) fn settle(&mut self, bounds: Vec<(Box<str>, Range<u64>)>) {
        for (set, bounds) in bounds {
            if let Some(known) = self.0.as_mut().and_then(|sets| sets.get_mut(&set)) {
                known.bounds = Some(bounds);
            }
        }
    }

    /// Removes objects that are not linked any more.
    pub(crate) fn forget(&mut self, numbers: impl IntoIterator<Item = u32>) {
        let Some(sets) = &mut self.0 else { return };
        let mut gone: Vec<u32> = numbers.into_iter().collect();
        gone.sort_unstable();
        let stays = |number: &u32| gone.binary_search(number).is_err();
        sets.retain(|_, known| {
            known.objects.retain(stays);
            known.readers.retain(stays);
            !known.objects.is_empty() || !known.readers.is_empty()
        });
        if sets.is_empty() {
            self.0 = None;
        }
    }
}

fn late(library: &Name, object: String, set: &str, other: String, done: LinkerSetUse) -> Error {
    let (library, section) = (library.to_string(), set.to_owned());
    Error::Link(LinkError::LateForLinkerSet { object, library, section, other, done })
}

// ---- the sets of a batch ----

/// The sets that a batch has to do with.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    sets: Vec<Set>,
    by_name: HashMap<Box<str>, usize>,
}

#[derive(Debug)]
struct Set {
    name: Box<str>,
    /// In link order.
    pieces: Vec<Piece>,
    /// Numbers of the objects that refer to its bounds.
    readers: Vec<u32>,
    place: Place,
    /// Nothing of it was linked before.
    is_whole: bool,
    /// Some reference was bound to nothing, because there is no such section.
    absent: bool,
}

/// A section of a set.
#[derive(Debug, Clone, Copy)]
struct Piece {
    /// Position of its object in the batch.
    object: usize,
    /// Number of its object in the library.
    number: u32,
    /// Its index.
    section: u32,
}

/// The place of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// In its objects: no object of the batch reads it.
    Apart,
    /// In the only object that has anything to do with it: JITLink defines its bounds.
    Object,
    /// In memory of its own.
    Together,
    /// Where it was linked before.
    Linked(Range<u64>),
    /// Nowhere: the names may mean something else.
    Nowhere,
}

/// The binding of a batch's reference to a bound.
#[derive(Debug, Clone)]
pub(crate) enum Binding {
    /// JITLink defines it.
    Object,
    /// The set of this number.
    Together(usize),
    At(u64),
    /// There is no such set in the library.
    Nowhere,
}

impl Plan {
    /// Returns the sets of a batch. `dead`: each object's sections that are linked from another one, sorted.
    pub(crate) fn new(
        library: &Name,
        known: &Known,
        names: &SymbolTable,
        batch: &[(u32, Arc<PreparedObject>)],
        dead: &[Vec<u32>],
        name_of: impl Fn(u32) -> String,
    ) -> Result<Self> {
        let mut plan = Self::default();
        for (object, ((number, prepared), dead)) in batch.iter().zip(dead).enumerate() {
            for &section in prepared.sets().iter().filter(|section| dead.binary_search(section).is_err()) {
                let piece = Piece { object, number: *number, section };
                plan.set(prepared.index.section_name(section)).pieces.push(piece);
            }
            for import in &prepared.index.imports {
                let name = prepared.index.name(import.name);
                let Some((_, set)) = bound(name) else { continue };
                // A name that the library defines itself is no bound.
                if names.get(name).is_none() {
                    plan.set(set).readers.push(*number);
                }
            }
        }
        for set in &mut plan.sets {
            set.place = place(library, known.get(&set.name), set, batch, &name_of)?;
            set.is_whole = !known.has(&set.name);
        }
        Ok(plan)
    }

    fn set(&mut self, name: &str) -> &mut Set {
        let at = match self.by_name.get(name) {
            Some(at) => *at,
            None => {
                let (at, name) = (self.sets.len(), Box::<str>::from(name));
                self.by_name.insert(name.clone(), at);
                let (pieces, readers) = (Vec::new(), Vec::new());
                let place = Place::Apart;
                self.sets.push(Set { name, pieces, readers, place, is_whole: true, absent: false });
                at
            }
        };
        &mut self.sets[at]
    }

    /// Returns the binding of a reference to a bound of a set.
    pub(crate) fn bind(&self, bound: Bound, set: &str) -> Binding {
        let Some((at, set)) = self.by_name.get(set).and_then(|at| Some((*at, self.sets.get(*at)?))) else {
            return Binding::Nowhere;
        };
        match &set.place {
            Place::Object => Binding::Object,
            Place::Together => Binding::Together(at),
            Place::Linked(range) => Binding::At(bound.of(range)),
            Place::Apart | Place::Nowhere => Binding::Nowhere,
        }
    }

    /// Records that a reference to a bound was bound to nothing: sections that come later would be missing.
    pub(crate) fn note_absent(&mut self, set: &str) {
        if let Some(set) = self.by_name.get(set).and_then(|at| self.sets.get_mut(*at)) {
            set.absent = true;
        }
    }

    /// Returns the bounds of sets that are in one piece. `own` has, for each object, the bounds of set sections in it.
    pub(crate) fn bounds(
        &self,
        together: Option<&Memory>,
        batch: &[(u32, Arc<PreparedObject>)],
        own: &[Vec<(u32, Range<u64>)>],
    ) -> Vec<(Box<str>, Range<u64>)> {
        let mut bounds: Vec<Option<Range<u64>>> = vec![None; self.sets.len()];
        for (object, ((_, prepared), own)) in batch.iter().zip(own).enumerate() {
            for (section, range) in own {
                let Some(&at) = self.by_name.get(prepared.index.section_name(*section)) else { continue };
                let whole = |set: &Set| {
                    let first = set.pieces.first().is_some_and(|piece| piece.object == object);
                    first && set.is_whole && set.is_uniform(|piece| batch.get(piece.object).map(|(_, object)| object))
                };
                if self.sets.get(at).is_some_and(whole)
                    && let Some(all) = bounds.get_mut(at)
                {
                    let known = all.take().unwrap_or_else(|| range.clone());
                    *all = Some(known.start.min(range.start)..known.end.max(range.end));
                }
            }
        }
        let all = self.sets.iter().zip(bounds).enumerate();
        let known = all.filter_map(|(at, (set, own))| {
            let bounds = if set.place == Place::Together { together?.bounds(at) } else { own };
            Some((set.name.clone(), bounds?))
        });
        known.collect()
    }
}

fn place(
    library: &Name,
    known: Option<&KnownSet>,
    set: &Set,
    batch: &[(u32, Arc<PreparedObject>)],
    name_of: impl Fn(u32) -> String,
) -> Result<Place> {
    let object_of = |number: u32| {
        let object = batch.iter().find(|(n, _)| *n == number);
        object.map_or_else(String::new, |(_, object)| object.name.to_string())
    };
    let late = |object: u32, other: u32, done| Err(late(library, object_of(object), &set.name, name_of(other), done));
    let linked = known.and_then(|known| Some((*known.objects.first()?, known)));
    if let (Some(first), Some(&reader)) = (set.pieces.first(), known.and_then(|known| known.readers.first())) {
        return late(first.number, reader, LinkerSetUse::ReadBounds);
    }
    let Some(&reader) = set.readers.first() else { return Ok(Place::Apart) };
    match (set.pieces.first(), linked) {
        (None, None) => Ok(Place::Nowhere),
        (None, Some((other, known))) => match &known.bounds {
            Some(bounds) => Ok(Place::Linked(bounds.clone())),
            None => late(reader, other, LinkerSetUse::Linked),
        },
        (Some(_), Some((other, _))) => late(reader, other, LinkerSetUse::Linked),
        (Some(first), None) => {
            let object = |piece: &Piece| batch.get(piece.object).map(|(_, object)| object);
            let section = |piece: &Piece| object(piece)?.index.sections.get(piece.section as usize);
            let code = |piece: &&Piece| section(piece).and_then(Section::mapped).is_some_and(|(code, _)| code);
            let code = set.pieces.iter().find(code);
            let alone = set.readers.iter().all(|reader| *reader == first.number)
                && set.pieces.iter().all(|piece| piece.object == first.object);
            if alone && (code.is_some() || set.is_uniform(object)) {
                return Ok(Place::Object);
            }
            match code {
                // It would have to be unwound through, and libgcc finds the code of an object in one place only.
                Some(piece) => Err(Error::Link(LinkError::ExecutableLinkerSet {
                    object: object_of(piece.number),
                    library: library.to_string(),
                    section: set.name.to_string(),
                })),
                None => Ok(Place::Together),
            }
        }
    }
}

impl Set {
    /// Returns whether its bounds were bound to something of the library's, or to nothing.
    fn is_read(&self) -> bool {
        !self.readers.is_empty() && (self.place != Place::Nowhere || self.absent)
    }

    /// Returns whether its sections are of one object, in which JITLink puts them one behind the other as a linker
    /// would: none has another alignment, and all have contents or none has.
    fn is_uniform<'a>(&self, object: impl Fn(&Piece) -> Option<&'a Arc<PreparedObject>>) -> bool {
        let traits = |piece: &Piece| {
            let section = object(piece)?.index.sections.get(piece.section as usize)?;
            Some((piece.object, section.alignment.max(1), section.has_contents))
        };
        let mut all = self.pieces.iter().map(traits);
        let first = all.next().flatten();
        first.is_some() && all.all(|piece| piece == first)
    }
}

// ---- memory of sets of several objects ----

/// Memory of the sets of a batch that are put together.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Numbers of the sets that are here.
    names: HashMap<Box<str>, usize>,
    /// The bounds of each set; empty where it is not here.
    bounds: Vec<Range<u64>>,
    /// Of each object of the batch.
    pieces: Vec<Mutex<BTreeMap<Key, Vec<Room>>>>,
    slab: Mutex<Slab>,
}

#[derive(Debug, Default)]
enum Slab {
    #[default]
    None,
    Writable(WritableSlab),
    Published(PublishedSlab),
}

/// The key that tells sections of an object apart for JITLink: the set, the offset in the file if there are contents,
/// size and alignment. Sections with equal keys have neither bytes nor an order.
type Key = (usize, Option<u64>, u64, u64);

/// The address of a section, and the place where it is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) address: u64,
    pub(crate) written: u64,
}

/// A segment in the making.
#[derive(Default)]
struct Segment {
    bytes: u64,
    content: u64,
    alignment: u64,
    /// Each section, and its offset.
    pieces: Vec<(usize, Piece, u64)>,
    /// Each set, and its offsets.
    sets: Vec<(usize, Range<u64>)>,
}

impl Memory {
    /// Reserves memory for the sets; none where nothing is put together.
    pub(crate) fn reserve(arena: &Arc<Arena>, plan: &Plan, batch: &[Decided]) -> Result<Option<Self>> {
        if plan.sets.iter().all(|set| set.place != Place::Together) {
            return Ok(None);
        }
        let section = |piece: &Piece| batch.get(piece.object)?.object.index.sections.get(piece.section as usize);
        let together = || plan.sets.iter().enumerate().filter(|(_, set)| set.place == Place::Together);
        let is_content = |set: &Set| set.pieces.iter().any(|piece| section(piece).is_some_and(|s| s.has_contents));
        let mut segments = [Segment::default(), Segment::default()];
        // Zero sections come last: they are not touched.
        let (content, zero): (Vec<_>, Vec<_>) = together().partition(|(_, set)| is_content(set));
        for (at, set) in content.iter().chain(&zero) {
            let sections = || set.pieces.iter().filter_map(|piece| Some((*piece, section(piece)?)));
            let writable = sections().any(|(_, section)| section.mapped().is_some_and(|(_, writable)| writable));
            let segment = &mut segments[usize::from(writable)];
            let alignment = sections().map(|(_, section)| section.alignment.max(1)).max().unwrap_or(1);
            segment.alignment = segment.alignment.max(alignment);
            let mut end = segment.bytes.saturating_add(alignment - 1) & !(alignment - 1);
            let start = end;
            for (piece, section) in sections() {
                let mask = section.alignment.max(1) - 1;
                end = end.saturating_add(mask) & !mask;
                segment.pieces.push((*at, piece, end));
                end = end.saturating_add(section.size);
            }
            segment.sets.push((*at, start..end));
            segment.bytes = end;
            if is_content(set) {
                segment.content = end;
            }
        }
        let requests: Vec<SegmentRequest> = [Protection::Read, Protection::ReadWrite]
            .into_iter()
            .zip(&segments)
            .map(|(protection, segment)| SegmentRequest {
                protection,
                lifetime: Lifetime::Standard,
                alignment: segment.alignment,
                content_bytes: segment.content,
                zero_fill_bytes: segment.bytes - segment.content,
                outside: false,
                overwritten: Extent::default(),
            })
            .collect();
        let object = batch.first().map_or_else(|| "".into(), |decided| decided.object.name.clone());
        let slab = arena.allocate(&object, &requests, PlacementHints { shares: true, batch: false }, |blame| {
            let of = |(at, range): &(usize, Range<u64>)| {
                let name = plan.sets.get(*at).map_or_else(String::new, |set| set.name.to_string());
                BlamedSection { name, bytes: range.end - range.start }
            };
            let segments = match blame {
                Blame::Largest => &segments[..],
                Blame::Alignment { segment } => segments.get(segment..=segment).unwrap_or_default(),
            };
            let sets = segments.iter().flat_map(|segment| &segment.sets);
            sets.max_by_key(|(_, range)| range.end - range.start).map_or_else(BlamedSection::default, of)
        })?;
        let mut bounds = vec![0..0; plan.sets.len()];
        let mut pieces: Vec<BTreeMap<Key, Vec<Room>>> = batch.iter().map(|_| BTreeMap::new()).collect();
        for (segment, placed) in segments.iter().zip(slab.placements()) {
            let (address, written) = (placed.address as u64, placed.written as u64);
            for (at, offsets) in &segment.sets {
                if let Some(bounds) = bounds.get_mut(*at) {
                    *bounds = address + offsets.start..address + offsets.end;
                }
            }
            // From the last to the first: each is taken off the end.
            for (at, piece, offset) in segment.pieces.iter().rev() {
                let Some((section, pieces)) = section(piece).zip(pieces.get_mut(piece.object)) else { continue };
                let room = Room { address: address + offset, written: written + offset };
                let contents = section.has_contents.then_some(section.offset);
                pieces.entry((*at, contents, section.size, section.alignment.max(1))).or_default().push(room);
            }
        }
        let (pieces, slab) = (pieces.into_iter().map(Mutex::new).collect(), Mutex::new(Slab::Writable(slab)));
        let names = together().map(|(at, set)| (set.name.clone(), at)).collect();
        Ok(Some(Self { names, bounds, pieces, slab }))
    }

    /// Returns the bounds of the set of this number.
    pub(crate) fn bounds(&self, set: usize) -> Option<Range<u64>> {
        self.bounds.get(set).cloned()
    }

    /// Returns whether sections of this name lie here.
    pub(crate) fn has(&self, section: &str) -> bool {
        self.names.contains_key(section)
    }

    /// Takes the room of a section of the object at this position of the batch.
    pub(crate) fn take(
        &self,
        object: usize,
        section: &str,
        offset: Option<u64>,
        size: u64,
        align: u64,
    ) -> Option<Room> {
        self.pieces.get(object)?.lock().get_mut(&(*self.names.get(section)?, offset, size, align))?.pop()
    }

    /// Returns whether an object of the batch has sections here.
    pub(crate) fn is_used_by(&self, object: usize) -> bool {
        self.pieces.get(object).is_some_and(|pieces| !pieces.lock().is_empty())
    }

    pub(crate) fn take_writable(&self) -> Option<WritableSlab> {
        match std::mem::take(&mut *self.slab.lock()) {
            Slab::Writable(slab) => Some(slab),
            _ => None,
        }
    }

    pub(crate) fn set_published(&self, slab: PublishedSlab) {
        *self.slab.lock() = Slab::Published(slab);
    }

    pub(crate) fn take_published(&self) -> Option<PublishedSlab> {
        match std::mem::take(&mut *self.slab.lock()) {
            Slab::Published(slab) => Some(slab),
            _ => None,
        }
    }
}
