//! The states of a slab.

use std::collections::HashSet;

use super::super::slab::Placed;
use proptest::prelude::*;

use super::*;

pub(super) fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(31) ^ seed.wrapping_mul(97)) as u8 | 1).collect()
}

pub(super) fn request() -> impl Strategy<Value = SegmentRequest> {
    let protection = prop_oneof![Just(Protection::ReadExecute), Just(Protection::Read), Just(Protection::ReadWrite)];
    let bytes = || prop_oneof![Just(0), 1..200_u64, 1..50_000_u64];
    (protection, bytes(), bytes(), 0..22_u32, prop::bool::weighted(0.25), prop::bool::weighted(0.15)).prop_map(
        |(protection, content_bytes, zero_fill_bytes, shift, finalize, outside)| SegmentRequest {
            protection,
            lifetime: if finalize { Lifetime::Finalize } else { Lifetime::Standard },
            alignment: if shift > 18 { 1 << shift } else { 1 << (shift % 8) },
            content_bytes,
            zero_fill_bytes,
            outside,
            overwritten: Extent::default(),
        },
    )
}

/// Checks that segments are in place, do not overlap, and read as they were written.
pub(super) fn check_contents(
    placed: &[Placed],
    requests: &[SegmentRequest],
    seed: usize,
    alive: impl Fn(&SegmentRequest) -> bool,
) {
    for (i, (p, r)) in placed.iter().zip(requests).enumerate().filter(|(_, (_, r))| alive(r)) {
        let (content, zero) = (r.content_bytes as usize, r.zero_fill_bytes as usize);
        assert_eq!(read(p.address, content), pattern(seed + i, content), "segment {i}");
        assert!(read(p.address + content, zero).iter().all(|&b| b == 0), "segment {i}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(48)))]

    #[test]
    fn hold_what_was_written(objects in prop::collection::vec(prop::collection::vec(request(), 0..7), 1..6)) {
        let arena = arena(64 * MIB);
        let page = arena.page();
        let mut live = Vec::new();
        for (seed, requests) in objects.iter().enumerate() {
            let slab = allocate(&arena, requests).unwrap();
            let placed = slab.placements().to_vec();
            prop_assert_eq!(placed.len(), requests.len());
            for (i, (p, r)) in placed.iter().zip(requests).enumerate() {
                prop_assert_eq!(p.size as u64, r.content_bytes + r.zero_fill_bytes);
                prop_assert_eq!(p.address as u64 % r.alignment, 0);
                prop_assert_eq!((p.address % page + p.size).div_ceil(page), p.size.div_ceil(page), "too many pages");
                prop_assert_eq!(arena.range().contains(&p.address), !r.outside || p.size == 0);
                if p.size > 0 {
                    prop_assert_eq!(access(&(p.address..p.address + p.size)), "rw-p");
                }
                write(p.address, &pattern(seed + i, r.content_bytes as usize));
            }
            let slab = slab.publish().unwrap();
            live.push((seed, requests, placed, slab));
        }

        let everything: usize = live.iter().map(|(.., slab)| slab.span().len()).sum();
        prop_assert_eq!(arena.stats().slab_bytes, everything);
        prop_assert_eq!(arena.stats().slabs, live.len());
        let mut pages: Vec<Range<usize>> = Vec::new();
        for (seed, requests, placed, slab) in &live {
            check_contents(placed, requests, *seed, |_| true);
            let mut at = slab.span().start;
            let mut order = Vec::new();
            for range in slab.ranges() {
                prop_assert_eq!(access(&range.addresses), expected_access(range.protection));
                if !range.outside {
                    prop_assert_eq!(at, range.addresses.start, "a gap");
                    at = range.addresses.end;
                    order.push(range.protection);
                }
                pages.push(range.addresses);
            }
            prop_assert_eq!(at, slab.span().end);
            // At most one run for each protection and lifetime.
            prop_assert!(order.len() <= 6, "{:?}", order);
            for (p, r) in placed.iter().zip(*requests).filter(|(p, _)| p.size > 0) {
                let holds = |range: &SlabRange| {
                    range.addresses.contains(&p.address)
                        && range.protection == r.protection
                        && range.outside == r.outside
                        && p.address + p.size <= range.addresses.end
                };
                prop_assert_eq!(slab.ranges().iter().filter(|range| holds(range)).count(), 1);
            }
        }
        pages.sort_by_key(|r| r.start);
        prop_assert!(pages.windows(2).all(|w| w[0].end <= w[1].start), "overlap: {:x?}", pages);

        for (seed, requests, placed, slab) in &mut live {
            let before = slab.span();
            slab.release_finalize_segments();
            let order: Vec<_> = slab.ranges().iter().filter(|r| !r.outside).map(|r| r.protection).collect();
            prop_assert!(order.is_sorted() && order.len() <= 3, "{:?}", order);
            check_contents(placed, requests, *seed, |r| r.lifetime == Lifetime::Standard);
            let gone = slab.span().end..before.end;
            if !gone.is_empty() {
                prop_assert_eq!(access(&gone), "---p");
                prop_assert_eq!(rss(&gone), 0);
            }
            let standard = |r: &&SegmentRequest| r.lifetime == Lifetime::Standard;
            let near = requests.iter().filter(standard).any(|r| !r.outside && r.content_bytes + r.zero_fill_bytes > 0);
            prop_assert_eq!(!slab.span().is_empty(), near);
            slab.release_finalize_segments();
        }
        let everything: usize = live.iter().map(|(.., slab)| slab.span().len()).sum();
        prop_assert_eq!(arena.stats().slab_bytes, everything);
        while !live.is_empty() {
            live.swap_remove(live.len() / 2);
            for (seed, requests, placed, _) in &live {
                check_contents(placed, requests, *seed, |r| r.lifetime == Lifetime::Standard);
            }
        }
        assert_pristine(&arena);
    }
}

#[test]
fn code_runs_once_published() {
    #[cfg(target_arch = "x86_64")]
    let (three, forty_two) = (&[0xb8, 3, 0, 0, 0, 0xc3], &[0xb8, 42, 0, 0, 0, 0xc3]); // mov eax, n; ret
    #[cfg(target_arch = "aarch64")] // mov w0, n; ret
    let (three, forty_two) =
        (&[0x60, 0x00, 0x80, 0x52, 0xc0, 0x03, 0x5f, 0xd6], &[0x40, 0x05, 0x80, 0x52, 0xc0, 0x03, 0x5f, 0xd6]);
    let arena = arena(8 * MIB);
    for outside in [false, true] {
        // The second function lies at the address of the first.
        for (code, result) in [(three, 3), (forty_two, 42)] {
            let slab = allocate(&arena, &[SegmentRequest { outside, ..segment(Protection::ReadExecute, 16) }]).unwrap();
            let address = slab.placements()[0].address;
            write(address, code);
            let slab = slab.publish().unwrap();
            // SAFETY: a function of that type was written there, and the slab lives.
            let function: extern "C" fn() -> i32 =
                unsafe { std::mem::transmute(std::ptr::with_exposed_provenance::<()>(address)) };
            assert_eq!(function(), result);
            drop(slab);
        }
    }
    assert_pristine(&arena);
}

/// A cache chooses a line's set by its place in a page.
#[test]
fn small_segments_are_at_many_places_of_their_pages() {
    let arena = arena(8 * MIB);
    let slabs: Vec<_> = (0..64).map(|_| allocate(&arena, &small_object()).unwrap()).collect();
    for segment in 0..3 {
        let places: HashSet<_> = slabs.iter().map(|slab| slab.placements()[segment].address % arena.page()).collect();
        assert!(places.len() > 24, "{places:x?}");
    }
    drop(slabs);
    let whole = allocate(&arena, &[segment(Protection::ReadExecute, arena.page() as u64)]).unwrap();
    assert_eq!(whole.placements()[0].address % arena.page(), 0);
    drop(whole);
    assert_pristine(&arena);
}

/// AArch64 only; x86-64 does not need it. Code is loaded even if the kernel has no such call.
#[test]
fn cores_are_told_once_for_each_object_with_code() {
    let arena = arena(8 * MIB);
    let code =
        [segment(Protection::ReadExecute, 16), segment(Protection::ReadExecute, 16), segment(Protection::Read, 16)];
    let zero = SegmentRequest { zero_fill_bytes: 64, ..segment(Protection::ReadExecute, 0) };
    let cases = [(&code[..], 1), (&code[2..], 0), (&[zero], 0), (&[SegmentRequest { outside: true, ..code[0] }], 1)];
    for errno in [None, Some(libc::ENOSYS), Some(libc::EINVAL), Some(libc::EPERM)] {
        for (segments, expected) in cases {
            let (slab, calls) = fault::with_errors(
                move |_, call| errno.filter(|_| call == Call::SyncCores),
                || allocate(&arena, segments).unwrap().publish(),
            );
            drop(slab.unwrap());
            let told: Vec<usize> = (0..calls.len()).filter(|&i| calls[i] == Call::SyncCores).collect();
            assert_eq!(told.len(), if cfg!(target_arch = "aarch64") { expected } else { 0 }, "{calls:?}");
            // The synchronisation comes last, when the code can be run.
            assert!(told.iter().all(|&i| i == calls.len() - 1), "{calls:?}");
        }
    }
    assert_pristine(&arena);
}

#[test]
fn as_few_system_calls_as_can_be() {
    let arena = arena(8 * MIB);
    let small = || fault::with(|_, _| false, || allocate(&arena, &small_object()).unwrap().publish().unwrap());
    let (first, calls) = small();
    let publish: &[Call] = if cfg!(target_arch = "aarch64") {
        &[Call::Protect, Call::Protect, Call::SyncCores]
    } else {
        &[Call::Protect, Call::Protect]
    };
    assert_eq!(calls, [&[Call::Protect, Call::Populate], publish].concat(), "pages are made ready");
    let (second, calls) = small();
    assert_eq!(calls, publish, "and used");
    let ((), calls) = fault::with(|_, _| false, || drop(first));
    assert_eq!(calls, [Call::Replace]);
    let ((), calls) = fault::with(|_, _| false, || drop(second));
    assert_eq!(calls, [Call::Replace, Call::Replace], "with the last slab, what is ready goes");
    assert_pristine(&arena);

    // Larger ones have pages of their own.
    let large = [segment(Protection::Read, 5 * arena.page() as u64)];
    let ((), calls) = fault::with(|_, _| false, || drop(allocate(&arena, &large).unwrap().publish().unwrap()));
    assert_eq!(calls, [Call::Protect, Call::Populate, Call::Protect, Call::Replace]);

    let nothing = SegmentRequest { alignment: 64, ..segment(Protection::Read, 0) };
    for empty in [&[][..], &[nothing, SegmentRequest { outside: true, ..nothing }]] {
        let ((), calls) = fault::with(
            |_, _| false,
            || {
                let slab = allocate(&arena, empty).unwrap();
                assert!(slab.placements().iter().all(|p| arena.range().contains(&p.address) && p.size == 0));
                assert_eq!((arena.stats().slabs, arena.stats().slab_bytes), (1, 0));
                let mut slab = slab.publish().unwrap();
                slab.release_finalize_segments();
                assert!(slab.span().is_empty() && slab.ranges().is_empty());
            },
        );
        assert_eq!(calls, []);
    }
    assert_pristine(&arena);
}

#[test]
fn zero_fill_is_not_touched() {
    for outside in [false, true] {
        let arena = arena(ArenaConfig::MAX);
        advise_huge_pages(&arena);
        let mut object = small_object();
        object[2] = SegmentRequest { zero_fill_bytes: 512 << 20, outside, ..object[2] };
        let slab = allocate(&arena, &object).unwrap();
        for p in slab.placements() {
            write(p.address, &[1; 100]);
        }
        let data = slab.placements()[2];
        let slab = slab.publish().unwrap();
        let resident: usize = slab.ranges().iter().map(|r| rss(&r.addresses)).sum();
        assert!((3 * resident_page()..MIB).contains(&resident), "{resident}");
        assert_eq!(read(data.address + data.size - 8, 8), [0; 8]);
        drop(slab);
        assert_pristine(&arena);
    }
}

/// Turns huge pages on, as on systems with them on by default; does nothing if there are none.
fn advise_huge_pages(arena: &Arena) {
    let range = arena.range();
    let at = std::ptr::with_exposed_provenance_mut(range.start);
    // SAFETY: advice about memory of ours.
    unsafe { libc::madvise(at, range.len(), libc::MADV_HUGEPAGE) };
}

#[test]
fn a_large_object_returns_its_memory() {
    let arena = arena(64 * MIB);
    let slab = allocate(&arena, &[segment(Protection::ReadWrite, 20 << 20)]).unwrap();
    write(slab.placements()[0].address, &vec![1; 20 * MIB]);
    let slab = slab.publish().unwrap();
    assert_eq!(rss(&arena.range()), 20 * MIB);
    drop(slab);
    assert_pristine(&arena);
}

#[test]
fn threads_share_an_arena() {
    let arena = arena(16 * MIB);
    std::thread::scope(|scope| {
        for thread in 0..8_usize {
            let arena = &arena;
            scope.spawn(move || {
                for round in 0..200 {
                    let mut slabs = Vec::new();
                    for i in 0..3 {
                        let object = small_object();
                        let slab = allocate(arena, &object).unwrap();
                        let placed = slab.placements().to_vec();
                        let seed = thread * 1000 + round * 5 + i;
                        placed.iter().enumerate().for_each(|(n, p)| write(p.address, &pattern(seed + n, 100)));
                        slabs.push((object, placed, seed, slab.publish().unwrap()));
                    }
                    for (object, placed, seed, slab) in slabs {
                        check_contents(&placed, &object, seed, |_| true);
                        drop(slab);
                    }
                }
            });
        }
    });
    assert_pristine(&arena);
}

#[test]
fn a_slab_keeps_its_arena() {
    let arena = arena(8 * MIB);
    let slab = allocate(&arena, &small_object()).unwrap().publish().unwrap();
    drop(arena);
    let ranges = slab.ranges();
    assert_eq!(ranges.len(), 3);
    for range in ranges {
        assert_eq!(access(&range.addresses), expected_access(range.protection));
    }
}
