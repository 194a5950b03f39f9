//! The allocation of one protection's addresses: arithmetic only, no system call.
//!
//! A pool has areas of the arena. Each grows from its start, so that its mapped part is one mapping. Objects get whole
//! granules: of 16 bytes, cache lines, or pages. Freed room is counted by units; a unit's memory is freed when nothing
//! in it is alive.

use std::collections::VecDeque;
use std::ops::Range;

use super::super::ranges::Ranges;

/// The unit in which memory is freed: the largest page of AArch64. Smaller pieces would take a mapping each.
pub(in super::super) const UNIT: usize = 64 << 10;
/// The number of empty units that keep their memory for the next objects.
const SPARE: usize = 4;
/// The growth of an area, at first and at most.
pub(super) const FIRST_STEP: usize = 256 << 10;
const LAST_STEP: usize = 4 << 20;
/// The woken bytes that justify interrupting all cores. Until then, unused room is taken.
const WORTH_SETTLING: usize = 16 << 10;

#[derive(Debug)]
pub(super) struct Pool {
    granule: usize,
    areas: Vec<Area>,
    /// The unused rest of the last area: it is zero.
    fresh: Range<usize>,
    /// Room that was freed, or skipped.
    free: Ranges,
    /// Room that has rested, and that cores may have fetched with its old contents: see [`settle`](Self::settle).
    woken: Vec<Range<usize>>,
    woken_bytes: usize,
    step: usize,
    /// Addresses of units that were empty when they were added; the oldest first.
    idle: VecDeque<usize>,
}

#[derive(Debug)]
struct Area {
    addresses: Range<usize>,
    /// End of the mapped part.
    grown: usize,
    units: Vec<Unit>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Unit {
    /// Bytes in use.
    live: u32,
    /// Whether its memory was freed, and every access traps.
    away: bool,
    /// Whether its address is in `idle`.
    idle: bool,
    /// Whether its views may show different memory.
    torn: bool,
}

/// The room for an object.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Carved {
    pub(super) range: Range<usize>,
    /// Whether it was never used before.
    pub(super) fresh: bool,
    /// The units of it that need memory again.
    pub(super) away: Vec<Range<usize>>,
}

/// The growth that a pool needs to satisfy a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// A mapping of this range: see [`Pool::grown`].
    Map(Range<usize>),
    /// An area of at least this many bytes.
    Area(usize),
}

impl Pool {
    /// Creates an empty pool that first grows by `step` bytes, then by twice as many each time, up to a limit if it
    /// begins below it.
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
        // Bytes skipped for alignment are unused and zero like the rest.
        self.free.free(self.fresh.start..start);
        self.fresh.start = end;
        Some(start..end)
    }

    /// Returns the growth for a request that [`carve`](Self::carve) could not satisfy.
    pub(super) fn growth(&self, bytes: usize, align: usize) -> Growth {
        let wanted = bytes.saturating_add(align).saturating_add(self.granule).div_ceil(UNIT).saturating_mul(UNIT);
        let Some(area) = self.areas.last() else { return Growth::Area(wanted) };
        let room = area.addresses.end - area.grown;
        if room < wanted {
            return Growth::Area(wanted);
        }
        Growth::Map(area.grown..area.grown + self.step.max(wanted).min(room))
    }

    /// Records that a range named by [`growth`](Self::growth) is mapped.
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

    /// Returns the size of the last area.
    pub(super) fn last_area(&self) -> Option<usize> {
        self.areas.last().map(|area| area.addresses.len())
    }

    /// Adds an area, whose bounds are multiples of a unit.
    pub(super) fn add_area(&mut self, addresses: Range<usize>) {
        let units = vec![Unit::default(); addresses.len() / UNIT];
        self.areas.push(Area { grown: addresses.start, addresses, units });
    }

    /// Marks a range as not alive and resting. Returns units whose memory is to be freed; `keep` allows some to keep
    /// it.
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

    /// Returns the unit that has been idle for longest, if it is still idle.
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

    /// Corrects a unit's state after its memory could not be freed, or brought back.
    pub(super) fn set_away(&mut self, unit: &Range<usize>, away: bool) {
        self.each_unit(unit, |unit, _, _| unit.away = away);
    }

    /// Returns whether the views of a unit may show different memory, until both are mapped anew.
    pub(super) fn is_torn(&mut self, unit: &Range<usize>) -> bool {
        let mut torn = false;
        self.each_unit(unit, |unit, _, _| torn = unit.torn);
        torn
    }

    pub(super) fn set_torn(&mut self, unit: &Range<usize>, torn: bool) {
        self.each_unit(unit, |unit, _, _| unit.torn = torn);
    }

    /// Returns the part of a unit that was used before `carved` was taken: the rest is expected to be zero.
    pub(super) fn used_part(&self, unit: &Range<usize>, carved: &Carved) -> Range<usize> {
        let fresh = if carved.fresh { carved.range.start..self.fresh.end } else { self.fresh.clone() };
        let reaches_in = fresh.start < unit.end && unit.start < fresh.end;
        unit.start..if reaches_in { fresh.start.max(unit.start) } else { unit.end }
    }

    /// Frees a range whose addresses were not given out, or whose contents were never run.
    pub(super) fn free(&mut self, range: Range<usize>) {
        self.free.free(range);
    }

    /// Ends the rest of a range that was run. It becomes free when it is settled.
    pub(super) fn wake(&mut self, range: Range<usize>) {
        self.woken_bytes += range.len();
        self.woken.push(range);
    }

    /// Returns whether settling is worthwhile: any woken room, or enough of it if there is other room.
    pub(super) fn is_worth_settling(&self, other_room: bool) -> bool {
        self.woken_bytes >= if other_room { WORTH_SETTLING } else { 1 }
    }

    /// Frees the woken room, after all cores were synchronised.
    pub(super) fn settle(&mut self) {
        self.woken_bytes = 0;
        self.woken.drain(..).for_each(|range| self.free.free(range));
    }

    /// Returns all mapped ranges.
    pub(super) fn mapped(&self) -> impl Iterator<Item = Range<usize>> {
        self.areas.iter().map(|area| area.addresses.start..area.grown).filter(|range| !range.is_empty())
    }

    /// Returns all areas; the pool is not used any more.
    pub(super) fn into_areas(self) -> impl Iterator<Item = Range<usize>> {
        self.areas.into_iter().map(|area| area.addresses)
    }

    /// Calls `with` for each unit that overlaps a range, with its addresses and the size of the overlap. A range may
    /// span neighbouring areas.
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

    /// Takes room, growing the pool as needed; areas follow one another.
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
        /// Compares with a table of lines. Areas are small, so that many are neighbours.
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
                            // Units without live bytes.
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
