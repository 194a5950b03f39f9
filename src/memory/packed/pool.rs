//! Who has what of the addresses of one protection: arithmetic only, no system call.
//!
//! A pool has areas, each a neighbourhood in the arena that grows from its beginning, so that what is mapped in it is one mapping. Objects
//! get whole granules of it: a cache line, or a page. What is given back is counted by units; memory goes back to the system when nothing
//! alive is left in a unit.

use std::collections::VecDeque;
use std::ops::Range;

use super::super::ranges::Ranges;

/// What memory is returned in: the largest page that AArch64 has. Returning less would take a mapping for each piece.
pub(in super::super) const UNIT: usize = 64 << 10;
/// How many units that nothing alive is in keep their memory: the next object is likely to come there.
const SPARE: usize = 4;
/// What an area grows by, at first and at most.
const FIRST_STEP: usize = 256 << 10;
const LAST_STEP: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct Pool {
    granule: usize,
    areas: Vec<Area>,
    /// What was never used, in the last area: it is zero.
    fresh: Range<usize>,
    /// What was used.
    free: Ranges,
    step: usize,
    /// Units that nothing alive was in when they were put here, by their addresses; the oldest first.
    idle: VecDeque<usize>,
}

#[derive(Debug)]
struct Area {
    addresses: Range<usize>,
    /// End of what is mapped.
    grown: usize,
    units: Vec<Unit>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Unit {
    /// Bytes that somebody has.
    live: u32,
    /// Its memory is with the system, and nobody can access it.
    away: bool,
    /// Its address is in `idle`.
    idle: bool,
}

/// What an object gets.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Carved {
    pub(super) range: Range<usize>,
    /// Nobody had it before.
    pub(super) fresh: bool,
    /// Units of it whose memory is to be brought back.
    pub(super) away: Vec<Range<usize>>,
}

/// What a pool needs before it can give as much as was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// This range, mapped: see [`Pool::grown`].
    Map(Range<usize>),
    /// An area of at least so many bytes.
    Area(usize),
}

impl Pool {
    pub(super) fn new(granule: usize) -> Self {
        let free = Ranges::new(0..0, granule);
        Self { granule, areas: Vec::new(), fresh: 0..0, free, step: FIRST_STEP, idle: VecDeque::new() }
    }

    /// Takes room for `bytes` at a multiple of `align` (at most a page).
    pub(super) fn carve(&mut self, bytes: usize, align: usize) -> Option<Carved> {
        let len = bytes.checked_next_multiple_of(self.granule)?;
        let align = align.max(self.granule);
        let (range, fresh) = match self.free.allocate(len, align) {
            Some(range) => (range, false),
            None => (self.carve_fresh(len, align)?, true),
        };
        let mut away = Vec::new();
        self.each_unit(&range, |unit, addresses, bytes| {
            unit.live += bytes as u32;
            if std::mem::take(&mut unit.away) {
                away.push(addresses);
            }
        });
        Some(Carved { range, fresh, away })
    }

    fn carve_fresh(&mut self, len: usize, align: usize) -> Option<Range<usize>> {
        let start = self.fresh.start.checked_next_multiple_of(align)?;
        let end = start.checked_add(len).filter(|end| *end <= self.fresh.end)?;
        // What is left out for alignment was never used, either; it is zero like the rest.
        self.free.free(self.fresh.start..start);
        self.fresh.start = end;
        Some(start..end)
    }

    /// What is missing for so many bytes at this alignment, if [`carve`](Self::carve) has found nothing.
    pub(super) fn growth(&self, bytes: usize, align: usize) -> Growth {
        let wanted = bytes.saturating_add(align).saturating_add(self.granule).div_ceil(UNIT).saturating_mul(UNIT);
        let Some(area) = self.areas.last() else { return Growth::Area(wanted) };
        let room = area.addresses.end - area.grown;
        if room < wanted {
            return Growth::Area(wanted);
        }
        Growth::Map(area.grown..area.grown + self.step.max(wanted).min(room))
    }

    /// A range that [`growth`](Self::growth) named is mapped.
    pub(super) fn grown(&mut self, range: &Range<usize>) {
        let Some(area) = self.areas.last_mut() else { return };
        debug_assert_eq!(area.grown, range.start);
        area.grown = range.end;
        self.step = (self.step * 2).min(LAST_STEP);
        if self.fresh.end == range.start {
            self.fresh.end = range.end;
        } else {
            let rest = std::mem::replace(&mut self.fresh, range.clone());
            self.free.free(rest);
        }
    }

    /// Bytes of the area that was added last.
    pub(super) fn last_area(&self) -> Option<usize> {
        self.areas.last().map(|area| area.addresses.len())
    }

    /// Takes an area into use, whose bounds are multiples of a unit.
    pub(super) fn add_area(&mut self, addresses: Range<usize>) {
        let units = vec![Unit::default(); addresses.len() / UNIT];
        self.areas.push(Area { grown: addresses.start, addresses, units });
    }

    /// What somebody had is not alive any more, and rests. Returns units whose memory is to go; `keep` says whether some may keep it.
    pub(super) fn rest(&mut self, range: &Range<usize>, keep: bool) -> Vec<Range<usize>> {
        let mut idle = Vec::new();
        self.each_unit(range, |unit, addresses, bytes| {
            unit.live -= bytes as u32;
            if unit.live == 0 && !std::mem::replace(&mut unit.idle, true) {
                idle.push(addresses.start);
            }
        });
        self.idle.extend(idle);
        let mut away = Vec::new();
        while self.idle.len() > if keep { SPARE } else { 0 } {
            away.extend(self.send_oldest_away());
        }
        away
    }

    /// The unit that has been idle for longest, if it still is.
    fn send_oldest_away(&mut self) -> Option<Range<usize>> {
        let start = self.idle.pop_front()?;
        let mut gone = None;
        self.each_unit(&(start..start + UNIT), |unit, addresses, _| {
            unit.idle = false;
            if unit.live == 0 && !std::mem::replace(&mut unit.away, true) {
                gone = Some(addresses);
            }
        });
        gone
    }

    /// A unit's memory could not be returned, or brought back.
    pub(super) fn set_away(&mut self, unit: &Range<usize>, away: bool) {
        self.each_unit(unit, |unit, _, _| unit.away = away);
    }

    /// What has rested may be had by others.
    pub(super) fn wake(&mut self, range: Range<usize>) {
        self.free.free(range);
    }

    /// All that is mapped.
    pub(super) fn mapped(&self) -> impl Iterator<Item = Range<usize>> {
        self.areas.iter().map(|area| area.addresses.start..area.grown).filter(|range| !range.is_empty())
    }

    /// All areas, which are to be taken from nobody any more.
    pub(super) fn into_areas(self) -> impl Iterator<Item = Range<usize>> {
        self.areas.into_iter().map(|area| area.addresses)
    }

    /// Calls `with` with each unit that has something of a range, its addresses, and how many bytes of the range it has.
    fn each_unit(&mut self, range: &Range<usize>, mut with: impl FnMut(&mut Unit, Range<usize>, usize)) {
        let Some(area) = self.areas.iter_mut().rev().find(|a| a.addresses.contains(&range.start)) else { return };
        let base = area.addresses.start;
        let first = (range.start - base) / UNIT;
        for (unit, i) in area.units.iter_mut().zip(0..).skip(first) {
            let addresses = base + i * UNIT..base + (i + 1) * UNIT;
            if addresses.start >= range.end {
                break;
            }
            let bytes = addresses.end.min(range.end) - addresses.start.max(range.start);
            with(unit, addresses, bytes);
        }
    }
}
