//! The free list of an arena: a pure data structure, no system call.
//!
//! Best fit, lowest address among equals, neighbours joined as soon as they are free. Two trees hold the same ranges:
//! one finds a size, the other finds neighbours. Taking the front of a range leaves its end, hence its key in
//! `by_end`, as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range};

/// The number of close fits to try for an alignment above the granule, before a larger range is taken.
const NEAR_FITS: usize = 8;

#[derive(Debug)]
pub(super) struct Ranges {
    /// All bounds are multiples of it.
    granule: usize,
    /// End → start.
    by_end: BTreeMap<usize, usize>,
    /// (length, start).
    by_size: BTreeSet<(usize, usize)>,
}

impl Ranges {
    /// Creates the list with one free range.
    pub(super) fn new(span: Range<usize>, granule: usize) -> Self {
        let mut ranges = Self { granule, by_end: BTreeMap::new(), by_size: BTreeSet::new() };
        ranges.free(span);
        ranges
    }

    /// Takes `len` bytes (a multiple of the granule, not 0) at a multiple of `align` (a power of two).
    ///
    /// O(log n) up to the granule's alignment. Above it, O(n) only if no free range is large enough for every position.
    pub(super) fn allocate(&mut self, len: usize, align: usize) -> Option<Range<usize>> {
        debug_assert!(len != 0 && len.is_multiple_of(self.granule) && align.is_power_of_two());
        let (free, start) = self.find(len, align)?;
        let taken = start..start + len;
        self.by_size.remove(&(free.len(), free.start));
        if taken.end < free.end {
            self.insert(taken.end..free.end);
        } else {
            self.by_end.remove(&free.end);
        }
        if free.start < taken.start {
            self.insert(free.start..taken.start);
        }
        Some(taken)
    }

    /// Frees a range that [`allocate`](Self::allocate) returned, or a part of one.
    pub(super) fn free(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let mut joined = range.clone();
        if let Some(start) = self.by_end.remove(&range.start) {
            self.by_size.remove(&(range.start - start, start));
            joined.start = start;
        }
        let next = self.by_end.range((Bound::Excluded(range.start), Bound::Unbounded)).next();
        if let Some((&end, &start)) = next {
            debug_assert!(start >= range.end, "{range:x?} is free already: {start:x}..{end:x}");
            if start == range.end {
                self.by_size.remove(&(end - start, start));
                joined.end = end;
            }
        }
        self.insert(joined);
    }

    /// Returns the length of the largest free range.
    pub(super) fn largest(&self) -> usize {
        self.by_size.last().map_or(0, |&(len, _)| len)
    }

    fn insert(&mut self, range: Range<usize>) {
        self.by_end.insert(range.end, range.start);
        self.by_size.insert((range.len(), range.start));
    }

    /// Finds the free range to take from, and the position in it.
    fn find(&self, len: usize, align: usize) -> Option<(Range<usize>, usize)> {
        let fit = |&(size, start): &(usize, usize)| {
            let end = start + size;
            let at = start.checked_next_multiple_of(align)?;
            (at.checked_add(len)? <= end).then_some((start..end, at))
        };
        let mut large_enough = self.by_size.range((len, 0)..);
        if align <= self.granule {
            return large_enough.next().and_then(fit);
        }
        // A range of this size fits at every position.
        let certain = (len.checked_add(align - self.granule)?, 0);
        large_enough
            .take(NEAR_FITS)
            .find_map(fit)
            .or_else(|| self.by_size.range(certain..).next().and_then(fit))
            .or_else(|| self.by_size.range((len, 0)..certain).find_map(fit))
    }
}

/// Returns what of a range lies before another one, and what lies behind it.
pub(super) fn around(range: &Range<usize>, inner: &Range<usize>) -> [Range<usize>; 2] {
    let Range { start, end } = *range;
    [start..inner.start.clamp(start, end), inner.end.clamp(start, end)..end]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGE: usize = 4096;
    /// Not aligned above a page, like the kernel's addresses.
    const BASE: usize = 0x7f12_3456_7000;
    const PAGES: usize = 300;

    impl Ranges {
        fn list(&self) -> Vec<Range<usize>> {
            let list: Vec<_> = self.by_end.iter().map(|(&end, &start)| start..end).collect();
            let mut sizes: Vec<_> = list.iter().map(|r| (r.len(), r.start)).collect();
            sizes.sort();
            assert!(self.by_size.iter().copied().eq(sizes), "the two trees differ");
            list
        }
    }

    /// One flag for each page: taken or free.
    struct Bitmap(Vec<bool>);

    impl Bitmap {
        fn pages(range: &Range<usize>) -> Range<usize> {
            (range.start - BASE) / PAGE..(range.end - BASE) / PAGE
        }

        fn set(&mut self, range: &Range<usize>, taken: bool) {
            for page in &mut self.0[Self::pages(range)] {
                assert_ne!(*page, taken, "overlap in {range:x?}");
                *page = taken;
            }
        }

        /// Returns the maximal free runs, hence coalesced by construction.
        fn free(&self) -> Vec<Range<usize>> {
            let mut runs: Vec<Range<usize>> = Vec::new();
            for (i, _) in self.0.iter().enumerate().filter(|(_, taken)| !**taken) {
                let at = BASE + i * PAGE;
                match runs.last_mut() {
                    Some(run) if run.end == at => run.end = at + PAGE,
                    _ => runs.push(at..at + PAGE),
                }
            }
            runs
        }

        fn fits(&self, len: usize, align: usize) -> bool {
            self.free().iter().any(|r| r.start.next_multiple_of(align) + len <= r.end)
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Allocate { pages: usize, align: usize },
        Free { which: usize },
        FreeTail { which: usize, keep: usize },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            5 => (1..24_usize, prop_oneof![4 => Just(0_u32), 1 => 0..7_u32])
                .prop_map(|(pages, shift)| Step::Allocate { pages, align: PAGE << shift }),
            1 => (24..PAGES + 2).prop_map(|pages| Step::Allocate { pages, align: 1 }),
            4 => any::<usize>().prop_map(|which| Step::Free { which }),
            1 => (any::<usize>(), any::<usize>()).prop_map(|(which, keep)| Step::FreeTail { which, keep }),
        ]
    }

    proptest! {
        #[test]
        fn agrees_with_a_bitmap(steps in prop::collection::vec(step(), 1..300)) {
            let whole = BASE..BASE + PAGES * PAGE;
            let mut ranges = Ranges::new(whole.clone(), PAGE);
            let mut model = Bitmap(vec![false; PAGES]);
            let mut live: Vec<Range<usize>> = Vec::new();
            for step in steps {
                match step {
                    Step::Allocate { pages, align } => match ranges.allocate(pages * PAGE, align) {
                        Some(r) => {
                            prop_assert_eq!(r.len(), pages * PAGE);
                            prop_assert_eq!(r.start % align, 0);
                            model.set(&r, true);
                            live.push(r);
                        }
                        None => prop_assert!(!model.fits(pages * PAGE, align), "{} pages at {:#x}", pages, align),
                    },
                    Step::Free { which } if !live.is_empty() => {
                        let r = live.swap_remove(which % live.len());
                        model.set(&r, false);
                        ranges.free(r);
                    }
                    Step::FreeTail { which, keep } if !live.is_empty() => {
                        let index = which % live.len();
                        let r = &mut live[index];
                        let keep = keep % (r.len() / PAGE);
                        let tail = r.start + keep * PAGE..r.end;
                        r.end = tail.start;
                        model.set(&tail, false);
                        ranges.free(tail);
                        if keep == 0 {
                            live.swap_remove(index);
                        }
                    }
                    Step::Free { .. } | Step::FreeTail { .. } => {}
                }
                prop_assert_eq!(ranges.list(), model.free());
                prop_assert_eq!(ranges.largest(), model.free().iter().map(Range::len).max().unwrap_or(0));
            }
            for r in live {
                ranges.free(r);
            }
            prop_assert_eq!(ranges.list(), vec![whole]);
        }
    }

    #[test]
    fn takes_the_smallest_fitting_hole_first() {
        let mut ranges = Ranges::new(BASE..BASE + 16 * PAGE, PAGE);
        let taken: Vec<_> = (0..8).map(|i| ranges.allocate((1 + i % 3) * PAGE, 1).unwrap()).collect();
        ranges.free(taken[2].clone()); // three pages
        ranges.free(taken[4].clone()); // two pages
        assert_eq!(ranges.allocate(2 * PAGE, 1), Some(taken[4].clone()));
    }

    #[test]
    fn sizes_near_the_end_of_the_address_space_are_refused() {
        let mut ranges = Ranges::new(BASE..BASE + 16 * PAGE, PAGE);
        assert_eq!(ranges.allocate(usize::MAX - PAGE + 1, 2 << 20), None);
    }
}
