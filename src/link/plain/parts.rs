//! Which sections of a plain object are kept, and where they lie.

use smallvec::SmallVec;

use crate::elf::ObjectIndex;
use crate::elf::link_tables::LinkTables;
use crate::memory::{Extent, Lifetime, Protection, SegmentRequest, WritableSlab};

/// The object's sections, by their indices.
pub(super) struct Parts {
    all: Vec<Part>,
    /// `.eh_frame`, or 0.
    frames: u32,
    /// Bytes of its kept records, and of the zero behind them.
    frame_bytes: u64,
    /// Whether JITLink's order has `.eh_frame` before other read-only data.
    frames_first: bool,
    /// Of all that is mapped, padding included.
    bytes: u64,
    /// By protection.
    segments: [Segment; 3],
}

#[derive(Clone, Copy, Default)]
struct Part {
    /// The section of its relocations, or 0.
    relocations: u32,
    /// Its segment; `None` if it is not mapped.
    segment: Option<Protection>,
    is_kept: bool,
    /// From the start of its segment.
    offset: u64,
}

#[derive(Clone, Copy, Default)]
struct Segment {
    contents: u64,
    /// The largest section.
    largest: Extent,
    zero_fill: u64,
    /// 0 if nothing is in it.
    alignment: u64,
    /// Its position among those that are requested.
    position: usize,
    address: u64,
}

/// Memory that no section of the object has.
#[derive(Clone, Copy)]
pub(super) struct Extra {
    protection: Protection,
    /// The end of what was there before.
    #[cfg(slabjit_faults)]
    after: u64,
    offset: u64,
    pub(super) bytes: u64,
}

/// Sections that are kept, and whose references were not followed yet.
pub(super) type Waiting = SmallVec<[u32; 16]>;

/// The order of JITLink's allocation groups.
const PROTECTIONS: [Protection; 3] = [Protection::Read, Protection::ReadWrite, Protection::ReadExecute];

/// Bytes of the zero that ends an unwind table.
pub(super) const END_OF_FRAMES: u64 = 4;

impl Parts {
    /// Reads the sections; `None` if they are not plain.
    pub(super) fn new(index: &ObjectIndex, tables: &LinkTables<'_>) -> Option<Self> {
        let mut all = vec![Part::default(); index.sections.len()];
        let (mut frames, mut frame_bytes, mut bytes, mut data_before_frames) = (0, 0, 0_u64, false);
        for (i, section) in (0u32..).zip(&index.sections) {
            let Some((executable, writable)) = section.mapped() else { continue };
            let name = index.name(section.name);
            // JITLink has sections of others by their names.
            if !name.starts_with('.') || section.is_thread_local() || executable && writable {
                return None;
            }
            all[i as usize].segment = Some(match (executable, writable) {
                (true, _) => Protection::ReadExecute,
                (false, true) => Protection::ReadWrite,
                (false, false) => Protection::Read,
            });
            bytes = bytes.checked_add(section.size)?.checked_add(section.alignment)?;
            if name == ".eh_frame" && section.size != 0 {
                if frames != 0 || executable || writable || !section.has_contents {
                    return None;
                }
                (frames, frame_bytes) = (i, section.size + END_OF_FRAMES);
            } else if frames == 0 && section.size != 0 && !executable && !writable {
                data_before_frames = true;
            }
        }
        for (section, target) in tables.relocation_sections() {
            let part = all.get_mut(target as usize)?;
            if part.relocations != 0 {
                return None;
            }
            part.relocations = section;
        }
        let frames_first = !data_before_frames;
        Some(Self { all, frames, frame_bytes, frames_first, bytes, segments: Default::default() })
    }

    /// Returns the index of the unwind table.
    pub(super) fn frames(&self) -> Option<u32> {
        (self.frames != 0).then_some(self.frames)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn relocations(&self, section: u32) -> Option<u32> {
        self.all.get(section as usize).map(|part| part.relocations).filter(|section| *section != 0)
    }

    pub(super) fn is_kept(&self, section: u32) -> bool {
        self.all.get(section as usize).is_some_and(|part| part.is_kept)
    }

    /// Keeps a section, which waits for what it refers to; `None` if there is no such section in memory.
    pub(super) fn keep(&mut self, section: u32, waiting: &mut Waiting) -> Option<()> {
        let part = self.all.get_mut(section as usize).filter(|part| part.segment.is_some())?;
        if !part.is_kept {
            part.is_kept = true;
            waiting.push(section);
        }
        Some(())
    }

    /// Keeps the unwind table, or the records of it that have so many bytes.
    pub(super) fn keep_frames(&mut self, bytes: Option<u64>) {
        if let Some(part) = self.all.get_mut(self.frames as usize) {
            part.is_kept = true;
        }
        self.frame_bytes = bytes.map_or(self.frame_bytes, |bytes| bytes + END_OF_FRAMES);
    }

    /// Returns the sections that are kept.
    pub(super) fn kept(&self) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.all).filter(|(_, part)| part.is_kept).map(|(i, _)| i)
    }

    /// Lays the segments out: sections in the order of the file, contents before zero-fill.
    pub(super) fn lay_out(&mut self, index: &ObjectIndex) {
        let frames = self.frames as usize;
        for has_contents in [true, false] {
            if has_contents && self.frames_first {
                self.put(index, frames);
            }
            for i in 1..self.all.len() {
                if self.all[i].is_kept && index.sections[i].has_contents == has_contents && i != frames {
                    self.put(index, i);
                }
            }
            if has_contents && !self.frames_first {
                self.put(index, frames);
            }
        }
    }

    fn put(&mut self, index: &ObjectIndex, section: usize) {
        let (Some(part), Some(of)) = (self.all.get_mut(section), index.sections.get(section)) else { return };
        let Some(protection) = part.segment.filter(|_| part.is_kept) else { return };
        let segment = &mut self.segments[protection as usize];
        let alignment = of.alignment.max(1);
        segment.alignment = segment.alignment.max(alignment);
        // Preparation has compared their sum with the address space.
        part.offset = (segment.contents + segment.zero_fill).next_multiple_of(alignment);
        let end = part.offset + if section == self.frames as usize { self.frame_bytes } else { of.size };
        if of.has_contents {
            segment.contents = end;
            if of.size > segment.largest.bytes && section != self.frames as usize {
                segment.largest = Extent { start: part.offset, bytes: of.size };
            }
        } else {
            segment.zero_fill = end - segment.contents;
        }
    }

    /// Adds so many bytes to a segment, behind everything else that has contents.
    pub(super) fn add(&mut self, protection: Protection, bytes: u64, alignment: u64) -> Option<Extra> {
        let segment = &mut self.segments[protection as usize];
        // JITLink would have it before what has no contents.
        if bytes != 0 && segment.zero_fill != 0 {
            return None;
        }
        #[cfg(slabjit_faults)]
        let after = segment.contents;
        let offset = segment.contents.next_multiple_of(alignment);
        if bytes != 0 {
            segment.alignment = segment.alignment.max(alignment);
            segment.contents = offset + bytes;
        }
        let extra = Extra {
            protection,
            #[cfg(slabjit_faults)]
            after,
            offset,
            bytes,
        };
        Some(extra)
    }

    /// Returns the segments that have sections.
    pub(super) fn requests(&self) -> SmallVec<[SegmentRequest; 3]> {
        let wanted = PROTECTIONS.into_iter().filter(|protection| self.segments[*protection as usize].alignment != 0);
        let request = |protection| {
            let Segment { contents, largest, zero_fill, alignment, .. } = self.segments[protection as usize];
            let (content_bytes, zero_fill_bytes, lifetime) = (contents, zero_fill, Lifetime::Standard);
            let (outside, overwritten) = (false, largest);
            SegmentRequest { protection, lifetime, alignment, content_bytes, zero_fill_bytes, outside, overwritten }
        };
        wanted.map(request).collect()
    }

    /// Notes where the segments that were requested are.
    pub(super) fn settle(&mut self, slab: &WritableSlab) {
        let mut placements = slab.placements().iter().enumerate();
        for protection in PROTECTIONS {
            let segment = &mut self.segments[protection as usize];
            if segment.alignment != 0
                && let Some((position, placed)) = placements.next()
            {
                (segment.position, segment.address) = (position, placed.address as u64);
            }
        }
    }

    /// Returns the address of what was added.
    pub(super) fn address_of(&self, extra: Extra) -> u64 {
        self.segments[extra.protection as usize].address + extra.offset
    }

    /// Returns the memory of what was added.
    pub(super) fn memory_of<'s>(&self, extra: Extra, slab: &'s mut WritableSlab) -> Option<&'s mut [u8]> {
        let contents = slab.contents_mut(self.segments[extra.protection as usize].position)?;
        contents.get_mut(extra.offset as usize..)?.get_mut(..extra.bytes as usize)
    }

    /// Returns a section's address; `None` if it is not kept.
    pub(super) fn address(&self, section: u32) -> Option<u64> {
        let part = self.all.get(section as usize).filter(|part| part.is_kept)?;
        Some(self.segments[part.segment? as usize].address + part.offset)
    }

    /// Returns the segment and the offset in it of a place in a section that is kept.
    #[cfg(slabjit_faults)]
    pub(super) fn place(&self, section: u32, offset: u64) -> Option<(usize, usize)> {
        let part = self.all.get(section as usize)?;
        let before = PROTECTIONS.iter().take_while(|protection| Some(**protection) != part.segment);
        let segment = before.filter(|protection| self.segments[**protection as usize].alignment != 0).count();
        Some((segment, (part.offset + offset) as usize))
    }

    /// Returns where the contents of a requested segment ended before one of these was added.
    #[cfg(slabjit_faults)]
    pub(super) fn end_before(&self, segment: usize, extras: &[Extra]) -> usize {
        let requested = |of: &&Extra| {
            let into = self.segments[of.protection as usize];
            of.bytes != 0 && into.position == segment
        };
        let contents =
            self.segments.iter().find(|of| of.alignment != 0 && of.position == segment).map(|of| of.contents);
        extras.iter().find(requested).map_or(contents.unwrap_or(0), |extra| extra.after) as usize
    }

    /// Returns the memory of a section and what follows it.
    pub(super) fn memory<'s>(&self, section: u32, slab: &'s mut WritableSlab) -> Option<&'s mut [u8]> {
        let part = self.all.get(section as usize)?;
        let segment = self.segments[part.segment? as usize];
        slab.contents_mut(segment.position)?.get_mut(usize::try_from(part.offset).ok()?..)
    }
}
