//! The memory that an image wants: parts by access, as an object has them, or its segments at the distances that they
//! have in the file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use smallvec::SmallVec;

use crate::elf::image_file::{ImageIndex, ImageSegment};
use crate::elf::put;
use crate::fault::{Call, check};
use crate::memory::{Extent, Lifetime, Protection, SegmentRequest, WritableSlab, page_size};

const PROTECTIONS: [Protection; 3] = [Protection::ReadExecute, Protection::Read, Protection::ReadWrite];
pub(super) const WORD: u64 = 8;

/// Where something goes: the number of a request, and the offset there.
pub(super) type Place = (usize, u64);

pub(super) struct Room {
    pub(super) requests: SmallVec<[SegmentRequest; 4]>,
    /// Offsets of the requests, if they keep the file's distances.
    pub(super) offsets: Option<Vec<u64>>,
    /// The place of each segment.
    pub(super) segments: SmallVec<[Place; 4]>,
    /// Of the words that descriptors refer to.
    pub(super) descriptors: Place,
    /// Of the thread-local block's placeholder, which has no contents.
    pub(super) block: Place,
}

impl Room {
    /// `of_file`: its bytes are a file's that can be shown.
    pub(super) fn new(image: &ImageIndex, of_file: bool) -> Self {
        let together = image.keeps_distances().then(|| Self::together(image, page_size() as u64, of_file)).flatten();
        together.unwrap_or_else(|| Self::apart(image))
    }

    fn apart(image: &ImageIndex) -> Self {
        let mut requests: SmallVec<[SegmentRequest; 4]> = PROTECTIONS.into_iter().map(request).collect();
        let mut segments = SmallVec::new();
        for segment in &image.segments {
            let number = PROTECTIONS.iter().position(|of| *of == protection(segment)).unwrap_or(0);
            let Some(request) = requests.get_mut(number) else { continue };
            // It lies at the same offset from a multiple of its alignment as in the file.
            request.alignment = request.alignment.max(segment.alignment);
            let at = request.content_bytes.next_multiple_of(segment.alignment) + segment.address % segment.alignment;
            segments.push((number, at));
            request.content_bytes = at + segment.file.len() as u64;
            request.zero_fill_bytes = segment.bytes - segment.file.len() as u64;
        }
        let mut add = |number: usize, content: u64, zeros: u64| {
            let Some(request) = requests.get_mut(number).filter(|_| content + zeros != 0) else { return (number, 0) };
            request.alignment = request.alignment.max(WORD);
            let end = request.content_bytes + request.zero_fill_bytes;
            let at = end.next_multiple_of(WORD);
            if content != 0 {
                request.content_bytes = at + content;
            } else {
                request.zero_fill_bytes = at + zeros - request.content_bytes;
            }
            (number, at)
        };
        let descriptors = add(1, descriptor_bytes(image), 0);
        let block = add(2, 0, block_bytes(image));
        Self { requests, offsets: None, segments, descriptors, block }
    }

    /// Returns `None` where segments would share pages, which are larger here than those that the file was made for.
    fn together(image: &ImageIndex, page: u64, of_file: bool) -> Option<Self> {
        let (mut requests, mut offsets, mut segments) = (SmallVec::new(), Vec::new(), SmallVec::new());
        let mut end = 0;
        for segment in &image.segments {
            let start = segment.address - segment.address % page;
            if start < end || requests.is_empty() && start != 0 {
                return None;
            }
            end = (segment.address + segment.bytes).next_multiple_of(page);
            let before = segment.address - start;
            segments.push((requests.len(), before));
            offsets.push(start);
            let (mut content_bytes, all) = (before + segment.file.len() as u64, before + segment.bytes);
            if of_file && segment.stays_as_in_file() {
                // Nothing is brought in that the file will be.
                content_bytes = 0;
            }
            let zero_fill_bytes = all - content_bytes;
            let alignment = segment.alignment;
            let overwritten = Extent { start: before, bytes: segment.file.len() as u64 };
            let request = request(protection(segment));
            requests.push(SegmentRequest { alignment, content_bytes, zero_fill_bytes, overwritten, ..request });
        }
        let mut add = |content_bytes: u64, zero_fill_bytes: u64, protection| {
            if content_bytes + zero_fill_bytes == 0 {
                return (0, 0);
            }
            offsets.push(end);
            end += (content_bytes + zero_fill_bytes).next_multiple_of(page);
            requests.push(SegmentRequest { content_bytes, zero_fill_bytes, ..request(protection) });
            (requests.len() - 1, 0)
        };
        let descriptors = add(descriptor_bytes(image), 0, Protection::Read);
        let block = add(0, block_bytes(image), Protection::ReadWrite);
        Some(Self { requests, offsets: Some(offsets), segments, descriptors, block })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.requests.iter().map(|request| request.content_bytes + request.zero_fill_bytes).sum()
    }

    /// Writes the contents of all segments. Those of a `file` that programs do not write are its pages.
    pub(super) fn fill(&self, slab: &mut WritableSlab, image: &ImageIndex, bytes: &[u8], file: Option<&File>) {
        for (segment, (request, at)) in image.segments.iter().zip(&self.segments) {
            let contents = bytes.get(segment.file.clone()).unwrap_or_default();
            let pages = (segment.file.start as u64).checked_sub(*at).filter(|_| segment.stays_as_in_file());
            if let (Some(file), Some(offset), Some(_)) = (file, pages, &self.offsets)
                && slab.show_file(*request, file, offset).is_ok()
            {
                continue;
            }
            if let Some(memory) = slab.contents_mut(*request).and_then(|memory| memory.get_mut(*at as usize..)) {
                // Reading brings no page in that only this would want.
                let read = |(file, to)| read_from(file, segment.file.start as u64, to).ok();
                let is_read = file.zip(memory.get_mut(..contents.len())).and_then(read);
                if is_read.is_none() {
                    put(memory, 0, contents);
                }
            }
            self.note_code(slab, *request, *at as usize, contents.len());
        }
    }

    /// Notes that code was written where the slab does not know of any.
    pub(super) fn note_code(&self, slab: &mut WritableSlab, request: usize, at: usize, bytes: usize) {
        let of = self.requests.get(request).filter(|of| of.protection == Protection::ReadExecute);
        if of.is_some_and(|of| of.content_bytes == 0) {
            slab.note_code(request, at..at + bytes);
        }
    }
}

fn read_from(file: &File, offset: u64, to: &mut [u8]) -> io::Result<()> {
    check(Call::ReadImage)?;
    file.read_exact_at(to, offset)
}

fn request(protection: Protection) -> SegmentRequest {
    let (alignment, content_bytes, zero_fill_bytes) = (1, 0, 0);
    let (lifetime, outside, overwritten) = (Lifetime::Standard, false, Extent::default());
    SegmentRequest { protection, lifetime, alignment, content_bytes, zero_fill_bytes, outside, overwritten }
}

fn protection(segment: &ImageSegment) -> Protection {
    match (segment.executable, segment.writable) {
        (true, _) => Protection::ReadExecute,
        (false, false) => Protection::Read,
        (false, true) => Protection::ReadWrite,
    }
}

fn descriptor_bytes(image: &ImageIndex) -> u64 {
    2 * WORD * image.descriptors as u64
}

fn block_bytes(image: &ImageIndex) -> u64 {
    image.thread_local.map_or(0, |(.., bytes)| bytes.max(1))
}
