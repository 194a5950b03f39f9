//! The arena's place, and the fallbacks if it is taken.
//!
//! The addresses are far below those that the kernel chooses (top-down from the stack on both architectures), each test
//! has its own, and other mappings there are left alone.

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;
use crate::MemoryError;
use crate::error::Error;
use crate::memory::maps;
use crate::memory::os::Mapping;
use crate::memory::place::{blind, candidates};

/// The mappings of a process with a small stack limit, as proc(5) shows them; made up where a comment says so.
const MAPS: &[u8] = b"\
00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/dbus-daemon
00651000-00652000 r--p 00051000 08:02 173521      /usr/bin/dbus-daemon
00652000-00655000 rw-p 00052000 08:02 173521      /usr/bin/dbus-daemon
00e03000-00e24000 rw-p 00000000 00:00 0           [heap]
35b1800000-35b1820000 r-xp 00000000 08:02 135522  /usr/lib64/ld-2.15.so
35b1820000-35b1a21000 r--p 0001f000 08:02 135522  /tmp/\xff\xfe [stack]ed - 1-2
what is this
35b1a21000-35b1a21000 rw-p 00000000 00:00 0
7fffb2c0d000-7fffb2c2e000 rw-p 00000000 00:00 0   [stack]
7fffb2d48000-7fffb2d49000 r-xp 00000000 00:00 0   [vdso]
ffffffffff600000-ffffffffff601000 r-xp 00000000 00:00 0   [vsyscall]
";

#[test]
fn what_the_kernel_lists_is_taken() {
    let taken = maps::parse(MAPS, 128 * MIB);
    let expected = [
        0x40_0000..0x45_2000,
        0x65_1000..0x65_5000,
        // 64 MiB for the heap.
        0xe0_3000..0xe2_4000 + 0x400_0000,
        0x35_b180_0000..0x35_b1a2_1000,
        // 128 MiB for the stack.
        0x7fff_b2c0_d000 - 0x800_0000..0x7fff_b2c2_e000,
        0x7fff_b2d4_8000..0x7fff_b2d4_9000,
        0xffff_ffff_ff60_0000..0xffff_ffff_ff60_1000,
    ];
    assert_eq!(taken, expected);
    // The stack cannot grow into other mappings, however large its limit.
    assert_eq!(maps::parse(MAPS, usize::MAX)[3], 0x35_b180_0000..0x7fff_b2c2_e000);
}

#[test]
fn what_is_left_of_a_window_is_free() {
    let taken = [10..20, 30..40, 50..60];
    assert_eq!(maps::free(&taken, &(0..100)), [0..10, 20..30, 40..50, 60..100]);
    assert_eq!(maps::free(&taken, &(15..55)), [20..30, 40..50]);
    assert_eq!(maps::free(&taken, &(20..30)), vec![20..30; 1]);
    assert!(maps::free(&taken, &(32..38)).is_empty());
    assert!(maps::free(&[], &(5..5)).is_empty());
}

#[test]
fn this_process_is_in_its_own_list() {
    let (on_the_stack, on_the_heap) = (0_u8, Box::new(1_u8));
    let places =
        [(&raw const on_the_stack).addr(), mapped as *const () as usize, std::ptr::from_ref(&*on_the_heap).addr()];
    let taken = maps::taken().unwrap();
    assert!(taken.windows(2).all(|w| w[0].end < w[1].start), "ascending, and joined: {taken:x?}");
    for place in places {
        assert!(taken.iter().any(|r| r.contains(&place)), "{place:#x} is not in {taken:x?}");
    }
    assert!(maps::lowest_address() >= 64 << 10);
}

proptest! {
    #[test]
    fn candidates_are_free_and_the_nearest_comes_first(
        pieces in proptest::collection::vec((0..20_usize, 1..40_usize), 0..8),
        size in 1..12_usize,
        anchor in 0..400_usize,
    ) {
        let page = os::page_size();
        let (mut free, mut end) = (Vec::new(), 0);
        for (gap, len) in pieces {
            free.push((end + gap + 1) * page..(end + gap + 1 + len) * page);
            end += gap + 1 + len;
        }
        let (size, anchor) = (size * page, anchor * page);
        let found = candidates(&free, size, anchor);
        let fits = |start: usize| free.iter().any(|r| r.start <= start && start + size <= r.end);
        prop_assert!(found.iter().all(|s| fits(*s) && s % page == 0));
        // The reference tries every page.
        let distance = |start: usize| (start + size / 2).abs_diff(anchor);
        let nearest = (0..=end).map(|n| n * page).filter(|s| fits(*s)).map(distance).min();
        let first = found.first().copied().map(distance);
        prop_assert_eq!(first.is_some(), nearest.is_some());
        // Half a size need not be a multiple of the page.
        prop_assert!(first.unwrap_or(0) <= nearest.unwrap_or(0) + page, "{:?} {:?}", first, nearest);
        // There are enough candidates side by side that one unlisted mapping cannot hide a free place of twice the
        // size.
        let rooms: usize = free.iter().map(|r| r.len() / size).sum();
        prop_assert!(2 * found.len() >= rooms);
        let mut sorted = found;
        sorted.sort_unstable();
        prop_assert!(sorted.windows(2).all(|w| w[0] + size <= w[1]), "they overlap: {:x?}", sorted);
    }
}

#[test]
fn what_is_mapped_is_never_replaced() {
    let page = os::page_size();
    let mapping = Mapping::writable(4 * page).unwrap();
    let range = mapping.range();
    write(range.start + 2 * page, b"contents");
    for (start, len) in [(range.start, 4 * page), (range.start + 2 * page, page), (range.start - page, 2 * page)] {
        let error = Mapping::reserve_at(start, len).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    }
    assert_eq!(read(range.start + 2 * page, 8), b"contents");
}

/// Plays a kernel before 4.17 that cannot give an address.
#[test]
fn an_address_that_was_taken_for_a_hint_is_given_up() {
    let range = window(5, MIB);
    let mapping = Mapping::reserve_at(range.start, MIB).unwrap();
    let error = mapping.only_at(range.start + os::page_size()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    let mapping = Mapping::reserve_at(range.start, MIB).expect("it is unmapped again");
    assert_eq!(mapping.only_at(range.start).unwrap().range(), range);
}

/// Returns a window of its own for each test: `n` times 32 GiB, and a little more, as no arena has the page there.
fn window(n: usize, len: usize) -> Range<usize> {
    let start = (n << 35) + MIB;
    start..start + len
}

#[test]
fn an_arena_has_no_page_at_a_multiple_of_4_gib() {
    let (page, at) = (os::page_size(), 30 << 35);
    assert_eq!((blind(&(at..at + page)), blind(&(at - page..at + 1))), (Some(at), Some(at)));
    assert_eq!((blind(&(at - page..at)), blind(&(at + page..at + (4 << 30)))), (None, None));
    let arena = |window: Range<usize>, anchor| {
        let place = Some(there(window, anchor));
        Arena::reserve(&ArenaConfig { size: 16 * MIB, place, warm: 0, quarantine: 0, packed: None }).unwrap().range()
    };
    let around = at - 64 * MIB..at + 64 * MIB;
    assert_eq!(arena(around.clone(), at + 8 * MIB), at + page..at + page + 16 * MIB);
    assert_eq!(arena(around.clone(), at - 8 * MIB), at - 16 * MIB..at);
    assert_eq!(arena(at..around.end, at), at + page..at + page + 16 * MIB);
    // The largest tried size that fits on one side.
    assert_eq!(arena(at - 10 * MIB..at + 6 * MIB, at).len(), 8 * MIB);
}

/// As in [`Arena::reserve`] with the kernel's choice, but with more such pages: the kernel gives out adjacent places.
#[test]
fn a_reservation_has_none_of_certain_pages() {
    let (pages, page) = (16, os::page_size());
    let skipped = |range: &Range<usize>| {
        let at = range.start.next_multiple_of(64 * page);
        (at < range.end).then_some(at)
    };
    let refused = AtomicUsize::new(0);
    let counted = |range: &Range<usize>| skipped(range).inspect(|_| _ = refused.fetch_add(1, Ordering::Relaxed));
    let all: Vec<_> = (0..100).map(|_| Mapping::reserve_without(pages * page, counted).unwrap()).collect();
    assert!(refused.into_inner() > 10, "none had to be given back");
    for mapping in &all {
        assert_eq!((mapping.range().len(), skipped(&mapping.range())), (pages * page, None), "{mapping:x?}");
        assert!(Mapping::reserve_at(mapping.range().start, page).is_err(), "it is ours");
    }
}

fn there(window: Range<usize>, anchor: usize) -> Place {
    Place { window, anchor, left_out: 0..0, or_anywhere: false, name: "in the window".to_owned() }
}

fn placed(size: usize, window: Range<usize>, anchor: usize) -> Result<Arc<Arena>> {
    let place = Some(there(window, anchor));
    Arena::reserve(&ArenaConfig { size, place, warm: 0, quarantine: 0, packed: None })
}

#[test]
fn an_arena_lies_in_its_window_near_the_anchor() {
    let window = window(2, 256 * MIB);
    let at = |anchor| {
        let arena = placed(64 * MIB, window.clone(), anchor).unwrap();
        drop(allocate(&arena, &small_object()).unwrap().publish().unwrap());
        assert_pristine(&arena);
        arena.range()
    };
    assert_eq!(at(0), window.start..window.start + 64 * MIB);
    assert_eq!(at(usize::MAX), window.end - 64 * MIB..window.end);
    assert_eq!(at(window.start + 100 * MIB), window.start + 68 * MIB..window.start + 132 * MIB);
    // Three beside one another, and a fourth in the smaller remaining room.
    let arenas: Vec<_> = (0..4).map(|_| placed(80 * MIB, window.clone(), window.start).unwrap()).collect();
    let ranges: Vec<_> = arenas.iter().map(|a| (a.range().start - window.start) / MIB).collect();
    assert_eq!(ranges, [0, 80, 160, 240]);
    assert_eq!(arenas[3].range().len(), 10 * MIB);
    let error = placed(80 * MIB, window.clone(), window.start).unwrap_err();
    match &error {
        Error::Memory(MemoryError::ArenaPlacement { place, window: w, requested, minimum, largest_free, .. }) => {
            assert_eq!((place.as_str(), w), ("in the window", &window));
            assert_eq!((*requested, *minimum, *largest_free), (80 * MIB, 8 * MIB, 6 * MIB));
        }
        other => panic!("{other}"),
    }
    drop(arenas);
    assert_eq!(placed(256 * MIB, window.clone(), 0).unwrap().range(), window);
}

/// A preferred place gives way to the size.
#[test]
fn a_place_that_is_only_preferred_is_not_tight() {
    let window = window(5, 256 * MIB);
    let left_out = window.start + 100 * MIB..window.start + 130 * MIB;
    let reserve = |size| {
        let place = Place { left_out: left_out.clone(), or_anywhere: true, ..there(window.clone(), left_out.end) };
        let config = ArenaConfig { size, place: Some(place), warm: 0, quarantine: 0, packed: None };
        let arena = Arena::reserve(&config).unwrap();
        drop(allocate(&arena, &small_object()).unwrap().publish().unwrap());
        arena
    };
    // First in the larger piece beside the excluded range, then in the other one.
    let first = reserve(64 * MIB);
    assert_eq!(first.range(), left_out.end..left_out.end + 64 * MIB);
    let second = reserve(96 * MIB);
    assert_eq!(second.range(), left_out.start - 96 * MIB..left_out.start);
    // All free room, if it is at least half of the wanted size.
    let third = reserve(124 * MIB);
    assert_eq!(third.range(), left_out.end + 64 * MIB..window.end);
    let fourth = reserve(64 * MIB);
    assert!(fourth.range().len() == 64 * MIB && !window.contains(&fourth.range().start), "{:x?}", fourth.range());
    drop((first, second, third));
    // More than the free room, and less than twice as much.
    assert_eq!(reserve(252 * MIB).range(), left_out.end..window.end);
    let elsewhere = reserve(253 * MIB);
    assert!(elsewhere.range().len() == 253 * MIB && !window.contains(&elsewhere.range().start));
    // A refused call is no error here.
    for refused in [Call::OpenMaps, Call::ReadMaps, Call::ReserveAt] {
        let (arena, calls) = fault::with(move |_, call| call == refused, || reserve(64 * MIB));
        assert!(calls.contains(&refused) && !window.contains(&arena.range().start), "{calls:?}");
        assert_eq!(arena.range().len(), 64 * MIB);
    }
}

#[test]
fn windows_need_not_be_whole_pages() {
    let whole = window(3, 64 * MIB);
    let arena = placed(64 * MIB, whole.start + 1..whole.end - 1, 0).unwrap();
    assert_eq!(arena.range().start, whole.start + arena.page());
    assert_eq!(arena.range().len(), 32 * MIB);
    for empty in [0..0, 0..MIB, whole.clone().start..whole.start] {
        assert!(matches!(
            placed(64 * MIB, empty, 0),
            Err(Error::Memory(MemoryError::ArenaPlacement { largest_free: ..8_388_608, .. }))
        ));
    }
    #[allow(clippy::reversed_empty_ranges, reason = "it is what is tested")]
    let reversed = placed(64 * MIB, whole.end..whole.start, 0);
    assert!(matches!(reversed, Err(Error::Memory(MemoryError::ArenaPlacement { largest_free: 0, .. }))));
}

/// Another thread was faster: the list is reread, and the size is kept if there is room.
#[test]
fn a_place_that_was_lost_meanwhile_is_given_up_for_another() {
    let window = window(4, 128 * MIB);
    let reserve = |refusals, errno| {
        let window = window.clone();
        let mut left = refusals;
        let lost = move |_, call| {
            let lost = call == Call::ReserveAt && left > 0;
            left -= usize::from(lost);
            lost.then_some(errno)
        };
        let (arena, calls) = fault::with_errors(lost, || placed(64 * MIB, window, 0));
        (arena.map(|a| a.range().len() / MIB), calls.iter().filter(|c| **c == Call::ReserveAt).count())
    };
    // Two places beside one another.
    assert!(matches!(reserve(1, libc::EEXIST), (Ok(64), 2)));
    // The list is reread at most three times.
    assert!(matches!(reserve(7, libc::EEXIST), (Ok(64), 8)));
    assert!(matches!(reserve(8, libc::EEXIST), (Ok(32), 9)));
    // Another error says nothing about the list.
    assert!(matches!(reserve(1, libc::ENOMEM), (Ok(64), 2)));
    assert!(matches!(reserve(2, libc::ENOMEM), (Ok(32), 3)));
    match reserve(usize::MAX, libc::ENOMEM).0 {
        Err(Error::Memory(MemoryError::ArenaPlacement { source, .. })) => {
            assert_eq!(source.raw_os_error(), Some(libc::ENOMEM))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn near_means_in_reach_of_every_target() {
    let targets = 0x7000_0000_0000..0x7000_1000_0000;
    let place = Place::near(&targets, String::new());
    // A signed 32-bit displacement from any byte to any byte, with the addend -4 of a branch and room for others.
    for (from, to) in [(place.window.start, targets.end - 1), (place.window.end - 1, targets.start)] {
        let distance = to as i64 - from as i64;
        assert!(i32::try_from(distance - 4 - 500_000).is_ok() && i32::try_from(distance + 500_000).is_ok());
        assert!(i32::try_from(distance + distance.signum() * 2 * MIB as i64).is_err(), "more could be had");
    }
    assert!(place.window.contains(&place.anchor) && targets.contains(&place.anchor));
    let low = Place::low_2_gib().window;
    assert!(i32::try_from(low.end).is_ok() && i32::try_from(low.end + 2 * MIB).is_err());
}
