//! The last record of each granule, for an arena with packed objects.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use once_cell::race::OnceBox;

use crate::memory::address_log::occupant::RecordId;
use crate::memory::packed::{GRANULE, UNIT};

/// Units in one piece of the table: 4 MiB of addresses.
const UNITS: usize = 64;

type Unit = [AtomicU32; UNIT / GRANULE];
type Piece = [OnceBox<Unit>; UNITS];

/// Records by granule, allocated on demand.
pub(super) struct Granules {
    start: usize,
    pieces: Box<[OnceBox<Piece>]>,
}

impl Granules {
    pub(super) fn new(arena: &Range<usize>) -> Self {
        let pieces = arena.len().div_ceil(UNITS * UNIT);
        Self { start: arena.start, pieces: (0..pieces).map(|_| OnceBox::new()).collect() }
    }

    /// Records the owner of each granule of a range. One thread at a time calls this.
    pub(super) fn set(&self, range: &Range<usize>, id: Option<RecordId>) {
        let id = id.map_or(0, |id| id.get());
        let mut from = range.start;
        while from < range.end {
            let (piece, unit, first) = self.place(from);
            let Some(piece) = self.pieces.get(piece) else { return };
            let unit = piece.get_or_init(|| Box::new([const { OnceBox::new() }; UNITS]))[unit]
                .get_or_init(|| Box::new([const { AtomicU32::new(0) }; UNIT / GRANULE]));
            let end = unit.len().min(first + (range.end - from).div_ceil(GRANULE));
            unit[first..end].iter().for_each(|granule| granule.store(id, Ordering::Release));
            from += (end - first) * GRANULE;
        }
    }

    /// Returns the record of the granule that contains an address.
    pub(super) fn get(&self, address: usize) -> Option<RecordId> {
        let (piece, unit, granule) = self.place(address);
        let id = self.pieces.get(piece)?.get()?[unit].get()?[granule].load(Ordering::Acquire);
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

    /// Returns the place of an address's granule: the piece, the unit in it, and the granule in that.
    fn place(&self, address: usize) -> (usize, usize, usize) {
        let granule = (address - self.start) / GRANULE;
        let unit = granule / (UNIT / GRANULE);
        (unit / UNITS, unit % UNITS, granule % (UNIT / GRANULE))
    }
}
