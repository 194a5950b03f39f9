//! The last record of each granule, for an arena with packed objects.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use once_cell::race::OnceBox;

use crate::memory::address_log::occupant::RecordId;
use crate::memory::packed::GRANULE;

/// Granules in one part of the table, which takes 4 KiB: 16 KiB of addresses.
const GRANULES: usize = 1024;
/// Parts in one piece of it: 4 MiB of addresses.
const PARTS: usize = 256;

type Part = [AtomicU32; GRANULES];
type Piece = [OnceBox<Part>; PARTS];

/// Records by granule, allocated on demand.
pub(super) struct Granules {
    start: usize,
    pieces: Box<[OnceBox<Piece>]>,
}

impl Granules {
    pub(super) fn new(arena: &Range<usize>) -> Self {
        let pieces = arena.len().div_ceil(PARTS * GRANULES * GRANULE);
        Self { start: arena.start, pieces: (0..pieces).map(|_| OnceBox::new()).collect() }
    }

    /// Records the owner of each granule of a range. One thread at a time calls this.
    pub(super) fn set(&self, range: &Range<usize>, id: Option<RecordId>) {
        let id = id.map_or(0, |id| id.get());
        let mut from = range.start;
        while from < range.end {
            let (piece, part, first) = self.place(from);
            let Some(piece) = self.pieces.get(piece) else { return };
            let part = piece.get_or_init(|| Box::new([const { OnceBox::new() }; PARTS]))[part]
                .get_or_init(|| Box::new([const { AtomicU32::new(0) }; GRANULES]));
            let end = part.len().min(first + (range.end - from).div_ceil(GRANULE));
            part[first..end].iter().for_each(|granule| granule.store(id, Ordering::Release));
            from += (end - first) * GRANULE;
        }
    }

    /// Returns the record of the granule that contains an address.
    pub(super) fn get(&self, address: usize) -> Option<RecordId> {
        let (piece, part, granule) = self.place(address);
        let id = self.pieces.get(piece)?.get()?[part].get()?[granule].load(Ordering::Acquire);
        RecordId::new(id)
    }

    /// Returns the start of the granules with this record up to an address; `None` if the address's granule has another
    /// record by now.
    pub(super) fn start_of(&self, address: usize, id: RecordId) -> Option<usize> {
        // Orders the earlier reads of the record before these.
        fence(Ordering::Acquire);
        let granule = address - (address - self.start) % GRANULE;
        let mut starts = (self.start..=granule).rev().step_by(GRANULE).take_while(|at| self.get(*at) == Some(id));
        let first = starts.next()?;
        Some(starts.last().unwrap_or(first))
    }

    /// Returns the place of an address's granule: the piece, the part of it, and the granule in that.
    fn place(&self, address: usize) -> (usize, usize, usize) {
        let granule = (address - self.start) / GRANULE;
        let part = granule / GRANULES;
        (part / PARTS, part % PARTS, granule % GRANULES)
    }
}
