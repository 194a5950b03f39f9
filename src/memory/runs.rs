//! A compact form of a slab's runs, as there are as many slabs as objects.

use std::ops::Range;

use super::{Lifetime, Protection};

/// Whole pages of a slab with one protection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlabRange {
    pub(crate) addresses: Range<usize>,
    pub(crate) protection: Protection,
    /// Whether they lie outside the arena, hence out of reach of 32-bit references.
    pub(crate) outside: bool,
}

/// Neighbouring pages of one protection and one lifetime. The size is a multiple of the page and below 4 GiB; the bits
/// below a page hold the rest.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SlabRun(u32);

impl SlabRun {
    const EXECUTABLE: u32 = 1;
    const WRITABLE: u32 = 2;
    const FINALIZE: u32 = 4;
    const FLAGS: u32 = 7;

    pub(super) fn new(bytes: usize, protection: Protection, lifetime: Lifetime) -> Self {
        debug_assert!(bytes.is_multiple_of(8) && u32::try_from(bytes).is_ok());
        let protection = match protection {
            Protection::Read => 0,
            Protection::ReadExecute => Self::EXECUTABLE,
            Protection::ReadWrite => Self::WRITABLE,
        };
        let lifetime = if lifetime == Lifetime::Finalize { Self::FINALIZE } else { 0 };
        Self(bytes as u32 | protection | lifetime)
    }

    pub(super) fn bytes(self) -> usize {
        (self.0 & !Self::FLAGS) as usize
    }

    pub(super) fn protection(self) -> Protection {
        match self.0 & (Self::EXECUTABLE | Self::WRITABLE) {
            Self::EXECUTABLE => Protection::ReadExecute,
            Self::WRITABLE => Protection::ReadWrite,
            _ => Protection::Read,
        }
    }

    fn lifetime(self) -> Lifetime {
        if self.0 & Self::FINALIZE != 0 { Lifetime::Finalize } else { Lifetime::Standard }
    }
}

/// All runs of a slab, in the order of addresses.
#[derive(Debug)]
pub(super) enum Runs {
    /// Unused entries have no bytes.
    Few([SlabRun; FEW]),
    #[allow(clippy::box_collection, reason = "a pointer's size where there are few")]
    Many(Box<Vec<SlabRun>>),
}

/// One for each protection.
const FEW: usize = 3;

const _: () = assert!(size_of::<Runs>() == 16);

impl Runs {
    pub(super) fn iter(&self) -> impl Iterator<Item = SlabRun> {
        let all = match self {
            Self::Few(runs) => &runs[..],
            Self::Many(runs) => runs,
        };
        all.iter().copied().filter(|run| run.bytes() != 0)
    }

    /// Returns the bytes of all runs.
    pub(super) fn bytes(&self) -> usize {
        self.iter().map(SlabRun::bytes).sum()
    }

    /// Removes the runs that were needed for finalisation only, which are the last.
    pub(super) fn drop_finalize(&mut self) {
        *self = self.iter().filter(|run| run.lifetime() == Lifetime::Standard).collect();
    }
}

impl FromIterator<SlabRun> for Runs {
    fn from_iter<I: IntoIterator<Item = SlabRun>>(runs: I) -> Self {
        let mut few = [SlabRun::default(); FEW];
        let mut runs = runs.into_iter();
        for (slot, run) in few.iter_mut().zip(runs.by_ref()) {
            *slot = run;
        }
        match runs.next() {
            None => Self::Few(few),
            Some(next) => Self::Many(Box::new(few.into_iter().chain([next]).chain(runs).collect())),
        }
    }
}
