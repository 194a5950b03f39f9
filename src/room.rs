//! A range of which parts are taken and given back.

use std::collections::{BTreeMap, BTreeSet};

/// A range of which parts are taken and given back.
#[derive(Debug)]
pub(crate) struct Room {
    capacity: usize,
    /// Behind it nothing is taken.
    used: usize,
    /// Free parts before that: lengths by start, and the same by length. None begins where another ends.
    holes: BTreeMap<usize, usize>,
    by_len: BTreeSet<(usize, usize)>,
}

impl Room {
    /// Returns a range whose first part is taken for good, and another is free.
    pub(crate) fn new(taken: usize, free: usize) -> Self {
        Self { capacity: taken + free, used: taken, holes: BTreeMap::new(), by_len: BTreeSet::new() }
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
        if let Some(&(found, at)) = self.by_len.range((len, 0)..).next() {
            self.forget(at, found);
            if found > len {
                self.note(at + len, found - len);
            }
            return Some(at);
        }
        let end = self.used.checked_add(len).filter(|end| *end <= self.capacity)?;
        Some(std::mem::replace(&mut self.used, end))
    }

    /// Gives a part back.
    pub(crate) fn give(&mut self, at: usize, len: usize) {
        let (mut start, mut end) = (at, at + len);
        if let Some((&before, &len)) = self.holes.range(..at).next_back()
            && before + len == at
        {
            self.forget(before, len);
            start = before;
        }
        if let Some(&len) = self.holes.get(&end) {
            self.forget(end, len);
            end += len;
        }
        if end == self.used {
            self.used = start;
        } else {
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
