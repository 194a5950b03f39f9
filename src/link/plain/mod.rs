//! Links plain objects without a graph: those whose references all lead into the object or to known addresses, and
//! need no GOT entry, stub, bridge or thread-local storage. Most kernels are.
//!
//! Their sections are laid out as JITLink would (`BasicLayout` in JITLinkMemoryManager.h), copied, and their fields
//! written by the ABI's tables. At whatever is not plain this gives up, and JITLink links the object, or says what is
//! wrong with it. Tests compare the memory of each plain object with what JITLink makes of it (`compare`).

#[cfg(slabjit_faults)]
pub(in crate::link) mod compare;
mod frames;
mod parts;

use smallvec::SmallVec;

use crate::DebugInfo;
use crate::elf::link_tables::{LinkTables, Relocation, SymbolPlace};
use crate::elf::relocations::{Kind, Operation, Table, Through};
use crate::elf::{ObjectIndex, SHN_LORESERVE, Section};
use crate::functions::FunctionList;
use crate::link::reach::{Edge, Place, Reach};
use crate::live::linked::linked_object::Linked;
use crate::live::resolve::decided::{Defined, External};
use crate::live::resolve::prepared::PreparedObject;
use crate::memory::{SegmentRequest, WritableSlab};
use parts::{END_OF_FRAMES, Parts, Waiting};

/// What has been decided about an object.
#[derive(Clone, Copy)]
pub(in crate::link) struct Decisions<'a> {
    pub(in crate::link) object: &'a PreparedObject,
    pub(in crate::link) externals: &'a [External],
    pub(in crate::link) definitions: &'a [Defined],
    pub(in crate::link) dead_sections: &'a [u32],
}

/// A plain object before it is linked.
pub(in crate::link) struct Plain<'a> {
    of: Decisions<'a>,
    tables: LinkTables<'a>,
    table: Table,
    parts: Parts,
    /// Indices of undefined symbols, in the order of the externals.
    undefined: Vec<u32>,
    /// The fields of branches out of the object: section and offset.
    #[cfg(slabjit_faults)]
    branches: Vec<(u32, u64)>,
}

/// The target of a reference.
enum Target {
    /// An offset in a section.
    Section(u32, u64),
    Address(u64),
}

impl<'a> Plain<'a> {
    /// Looks whether an object is plain. `reach` surveys its references.
    pub(in crate::link) fn new(of: Decisions<'a>, reach: &mut Reach) -> Option<Self> {
        let index = &of.object.index;
        // Symbols tell the sections of larger objects elsewhere.
        let few = index.sections.len() < usize::from(SHN_LORESERVE);
        if !few || !is_simple(index) || !of.dead_sections.is_empty() {
            return None;
        }
        if of.definitions.is_empty() || !of.definitions.iter().all(|defined| matches!(defined, Defined::Keep)) {
            return None;
        }
        let tables = LinkTables::new(&of.object.bytes, index.sections.len())?;
        let parts = Parts::new(index, &tables)?;
        let mut undefined = Vec::with_capacity(of.externals.len());
        if !of.externals.is_empty() {
            let all = tables.symbols().filter(|(_, symbol)| symbol.place() == SymbolPlace::Undefined);
            undefined.extend(all.map(|(i, _)| i));
            if undefined.len() != of.externals.len() {
                return None;
            }
        }
        let mut plain = Self {
            of,
            tables,
            table: Table::of(index.machine),
            parts,
            undefined,
            #[cfg(slabjit_faults)]
            branches: Vec::new(),
        };
        plain.keep(reach)?;
        plain.parts.lay_out(index);
        (reach.reserve() == [0; 3]).then_some(plain)
    }

    /// Keeps what the definitions refer to, as JITLink's `prune` does, and surveys the references of all that.
    fn keep(&mut self, reach: &mut Reach) -> Option<()> {
        let index = &self.of.object.index;
        let mut waiting = Waiting::new();
        for definition in &index.definitions {
            self.parts.keep(definition.section, &mut waiting)?;
        }
        self.follow(&mut waiting, reach)?;
        if let Some(frames) = self.parts.frames() {
            // JITLink takes tables apart where they describe what is not kept.
            frames::check(self.contents(frames)?, self.relocations(frames)?, |relocation| {
                let place = self.tables.symbol(relocation.symbol).map(|symbol| symbol.place());
                matches!(place, Some(SymbolPlace::Section(section, _)) if self.parts.is_kept(section))
            })?;
            self.parts.keep(frames, &mut waiting)?;
            self.follow(&mut waiting, reach)?;
        }
        Some(())
    }

    fn follow(&mut self, waiting: &mut Waiting, reach: &mut Reach) -> Option<()> {
        let bytes = self.parts.bytes();
        while let Some(section) = waiting.pop() {
            let executable = self.section(section)?.mapped()?.0;
            let content = self.contents(section)?;
            for relocation in self.relocations(section)? {
                let Some(kind) = self.kind(&relocation)? else { continue };
                let (place, target) = match self.target(&relocation)? {
                    Target::Section(to, value) => {
                        self.parts.keep(to, waiting)?;
                        (if to == section { Place::SameBlock } else { Place::OtherBlock }, value)
                    }
                    Target::Address(address) => {
                        #[cfg(slabjit_faults)]
                        if kind.through == Through::Stub {
                            self.branches.push((section, relocation.offset));
                        }
                        (Place::AtAddress, address)
                    }
                };
                let (relocation, offset, addend) = (kind.number, relocation.offset as usize, relocation.addend);
                let edge = Edge { relocation, offset, place, addend, target, symbol: &[] };
                reach.survey_one(bytes, executable, content, edge, kind);
            }
        }
        Some(())
    }

    /// Returns the kind of a relocation that is written without a GOT; `Some(None)` if it does nothing.
    fn kind(&self, relocation: &Relocation) -> Option<Option<&'static Kind>> {
        let (_, kind) = self.table.get(relocation.kind)?;
        match kind.operation {
            Operation::Nothing => Some(None),
            Operation::Absolute | Operation::Relative | Operation::PageRelative | Operation::PageOffset => {
                (kind.through != Through::Got).then_some(Some(kind))
            }
            _ => None,
        }
    }

    fn target(&self, relocation: &Relocation) -> Option<Target> {
        match self.tables.symbol(relocation.symbol)?.place() {
            SymbolPlace::Section(section, value) => Some(Target::Section(section, value)),
            SymbolPlace::Undefined => {
                match self.of.externals.get(self.undefined.binary_search(&relocation.symbol).ok()?)? {
                    External::Absolute(address) => Some(Target::Address(*address)),
                    _ => None,
                }
            }
            SymbolPlace::Other => None,
        }
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

    fn relocations(&self, index: u32) -> Option<impl Iterator<Item = Relocation> + use<'a>> {
        let relocations = match self.parts.relocations(index) {
            Some(section) => Some(self.tables.relocations(section)?),
            None => None,
        };
        Some(relocations.into_iter().flatten())
    }

    /// Returns the segments that it wants.
    pub(in crate::link) fn requests(&self) -> SmallVec<[SegmentRequest; 3]> {
        self.parts.requests()
    }

    /// Returns the fields of branches that lead out of the object, by segment and offset. JITLink makes stubs for them,
    /// and on x86-64 does without those that are near enough.
    #[cfg(slabjit_faults)]
    pub(in crate::link) fn branches(&self) -> Vec<(usize, usize)> {
        self.branches.iter().filter_map(|(section, offset)| self.parts.place(*section, *offset)).collect()
    }

    /// Writes it into the memory that it asked for; `None` if a reference does not reach its target.
    pub(in crate::link) fn write(mut self, slab: &mut WritableSlab) -> Option<Linked> {
        self.parts.settle(slab);
        for part in self.parts.kept() {
            let contents = self.contents(part)?;
            let address = self.parts.address(part)?;
            let (place, behind) = self.parts.memory(part, slab)?.split_at_mut_checked(contents.len())?;
            place.copy_from_slice(contents);
            if self.parts.frames() == Some(part) {
                behind.get_mut(..END_OF_FRAMES as usize)?.fill(0);
            }
            for relocation in self.relocations(part)? {
                let Some(kind) = self.kind(&relocation)? else { continue };
                let symbol = match self.target(&relocation)? {
                    Target::Section(section, value) => self.parts.address(section)?.wrapping_add(value),
                    Target::Address(address) => address,
                };
                let at = address.wrapping_add(relocation.offset);
                let value = kind.value(symbol.wrapping_add_signed(relocation.addend), at, None)?;
                kind.encode(place.get_mut(relocation.offset as usize..)?, value).ok()?;
            }
        }
        self.linked()
    }

    /// Tells where everything is.
    fn linked(&self) -> Option<Linked> {
        let index = &self.of.object.index;
        let address = |section: u32, value: u64| Some(self.parts.address(section)?.wrapping_add(value));
        let mut definitions = Vec::with_capacity(index.definitions.len());
        for definition in &index.definitions {
            definitions.push(address(definition.section, definition.value)?);
        }
        let frames = self.parts.frames().and_then(|frames| self.parts.address(frames)).unwrap_or(0);
        Some(Linked { definitions, frames, functions: self.functions()?, ..Linked::default() })
    }

    /// Returns the names of its functions. Mapping symbols (AAELF64, 5.5.4) and labels of compilers are none.
    fn functions(&self) -> Option<FunctionList> {
        let mut list = FunctionList::default();
        for (_, symbol) in self.tables.symbols() {
            let SymbolPlace::Section(section, value) = symbol.place() else { continue };
            let of = self.section(section)?;
            if of.mapped().is_none_or(|(executable, _)| !executable) || !self.parts.is_kept(section) {
                continue;
            }
            let name = self.tables.name(&symbol).unwrap_or_default();
            let bytes = if symbol.size != 0 { symbol.size } else { of.size.checked_sub(value)? };
            if bytes != 0 && !name.is_empty() && !name.starts_with('$') && !name.starts_with(".L") {
                list.push(name, self.parts.address(section)?.wrapping_add(value), bytes);
            }
        }
        Some(list)
    }
}

/// Returns whether nothing in an object wants a part of JITLink, or of ours, that this has not.
fn is_simple(index: &ObjectIndex) -> bool {
    index.arrays.is_empty()
        && index.retain.is_empty()
        && index.large_sections.is_empty()
        && index.indirect.is_empty()
        && index.lifted.len() == 0
        && index.thread_local.is_none()
        && !index.signal_frames
        && index.debug == DebugInfo::Names
}
