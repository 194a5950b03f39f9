//! Arena, quarantine and log compared with a model of a few lists, through arbitrary steps, with all queries after
//! each.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::code_view::code_elsewhere;
use super::slabs::{check_contents, pattern, request};
use super::*;
use crate::MemoryError;
use crate::error::Error;
use crate::memory::slab::Placed;
use crate::name::Name;

#[derive(Debug, Clone)]
enum Step {
    /// Allocates a writable slab and writes its contents.
    Allocate(Vec<SegmentRequest>),
    /// Allocates a slab with one untouched segment: some eighths of the arena, less some pages.
    AllocateLarge(usize, usize),
    /// Publishes one of the slabs that can be published.
    Publish(usize),
    ReleaseFinalize(usize),
    Note(usize),
    Drop(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let small = prop_oneof![Just(small_object().to_vec()), prop::collection::vec(request(), 0..5)];
    // Of a size whose memory is kept for others, and with nothing but contents.
    let pages = || 3..30_u64;
    let large = (pages(), pages(), 1..4096_u64).prop_map(|(code, data, less)| {
        let bytes = |pages| pages * os::page_size() as u64 - less;
        vec![segment(Protection::ReadExecute, bytes(code)), segment(Protection::ReadWrite, bytes(data))]
    });
    prop_oneof![
        6 => small.prop_map(Step::Allocate),
        4 => large.prop_map(Step::Allocate),
        1 => (1..9_usize, prop_oneof![Just(0), 1..80_usize]).prop_map(|(eighths, less)| Step::AllocateLarge(eighths, less)),
        5 => any::<usize>().prop_map(Step::Publish),
        1 => any::<usize>().prop_map(Step::ReleaseFinalize),
        5 => any::<usize>().prop_map(Step::Note),
        4 => any::<usize>().prop_map(Step::Drop),
    ]
}

#[derive(Debug)]
enum Slab {
    Writable(WritableSlab),
    Published(PublishedSlab),
}

/// The log's answer for an address.
#[derive(Debug, Clone, PartialEq)]
struct Note {
    addresses: Range<usize>,
    object: String,
    generation: u64,
}

/// A segment outside.
#[derive(Debug)]
struct Far {
    addresses: Range<usize>,
    mapped: usize,
    lifetime: Lifetime,
}

#[derive(Debug)]
struct Live {
    seed: usize,
    requests: Vec<SegmentRequest>,
    /// The written contents; none for an untouched slab.
    placed: Vec<Placed>,
    slab: Slab,
    span: Range<usize>,
    far: Vec<Far>,
    released: bool,
    /// Notes for the span, unless that is empty, and for each segment outside.
    notes: Vec<Note>,
}

/// A removed range: its bytes, and its note.
type Resting = (usize, Note);

struct Model {
    arena: Arc<Arena>,
    limit: usize,
    warm: usize,
    live: Vec<Live>,
    resting: VecDeque<Resting>,
    /// Forgotten addresses, which have no occupant until they are reused.
    woken: Vec<usize>,
    generation: u64,
    seed: usize,
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Model {
    fn new(quarantine: usize, warm: usize, refuses: bool) -> Self {
        let config = ArenaConfig { size: 8 * MIB, quarantine, warm, ..ArenaConfig::default() };
        let arena = if refuses { refusing_arena(&config) } else { Arena::reserve(&config).unwrap() };
        let (live, resting, woken) = Default::default();
        Self { arena, limit: quarantine, warm, live, resting, woken, generation: 0, seed: 0 }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Allocate(requests) => self.allocate(requests, true),
            Step::AllocateLarge(eighths, less) => {
                let bytes = self.arena.range().len() / 8 * eighths - less * 4096;
                let zero = SegmentRequest { zero_fill_bytes: bytes as u64, ..segment(Protection::ReadWrite, 0) };
                self.allocate(vec![zero], false);
            }
            Step::Publish(which) => self.change(which, |live| matches!(live.slab, Slab::Writable(_)), Self::publish),
            Step::ReleaseFinalize(which) => {
                let can = |live: &Live| matches!(live.slab, Slab::Published(_)) && live.notes.is_empty();
                self.change(which, can, Self::release_finalize);
            }
            Step::Note(which) => {
                let can = |live: &Live| matches!(live.slab, Slab::Published(_)) && live.notes.is_empty();
                self.change(which, can, Self::note);
            }
            Step::Drop(which) => self.change(which, |_| true, Self::drop),
        }
    }

    fn change(&mut self, which: usize, can: fn(&Live) -> bool, change: fn(&mut Self, Live)) {
        let able: Vec<_> = (0..self.live.len()).filter(|&i| can(&self.live[i])).collect();
        if let Some(&i) = able.get(which % able.len().max(1)) {
            let live = self.live.swap_remove(i);
            change(self, live);
        }
    }

    fn allocate(&mut self, requests: Vec<SegmentRequest>, write_contents: bool) {
        let before = self.arena.stats();
        let result = allocate(&self.arena, &requests);
        let (layout_bytes, span) = match &result {
            Ok(slab) => {
                let bytes = self.arena.stats().slab_bytes - before.slab_bytes;
                let near = |(placed, request): &(&Placed, &SegmentRequest)| placed.size > 0 && !request.outside;
                let near = slab.placements().iter().zip(&requests).filter(near);
                let start =
                    near.map(|(placed, _)| placed.address).min().unwrap_or(0) / self.arena.page() * self.arena.page();
                (bytes, start..start + bytes)
            }
            Err(Error::Memory(MemoryError::ArenaExhausted { requested, .. })) => (*requested as usize, 0..0),
            Err(error) => panic!("{error}"),
        };
        // An empty segment has an address in the slab.
        let near = requests.iter().filter(|r| !r.outside || r.content_bytes + r.zero_fill_bytes == 0);
        let align = near.map(|r| r.alignment as usize).max().unwrap_or(1);
        // The arena wakes only as many as it needs.
        let woken_bytes = before.quarantined_bytes - self.arena.stats().quarantined_bytes;
        let mut woken = 0;
        while woken < woken_bytes {
            assert!(!self.fits(layout_bytes, align), "{layout_bytes:#x} bytes would have fitted");
            woken += self.wake();
        }
        assert_eq!(woken, woken_bytes, "not the oldest");
        let Ok(slab) = result else {
            assert!(self.resting.is_empty() && !self.fits(layout_bytes, align), "{layout_bytes:#x} bytes fit");
            return;
        };
        if write_contents {
            assert!(read(span.start, span.len()).iter().all(|byte| *byte == 0), "{span:x?} has been used");
        }
        self.seed += 10;
        let mut far = Vec::new();
        for (i, (placed, request)) in slab.placements().iter().zip(&requests).enumerate() {
            assert_eq!(placed.address as u64 % request.alignment, 0);
            if write_contents {
                write(placed.written, &pattern(self.seed + i, request.content_bytes as usize));
            }
            if request.outside && placed.size > 0 {
                let len = placed.size.next_multiple_of(self.arena.page());
                let mapped = len + (request.alignment as usize).max(self.arena.page()) - self.arena.page();
                far.push(Far { addresses: placed.address..placed.address + len, mapped, lifetime: request.lifetime });
            }
        }
        assert!(span.is_empty() || (self.arena.range().start <= span.start && span.end <= self.arena.range().end));
        for new in far.iter().map(|far| &far.addresses).chain([&span]).filter(|range| !range.is_empty()) {
            let taken = self.live.iter().flat_map(Live::ranges).chain(self.resting.iter().map(|(_, n)| &n.addresses));
            taken.for_each(|taken| assert!(!overlap(new, taken), "{new:x?} is not free: {taken:x?}"));
        }
        let placed = if write_contents { slab.placements().to_vec() } else { Vec::new() };
        let (slab, notes) = (Slab::Writable(slab), Vec::new());
        self.live.push(Live { seed: self.seed, requests, placed, slab, span, far, released: false, notes });
    }

    /// Returns whether there is room without live or resting addresses.
    fn fits(&self, bytes: usize, align: usize) -> bool {
        let arena = self.arena.range();
        let resting = self.resting.iter().map(|(_, note)| &note.addresses).filter(|range| arena.contains(&range.start));
        let mut taken: Vec<_> =
            self.live.iter().map(|live| &live.span).chain(resting).filter(|r| !r.is_empty()).collect();
        taken.sort_by_key(|range| range.start);
        let starts = std::iter::once(arena.start).chain(taken.iter().map(|range| range.end));
        let ends = taken.iter().map(|range| range.start).chain([arena.end]);
        starts.zip(ends).any(|(start, end)| start.next_multiple_of(align) + bytes <= end)
    }

    fn publish(&mut self, live: Live) {
        let Slab::Writable(slab) = live.slab else { unreachable!("chosen so") };
        let slab = slab.publish().unwrap();
        assert!(slab.span() == live.span || live.span.is_empty() && slab.span().is_empty());
        self.live.push(Live { slab: Slab::Published(slab), ..live });
    }

    fn release_finalize(&mut self, mut live: Live) {
        let Slab::Published(slab) = &mut live.slab else { unreachable!("chosen so") };
        slab.release_finalize_segments();
        let after = slab.span();
        assert!(after.start == live.span.start || after.is_empty());
        live.span.end = live.span.start + after.len();
        live.far.retain(|far| far.lifetime == Lifetime::Standard);
        live.released = true;
        self.live.push(live);
    }

    fn note(&mut self, mut live: Live) {
        let Slab::Published(slab) = &mut live.slab else { unreachable!("chosen so") };
        let name = if live.seed.is_multiple_of(20) {
            Name::Number(live.seed as u32)
        } else {
            live.seed.to_string().as_str().into()
        };
        slab.belong_to(&"library".into(), &name, &Default::default());
        for addresses in live.ranges().cloned().collect::<Vec<_>>() {
            self.generation += 1;
            live.notes.push(Note { addresses, object: name.to_string(), generation: self.generation });
        }
        self.live.push(live);
    }

    fn drop(&mut self, live: Live) {
        let Live { slab, span, far, notes, .. } = live;
        drop(slab);
        let bytes = (!span.is_empty()).then_some(span.len()).into_iter().chain(far.iter().map(|far| far.mapped));
        for resting in bytes.zip(notes) {
            self.resting.push_back(resting);
            let least = usize::from(self.limit != 0);
            while self.resting_bytes() > self.limit && self.resting.len() > least {
                self.wake();
            }
        }
    }

    fn wake(&mut self) -> usize {
        let (bytes, note) = self.resting.pop_front().expect("something rests");
        self.woken.push(note.addresses.start);
        bytes
    }

    fn resting_bytes(&self) -> usize {
        self.resting.iter().map(|(bytes, _)| bytes).sum()
    }

    /// Checks all queries; of the mappings only one each time, as they are many.
    fn check(&self, which: usize) {
        let mut stats = self.arena.stats();
        let far = self.live.iter().flat_map(|live| &live.far);
        assert_eq!((stats.slabs, stats.quarantined_bytes), (self.live.len(), self.resting_bytes()));
        assert_eq!(stats.slab_bytes, self.live.iter().map(|live| live.span.len()).sum::<usize>());
        assert_eq!(stats.outside_bytes, far.map(|far| far.mapped).sum::<usize>());
        assert_eq!(std::mem::take(&mut stats.lost_bytes), 0);

        let alive = self.live.iter().flat_map(|live| &live.notes).map(|note| (note, true));
        let noted: Vec<_> = alive.chain(self.resting.iter().map(|(_, note)| (note, false))).collect();
        let edges =
            noted.iter().flat_map(|(note, _)| [note.addresses.start, note.addresses.end - 1, note.addresses.end]);
        let unnoted =
            self.live.iter().filter(|live| live.notes.is_empty()).flat_map(Live::ranges).map(|range| range.start);
        for address in edges.chain(unnoted).chain(self.woken.iter().copied()) {
            let expected = noted.iter().find(|(note, _)| note.addresses.contains(&address));
            let known = self.arena.occupant(address);
            assert_eq!(known.is_some(), expected.is_some(), "{address:#x}: {known:?}, {expected:?}");
            if let (Some(known), Some((note, alive))) = (known, expected) {
                assert_eq!((known.start, known.generation), (note.addresses.start, note.generation));
                assert_eq!((&*known.library, &*known.object), ("library", &*note.object));
                assert_eq!(known.removed.is_none(), *alive);
            }
        }

        if let Some(live) = self.live.get(which % self.live.len().max(1)) {
            live.check(self.arena.stats().exec_gain_refused);
        }
        if let Some((_, note)) = self.resting.get(which % self.resting.len().max(1)) {
            assert_eq!(access(&note.addresses), "---p");
        }
        let resident: usize = self.resting.iter().map(|(_, note)| rss(&note.addresses)).sum();
        assert_eq!(resident, stats.warm_bytes);
        assert!(resident <= self.warm);
    }
}

impl Live {
    /// Returns the whole pages, in the arena and outside.
    fn ranges(&self) -> impl Iterator<Item = &Range<usize>> {
        let span = Some(&self.span).filter(|span| !span.is_empty());
        span.into_iter().chain(self.far.iter().map(|far| &far.addresses))
    }

    fn check(&self, refuses: bool) {
        let alive = |request: &SegmentRequest| !self.released || request.lifetime == Lifetime::Standard;
        check_contents(&self.placed, &self.requests, self.seed, alive);
        match &self.slab {
            // Code is at its final address, and written through a second view.
            Slab::Writable(_) if refuses => self.ranges().for_each(|range| {
                let code = code_elsewhere();
                assert!(mapped(range).iter().all(|m| m.access == "rw-p" || m.access == code), "{:?}", mapped(range));
            }),
            Slab::Writable(_) => self.ranges().for_each(|range| assert_eq!(access(range), "rw-p")),
            Slab::Published(slab) => {
                let ranges = slab.ranges();
                assert_eq!(
                    ranges.iter().map(|r| r.addresses.len()).sum::<usize>(),
                    self.ranges().map(Range::len).sum::<usize>()
                );
                for range in &ranges {
                    let elsewhere = refuses && range.protection == Protection::ReadExecute;
                    let expected = if elsewhere { code_elsewhere() } else { expected_access(range.protection) };
                    assert_eq!(access(&range.addresses), expected);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(ProptestConfig::default().cases / 4)))]

    /// Runs a quarter of `PROPTEST_CASES`.
    #[test]
    fn agrees_with_a_few_lists(
        quarantine in prop_oneof![Just(0), Just(1), Just(256 << 10), Just(MIB), Just(64 * MIB)],
        warm in prop_oneof![Just(0), Just(100 << 10), Just(MIB)],
        refuses: bool,
        steps in prop::collection::vec((step(), any::<usize>()), 1..80),
    ) {
        let mut model = Model::new(quarantine, warm, refuses);
        for (step, which) in steps {
            model.step(step);
            model.check(which);
        }
        while let Some(live) = model.live.pop() {
            model.drop(live);
            model.check(0);
        }
        // A request for the whole arena succeeds, and the next one fails.
        model.step(Step::AllocateLarge(8, 0));
        model.step(Step::AllocateLarge(1, 0));
        assert_eq!((model.live.len(), model.resting.len()), (1, 0));
        model.live.clear();
        assert_pristine(&model.arena);
    }
}
