//! Packing of small objects: one pool per protection, in which an object takes only as many granules as it needs:
//! small functions of several objects share a cache line.
//!
//! Code and constants are written through a second view of their memory ([`views`]), so that no page changes its
//! protection when an object is added. If the system does not allow that, objects take whole pages
//! ([`PackedMode::PageStriped`]).
//!
//! A child of `fork` shares the packed memory with its parent, so each would see the other's writes. Therefore both
//! begin a new [`Epoch`] after a fork, and memory of an older epoch keeps its contents until nothing in its unit is
//! alive.

mod held;
mod packed_runs;
mod pool;
mod views;

use std::io;
use std::ops::Range;

pub(super) use self::held::PackedSlab;
pub(super) use self::pool::UNIT;
use self::pool::{Carved, FIRST_STEP, Growth, Pool};
use self::views::Views;
use super::layout::CACHE_LINE;
use super::os::Mapping;
use super::ranges::Ranges;
use crate::fork_guard;
pub(super) use crate::memory::packed::packed_runs::{PackedRun, PackedRuns, Placing};
use crate::memory::{Lifetime, Protection, SegmentRequest, membarrier};

/// The mode of packing; see [`ArenaStats::packed`](super::ArenaStats::packed).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PackedMode {
    /// Objects take multiples of 16 bytes, and whole cache lines for variables. Code and constants are shared memory,
    /// which is written through a second view.
    TwoViews,
    /// Objects take pages, whose protection changes for each object: the system provides no memory with an executable
    /// second view.
    PageStriped,
}

/// Larger objects have a slab of their own: they would save less than a third of their memory, and the pages of a
/// removed slab are [reused](super::warm) at once, while packed ones are new to the kernel (30 KB: 60 µs packed, 52
/// alone).
const SMALL: usize = 16 << 10;
/// At least this many pages, as AArch64 may have larger ones.
const SMALL_PAGES: usize = 4;
/// The largest objects that are packed when there are too many mappings for slabs.
pub(super) const MOST: usize = 256 << 10;
/// The smallest piece of code or constants, and the alignment that compilers give functions.
pub(super) const GRANULE: usize = 16;
/// The size of a pool's first area; later ones are larger. After a fork, all pools begin anew.
const FIRST_AREA: usize = 256 << 10;
const AREA_GROWTH: usize = 8;
/// The bytes of each pool that are brought in before the first object.
const FIRST_PAGES: usize = UNIT / 4;
/// The largest part of the arena for one area.
const AREA_PART: usize = 16;

/// The state in which an object leaves its room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// Overwritten, but its code may have been run.
    Used,
    /// Overwritten, and its addresses were never given out.
    Unseen,
    /// Unchanged.
    Dirty,
}

/// The filler of code areas: `int3`, or `udf #0`.
const TRAP: [u8; 4] = if cfg!(target_arch = "aarch64") { [0; 4] } else { [0xcc; 4] };

/// A word that overwrites removed code.
pub(super) type Trap = [u8; 4];

/// Returns the word for the code of a generation. `udf` has 16 bits for that.
pub(super) fn trap(generation: u64) -> Trap {
    if cfg!(target_arch = "aarch64") { u32::from(generation as u16).to_le_bytes() } else { TRAP }
}

const ZERO: [u8; 4] = [0; 4];

#[derive(Debug)]
pub(super) struct Packing {
    page: usize,
    hardened: bool,
    /// Whether two views are not wanted.
    striped: bool,
    mode: PackedMode,
    current: Option<Epoch>,
    /// The epochs from before a fork.
    older: Vec<Epoch>,
    epochs: u32,
}

/// The objects packed between two forks.
#[derive(Debug)]
struct Epoch {
    number: u32,
    forks: u64,
    views: Option<Views>,
    /// The pools, by protection.
    pools: [Pool; 3],
    /// Number of objects that live or rest.
    outstanding: usize,
}

impl Packing {
    pub(super) fn new(page: usize, hardened: bool, striped: bool) -> Self {
        let mode = if striped { PackedMode::PageStriped } else { PackedMode::TwoViews };
        Self { page, hardened, striped, mode, current: None, older: Vec::new(), epochs: 0 }
    }

    /// Returns the present mode, or the expected one if no object is packed yet.
    pub(super) fn mode(&self) -> PackedMode {
        self.mode
    }

    /// Returns whether the epoch of this number may still be written.
    pub(super) fn is_current(&self, epoch: u32) -> bool {
        self.current.as_ref().is_some_and(|current| current.number == epoch && current.forks == fork_guard::forks())
    }

    /// Takes room for an object: bytes and alignment for each protection. It is writable until
    /// [`end_write`](Self::end_write). Returns `None` if there is no room; the object then tries a slab of its own,
    /// which reports the error.
    pub(super) fn take(&mut self, arena: &Mapping, ranges: &mut Ranges, wanted: [Wanted; 3]) -> Option<Placing> {
        if self.current.as_ref().is_some_and(|epoch| epoch.forks != fork_guard::forks()) {
            self.begin_epoch();
        }
        self.begin_if_none(arena);
        let taken = self.current.as_mut()?.take(arena, ranges, wanted);
        if taken.is_none() {
            self.end_if_idle(arena, ranges);
        }
        taken
    }

    /// Maps memory for the first objects.
    pub(super) fn prepare(&mut self, arena: &Mapping, ranges: &mut Ranges) {
        self.begin_if_none(arena);
        if let Some(epoch) = self.current.as_mut().filter(|epoch| epoch.views.is_some()) {
            let little = Wanted { bytes: 1, align: 1, zero_fill: false };
            for protection in packed_runs::PROTECTIONS {
                // An area, and memory for it.
                let mut grow = || epoch.grow(arena, ranges, protection, little);
                let _ = grow().and_then(|()| grow());
                if let Some(Range { start, .. }) = epoch.pools[protection as usize].mapped().next() {
                    epoch.populate(arena, &(start..start + FIRST_PAGES), protection);
                }
            }
            epoch.views.iter_mut().for_each(Views::close);
        }
    }

    /// Begins an epoch if there is none.
    fn begin_if_none(&mut self, arena: &Mapping) {
        if self.current.is_none() {
            let epoch = Epoch::new(self, arena);
            self.mode = if epoch.views.is_some() { PackedMode::TwoViews } else { PackedMode::PageStriped };
            self.epochs += 1;
            self.current = Some(epoch);
        }
    }

    /// Begins a new epoch; earlier memory keeps its contents.
    fn begin_epoch(&mut self) {
        if let Some(mut old) = self.current.take() {
            // Objects that are being written keep it.
            old.views = None;
            self.older.push(old);
        }
    }

    /// Ends the writing of an object, finished or given up.
    pub(super) fn end_write(&mut self, epoch: u32) {
        let current = self.current.as_mut().filter(|current| current.number == epoch);
        if let Some(Epoch { views: Some(views), pools, .. }) = current {
            views.end_write(two_views(pools));
        }
    }

    /// Makes the current epoch writable.
    pub(super) fn begin_write(&mut self) -> io::Result<()> {
        match &mut self.current {
            Some(Epoch { views: Some(views), pools, .. }) => views.begin_write(two_views(pools)),
            _ => Ok(()),
        }
    }

    /// Overwrites room of dead objects of the current epoch, between `begin_write` and `end_write`.
    pub(super) fn overwrite(&self, arena: &Mapping, run: &PackedRun, trap: Trap) -> io::Result<()> {
        self.current.as_ref().map_or(Ok(()), |epoch| epoch.overwrite(arena, run, trap))
    }

    /// Marks room of objects as not alive; in the current epoch, between `begin_write` and `end_write`. After an error
    /// it is not clean: see [`wake`](Self::wake).
    pub(super) fn rest(&mut self, arena: &Mapping, run: &PackedRun, epoch: u32) -> io::Result<()> {
        let is_current = self.is_current(epoch);
        let Some(found) = self.epoch(epoch) else { return Ok(()) };
        let pool = &mut found.pools[run.protection as usize];
        for unit in pool.rest(&run.addresses, is_current) {
            let denied = match &found.views {
                // The other process keeps the memory.
                _ if !is_current && run.protection == Protection::ReadWrite => arena.take_away(&unit),
                _ if !is_current => arena.take_view_away(&unit),
                Some(_) => arena.deny(&unit),
                None => Ok(()),
            };
            if denied.is_err() {
                pool.set_away(&unit, false);
            } else if let Some(views) = found.views.as_ref().filter(|_| is_current) {
                // Memory that cannot be freed stays, overwritten.
                let _ = match run.protection {
                    Protection::ReadWrite => arena.discard(&unit),
                    _ => views.discard(&unit),
                };
            }
        }
        // Without two views, objects have pages of their own.
        if found.views.is_none() && is_current { arena.take_away(&run.addresses) } else { Ok(()) }
    }

    /// Ends the rest of an object's room. The room can be reused if it is clean, otherwise once its epoch is empty.
    pub(super) fn wake(&mut self, arena: &Mapping, ranges: &mut Ranges, runs: &PackedRuns, epoch: u32, left: Left) {
        let is_current = self.is_current(epoch);
        let Some(found) = self.epoch(epoch) else { return };
        found.outstanding -= 1;
        if is_current && left != Left::Dirty {
            for run in runs.iter(arena.range().start) {
                let pool = &mut found.pools[run.protection as usize];
                match (run.protection, left) {
                    (Protection::ReadExecute, Left::Used) => pool.wake(run.addresses),
                    _ => pool.free(run.addresses),
                }
            }
        }
        self.end_if_idle(arena, ranges);
    }

    fn epoch(&mut self, number: u32) -> Option<&mut Epoch> {
        self.current.iter_mut().chain(&mut self.older).find(|epoch| epoch.number == number)
    }

    /// Frees the areas of epochs in which nothing lives or rests.
    fn end_if_idle(&mut self, arena: &Mapping, ranges: &mut Ranges) {
        let current = self.current.take_if(|epoch| epoch.outstanding == 0);
        let older = self.older.extract_if(.., |epoch| epoch.outstanding == 0);
        for epoch in older.chain(current) {
            for (protection, pool) in packed_runs::PROTECTIONS.into_iter().zip(epoch.pools) {
                for area in pool.into_areas() {
                    let clean = match protection {
                        Protection::ReadWrite => arena.take_away(&area),
                        _ => arena.take_view_away(&area),
                    };
                    // Areas that cannot be cleaned are not reused.
                    if clean.is_ok() {
                        ranges.free(area);
                    }
                }
            }
        }
    }

    /// Keeps the inherited objects in place, in a child of `fork`.
    pub(super) fn inherit(&mut self) {
        self.begin_epoch();
    }
}

/// Returns the most bytes of an object that is packed as long as there are mappings for others.
pub(super) fn small(page: usize) -> usize {
    SMALL.max(SMALL_PAGES * page)
}

/// Returns the ranges that are mapped twice.
fn two_views(pools: &[Pool; 3]) -> impl Iterator<Item = Range<usize>> {
    pools[..Protection::ReadWrite as usize].iter().flat_map(Pool::mapped)
}

impl Epoch {
    fn new(packing: &Packing, arena: &Mapping) -> Self {
        let views = || Views::new(arena.range(), packing.hardened, 2 * FIRST_AREA).ok();
        let views = if packing.striped { None } else { views() };
        let pools = packed_runs::PROTECTIONS.map(|protection| match protection {
            _ if views.is_none() => Pool::new(packing.page, FIRST_STEP),
            // Each growth takes memory of its own and hence a mapping, so an area grows at once.
            Protection::ReadExecute | Protection::Read => Pool::new(GRANULE, usize::MAX),
            // No two objects' threads write to one line.
            Protection::ReadWrite => Pool::new(CACHE_LINE, FIRST_STEP),
        });
        Self { number: packing.epochs, forks: fork_guard::forks(), views, pools, outstanding: 0 }
    }

    fn take(&mut self, arena: &Mapping, ranges: &mut Ranges, wanted: [Wanted; 3]) -> Option<Placing> {
        if let Some(views) = &mut self.views {
            views.begin_write(two_views(&self.pools)).ok()?;
        }
        let mut runs = PackedRuns::default();
        let mut wanted = packed_runs::PROTECTIONS.into_iter().zip(wanted).filter(|(_, wanted)| wanted.bytes != 0);
        let placed = wanted.try_for_each(|(protection, wanted)| {
            let carved = self.carve(arena, ranges, protection, wanted)?;
            runs.set(arena.range().start, protection, &carved);
            Some(())
        });
        self.views.iter_mut().for_each(Views::close);
        if placed.is_none() {
            self.give_back(arena, &runs);
            return None;
        }
        self.outstanding += 1;
        let written = runs.each(arena.range().start, |run| self.written_at(run));
        let (view, open) = (self.views.as_ref().map(Views::kept), self.views.as_ref().is_some_and(Views::closes));
        Some(Placing { epoch: self.number, runs, written, view, open })
    }

    /// Undoes a part of `take`.
    fn give_back(&mut self, arena: &Mapping, runs: &PackedRuns) {
        for run in runs.iter(arena.range().start) {
            let pool = &mut self.pools[run.protection as usize];
            // Units keep their memory, as nothing was written.
            for unit in pool.rest(&run.addresses, true) {
                pool.set_away(&unit, false);
            }
            pool.free(run.addresses);
        }
        if let Some(views) = &mut self.views {
            views.end_write(two_views(&self.pools));
        }
    }

    /// Brings pages in that are about to be written, and used. A hint: page faults do it otherwise.
    fn populate(&self, arena: &Mapping, pages: &Range<usize>, protection: Protection) {
        match &self.views {
            Some(views) if protection != Protection::ReadWrite => views.populate(arena, pages),
            _ => drop(arena.populate(pages)),
        }
    }

    /// Returns the address at which a run is written.
    fn written_at(&self, run: &PackedRun) -> usize {
        match &self.views {
            Some(views) if run.protection != Protection::ReadWrite => views.writable(&run.addresses).start,
            _ => run.addresses.start,
        }
    }

    fn carve(
        &mut self,
        arena: &Mapping,
        ranges: &mut Ranges,
        protection: Protection,
        wanted: Wanted,
    ) -> Option<Range<usize>> {
        self.settle(protection, true);
        let carved = loop {
            if let Some(carved) = self.pools[protection as usize].carve(wanted.bytes, wanted.align) {
                break carved;
            }
            if self.grow(arena, ranges, protection, wanted).is_none() && !self.settle(protection, false) {
                return None;
            }
        };
        if self.bring_back(arena, protection, &carved, wanted.zero_fill).is_err() {
            let pool = &mut self.pools[protection as usize];
            // Restores the units' state from before.
            pool.rest(&carved.range, true).iter().for_each(|unit| pool.set_away(unit, false));
            carved.away.iter().for_each(|unit| pool.set_away(unit, true));
            pool.free(carved.range);
            return None;
        }
        Some(carved.range)
    }

    /// Grows a pool. Returns `None` if that fails.
    fn grow(&mut self, arena: &Mapping, ranges: &mut Ranges, protection: Protection, wanted: Wanted) -> Option<()> {
        let pool = &mut self.pools[protection as usize];
        match pool.growth(wanted.bytes, wanted.align) {
            Growth::Area(least) => {
                let size = pool.last_area().map_or(FIRST_AREA, |bytes| bytes.saturating_mul(AREA_GROWTH));
                pool.add_area(take_area(arena, ranges, size, least)?);
            }
            Growth::Map(range) => {
                match &mut self.views {
                    Some(views) if protection != Protection::ReadWrite => views.grow(arena, &range, protection),
                    _ => arena.protect(&range, Protection::ReadWrite),
                }
                .ok()?;
                self.pools[protection as usize].grown(&range);
            }
        }
        Some(())
    }

    /// Frees woken room, if there is enough of it, or if there is any and no `other_room`.
    ///
    /// Its code has been overwritten, but a core that ran it may have fetched it before; after the synchronisation none
    /// has. New code is then as visible as at unused addresses: instruction fetch is coherent with stores on x86-64,
    /// and on AArch64 each publication synchronises. (Intel's manual requires the executing core to serialise after the
    /// last store. The remaining gap: a core fetches the traps ahead of an indirect branch, keeps them until the branch
    /// is resolved, and misses the store. The worst result is a trap. Linux also reuses room for BPF programs without
    /// this: `bpf_prog_pack`.)
    fn settle(&mut self, protection: Protection, other_room: bool) -> bool {
        let pool = &mut self.pools[protection as usize];
        let settles = pool.is_worth_settling(other_room);
        if settles {
            if self.views.is_some() {
                membarrier::synchronize();
            }
            pool.settle();
        }
        settles
    }

    fn bring_back(&mut self, arena: &Mapping, protection: Protection, carved: &Carved, zero: bool) -> io::Result<()> {
        let pool = &mut self.pools[protection as usize];
        let Some(views) = &mut self.views else {
            // Whole pages, whose memory was freed after the last object.
            return if carved.fresh { Ok(()) } else { arena.protect(&carved.range, Protection::ReadWrite) };
        };
        for unit in &carved.away {
            if protection == Protection::ReadWrite {
                arena.protect(unit, protection)?;
                continue;
            }
            if pool.is_torn(unit) || arena.protect(unit, protection).is_err() {
                // New memory replaces pages that may not become executable again.
                pool.set_torn(unit, true);
                views.grow(arena, unit, protection)?;
                pool.set_torn(unit, false);
            }
            if protection == Protection::ReadExecute {
                views.fill(&pool.used_part(unit, carved), TRAP)?;
            }
        }
        if zero && protection == Protection::ReadExecute && !carved.fresh {
            views.fill(&carved.range, ZERO)?;
        }
        Ok(())
    }

    fn overwrite(&self, arena: &Mapping, run: &PackedRun, trap: Trap) -> io::Result<()> {
        match (&self.views, run.protection) {
            // Pages of its own, which are freed.
            (None, _) => Ok(()),
            (Some(views), Protection::ReadExecute) => {
                views.fill(&run.addresses, trap)?;
                arena.sync_instruction_cache(&run.addresses)
            }
            // The next object expects zeros between its parts.
            (Some(views), Protection::Read) => views.fill(&run.addresses, ZERO),
            (Some(_), Protection::ReadWrite) => arena.fill(&run.addresses, ZERO),
        }
    }
}

/// Takes an area of this size, or of half of it, and so on down to `least`.
fn take_area(arena: &Mapping, ranges: &mut Ranges, size: usize, least: usize) -> Option<Range<usize>> {
    let mut size = size.min(arena.range().len() / AREA_PART).next_multiple_of(UNIT).max(least);
    loop {
        if let Some(area) = ranges.allocate(size, UNIT) {
            return Some(area);
        }
        if size == least {
            return None;
        }
        size = (size / 2).next_multiple_of(UNIT).max(least);
    }
}

/// An object's request to a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    bytes: usize,
    align: usize,
    /// Whether some of it must be zero and is not written.
    zero_fill: bool,
}

/// Returns the bytes of a request.
pub(super) fn bytes(wanted: &[Wanted; 3]) -> usize {
    wanted.iter().map(|wanted| wanted.bytes).sum()
}

/// Returns an object's request to each pool, if it may be packed at all.
pub(super) fn wanted(segments: &[SegmentRequest], page: usize) -> Option<[Wanted; 3]> {
    let mut wanted = [Wanted { bytes: 0, align: 1, zero_fill: false }; 3];
    let mut all = 0_usize;
    for segment in segments {
        let bytes = usize::try_from(segment.content_bytes.checked_add(segment.zero_fill_bytes)?).ok()?;
        let align = usize::try_from(segment.alignment.max(1)).ok()?;
        if bytes == 0 {
            continue;
        }
        let pool = &mut wanted[segment.protection as usize];
        if pool.bytes != 0 || segment.outside || segment.lifetime != Lifetime::Standard {
            return None;
        }
        if !align.is_power_of_two() || align > page {
            return None;
        }
        *pool = Wanted { bytes, align, zero_fill: segment.zero_fill_bytes != 0 };
        all = all.checked_add(bytes)?;
    }
    (1..=MOST).contains(&all).then_some(wanted)
}
