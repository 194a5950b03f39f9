//! Segments outside the arena, each with a mapping of its own.

use std::io;
use std::ops::Range;

use super::layout::Segment;
use super::os::Mapping;
use super::{Lifetime, Protection};
use crate::memory::address_log::RecordId;

#[derive(Debug)]
pub(super) struct Outside {
    mapping: Mapping,
    /// The pages of the segment; the rest of the mapping only provides alignment, and is never touched.
    pub(super) range: Range<usize>,
    pub(super) protection: Protection,
    pub(super) lifetime: Lifetime,
    /// The record of its owner, once its addresses may be given out.
    pub(super) record: Option<RecordId>,
}

impl Outside {
    /// Maps writable zero pages for a segment that is not empty.
    pub(super) fn map(segment: &Segment, protection: Protection, lifetime: Lifetime, page: usize) -> io::Result<Self> {
        let too_large = || io::Error::from_raw_os_error(libc::ENOMEM);
        let len = segment.size.checked_next_multiple_of(page).ok_or_else(too_large)?;
        let mapping = Mapping::writable(len.checked_add(segment.align - page).ok_or_else(too_large)?)?;
        let start = mapping.range().start.next_multiple_of(segment.align);
        Ok(Self { mapping, range: start..start + len, protection, lifetime, record: None })
    }

    pub(super) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    pub(super) fn mapped_bytes(&self) -> usize {
        self.mapping.range().len()
    }

    pub(super) fn unmap(self) -> io::Result<()> {
        self.mapping.unmap()
    }
}
