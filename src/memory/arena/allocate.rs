//! Allocation of an object's memory: packed, in prepared pages, or in pages of its own.

use std::ops::Range;
use std::sync::Arc;

use super::{Arena, Blame, BlamedSection, PlacementHints, State};
use crate::memory::layout::{Layout, LayoutError, MAX_ALIGNMENT, SegmentRequest};
use crate::memory::map_count::{self, TooMany};
use crate::memory::packed::{self, PackedMode, PackedSlab};
use crate::memory::slab::WritableSlab;
use crate::name::Name;
use crate::{Error, MemoryError, ObjectError, Result};

impl Arena {
    /// Takes a slab for the segments of an object, writable as a whole and zero.
    ///
    /// `name_section` is called at most once, and only to write an error.
    pub(crate) fn allocate(
        self: &Arc<Self>,
        object: &Name,
        segments: &[SegmentRequest],
        company: PlacementHints,
        name_section: impl FnOnce(Blame) -> BlamedSection,
    ) -> Result<WritableSlab> {
        let wanted = if company.shares { packed::wanted(segments, self.page) } else { None };
        let pack = |most: usize| self.pack(object, wanted.filter(|wanted| packed::bytes(wanted) <= most)?, segments);
        if let Some(slab) = pack(packed::small(self.page)) {
            return Ok(slab);
        }
        if let Err(too_many) = map_count::admit() {
            return pack(packed::MOST).ok_or_else(|| mapping_limit(object, too_many));
        }
        let mut layout = match Layout::new(segments, self.page) {
            Ok(layout) => layout,
            Err(error) => return Err(self.no_layout(object, segments, error, name_section)),
        };
        let small = (1..=super::small(self.page)).contains(&layout.size) && layout.align <= self.page;
        let can_be_ready = small && !self.writes_code_elsewhere() && layout.is_all_content(self.page);
        let ready = if can_be_ready { self.take_ready(layout.size) } else { None };
        let is_ready = ready.is_some();
        let span = match ready {
            Some((span, neighbour)) => {
                if company.batch {
                    neighbour.into_iter().for_each(|neighbour| layout.turn_to(neighbour));
                    self.state().carved = layout.end().map(|end| (span.end, end));
                }
                span
            }
            None => match self.take_somehow(&layout) {
                Some(span) => span,
                // Packed objects may have left room meanwhile.
                None => {
                    return pack(packed::small(self.page))
                        .ok_or_else(|| self.exhausted(object, layout.size as u64, name_section));
                }
            },
        };
        layout.spread(segments, span.start, self.page);
        WritableSlab::new(Arc::clone(self), object, span, is_ready, layout, segments)
    }

    /// Takes a slab for segments that keep their distances: at these offsets, which ascend from 0 by whole pages.
    pub(crate) fn allocate_at(
        self: &Arc<Self>,
        object: &Name,
        segments: &[SegmentRequest],
        offsets: &[u64],
        name_section: impl FnOnce(Blame) -> BlamedSection,
    ) -> Result<WritableSlab> {
        map_count::admit().map_err(|too_many| mapping_limit(object, too_many))?;
        let layout = match Layout::fixed(segments, offsets, self.page) {
            Ok(layout) => layout,
            Err(error) => return Err(self.no_layout(object, segments, error, name_section)),
        };
        match self.take_somehow(&layout) {
            Some(span) => WritableSlab::new(Arc::clone(self), object, span, false, layout, segments),
            None => Err(self.exhausted(object, layout.size as u64, name_section)),
        }
    }

    /// Takes addresses for a slab; if need be, prepared ones, and those that rest.
    fn take_somehow(&self, layout: &Layout) -> Option<Range<usize>> {
        let span = self.take(layout).or_else(|| {
            self.give_ready_back();
            self.take(layout)
        });
        let span = span.or_else(|| {
            self.make_room();
            self.take(layout)
        });
        span.or_else(|| std::iter::from_fn(|| self.wake_oldest()).find_map(|()| self.take(layout)))
    }

    fn no_layout(
        &self,
        object: &Name,
        segments: &[SegmentRequest],
        error: LayoutError,
        name_section: impl FnOnce(Blame) -> BlamedSection,
    ) -> Error {
        match error {
            LayoutError::TooLarge => self.exhausted(object, u64::MAX, name_section),
            LayoutError::Alignment { segment } => Error::Memory(MemoryError::UnsupportedAlignment {
                object: object.to_string(),
                section: name_section(Blame::Alignment { segment }).name,
                alignment: segments.get(segment).map_or(0, |s| s.alignment),
                limit: MAX_ALIGNMENT,
            }),
            LayoutError::Malformed { segment } => Error::Object(ObjectError::Malformed {
                object: object.to_string(),
                section: Some(name_section(Blame::Alignment { segment }).name),
                offset: None,
                problem: "its alignment is not a power of two".to_owned(),
            }),
        }
    }

    /// Packs an object. Returns `None` if there is no room.
    fn pack(
        self: &Arc<Self>,
        object: &Name,
        wanted: [packed::Wanted; 3],
        segments: &[SegmentRequest],
    ) -> Option<WritableSlab> {
        let mut placing = {
            let mut state = self.state();
            if state.packing.as_ref()?.mode() == PackedMode::PageStriped {
                drop(state);
                if self.writes_code_elsewhere() {
                    return None;
                }
                map_count::admit().ok()?;
                state = self.state();
            }
            let State { packing, ranges, stats, .. } = &mut *state;
            let placing = packing.as_mut()?.take(&self.mapping, ranges, wanted)?;
            stats.slabs += 1;
            stats.slab_bytes += placing.runs.bytes();
            placing
        };
        let slab = PackedSlab::new(Arc::clone(self), &mut placing);
        Some(WritableSlab::packed(slab, object, &placing, segments))
    }
}

fn mapping_limit(object: &Name, TooMany { mappings, limit }: TooMany) -> Error {
    let (object, mappings, limit) = (object.to_string(), mappings as u64, limit as u64);
    Error::Memory(MemoryError::MappingLimit { object, mappings, limit })
}
