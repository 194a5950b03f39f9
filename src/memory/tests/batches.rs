//! Slabs that are published and removed together.

use super::*;
use crate::MemoryError;
use crate::error::Error;

const COUNT: usize = 4;

fn member(arena: &Arc<Arena>, number: usize, segments: &[SegmentRequest]) -> Result<WritableSlab> {
    let company = PlacementHints { shares: true, batch: true };
    arena.allocate(&(*format!("{number}.o")).into(), segments, company, |_| BlamedSection::default())
}

fn batch(arena: &Arc<Arena>, segments: &[SegmentRequest]) -> Vec<WritableSlab> {
    (0..COUNT).map(|number| member(arena, number, segments).unwrap()).collect()
}

fn belonging(slabs: impl IntoIterator<Item = PublishedSlab>) -> Vec<PublishedSlab> {
    let mut slabs: Vec<_> = slabs.into_iter().collect();
    slabs.iter_mut().for_each(|slab| slab.belong_to(&"library".into(), &"object".into(), &Default::default()));
    slabs
}

fn counted(calls: &[Call], which: Call) -> usize {
    calls.iter().filter(|call| **call == which).count()
}

/// Neighbours' code and constants are adjacent; otherwise each slab would need two calls. One call makes everything up
/// to data constants, and the code follows.
#[test]
fn neighbours_are_protected_by_one_call() {
    let object = small_object();
    for (segments, protections) in [(&object[..2], COUNT / 2 + 2), (&object[..], 2 * COUNT - 2), (&object[..1], 1)] {
        let arena = arena(8 * MIB);
        let slabs = batch(&arena, segments);
        let mut contents = Vec::new();
        for (seed, slab) in slabs.iter().enumerate() {
            for (placed, segment) in slab.placements().iter().zip(segments) {
                write(placed.address, &[seed as u8 + 1; 100]);
                contents.push((placed.address, segment.protection, seed as u8 + 1));
            }
        }
        let (published, calls) = fault::with(|_, _| false, || WritableSlab::publish_all(slabs.into()));
        let published = published.unwrap();
        assert_eq!(counted(&calls, Call::Protect), protections, "{calls:?}");
        let told = usize::from(cfg!(target_arch = "aarch64"));
        assert_eq!(counted(&calls, Call::SyncCores), told, "{calls:?}");
        for (address, protection, seed) in &contents {
            let start = address & !(arena.page() - 1);
            assert_eq!(access(&(start..start + arena.page())), expected_access(*protection));
            assert_eq!(read(*address, 100), [*seed; 100]);
        }
        for (i, slab) in published.iter().enumerate() {
            assert_eq!(slab.span().len(), segments.len() * arena.page());
            assert_eq!(slab.ranges().first().unwrap().addresses.start, slab.span().start);
            assert!(published[i + 1..].iter().all(|other| other.span().start >= slab.span().end));
        }
        let ((), calls) = fault::with(|_, _| false, || give_back(belonging(published)));
        // The second for prepared but unused pages, if there are any.
        assert!(matches!(calls[..], [Call::Replace] | [Call::Replace, Call::Replace]), "{calls:?}");
        assert_pristine(&arena);
    }
}

/// A single slab has the usual layout.
#[test]
fn what_comes_alone_is_not_turned() {
    let arena = arena(8 * MIB);
    let slabs: Vec<_> = (0..COUNT).map(|_| allocate(&arena, &small_object()[..2]).unwrap()).collect();
    for slab in &slabs {
        assert!(slab.placements()[0].address < slab.placements()[1].address);
    }
    let turned: Vec<bool> = batch(&arena, &small_object()[..2])
        .iter()
        .map(|slab| slab.placements()[0].address > slab.placements()[1].address)
        .collect();
    assert_eq!(turned, [false, true, false, true]);
    let last =
        member(&arena, 0, &[small_object()[1], SegmentRequest { lifetime: Lifetime::Finalize, ..small_object()[0] }]);
    assert!(last.unwrap().placements().is_sorted_by_key(|placed| placed.address), "what goes soon is last");
    drop(slabs);
    assert_pristine(&arena);
}

#[test]
fn all_are_published_or_none() {
    let arena = arena(8 * MIB);
    let mut refused = 0;
    for failing in 0.. {
        let slabs = batch(&arena, &small_object());
        let (result, calls) = fault::with(move |index, _| index == failing, || WritableSlab::publish_all(slabs.into()));
        match result.map_err(|(error, _)| error) {
            Ok(published) => {
                assert!(calls.len() <= failing || calls[failing] == Call::SyncCores, "{calls:?}");
                drop(published);
            }
            Err(Error::Memory(MemoryError::System { call: "mprotect", object, .. })) => {
                refused += 1;
                assert!(object.ends_with(".o"), "{object}");
            }
            Err(other) => panic!("{other}"),
        }
        assert_pristine(&arena);
        if calls.len() <= failing {
            break;
        }
    }
    assert_eq!(refused, 2 * COUNT - 2);
}

/// Ranges that cannot be taken away together are tried one by one, and lost only if that fails too.
#[test]
fn pages_that_do_not_go_together_go_one_by_one() {
    let arena = arena(8 * MIB);
    let load = || belonging(WritableSlab::publish_all(batch(&arena, &small_object()).into()).unwrap());
    let published = load();
    // Fails all ways to take the first range away.
    let ((), calls) = fault::with(|index, _| index < 3, || give_back(published));
    assert_eq!(calls[..4], [Call::Replace, Call::Deny, Call::Discard, Call::Replace], "{calls:?}");
    assert!(counted(&calls, Call::Replace) > COUNT, "{calls:?}");
    assert_pristine(&arena);
    // The prepared pages stay.
    let _other = allocate(&arena, &small_object()).unwrap();
    let published = load();
    let lost: usize = published.iter().map(|slab| slab.span().len()).sum();
    fault::with(|_, call| call != Call::Unmap, || give_back(published));
    assert_eq!(arena.stats().lost_bytes, lost);
}

/// Some slabs were given up, are large, or lie elsewhere: only neighbours are removed together.
#[test]
fn only_neighbours_go_together() {
    let arena = arena(8 * MIB);
    let large = [segment(Protection::ReadWrite, 40 * arena.page() as u64)];
    let mut slabs = batch(&arena, &small_object());
    slabs.push(member(&arena, 10, &large).unwrap());
    slabs.push(member(&arena, 11, &[SegmentRequest { outside: true, ..small_object()[0] }]).unwrap());
    slabs.extend(batch(&arena, &small_object()));
    let mut published = belonging(WritableSlab::publish_all(slabs.into()).unwrap());
    // A hole.
    let alive = published.remove(1);
    let address = alive.span().start;
    let ((), calls) = fault::with(|_, _| false, || give_back(published));
    assert!(counted(&calls, Call::Replace) < 6, "{calls:?}");
    assert_eq!(access(&(address..address + arena.page())), expected_access(alive.ranges()[0].protection));
    drop(alive);
    assert_pristine(&arena);
}

/// Each slab's addresses rest separately.
#[test]
fn what_goes_together_rests_and_is_known() {
    let arena = resting_arena(8 * MIB, MIB);
    let mut published = WritableSlab::publish_all(batch(&arena, &small_object()).into()).unwrap();
    for (number, slab) in published.iter_mut().enumerate() {
        slab.belong_to(&"library".into(), &format!("{number}.o").as_str().into(), &Default::default());
    }
    let spans: Vec<_> = published.iter().map(PublishedSlab::span).collect();
    give_back(published.into_vec());
    for (number, span) in spans.iter().enumerate() {
        let known = arena.occupant(span.start + 1).unwrap();
        assert_eq!((&*known.object, known.start), (&*format!("{number}.o"), span.start));
        assert!(known.removed.is_some());
    }
    assert_eq!(arena.stats().quarantined_bytes, spans.iter().map(ExactSizeIterator::len).sum::<usize>());
    assert_eq!(arena.stats().slab_bytes, 0);
}
