//! A place for an arena: the addresses it may have, and the search for free ones among them.

use std::io;
use std::ops::Range;

use super::maps;
use super::os::{self, Mapping};

/// Functions at multiples of it cannot be unwound. Their address in the unwind table, less 4 GiB as often as possible, is 0, and libgcc takes
/// them for functions that the linker has discarded (`unwind-dw2-fde.c`, where it masks what has 4 bytes): exceptions and panics do not
/// get through them, and end the process. No arena has such a page.
const BLIND: usize = 1 << 32;

/// The first page of a range, which begins with a page, that no arena may have.
pub(super) fn blind(range: &Range<usize>) -> Option<usize> {
    range.start.checked_next_multiple_of(BLIND).filter(|page| *page < range.end)
}

/// Addresses wherever the kernel has them.
pub(super) fn anywhere(size: usize) -> io::Result<Mapping> {
    Mapping::reserve_without(size, blind)
}

/// Which addresses an arena may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// All bytes of the arena lie in it.
    pub(crate) window: Range<usize>,
    /// None of them lies in it.
    pub(crate) left_out: Range<usize>,
    /// As near to this as possible.
    pub(crate) anchor: usize,
    /// Where there is less room than half of what is asked for, anywhere will do.
    pub(crate) or_anywhere: bool,
    /// For errors: "within 2 GiB of ...".
    pub(crate) name: String,
}

impl Place {
    /// How far a byte of the arena may be from what it refers to. A relocation's signed 32 bits have 2 GiB; the rest is for
    /// addends, which count from the end of an instruction and into a target.
    pub(crate) const REACH: usize = (2 << 30) - (1 << 20);

    /// Room that is left on each side of libraries: for stacks of threads, malloc's arenas, and libraries to come.
    pub(crate) const ROOM: usize = 256 << 20;

    /// From each of its bytes every one of `targets` is in reach. The window is empty where there is no such byte.
    pub(crate) fn near(targets: &Range<usize>, name: String) -> Self {
        let window = targets.end.saturating_sub(Self::REACH)..targets.start.saturating_add(Self::REACH);
        Self { window, left_out: 0..0, anchor: targets.start + targets.len() / 2, or_anywhere: false, name }
    }

    /// The same, and only where much is free, with room beside the targets for what the process maps there later. Rather above them: the kernel
    /// gives out addresses from the libraries downwards (`mmap_base` in arch/x86/mm/mmap.c and mm/util.c), and none between
    /// them and the stack, of which there are up to 1 TiB.
    pub(crate) fn rather_near(targets: &Range<usize>, name: String) -> Self {
        let left_out = targets.start.saturating_sub(Self::ROOM)..targets.end.saturating_add(Self::ROOM);
        Self { left_out, anchor: targets.end, or_anywhere: true, ..Self::near(targets, name) }
    }

    /// Each of its addresses is a positive signed number of 32 bits (and so is one behind the end, less addends). From the
    /// upper end, because executables that are not position-independent, and their heap, are at the lower one.
    pub(crate) fn low_2_gib() -> Self {
        let window = 0..Self::REACH;
        Self { window, left_out: 0..0, anchor: Self::REACH, or_anywhere: false, name: "in the lowest 2 GiB".to_owned() }
    }
}

/// Addresses that a place has without being tight: as many as are asked for, or at least half of them.
pub(super) fn preferred(place: &Place, size: usize) -> Option<Mapping> {
    let mut search = Search::new(place).ok()?;
    let room = search.largest_free().min(size);
    if room < size / 2 {
        return None;
    }
    search.reserve(room).ok()
}

/// The search for one arena, over the sizes that are tried.
#[derive(Debug)]
pub(super) struct Search<'a> {
    place: &'a Place,
    window: Range<usize>,
    free: Vec<Range<usize>>,
    /// How often the list of mappings may still be read again, because it was out of date.
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

    /// The largest free piece, as far as is known.
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

/// Where to try in the free pieces, nearest to the anchor first: in each piece the nearest place, and then one beside the
/// other, for what the list does not show (a thread that was faster; an emulator's own memory).
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
