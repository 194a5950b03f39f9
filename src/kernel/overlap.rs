//! Search for overlapping buffers: first by range, then, if ranges meet, byte by byte.
//!
//! One pass over the spans, sorted by address, tells whether any two meet of which one is written. Usually none do;
//! otherwise the spans that meet are compared in pairs.

use arrayvec::ArrayVec;

use super::signature::MAX_ARGUMENTS;
use super::span::{MAX_RANK, Span};

const BITS: u32 = MAX_ARGUMENTS.trailing_zeros();

/// Spans by address: the address in the upper bits, the span's index in the lower ones. Addresses have 56 bits.
type Order = ArrayVec<u64, MAX_ARGUMENTS>;

/// Calls a function for every two spans that meet and of which one is written, until it returns a value.
pub(super) fn find<T>(
    spans: &ArrayVec<Span, MAX_ARGUMENTS>,
    mut judge: impl FnMut(&Span, &Span) -> Option<T>,
) -> Option<T> {
    let mut order: Order = spans.iter().enumerate().map(|(index, span)| span.start << BITS | index as u64).collect();
    order.sort_unstable();
    let at = |key: u64| &spans[key as usize % MAX_ARGUMENTS];
    if !any_meet(order.iter().map(|key| at(*key))) {
        return None;
    }
    for (index, key) in order.iter().enumerate() {
        let first = at(*key);
        for second in order[index + 1..].iter().map(|key| at(*key)).take_while(|second| second.start < first.end) {
            if (first.written || second.written)
                && first.space.meets(second.space)
                && let Some(found) = judge(first, second)
            {
                return Some(found);
            }
        }
    }
    None
}

/// Returns whether any two spans meet of which one is written, whatever their memory spaces. They are sorted by
/// address.
fn any_meet<'a>(spans: impl Iterator<Item = &'a Span>) -> bool {
    let (mut read_to, mut written_to) = (0, 0);
    let mut met = false;
    for span in spans {
        let reaches = if span.written { written_to.max(read_to) } else { written_to };
        met |= span.start < reaches;
        let end = if span.written { &mut written_to } else { &mut read_to };
        *end = span.end.max(*end);
    }
    met
}

/// Elements in memory: the first one's address, their size, and the count and distance in bytes in each dimension.
#[derive(Debug)]
pub(super) struct Elements {
    pub address: u64,
    pub size: u64,
    pub dimensions: ArrayVec<(u64, u64), MAX_RANK>,
}

/// The number of combinations to try before two buffers count as overlapping.
const TRIES: u32 = 1 << 14;

/// Returns whether two buffers share a byte.
///
/// Exact for all strides and element sizes, equal or not: a byte is shared if `a + Σ sᵢxᵢ + p = b + Σ tⱼyⱼ + q` for
/// positions `x`, `y` in the shapes and bytes `p`, `q` of the elements. Terms with the same factor are merged. The
/// strides of a tensor and its parts leave few combinations to try; with more than 16 384, the buffers count as
/// overlapping.
pub(super) fn share_bytes(one: &Elements, other: &Elements) -> bool {
    let mut factors: ArrayVec<(i64, i64, i64), { 2 * MAX_RANK + 1 }> = ArrayVec::new();
    factors.push((1, -(other.size as i64 - 1), one.size as i64 - 1));
    let steps = |elements: &Elements| elements.dimensions.clone().into_iter().filter(|(_, step)| *step != 0);
    factors.extend(steps(one).map(|(extent, step)| (step as i64, 0, extent as i64 - 1)));
    factors.extend(steps(other).map(|(extent, step)| (step as i64, 1 - extent as i64, 0)));
    factors.sort_unstable_by_key(|(factor, ..)| *factor);

    let mut terms: ArrayVec<Term, { 2 * MAX_RANK + 1 }> = ArrayVec::new();
    let mut below = Below { low: 0, high: 0, all: true };
    for (factor, low, high) in factors {
        match terms.last_mut() {
            Some(last) if last.factor == factor => (last.low, last.high) = (last.low + low, last.high + high),
            _ => {
                if let Some(last) = terms.last() {
                    below = below.and(last);
                }
                terms.push(Term { factor, low, high, below });
            }
        }
    }
    let distance = other.address as i64 - one.address as i64;
    reaches(&terms, distance, &mut TRIES.clone())
}

/// A term `factor * x` for each `x` from `low` to `high`, with the sums of the terms with smaller factors.
#[derive(Clone, Copy)]
struct Term {
    factor: i64,
    low: i64,
    high: i64,
    below: Below,
}

/// The range of sums, and whether every number in it is a sum.
#[derive(Clone, Copy)]
struct Below {
    low: i64,
    high: i64,
    all: bool,
}

impl Below {
    /// Adds a term.
    fn and(self, term: &Term) -> Self {
        Self {
            low: self.low + term.factor * term.low,
            high: self.high + term.factor * term.high,
            all: self.all && (term.low == term.high || term.factor <= self.high - self.low + 1),
        }
    }
}

/// Returns whether terms, the smallest first, can add up to `sum`.
fn reaches(terms: &[Term], sum: i64, tries: &mut u32) -> bool {
    let Some((term, smaller)) = terms.split_last() else { return sum == 0 };
    let first = term.low.max(-(term.below.high - sum).div_euclid(term.factor));
    let last = term.high.min((sum - term.below.low).div_euclid(term.factor));
    if term.below.all {
        return first <= last;
    }
    (first..=last).any(|x| {
        *tries = tries.saturating_sub(1);
        *tries == 0 || reaches(smaller, sum - term.factor * x, tries)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::kernel::argument::MemorySpace;

    /// Returns every byte of every element.
    fn bytes(elements: &Elements) -> HashSet<u64> {
        let mut first = vec![elements.address];
        for &(extent, step) in &elements.dimensions {
            first = first.iter().flat_map(|address| (0..extent).map(move |x| address + x * step)).collect();
        }
        first.iter().flat_map(|address| *address..address + elements.size).collect()
    }

    fn elements(address: u64, size: u64, dimensions: &[(u64, u64)]) -> Elements {
        Elements { address, size, dimensions: dimensions.iter().copied().collect() }
    }

    fn any_elements(dimensions: Vec<(u64, u64)>) -> impl Strategy<Value = Elements> {
        (0..200u64, prop_oneof![Just(1u64), Just(2), Just(4), Just(8)], Just(dimensions))
            .prop_map(|(address, size, dimensions)| elements(1000 + address, size, &dimensions))
    }

    fn dimensions() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::vec((2..5u64, 0..40u64), 0..4)
    }

    fn agrees(one: &Elements, other: &Elements) {
        let expected = !bytes(one).is_disjoint(&bytes(other));
        assert_eq!(share_bytes(one, other), expected);
        assert_eq!(share_bytes(other, one), expected);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_two_buffers(one in dimensions().prop_flat_map(any_elements), other in dimensions().prop_flat_map(any_elements)) {
            agrees(&one, &other);
        }

        #[test]
        fn buffers_of_equal_strides(
            (one, other) in dimensions().prop_flat_map(|all| (any_elements(all.clone()), any_elements(all)))
        ) {
            agrees(&one, &other);
        }

        /// Parts of one tensor with arbitrary starts and steps.
        #[test]
        fn parts_of_a_tensor(
            size in prop_oneof![Just(1u64), Just(4)],
            parts in prop::array::uniform2(prop::array::uniform3((0..4u64, 1..4u64, 1..4u64))),
        ) {
            let steps = [256 * size, 16 * size, size];
            let [one, other] = parts.map(|part| {
                let address = part.iter().zip(steps).map(|((start, ..), step)| start * step).sum::<u64>();
                let all = part.iter().zip(steps).map(|((_, every, count), step)| (*count, every * step));
                elements(address, size, &all.filter(|(count, _)| *count > 1).collect::<Vec<_>>())
            });
            agrees(&one, &other);
        }

        /// Compares all pairs of ranges.
        #[test]
        fn spans_that_meet(all in prop::collection::vec((0..1000u64, 1..60u64, any::<bool>(), 0..3u32), 0..=MAX_ARGUMENTS)) {
            let spans: ArrayVec<Span, MAX_ARGUMENTS> = all
                .iter()
                .enumerate()
                .map(|(index, &(start, len, written, space))| {
                    let space = if space == 2 { MemorySpace::Managed } else { MemorySpace::Device(space) };
                    Span { start, end: start + len, space, written, argument: index as u8 }
                })
                .collect();
            let mut expected = HashSet::new();
            for (first, one) in spans.iter().enumerate() {
                for (second, other) in spans.iter().enumerate().skip(first + 1) {
                    let in_one = one.space == other.space || [one.space, other.space].contains(&MemorySpace::Managed);
                    if in_one && (one.written || other.written) && (one.start..one.end).any(|byte| (other.start..other.end).contains(&byte)) {
                        expected.insert((first as u8, second as u8));
                    }
                }
            }
            let mut found = HashSet::new();
            let none: Option<()> = find(&spans, |one, other| {
                let (one, other) = (one.argument, other.argument);
                assert!(found.insert((one.min(other), one.max(other))), "found twice");
                None
            });
            assert!(none.is_none());
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn columns_and_halves() {
        let matrix =
            |column: u64, columns: u64, every: u64| elements(4 * column, 4, &[(64, 4 * 64), (columns, 4 * every)]);
        // Even and odd columns; left and right half; parts with one common column.
        assert!(!share_bytes(&matrix(0, 32, 2), &matrix(1, 32, 2)));
        assert!(!share_bytes(&matrix(0, 32, 1), &matrix(32, 32, 1)));
        assert!(share_bytes(&matrix(0, 33, 1), &matrix(32, 32, 1)));
        // Two bytes off, no element is in the gap of another.
        assert!(share_bytes(&elements(2, 4, &[(8, 8)]), &elements(8, 4, &[(8, 8)])));
        assert!(!share_bytes(&elements(2, 2, &[(8, 8)]), &elements(8, 2, &[(8, 8)])));
    }

    #[test]
    fn what_takes_too_long_counts_as_overlapping() {
        // Even steps and an odd distance, but 12 dimensions of steps that are no multiples of each other.
        let steps = [998, 994, 986, 982, 974, 958, 934, 926, 922, 914, 898, 894];
        let all: Vec<_> = steps.iter().map(|step| (40, *step)).collect();
        let (one, other) = (elements(0, 1, &all), elements(20_001, 1, &all));
        assert!(share_bytes(&one, &other));
    }
}
