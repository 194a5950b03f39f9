//! Bounds of linker sets.

use std::ops::Range;

/// A bound of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    Start,
    Stop,
}

impl Bound {
    pub(crate) fn of(self, range: &Range<u64>) -> u64 {
        match self {
            Self::Start => range.start,
            Self::Stop => range.end,
        }
    }
}

/// Parses a name as a bound and the set's name.
pub(crate) fn bound(name: &str) -> Option<(Bound, &str)> {
    let start = name.strip_prefix("__start_").map(|set| (Bound::Start, set));
    start.or_else(|| Some((Bound::Stop, name.strip_prefix("__stop_")?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_told_by_their_names() {
        assert_eq!(bound("__start_set"), Some((Bound::Start, "set")));
        assert_eq!(bound("__stop___start_set"), Some((Bound::Stop, "__start_set")));
        assert_eq!(bound("__end_set"), None);
        assert_eq!((Bound::Start.of(&(3..7)), Bound::Stop.of(&(3..7))), (3, 7));
    }
}
