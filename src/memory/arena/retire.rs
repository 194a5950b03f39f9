//! The end of a slab: its memory is taken away, or kept for the next large one, and its addresses rest until others may
//! have them.

use std::io;
use std::ops::Range;

use super::{Arena, State};
use crate::fork_guard::{ForkGuard, Guard};
use crate::memory::address_log::{RecordId, RemovalTime};
use crate::memory::outside::Outside;
use crate::memory::packed::{self, Left, PackedRun, PackedRuns, Trap};
use crate::memory::pages::Pages;
use crate::memory::protection::Protection;
use crate::memory::quarantine::{self, Rested, Resting};
use crate::memory::ranges::around;
use crate::memory::warm::Taken;

/// The most packed objects that go at once.
const MOST_AT_ONCE: usize = 256;

/// A packed object that goes, and its record if its addresses were given out.
#[derive(Debug, Clone, Copy)]
pub(in crate::memory) struct Going {
    pub(in crate::memory) runs: PackedRuns,
    pub(in crate::memory) record: Option<RecordId>,
    /// Whether it was marked as removed, and [overwritten](Arena::overwrite_packed).
    pub(in crate::memory) overwritten: bool,
}

impl Arena {
    /// Marks a packed object as removed, and overwrites it but for `kept`. Returns false if it is to go at once.
    pub(in crate::memory) fn overwrite_packed(
        &self,
        runs: &PackedRuns,
        record: RecordId,
        epoch: u32,
        kept: &Range<usize>,
    ) -> bool {
        // No fork comes between the check and the action.
        let _pass = ForkGuard::take();
        let mut state = self.state();
        let State { packing: Some(packing), quarantine, .. } = &mut *state else { return false };
        // Without a quarantine, others may want its room.
        if quarantine.is_off() || !packing.is_current(epoch) || packing.begin_write().is_err() {
            return false;
        }
        self.mark_removed([record]);
        let trap = packed::trap(self.history.generation(record));
        let parts = runs.iter(self.range().start).flat_map(|PackedRun { addresses, protection }| {
            around(&addresses, kept).into_iter().map(move |addresses| PackedRun { addresses, protection })
        });
        let mut parts = parts.filter(|part| !part.addresses.is_empty());
        let overwritten = parts.all(|part| packing.overwrite(&self.mapping, &part, trap).is_ok());
        packing.end_write(epoch);
        overwritten
    }

    /// Overwrites packed objects, and counts that they go. The addresses of those that were recorded rest, and then
    /// become free.
    pub(in crate::memory) fn retire_packed(&self, going: &[Going], epoch: u32, inherited: bool) {
        // Others that load wait no longer than for so many.
        for going in going.chunks(MOST_AT_ONCE) {
            let left = {
                // No fork comes between the check and the action.
                let _pass = ForkGuard::take();
                self.mark_removed(going.iter().filter(|going| !going.overwritten).filter_map(|going| going.record));
                let mut state = self.state();
                let left = state.so_many_go(going.len());
                self.retire_runs(state, going, epoch, inherited);
                left
            };
            self.give_back_after(left);
        }
    }

    fn retire_runs(&self, mut state: Guard<'_, State>, going: &[Going], epoch: u32, inherited: bool) {
        let bytes: usize = going.iter().map(|going| going.runs.bytes()).sum();
        state.stats.slab_bytes -= bytes;
        let Some(packing) = &mut state.packing else { return };
        let is_current = packing.is_current(epoch);
        let writes = is_current && packing.begin_write().is_ok();
        let mut clean = writes == is_current;
        let mut retire = |(run, trap): (PackedRun, Option<Trap>)| {
            if writes && let Some(trap) = trap {
                clean &= packing.overwrite(&self.mapping, &run, trap).is_ok();
            }
            clean &= packing.rest(&self.mapping, &run, epoch).is_ok();
        };
        let mut neighbours = [const { None::<(PackedRun, Option<Trap>)> }; 3];
        for Going { runs, record, overwritten } in going {
            let trap = packed::trap(record.map_or(0, |record| self.history.generation(record)));
            for run in runs.iter(self.range().start) {
                // Of constants, unwind tables were kept.
                let trap = (!overwritten || run.protection == Protection::Read).then_some(trap);
                match &mut neighbours[run.protection as usize] {
                    Some((before, of)) if before.addresses.end == run.addresses.start && *of == trap => {
                        before.addresses.end = run.addresses.end;
                    }
                    before => before.replace((run, trap)).into_iter().for_each(&mut retire),
                }
            }
        }
        neighbours.into_iter().flatten().for_each(retire);
        if writes {
            packing.end_write(epoch);
        }
        if inherited || !clean {
            state.stats.lost_bytes += bytes;
        }
        if inherited {
            return;
        }
        let State { packing: Some(packing), ranges, .. } = &mut *state else { return };
        for Going { runs, .. } in going.iter().filter(|going| !clean || going.record.is_none()) {
            let left = if clean { Left::Unseen } else { Left::Dirty };
            packing.wake(&self.mapping, ranges, runs, epoch, left);
        }
        let resting = |Going { runs, record, .. }: &Going| Some(Resting::packed(*runs, epoch, (*record)?));
        self.rest(state, going.iter().filter(|_| clean).filter_map(resting));
    }

    /// Marks occupants as removed now, and keeps their functions from the dynamic loader.
    pub(super) fn mark_removed(&self, records: impl IntoIterator<Item = RecordId>) {
        let now = RemovalTime::now();
        let mut symbols = records.into_iter().filter_map(|record| self.history.remove(record, now)).peekable();
        if symbols.peek().is_some() {
            self.mapping.hide(symbols);
        }
    }

    /// Takes away the memory of a slab from before a fork. Its addresses are not reused, as the parent may have given
    /// them out.
    pub(in crate::memory) fn retire_inherited(&self, range: &Range<usize>, record: Option<RecordId>, of_file: bool) {
        self.mark_removed(record);
        // Pages that stay accessible keep their contents.
        let _ = self.take_pages_away(range, of_file);
        let mut state = self.state();
        state.stats.slab_bytes -= range.len();
        state.stats.lost_bytes += range.len();
    }

    /// Does the same for a segment that was [counted](Self::count_outside).
    pub(in crate::memory) fn retire_inherited_outside(&self, outside: Outside) {
        self.mark_removed(outside.record);
        let bytes = outside.mapped_bytes();
        let _ = outside.mapping().take_away(&outside.mapping().range());
        std::mem::forget(outside);
        let mut state = self.state();
        state.stats.outside_bytes -= bytes;
        state.stats.lost_bytes += bytes;
    }

    /// Takes the memory of [recorded](Self::note) ranges away, with one call for neighbours.
    pub(in crate::memory) fn take_away(
        &self,
        range: &Range<usize>,
        records: impl IntoIterator<Item = RecordId>,
    ) -> io::Result<()> {
        // Marks the record before the memory goes, so that a trap there finds the mark.
        self.mark_removed(records);
        self.take_pages_away(range, false)
    }

    /// Keeps the memory of [recorded](Self::note) ranges for other slabs, with one call for neighbours. Takes it away
    /// if it is too little to be kept.
    pub(in crate::memory) fn keep_warm(
        &self,
        range: &Range<usize>,
        records: impl IntoIterator<Item = RecordId>,
    ) -> io::Result<()> {
        if !self.keeps_warm(range.len()) {
            return self.take_away(range, records);
        }
        self.mark_removed(records);
        self.mapping.deny(range)?;
        self.push_warm(&mut self.state(), range.clone());
        Ok(())
    }

    fn push_warm(&self, state: &mut State, range: Range<usize>) {
        state.warm.push(range);
        while let Some(oldest) = state.warm.pop_over_limit()
            && self.cool(state, oldest)
        {}
    }

    /// Lets the addresses of a recorded slab rest; later they become free. Takes its memory away, unless that has been
    /// [done](Self::take_away), or keeps it for another slab.
    pub(in crate::memory) fn retire(&self, range: Range<usize>, record: RecordId, pages: Pages) {
        let is_away = pages == Pages::Away;
        if !is_away {
            // Before the memory goes, so that a trap there finds the mark.
            self.mark_removed([record]);
        }
        let is_kept = pages == Pages::Full && self.keeps_warm(range.len()) && self.mapping.deny(&range).is_ok();
        let clean = is_away || is_kept || self.take_pages_away(&range, pages == Pages::OfFile).is_ok();
        let mut state = self.state();
        state.stats.slab_bytes -= range.len();
        if !clean {
            state.stats.lost_bytes += range.len();
            return;
        }
        if is_kept {
            self.push_warm(&mut state, range.clone());
        }
        self.rest(state, [Resting::in_arena(&range, record)]);
    }

    /// Returns the most bytes of removed slabs that are kept for others.
    pub(in crate::memory) fn most_warm(&self) -> usize {
        if self.writes_code_elsewhere() { 0 } else { self.state().warm.limit() }
    }

    /// Returns whether the pages of a removed slab of this size are kept for others.
    pub(in crate::memory) fn keeps_warm(&self, bytes: usize) -> bool {
        !self.writes_code_elsewhere() && self.state().warm.takes(bytes)
    }

    /// Moves memory that a removed slab has left to the front of a reserved range. Returns the pages that have some.
    pub(in crate::memory) fn warm_up(&self, range: &Range<usize>) -> Range<usize> {
        let none = range.start..range.start;
        if self.writes_code_elsewhere() {
            return none;
        }
        // Under the lock, as the addresses may be woken otherwise.
        let mut state = self.state();
        let Some(Taken { pages, rest }) = state.warm.take(range.len()) else { return none };
        let moved = self.mapping.move_memory(&pages, range).is_ok();
        if !moved {
            // The kernel is older than 5.7, say: the pages are given back, as if they had not been kept.
            self.cool(&mut state, pages);
        }
        self.cool(&mut state, rest);
        if moved { range.clone() } else { none }
    }

    /// Takes the memory of resting pages away. Those of which the system refuses that stay denied, and are tried again
    /// before their addresses are reused.
    pub(super) fn cool(&self, state: &mut State, pages: Range<usize>) -> bool {
        let is_cold = pages.is_empty() || self.take_pages_away(&pages, false).is_ok();
        if !is_cold {
            state.warm.push(pages);
        }
        is_cold
    }

    /// Does the same for a recorded segment that was [counted](Self::count_outside).
    pub(in crate::memory) fn retire_outside(&self, outside: Outside, record: RecordId) {
        self.mark_removed([record]);
        let bytes = outside.mapped_bytes();
        // Pages that stay accessible are unmapped when the range is woken.
        let _ = outside.mapping().take_away(&outside.mapping().range());
        let mut state = self.state();
        state.stats.outside_bytes -= bytes;
        self.rest(state, [Resting::outside(outside, record)]);
    }

    /// Lets addresses rest, and wakes those that have rested long enough.
    pub(super) fn rest(&self, mut state: Guard<'_, State>, resting: impl IntoIterator<Item = Resting>) {
        let mut unmapped = Vec::new();
        for resting in resting {
            // One goes before another comes, so that the queue does not double for it.
            if let Some(oldest) = state.quarantine.pop_of_most() {
                unmapped.extend(self.wake(&mut state, oldest));
            }
            state.quarantine.push(resting);
            while let Some(oldest) = state.quarantine.pop_over_limit() {
                unmapped.extend(self.wake(&mut state, oldest));
            }
        }
        drop(state);
        unmapped.into_iter().for_each(|outside| self.unmap_outside(outside));
    }

    /// Frees the addresses that have rested longest. Returns `None` if there are none.
    pub(super) fn wake_oldest(&self) -> Option<()> {
        let outside = {
            let mut state = self.state();
            let oldest = state.quarantine.pop()?;
            self.wake(&mut state, oldest)
        };
        if let Some(outside) = outside {
            self.unmap_outside(outside);
        }
        Some(())
    }

    pub(super) fn wake(&self, state: &mut State, resting: Resting) -> Option<Outside> {
        let (writer, record) = (&mut state.writer, resting.record());
        let forgotten = match resting.place() {
            quarantine::Place::Arena { start, .. } => self.history.forget(writer, record, *start),
            quarantine::Place::Outside(outside) => self.history.forget(writer, record, outside.range.start),
            quarantine::Place::Packed(packed) => {
                let runs = packed.runs.iter(self.range().start).map(|run| run.addresses);
                self.history.forget_granules(writer, record, runs)
            }
        };
        forgotten.symbols().for_each(|symbols| self.mapping.unlist(symbols));
        match resting.wake() {
            Rested::Arena(range) => {
                match state.warm.remove(&range).map(|pages| self.take_pages_away(&pages, false)) {
                    Some(Err(_)) => state.stats.lost_bytes += range.len(),
                    Some(Ok(())) | None => state.ranges.free(range),
                }
                None
            }
            Rested::Outside(outside) => Some(*outside),
            Rested::Packed(packed) => {
                let State { packing, ranges, .. } = state;
                if let Some(packing) = packing {
                    packing.wake(&self.mapping, ranges, &packed.runs, packed.epoch, Left::Used);
                }
                None
            }
        }
    }

    pub(super) fn unmap_outside(&self, outside: Outside) {
        let bytes = outside.mapped_bytes();
        if outside.unmap().is_err() {
            self.state().stats.lost_bytes += bytes;
        }
    }
}
