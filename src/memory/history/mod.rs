//! Which object lies, or lay, at an address: for whoever has nothing but the address, such as the handler of a signal. Reading takes no
//! lock, waits for nobody and allocates nothing.

mod lines;
mod occupant;
mod record;

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use once_cell::race::OnceBox;

use self::lines::Lines;
pub(crate) use self::occupant::Occupant;
pub(super) use self::occupant::RecordId;
use self::record::{Readers, Record, Seen};
use crate::name::Name;

/// The records of an arena. They are made as they are needed, some at a time, and stay where they are.
pub(super) struct History {
    arena: Range<usize>,
    page: usize,
    /// For each page, which record it had last, or 0.
    pages: Box<[OnceBox<[AtomicU32; PAGES]>]>,
    /// For each cache line that is packed, the same.
    lines: Lines,
    /// In two levels, so that little is there before it is used.
    records: [OnceBox<Group>; GROUPS],
    /// Records of what lies outside the arena.
    outside: AtomicUsize,
    /// Positions in use so far; what is behind was never written.
    used: AtomicU32,
    readers: Readers,
}

/// Pages in one piece of the table: 4 MiB of addresses, where a page has 4 KiB.
const PAGES: usize = 1024;
/// Records in a chunk, and chunks in a group.
const CHUNK: usize = 64;
/// Two million records: packed objects are smaller than a page.
const GROUPS: usize = (2 << 20) / CHUNK / CHUNK;

type Group = [OnceBox<[Record; CHUNK]>; CHUNK];

/// What the one writer has to itself.
#[derive(Default)]
pub(super) struct Writer {
    free: Vec<RecordId>,
    generation: u64,
    seen: Seen,
}

impl History {
    pub(super) fn new(arena: Range<usize>, page: usize) -> Self {
        let pages = (arena.len() / page).div_ceil(PAGES);
        Self {
            page,
            pages: (0..pages).map(|_| OnceBox::new()).collect(),
            lines: Lines::new(&arena),
            arena,
            records: [const { OnceBox::new() }; GROUPS],
            outside: AtomicUsize::new(0),
            used: AtomicU32::new(0),
            readers: Readers::default(),
        }
    }

    /// Notes what has come to lie somewhere, with a generation that no other has. None if there are too many.
    pub(super) fn note(
        &self,
        writer: &mut Writer,
        range: &Range<usize>,
        library: &Name,
        object: &Name,
    ) -> Option<RecordId> {
        let id = writer.free.pop().or_else(|| self.fresh())?;
        writer.generation += 1;
        self.record(id)?.write(range, writer.generation, library.clone(), object.clone());
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

    /// [`note`](Self::note) for something that is packed in the arena.
    pub(super) fn note_lines(
        &self,
        writer: &mut Writer,
        runs: impl Iterator<Item = Range<usize>>,
        library: &Name,
        object: &Name,
    ) -> Option<RecordId> {
        let id = writer.free.pop().or_else(|| self.fresh())?;
        writer.generation += 1;
        self.record(id)?.write(&self.arena, writer.generation, library.clone(), object.clone());
        runs.for_each(|run| self.lines.set(&run, Some(id)));
        Some(id)
    }

    /// [`forget`](Self::forget) for something that is packed.
    pub(super) fn forget_lines(&self, writer: &mut Writer, id: RecordId, runs: impl Iterator<Item = Range<usize>>) {
        let Some(record) = self.record(id) else { return };
        // Before the record is another's: who reads it looks again whether the line still names it.
        runs.for_each(|run| self.lines.set(&run, None));
        writer.seen.keep(record.clear(), &self.readers);
        writer.free.push(id);
    }

    /// Notes that it is removed. To be called before its memory goes: who traps there is to find it so.
    pub(super) fn remove(&self, id: RecordId) {
        if let Some(record) = self.record(id) {
            record.remove();
        }
    }

    /// The generation of something that was noted.
    pub(super) fn generation(&self, id: RecordId) -> u64 {
        self.record(id).map_or(0, |record| record.generation.load(Ordering::Relaxed))
    }

    /// Forgets what lay at `start`. To be called before others come to lie there.
    pub(super) fn forget(&self, writer: &mut Writer, id: RecordId, start: usize) {
        let Some(record) = self.record(id) else { return };
        writer.seen.keep(record.clear(), &self.readers);
        if !self.is_inside(start) {
            self.outside.fetch_sub(1, Ordering::Relaxed);
        }
        writer.free.push(id);
    }

    /// What lies, or lay last, at an address, if it has not been forgotten.
    pub(super) fn find(&self, address: usize) -> Option<Occupant> {
        let reading = self.readers.enter();
        if self.is_inside(address) {
            if let Some(id) = self.lines.get(address) {
                let occupant = self.record(id)?.read(address, &reading)?;
                let start = self.lines.start_of(address, id)?;
                return Some(Occupant { start, ..occupant });
            }
            let page = (address - self.arena.start) / self.page;
            let id = self.pages.get(page / PAGES)?.get()?[page % PAGES].load(Ordering::Acquire);
            return self.record(RecordId::new(id)?)?.read(address, &reading);
        }
        if self.outside.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let used = self.used.load(Ordering::Acquire);
        let ids = (1..=used).filter_map(RecordId::new);
        ids.filter_map(|id| self.record(id)).find_map(|record| record.read(address, &reading))
    }

    fn is_inside(&self, address: usize) -> bool {
        self.arena.contains(&address)
    }

    /// A record that was never written.
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

/// Group, chunk and place of a record.
fn place(position: u32) -> (usize, usize, usize) {
    let position = position as usize;
    (position / CHUNK / CHUNK, position / CHUNK % CHUNK, position % CHUNK)
}
