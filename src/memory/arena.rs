//! An engine's reservation of addresses, and the state of its allocations.

mod allocate;
mod retire;

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) use self::retire::Going;
use once_cell::race::OnceBox;

use super::addresses::Addresses;
use super::layout::Layout;
use super::malloc_trim::{self, Peak};
use super::maps;
use super::os::{self, Mapping};
use super::outside::Outside;
use super::packed::{PackedRuns, Packing};
use super::place::{self, Place, Search};
use super::protection::Protection;
use super::quarantine::Quarantine;
use super::ranges::Ranges;
use super::stats::ArenaStats;
use super::warm::Warm;
use crate::fork_guard::{self, Guard, Mutex};
use crate::functions::{FunctionTable, SortedFunctions};
use crate::memory::address_log::{History, Listed, Occupant, RecordId, Writer};
use crate::memory::membarrier;
use crate::name::Name;
use crate::{Error, MemoryError, Result};

/// The size and place of an arena.
#[derive(Debug, Clone)]
pub(crate) struct ArenaConfig {
    /// Bytes to try first, rounded to pages and to the limits of an arena.
    pub(crate) size: usize,
    /// The place; anywhere if `None`.
    pub(crate) place: Option<Place>,
    /// Bytes of addresses of removed objects that are kept from reuse.
    pub(crate) quarantine: usize,
    /// Bytes of removed objects' pages that keep their memory for the next objects.
    pub(crate) warm: usize,
    /// The packing of small objects in shared pages, if wanted.
    pub(crate) packed: Option<PackedConfig>,
}

/// The packing of small objects in shared pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PackedConfig {
    /// Whether packed memory is writable only while an object is linked or removed.
    pub(crate) hardened: bool,
    /// Whether objects take whole pages even if memory with two views is available.
    pub(crate) striped: bool,
}

/// The neighbours that an object may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlacementHints {
    /// Whether it may share pages, if the arena has such: its parts need not be near each other.
    pub(crate) shares: bool,
    /// Whether its neighbours are protected and removed together with it.
    pub(crate) batch: bool,
}

impl PlacementHints {
    /// No neighbours.
    pub(crate) const ALONE: Self = Self { shares: false, batch: false };
}

impl ArenaConfig {
    /// References are signed 32-bit; 32 MiB are kept back for addends and veneers.
    pub(crate) const MAX: usize = (2 << 30) - (32 << 20);
    /// A smaller arena is useless.
    pub(crate) const MIN: usize = 8 << 20;
    /// The default of `quarantine`.
    pub(crate) const QUARANTINE: usize = 64 << 20;
    /// The default of `warm`.
    pub(crate) const WARM: usize = 8 << 20;
}

impl Default for ArenaConfig {
    fn default() -> Self {
        Self { size: Self::MAX, place: None, quarantine: Self::QUARANTINE, warm: Self::WARM, packed: None }
    }
}

/// The section that an error about a refused allocation names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blame {
    /// The object's largest section.
    Largest,
    /// The section in this segment that needs the largest alignment.
    Alignment {
        /// Index of the request.
        segment: usize,
    },
}

/// A section, for the text of an error.
#[derive(Debug, Clone, Default)]
pub(crate) struct BlamedSection {
    pub(crate) name: String,
    pub(crate) bytes: u64,
}

/// One reservation of addresses. Slabs keep it alive; the last holder unmaps it.
pub(crate) struct Arena {
    /// Dropped before the addresses may be another arena's.
    history: Listed,
    mapping: Addresses,
    page: usize,
    packs: bool,
    /// Whether the kernel knows MADV_POPULATE_WRITE (Linux 5.14), as far as seen.
    populates: AtomicBool,
    /// Whether the system refuses to make pages executable, as far as seen.
    exec_gain_refused: AtomicBool,
    /// Frees slabs that nobody uses any more, if there are any.
    frees_some: OnceBox<Box<dyn Fn() + Send + Sync>>,
    state: Mutex<State>,
}

struct State {
    ranges: Ranges,
    /// Pages that are writable, present and already taken from `ranges`, for the next small slabs.
    ready: Range<usize>,
    /// How many bytes are prepared next.
    to_prepare: usize,
    /// The end of a batch's last slab in `ready`, and its last protection.
    carved: Option<(usize, Protection)>,
    quarantine: Quarantine,
    /// Those of the resting pages that have memory.
    warm: Warm,
    packing: Option<Box<Packing>>,
    /// The writer of `history`.
    writer: Writer,
    stats: ArenaStats,
    peak: Peak,
    /// The process generation that this state belongs to.
    generation: u32,
}

/// Small slabs come from pages that are prepared this many bytes at a time, with two system calls for all of them; at
/// least this many pages, as AArch64 may have pages of 16 or 64 KiB. Fewer are enough for an engine's first slabs, and
/// twice as many each time after them, as the kernel takes a microsecond and more for each page.
const READY_BYTES: usize = 256 << 10;
const READY_PAGES: usize = 16;
const FIRST_READY_PAGES: usize = 8;
/// The largest such slab. Larger slabs gain nothing, nor do slabs of more pages than a small object's code, constants
/// and data, plus one.
const READY_LIMIT: usize = 16 << 10;
const READY_LIMIT_PAGES: usize = 4;

/// Returns the most bytes that are prepared at once.
fn most_ready(page: usize) -> usize {
    READY_BYTES.max(READY_PAGES * page)
}

/// Returns the most bytes of a slab in prepared pages.
fn small(page: usize) -> usize {
    READY_LIMIT.max(READY_LIMIT_PAGES * page)
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("mapping", &self.mapping).finish_non_exhaustive()
    }
}

impl Arena {
    /// Reserves the configured size, or half of it, and so on down to [`ArenaConfig::MIN`]. The dynamic loader gets a
    /// module for it if possible, and its lock is taken: no lock of ours may be held.
    pub(crate) fn open(config: &ArenaConfig) -> Result<Arc<Self>> {
        let arena = Self::new(config, Addresses::open(ArenaConfig::MIN, || Self::find(config))?);
        arena.prepare();
        Ok(arena)
    }

    /// Does the same without a module.
    #[cfg(any(test, slabjit_llvm_suite))]
    pub(crate) fn reserve(config: &ArenaConfig) -> Result<Arc<Self>> {
        Ok(Self::new(config, Addresses::without_module(Self::find(config)?)))
    }

    fn find(config: &ArenaConfig) -> Result<Mapping> {
        let page = os::page_size();
        let requested = config.size.clamp(ArenaConfig::MIN, ArenaConfig::MAX).next_multiple_of(page);
        let place = config.place.as_ref();
        let preferred = place.filter(|place| place.or_anywhere).and_then(|place| place::preferred(place, requested));
        let mapping = match (preferred, place.filter(|place| !place.or_anywhere)) {
            (Some(mapping), _) => mapping,
            (None, None) => halving(requested, page, place::anywhere).map_err(|source| {
                Error::Memory(MemoryError::AddressSpace { requested, minimum: ArenaConfig::MIN, source })
            })?,
            (None, Some(place)) => {
                let mut search = Search::new(place).map_err(|source| Error::Io { path: maps::PATH.into(), source })?;
                halving(requested, page, |size| search.reserve(size)).map_err(|source| {
                    Error::Memory(MemoryError::ArenaPlacement {
                        place: place.name.clone(),
                        window: place.window.clone(),
                        requested,
                        minimum: ArenaConfig::MIN,
                        largest_free: search.largest_free(),
                        source,
                    })
                })?
            }
        };
        Ok(mapping)
    }

    fn new(config: &ArenaConfig, mapping: Addresses) -> Arc<Self> {
        let page = os::page_size();
        let size = mapping.range().len();
        let stats = ArenaStats { reserved_bytes: size, ..ArenaStats::default() };
        let ranges = Ranges::new(mapping.range(), page);
        let history = Listed::new(History::new(mapping.range(), page, mapping.tables()));
        let (quarantine, writer) = (Quarantine::new(config.quarantine), Writer::default());
        let packing = config.packed.map(|packed| Box::new(Packing::new(page, packed.hardened, packed.striped)));
        if packing.is_some() {
            // Registration takes milliseconds once there are threads, so it is done before any link.
            membarrier::register();
        }
        let generation = fork_guard::generation();
        // Without quarantine, addresses are free at once.
        let warm = Warm::new(if config.quarantine == 0 { 0 } else { config.warm }, small(page) + page);
        let (ready, carved, peak) = Default::default();
        let to_prepare = FIRST_READY_PAGES * page;
        let state =
            State { ranges, ready, to_prepare, carved, quarantine, warm, packing, writer, stats, peak, generation };
        let (packs, populates) = (config.packed.is_some(), AtomicBool::new(true));
        let exec_gain_refused = AtomicBool::new(os::refuses_to_make_executable());
        let state = Mutex::new(state);
        Arc::new(Self {
            mapping,
            page,
            packs,
            populates,
            exec_gain_refused,
            history,
            frees_some: OnceBox::new(),
            state,
        })
    }

    /// Calls this when it is full: it may free slabs that nobody uses any more.
    pub(crate) fn free_some_by(&self, frees_some: impl Fn() + Send + Sync + 'static) {
        let _ = self.frees_some.set(Box::new(Box::new(frees_some)));
    }

    /// Has slabs freed that nobody uses any more.
    fn make_room(&self) {
        if let Some(frees_some) = self.frees_some.get() {
            frees_some();
        }
    }

    /// Maps memory for the first objects, so that the first one takes less time. What fails is tried again for that one.
    fn prepare(&self) {
        if self.packs {
            let State { packing, ranges, .. } = &mut *self.state();
            packing.iter_mut().for_each(|packing| packing.prepare(&self.mapping, ranges));
        } else if !self.writes_code_elsewhere() {
            self.get_ready(0, |_| ());
        }
    }

    /// Returns the addresses.
    pub(crate) fn range(&self) -> Range<usize> {
        self.mapping.range()
    }

    pub(crate) fn stats(&self) -> ArenaStats {
        let state = self.state();
        let packed = state.packing.as_ref().map(|packing| packing.mode());
        let exec_gain_refused = self.writes_code_elsewhere();
        let known_to_loader = self.mapping.known_to_loader();
        let (quarantined_bytes, warm_bytes) = (state.quarantine.bytes(), state.warm.bytes());
        ArenaStats { quarantined_bytes, warm_bytes, packed, exec_gain_refused, known_to_loader, ..state.stats }
    }

    /// Returns the present or last occupant of an address. Takes no lock and allocates nothing.
    pub(crate) fn occupant(&self, address: usize) -> Option<Occupant> {
        self.history.find(address)
    }

    /// Returns the names and addresses of an occupant's functions.
    pub(super) fn functions(&self, id: RecordId) -> Vec<(String, Range<usize>)> {
        self.history.functions(id)
    }

    /// Returns whether small objects share pages.
    pub(crate) fn packs(&self) -> bool {
        self.packs
    }

    /// Ends the writing of a packed object, or gives it up.
    pub(super) fn end_write(&self, epoch: u32) {
        if let Some(packing) = &mut self.state().packing {
            packing.end_write(epoch);
        }
    }

    /// Like [`note`](Self::note), for a packed object.
    pub(super) fn note_packed(
        &self,
        runs: &PackedRuns,
        library: &Name,
        object: &Name,
        functions: &SortedFunctions<'_>,
    ) -> Option<RecordId> {
        let runs = runs.iter(self.range().start).map(|run| run.addresses);
        let kept = (|| self.keep(functions, &self.range()), functions.frames);
        self.history.note_granules(&mut self.state().writer, runs, (library, object), kept)
    }

    /// Takes addresses whose pages are writable and present. Also returns the last protection of the batch's slab
    /// before them.
    fn take_ready(&self, len: usize) -> Option<(Range<usize>, Option<Protection>)> {
        let carved = self.state().carve(len);
        carved.or_else(|| self.get_ready(len, |state| state.carve(len))?)
    }

    /// Makes pages writable and present, at least so many bytes, and takes some of them.
    fn get_ready<R>(&self, least: usize, take: impl FnOnce(&mut State) -> R) -> Option<R> {
        let fresh = {
            let State { ranges, to_prepare, .. } = &mut *self.state();
            let fresh = ranges.allocate((*to_prepare).max(least), self.page)?;
            *to_prepare = (*to_prepare * 2).min(most_ready(self.page));
            fresh
        };
        let warm = self.warm_up(&fresh);
        let writable = self.mapping.protect(&fresh, Protection::ReadWrite).is_ok();
        if !writable || self.mapping.clear(&warm).is_err() {
            // If the call for the slab alone fails too, it reports the error.
            self.clean(fresh, false);
            return None;
        }
        if warm.is_empty() {
            self.populate(&fresh);
        }
        let (taken, rest) = {
            let mut state = self.state();
            let rest = if state.ready.end == fresh.start {
                state.ready.end = fresh.end;
                0..0
            } else {
                std::mem::replace(&mut state.ready, fresh)
            };
            (take(&mut state), rest)
        };
        self.clean(rest, false);
        Some(taken)
    }

    /// Frees the prepared pages, so that they do not make the arena look full.
    fn give_ready_back(&self) {
        let rest = std::mem::take(&mut self.state().ready);
        self.clean(rest, false);
    }

    /// Takes and counts the addresses of a slab.
    fn take(&self, layout: &Layout) -> Option<Range<usize>> {
        let mut state = self.state();
        let span = if layout.size == 0 {
            // An empty slab has an aligned address in the arena, but no memory.
            let start = self.range().start.next_multiple_of(layout.align);
            start..start
        } else {
            state.ranges.allocate(layout.size, layout.align)?
        };
        state.stats.slabs += 1;
        state.stats.slab_bytes += span.len();
        Some(span)
    }

    fn exhausted(&self, object: &Name, requested: u64, name_section: impl FnOnce(Blame) -> BlamedSection) -> Error {
        let largest_free = self.state().ranges.largest() as u64;
        let section = name_section(Blame::Largest);
        Error::Memory(MemoryError::ArenaExhausted {
            object: object.to_string(),
            requested,
            section: section.name,
            section_bytes: section.bytes,
            largest_free,
            arena_bytes: self.range().len() as u64,
        })
    }

    pub(super) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    pub(super) fn page(&self) -> usize {
        self.page
    }

    /// Returns whether written pages never become executable, so that code is written through a second view of its
    /// memory.
    pub(super) fn writes_code_elsewhere(&self) -> bool {
        self.exec_gain_refused.load(Ordering::Relaxed)
    }

    /// Records that the system has refused to make pages executable.
    pub(super) fn write_code_elsewhere(&self) {
        self.exec_gain_refused.store(true, Ordering::Relaxed);
    }

    /// Takes the memory of slabs' pages away.
    fn take_pages_away(&self, range: &Range<usize>, of_file: bool) -> io::Result<()> {
        match of_file || self.writes_code_elsewhere() {
            false => self.mapping.take_away(range),
            true => self.mapping.take_view_away(range),
        }
    }

    /// Populates pages that are about to be written. A hint: page faults bring them in otherwise.
    pub(super) fn populate(&self, range: &Range<usize>) {
        if self.populates.load(Ordering::Relaxed) {
            let unknown = self.mapping.populate(range).is_err_and(|e| e.kind() == io::ErrorKind::InvalidInput);
            if unknown {
                self.populates.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Frees the addresses of a slab, or a part of them, that were never given out.
    pub(super) fn release(&self, range: Range<usize>, of_file: bool) {
        self.state().stats.slab_bytes -= range.len();
        self.clean(range, of_file);
    }

    /// Takes the memory of a range away and frees its addresses.
    fn clean(&self, range: Range<usize>, of_file: bool) {
        if range.is_empty() {
            return;
        }
        let clean = self.take_pages_away(&range, of_file);
        let mut state = self.state();
        match clean {
            Ok(()) => state.ranges.free(range),
            Err(_) => state.stats.lost_bytes += range.len(),
        }
    }

    /// Records the owner of an address range, in the arena or outside.
    pub(super) fn note(
        &self,
        range: &Range<usize>,
        library: &Name,
        object: &Name,
        functions: &SortedFunctions<'_>,
    ) -> Option<RecordId> {
        let kept = (|| self.keep(functions, range), functions.frames);
        self.history.note(&mut self.state().writer, range, (library, object), kept)
    }

    /// Keeps the functions in a range: where the dynamic loader finds them, if it knows the arena.
    fn keep(&self, functions: &SortedFunctions<'_>, range: &Range<usize>) -> Option<FunctionTable> {
        self.mapping.list(functions, range).map(FunctionTable::Symbols).or_else(|| functions.table(range))
    }

    pub(super) fn count_outside(&self, outside: &Outside) {
        self.state().stats.outside_bytes += outside.mapped_bytes();
    }

    /// Unmaps a segment that was [counted](Self::count_outside), and whose addresses were never given out.
    pub(super) fn release_outside(&self, outside: Outside) {
        self.state().stats.outside_bytes -= outside.mapped_bytes();
        self.unmap_outside(outside);
    }

    pub(super) fn count_slab_gone(&self) {
        let left = self.state().so_many_go(1);
        self.give_back_after(left);
    }

    /// Gives back what is kept for other slabs, if so few of them are left.
    fn give_back_after(&self, left: Remaining) {
        if left.none {
            self.give_ready_back();
        }
        if left.few {
            malloc_trim::trim();
        }
    }

    /// Locks the state. No code that can panic runs under the lock, so a poisoned one holds a sound state.
    fn state(&self) -> Guard<'_, State> {
        let mut state = self.state.lock();
        if state.generation != fork_guard::generation() {
            state.generation = fork_guard::generation();
            if let Some(packing) = &mut state.packing {
                packing.inherit();
            }
            // The parent's memory goes with the parent's pages only if this process has none of it.
            while let Some(pages) = state.warm.pop() {
                let _ = self.take_pages_away(&pages, false);
            }
            let resting = state.quarantine.keep_for_good();
            state.stats.lost_bytes += resting;
        }
        state
    }
}

/// Tries sizes by halving; returns the error of the smallest.
fn halving(
    requested: usize,
    page: usize,
    mut reserve: impl FnMut(usize) -> io::Result<Mapping>,
) -> io::Result<Mapping> {
    let mut size = requested;
    loop {
        match reserve(size) {
            Err(_) if size > ArenaConfig::MIN => size = (size / 2).max(ArenaConfig::MIN).next_multiple_of(page),
            end => return end,
        }
    }
}

/// How many slabs there are after one has gone.
#[derive(Clone, Copy)]
struct Remaining {
    none: bool,
    /// Half as many as there were, of many.
    few: bool,
}

impl State {
    /// Counts slabs that go.
    fn so_many_go(&mut self, slabs: usize) -> Remaining {
        self.stats.slabs -= slabs;
        let left = self.stats.slabs;
        Remaining { none: left == 0, few: self.peak.is_past(left) }
    }

    /// Takes the front of the prepared pages for a slab.
    fn carve(&mut self, len: usize) -> Option<(Range<usize>, Option<Protection>)> {
        let start = self.ready.start;
        let end = start.checked_add(len).filter(|end| *end <= self.ready.end)?;
        self.ready.start = end;
        self.stats.slabs += 1;
        self.stats.slab_bytes += len;
        let neighbour = self.carved.filter(|(end, _)| *end == start).map(|(_, protection)| protection);
        Some((start..end, neighbour))
    }
}

#[cfg(test)]
impl Arena {
    pub(super) fn largest_free(&self) -> usize {
        self.state().ranges.largest()
    }

    /// Does what the next object does after a fork.
    pub(super) fn begin_anew(&self) {
        self.state().packing.iter_mut().for_each(|packing| packing.inherit());
    }

    pub(super) fn forget_lost(&self) {
        self.state().stats.lost_bytes = 0;
    }
}
