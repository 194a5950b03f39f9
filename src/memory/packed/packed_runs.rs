//! A packed object's runs, one for each protection, in a compact form.

use std::ops::Range;

use crate::memory::Protection;
use crate::memory::packed::LINE;

pub(super) const PROTECTIONS: [Protection; 3] = [Protection::ReadExecute, Protection::Read, Protection::ReadWrite];

/// A run, with its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct PackedRun {
    pub(in super::super) addresses: Range<usize>,
    pub(in super::super) protection: Protection,
}

/// Cache lines by protection, counted from the arena's start; an absent run has none.
#[derive(Debug, Clone, Copy, Default)]
pub(in super::super) struct PackedRuns([(u32, u32); 3]);

impl PackedRuns {
    pub(super) fn set(&mut self, arena: usize, protection: Protection, range: &Range<usize>) {
        // An arena has fewer than 4 GiB.
        self.0[protection as usize] = (((range.start - arena) / LINE) as u32, (range.len() / LINE) as u32);
    }

    /// Returns all runs of an object in the arena at this address.
    pub(in super::super) fn iter(&self, arena: usize) -> impl Iterator<Item = PackedRun> {
        let runs = PROTECTIONS.into_iter().zip(self.0).filter(|(_, (_, lines))| *lines != 0);
        runs.map(move |(protection, (start, lines))| {
            let start = arena + start as usize * LINE;
            PackedRun { addresses: start..start + lines as usize * LINE, protection }
        })
    }

    /// Returns the result of `of` for each run, by protection; 0 for an absent one.
    pub(super) fn each(&self, arena: usize, of: impl Fn(&PackedRun) -> usize) -> [usize; 3] {
        let mut all = [0; 3];
        self.iter(arena).for_each(|run| all[run.protection as usize] = of(&run));
        all
    }

    pub(in super::super) fn bytes(&self) -> usize {
        self.0.iter().map(|(_, lines)| *lines as usize * LINE).sum()
    }
}

/// Room for an object that is being written.
#[derive(Debug)]
pub(in super::super) struct Placing {
    pub(in super::super) epoch: u32,
    pub(in super::super) runs: PackedRuns,
    /// The address at which each protection's run is written.
    pub(in super::super) written: [usize; 3],
    pub(in super::super) two_views: bool,
}
