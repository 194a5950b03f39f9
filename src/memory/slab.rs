//! One object's memory, as typestates: [`WritableSlab`] → [`PublishedSlab`]. Dropping either frees it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::arena::Arena;
use super::code_view::CodeView;
use super::layout::{Extent, Layout, Run, SegmentRequest};
use super::os::{Mapping, SharedMemory};
use super::outside::Outside;
use super::packed::{PackedSlab, Placing};
use super::pages::Pages;
use super::ranges::around;
use super::runs::{Runs, SlabRange, SlabRun};
use super::{Lifetime, Protection};
use crate::fork_guard;
use crate::functions::SortedFunctions;
use crate::memory::address_log::RecordId;
use crate::memory::map_count::Counted;
use crate::name::Name;
use crate::{Error, MemoryError, Result};

/// The huge page that the kernel may use by default (x86-64, and AArch64 with 4 KiB pages).
const HUGE_PAGE: usize = 2 << 20;
/// Zero-fill smaller than this may share a huge page with contents.
const ZERO_FILL_WORTH_KEEPING_OUT: usize = 256 << 10;

/// The place of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) address: usize,
    /// The address at which it is written, which differs from `address` for a second view.
    pub(crate) written: usize,
    /// Its size in bytes, zero-fill included.
    pub(crate) size: usize,
}

impl Placed {
    /// Returns its memory.
    ///
    /// # Safety
    /// It is of a slab that is not published, of which nobody else uses these bytes, and has some.
    #[allow(unsafe_code, reason = "memory of the slab as bytes")]
    unsafe fn contents<'s>(&self) -> &'s mut [u8] {
        // SAFETY: the slab owns these bytes, which are mapped and writable until it is published, and it is not, by the
        // caller, who also answers for other references.
        unsafe { std::slice::from_raw_parts_mut(self.written as *mut u8, self.size) }
    }
}

/// The memory of a slab's segments, in the order of the requests.
pub(crate) type Contents<'s> = SmallVec<[&'s mut [u8]; 4]>;

/// A slab whose contents are being written.
#[derive(Debug)]
pub(crate) struct WritableSlab {
    memory: Memory,
    object: Name,
    placements: SmallVec<[Placed; 3]>,
    /// The contents of executable segments.
    code: SmallVec<[Range<usize>; 1]>,
    /// The views through which code is written, if its pages are executable already.
    views: Vec<CodeView>,
}

/// A slab with its final protections.
#[derive(Debug)]
pub(crate) struct PublishedSlab {
    memory: Memory,
}

/// The slabs of a batch: most have one.
type Slabs<S> = SmallVec<[S; 1]>;

/// The memory of a slab in either state.
#[derive(Debug)]
enum Memory {
    Own(Own),
    Packed(PackedSlab),
}

/// Pages of one object: contiguous ones in the arena, and mappings outside.
#[derive(Debug)]
struct Own {
    arena: Arc<Arena>,
    start: usize,
    runs: Runs,
    /// Boxed, because few objects have any.
    #[allow(clippy::box_collection, reason = "a pointer's size where there are none")]
    outside: Option<Box<Vec<Outside>>>,
    /// The record of its owner, once its addresses may be given out.
    record: Option<RecordId>,
    /// The generation of the process that made it.
    generation: u32,
    pages: Pages,
    counted: Counted,
}

impl Own {
    /// Returns the addresses in the arena.
    fn span(&self) -> Range<usize> {
        self.start..self.start + self.runs.bytes()
    }

    /// Returns the runs in the arena, from the start of the span.
    fn ranges(&self) -> impl Iterator<Item = SlabRange> {
        let mut end = self.start;
        self.runs.iter().map(move |run| {
            let start = end;
            end += run.bytes();
            SlabRange { addresses: start..end, protection: run.protection(), outside: false }
        })
    }

    /// Returns whether another process made it.
    fn is_inherited(&self) -> bool {
        self.generation != fork_guard::generation()
    }

    fn outside(&self) -> impl Iterator<Item = &Outside> {
        self.outside.iter().flat_map(|outside| outside.iter())
    }
}

impl WritableSlab {
    /// Makes a range of the arena writable, unless it is `ready`, that is, writable and present. `span` was taken for
    /// `layout`, which was made from `requests`.
    pub(super) fn new(
        arena: Arc<Arena>,
        object: &Name,
        span: Range<usize>,
        ready: bool,
        layout: Layout,
        requests: &[SegmentRequest],
    ) -> Result<Self> {
        let page = arena.page();
        let at = |offsets: &Range<usize>| span.start + offsets.start..span.start + offsets.end;
        let run = |run: &Run| {
            let standard = run.offsets.start < layout.finalize;
            let lifetime = if standard { Lifetime::Standard } else { Lifetime::Finalize };
            SlabRun::new(run.offsets.len(), run.protection, lifetime)
        };
        // From here on, an early return frees everything.
        let runs = layout.runs.iter().map(run).collect();
        let generation = fork_guard::generation();
        let mut memory = Own {
            arena,
            start: span.start,
            runs,
            outside: None,
            record: None,
            generation,
            pages: if layout.is_all_content(page) { Pages::Full } else { Pages::Sparse },
            counted: Counted::new(layout.runs.len()),
        };
        let arena = &memory.arena;
        // Decided once for the whole slab: its code is protected either now or when it is published.
        let elsewhere = !ready && arena.writes_code_elsewhere();
        let mut views = Vec::new();
        if !span.is_empty() && !ready {
            let contents: SmallVec<[Range<usize>; 2]> = layout.content_pages(page).iter().map(at).collect();
            let warm: SmallVec<[Range<usize>; 2]> = contents.iter().map(|pages| arena.warm_up(pages)).collect();
            let protect = |range: &Range<usize>| {
                let done = arena.mapping().protect(range, Protection::ReadWrite);
                done.map_err(|e| failed(object, "mprotect", e))
            };
            if !elsewhere {
                protect(&span)?;
            } else {
                for run in memory.ranges() {
                    match run.protection {
                        Protection::ReadExecute => views.push(code_view(object, arena.mapping(), run.addresses)?),
                        _ => protect(&run.addresses)?,
                    }
                }
            }
            for segment in layout.segments.iter().filter(|s| !s.has_own_mapping()) {
                keep_huge_pages_out(arena.mapping(), &span, &at(&segment.zero_pages(page)));
            }
            let overwritten = overwritten(&layout, requests, span.start);
            for (pages, warm) in contents.iter().zip(warm) {
                for part in around(&warm, &overwritten) {
                    arena.mapping().clear(&part).map_err(|e| failed(object, "clear", e))?;
                }
                let cold = warm.end..pages.end;
                if cold.len() > page && views.is_empty() {
                    arena.populate(&cold);
                }
            }
        }

        let mut placements = SmallVec::with_capacity(requests.len());
        let mut code = SmallVec::new();
        for (segment, request) in layout.segments.iter().zip(requests) {
            let address = if segment.has_own_mapping() {
                let mapped = Outside::map(segment, request.protection, request.lifetime, page);
                let mapped = mapped.map_err(|e| failed(object, "mmap", e))?;
                let start = mapped.range.start;
                let zero = segment.zero_pages(page);
                keep_huge_pages_out(mapped.mapping(), &mapped.range, &(start + zero.start..start + zero.end));
                if request.protection == Protection::ReadExecute && elsewhere {
                    views.push(code_view(object, mapped.mapping(), mapped.range.clone())?);
                }
                memory.arena.count_outside(&mapped);
                memory.outside.get_or_insert_default().push(mapped);
                start
            } else {
                span.start + segment.offset
            };
            if request.protection == Protection::ReadExecute && segment.content > 0 {
                code.push(address..address + segment.content);
            }
            let written = views.iter().find_map(|view| view.written(address)).unwrap_or(address);
            placements.push(Placed { address, written, size: segment.size });
        }
        Ok(Self { memory: Memory::Own(memory), object: object.clone(), placements, code, views })
    }

    /// Creates a slab in packed memory that was taken for `requests`.
    pub(super) fn packed(memory: PackedSlab, object: &Name, placing: &Placing, requests: &[SegmentRequest]) -> Self {
        let arena = memory.arena().range().start;
        let mut addresses = [arena; 3];
        placing.runs.iter(arena).for_each(|run| addresses[run.protection as usize] = run.addresses.start);
        let mut code = SmallVec::new();
        let placed = |request: &SegmentRequest| {
            let (content, size) = (request.content_bytes, request.content_bytes + request.zero_fill_bytes);
            let pool = request.protection as usize;
            if size == 0 {
                // An empty segment needs an address, but no memory.
                let address = arena.next_multiple_of((request.alignment as usize).max(1));
                return Placed { address, written: address, size: 0 };
            }
            let (address, written) = (addresses[pool], placing.written[pool]);
            if request.protection == Protection::ReadExecute && content > 0 {
                code.push(address..address + content as usize);
            }
            Placed { address, written, size: size as usize }
        };
        let placements = requests.iter().map(placed).collect();
        Self { memory: Memory::Packed(memory), object: object.clone(), placements, code, views: Vec::new() }
    }

    /// Returns each segment's place, in the order of the requests. An empty segment has an address, but no memory.
    pub(crate) fn placements(&self) -> &[Placed] {
        &self.placements
    }

    /// Returns the address at which an address of the slab is written.
    pub(crate) fn written(&self, address: usize) -> Option<usize> {
        let placed = self.placements.iter().find(|p| (p.address..p.address + p.size).contains(&address))?;
        Some(placed.written + (address - placed.address))
    }

    /// Returns the memory of a segment, contents and zero-fill, in the order of the requests.
    #[allow(unsafe_code, reason = "memory of the slab as bytes")]
    pub(crate) fn contents_mut(&mut self, segment: usize) -> Option<&mut [u8]> {
        let placed = self.placements.get(segment).filter(|placed| placed.size != 0)?;
        // SAFETY: the slab is borrowed.
        Some(unsafe { placed.contents() })
    }

    /// Does the same for all segments, with nothing for those that have no memory.
    #[allow(unsafe_code, reason = "memory of the slab as bytes")]
    pub(crate) fn all_contents_mut(&mut self) -> Contents<'_> {
        let contents = |placed: &Placed| match placed.size {
            0 => Default::default(),
            // SAFETY: the slab is borrowed, and segments share no bytes.
            _ => unsafe { placed.contents() },
        };
        self.placements.iter().map(contents).collect()
    }

    /// Shows whole pages of a file in a segment that has them as zero-fill: what is written to them is not the file's.
    /// On failure nothing has changed.
    pub(crate) fn show_file(&mut self, segment: usize, file: &File, offset: u64) -> io::Result<()> {
        let placed = self.placements.get(segment).copied().filter(|placed| placed.address == placed.written);
        let (Memory::Own(own), Some(placed)) = (&mut self.memory, placed) else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let pages = placed.address..(placed.address + placed.size).next_multiple_of(own.arena.page());
        own.arena.mapping().show_file(&pages, file, offset)?;
        own.pages = Pages::OfFile;
        Ok(())
    }

    /// Notes code that was written to a segment without contents.
    pub(crate) fn note_code(&mut self, segment: usize, bytes: Range<usize>) {
        if let Some(placed) = self.placements.get(segment).filter(|placed| bytes.end <= placed.size) {
            self.code.push(placed.address + bytes.start..placed.address + bytes.end);
        }
    }

    /// Sets the final protections. On failure everything is freed.
    pub(crate) fn publish(mut self) -> Result<PublishedSlab> {
        Self::seal(std::slice::from_mut(&mut self))?;
        Ok(PublishedSlab { memory: self.memory })
    }

    /// Publishes all slabs of a batch, or none. On failure it returns them, for the caller to drop.
    pub(crate) fn publish_all(
        mut slabs: Slabs<Self>,
    ) -> std::result::Result<Slabs<PublishedSlab>, (Error, Slabs<Self>)> {
        match Self::seal(&mut slabs) {
            Ok(()) => Ok(slabs.into_iter().map(|slab| PublishedSlab { memory: slab.memory }).collect()),
            Err(error) => Err((error, slabs)),
        }
    }

    fn seal(slabs: &mut [Self]) -> Result<()> {
        for Self { memory, object, code, .. } in &*slabs {
            for written in code {
                let synchronized = memory.mapping_of(written.start).sync_instruction_cache(written);
                synchronized.map_err(|e| failed(object, "cache maintenance", e))?;
            }
        }
        Self::protect(slabs)?;
        for slab in &mut *slabs {
            slab.views.clear();
            match &mut slab.memory {
                Memory::Packed(packed) => packed.end_write(),
                Memory::Own(own) => own.counted.has_come(),
            }
        }
        if cfg!(target_arch = "aarch64") && slabs.iter().any(|slab| !slab.code.is_empty()) {
            crate::memory::membarrier::synchronize();
        }
        Ok(())
    }

    /// Sets the final protections, except for code with a second view, which has them. Neighbours that get the same
    /// protection share a call.
    fn protect(slabs: &[Self]) -> Result<()> {
        let mut neighbours: SmallVec<[(&Self, SlabRange); 2]> = SmallVec::new();
        for slab in slabs.iter().filter(|slab| slab.memory.has_final_protections_to_come()) {
            let is_to_come = |run: &SlabRange| match run.protection {
                Protection::ReadExecute => slab.views.is_empty(),
                Protection::Read => true,
                Protection::ReadWrite => false,
            };
            for run in slab.memory.ranges().into_iter().filter(is_to_come) {
                match neighbours.last_mut().map(|(_, before)| before).filter(|before| before.joins(&run)) {
                    Some(before) if before.protection == run.protection => before.addresses.end = run.addresses.end,
                    Some(_) => neighbours.push((slab, run)),
                    None => {
                        Self::protect_neighbours(&neighbours)?;
                        neighbours.clear();
                        neighbours.push((slab, run));
                    }
                }
            }
        }
        Self::protect_neighbours(&neighbours)
    }

    /// Sets the protections of runs that follow each other, which are constants or code. If there are more than two,
    /// one call makes all of them constants, and further ones make the code executable: the kernel takes three quarters
    /// of the time that a call for each run takes.
    fn protect_neighbours(neighbours: &[(&Self, SlabRange)]) -> Result<()> {
        let set = |(slab, run): &(&Self, SlabRange), addresses: &Range<usize>, protection| {
            let set = slab.memory.mapping_of(run.addresses.start).protect(addresses, protection);
            set.map_err(|e| {
                if protection == Protection::ReadExecute && e.kind() == io::ErrorKind::PermissionDenied {
                    slab.memory.arena().write_code_elsewhere();
                }
                failed(&slab.object, "mprotect", e)
            })
        };
        let mut constants_are_done = false;
        if let [first, _, .., (_, last)] = neighbours {
            set(first, &(first.1.addresses.start..last.addresses.end), Protection::Read)?;
            constants_are_done = true;
        }
        let mut rest = neighbours.iter().filter(|(_, run)| run.protection != Protection::Read || !constants_are_done);
        rest.try_for_each(|one| set(one, &one.1.addresses, one.1.protection))
    }
}

/// Returns the largest range in the arena whose bytes are overwritten before others may see them.
fn overwritten(layout: &Layout, requests: &[SegmentRequest], base: usize) -> Range<usize> {
    let inside = layout.segments.iter().zip(requests).filter(|(segment, _)| !segment.has_own_mapping());
    let ranges = inside.map(|(segment, SegmentRequest { overwritten: Extent { start, bytes }, .. })| {
        let at = |offset: u64| segment.content.min(usize::try_from(offset).unwrap_or(usize::MAX));
        let start_of_segment = base + segment.offset;
        start_of_segment + at(*start)..start_of_segment + at(start.saturating_add(*bytes))
    });
    ranges.max_by_key(Range::len).unwrap_or_default()
}

/// Replaces pages for code by memory with two views.
fn code_view(object: &Name, mapping: &Mapping, code: Range<usize>) -> Result<CodeView> {
    let memory = SharedMemory::create(code.len()).map_err(|e| failed(object, "memfd_create", e))?;
    CodeView::map(mapping, code, &memory).map_err(|e| failed(object, "mmap", e))
}

fn failed(object: &Name, call: &'static str, source: io::Error) -> Error {
    Error::Memory(MemoryError::System { call, object: object.to_string(), source })
}

impl SlabRange {
    /// Returns whether the next run of the arena begins where this one ends.
    fn joins(&self, next: &Self) -> bool {
        self.addresses.end == next.addresses.start && !self.outside && !next.outside
    }
}

impl Memory {
    fn ranges(&self) -> SmallVec<[SlabRange; 3]> {
        match self {
            Self::Packed(packed) => packed.ranges().collect(),
            Self::Own(own) => {
                let outside = own.outside().map(|o| SlabRange {
                    addresses: o.range.clone(),
                    protection: o.protection,
                    outside: true,
                });
                own.ranges().chain(outside).collect()
            }
        }
    }

    fn arena(&self) -> &Arena {
        match self {
            Self::Packed(packed) => packed.arena(),
            Self::Own(own) => &own.arena,
        }
    }

    /// Returns the mapping that contains an address.
    fn mapping_of(&self, address: usize) -> &Mapping {
        match self {
            Self::Packed(packed) => packed.arena().mapping(),
            Self::Own(own) => {
                let outside = own.outside().find(|o| o.range.contains(&address));
                outside.map_or(own.arena.mapping(), Outside::mapping)
            }
        }
    }

    /// Returns whether its final protections are set when it is published.
    fn has_final_protections_to_come(&self) -> bool {
        match self {
            Self::Packed(packed) => !packed.has_two_views(),
            Self::Own(_) => true,
        }
    }
}

impl PublishedSlab {
    /// Records the owner of the slab, before its addresses are given out. After removal they rest.
    pub(crate) fn belong_to(&mut self, library: &Name, object: &Name, functions: &SortedFunctions<'_>) {
        let memory = match &mut self.memory {
            Memory::Packed(packed) => return packed.belong_to(library, object, functions),
            Memory::Own(own) => own,
        };
        let span = memory.span();
        if !span.is_empty() {
            memory.record = memory.arena.note(&span, library, object, functions);
        }
        for outside in memory.outside.iter_mut().flat_map(|outside| outside.iter_mut()) {
            outside.record = memory.arena.note(&outside.range, library, object, functions);
        }
    }

    /// Returns the names and addresses of its functions.
    pub(crate) fn functions(&self) -> Vec<(String, Range<usize>)> {
        match &self.memory {
            Memory::Packed(packed) => packed.functions(),
            Memory::Own(own) => {
                let records = own.record.into_iter().chain(own.outside().filter_map(|outside| outside.record));
                records.flat_map(|record| own.arena.functions(record)).collect()
            }
        }
    }

    /// Marks it as removed, and overwrites it but for `kept`, if its addresses may stay taken for a while. Returns how
    /// many bytes it has then.
    pub(crate) fn overwrite(&mut self, kept: &Range<usize>) -> Option<usize> {
        match &mut self.memory {
            Memory::Packed(packed) => packed.overwrite(kept),
            Memory::Own(_) => None,
        }
    }

    /// Frees the memory of slabs that were removed together, the last first, with one call for neighbours' pages.
    /// They are to be dropped.
    pub(crate) fn give_back(slabs: &mut [&mut Self]) {
        if slabs.len() < 2 {
            return;
        }
        let mut packed = Vec::with_capacity(slabs.len());
        packed.extend(slabs.iter_mut().rev().filter_map(|slab| match &mut slab.memory {
            Memory::Packed(packed) => Some(packed),
            Memory::Own(_) => None,
        }));
        PackedSlab::free_all(&mut packed);
        let own = slabs.iter_mut().filter_map(|slab| match &mut slab.memory {
            Memory::Own(own) if !own.is_inherited() && own.pages != Pages::OfFile => Some(own),
            _ => None,
        });
        let mut own: Vec<&mut Own> = own.collect();
        own.sort_unstable_by_key(|own| own.start);
        for neighbours in own.chunk_by_mut(|one, next| one.span().end == next.start) {
            let [first, _, ..] = &*neighbours else { continue };
            let arena = Arc::clone(&first.arena);
            // As many as there is room for leave their memory to other slabs.
            let (most, mut bytes) = (arena.most_warm(), 0);
            let leaves_memory = |own: &&&mut Own| {
                bytes += own.runs.bytes();
                own.pages == Pages::Full && bytes <= most
            };
            let kept = neighbours.iter().take_while(leaves_memory).count();
            let (kept, rest) = neighbours.split_at_mut(kept);
            for (part, keep) in [(kept, true), (rest, false)] {
                let (Some(first), Some(last)) = (part.first(), part.last()) else { continue };
                let (span, records) = (first.start..last.span().end, part.iter().filter_map(|own| own.record));
                let done = if keep { arena.keep_warm(&span, records) } else { arena.take_away(&span, records) };
                part.iter_mut().filter(|_| done.is_ok()).for_each(|own| own.pages = Pages::Away);
            }
        }
    }

    /// Returns the pages in the arena of an object that is not packed.
    #[cfg(test)]
    pub(super) fn span(&self) -> Range<usize> {
        match &self.memory {
            Memory::Own(own) => own.span(),
            Memory::Packed(_) => unreachable!("it is packed"),
        }
    }

    /// Returns the addresses in the arena: one range, unless it is packed; empty if the object has no memory there.
    pub(crate) fn spans(&self) -> Vec<Range<usize>> {
        match &self.memory {
            Memory::Own(own) => vec![own.span()],
            Memory::Packed(packed) => packed.ranges().map(|run| run.addresses).collect(),
        }
    }

    /// Returns all ranges with their protection: contiguous pages in the arena in the order of addresses, then those
    /// outside; or the packed runs, in the same order.
    pub(crate) fn ranges(&self) -> Vec<SlabRange> {
        self.memory.ranges().into_vec()
    }

    /// Returns the range of its code in the arena.
    pub(crate) fn code(&self) -> Option<Range<usize>> {
        let is_code = |run: &SlabRange| run.protection == Protection::ReadExecute;
        let run = match &self.memory {
            Memory::Packed(packed) => packed.ranges().find(is_code),
            Memory::Own(own) => own.ranges().find(is_code),
        };
        run.map(|run| run.addresses).filter(|code| !code.is_empty())
    }

    /// Returns the addresses of its arena.
    pub(crate) fn arena(&self) -> Range<usize> {
        self.memory.arena().range()
    }

    /// Frees the segments that were needed for finalisation only.
    pub(crate) fn release_finalize_segments(&mut self) {
        let Memory::Own(memory) = &mut self.memory else { return };
        let end = memory.span().end;
        memory.runs.drop_finalize();
        memory.arena.release(memory.span().end..end, false);
        let finalize = memory.outside.iter_mut().flat_map(|o| o.extract_if(.., |o| o.lifetime == Lifetime::Finalize));
        for segment in finalize {
            memory.arena.release_outside(segment);
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let (inherited, of_file) = (self.is_inherited(), self.pages == Pages::OfFile);
        match self.record {
            record if inherited => self.arena.retire_inherited(&self.span(), record, of_file),
            Some(record) => self.arena.retire(self.span(), record, self.pages),
            None => self.arena.release(self.span(), of_file),
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

/// Keeps both ends of zero-fill out of huge pages. With transparent huge pages on by default, a write next to zero-fill
/// would make up to 2 MiB of it resident. The inside keeps the system's setting.
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
