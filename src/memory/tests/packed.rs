//! Packed objects.

use proptest::prelude::*;

use super::*;
use crate::memory::packed::{UNIT, small};
use crate::memory::slab::Placed;

const LAYOUTS: [PackedConfig; 3] = [
    PackedConfig { hardened: false, striped: false },
    PackedConfig { hardened: true, striped: false },
    PackedConfig { hardened: false, striped: true },
];

fn packed_arena(size: usize, quarantine: usize, packed: PackedConfig) -> Arc<Arena> {
    Arena::reserve(&ArenaConfig { size, place: None, warm: 0, quarantine, packed: Some(packed) }).unwrap()
}

/// Returns the pages that contain a range.
fn pages(range: &Range<usize>) -> Range<usize> {
    let page = os::page_size();
    range.start / page * page..range.end.next_multiple_of(page)
}

/// Returns the access that the kernel shows for pages that may be shared memory.
fn rights(range: &Range<usize>) -> String {
    access(&pages(range))[..3].to_owned()
}

/// Returns the same from a list that was read once, as that takes long under qemu-user.
fn rights_in<'a>(shown: &'a [Mapped], range: &Range<usize>) -> &'a str {
    let shown = &shown[shown.partition_point(|mapped| mapped.addresses.end <= range.start)];
    assert!(shown.addresses.end >= range.end, "{range:x?} has more than one access: {shown:x?}");
    &shown.access[..3]
}

/// A loaded object with the contents of each run.
struct Loaded {
    slab: PublishedSlab,
    contents: Vec<(Placed, Vec<u8>)>,
}

/// Loads an object with bytes that no other object has.
fn load(arena: &Arc<Arena>, segments: &[SegmentRequest], seed: u8) -> Result<Loaded> {
    let slab = allocate(arena, segments)?;
    let mut contents = Vec::new();
    for (placed, request) in slab.placements().iter().zip(segments) {
        assert_eq!(placed.address % (request.alignment.max(1) as usize), 0);
        let written: Vec<u8> = (0..request.content_bytes).map(|i| seed.wrapping_add(i as u8) | 1).collect();
        write(placed.written, &written);
        let zeros = vec![0; request.zero_fill_bytes as usize];
        contents.push((*placed, [written, zeros].concat()));
    }
    let mut slab = slab.publish()?;
    slab.belong_to(&"library".into(), &format!("{seed}.o").as_str().into(), &Default::default());
    Ok(Loaded { slab, contents })
}

impl Loaded {
    fn check(&self, arena: &Arc<Arena>, seed: u8) {
        for (placed, contents) in &self.contents {
            assert!(read(placed.address, placed.size) == *contents, "object {seed}: not what was written");
            if placed.size != 0 {
                let known = arena.occupant(placed.address + placed.size - 1).unwrap();
                assert_eq!((known.object.as_str(), known.removed), (&*format!("{seed}.o"), None));
            }
        }
    }
}

#[test]
fn objects_share_pages_and_mappings() {
    for packed in LAYOUTS {
        let arena = packed_arena(64 * MIB, MIB, packed);
        let all: Vec<_> = (0..200).map(|i| load(&arena, &small_object(), i).unwrap()).collect();
        all.iter().zip(0..).for_each(|(loaded, seed)| loaded.check(&arena, seed));
        // Multiples of 16 bytes, and cache lines for variables.
        let page = os::page_size();
        let bytes = if packed.striped { 3 * page } else { 112 + 112 + 128 };
        assert_eq!(arena.stats().slab_bytes, 200 * bytes);
        let written = |range: &SlabRange| range.protection == Protection::ReadWrite;
        for range in all.iter().flat_map(|loaded| loaded.slab.ranges()).filter(written) {
            let line = if packed.striped { page } else { 64 };
            assert_eq!((range.addresses.start % line, range.addresses.end % line), (0, 0), "{range:x?}");
        }
        let seen = mapped_without_holes(&arena.range());
        // Three areas of three pools, their unused parts, and the prepared pages.
        assert!(seen.len() <= 16, "{seen:x?}");
        for range in all.iter().flat_map(|loaded| loaded.slab.ranges()) {
            let expected = &expected_access(range.protection)[..3];
            assert_eq!(rights_in(&seen, &range.addresses), expected, "{range:x?}");
        }
        assert_eq!(arena.stats().packed.is_some_and(|mode| mode == PackedMode::PageStriped), packed.striped);
        drop(all);
        assert_eq!(arena.stats().slab_bytes, 0);
    }
}

/// Asserts that nothing is left in the process, neither in the arena nor in the second view.
fn assert_all_gone(arena: &Arc<Arena>) {
    assert_eq!(access(&arena.range()), "---p");
    assert_eq!(rss(&arena.range()), 0);
    assert_eq!(arena.largest_free(), arena.range().len());
    let stats = arena.stats();
    assert_eq!((stats.slabs, stats.slab_bytes, stats.quarantined_bytes, stats.lost_bytes), (0, 0, 0, 0));
}

#[test]
fn what_is_removed_traps_while_its_neighbours_live() {
    let arena = packed_arena(64 * MIB, MIB, PackedConfig::default());
    let (first, gone) = (load(&arena, &small_object(), 1).unwrap(), load(&arena, &small_object(), 2).unwrap());
    let ranges = gone.slab.ranges();
    let code = ranges[0].addresses.clone();
    assert_eq!(pages(&code), pages(&first.slab.ranges()[0].addresses), "they are in one page");
    drop(gone);
    first.check(&arena, 1);
    // int3, or udf with the generation; the data is gone.
    let trap: [u8; 4] = if cfg!(target_arch = "aarch64") { [2, 0, 0, 0] } else { [0xcc; 4] };
    assert_eq!(read(code.start, code.len()), trap.repeat(code.len() / 4));
    assert_eq!(arena.occupant(code.start).unwrap().generation, 2);
    for range in &ranges[1..] {
        assert_eq!(read(range.addresses.start, range.addresses.len()), vec![0; range.addresses.len()]);
    }
    let known = arena.occupant(code.start + 10).unwrap();
    assert_eq!((known.object.as_str(), known.start), ("2.o", code.start));
    assert!(known.removed.is_some());
    assert_eq!(arena.stats().quarantined_bytes, ranges.iter().map(|r| r.addresses.len()).sum::<usize>());
    // The addresses are not reused before a MiB was removed after them.
    for _ in 0..1000 {
        let other = load(&arena, &small_object(), 3).unwrap();
        assert!(other.slab.ranges().iter().all(|o| ranges.iter().all(|r| o.addresses != r.addresses)));
    }
}

/// All but a part is overwritten at once, and the rest goes with that of others.
#[test]
fn what_waits_for_others_is_overwritten_but_for_what_is_kept() {
    let arena = packed_arena(64 * MIB, MIB, PackedConfig::default());
    let first = load(&arena, &small_object(), 1).unwrap();
    let mut gone: Vec<Loaded> = (2..7).map(|i| load(&arena, &small_object(), i).unwrap()).collect();
    let last = load(&arena, &small_object(), 7).unwrap();
    let bytes: usize = gone[0].slab.ranges().iter().map(|range| range.addresses.len()).sum();
    for (i, object) in gone.iter_mut().enumerate() {
        let [code, constants, data] = object.slab.ranges().try_into().unwrap();
        let kept = constants.addresses.start + 20..constants.addresses.start + 60;
        let was = read(kept.start, kept.len());
        assert_eq!(object.slab.overwrite(&kept), Some(bytes));
        let mut zeros = vec![0; constants.addresses.len()];
        zeros[20..60].copy_from_slice(&was);
        assert_eq!(read(constants.addresses.start, constants.addresses.len()), zeros);
        assert_eq!(read(data.addresses.start, data.addresses.len()), vec![0; data.addresses.len()]);
        let trap: [u8; 4] = if cfg!(target_arch = "aarch64") { [i as u8 + 2, 0, 0, 0] } else { [0xcc; 4] };
        let code = code.addresses;
        assert_eq!(read(code.start, code.len()), trap.repeat(code.len() / 4));
        assert!(arena.occupant(code.start).unwrap().removed.is_some());
    }
    let then = arena.occupant(gone[0].slab.ranges()[0].addresses.start).unwrap().removed;
    assert_eq!((arena.stats().slabs, arena.stats().quarantined_bytes), (7, 0));
    [(&first, 1), (&last, 7)].iter().for_each(|(object, seed)| object.check(&arena, *seed));
    let ranges: Vec<Range<usize>> = gone.iter().flat_map(|object| object.slab.spans()).collect();
    give_back(gone.into_iter().map(|object| object.slab));
    assert!(ranges.iter().all(|range| arena.occupant(range.start).unwrap().removed.is_some()));
    assert_eq!(arena.occupant(ranges[0].start).unwrap().removed, then, "it was removed when it was overwritten");
    for (i, range) in ranges.iter().enumerate().filter(|(i, _)| i % 3 != 0) {
        assert_eq!(read(range.start, range.len()), vec![0; range.len()], "{i}");
    }
    assert_eq!((arena.stats().slabs, arena.stats().quarantined_bytes), (2, 5 * bytes));
    [(&first, 1), (&last, 7)].iter().for_each(|(object, seed)| object.check(&arena, *seed));
    // Whoever wants addresses back at once does not wait for others.
    let arena = packed_arena(64 * MIB, 0, PackedConfig::default());
    assert_eq!(load(&arena, &small_object(), 1).unwrap().slab.overwrite(&(0..0)), None);
}

/// A fork does not wait for an object that is linked through LLVM's own interface.
#[test]
fn what_is_written_while_pools_begin_anew_is_written_to_its_end() {
    for packed in LAYOUTS {
        let arena = packed_arena(64 * MIB, MIB, packed);
        let slab = allocate(&arena, &small_object()).unwrap();
        arena.begin_anew();
        let next = load(&arena, &small_object(), 2).unwrap();
        let placed = slab.placements().to_vec();
        placed.iter().for_each(|of| write(of.written, &vec![1; of.size]));
        let mut slab = slab.publish().unwrap();
        slab.belong_to(&"library".into(), &"slow.o".into(), &Default::default());
        assert!(placed.iter().all(|of| read(of.address, of.size) == vec![1; of.size]));
        next.check(&arena, 2);
    }
}

/// Objects leave the same whether they are removed one by one or together, and if they cannot be overwritten.
#[test]
fn what_goes_together_leaves_what_it_leaves_one_by_one() {
    const COUNT: usize = 600;
    // The number of those that are removed, the last first or in no order, and whether calls are refused.
    let (descending, mixed) = (COUNT - 1, 37);
    let cases = [(COUNT, descending, false), (COUNT, mixed, false), (2, descending, false), (9, descending, true)];
    for (packed, (gone, step, refused)) in LAYOUTS.into_iter().flat_map(|packed| cases.map(|case| (packed, case))) {
        let left = [false, true].map(|together| {
            let arena = packed_arena(64 * MIB, 32 * MIB, packed);
            let load = |i| Some(load(&arena, &small_object(), i as u8).unwrap());
            let mut all: Vec<Option<Loaded>> = (0..COUNT).map(load).collect();
            // Every seventh stays.
            let order = (0..COUNT).map(|i| i * step % COUNT).filter(|i| i % 7 != 0 && *i < gone);
            let slabs: Vec<PublishedSlab> = order.map(|i| all[i].take().unwrap().slab).collect();
            let ranges: Vec<Range<usize>> = slabs.iter().flat_map(|slab| slab.spans()).collect();
            let refuse =
                move |_, call| refused && [Call::Protect, Call::Replace, Call::Deny, Call::Discard].contains(&call);
            fault::with(refuse, || match together {
                true => give_back(slabs),
                false => slabs.into_iter().rev().for_each(drop),
            });
            let shown = mapped_without_holes(&arena.range());
            let of = |range: Range<usize>| {
                let known = arena.occupant(range.start).unwrap();
                assert!(known.removed.is_some());
                let rights = rights_in(&shown, &range);
                let bytes = rights.starts_with('r').then(|| read(range.start, range.len()));
                (known.object.to_string(), known.generation, rights.to_owned(), bytes)
            };
            let left: Vec<_> = ranges.into_iter().map(of).collect();
            all.iter()
                .flatten()
                .zip((0..COUNT).filter(|i| all[*i].is_some()))
                .for_each(|(l, i)| l.check(&arena, i as u8));
            let before = arena.stats();
            drop(all);
            let counts = [before, arena.stats()].map(|s| (s.slabs, s.slab_bytes, s.quarantined_bytes, s.lost_bytes));
            (left, counts)
        });
        assert_eq!(left[0], left[1], "{packed:?}, {gone} removed in steps of {step}, refused: {refused}");
    }
}

#[test]
fn memory_goes_with_the_last_of_a_unit() {
    let arena = packed_arena(64 * MIB, 32 * MIB, PackedConfig::default());
    let object = [segment(Protection::ReadExecute, 8192), segment(Protection::ReadWrite, 8192)];
    let mut all: Vec<_> = (0..200).map(|i| load(&arena, &object, i).unwrap()).collect();
    let whole = rss(&arena.range());
    // The code was not run, so its pages are resident in the other view only.
    assert!(whole >= 200 * 8192, "{whole}");
    // All objects of a unit but one.
    let last = all.split_off(199);
    let gone: Vec<_> = all.iter().flat_map(|loaded| loaded.slab.ranges()).collect();
    let ((), calls) = fault::with(|_, _| false, || drop(all));
    assert!(calls.contains(&Call::DiscardCode) && calls.contains(&Call::Discard), "{calls:?}");
    let left = rss(&arena.range());
    // The memory that is kept for the next objects: four units in each pool, and the unit that is not empty.
    assert!(left <= 2 * 6 * UNIT, "{left} of {whole}");
    last[0].check(&arena, 199);
    let first = &gone[0].addresses;
    assert_eq!(rights(first), "---");
    assert!(arena.occupant(first.start).unwrap().removed.is_some());
    drop(last);
}

#[test]
fn addresses_are_used_again_after_they_have_rested() {
    for packed in LAYOUTS {
        let arena = packed_arena(16 * MIB, 64 << 10, packed);
        let kept = load(&arena, &small_object(), 7).unwrap();
        let object = [
            segment(Protection::ReadExecute, 8000),
            SegmentRequest { zero_fill_bytes: 6000, ..segment(Protection::ReadWrite, 2000) },
        ];
        let mut seen = std::collections::HashSet::new();
        let mut again = 0;
        for i in 0..300 {
            let loaded = load(&arena, &object, i as u8).unwrap();
            loaded.check(&arena, i as u8);
            again += usize::from(!seen.insert(loaded.contents[0].0.address));
        }
        assert!(again > 100, "{again}");
        kept.check(&arena, 7);
        drop(kept);
        assert_eq!(arena.stats().lost_bytes, 0);
    }
}

#[test]
fn nothing_is_left_where_nothing_rests() {
    for packed in LAYOUTS {
        let arena = packed_arena(16 * MIB, 0, packed);
        for _ in 0..3 {
            let all: Vec<_> = (0..50).map(|i| load(&arena, &small_object(), i).unwrap()).collect();
            drop(all);
            assert_all_gone(&arena);
        }
    }
}

#[test]
fn some_have_a_slab_of_their_own() {
    let most = small(os::page_size());
    let arena = packed_arena(64 * MIB, 0, PackedConfig::default());
    let code = |bytes| segment(Protection::ReadExecute, bytes);
    let own = [
        vec![code(most as u64 + 1)],
        vec![SegmentRequest { alignment: 2 * os::page_size() as u64, ..code(10) }],
        vec![code(10), SegmentRequest { lifetime: Lifetime::Finalize, ..segment(Protection::ReadWrite, 10) }],
        vec![code(10), SegmentRequest { outside: true, ..segment(Protection::Read, 10) }],
    ];
    for segments in own {
        let slab = allocate(&arena, &segments).unwrap().publish().unwrap();
        assert!(slab.ranges()[0].addresses.len() >= os::page_size(), "{segments:?}");
    }
    let packed = allocate(&arena, &[code(most as u64)]).unwrap().publish().unwrap();
    assert_eq!(packed.ranges()[0].addresses.len(), most);
    let name = |_| BlamedSection::default();
    let alone = arena.allocate(&"test.o".into(), &[code(10)], PlacementHints::ALONE, name).unwrap().publish().unwrap();
    assert_eq!(alone.ranges()[0].addresses.len(), os::page_size());
}

/// Any single system call may fail at any time: the object then has a slab of its own, or is refused, and the others
/// stay valid.
#[test]
fn any_one_call_may_fail() {
    for packed in LAYOUTS {
        let script = |arena: &Arc<Arena>| {
            let first = load(arena, &small_object(), 1);
            let large =
                load(arena, &[segment(Protection::ReadExecute, 200_000), segment(Protection::Read, 200_000)], 2);
            drop(load(arena, &small_object(), 3));
            let mut many: Vec<_> =
                (4..40).map(|i| (i, load(arena, &[segment(Protection::ReadExecute, 15_000)], i))).collect();
            many.truncate(3);
            many.push((40, load(arena, &[segment(Protection::ReadExecute, 15_000)], 40)));
            for (seed, loaded) in [(1, &first), (2, &large)].into_iter().chain(many.iter().map(|(i, l)| (*i, l))) {
                if let Ok(loaded) = loaded {
                    loaded.check(arena, seed);
                }
            }
        };
        let arena = packed_arena(64 * MIB, 0, packed);
        let ((), calls) = fault::with(|_, _| false, || script(&arena));
        assert!(calls.len() > 10);
        let expected = if packed.striped { Call::Protect } else { Call::DiscardCode };
        assert!(calls.contains(&expected), "{calls:?}");
        for failing in (0..calls.len()).step_by(if under_qemu() { 9 } else { 1 }) {
            let arena = packed_arena(64 * MIB, 0, packed);
            let ((), made) = fault::with(move |index, _| index == failing, || script(&arena));
            // Not always the same one: what another thread could not unmap is unmapped here.
            let Some(call) = made.get(failing) else { continue };
            let stats = arena.stats();
            assert_eq!((stats.slabs, stats.slab_bytes, stats.quarantined_bytes), (0, 0, 0), "{call:?}");
            // Memory that could not be cleaned is not reused.
            let lost = arena.range().len() - arena.largest_free();
            let cleans = [Call::Replace, Call::Deny, Call::Discard].contains(call);
            assert!(lost == 0 || cleans, "{call:?}, the {failing}. of {made:?}, before: {calls:?}");
            script(&arena);
        }
    }
}

/// The system provides no memory that can be mapped twice.
#[test]
fn without_two_views_pages_are_striped() {
    for refused in [Call::CreateCode, Call::SizeCode] {
        let arena = packed_arena(64 * MIB, 0, PackedConfig::default());
        let loaded = fault::with_errors(
            move |_, call| (call == refused).then_some(libc::EPERM),
            || [1, 2].map(|i| load(&arena, &small_object(), i).unwrap()),
        );
        loaded.0.iter().zip(1..).for_each(|(loaded, seed)| loaded.check(&arena, seed));
        assert_eq!(arena.stats().packed, Some(PackedMode::PageStriped));
        assert_eq!(loaded.0[0].slab.ranges()[0].addresses.len(), os::page_size());
    }
}

#[derive(Debug, Clone)]
enum Step {
    Load(Vec<SegmentRequest>),
    Drop(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![4 => 1..600_u64, 2 => 600..40_000_u64, 1 => Just(0)];
    let one = |protection| {
        (bytes.clone(), bytes.clone(), 0..12_u32).prop_map(move |(content, zero, shift)| SegmentRequest {
            zero_fill_bytes: zero,
            alignment: 1 << shift,
            ..segment(protection, content)
        })
    };
    let object = (one(Protection::ReadExecute), one(Protection::Read), one(Protection::ReadWrite), 1..8_u8);
    let load = object.prop_map(|(code, constants, data, which)| {
        let all = [code, constants, data].into_iter().enumerate();
        Step::Load(all.filter(|(i, _)| which >> i & 1 == 1).map(|(_, s)| s).collect())
    });
    prop_oneof![3 => load, 2 => any::<usize>().prop_map(Step::Drop)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(60)))]
    /// Live objects keep their contents, do not overlap, and have the right record.
    #[test]
    fn objects_come_and_go(
        steps in prop::collection::vec(step(), 1..60),
        layout in 0..LAYOUTS.len(),
        quarantine in prop_oneof![Just(0), Just(64 << 10)],
    ) {
        let arena = packed_arena(32 * MIB, quarantine, LAYOUTS[layout]);
        let mut live: Vec<(u8, Loaded)> = Vec::new();
        for (step, seed) in steps.into_iter().zip(1..) {
            match step {
                Step::Load(segments) => live.push((seed, load(&arena, &segments, seed).unwrap())),
                Step::Drop(which) if !live.is_empty() => drop(live.swap_remove(which % live.len())),
                Step::Drop(_) => {}
            }
            let mut ranges: Vec<_> = live.iter().flat_map(|(_, l)| l.slab.ranges()).map(|r| r.addresses).collect();
            ranges.sort_by_key(|r| r.start);
            prop_assert!(ranges.windows(2).all(|w| w[0].end <= w[1].start), "{ranges:x?}");
            live.iter().for_each(|(seed, loaded)| loaded.check(&arena, *seed));
        }
        live.clear();
        if quarantine == 0 {
            assert_all_gone(&arena);
        }
    }
}

/// Cores may have fetched removed code: they are synchronised once before it is packed over, not for each object.
#[test]
fn cores_are_told_once_of_all_that_is_packed_over() {
    const COUNT: usize = 1000;
    let arena = packed_arena(64 * MIB, 0, PackedConfig::default());
    let object = [segment(Protection::ReadExecute, 60)];
    // On AArch64 each publication also synchronises them.
    let publish = || usize::from(cfg!(target_arch = "aarch64"));
    let _other = load(&arena, &object, 0).unwrap();
    let load = || {
        let take = || allocate(&arena, &object).unwrap();
        let (slab, calls) = fault::with(|_, _| false, take);
        let address = slab.placements()[0].address;
        let (mut slab, published) = fault::with(|_, _| false, || slab.publish().unwrap());
        slab.belong_to(&"library".into(), &"object".into(), &Default::default());
        assert_eq!(published.iter().filter(|call| **call == Call::SyncCores).count(), publish());
        (address, slab, calls.iter().filter(|call| **call == Call::SyncCores).count())
    };
    let mut ever = std::collections::HashSet::new();
    for round in 0..3 {
        let (mut told, mut again, mut all) = (0, 0, Vec::new());
        for _ in 0..COUNT {
            let (address, slab, calls) = load();
            told += calls;
            let used = !ever.insert(address);
            again += usize::from(used);
            assert!(!used || told > 0, "{address:#x} had other code, and no core knows");
            all.push(slab);
        }
        assert_eq!((told, again), if round == 0 { (0, 0) } else { (1, COUNT) });
    }
    // Unused room is taken first, until settling is worthwhile.
    let told: usize = (0..COUNT).map(|_| load().2).sum();
    assert!((1..=COUNT / 100).contains(&told), "{told}");
}

/// A little woken room is enough if there is no other room.
#[test]
fn what_was_removed_is_found_when_all_else_is_full() {
    let arena = packed_arena(8 * MIB, 0, PackedConfig::default());
    let object = [segment(Protection::ReadExecute, 2000)];
    let mut all: Vec<_> = std::iter::from_fn(|| load(&arena, &object, 1).ok()).collect();
    assert!(all.len() > 1000, "{}", all.len());
    let gone = all.remove(500);
    let address = gone.slab.ranges()[0].addresses.start;
    drop(gone);
    let next = load(&arena, &object, 2).unwrap();
    assert_eq!(next.slab.ranges()[0].addresses.start, address);
    next.check(&arena, 2);
    all.iter().for_each(|loaded| loaded.check(&arena, 1));
}

/// The end of a freed unit was never used, and is not zero any more when the unit is used again.
#[test]
fn zero_fill_among_code_is_zero_where_the_unit_was_away() {
    let arena = packed_arena(64 * MIB, 32 * MIB, PackedConfig::default());
    let object = [segment(Protection::ReadExecute, 8192)];
    let mut all: Vec<_> = (0..60).map(|i| load(&arena, &object, i).unwrap()).collect();
    let _one_more = load(&arena, &small_object()[2..], 1).unwrap();
    // The last first: they keep the memory of as many units as others, which became idle earlier, lose.
    while all.pop().is_some() {}
    let zero = SegmentRequest { zero_fill_bytes: 3000, ..segment(Protection::ReadExecute, 100) };
    (0..4).for_each(|i| load(&arena, &[zero], i).unwrap().check(&arena, i));
}

/// Room that was never given out can be reused at once.
#[test]
fn what_was_given_up_is_taken_again_without_a_word() {
    let arena = packed_arena(64 * MIB, 0, PackedConfig::default());
    let object = [segment(Protection::ReadExecute, 60)];
    let _other = load(&arena, &object, 0).unwrap();
    let first = allocate(&arena, &object).unwrap().placements()[0].address;
    let (again, calls) = fault::with(|_, _| false, || allocate(&arena, &object).unwrap().placements()[0].address);
    assert_eq!((again, &calls[..]), (first, &[][..]));
}
