//! What one packed object has: a run of each protection, in as few bytes as it takes.

use std::ops::Range;

use super::super::Protection;
use super::LINE;

pub(super) const PROTECTIONS: [Protection; 3] = [Protection::ReadExecute, Protection::Read, Protection::ReadWrite];

/// A run, with its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct PackedRun {
    pub(in super::super) addresses: Range<usize>,
    pub(in super::super) protection: Protection,
}

/// Cache lines by protection, counted from the arena's beginning; a run of no lines is none.
#[derive(Debug, Clone, Copy, Default)]
pub(in super::super) struct PackedRuns([(u32, u32); 3]);

impl PackedRuns {
    pub(super) fn set(&mut self, arena: usize, protection: Protection, range: &Range<usize>) {
        // An arena has fewer than 4 GiB.
        self.0[protection as usize] = (((range.start - arena) / LINE) as u32, (range.len() / LINE) as u32);
    }

    /// All runs of an object in the arena that begins here.
    pub(in super::super) fn iter(&self, arena: usize) -> impl Iterator<Item = PackedRun> {
        let runs = PROTECTIONS.into_iter().zip(self.0).filter(|(_, (_, lines))| *lines != 0);
        runs.map(move |(protection, (start, lines))| {
            let start = arena + start as usize * LINE;
            PackedRun { addresses: start..start + lines as usize * LINE, protection }
        })
    }

    /// What `of` says of each run, by protection; 0 where there is none.
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
    /// Where each protection's run is written.
    pub(in super::super) written: [usize; 3],
    pub(in super::super) two_views: bool,
}
