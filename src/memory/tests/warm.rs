//! Pages of removed slabs that keep their memory for others.

use super::*;
use crate::MemoryError;
use crate::error::Error;

fn warm_arena(warm: usize) -> Arc<Arena> {
    Arena::reserve(&ArenaConfig { size: 32 * MIB, place: None, warm, quarantine: 16 * MIB, packed: None }).unwrap()
}

/// Code, constants and data of so many KiB each: multiples of 16, as qemu-user's pages have parts that nobody writes.
fn large(kib: u64) -> [SegmentRequest; 3] {
    [Protection::ReadExecute, Protection::Read, Protection::ReadWrite].map(|p| segment(p, kib << 10))
}

fn load(arena: &Arc<Arena>, kib: u64) -> Result<PublishedSlab> {
    let slab = allocate(arena, &large(kib))?;
    for placed in slab.placements() {
        assert!(read(placed.address, placed.size).iter().all(|byte| *byte == 0));
        write(placed.address, &vec![0xa5; placed.size]);
    }
    let mut slab = slab.publish()?;
    slab.belong_to(&"library".into(), &"large.o".into(), &Default::default());
    Ok(slab)
}

/// Loads, removes, and returns where it was.
fn life(arena: &Arc<Arena>, kib: u64) -> Range<usize> {
    load(arena, kib).unwrap().span()
}

#[test]
fn another_slab_gets_the_memory() {
    let arena = warm_arena(MIB);
    let first = life(&arena, 64);
    assert_eq!((access(&first), rss(&first), arena.stats().warm_bytes), ("---p".to_owned(), first.len(), first.len()));
    assert_eq!(arena.stats().quarantined_bytes, first.len());
    let (second, calls) = fault::with(|_, _| false, || load(&arena, 64).unwrap());
    assert!(calls.contains(&Call::MoveMemory) && !calls.contains(&Call::Populate), "{calls:?}");
    assert_ne!(second.span(), first);
    // The addresses of the first rest, without memory.
    assert_eq!((access(&first), rss(&first), arena.stats().warm_bytes), ("---p".to_owned(), 0, 0));
    assert!(arena.occupant(first.start).is_some_and(|occupant| occupant.removed.is_some()));
    for range in second.ranges() {
        assert_eq!(access(&range.addresses), expected_access(range.protection));
    }
    assert!(second.ranges().iter().all(|range| rss(&range.addresses) == range.addresses.len()));
}

/// Only what its writer does not overwrite is cleared.
#[test]
fn what_is_overwritten_is_not_cleared() {
    let arena = warm_arena(MIB);
    life(&arena, 64);
    let mut object = large(64);
    object[0].overwritten = Extent { start: 4000, bytes: 30_000 };
    // Of several parts the largest one counts.
    object[2].overwritten = Extent { start: 0, bytes: 29_999 };
    let slab = allocate(&arena, &object).unwrap();
    let bytes = |i: usize| read(slab.placements()[i].address, slab.placements()[i].size);
    let mut expected = vec![0; 64 << 10];
    assert_eq!((bytes(1), bytes(2)), (expected.clone(), expected.clone()));
    expected[4000..34_000].fill(0xa5);
    assert_eq!(bytes(0), expected);
    drop(slab);
    // More than there is counts as all of it.
    life(&arena, 64);
    object[0].overwritten = Extent { start: 60_000, bytes: u64::MAX };
    object[2].overwritten = Extent::default();
    let slab = allocate(&arena, &object).unwrap();
    expected.fill(0);
    expected[60_000..].fill(0xa5);
    assert_eq!(read(slab.placements()[0].address, expected.len()), expected);
    assert!(read(slab.placements()[1].address, 2 << 16).iter().all(|byte| *byte == 0));
}

/// A smaller slab gets a part; a larger one gets nothing.
#[test]
fn a_part_is_enough() {
    let arena = warm_arena(MIB);
    let first = life(&arena, 96);
    let larger = load(&arena, 112).unwrap();
    assert_eq!(arena.stats().warm_bytes, first.len());
    let smaller = load(&arena, 48).unwrap();
    assert_eq!(arena.stats().warm_bytes, first.len() - smaller.span().len());
    assert_eq!(rss(&first), first.len() - smaller.span().len());
    assert_eq!(access(&first), "---p");
    drop((larger, smaller));
}

#[test]
fn the_oldest_go_first_and_not_more_than_agreed_stay() {
    let arena = warm_arena(MIB);
    let gone: Vec<_> = [load(&arena, 128), load(&arena, 64), load(&arena, 256)].map(|slab| slab.unwrap()).into();
    let spans: Vec<_> = gone.iter().map(PublishedSlab::span).collect();
    gone.into_iter().for_each(drop);
    assert_eq!(spans.iter().map(rss).collect::<Vec<_>>(), [0, spans[1].len(), spans[2].len()]);
    assert_eq!(arena.stats().warm_bytes, spans[1].len() + spans[2].len());
    // Larger than all that may stay.
    let larger = life(&arena, 512);
    assert_eq!((rss(&larger), arena.stats().warm_bytes), (0, spans[1].len() + spans[2].len()));
    let none = warm_arena(0);
    let span = life(&none, 64);
    assert_eq!((access(&span), rss(&span), none.stats().warm_bytes), ("---p".to_owned(), 0, 0));
}

/// What is woken is new memory.
#[test]
fn addresses_that_have_rested_have_no_memory() {
    let config = ArenaConfig { size: 8 * MIB, place: None, warm: 4 * MIB, quarantine: MIB, packed: None };
    let arena = Arena::reserve(&config).unwrap();
    let first = life(&arena, 208);
    let other = load(&arena, 256).unwrap();
    assert_eq!(rss(&first), first.len());
    // It alone is over the limit of what may rest.
    drop(other);
    drop(load(&arena, 304).unwrap());
    assert_eq!(rss(&first), 0);
    let whole = allocate(&arena, &[segment(Protection::Read, 8 << 20)]).unwrap();
    assert_eq!((arena.stats().warm_bytes, arena.stats().quarantined_bytes), (0, 0));
    drop(whole);
    assert_pristine(&arena);
}

/// Neighbours that are removed together.
#[test]
fn a_batch_keeps_the_memory_for_which_there_is_room() {
    for (warm, kept) in [(4 * MIB, 4), (MIB / 2, 2), (MIB / 16, 0)] {
        let arena = warm_arena(warm);
        let slabs: Vec<_> = (0..4).map(|_| load(&arena, 64).unwrap()).collect();
        let spans: Vec<_> = slabs.iter().map(PublishedSlab::span).collect();
        let ((), calls) = fault::with(|_, _| false, || give_back(slabs));
        assert_eq!(calls.iter().filter(|call| **call == Call::Deny).count(), usize::from(kept != 0), "{calls:?}");
        for (i, span) in spans.iter().enumerate() {
            assert_eq!((access(span), rss(span)), ("---p".to_owned(), if i < kept { span.len() } else { 0 }));
        }
        let kept: usize = spans.iter().take(kept).map(Range::len).sum();
        assert_eq!(arena.stats().warm_bytes, kept);
    }
}

/// Their addresses rest one by one, and the last may be the first to be woken.
#[test]
fn neighbours_lose_their_memory_together() {
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
        let config = ArenaConfig { size: 32 * MIB, place: None, warm: 4 * MIB, quarantine: MIB, packed: None };
        let arena = Arena::reserve(&config).unwrap();
        let slabs: Vec<_> = (0..4).map(|_| load(&arena, 64).unwrap()).collect();
        let spans: Vec<_> = slabs.iter().map(PublishedSlab::span).collect();
        let mut slabs: Vec<_> = slabs.into_iter().map(Some).collect();
        give_back(order.iter().map(|i| slabs[*i].take().unwrap()).collect::<Vec<_>>());
        assert!(spans.iter().all(|span| rss(span) == span.len()));
        // Another one gets the memory of the first and of a part of the second. The first to be woken takes the rest of
        // the memory along, if it has some.
        let other = life(&arena, 112);
        let woken: Vec<usize> = (0..4).filter(|i| arena.occupant(spans[*i].start).is_none()).collect();
        assert_eq!(woken, [order[0]]);
        let rest = if order[0] == 0 { 4 * spans[0].len() - other.len() } else { 0 };
        assert_eq!(spans.iter().map(rss).sum::<usize>(), rest, "{order:?}");
        assert_eq!((rss(&spans[order[0]]), arena.stats().warm_bytes), (0, rest + other.len()));
    }
}

/// Small slabs get it, too: prepared pages are made of it.
#[test]
fn small_slabs_get_the_memory() {
    let arena = warm_arena(4 * MIB);
    drop(load(&arena, 256).unwrap());
    let kept = arena.stats().warm_bytes;
    let (small, calls) = fault::with(|_, _| false, || allocate(&arena, &small_object()).unwrap());
    assert!(calls.contains(&Call::MoveMemory) && !calls.contains(&Call::Populate), "{calls:?}");
    assert!(arena.stats().warm_bytes < kept);
    for placed in small.placements() {
        assert!(read(placed.address, placed.size).iter().all(|byte| *byte == 0));
    }
    // A refusal costs the pages, and nothing else.
    let arena = warm_arena(4 * MIB);
    drop(load(&arena, 256).unwrap());
    let kept = arena.stats().warm_bytes;
    let (_small, _) = fault::with(|_, call| call == Call::MoveMemory, || allocate(&arena, &small_object()).unwrap());
    assert!(arena.stats().warm_bytes < kept);
}

#[test]
fn any_one_call_may_fail() {
    let arena = warm_arena(MIB);
    let mut refused = Vec::new();
    for failing in 0.. {
        // Of another size each time, so that the next gets a part of it.
        let (result, calls) = fault::with(
            move |index, _| index == failing,
            || {
                load(&arena, 112).map(drop)?;
                load(&arena, 64).map(|slab| slab.span())
            },
        );
        let Some(&failed) = calls.get(failing) else {
            result.unwrap();
            break;
        };
        match result {
            Ok(_) => {}
            Err(Error::Memory(MemoryError::System { .. })) => refused.push(failed),
            Err(other) => panic!("{other}"),
        }
        let stats = arena.stats();
        assert_eq!((stats.slabs, stats.slab_bytes, stats.lost_bytes), (0, 0, 0), "{failed:?}");
        // qemu-user takes pages whose memory was moved for unmapped if replacing them is refused.
        if !under_qemu() {
            assert_eq!(access(&arena.range()), "---p");
        }
        assert_eq!(rss(&arena.range()), stats.warm_bytes, "{failed:?}");
    }
    assert!(!refused.is_empty() && refused.iter().all(|call| *call == Call::Protect), "{refused:?}");
}

/// As with a kernel that cannot move memory.
#[test]
fn memory_that_cannot_be_moved_is_given_back() {
    let arena = warm_arena(MIB);
    let first = life(&arena, 64);
    let refuse = |_, call| (call == Call::MoveMemory).then_some(libc::EINVAL);
    let (second, _) = fault::with_errors(refuse, || load(&arena, 64).unwrap());
    assert_eq!((rss(&first), arena.stats().warm_bytes), (0, 0));
    assert!(second.ranges().iter().all(|range| rss(&range.addresses) == range.addresses.len()));
}
