//! The log of addresses: which object lies, or lay, at an address. Reading takes no lock, does not wait and does not
//! allocate, so that a signal handler can read.

mod directory;
mod granules;
mod listed;
mod occupant;
mod record;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use once_cell::race::OnceBox;

use crate::functions::{FunctionTable, SymbolRange, SymbolTables};
use crate::memory::address_log::granules::Granules;
pub(super) use crate::memory::address_log::listed::Listed;
pub(crate) use crate::memory::address_log::listed::{Owner, any_arena, former_owner, owner};
pub(crate) use crate::memory::address_log::occupant::Occupant;
pub(super) use crate::memory::address_log::occupant::{RecordId, RemovalTime};
use crate::memory::address_log::record::{Cleared, Readers, Reading, Record, Seen};
use crate::memory::os::Mapping;
use crate::name::Name;

/// The records of an arena. They are allocated in chunks on demand, and never move.
pub(super) struct History {
    arena: Range<usize>,
    page: usize,
    /// The last record of each page, or 0.
    pages: Box<[OnceBox<[AtomicU32; PAGES]>]>,
    /// The last record of each granule of packed objects.
    granules: Granules,
    /// In two levels, so that unused records take little memory.
    records: [OnceBox<Group>; GROUPS],
    /// Records of mappings outside the arena.
    outside: AtomicUsize,
    /// Number of positions in use so far; later ones were never written.
    used: AtomicU32,
    readers: Readers,
    /// Where functions' symbols are, and what keeps them there.
    tables: SymbolTables,
    _tables: Option<Arc<Mapping>>,
}

/// The functions of an object, and the address of its unwind table, or 0. What they are is asked for once it is clear
/// that they are kept.
pub(super) type Kept<F> = (F, u64);

/// Pages in one piece of the table: 4 MiB of addresses with pages of 4 KiB.
const PAGES: usize = 1024;
/// Records in a chunk, and chunks in a group.
const CHUNK: usize = 64;
/// Two million records: packed objects are smaller than a page.
const GROUPS: usize = (2 << 20) / CHUNK / CHUNK;

type Group = [OnceBox<[Record; CHUNK]>; CHUNK];

/// The state of the only writer.
#[derive(Default)]
pub(super) struct Writer {
    free: Vec<RecordId>,
    generation: u64,
    seen: Seen,
}

/// What records had that nobody reads any more.
#[derive(Default)]
pub(super) struct Forgotten(Vec<Cleared>);

impl Forgotten {
    /// Returns the symbols of their functions, which nobody looks at.
    pub(super) fn symbols(self) -> impl Iterator<Item = SymbolRange> {
        self.0.into_iter().filter_map(|cleared| match cleared.functions? {
            FunctionTable::Symbols(symbols) => Some(symbols),
            FunctionTable::Own(_) => None,
        })
    }
}

impl History {
    pub(super) fn new(arena: Range<usize>, page: usize, tables: Option<(SymbolTables, Arc<Mapping>)>) -> Self {
        let pages = (arena.len() / page).div_ceil(PAGES);
        let (tables, memory) = tables.unzip();
        Self {
            page,
            pages: (0..pages).map(|_| OnceBox::new()).collect(),
            granules: Granules::new(&arena),
            arena,
            records: [const { OnceBox::new() }; GROUPS],
            outside: AtomicUsize::new(0),
            used: AtomicU32::new(0),
            readers: Readers::default(),
            tables: tables.unwrap_or_default(),
            _tables: memory,
        }
    }

    /// Records a new occupant with a unique generation. Returns `None` if there are too many.
    pub(super) fn note(
        &self,
        writer: &mut Writer,
        range: &Range<usize>,
        (library, object): (&Name, &Name),
        (functions, frames): Kept<impl FnOnce() -> Option<FunctionTable>>,
    ) -> Option<RecordId> {
        let id = writer.free.pop().or_else(|| self.fresh())?;
        writer.generation += 1;
        let names = (library.clone(), object.clone());
        self.record(id)?.write(&mut writer.seen, range, writer.generation, names, (functions(), self.place_of(frames)));
        if self.is_inside(range.start) {
            let first = (range.start - self.arena.start) / self.page;
            for page in first..first + range.len() / self.page {
                let piece =
                    self.pages.get(page / PAGES)?.get_or_init(|| Box::new([const { AtomicU32::new(0) }; PAGES]));
                piece[page % PAGES].store(id.get(), Ordering::Release);
            }
        } else {
            self.outside.fetch_add(1, Ordering::Relaxed);
        }
        Some(id)
    }

    /// Like [`note`](Self::note), for a packed object.
    pub(super) fn note_granules(
        &self,
        writer: &mut Writer,
        runs: impl Iterator<Item = Range<usize>>,
        (library, object): (&Name, &Name),
        (functions, frames): Kept<impl FnOnce() -> Option<FunctionTable>>,
    ) -> Option<RecordId> {
        let id = writer.free.pop().or_else(|| self.fresh())?;
        writer.generation += 1;
        let names = (library.clone(), object.clone());
        let kept = (functions(), self.place_of(frames));
        self.record(id)?.write(&mut writer.seen, &self.arena, writer.generation, names, kept);
        runs.for_each(|run| self.granules.set(&run, Some(id)));
        Some(id)
    }

    /// Like [`forget`](Self::forget), for a packed object.
    pub(super) fn forget_granules(
        &self,
        writer: &mut Writer,
        id: RecordId,
        runs: impl Iterator<Item = Range<usize>>,
    ) -> Forgotten {
        let Some(record) = self.record(id) else { return Forgotten::default() };
        // Clears the granules before the record is reused: its reader checks the granule again.
        runs.for_each(|run| self.granules.set(&run, None));
        writer.free.push(id);
        Forgotten(record.clear(&mut writer.seen, &self.readers))
    }

    /// Marks an occupant as removed. The caller does so before it unmaps the memory, so that a trap there finds the
    /// mark. Returns the symbols of its functions.
    pub(super) fn remove(&self, id: RecordId, then: RemovalTime) -> Option<SymbolRange> {
        self.record(id)?.remove(then)
    }

    /// Returns the generation of a recorded occupant.
    pub(super) fn generation(&self, id: RecordId) -> u64 {
        self.record(id).map_or(0, |record| record.generation.load(Ordering::Relaxed))
    }

    /// Returns the names and addresses of an occupant's functions.
    pub(super) fn functions(&self, id: RecordId) -> Vec<(String, Range<usize>)> {
        let reading = self.readers.enter();
        self.record(id).map_or_else(Vec::new, |record| record.functions(self.tables, &reading))
    }

    /// Forgets the occupant at `start`. The caller does so before it reuses the addresses.
    pub(super) fn forget(&self, writer: &mut Writer, id: RecordId, start: usize) -> Forgotten {
        let Some(record) = self.record(id) else { return Forgotten::default() };
        if !self.is_inside(start) {
            self.outside.fetch_sub(1, Ordering::Relaxed);
        }
        writer.free.push(id);
        Forgotten(record.clear(&mut writer.seen, &self.readers))
    }

    /// Returns the present or last occupant of an address, unless it was forgotten.
    pub(super) fn find(&self, address: usize) -> Option<Occupant> {
        let reading = self.readers.enter();
        if self.is_inside(address) {
            if let Some(id) = self.granules.get(address) {
                let occupant = self.read(self.record(id)?, address, &reading)?;
                let start = self.granules.start_of(address, id)?;
                return Some(Occupant { start, ..occupant });
            }
            let page = (address - self.arena.start) / self.page;
            let id = self.pages.get(page / PAGES)?.get()?[page % PAGES].load(Ordering::Acquire);
            return self.read(self.record(RecordId::new(id)?)?, address, &reading);
        }
        if self.outside.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let used = self.used.load(Ordering::Acquire);
        let ids = (1..=used).filter_map(RecordId::new);
        ids.filter_map(|id| self.record(id)).find_map(|record| self.read(record, address, &reading))
    }

    fn read(&self, record: &Record, address: usize, reading: &Reading<'_>) -> Option<Occupant> {
        let occupant = record.read(address, self.tables, reading)?;
        let frames = occupant.frames.checked_sub(1).map_or(0, |offset| self.arena.start as u64 + offset);
        Some(Occupant { frames, ..occupant })
    }

    /// Returns where an unwind table is, counted from 1; 0 if there is none. All are in the arena, which is smaller than
    /// 2 GiB.
    fn place_of(&self, frames: u64) -> u32 {
        let offset = (frames as usize).checked_sub(self.arena.start).filter(|offset| *offset < self.arena.len());
        offset.and_then(|offset| u32::try_from(offset + 1).ok()).unwrap_or_default()
    }

    fn is_inside(&self, address: usize) -> bool {
        self.arena.contains(&address)
    }

    /// Returns a record that was never written.
    fn fresh(&self) -> Option<RecordId> {
        let position = self.used.load(Ordering::Relaxed);
        let (group, chunk, _) = place(position);
        let group = self.records.get(group)?.get_or_init(|| Box::new([const { OnceBox::new() }; CHUNK]));
        group.get(chunk)?.get_or_init(|| Box::new(std::array::from_fn(|_| Record::default())));
        self.used.store(position + 1, Ordering::Release);
        RecordId::new(position + 1)
    }

    fn record(&self, id: RecordId) -> Option<&Record> {
        let (group, chunk, record) = place(id.get() - 1);
        self.records.get(group)?.get()?.get(chunk)?.get()?.get(record)
    }
}

/// Returns the group, chunk and index of a record.
fn place(position: u32) -> (usize, usize, usize) {
    let position = position as usize;
    (position / CHUNK / CHUNK, position / CHUNK % CHUNK, position % CHUNK)
}
