//! A packed object's memory, freed on drop.

use std::ops::Range;
use std::sync::Arc;

use super::super::arena::{Arena, Going};
use super::super::runs::SlabRange;
use super::views::WritableView;
use super::{PackedRuns, Placing};
use crate::fork_guard;
use crate::functions::SortedFunctions;
use crate::memory::address_log::RecordId;
use crate::memory::map_count::Counted;
use crate::name::Name;

/// The runs of an object, freed on drop.
#[derive(Debug)]
pub(in super::super) struct PackedSlab {
    arena: Arc<Arena>,
    runs: PackedRuns,
    epoch: u32,
    /// The record of its owner, once its addresses may be given out.
    record: Option<RecordId>,
    /// The generation of the process that made it.
    generation: u32,
    /// The second view, while it is written there.
    view: Option<Arc<WritableView>>,
    /// Whether its memory is to be closed.
    open: bool,
    /// Whether it was marked as removed, and [overwritten](Self::overwrite).
    overwritten: bool,
    /// Whether its memory has gone.
    gone: bool,
    two_views: bool,
    /// Its count of mappings, if it has pages of its own.
    counted: Option<Counted>,
}

impl PackedSlab {
    pub(in super::super) fn new(arena: Arc<Arena>, placing: &mut Placing) -> Self {
        let (runs, epoch, generation) = (placing.runs, placing.epoch, fork_guard::generation());
        let view = placing.view.take();
        let two_views = view.is_some();
        let counted = (!two_views).then(|| Counted::new(placing.runs.iter(arena.range().start).count()));
        Self {
            arena,
            runs,
            epoch,
            record: None,
            generation,
            view,
            open: placing.open,
            overwritten: false,
            gone: false,
            two_views,
            counted,
        }
    }

    pub(in super::super) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Returns whether it is written through a second view.
    pub(in super::super) fn has_two_views(&self) -> bool {
        self.two_views
    }

    /// Ends the writing.
    pub(in super::super) fn end_write(&mut self) {
        self.counted.iter_mut().for_each(Counted::has_come);
        self.view = None;
        if std::mem::take(&mut self.open) {
            self.arena.end_write(self.epoch);
        }
    }

    pub(in super::super) fn belong_to(&mut self, library: &Name, object: &Name, functions: &SortedFunctions<'_>) {
        self.record = self.arena.note_packed(&self.runs, library, object, functions);
    }

    pub(in super::super) fn functions(&self) -> Vec<(String, Range<usize>)> {
        self.record.map_or_else(Vec::new, |record| self.arena.functions(record))
    }

    pub(in super::super) fn ranges(&self) -> impl Iterator<Item = SlabRange> {
        let runs = self.runs.iter(self.arena.range().start);
        runs.map(|run| SlabRange { addresses: run.addresses, protection: run.protection, outside: false })
    }

    fn going(&self) -> Going {
        Going { runs: self.runs, record: self.record, overwritten: self.overwritten }
    }

    /// Marks it as removed, and overwrites it but for `kept`, if its addresses may stay taken for a while. Returns how
    /// many bytes it has then.
    pub(in super::super) fn overwrite(&mut self, kept: &Range<usize>) -> Option<usize> {
        let record = self.record.filter(|_| self.two_views && !self.is_inherited())?;
        self.overwritten = self.arena.overwrite_packed(&self.runs, record, self.epoch, kept);
        self.overwritten.then(|| self.runs.bytes())
    }

    /// Returns whether another process made it.
    fn is_inherited(&self) -> bool {
        self.generation != fork_guard::generation()
    }

    /// Frees those that were removed together, with few calls for neighbours.
    pub(in super::super) fn free_all(slabs: &mut [&mut Self]) {
        let same = |one: &&mut Self, next: &&mut Self| {
            Arc::ptr_eq(&one.arena, &next.arena) && (one.epoch, one.generation) == (next.epoch, next.generation)
        };
        for slabs in slabs.chunk_by_mut(same) {
            slabs.iter_mut().for_each(|slab| slab.end_write());
            let going: Vec<Going> = slabs.iter().map(|slab| slab.going()).collect();
            if let [first, ..] = &*slabs {
                first.arena.retire_packed(&going, first.epoch, first.is_inherited());
            }
            slabs.iter_mut().for_each(|slab| slab.gone = true);
        }
    }
}

impl Drop for PackedSlab {
    fn drop(&mut self) {
        if !self.gone {
            self.end_write();
            self.arena.retire_packed(&[self.going()], self.epoch, self.is_inherited());
        }
    }
}
