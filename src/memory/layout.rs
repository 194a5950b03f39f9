//! The layout of an object's segments in its slab: arithmetic only.

use std::ops::Range;

use smallvec::SmallVec;

use super::Protection;

/// The largest alignment of a segment: one huge page of x86-64, and of AArch64 with 4 KiB pages.
pub(crate) const MAX_ALIGNMENT: u64 = 2 << 20;

/// Bytes of a cache line, of x86-64 and of most AArch64.
pub(super) const CACHE_LINE: usize = 64;
/// Neighbours' multiples of it are far apart: 2^64 by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The lifetime of a segment's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lifetime {
    /// While the object lives.
    Standard,
    /// Until the object is finalised.
    Finalize,
}

/// One segment of an object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SegmentRequest {
    pub(crate) protection: Protection,
    pub(crate) lifetime: Lifetime,
    /// A power of two; 0 counts as 1.
    pub(crate) alignment: u64,
    /// Bytes of contents.
    pub(crate) content_bytes: u64,
    /// Bytes of zero-fill after them, which are not touched.
    pub(crate) zero_fill_bytes: u64,
    /// Whether the segment has a mapping of its own outside the arena, because no short reference leads to it.
    pub(crate) outside: bool,
    /// The part of its contents that is overwritten before the slab is published, and so need not be zero before.
    pub(crate) overwritten: Extent,
}

/// Offsets in a segment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extent {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
}

/// The reason why there is no layout.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LayoutError {
    /// The alignment exceeds [`MAX_ALIGNMENT`].
    Alignment { segment: usize },
    /// The alignment is not a power of two.
    Malformed { segment: usize },
    /// The sizes do not fit the address space.
    TooLarge,
}

/// A run of pages with one protection and one lifetime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) offsets: Range<usize>,
    pub(super) protection: Protection,
}

/// One segment, at an offset from the slab's start, or from its own mapping's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) offset: usize,
    pub(super) content: usize,
    /// Content and zero-fill.
    pub(super) size: usize,
    pub(super) align: usize,
    pub(super) outside: bool,
}

/// The layout of one slab: `R-X | R-- | RW-`, then the segments that are freed after finalisation.
#[derive(Debug)]
pub(super) struct Layout {
    /// In the order of the requests. Empty ones are at offset 0 and take no room.
    pub(super) segments: SmallVec<[Segment; 3]>,
    /// In the order of addresses, without gaps: padding belongs to the run before it.
    pub(super) runs: SmallVec<[Run; 3]>,
    /// Offset of the Finalize-lifetime runs; `size` if there are none.
    pub(super) finalize: usize,
    /// Size of the slab, a multiple of the page size.
    pub(super) size: usize,
    /// Alignment of the slab.
    pub(super) align: usize,
}

impl Layout {
    pub(super) fn new(requests: &[SegmentRequest], page: usize) -> Result<Self, LayoutError> {
        let mut segments = SmallVec::<[Segment; 3]>::with_capacity(requests.len());
        for (index, request) in requests.iter().enumerate() {
            segments.push(segment(index, request, page)?);
        }
        let inside = |s: &Segment| !s.has_own_mapping();
        let align = segments.iter().filter(|s| inside(s)).map(|s| s.align).max().unwrap_or(page);

        let mut order: SmallVec<[usize; 3]> =
            (0..requests.len()).filter(|&i| inside(&segments[i]) && segments[i].size > 0).collect();
        order.sort_unstable_by_key(|&i| (rank(&requests[i]), i));

        let mut layout = Self { segments, runs: SmallVec::new(), finalize: 0, size: 0, align };
        let mut previous = None;
        for index in order {
            let (segment, request) = (&mut layout.segments[index], &requests[index]);
            let start = layout.size.checked_next_multiple_of(segment.align).ok_or(LayoutError::TooLarge)?;
            let end = start.checked_add(segment.size).and_then(|end| end.checked_next_multiple_of(page));
            segment.offset = start;
            if let Some(last) = layout.runs.last_mut() {
                last.offsets.end = start;
            }
            if previous != Some(rank(request)) {
                layout.runs.push(Run { offsets: start..start, protection: request.protection });
                previous = Some(rank(request));
            }
            if request.lifetime == Lifetime::Standard {
                layout.finalize = end.ok_or(LayoutError::TooLarge)?;
            } else if layout.finalize == layout.size {
                // Padding before the first of them stays with the run before.
                layout.finalize = start;
            }
            layout.size = end.ok_or(LayoutError::TooLarge)?;
            if let Some(last) = layout.runs.last_mut() {
                last.offsets.end = layout.size;
            }
        }
        Ok(layout)
    }

    /// Lays segments out at these offsets, which ascend from 0 by whole pages.
    pub(super) fn fixed(requests: &[SegmentRequest], offsets: &[u64], page: usize) -> Result<Self, LayoutError> {
        let mut layout = Self { segments: SmallVec::new(), runs: SmallVec::new(), finalize: 0, size: 0, align: page };
        for (index, (request, offset)) in requests.iter().zip(offsets).enumerate() {
            let mut segment = segment(index, request, page)?;
            let start = usize::try_from(*offset).map_err(|_| LayoutError::TooLarge)?;
            if start < layout.size || !start.is_multiple_of(page) || index == 0 && start != 0 {
                return Err(LayoutError::Malformed { segment: index });
            }
            segment.offset = start;
            layout.align = layout.align.max(segment.align);
            layout.runs.last_mut().into_iter().for_each(|last| last.offsets.end = start);
            let end = start.checked_add(segment.size).and_then(|end| end.checked_next_multiple_of(page));
            layout.size = end.ok_or(LayoutError::TooLarge)?;
            layout.runs.push(Run { offsets: start..layout.size, protection: request.protection });
            layout.segments.push(segment);
        }
        layout.finalize = layout.size;
        Ok(layout)
    }

    /// Reverses the runs if the slab then begins with the protection with which its neighbour ends: the kernel then has
    /// one mapping for both. Finalize-lifetime runs stay last.
    pub(super) fn turn_to(&mut self, neighbour: Protection) {
        if self.end() != Some(neighbour) || self.finalize != self.size {
            return;
        }
        for segment in self.segments.iter_mut().filter(|s| !s.has_own_mapping() && s.size > 0) {
            if let Some(run) = self.runs.iter().find(|run| run.offsets.contains(&segment.offset)) {
                segment.offset = segment.offset - run.offsets.start + (self.size - run.offsets.end);
            }
        }
        for run in &mut self.runs {
            run.offsets = self.size - run.offsets.end..self.size - run.offsets.start;
        }
        self.runs.reverse();
    }

    /// Moves all segments by a number of cache lines that depends on the slab's address, as far as their last pages have
    /// room. A cache chooses a line's set by its place in a page. If all functions were at the start of a page, a program
    /// that calls many of them would use one set of 64. Distances between segments stay the same.
    pub(super) fn spread(&mut self, requests: &[SegmentRequest], slab: usize, page: usize) {
        let inside = |s: &&mut Segment| !s.has_own_mapping() && s.size > 0;
        let rest = |s: &mut Segment| (s.offset + s.size).next_multiple_of(page) - (s.offset + s.size);
        let room = self.segments.iter_mut().filter(inside).map(rest).min().unwrap_or(0);
        // At each of these places, all segments are aligned.
        let step = requests.iter().filter(|r| !r.outside).map(|r| r.alignment as usize).fold(CACHE_LINE, usize::max);
        let places = room / step + 1;
        let shift = (((slab / page) as u64).wrapping_mul(GOLDEN) >> 32) as usize % places * step;
        self.segments.iter_mut().filter(inside).for_each(|s| s.offset += shift);
    }

    /// Returns the protection of the last run, if any.
    pub(super) fn end(&self) -> Option<Protection> {
        self.runs.last().map(|run| run.protection)
    }

    /// Returns whether all pages of the slab have contents, so that populating all of it wastes nothing.
    pub(super) fn is_all_content(&self, page: usize) -> bool {
        let pages = |bytes: usize| bytes.div_ceil(page);
        let mut inside = self.segments.iter();
        let content: usize = self.segments.iter().map(|s| pages(s.content)).sum();
        content == pages(self.size) && inside.all(|s| !s.outside && pages(s.content) == pages(s.size))
    }

    /// Returns the pages with contents, as runs of neighbours.
    pub(super) fn content_pages(&self, page: usize) -> Vec<Range<usize>> {
        let written = self.segments.iter().filter(|s| !s.has_own_mapping() && s.content > 0);
        let mut pages: Vec<_> =
            written.map(|s| s.offset / page * page..(s.offset + s.content).next_multiple_of(page)).collect();
        pages.sort_by_key(|r| r.start);
        pages.dedup_by(|next, run| {
            let adjacent = run.end == next.start;
            if adjacent {
                run.end = next.end;
            }
            adjacent
        });
        pages
    }
}

impl Segment {
    /// Returns whether it lies outside the slab; an empty segment never does.
    pub(super) fn has_own_mapping(&self) -> bool {
        self.outside && self.size > 0
    }

    /// Returns the offsets of the whole pages that are only zero-fill.
    pub(super) fn zero_pages(&self, page: usize) -> Range<usize> {
        let start = (self.offset + self.content).next_multiple_of(page);
        start..(self.offset + self.size).next_multiple_of(page).max(start)
    }
}

fn segment(index: usize, request: &SegmentRequest, page: usize) -> Result<Segment, LayoutError> {
    let align = request.alignment.max(1);
    if !align.is_power_of_two() {
        return Err(LayoutError::Malformed { segment: index });
    }
    if align > MAX_ALIGNMENT {
        return Err(LayoutError::Alignment { segment: index });
    }
    let bytes = request.content_bytes.checked_add(request.zero_fill_bytes);
    // A layout has at most half of the address space, which leaves room for rounding.
    let size = bytes.and_then(|b| isize::try_from(b).ok()).ok_or(LayoutError::TooLarge)?.unsigned_abs();
    let content = usize::try_from(request.content_bytes).map_err(|_| LayoutError::TooLarge)?;
    let align = usize::try_from(align).map_err(|_| LayoutError::Alignment { segment: index })?;
    Ok(Segment { offset: 0, content, size, align: align.max(page), outside: request.outside })
}

/// Returns a segment's rank in the slab. Finalize-lifetime data follows the lasting data, so that both are one mapping
/// until finalisation.
fn rank(request: &SegmentRequest) -> u8 {
    match (request.lifetime, request.protection) {
        (Lifetime::Standard, Protection::ReadExecute) => 0,
        (Lifetime::Standard, Protection::Read) => 1,
        (Lifetime::Standard, Protection::ReadWrite) => 2,
        (Lifetime::Finalize, Protection::ReadWrite) => 3,
        (Lifetime::Finalize, Protection::Read) => 4,
        (Lifetime::Finalize, Protection::ReadExecute) => 5,
    }
}
