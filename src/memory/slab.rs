//! One object's memory, as typestates: [`WritableSlab`] → [`PublishedSlab`]. Dropping either frees.

use std::ops::Range;
use std::sync::Arc;

use super::arena::Arena;
use super::history::RecordId;
use super::layout::{Layout, Run, SegmentRequest};
use super::os::Mapping;
use super::outside::Outside;
use super::runs::{Runs, SlabRun};
use super::{Lifetime, Protection};
use crate::error::{Error, Result};
use crate::gate;
use crate::name::Name;

/// Above this, writing a page long after it was brought in costs the cache more than its fault would.
const POPULATE_LIMIT: usize = 1 << 20;
/// The huge page that the kernel may use unasked (x86-64, and AArch64 with 4 KiB pages).
const HUGE_PAGE: usize = 2 << 20;
/// Zero-fill smaller than this may share a huge page with contents.
const ZERO_FILL_WORTH_KEEPING_OUT: usize = 256 << 10;

/// Where a segment lies. What is written there is what will be run: there is no second view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) address: usize,
    /// Bytes, zero-fill included.
    pub(crate) size: usize,
}

/// Whole pages of a slab with one protection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlabRange {
    pub(crate) addresses: Range<usize>,
    pub(crate) protection: Protection,
    /// Not in the arena, hence out of the reach of 32-bit references.
    pub(crate) outside: bool,
}

/// A slab whose contents are being written: every page is `RW-`.
#[derive(Debug)]
pub(crate) struct WritableSlab {
    memory: Memory,
    object: Box<str>,
    placements: Vec<Placed>,
    /// Contents of executable segments.
    code: Vec<Range<usize>>,
}

/// A slab with its final protections.
#[derive(Debug)]
pub(crate) struct PublishedSlab {
    memory: Memory,
}

/// What is given back when a slab goes, in whichever state.
#[derive(Debug)]
struct Memory {
    arena: Arc<Arena>,
    start: usize,
    runs: Runs,
    /// What few objects have.
    #[allow(clippy::box_collection)] // a pointer's size where there are none
    outside: Option<Box<Vec<Outside>>>,
    /// Whose it is, once somebody may have its addresses.
    record: Option<RecordId>,
    /// Of the process that made it.
    generation: u32,
}

impl Memory {
    /// The addresses in the arena.
    fn span(&self) -> Range<usize> {
        self.start..self.start + self.runs.bytes()
    }

    /// The runs in the arena, from the start of the span.
    fn ranges(&self) -> impl Iterator<Item = SlabRange> {
        let mut end = self.start;
        self.runs.iter().map(move |run| {
            let start = end;
            end += run.bytes();
            SlabRange { addresses: start..end, protection: run.protection(), outside: false }
        })
    }

    fn outside(&self) -> impl Iterator<Item = &Outside> {
        self.outside.iter().flat_map(|outside| outside.iter())
    }
}

impl WritableSlab {
    /// Makes a range of the arena writable, unless it is `ready`: writable and present. `span` was taken for `layout`, which
    /// was made of `requests`.
    pub(super) fn new(
        arena: Arc<Arena>,
        object: &str,
        span: Range<usize>,
        ready: bool,
        layout: Layout,
        requests: &[SegmentRequest],
    ) -> Result<Self> {
        let page = arena.page();
        let failed = |call, source| Error::System { call, object: object.to_owned(), source };
        let at = |offsets: &Range<usize>| span.start + offsets.start..span.start + offsets.end;
        let run = |run: &Run| {
            let standard = run.offsets.start < layout.finalize;
            let lifetime = if standard { Lifetime::Standard } else { Lifetime::Finalize };
            SlabRun::new(run.offsets.len(), run.protection, lifetime)
        };
        // From here on, an early return gives everything back.
        let runs = layout.runs.iter().map(run).collect();
        let generation = gate::generation();
        let mut memory = Memory { arena, start: span.start, runs, outside: None, record: None, generation };
        let arena = &memory.arena;
        if !span.is_empty() && !ready {
            arena.mapping().protect(&span, Protection::ReadWrite).map_err(|e| failed("mprotect", e))?;
            for segment in layout.segments.iter().filter(|s| !s.has_own_mapping()) {
                keep_huge_pages_out(arena.mapping(), &span, &at(&segment.zero_pages(page)));
            }
            for pages in layout.content_pages(page) {
                if pages.len() > page && pages.len() <= POPULATE_LIMIT {
                    arena.populate(&at(&pages));
                }
            }
        }

        let mut placements = Vec::with_capacity(requests.len());
        let mut code = Vec::new();
        for (segment, request) in layout.segments.iter().zip(requests) {
            let address = if segment.has_own_mapping() {
                let mapped = Outside::map(segment, request.protection, request.lifetime, page);
                let mapped = mapped.map_err(|e| failed("mmap", e))?;
                let start = mapped.range.start;
                let zero = segment.zero_pages(page);
                keep_huge_pages_out(mapped.mapping(), &mapped.range, &(start + zero.start..start + zero.end));
                memory.arena.count_outside(&mapped);
                memory.outside.get_or_insert_default().push(mapped);
                start
            } else {
                span.start + segment.offset
            };
            if request.protection == Protection::ReadExecute && segment.content > 0 {
                code.push(address..address + segment.content);
            }
            placements.push(Placed { address, size: segment.size });
        }
        Ok(Self { memory, object: object.into(), placements, code })
    }

    /// Where each segment lies, in the order of the requests. An empty segment has an address, but no memory.
    pub(crate) fn placements(&self) -> &[Placed] {
        &self.placements
    }

    /// Sets the final protections. On failure everything is given back.
    pub(crate) fn publish(self) -> Result<PublishedSlab> {
        let Self { memory, object, code, .. } = self;
        let failed = |call, source| Error::System { call, object: object.as_ref().to_owned(), source };
        let arena = memory.arena.mapping();
        for written in &code {
            let outside = memory.outside().find(|o| o.range.contains(&written.start));
            let mapping = outside.map_or(arena, Outside::mapping);
            mapping.sync_instruction_cache(written).map_err(|e| failed("cache maintenance", e))?;
        }
        for run in memory.ranges().filter(|r| r.protection != Protection::ReadWrite) {
            arena.protect(&run.addresses, run.protection).map_err(|e| failed("mprotect", e))?;
        }
        for segment in memory.outside().filter(|o| o.protection != Protection::ReadWrite) {
            segment.mapping().protect(&segment.range, segment.protection).map_err(|e| failed("mprotect", e))?;
        }
        #[cfg(target_arch = "aarch64")]
        if !code.is_empty() {
            super::cores::synchronize();
        }
        Ok(PublishedSlab { memory })
    }
}

impl PublishedSlab {
    /// Notes whose the slab is, before its addresses are given to anybody. They rest when it goes.
    pub(crate) fn belong_to(&mut self, library: &Name, object: &Name) {
        let memory = &mut self.memory;
        let span = memory.span();
        if !span.is_empty() {
            memory.record = memory.arena.note(&span, library, object);
        }
        for outside in memory.outside.iter_mut().flat_map(|outside| outside.iter_mut()) {
            outside.record = memory.arena.note(&outside.range, library, object);
        }
    }

    /// The addresses in the arena; empty if the object has no memory there.
    pub(crate) fn span(&self) -> Range<usize> {
        self.memory.span()
    }

    /// All pages of the slab by protection: those in the arena without a gap, in the order of addresses, then those
    /// outside.
    pub(crate) fn ranges(&self) -> Vec<SlabRange> {
        let outside = self.memory.outside().map(|o| SlabRange {
            addresses: o.range.clone(),
            protection: o.protection,
            outside: true,
        });
        self.memory.ranges().chain(outside).collect()
    }

    /// Gives the segments back that were needed for finalisation only.
    pub(crate) fn release_finalize_segments(&mut self) {
        let memory = &mut self.memory;
        let end = memory.span().end;
        memory.runs.drop_finalize();
        memory.arena.release(memory.span().end..end);
        let finalize = memory.outside.iter_mut().flat_map(|o| o.extract_if(.., |o| o.lifetime == Lifetime::Finalize));
        for segment in finalize {
            memory.arena.release_outside(segment);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let inherited = self.generation != gate::generation();
        match self.record {
            record if inherited => self.arena.retire_inherited(&self.span(), record),
            Some(record) => self.arena.retire(self.span(), record),
            None => self.arena.release(self.span()),
        }
        for segment in self.outside.take().into_iter().flat_map(|outside| *outside) {
            match segment.record {
                _ if inherited => self.arena.retire_inherited_outside(segment),
                Some(record) => self.arena.retire_outside(segment, record),
                None => self.arena.release_outside(segment),
            }
        }
        self.arena.count_slab_gone();
    }
}

/// Where transparent huge pages come unasked, a write next to zero-fill would make up to 2 MiB of it resident. Both
/// ends of zero-fill are kept out of huge pages; its inside stays as the system's administrator wants it.
fn keep_huge_pages_out(mapping: &Mapping, span: &Range<usize>, zero: &Range<usize>) {
    if span.len() < HUGE_PAGE || zero.len() < ZERO_FILL_WORTH_KEEPING_OUT {
        return;
    }
    for edge in [zero.start, zero.end] {
        let block = edge & !(HUGE_PAGE - 1);
        let block = block.max(span.start)..(block + HUGE_PAGE).min(span.end);
        if edge > block.start && edge < block.end {
            // A hint; kernels without huge pages refuse it.
            let _ = mapping.small_pages(&block);
        }
    }
}
