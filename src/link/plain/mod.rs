//! Links plain objects without a graph: those without thread-local variables of their own, whose references all reach
//! their targets. Most kernels are. On x86-64, GOT entries and calls to functions far away are plain, too.
//!
//! Their sections are laid out as JITLink would (`BasicLayout` in JITLinkMemoryManager.h), copied, and their fields
//! written by the ABI's tables. At whatever is not plain this gives up, and JITLink links the object, or says what is
//! wrong with it. Tests compare the memory of each plain object with what JITLink makes of it (`compare`).
//!
//! ```text
//! symbols  where references lead
//! parts    which sections are kept, and where they lie
//! frames   which records of the unwind table are kept
//! got      GOT entries
//! write    the memory
//! ```

#[cfg(slabjit_faults)]
pub(in crate::link) mod compare;
mod frames;
mod got;
mod parts;
mod symbols;
mod write;

use smallvec::SmallVec;

use crate::DebugInfo;
use crate::elf::link_tables::{LinkTables, Relocation, Relocations, SymbolPlace};
use crate::elf::relocations::{Kind, Operation, Table, Through};
use crate::elf::{EM_X86_64, ObjectIndex, SHN_LORESERVE, Section};
use crate::link::reach::{Edge, Place, Reach};
use crate::live::resolve::decided::{Defined, External};
use crate::live::resolve::prepared::PreparedObject;
use crate::memory::{Protection, SegmentRequest};
use frames::Records;
use got::Got;
use parts::{Extra, Parts, Waiting};
use symbols::{Symbols, Target};
pub(in crate::link) use write::Around;

/// What has been decided about an object.
#[derive(Clone, Copy)]
pub(in crate::link) struct Decisions<'a> {
    pub(in crate::link) object: &'a PreparedObject,
    pub(in crate::link) externals: &'a [External],
    pub(in crate::link) definitions: &'a [Defined],
    pub(in crate::link) dead_sections: &'a [u32],
    /// Whether exports of other objects lie in the arena.
    pub(in crate::link) are_near: bool,
}

/// A plain object before it is linked.
pub(in crate::link) struct Plain<'a> {
    of: Decisions<'a>,
    tables: LinkTables<'a>,
    table: Table,
    symbols: Symbols,
    parts: Parts,
    /// The records of the unwind table, if not all are kept.
    records: Option<Box<Records>>,
    /// Whether code loads from the GOT.
    has_loads: bool,
    got: Got,
    /// Memory beside the sections: GOT entries; jumps to what is far away; and what these jumps, and references to
    /// thread-local variables, load.
    extras: Option<[Extra; 3]>,
    /// The fields that JITLink fills differently (see [`apart`](Self::apart)): section and offset.
    #[cfg(slabjit_faults)]
    apart: Vec<(u32, u64)>,
}

/// How a field gets its value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Direct,
    /// From the symbol's GOT entry.
    Got,
    /// From an entry of ours for a thread-local variable, as JITLink does not know the kind.
    Lifted,
}

/// Alignment of memory for references (`makeRoom` in reach.cpp).
const ROOM: u64 = 16;

impl<'a> Plain<'a> {
    /// Looks whether an object is plain. `reach` surveys its references.
    pub(in crate::link) fn new(of: Decisions<'a>, reach: &mut Reach) -> Option<Self> {
        let index = &of.object.index;
        // Symbols tell the sections of larger objects elsewhere.
        let few = index.sections.len() < usize::from(SHN_LORESERVE);
        if !few || !is_simple(index) || of.definitions.is_empty() {
            return None;
        }
        let tables = LinkTables::new(&of.object.bytes, index.sections.len())?;
        let symbols = Symbols::new(index, &tables, of.externals, of.definitions)?;
        // Elsewhere, an object of the arena may be too far away.
        if symbols.is_together && index.machine != EM_X86_64 {
            return None;
        }
        let parts = Parts::new(index, &tables)?;
        let mut plain = Self {
            of,
            tables,
            table: Table::of(index.machine),
            symbols,
            parts,
            records: None,
            has_loads: false,
            got: Got::default(),
            extras: None,
            #[cfg(slabjit_faults)]
            apart: Vec::new(),
        };
        plain.keep(reach)?;
        plain.parts.kept().next()?;
        plain.parts.lay_out(index);
        plain.make_got()?;
        plain.make_room(reach.reserve())?;
        Some(plain)
    }

    /// Returns whether it can be written only when the addresses of other objects are known.
    pub(in crate::link) fn is_together(&self) -> bool {
        self.symbols.is_together
    }

    /// Keeps what the definitions refer to, as JITLink's `prune` does, and surveys the references of all that.
    fn keep(&mut self, reach: &mut Reach) -> Option<()> {
        let index = &self.of.object.index;
        let mut waiting = Waiting::new();
        for (definition, decided) in index.definitions.iter().zip(self.of.definitions) {
            if !matches!(decided, Defined::Discard(_)) {
                self.parts.keep(definition.section, &mut waiting)?;
            }
        }
        let arrays = index.arrays.iter().filter(|array| array.size != 0).map(|array| array.section);
        for section in arrays.chain(index.retain.iter().copied()) {
            if !self.is_dead(section) {
                self.parts.keep(section, &mut waiting)?;
            }
        }
        self.follow(&mut waiting, reach)?;
        self.keep_frames(&mut waiting, reach)
    }

    /// Keeps the unwind table, or what it has about functions that are kept. JITLink takes tables apart where they
    /// describe others, too (`keepFramesWhole` in frames.cpp).
    fn keep_frames(&mut self, waiting: &mut Waiting, reach: &mut Reach) -> Option<()> {
        let Some(frames) = self.parts.frames() else { return Some(()) };
        let relocations = self.relocations(frames)?;
        let place = |relocation: &Relocation| match self.tables.symbol(relocation.symbol)?.place() {
            SymbolPlace::Section(section, _) => Some(section),
            _ => None,
        };
        let mut records = frames::read(self.contents(frames)?, relocations, place)?;
        let is_kept = |record: &frames::Record| record.function.is_none_or(|function| self.parts.is_kept(function));
        if records.iter().all(is_kept) {
            self.parts.keep_frames(None);
            self.references(frames, relocations, waiting, reach)?;
            return self.follow(waiting, reach);
        }
        let of_functions = frames::by_function(&records);
        let kept: Vec<u32> = self.parts.kept().collect();
        for record in kept.into_iter().flat_map(|section| frames::of(&of_functions, section)) {
            self.keep_record(&mut records, record, waiting, reach)?;
        }
        // What these lead to has functions, too.
        while let Some(section) = waiting.pop() {
            self.references(section, self.relocations(section)?, waiting, reach)?;
            for record in frames::of(&of_functions, section) {
                self.keep_record(&mut records, record, waiting, reach)?;
            }
        }
        let bytes = frames::lay_out(&mut records, self.section(frames)?.alignment)?;
        self.parts.keep_frames(Some(bytes));
        self.records = Some(Box::new(records));
        Some(())
    }

    /// Keeps a record about a function, and its CIE.
    fn keep_record(
        &mut self,
        records: &mut Records,
        record: usize,
        waiting: &mut Waiting,
        reach: &mut Reach,
    ) -> Option<()> {
        let frames = self.parts.frames()?;
        for at in [record, records.get(record)?.cie] {
            let record = records.get_mut(at)?;
            if !std::mem::replace(&mut record.is_kept, true) {
                let relocations = self.relocations(frames)?.within(record.relocations.clone());
                self.references(frames, relocations, waiting, reach)?;
            }
        }
        Some(())
    }

    fn follow(&mut self, waiting: &mut Waiting, reach: &mut Reach) -> Option<()> {
        while let Some(section) = waiting.pop() {
            self.references(section, self.relocations(section)?, waiting, reach)?;
        }
        Some(())
    }

    /// Keeps what references in a section lead to, and surveys them.
    fn references(
        &mut self,
        section: u32,
        relocations: Relocations<'_>,
        waiting: &mut Waiting,
        reach: &mut Reach,
    ) -> Option<()> {
        let (of, contents) = (self.section(section)?, self.contents(section)?);
        for relocation in relocations.iter() {
            self.reference((section, of.is_executable(), contents), &relocation, waiting, reach)?;
        }
        Some(())
    }

    #[inline]
    fn reference(
        &mut self,
        (section, executable, contents): (u32, bool, &[u8]),
        relocation: &Relocation,
        waiting: &mut Waiting,
        reach: &mut Reach,
    ) -> Option<()> {
        let Some((kind, way)) = self.kind(section, relocation)? else { return Some(()) };
        let target = self.symbols.target(relocation.symbol)?;
        let (place, to) = match target {
            Target::Section(to, value) => {
                self.parts.keep(to, waiting)?;
                (if to == section { Place::SameBlock } else { Place::OtherBlock }, value)
            }
            Target::Address(address) => (Place::AtAddress, address),
            Target::Export(_) => (if self.of.are_near { Place::InArena } else { Place::Elsewhere }, 0),
            Target::Unknown => return None,
        };
        if way == Way::Got {
            self.has_loads = true;
            // JITLink has entries by names.
            let has_name = !self.tables.name(&self.tables.symbol(relocation.symbol)?)?.is_empty();
            return (executable && has_name).then_some(());
        }
        let is_branch_out = kind.through == Through::Stub && !matches!(target, Target::Section(..));
        #[cfg(slabjit_faults)]
        if is_branch_out || way == Way::Lifted {
            self.apart.push((section, relocation.offset));
        }
        let (number, offset, addend) = (kind.number, relocation.offset as usize, relocation.addend);
        let edge = Edge { relocation: number, offset, place, addend, target: to, symbol: &[] };
        let bridged = reach.survey_one(self.parts.bytes(), executable, contents, edge, kind);
        if bridged {
            // A call gets a jump, as it gets a stub of JITLink's. Other references are bridged where JITLink links.
            return (self.of.object.index.machine == EM_X86_64 && is_branch_out && addend == -4).then_some(());
        }
        let fits = way == Way::Lifted || !self.symbols.is_together || reach.always_fits(kind, &edge);
        fits.then_some(())
    }

    /// Makes GOT entries in the order of JITLink's: that in which code refers to them (`orderBlocks` in order.cpp).
    fn make_got(&mut self) -> Option<()> {
        if !self.has_loads {
            return Some(());
        }
        for section in 0..self.of.object.index.sections.len() as u32 {
            if !self.parts.is_kept(section) || self.parts.frames() == Some(section) {
                continue;
            }
            for relocation in self.relocations(section)?.iter() {
                if let Some((_, Way::Got)) = self.kind(section, &relocation)? {
                    self.got.add(relocation.symbol, self.tables.symbol_count())?;
                }
            }
        }
        Some(())
    }

    /// Makes room for GOT entries, and for what `reach` needs behind the code and in read-only data.
    fn make_room(&mut self, [before, code, data]: [u64; 3]) -> Option<()> {
        let got = self.got.symbols().len() as u64 * got::ENTRY;
        if [before, code, data, got] == [0; 4] {
            return Some(());
        }
        if before != 0 || self.of.object.index.machine != EM_X86_64 {
            return None;
        }
        let got = self.parts.add(Protection::Read, got, got::ENTRY)?;
        let data = self.parts.add(Protection::Read, data, ROOM)?;
        self.extras = Some([got, self.parts.add(Protection::ReadExecute, code, ROOM)?, data]);
        Some(())
    }

    /// Returns the kind of a relocation and how its field gets its value; `Some(None)` if it does nothing.
    fn kind(&self, section: u32, relocation: &Relocation) -> Option<Option<(&'static Kind, Way)>> {
        let index = &self.of.object.index;
        if index.lifted.len() != 0
            && let Some(kind) = index.lifted(self.section(section)?.offset.saturating_add(relocation.offset))
        {
            return matches!(kind.operation, Operation::ThreadLocal(_)).then_some(Some((kind, Way::Lifted)));
        }
        let (_, kind) = self.table.get(relocation.kind)?;
        match kind.operation {
            Operation::Nothing => Some(None),
            Operation::Absolute | Operation::Relative | Operation::PageRelative | Operation::PageOffset => {
                (kind.through != Through::Got).then_some(Some((kind, Way::Direct)))
            }
            Operation::GotRelative if self.of.object.index.machine == EM_X86_64 && kind.width == 4 => {
                Some(Some((kind, Way::Got)))
            }
            _ => None,
        }
    }

    fn is_dead(&self, section: u32) -> bool {
        self.of.dead_sections.binary_search(&section).is_ok()
    }

    fn section(&self, index: u32) -> Option<&'a Section> {
        self.of.object.index.sections.get(index as usize)
    }

    fn contents(&self, index: u32) -> Option<&'a [u8]> {
        let section = self.section(index)?;
        if !section.has_contents {
            return Some(&[]);
        }
        let start = usize::try_from(section.offset).ok()?;
        self.of.object.bytes.get(start..start.checked_add(usize::try_from(section.size).ok()?)?)
    }

    fn relocations(&self, index: u32) -> Option<Relocations<'a>> {
        self.parts.relocations(index).map_or(Some(Relocations::default()), |section| self.tables.relocations(section))
    }

    /// Returns the segments that it wants.
    pub(in crate::link) fn requests(&self) -> SmallVec<[SegmentRequest; 3]> {
        self.parts.requests()
    }

    /// Returns the fields that JITLink fills differently, by segment and offset. It makes a stub for each function that
    /// is called outside the object, near or far, so that its stubs and what lies behind them are elsewhere: branches
    /// out of the object differ, and references to thread-local variables.
    #[cfg(slabjit_faults)]
    pub(in crate::link) fn apart(&self) -> Vec<(usize, usize)> {
        self.apart.iter().filter_map(|(section, offset)| self.parts.place(*section, *offset)).collect()
    }

    /// Returns whether a place in a segment is between sections: in packed code, traps may lie there.
    #[cfg(slabjit_faults)]
    pub(in crate::link) fn is_between_sections(&self, segment: usize, at: usize) -> bool {
        self.parts.kept().all(|section| {
            let bytes = self.section(section).map_or(0, |section| section.size) as usize;
            !self
                .parts
                .place(section, 0)
                .is_some_and(|(of, start)| of == segment && (start..start + bytes).contains(&at))
        })
    }

    /// Returns how many bytes of a segment are at the same place in JITLink's.
    #[cfg(slabjit_faults)]
    pub(in crate::link) fn comparable(&self, segment: usize) -> usize {
        self.parts.end_before(segment, self.extras.as_ref().map_or(&[], |[_, rooms @ ..]| rooms))
    }
}

/// Returns whether nothing in an object wants a part of JITLink, or of ours, that this has not.
fn is_simple(index: &ObjectIndex) -> bool {
    index.large_sections.is_empty()
        && index.indirect.is_empty()
        && index.thread_local.is_none()
        && !index.signal_frames
        && index.debug == DebugInfo::Names
}
