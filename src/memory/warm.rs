//! Pages of removed slabs that keep their memory, without access, while their addresses rest: the next slabs get the
//! memory, moved to their own addresses. New pages take the kernel longer (293 pages: 320 µs to bring in and 70 to take
//! away; 17 to move).

use std::collections::VecDeque;
use std::ops::Range;

/// The largest number of ranges, as each is a mapping.
const MOST: usize = 128;

/// Ranges of an arena, the oldest first.
#[derive(Debug)]
pub(super) struct Warm {
    kept: VecDeque<Range<usize>>,
    bytes: usize,
    /// The largest number of bytes.
    limit: usize,
    /// The fewest bytes of a range.
    least: usize,
}

/// Pages that were taken from those that are kept.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Taken {
    /// Those for the new slab.
    pub(super) pages: Range<usize>,
    /// Too few to be kept any longer.
    pub(super) rest: Range<usize>,
}

impl Warm {
    pub(super) fn new(limit: usize, least: usize) -> Self {
        Self { kept: VecDeque::new(), bytes: 0, limit, least }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Returns whether a removed range of this size is worth keeping.
    pub(super) fn takes(&self, bytes: usize) -> bool {
        (self.least..=self.limit).contains(&bytes)
    }

    pub(super) fn push(&mut self, range: Range<usize>) {
        self.bytes += range.len();
        self.kept.push_back(range);
    }

    /// Returns the oldest range if there are more than may be kept.
    pub(super) fn pop_over_limit(&mut self) -> Option<Range<usize>> {
        (self.bytes > self.limit || self.kept.len() > MOST).then(|| self.pop()).flatten()
    }

    /// Returns the oldest range.
    pub(super) fn pop(&mut self) -> Option<Range<usize>> {
        let oldest = self.kept.pop_front()?;
        self.bytes -= oldest.len();
        Some(oldest)
    }

    /// Takes the front of the smallest range that has so many bytes.
    pub(super) fn take(&mut self, bytes: usize) -> Option<Taken> {
        if bytes < self.least {
            return None;
        }
        let fits = self.kept.iter().enumerate().filter(|(_, range)| range.len() >= bytes);
        let (at, _) = fits.min_by_key(|(_, range)| range.len())?;
        let range = self.kept.get_mut(at)?;
        let pages = range.start..range.start + bytes;
        range.start = pages.end;
        self.bytes -= bytes;
        let mut rest = pages.end..pages.end;
        if range.len() < self.least {
            rest = self.kept.remove(at)?;
            self.bytes -= rest.len();
        }
        Some(Taken { pages, rest })
    }

    /// Takes a range that has some of the addresses which have rested.
    pub(super) fn remove(&mut self, rested: &Range<usize>) -> Option<Range<usize>> {
        // Addresses rest in the order in which they were removed: it is among the oldest. Neighbours are one range.
        let at = self.kept.iter().position(|range| range.start < rested.end && rested.start < range.end)?;
        let range = self.kept.remove(at)?;
        self.bytes -= range.len();
        Some(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    #[test]
    fn the_smallest_that_fits_is_taken_and_the_oldest_goes() {
        let mut warm = Warm::new(100 * PAGE, 5 * PAGE);
        assert!(!warm.takes(4 * PAGE) && warm.takes(5 * PAGE) && warm.takes(100 * PAGE) && !warm.takes(101 * PAGE));
        for (start, pages) in [(1000, 40), (2000, 20), (3000, 30)] {
            warm.push(start * PAGE..(start + pages) * PAGE);
            assert_eq!(warm.pop_over_limit(), None);
        }
        assert_eq!((warm.bytes(), warm.take(41 * PAGE), warm.take(4 * PAGE)), (90 * PAGE, None, None));
        let taken = |start: usize, pages: usize, rest: usize| {
            let end = start + pages;
            Some(Taken { pages: start * PAGE..end * PAGE, rest: end * PAGE..(end + rest) * PAGE })
        };
        assert_eq!(warm.take(12 * PAGE), taken(2000, 12, 0));
        assert_eq!(warm.bytes(), 78 * PAGE);
        // Of the eight that are left, three would be too few.
        assert_eq!(warm.take(5 * PAGE), taken(2012, 5, 3));
        assert_eq!(warm.bytes(), 70 * PAGE);
        warm.push(4000 * PAGE..4060 * PAGE);
        assert_eq!(warm.pop_over_limit(), Some(1000 * PAGE..1040 * PAGE));
        assert_eq!((warm.pop_over_limit(), warm.bytes()), (None, 90 * PAGE));
        // A part of it was taken; what is left goes with its addresses.
        assert_eq!(warm.take(10 * PAGE), taken(3000, 10, 0));
        assert_eq!(warm.remove(&(3000 * PAGE..3030 * PAGE)), Some(3010 * PAGE..3030 * PAGE));
        assert_eq!(warm.remove(&(3000 * PAGE..3030 * PAGE)), None);
        assert_eq!((warm.pop(), warm.pop(), warm.bytes()), (Some(4000 * PAGE..4060 * PAGE), None, 0));
    }

    #[test]
    fn there_are_not_too_many() {
        let mut warm = Warm::new(usize::MAX, PAGE);
        for i in 0..2 * MOST {
            warm.push(2 * i * PAGE..(2 * i + 1) * PAGE);
            let gone = warm.pop_over_limit();
            assert_eq!(gone, i.checked_sub(MOST).map(|oldest| 2 * oldest * PAGE..(2 * oldest + 1) * PAGE));
        }
    }
}
