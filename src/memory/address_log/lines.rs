//! The last record of each cache line, for an arena with packed objects.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use once_cell::race::OnceBox;

use crate::memory::address_log::occupant::RecordId;
use crate::memory::packed::{LINE, UNIT};

/// Units in one piece of the table: 4 MiB of addresses.
const UNITS: usize = 64;

type Unit = [AtomicU32; UNIT / LINE];
type Piece = [OnceBox<Unit>; UNITS];

/// Records by line, allocated on demand.
pub(super) struct Lines {
    start: usize,
    pieces: Box<[OnceBox<Piece>]>,
}

impl Lines {
    pub(super) fn new(arena: &Range<usize>) -> Self {
        let pieces = arena.len().div_ceil(UNITS * UNIT);
        Self { start: arena.start, pieces: (0..pieces).map(|_| OnceBox::new()).collect() }
    }

    /// Records the owner of each line of a range. One thread at a time calls this.
    pub(super) fn set(&self, range: &Range<usize>, id: Option<RecordId>) {
        let id = id.map_or(0, |id| id.get());
        for address in range.clone().step_by(LINE) {
            let (piece, unit, line) = self.place(address);
            let Some(piece) = self.pieces.get(piece) else { return };
            let unit = piece.get_or_init(|| Box::new([const { OnceBox::new() }; UNITS]))[unit]
                .get_or_init(|| Box::new([const { AtomicU32::new(0) }; UNIT / LINE]));
            unit[line].store(id, Ordering::Release);
        }
    }

    /// Returns the record of the line that contains an address.
    pub(super) fn get(&self, address: usize) -> Option<RecordId> {
        let (piece, unit, line) = self.place(address);
        let id = self.pieces.get(piece)?.get()?[unit].get()?[line].load(Ordering::Acquire);
        RecordId::new(id)
    }

    /// Returns the start of the lines with this record up to an address; `None` if the address's line has another
    /// record by now.
    pub(super) fn start_of(&self, address: usize, id: RecordId) -> Option<usize> {
        // Orders the earlier reads of the record before these.
        fence(Ordering::Acquire);
        let line = address - (address - self.start) % LINE;
        let mut starts = (self.start..=line).rev().step_by(LINE).take_while(|at| self.get(*at) == Some(id));
        let first = starts.next()?;
        Some(starts.last().unwrap_or(first))
    }

    fn place(&self, address: usize) -> (usize, usize, usize) {
        let line = (address - self.start) / LINE;
        let unit = line / (UNIT / LINE);
        (unit / UNITS, unit % UNITS, line % (UNIT / LINE))
    }
}
