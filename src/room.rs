//! A range of which parts are taken and given back.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A range of which parts are taken and given back.
#[derive(Debug)]
pub(crate) struct Room {
    capacity: usize,
    /// Behind it nothing is taken.
    used: usize,
    /// Free parts before that: lengths by start, and the same by length. None begins where another ends.
    holes: BTreeMap<usize, usize>,
    by_len: BTreeSet<(usize, usize)>,
    /// The hole that changed last, which is in neither map: neighbours are often taken, or given back, one after the
    /// other.
    changed: Range<usize>,
}

impl Room {
    /// Returns a range whose first part is taken for good, and another is free.
    pub(crate) fn new(taken: usize, free: usize) -> Self {
        Self { capacity: taken + free, used: taken, holes: BTreeMap::new(), by_len: BTreeSet::new(), changed: 0..0 }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the end of what is taken.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    pub(crate) fn grow(&mut self, by: usize) {
        self.capacity += by;
    }

    /// Takes a part, of the smallest hole that has room.
    pub(crate) fn take(&mut self, len: usize) -> Option<usize> {
        let (changed, start) = (self.changed.len(), self.changed.start);
        let found = self.by_len.range((len, 0)..).next().copied();
        if changed != 0 && changed >= len && found.is_none_or(|found| (changed, start) < found) {
            self.changed.start += len;
            return Some(start);
        }
        if let Some((found, at)) = found {
            self.note_changed();
            self.forget(at, found);
            self.changed = at + len..at + found;
            return Some(at);
        }
        let end = self.used.checked_add(len).filter(|end| *end <= self.capacity)?;
        Some(std::mem::replace(&mut self.used, end))
    }

    /// Gives a part back.
    pub(crate) fn give(&mut self, at: usize, len: usize) {
        let Range { mut start, mut end } = at..at + len;
        if self.changed.end == start {
            start = std::mem::take(&mut self.changed).start;
        } else {
            if self.changed.start == end {
                end = std::mem::take(&mut self.changed).end;
            }
            self.note_changed();
            if let Some((&before, &len)) = self.holes.range(..at).next_back()
                && before + len == at
            {
                self.forget(before, len);
                start = before;
            }
        }
        if let Some(&len) = self.holes.get(&end) {
            self.forget(end, len);
            end += len;
        }
        if end == self.used {
            self.used = start;
        } else {
            self.changed = start..end;
        }
    }

    fn note_changed(&mut self) {
        let Range { start, end } = std::mem::take(&mut self.changed);
        if start != end {
            self.note(start, end - start);
        }
    }

    fn note(&mut self, at: usize, len: usize) {
        self.holes.insert(at, len);
        self.by_len.insert((len, at));
    }

    fn forget(&mut self, at: usize, len: usize) {
        self.holes.remove(&at);
        self.by_len.remove(&(len, at));
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng as _, SeedableRng as _};

    use super::*;

    /// Parts never overlap, the smallest hole that has room is taken, and what is given back is whole again.
    #[test]
    fn parts_are_taken_and_given_back_in_any_order() {
        const CAPACITY: usize = 300;
        let mut random = SmallRng::seed_from_u64(3);
        let (mut room, mut taken, mut parts) = (Room::new(1, CAPACITY - 1), [false; CAPACITY], Vec::new());
        taken[0] = true;
        let holes = |taken: &[bool], used: usize| {
            let all = taken[..used].chunk_by(|one, next| one == next);
            all.filter(|run| !run[0]).map(<[bool]>::len).collect::<Vec<_>>()
        };
        for round in 0..20_000 {
            let used = taken.iter().rposition(|taken| *taken).map_or(0, |last| last + 1);
            assert_eq!(room.used(), used);
            // More is taken for a while, and then less. Some that were taken one after the other are given back so, or in
            // the opposite order.
            if parts.is_empty() || random.random_bool(if round / 100 % 2 == 0 { 0.8 } else { 0.6 }) {
                let len = random.random_range(1..12);
                let smallest = holes(&taken, used).into_iter().filter(|hole| *hole >= len).min();
                let Some(at) = room.take(len) else {
                    assert!(smallest.is_none() && used + len > CAPACITY);
                    continue;
                };
                match smallest {
                    Some(hole) => {
                        assert!(!taken[at..at + len].contains(&true) && (at == 0 || taken[at - 1]));
                        assert!(taken[at..].iter().take_while(|taken| !**taken).count() == hole);
                    }
                    None => assert_eq!(at, used),
                }
                taken[at..at + len].fill(true);
                parts.push((at, len));
            } else {
                let first = random.random_range(0..parts.len());
                let given = first..parts.len().min(first + random.random_range(1..5));
                let mut given: Vec<_> = parts.drain(given).collect();
                if random.random_bool(0.5) {
                    given.reverse();
                }
                for (at, len) in given {
                    room.give(at, len);
                    taken[at..at + len].fill(false);
                }
            }
        }
    }
}
