//! Addresses of what was removed, which nobody gets until others were removed after them: a stale pointer traps for so long, and does
//! not lead into another object's code.

use std::collections::VecDeque;
use std::ops::Range;

use super::history::RecordId;
use super::outside::Outside;
use super::packed::PackedRuns;

/// How many slabs rest, however small: each takes some memory for what is known of it.
const MOST: usize = 4096;

/// First in, first out. Nothing that rests has memory, or can be accessed.
#[derive(Debug)]
pub(super) struct Quarantine {
    resting: VecDeque<Resting>,
    /// Bytes of addresses that rest.
    bytes: usize,
    /// How many may.
    limit: usize,
}

/// There may be thousands.
#[derive(Debug)]
pub(super) struct Resting {
    place: Place,
    record: RecordId,
}

#[derive(Debug)]
pub(super) enum Place {
    Arena { start: usize, bytes: u32 },
    Outside(Box<Outside>),
    Packed(Box<RestingRuns>),
}

/// What a packed object had.
#[derive(Debug)]
pub(super) struct RestingRuns {
    pub(super) runs: PackedRuns,
    pub(super) epoch: u32,
}

const _: () = assert!(size_of::<Resting>() <= 24);

/// Addresses that have rested.
pub(super) enum Rested {
    Arena(Range<usize>),
    Outside(Box<Outside>),
    Packed(Box<RestingRuns>),
}

impl Resting {
    /// A range of the arena, which has fewer than 4 GiB.
    pub(super) fn in_arena(range: &Range<usize>, record: RecordId) -> Self {
        Self { place: Place::Arena { start: range.start, bytes: range.len() as u32 }, record }
    }

    pub(super) fn outside(outside: Outside, record: RecordId) -> Self {
        Self { place: Place::Outside(Box::new(outside)), record }
    }

    pub(super) fn packed(runs: PackedRuns, epoch: u32, record: RecordId) -> Self {
        Self { place: Place::Packed(Box::new(RestingRuns { runs, epoch })), record }
    }

    pub(super) fn record(&self) -> RecordId {
        self.record
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    fn bytes(&self) -> usize {
        match &self.place {
            Place::Arena { bytes, .. } => *bytes as usize,
            Place::Outside(outside) => outside.mapped_bytes(),
            Place::Packed(packed) => packed.runs.bytes(),
        }
    }

    pub(super) fn wake(self) -> Rested {
        match self.place {
            Place::Arena { start, bytes } => Rested::Arena(start..start + bytes as usize),
            Place::Outside(outside) => Rested::Outside(outside),
            Place::Packed(packed) => Rested::Packed(packed),
        }
    }
}

impl Quarantine {
    pub(super) fn new(limit: usize) -> Self {
        Self { resting: VecDeque::new(), bytes: 0, limit }
    }

    /// Bytes of addresses that rest.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn push(&mut self, resting: Resting) {
        self.bytes += resting.bytes();
        self.resting.push_back(resting);
    }

    /// In a child of `fork`: what rests does so for good. Returns how many bytes.
    pub(super) fn keep_for_good(&mut self) -> usize {
        for resting in self.resting.drain(..) {
            if let Rested::Outside(outside) = resting.wake() {
                // Not unmapped: others would get the addresses.
                std::mem::forget(outside);
            }
        }
        std::mem::take(&mut self.bytes)
    }

    /// The oldest, if more rest than may.
    pub(super) fn pop_over_limit(&mut self) -> Option<Resting> {
        // The last that came rests even if it is larger than all that may, unless nothing may.
        let least = usize::from(self.limit != 0);
        let over = self.bytes > self.limit || self.resting.len() > MOST;
        if over && self.resting.len() > least { self.pop() } else { None }
    }

    /// The oldest.
    pub(super) fn pop(&mut self) -> Option<Resting> {
        let oldest = self.resting.pop_front()?;
        self.bytes -= oldest.bytes();
        Some(oldest)
    }
}
