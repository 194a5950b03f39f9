//! Small objects side by side: pools of one protection each, in which an object takes as many cache lines as it has bytes for.
//!
//! Code and constants are written through a second view of their memory ([`views`]), so that no page changes its protection when an
//! object comes. Where the system does not allow that, objects take whole pages ([`PackedMode::PageStriped`]).
//!
//! A child of `fork` shares what was packed before with its parent. Whatever either of them would write there, the other one would see: so
//! after a fork both begin an [`Epoch`] of their own, and what is removed of an older one stays as it is until nothing alive is left in
//! its unit.

mod held;
mod pool;
mod runs;
mod views;

use std::io;
use std::ops::Range;

pub(super) use self::held::PackedSlab;
pub(super) use self::pool::UNIT;
use self::pool::{Carved, FIRST_STEP, Growth, Pool};
pub(super) use self::runs::{PackedRun, PackedRuns, Placing};
use self::views::Views;
use super::os::Mapping;
use super::ranges::Ranges;
use super::{Lifetime, Protection, SegmentRequest, cores};
use crate::gate;

/// How objects are packed; see [`ArenaStats::packed`](super::ArenaStats::packed).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PackedMode {
    /// At cache lines. Code and constants are shared memory, which is written through a second view.
    TwoViews,
    /// At pages, whose protection changes for each object: the system gives no memory that can be mapped twice and run.
    PageStriped,
}

/// Larger objects have a slab of their own.
pub(super) const MOST: usize = 256 << 10;
/// A cache line of x86-64, and of most AArch64.
pub(super) const LINE: usize = 64;
/// A pool's first area; each other one is larger. After a fork, all pools begin anew.
const FIRST_AREA: usize = 256 << 10;
const AREA_GROWTH: usize = 8;
/// No area is more than this part of the arena.
const AREA_PART: usize = 16;

/// How an object's room is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// Overwritten. Somebody may have run what was there.
    Used,
    /// Overwritten, and nobody was told of it.
    Unseen,
    /// As it was.
    Dirty,
}

/// What is there instead of code: `int3`, or `udf #0`.
const TRAP: [u8; 4] = if cfg!(target_arch = "aarch64") { [0; 4] } else { [0xcc; 4] };

/// What code that is removed is overwritten with. `udf` has 16 bits to say which generation it was.
fn trap(generation: u64) -> [u8; 4] {
    if cfg!(target_arch = "aarch64") { u32::from(generation as u16).to_le_bytes() } else { TRAP }
}

const ZERO: [u8; 4] = [0; 4];

#[derive(Debug)]
pub(super) struct Packing {
    page: usize,
    hardened: bool,
    /// Two views are not wanted.
    striped: bool,
    mode: PackedMode,
    current: Option<Epoch>,
    /// Those from before a fork.
    older: Vec<Epoch>,
    epochs: u32,
}

/// What was packed between two forks.
#[derive(Debug)]
struct Epoch {
    number: u32,
    forks: u64,
    views: Option<Views>,
    /// By protection.
    pools: [Pool; 3],
    /// Objects that live or rest.
    outstanding: usize,
}

impl Packing {
    pub(super) fn new(page: usize, hardened: bool, striped: bool) -> Self {
        let mode = if striped { PackedMode::PageStriped } else { PackedMode::TwoViews };
        Self { page, hardened, striped, mode, current: None, older: Vec::new(), epochs: 0 }
    }

    /// How objects are packed, or will be for all that is known.
    pub(super) fn mode(&self) -> PackedMode {
        self.mode
    }

    /// Whether what has this number may still be written.
    pub(super) fn is_current(&self, epoch: u32) -> bool {
        self.current.as_ref().is_some_and(|current| current.number == epoch && current.forks == gate::forks())
    }

    /// Takes room for an object: bytes and alignment for each protection. It is writable until [`end_write`](Self::end_write). None if
    /// there is none: the object may find room for a slab of its own, or learn why not.
    pub(super) fn take(&mut self, arena: &Mapping, ranges: &mut Ranges, wanted: [Wanted; 3]) -> Option<Placing> {
        if self.current.as_ref().is_some_and(|epoch| epoch.forks != gate::forks()) {
            self.begin_epoch();
        }
        if self.current.is_none() {
            let epoch = Epoch::new(self, arena);
            self.mode = if epoch.views.is_some() { PackedMode::TwoViews } else { PackedMode::PageStriped };
            self.epochs += 1;
            self.current = Some(epoch);
        }
        let taken = self.current.as_mut()?.take(arena, ranges, wanted);
        if taken.is_none() {
            self.end_if_idle(arena, ranges);
        }
        taken
    }

    /// What was packed so far stays as it is.
    fn begin_epoch(&mut self) {
        if let Some(mut old) = self.current.take() {
            // Nobody is to write there any more.
            old.views = None;
            self.older.push(old);
        }
    }

    /// The object is written, or was given up.
    pub(super) fn end_write(&mut self, epoch: u32) {
        let current = self.current.as_mut().filter(|current| current.number == epoch);
        if let Some(Epoch { views: Some(views), pools, .. }) = current {
            views.end_write(two_views(pools));
        }
    }

    /// Lets what is current be written, as for an object that is taken.
    pub(super) fn begin_write(&mut self) -> io::Result<()> {
        match &mut self.current {
            Some(Epoch { views: Some(views), pools, .. }) => views.begin_write(two_views(pools)),
            _ => Ok(()),
        }
    }

    /// Overwrites an object's room, of the current epoch and between `begin_write` and `end_write`. Nothing alive is there.
    pub(super) fn overwrite(&self, arena: &Mapping, runs: &PackedRuns, generation: u64) -> io::Result<()> {
        let Some(epoch) = &self.current else { return Ok(()) };
        for run in runs.iter(arena.range().start) {
            epoch.overwrite(arena, &run, trap(generation))?;
        }
        Ok(())
    }

    /// An object's room is not alive any more; if it is of the current epoch, between `begin_write` and `end_write`. After an error it is not
    /// clean: see [`wake`](Self::wake).
    pub(super) fn rest(&mut self, arena: &Mapping, runs: &PackedRuns, epoch: u32) -> io::Result<()> {
        let is_current = self.is_current(epoch);
        let Some(found) = self.epoch(epoch) else { return Ok(()) };
        let mut clean = Ok(());
        for run in runs.iter(arena.range().start) {
            let pool = &mut found.pools[run.protection as usize];
            for unit in pool.rest(&run.addresses, is_current) {
                let denied = match &found.views {
                    // Whoever else has the memory keeps it.
                    _ if !is_current && run.protection == Protection::ReadWrite => arena.take_away(&unit),
                    _ if !is_current => arena.take_view_away(&unit),
                    Some(_) => arena.deny(&unit),
                    None => Ok(()),
                };
                if denied.is_err() {
                    pool.set_away(&unit, false);
                } else if let Some(views) = found.views.as_ref().filter(|_| is_current) {
                    // What is not returned stays as it is: overwritten.
                    let _ = match run.protection {
                        Protection::ReadWrite => arena.discard(&unit),
                        _ => views.discard(&unit),
                    };
                }
            }
            if found.views.is_none() && is_current {
                // Pages of its own.
                clean = arena.take_away(&run.addresses).and(clean);
            }
        }
        clean
    }

    /// An object's room has rested, or needs none. Others may have it if it is clean, or else when nothing is left of its epoch.
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

    /// Gives everything back of epochs in which nothing lives or rests.
    fn end_if_idle(&mut self, arena: &Mapping, ranges: &mut Ranges) {
        let current = self.current.take_if(|epoch| epoch.outstanding == 0);
        let older = self.older.extract_if(.., |epoch| epoch.outstanding == 0);
        for epoch in older.chain(current) {
            for (protection, pool) in runs::PROTECTIONS.into_iter().zip(epoch.pools) {
                for area in pool.into_areas() {
                    let clean = match protection {
                        Protection::ReadWrite => arena.take_away(&area),
                        _ => arena.take_view_away(&area),
                    };
                    // What cannot be cleaned is not used again.
                    if clean.is_ok() {
                        ranges.free(area);
                    }
                }
            }
        }
    }

    /// In a child of `fork`: what it inherited stays where it is.
    pub(super) fn inherit(&mut self) {
        self.begin_epoch();
    }
}

/// What is mapped twice.
fn two_views(pools: &[Pool; 3]) -> impl Iterator<Item = Range<usize>> {
    pools[..Protection::ReadWrite as usize].iter().flat_map(Pool::mapped)
}

impl Epoch {
    fn new(packing: &Packing, arena: &Mapping) -> Self {
        let views = || Views::new(arena.range(), packing.hardened).ok();
        let views = if packing.striped { None } else { views() };
        let granule = if views.is_some() { LINE } else { packing.page };
        let pools = runs::PROTECTIONS.map(|protection| match protection {
            // Each growth takes memory of its own, hence a mapping: an area grows at once.
            Protection::ReadExecute | Protection::Read if views.is_some() => Pool::new(granule, usize::MAX),
            _ => Pool::new(granule, FIRST_STEP),
        });
        Self { number: packing.epochs, forks: gate::forks(), views, pools, outstanding: 0 }
    }

    fn take(&mut self, arena: &Mapping, ranges: &mut Ranges, wanted: [Wanted; 3]) -> Option<Placing> {
        if let Some(views) = &mut self.views {
            views.begin_write(two_views(&self.pools)).ok()?;
        }
        let mut runs = PackedRuns::default();
        for (protection, wanted) in runs::PROTECTIONS.into_iter().zip(wanted) {
            if wanted.bytes == 0 {
                continue;
            }
            let Some(carved) = self.carve(arena, ranges, protection, wanted) else {
                self.give_back(arena, &runs);
                return None;
            };
            runs.set(arena.range().start, protection, &carved);
        }
        self.outstanding += 1;
        let written = runs.each(arena.range().start, |run| self.written_at(run));
        Some(Placing { epoch: self.number, runs, written, two_views: self.views.is_some() })
    }

    /// Undoes a part of `take`.
    fn give_back(&mut self, arena: &Mapping, runs: &PackedRuns) {
        for run in runs.iter(arena.range().start) {
            let pool = &mut self.pools[run.protection as usize];
            // Units keep their memory: nothing was written.
            for unit in pool.rest(&run.addresses, true) {
                pool.set_away(&unit, false);
            }
            pool.free(run.addresses);
        }
        if let Some(views) = &mut self.views {
            views.end_write(two_views(&self.pools));
        }
    }

    /// Where what comes to lie at a run is written.
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
            // They go as they came.
            pool.rest(&carved.range, true).iter().for_each(|unit| pool.set_away(unit, false));
            carved.away.iter().for_each(|unit| pool.set_away(unit, true));
            pool.free(carved.range);
            return None;
        }
        Some(carved.range)
    }

    /// Makes a pool larger. None if that cannot be.
    fn grow(&mut self, arena: &Mapping, ranges: &mut Ranges, protection: Protection, wanted: Wanted) -> Option<()> {
        let pool = &mut self.pools[protection as usize];
        match pool.growth(wanted.bytes, wanted.align) {
            Growth::Area(least) => {
                let size = pool.last_area().map_or(FIRST_AREA, |bytes| bytes.saturating_mul(AREA_GROWTH));
                pool.add_area(take_area(arena, ranges, size, least)?);
            }
            Growth::Map(range) => {
                match &self.views {
                    Some(views) if protection != Protection::ReadWrite => views.grow(arena, &range, protection),
                    _ => arena.protect(&range, Protection::ReadWrite),
                }
                .ok()?;
                self.pools[protection as usize].grown(&range);
            }
        }
        Some(())
    }

    /// Makes room of what has been woken, if there is enough of it, or any and no `other_room`.
    ///
    /// Its code has been overwritten. A core that ran it may have fetched it before that; from here on none has it any more. What comes there is
    /// seen as code at unused addresses is: instruction fetch is coherent with stores on x86-64, and on AArch64 each publication is
    /// told. (Intel's manual has the executing core serialise after the last store. What lies between is that a core fetches traps
    /// there ahead of an indirect branch, holds on to them until the branch is resolved, and misses the store: the worst that could come of
    /// it is a trap. Linux reuses room for BPF programs as well without telling: `bpf_prog_pack`.)
    fn settle(&mut self, protection: Protection, other_room: bool) -> bool {
        let pool = &mut self.pools[protection as usize];
        let settles = pool.is_worth_settling(other_room);
        if settles {
            if self.views.is_some() {
                cores::synchronize();
            }
            pool.settle();
        }
        settles
    }

    fn bring_back(&mut self, arena: &Mapping, protection: Protection, carved: &Carved, zero: bool) -> io::Result<()> {
        let pool = &mut self.pools[protection as usize];
        let Some(views) = &self.views else {
            // Whole pages, which were taken away from those that had them before.
            return if carved.fresh { Ok(()) } else { arena.protect(&carved.range, Protection::ReadWrite) };
        };
        for unit in &carved.away {
            if protection == Protection::ReadWrite {
                arena.protect(unit, protection)?;
                continue;
            }
            if pool.is_torn(unit) || arena.protect(unit, protection).is_err() {
                // Where no page may become executable again, it gets new memory.
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

    fn overwrite(&self, arena: &Mapping, run: &PackedRun, trap: [u8; 4]) -> io::Result<()> {
        match (&self.views, run.protection) {
            // Pages of its own, which are taken away.
            (None, _) => Ok(()),
            (Some(views), Protection::ReadExecute) => {
                views.fill(&run.addresses, trap)?;
                arena.sync_instruction_cache(&run.addresses)
            }
            // What comes there expects zeros between its parts.
            (Some(views), Protection::Read) => views.fill(&run.addresses, ZERO),
            (Some(_), Protection::ReadWrite) => arena.fill(&run.addresses, ZERO),
        }
    }
}

/// Takes an area of this size, if there is room, or of half, and so on down to `least`.
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

/// What an object wants of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    bytes: usize,
    align: usize,
    /// Some of it must be zero and is not written.
    zero_fill: bool,
}

/// What an object wants of each pool, if it may be packed at all.
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
