//! The search for an arena's place among the free addresses.

use std::io;
use std::ops::Range;

use super::maps;
use super::os::{self, Mapping};

/// Functions at multiples of it cannot be unwound. Their address in the unwind table, modulo 4 GiB, is 0, and libgcc
/// treats them as discarded functions (`unwind-dw2-fde.c`, which masks addresses of 4 bytes): exceptions and panics
/// cannot pass through them, and end the process. No arena has such a page.
const BLIND: usize = 1 << 32;

/// Returns the first page of a range that no arena may have. The range begins with a page.
pub(super) fn blind(range: &Range<usize>) -> Option<usize> {
    range.start.checked_next_multiple_of(BLIND).filter(|page| *page < range.end)
}

/// Reserves addresses at the kernel's choice.
pub(super) fn anywhere(size: usize) -> io::Result<Mapping> {
    Mapping::reserve_without(size, blind)
}

/// The addresses that an arena may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The range that contains the whole arena.
    pub(crate) window: Range<usize>,
    /// A range that the arena must not overlap.
    pub(crate) left_out: Range<usize>,
    /// The address that the arena should be near.
    pub(crate) anchor: usize,
    /// Whether the arena may lie anywhere if the window has room for less than half of the wanted size.
    pub(crate) or_anywhere: bool,
    /// A description for errors: "within 2 GiB of ...".
    pub(crate) name: String,
}

impl Place {
    /// The largest distance between a byte of the arena and its targets. A relocation's signed 32 bits reach 2 GiB; the
    /// rest is for addends, which count from the end of an instruction and into a target.
    pub(crate) const REACH: usize = (2 << 30) - (1 << 20);

    /// The room that is left free on each side of libraries, for stacks of threads, malloc's arenas, and later
    /// libraries.
    pub(crate) const ROOM: usize = 256 << 20;

    /// Returns a place with all `targets` in reach of each byte. The window is empty if there is no such byte.
    pub(crate) fn near(targets: &Range<usize>, name: String) -> Self {
        let window = targets.end.saturating_sub(Self::REACH)..targets.start.saturating_add(Self::REACH);
        Self { window, left_out: 0..0, anchor: targets.start + targets.len() / 2, or_anywhere: false, name }
    }

    /// Returns a preferred place near the targets, with room beside them for later mappings of the process. It prefers
    /// addresses above: the kernel gives out addresses from the libraries downwards (`mmap_base` in arch/x86/mm/mmap.c
    /// and mm/util.c), and none in the up to 1 TiB between them and the stack.
    pub(crate) fn rather_near(targets: &Range<usize>, name: String) -> Self {
        let left_out = targets.start.saturating_sub(Self::ROOM)..targets.end.saturating_add(Self::ROOM);
        Self { left_out, anchor: targets.end, or_anywhere: true, ..Self::near(targets, name) }
    }

    /// Returns a place whose addresses are positive signed 32-bit numbers (also the end, without addends). It prefers
    /// the upper end, because position-dependent executables and their heap are at the lower one.
    pub(crate) fn low_2_gib() -> Self {
        let window = 0..Self::REACH;
        Self { window, left_out: 0..0, anchor: Self::REACH, or_anywhere: false, name: "in the lowest 2 GiB".to_owned() }
    }
}

/// Reserves addresses of a preferred place: the wanted size, or at least half of it.
pub(super) fn preferred(place: &Place, size: usize) -> Option<Mapping> {
    let mut search = Search::new(place).ok()?;
    let room = search.largest_free().min(size);
    if room < size / 2 {
        return None;
    }
    search.reserve(room).ok()
}

/// The search for one arena, over the tried sizes.
#[derive(Debug)]
pub(super) struct Search<'a> {
    place: &'a Place,
    window: Range<usize>,
    free: Vec<Range<usize>>,
    /// How often the list of mappings may still be reread because it was outdated.
    refreshes: usize,
}

impl<'a> Search<'a> {
    pub(super) fn new(place: &'a Place) -> io::Result<Self> {
        let page = os::page_size();
        let start = place.window.start.max(maps::lowest_address()).next_multiple_of(page);
        let window = start..start.max(place.window.end & !(page - 1));
        let mut search = Self { place, window, free: Vec::new(), refreshes: 3 };
        search.read()?;
        Ok(search)
    }

    fn read(&mut self) -> io::Result<()> {
        let (page, mut rest) = (os::page_size(), maps::free(&maps::taken()?, &self.window));
        let left_out = |piece: &Range<usize>| {
            let Range { start, end } = self.place.left_out;
            let (start, end) = (start.max(piece.start) & !(page - 1), end.min(piece.end).next_multiple_of(page));
            (start < end).then_some(start..end)
        };
        self.free.clear();
        while let Some(piece) = rest.pop() {
            match left_out(&piece).or_else(|| blind(&piece).map(|blind| blind..blind + page)) {
                Some(not) => {
                    rest.extend([piece.start..not.start, not.end..piece.end].into_iter().filter(|r| !r.is_empty()))
                }
                None => self.free.push(piece),
            }
        }
        self.free.reverse();
        Ok(())
    }

    /// Returns the size of the largest known free piece.
    pub(super) fn largest_free(&self) -> usize {
        self.free.iter().map(|r| r.len()).max().unwrap_or(0)
    }

    /// Reserves `size` bytes, a multiple of the page size.
    pub(super) fn reserve(&mut self, size: usize) -> io::Result<Mapping> {
        loop {
            let mut failure = io::Error::other("no free piece of them is large enough");
            let mut outdated = false;
            for start in candidates(&self.free, size, self.place.anchor) {
                match Mapping::reserve_at(start, size) {
                    Ok(mapping) => return Ok(mapping),
                    Err(error) => {
                        outdated |= error.kind() == io::ErrorKind::AlreadyExists;
                        failure = error;
                    }
                }
            }
            if !outdated || self.refreshes == 0 {
                return Err(failure);
            }
            self.refreshes -= 1;
            self.read()?;
        }
    }
}

/// Returns the addresses to try in the free pieces, nearest to the anchor first: in each piece the nearest place, and
/// then its neighbours, for mappings that the list does not show (of other threads, or of an emulator).
pub(super) fn candidates(free: &[Range<usize>], size: usize, anchor: usize) -> Vec<usize> {
    let page = os::page_size();
    let mut starts = Vec::new();
    for piece in free.iter().filter(|piece| piece.len() >= size) {
        let last = piece.end - size;
        let best = (anchor.saturating_sub(size / 2) & !(page - 1)).clamp(piece.start, last);
        starts.extend((piece.start..=best).rev().step_by(size));
        starts.extend((best..=last).step_by(size).skip(1));
    }
    starts.sort_by_key(|start| (start + size / 2).abs_diff(anchor));
    starts
}
