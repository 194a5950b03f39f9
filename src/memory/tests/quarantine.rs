//! Removed objects: their addresses rest, and the log still knows them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::*;
use crate::memory::address_log::Occupant;
use crate::name::Name;

fn name(text: &str) -> Name {
    text.into()
}

/// Loads an object into a published slab.
fn load(arena: &Arc<Arena>, object: &Name, segments: &[SegmentRequest]) -> PublishedSlab {
    let mut slab = allocate(arena, segments).unwrap().publish().unwrap();
    slab.belong_to(&name("library"), object, &Default::default());
    slab
}

fn load_small(arena: &Arc<Arena>, object: &str) -> PublishedSlab {
    load(arena, &name(object), &small_object())
}

fn known(arena: &Arena, address: usize) -> Occupant {
    arena.occupant(address).unwrap_or_else(|| panic!("nothing is known of {address:#x}"))
}

#[test]
fn what_is_removed_rests() {
    let arena = resting_arena(16 * MIB, MIB);
    let slab = load_small(&arena, "first.o");
    let span = slab.span();
    for address in [span.start, span.start + 1, span.end - 1] {
        let known = known(&arena, address);
        assert_eq!((&*known.library, &*known.object, known.start), ("library", "first.o", span.start));
        assert_eq!((known.generation, known.removed), (1, None));
    }
    let before = std::time::SystemTime::now();
    drop(slab);
    assert_eq!((access(&span), rss(&span)), ("---p".to_owned(), 0));
    assert_eq!(arena.stats().quarantined_bytes, span.len());
    let removed = known(&arena, span.start).removed.unwrap();
    assert!(removed >= before && removed <= std::time::SystemTime::now(), "{removed:?}");

    // Other objects get other addresses until a MiB was removed after it.
    let mut removed = 0;
    while removed + span.len() <= MIB {
        let other = load_small(&arena, "other.o");
        assert!(other.span().start >= span.end || other.span().end <= span.start, "{:x?}", other.span());
        if removed + span.len() < MIB {
            assert_eq!(known(&arena, span.start).object, "first.o");
        }
        removed += other.span().len();
    }
    assert!(arena.occupant(span.start).is_none());
    assert!(arena.stats().quarantined_bytes <= MIB);
}

/// Addresses are woken in the order of removal, each once, and their number is bounded.
#[test]
fn who_rests_longest_is_forgotten_first() {
    let arena = resting_arena(16 * MIB, 40 * arena(8 * MIB).page());
    let mut removed = VecDeque::new();
    for i in 0..200 {
        let object = format!("{i}.o");
        let slab = load_small(&arena, &object);
        removed.push_back((slab.span(), object));
        drop(slab);
        let resting = arena.stats().quarantined_bytes;
        let is_known =
            |span: &Range<usize>, object: &str| arena.occupant(span.start).is_some_and(|o| o.object == *object);
        while removed.iter().map(|(span, _)| span.len()).sum::<usize>() > resting {
            let (span, object) = removed.pop_front().unwrap();
            assert!(!is_known(&span, &object), "{object}");
        }
        assert!(removed.iter().all(|(span, object)| is_known(span, object)), "after {i}: {removed:x?}");
    }
    assert!(removed.len() > 5);
}

#[test]
fn without_a_quarantine_nothing_is_known() {
    let arena = resting_arena(16 * MIB, 0);
    let slab = load_small(&arena, "gone.o");
    let span = slab.span();
    assert_eq!(known(&arena, span.start).object, "gone.o");
    drop(slab);
    assert!(arena.occupant(span.start).is_none());
    assert_pristine(&arena);
}

/// A slab larger than the limit rests until the next removal.
#[test]
fn the_last_that_was_removed_always_rests() {
    let arena = resting_arena(16 * MIB, 1);
    let slab = load(&arena, &name("large.o"), &[segment(Protection::ReadExecute, 4 << 20)]);
    let span = slab.span();
    drop(slab);
    assert_eq!(known(&arena, span.start).object, "large.o");
    drop(load_small(&arena, "next.o"));
    assert!(arena.occupant(span.start).is_none());
}

#[test]
fn a_full_arena_wakes_what_rests() {
    let arena = resting_arena(8 * MIB, 8 * MIB);
    let half = [segment(Protection::ReadExecute, 3 << 20)];
    let slabs = [load(&arena, &name("a.o"), &half), load(&arena, &name("b.o"), &half)];
    let [first, second] = slabs.each_ref().map(PublishedSlab::span);
    slabs.into_iter().for_each(drop);
    assert_eq!(arena.stats().quarantined_bytes, first.len() + second.len());
    // Wakes only as much as needed, the oldest first.
    let third = load(&arena, &name("c.o"), &half);
    assert_eq!(third.span(), first);
    assert_eq!(known(&arena, first.start).object, "c.o");
    assert_eq!(known(&arena, second.start).object, "b.o");
    drop(third);
    let whole = allocate(&arena, &[segment(Protection::Read, 8 << 20)]).unwrap();
    assert_eq!(arena.stats().quarantined_bytes, 0);
    drop(whole);
    assert_pristine(&arena);
}

#[test]
fn segments_outside_rest_too() {
    let arena = resting_arena(16 * MIB, 2 * MIB);
    let outside = SegmentRequest { outside: true, ..segment(Protection::Read, 1 << 20) };
    let slab = load(&arena, &name("weights.o"), &[segment(Protection::ReadExecute, 10), outside]);
    let ranges = slab.ranges();
    let place = ranges.iter().find(|r| r.outside).unwrap().addresses.clone();
    let middle = place.start + place.len() / 2;
    assert_eq!((known(&arena, middle).start, known(&arena, middle).removed), (place.start, None));
    drop(slab);
    assert_eq!((access(&place), rss(&place)), ("---p".to_owned(), 0));
    assert!(known(&arena, middle).removed.is_some());
    assert_eq!(arena.stats().outside_bytes, 0);
    // It is unmapped when it is woken.
    let large = load(&arena, &name("large.o"), &[segment(Protection::Read, 2 << 20)]);
    let ((), calls) = fault::with(|_, _| false, || drop(large));
    assert!(calls.contains(&Call::Unmap), "{calls:?}");
    assert!(arena.occupant(middle).is_none());
}

/// Addresses that cannot be cleaned are never reused, and stay known.
#[test]
fn what_cannot_be_cleaned_stays_known() {
    let arena = resting_arena(16 * MIB, MIB);
    let slab = load_small(&arena, "stuck.o");
    let span = slab.span();
    let refused = |i, call| i < 3 && matches!(call, Call::Replace | Call::Discard);
    fault::with(refused, || drop(slab));
    assert_eq!(arena.stats().lost_bytes, span.len());
    assert_eq!(arena.stats().quarantined_bytes, 0);
    assert!(known(&arena, span.start).removed.is_some());
}

/// Readers see one object's name and generation, or nothing, while others come and go. Each object's name is its
/// generation.
#[test]
fn what_is_read_belongs_together() {
    let arena = resting_arena(16 * MIB, 16 * arena(8 * MIB).page());
    let (done, seen) = (AtomicBool::new(false), AtomicU64::new(0));
    let addresses = arena.range().step_by(arena.page()).take(64).collect::<Vec<_>>();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for known in addresses.iter().filter_map(|address| arena.occupant(*address)) {
                        let long = "long".repeat(known.generation as usize % 30);
                        let expected = format!("{long}{}", known.generation);
                        assert!(expected.ends_with(known.object.trim_start_matches('…')), "{known:?}");
                        seen.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let mut live = VecDeque::new();
        for generation in 1_u64.. {
            // A busy machine may let the readers wait.
            if generation > 3000 && seen.load(Ordering::Relaxed) > 1000 {
                break;
            }
            let object = format!("{}{generation}", "long".repeat(generation as usize % 30));
            live.push_back(load_small(&arena, &object));
            if live.len() > 4 {
                live.pop_front();
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}
