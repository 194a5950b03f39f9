//! Quarantine of removed addresses: they are not reused until enough others were removed after them, so that a stale
//! pointer traps and does not lead into another object's code.

use std::collections::VecDeque;
use std::ops::Range;

use super::outside::Outside;
use super::packed::PackedRuns;
use crate::memory::address_log::RecordId;

/// The largest number of resting slabs, as each has a record.
const MOST: usize = 4096;

/// A queue, first in, first out. Resting addresses have no memory and no access.
#[derive(Debug)]
pub(super) struct Quarantine {
    resting: VecDeque<Resting>,
    /// Bytes of resting addresses.
    bytes: usize,
    /// The largest such number.
    limit: usize,
}

/// Small, as there may be thousands.
#[derive(Debug)]
pub(super) struct Resting {
    place: Place,
    record: RecordId,
}

#[derive(Debug)]
pub(super) enum Place {
    Arena { start: usize, bytes: u32 },
    Outside(Box<Outside>),
    Packed(RestingRuns),
}

/// The room of a packed object.
#[derive(Debug)]
pub(super) struct RestingRuns {
    pub(super) runs: PackedRuns,
    pub(super) epoch: u32,
}

const _: () = assert!(size_of::<Resting>() <= 40);

/// Addresses that have rested.
pub(super) enum Rested {
    Arena(Range<usize>),
    Outside(Box<Outside>),
    Packed(RestingRuns),
}

impl Resting {
    /// Makes an entry for a range of the arena, which has fewer than 4 GiB.
    pub(super) fn in_arena(range: &Range<usize>, record: RecordId) -> Self {
        Self { place: Place::Arena { start: range.start, bytes: range.len() as u32 }, record }
    }

    pub(super) fn outside(outside: Outside, record: RecordId) -> Self {
        Self { place: Place::Outside(Box::new(outside)), record }
    }

    pub(super) fn packed(runs: PackedRuns, epoch: u32, record: RecordId) -> Self {
        Self { place: Place::Packed(RestingRuns { runs, epoch }), record }
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

    /// Returns whether no addresses rest.
    pub(super) fn is_off(&self) -> bool {
        self.limit == 0
    }

    /// Returns the bytes of resting addresses.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn push(&mut self, resting: Resting) {
        self.bytes += resting.bytes();
        self.resting.push_back(resting);
    }

    /// Keeps all resting addresses for good, in a child of `fork`. Returns their bytes.
    pub(super) fn keep_for_good(&mut self) -> usize {
        for resting in self.resting.drain(..) {
            if let Rested::Outside(outside) = resting.wake() {
                // It stays mapped, so that its addresses are not reused.
                std::mem::forget(outside);
            }
        }
        std::mem::take(&mut self.bytes)
    }

    /// Returns the oldest addresses if no more may rest.
    pub(super) fn pop_of_most(&mut self) -> Option<Resting> {
        if self.resting.len() >= MOST { self.pop() } else { None }
    }

    /// Returns the oldest addresses if the limit of bytes is exceeded.
    pub(super) fn pop_over_limit(&mut self) -> Option<Resting> {
        // The newest addresses rest even if they alone exceed the limit, unless that is 0.
        let least = usize::from(self.limit != 0);
        if self.bytes > self.limit && self.resting.len() > least { self.pop() } else { None }
    }

    /// Returns the oldest addresses.
    pub(super) fn pop(&mut self) -> Option<Resting> {
        let oldest = self.resting.pop_front()?;
        self.bytes -= oldest.bytes();
        Some(oldest)
    }
}
