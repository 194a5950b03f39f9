//! Failing system calls: nothing leaks, and memory that could not be cleaned is not reused.

use super::super::slab::Placed;
use super::*;
use crate::MemoryError;
use crate::error::Error;

/// Requests of all kinds of segments, in the arena and outside.
pub(super) fn object() -> Vec<SegmentRequest> {
    let mut object = small_object().to_vec();
    let more_than_a_page = os::page_size() as u64 + 904;
    object.push(SegmentRequest { lifetime: Lifetime::Finalize, ..segment(Protection::Read, more_than_a_page) });
    object.push(SegmentRequest { zero_fill_bytes: 4 << 20, ..segment(Protection::ReadWrite, 10) });
    object.push(SegmentRequest { outside: true, ..segment(Protection::ReadExecute, more_than_a_page) });
    object.push(SegmentRequest {
        outside: true,
        zero_fill_bytes: 4 << 20,
        ..segment(Protection::Read, more_than_a_page)
    });
    object.push(SegmentRequest {
        outside: true,
        lifetime: Lifetime::Finalize,
        ..segment(Protection::Read, more_than_a_page)
    });
    object
}

/// Runs a slab through its whole life.
pub(super) fn life(arena: &Arc<Arena>) -> Result<()> {
    let slab = allocate(arena, &object())?;
    slab.placements().iter().for_each(|p| write(p.written, b"contents"));
    let mut slab = slab.publish()?;
    slab.release_finalize_segments();
    Ok(())
}

#[test]
fn any_one_call_may_fail() {
    let arena = arena(16 * MIB);
    let mut refused = 0;
    for failing in 0.. {
        let (result, calls) = fault::with(move |index, _| index == failing, || life(&arena));
        let Some(&failed) = calls.get(failing) else {
            result.unwrap();
            break;
        };
        let page = arena.page();
        match result {
            Ok(()) => assert!(!matches!(failed, Call::Protect | Call::MapWritable), "{failed:?} was ignored"),
            Err(Error::Memory(MemoryError::System { call, object, source })) => {
                refused += 1;
                assert_eq!(call, if failed == Call::MapWritable { "mmap" } else { "mprotect" });
                assert_eq!((object.as_str(), source.raw_os_error()), ("test.o", Some(libc::ENOMEM)));
            }
            Err(other) => panic!("{other}"),
        }
        let made = calls.iter().enumerate().filter(|(i, c)| **c == Call::MapWritable && *i != failing).count();
        assert_eq!(made, calls.iter().filter(|c| **c == Call::Unmap).count(), "{calls:?}");
        if failed == Call::Unmap {
            // Its addresses outside the arena are lost; the test needs a fresh count.
            assert!(arena.stats().lost_bytes >= 2 * page);
            arena.forget_lost();
        }
        assert_pristine(&arena);
    }
    // Protect: the slab, its runs, those outside; and the mappings outside.
    assert_eq!(refused, 1 + 3 + 3 + 3);
}

#[test]
fn whatever_fails_from_some_call_on() {
    for first in 0.. {
        let arena = arena(16 * MIB);
        let (result, calls) = fault::with(move |index, _| index >= first, || life(&arena));
        if calls.len() <= first {
            result.unwrap();
            break;
        }
        let stats = arena.stats();
        assert_eq!((stats.slabs, stats.slab_bytes, stats.outside_bytes), (0, 0, 0));
        assert!(stats.lost_bytes > 0);
        // The remaining free addresses do not overlap the lost ones: they are clean.
        let mut rest = Vec::new();
        while let Ok(slab) = allocate(&arena, &[segment(Protection::ReadWrite, arena.largest_free().max(1) as u64)]) {
            let Placed { address, size, .. } = slab.placements()[0];
            // qemu-user treats MADV_POPULATE_WRITE as advice and ignores it.
            assert_eq!(rss(&(address..address + size)), if under_qemu() { 0 } else { size });
            assert!(read(address, size).iter().all(|byte| *byte == 0));
            rest.push(slab);
        }
        assert!(!rest.is_empty());
    }
}

#[test]
fn where_replacing_fails_two_calls_do_the_same() {
    let arena = arena(8 * MIB);
    let (result, calls) = fault::with(|_, call| call == Call::Replace, || life(&arena));
    result.unwrap();
    assert!(calls.windows(3).any(|c| c == [Call::Replace, Call::Deny, Call::Discard]), "{calls:?}");
    assert_pristine(&arena);
}

#[test]
fn pages_that_stay_dirty_are_never_used_again() {
    let arena = arena(8 * MIB);
    let other = allocate(&arena, &small_object()).unwrap();
    let slab = allocate(&arena, &small_object()).unwrap().publish().unwrap();
    let lost = slab.span();
    fault::with(|_, _| true, || drop(slab));
    drop(other);
    assert_eq!(arena.stats().lost_bytes, lost.len());
    assert_eq!(arena.stats().slab_bytes, 0);
    let mut slabs = Vec::new();
    while let Ok(slab) = allocate(&arena, &small_object()) {
        assert!(!lost.contains(&slab.placements()[0].address));
        slabs.push(slab);
    }
    assert_eq!(slabs.len(), arena.range().len() / lost.len() - 1);
}

#[test]
fn a_kernel_that_cannot_populate_is_asked_once() {
    let arena = arena(8 * MIB);
    let twice = |errno| {
        let life = || drop(allocate(&arena, &small_object()).unwrap());
        let (_, calls) =
            fault::with_errors(move |_, call| (call == Call::Populate).then_some(errno), || (life(), life()));
        calls.iter().filter(|c| **c == Call::Populate).count()
    };
    // The arena keeps asking after any other error.
    assert_eq!(twice(libc::ENOMEM), 2);
    assert_eq!(twice(libc::EINVAL), 1);
    assert_eq!(twice(libc::EINVAL), 0);
    assert_pristine(&arena);
}
