//! A packed object's runs, one for each protection, in a compact form.

use std::ops::Range;
use std::sync::Arc;

use crate::memory::Protection;
use crate::memory::packed::views::WritableView;
use crate::memory::packed::{GRANULE, MOST};

pub(super) const PROTECTIONS: [Protection; 3] = [Protection::ReadExecute, Protection::Read, Protection::ReadWrite];

/// A run, with its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct PackedRun {
    pub(in super::super) addresses: Range<usize>,
    pub(in super::super) protection: Protection,
}

/// Granules by protection: the first of each run, counted from the arena's start, and how many; an absent run has
/// none. Small, as thousands may rest.
#[derive(Debug, Clone, Copy, Default)]
pub(in super::super) struct PackedRuns {
    starts: [u32; 3],
    granules: [u16; 3],
}

const _: () = assert!(MOST / GRANULE < u16::MAX as usize);

impl PackedRuns {
    pub(super) fn set(&mut self, arena: usize, protection: Protection, range: &Range<usize>) {
        // An arena has fewer than 4 GiB, and a run no more than all bytes of a packed object.
        self.starts[protection as usize] = ((range.start - arena) / GRANULE) as u32;
        self.granules[protection as usize] = (range.len() / GRANULE) as u16;
    }

    /// Returns all runs of an object in the arena at this address.
    pub(in super::super) fn iter(&self, arena: usize) -> impl Iterator<Item = PackedRun> {
        let runs = PROTECTIONS.into_iter().zip(self.starts.into_iter().zip(self.granules));
        let runs = runs.filter(|(_, (_, granules))| *granules != 0);
        runs.map(move |(protection, (start, granules))| {
            let start = arena + start as usize * GRANULE;
            PackedRun { addresses: start..start + usize::from(granules) * GRANULE, protection }
        })
    }

    /// Returns the result of `of` for each run, by protection; 0 for an absent one.
    pub(super) fn each(&self, arena: usize, of: impl Fn(&PackedRun) -> usize) -> [usize; 3] {
        let mut all = [0; 3];
        self.iter(arena).for_each(|run| all[run.protection as usize] = of(&run));
        all
    }

    pub(in super::super) fn bytes(&self) -> usize {
        self.granules.iter().map(|granules| usize::from(*granules) * GRANULE).sum()
    }
}

/// Room for an object that is being written.
#[derive(Debug)]
pub(in super::super) struct Placing {
    pub(in super::super) epoch: u32,
    pub(in super::super) runs: PackedRuns,
    /// The address at which each protection's run is written.
    pub(in super::super) written: [usize; 3],
    /// Keeps the second view, if it is written through one.
    pub(in super::super) view: Option<Arc<WritableView>>,
    /// Whether its memory is writable until [`Packing::end_write`](super::Packing::end_write).
    pub(in super::super) open: bool,
}
