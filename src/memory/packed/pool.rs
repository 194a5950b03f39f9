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
pub(super) const FIRST_STEP: usize = 256 << 10;
const LAST_STEP: usize = 4 << 20;
/// How much is woken before it is worth interrupting all cores. Until then, what was never used is taken.
const WORTH_SETTLING: usize = 16 << 10;

#[derive(Debug)]
pub(super) struct Pool {
    granule: usize,
    areas: Vec<Area>,
    /// What was never used, in the last area: it is zero.
    fresh: Range<usize>,
    /// What was used, and what was left out.
    free: Ranges,
    /// What has rested, and what cores may have fetched as it was: see [`settle`](Self::settle).
    woken: Vec<Range<usize>>,
    woken_bytes: usize,
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
    /// Its views may show different memory.
    torn: bool,
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
    /// An empty one that grows by so many bytes at first; twice as many each time, up to a limit if it begins below it.
    pub(super) fn new(granule: usize, step: usize) -> Self {
        let free = Ranges::new(0..0, granule);
        let (areas, woken, idle) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { granule, areas, fresh: 0..0, free, woken, woken_bytes: 0, step, idle }
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
        self.step = self.step.max(self.step.saturating_mul(2).min(LAST_STEP));
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

    /// Whether the views of a unit may show different memory, until both were mapped anew.
    pub(super) fn is_torn(&mut self, unit: &Range<usize>) -> bool {
        let mut torn = false;
        self.each_unit(unit, |unit, _, _| torn = unit.torn);
        torn
    }

    pub(super) fn set_torn(&mut self, unit: &Range<usize>, torn: bool) {
        self.each_unit(unit, |unit, _, _| unit.torn = torn);
    }

    /// The beginning of a unit that was used before `carved` was taken: the rest is expected to be zero.
    pub(super) fn used_part(&self, unit: &Range<usize>, carved: &Carved) -> Range<usize> {
        let fresh = if carved.fresh { carved.range.start..self.fresh.end } else { self.fresh.clone() };
        let reaches_in = fresh.start < unit.end && unit.start < fresh.end;
        unit.start..if reaches_in { fresh.start.max(unit.start) } else { unit.end }
    }

    /// What nobody was told of, or nobody ran, may be had by others.
    pub(super) fn free(&mut self, range: Range<usize>) {
        self.free.free(range);
    }

    /// What was run has rested. Others may have it once it is settled.
    pub(super) fn wake(&mut self, range: Range<usize>) {
        self.woken_bytes += range.len();
        self.woken.push(range);
    }

    /// Whether there is something to settle, and enough of it if there is other room.
    pub(super) fn is_worth_settling(&self, other_room: bool) -> bool {
        self.woken_bytes >= if other_room { WORTH_SETTLING } else { 1 }
    }

    /// No core has anything any more that it fetched of what is woken.
    pub(super) fn settle(&mut self) {
        self.woken_bytes = 0;
        self.woken.drain(..).for_each(|range| self.free.free(range));
    }

    /// All that is mapped.
    pub(super) fn mapped(&self) -> impl Iterator<Item = Range<usize>> {
        self.areas.iter().map(|area| area.addresses.start..area.grown).filter(|range| !range.is_empty())
    }

    /// All areas, which are to be taken from nobody any more.
    pub(super) fn into_areas(self) -> impl Iterator<Item = Range<usize>> {
        self.areas.into_iter().map(|area| area.addresses)
    }

    /// Calls `with` with each unit that has something of a range, its addresses, and how many bytes of the range it has. A range may lie in
    /// more than one area, where these are neighbours.
    fn each_unit(&mut self, range: &Range<usize>, mut with: impl FnMut(&mut Unit, Range<usize>, usize)) {
        for area in &mut self.areas {
            let start = range.start.max(area.addresses.start);
            let end = range.end.min(area.addresses.end);
            let mut at = start;
            while at < end {
                let index = (at - area.addresses.start) / UNIT;
                let unit = area.addresses.start + index * UNIT..area.addresses.start + (index + 1) * UNIT;
                let next = unit.end.min(end);
                if let Some(state) = area.units.get_mut(index) {
                    with(state, unit, next - at);
                }
                at = next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BASE: usize = 0x7f12_3456_0000;
    const LINE: usize = 64;

    /// Grows a pool by what it asks for; areas come one behind the other.
    fn carve(pool: &mut Pool, next: &mut usize, bytes: usize, align: usize) -> Carved {
        loop {
            if let Some(carved) = pool.carve(bytes, align) {
                return carved;
            }
            match pool.growth(bytes, align) {
                Growth::Map(range) => pool.grown(&range),
                Growth::Area(least) => {
                    pool.add_area(*next..*next + least);
                    *next += least;
                }
            }
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Carve { bytes: usize, shift: u32 },
        Rest { which: usize, keep: bool },
        Wake { which: usize },
        Settle,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (prop_oneof![3 => 1..500_usize, 1 => 500..200_000_usize], 0..13_u32)
                .prop_map(|(bytes, shift)| Step::Carve { bytes, shift }),
            3 => (any::<usize>(), any::<bool>()).prop_map(|(which, keep)| Step::Rest { which, keep }),
            2 => any::<usize>().prop_map(|which| Step::Wake { which }),
            1 => Just(Step::Settle),
        ]
    }

    proptest! {
        /// Against a table with what each line is for. Small areas, so that many lie side by side.
        #[test]
        fn agrees_with_a_table(steps in prop::collection::vec(step(), 1..120), at_once: bool) {
            const LINES: usize = 1 << 17;
            let (mut pool, mut next) = (Pool::new(LINE, if at_once { usize::MAX } else { FIRST_STEP }), BASE);
            let mut lines = vec![0_u8; LINES];
            let (free, live, rests, woken) = (0, 1, 2, 3);
            let index = |range: &Range<usize>| (range.start - BASE) / LINE..(range.end - BASE) / LINE;
            let unit_of = |unit: &Range<usize>| unit.start == unit.start / UNIT * UNIT && unit.len() == UNIT;
            let mut away = std::collections::BTreeSet::new();
            let mut used = vec![false; LINES];
            let (mut living, mut resting) = (Vec::<Range<usize>>::new(), Vec::<Range<usize>>::new());
            for step in steps {
                match step {
                    Step::Carve { bytes, shift } => {
                        let carved = carve(&mut pool, &mut next, bytes, 1 << shift);
                        prop_assert!(carved.range.len() >= bytes && carved.range.len() < bytes + LINE);
                        prop_assert_eq!(carved.range.start % (1 << shift), 0);
                        for line in index(&carved.range) {
                            prop_assert_eq!(lines[line], free);
                            prop_assert!(!(carved.fresh && used[line]));
                            (lines[line], used[line]) = (live, true);
                        }
                        let back: Vec<_> = away.iter().copied().filter(|start| {
                            *start < carved.range.end && carved.range.start < start + UNIT
                        }).collect();
                        let told: Vec<_> = carved.away.iter().map(|unit| unit.start).collect();
                        prop_assert_eq!(&told, &back);
                        away.retain(|start| !back.contains(start));
                        living.push(carved.range);
                    }
                    Step::Rest { which, keep } if !living.is_empty() => {
                        let range = living.swap_remove(which % living.len());
                        lines[index(&range)].fill(rests);
                        for unit in pool.rest(&range, keep) {
                            prop_assert!(unit_of(&unit) && away.insert(unit.start));
                            prop_assert!(lines[index(&unit)].iter().all(|line| *line != live), "something lives there");
                        }
                        if !keep {
                            // All of which nothing lives in.
                            let start = range.start / UNIT * UNIT;
                            for unit in (start..range.end).step_by(UNIT) {
                                let lives = lines[index(&(unit..unit + UNIT))].contains(&live);
                                prop_assert!(lives || away.contains(&unit), "{unit:#x} is idle, and stays");
                            }
                        }
                        resting.push(range);
                    }
                    Step::Wake { which } if !resting.is_empty() => {
                        let range = resting.swap_remove(which % resting.len());
                        lines[index(&range)].fill(woken);
                        pool.wake(range);
                    }
                    Step::Settle => {
                        prop_assert_eq!(pool.is_worth_settling(false), lines.contains(&woken));
                        pool.settle();
                        lines.iter_mut().filter(|line| **line == woken).for_each(|line| *line = free);
                    }
                    Step::Rest { .. } | Step::Wake { .. } => {}
                }
            }
        }
    }
}
