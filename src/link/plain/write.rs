//! Writes plain objects into their memory.

use super::frames::Records;
use super::got::{self, ENTRY};
use super::parts::{END_OF_FRAMES, Extra};
use super::symbols::Target;
use super::{Plain, Way};
use crate::elf::link_tables::{Relocation, SymbolPlace};
use crate::elf::{Array, Definition, locate};
use crate::functions::FunctionList;
use crate::link::reach::{Block, Edge, Local, Place, Reach};
use crate::live::linked::linked_object::Linked;
use crate::live::resolve::decided::Defined;
use crate::live::tls;
use crate::memory::WritableSlab;

/// What an object is written for.
pub(in crate::link) struct Around<'a, E> {
    /// Bridges calls, and finds thread-local variables.
    pub(in crate::link) reach: &'a mut Reach,
    /// Returns where an export of the batch is.
    pub(in crate::link) export: E,
    /// The module of the library's own thread-local variables.
    pub(in crate::link) module: Option<u64>,
}

impl Plain<'_> {
    /// Takes note of the memory that it asked for, and returns where its definitions are: 0 for discarded ones.
    pub(in crate::link) fn place(&mut self, slab: &WritableSlab) -> Vec<u64> {
        self.parts.settle(slab);
        self.got.address = self.extras.map_or(0, |[got, ..]| self.parts.address_of(got));
        let definitions = self.of.object.index.definitions.iter().zip(self.of.definitions);
        let address = |(definition, decided): (&Definition, &Defined)| match decided {
            Defined::Discard(_) => 0,
            // Their sections are kept.
            _ => self.parts.address(definition.section).map_or(0, |address| address.wrapping_add(definition.value)),
        };
        definitions.map(address).collect()
    }

    /// Writes it into that memory; `None` if a reference does not reach its target.
    pub(in crate::link) fn write<E: Fn(u32) -> Option<u64>>(
        &self,
        slab: &mut WritableSlab,
        definitions: Vec<u64>,
        around: &mut Around<'_, E>,
    ) -> Option<Linked> {
        if let Some([_, code, data]) = self.extras {
            let room = |extra: Extra| (self.parts.address_of(extra), extra.bytes as usize);
            around.reach.settle([(0, 0), room(code), room(data)], 0);
        }
        for part in self.parts.kept() {
            let contents = self.contents(part)?;
            let address = self.parts.address(part)?;
            let memory = self.parts.memory(part, slab)?;
            if let Some(records) = self.records.as_deref().filter(|_| self.parts.frames() == Some(part)) {
                self.write_records(records, contents, memory, address, around)?;
                continue;
            }
            let (place, behind) = memory.split_at_mut_checked(contents.len())?;
            place.copy_from_slice(contents);
            if self.parts.frames() == Some(part) {
                behind.get_mut(..END_OF_FRAMES as usize)?.fill(0);
            }
            for relocation in self.relocations(part)?.iter() {
                self.apply(part, &relocation, place, relocation.offset, address, around)?;
            }
        }
        if let Some([got, code, data]) = self.extras {
            if got.bytes != 0 {
                let memory = self.parts.memory_of(got, slab)?;
                for (entry, symbol) in memory.chunks_exact_mut(ENTRY as usize).zip(self.got.symbols()) {
                    entry.copy_from_slice(&self.address(*symbol, &around.export)?.to_le_bytes());
                }
            }
            for (extra, bytes) in [code, data].into_iter().zip(around.reach.rooms().skip(1)) {
                if extra.bytes != 0 {
                    self.parts.memory_of(extra, slab)?.copy_from_slice(bytes);
                }
            }
        }
        self.linked(definitions)
    }

    /// Writes the records that are kept.
    fn write_records<E: Fn(u32) -> Option<u64>>(
        &self,
        records: &Records,
        contents: &[u8],
        memory: &mut [u8],
        address: u64,
        around: &mut Around<'_, E>,
    ) -> Option<()> {
        let frames = self.parts.frames()?;
        let relocations = self.relocations(frames)?;
        let mut end = 0;
        for record in records.iter().filter(|record| record.is_kept) {
            let bytes = contents.get(record.bytes.clone())?;
            end = record.to + bytes.len();
            memory.get_mut(record.to..end)?.copy_from_slice(bytes);
            if record.function.is_some() {
                let id = record.to + 4;
                let back = (id - records.get(record.cie)?.to) as u32;
                memory.get_mut(id..id + 4)?.copy_from_slice(&back.to_le_bytes());
            }
            for relocation in relocations.within(record.relocations.clone()).iter() {
                let offset = relocation.offset - record.bytes.start as u64 + record.to as u64;
                self.apply(frames, &relocation, memory, offset, address, around)?;
            }
        }
        memory.get_mut(end..end + END_OF_FRAMES as usize)?.fill(0);
        Some(())
    }

    /// Writes a field at an offset of a section's memory.
    fn apply<E: Fn(u32) -> Option<u64>>(
        &self,
        section: u32,
        relocation: &Relocation,
        memory: &mut [u8],
        offset: u64,
        address: u64,
        around: &mut Around<'_, E>,
    ) -> Option<()> {
        let Some((kind, way)) = self.kind(section, relocation)? else { return Some(()) };
        let (at, offset) = (address.wrapping_add(offset), offset as usize);
        let mut target = self.address(relocation.symbol, &around.export)?;
        if way == Way::Got && !got::relax(kind, memory, offset, at, target) {
            target = self.got.entry(relocation.symbol)?;
        }
        if way != Way::Lifted {
            let value = kind.value(target.wrapping_add_signed(relocation.addend), at, None)?;
            if kind.encode(memory.get_mut(offset..)?, value).is_ok() {
                return Some(());
            }
        }
        self.extras?;
        let of = self.section(section)?;
        let symbol = self.tables.name(&self.tables.symbol(relocation.symbol)?)?.as_bytes();
        let (number, addend) = (kind.number, relocation.addend);
        let edge = Edge { relocation: number, offset, place: Place::AtAddress, addend, target, symbol };
        let mut block = Block {
            section: self.of.object.index.name(of.name),
            executable: of.is_executable(),
            address,
            content: memory,
            origin: Some(of.offset),
        };
        let variable = (way == Way::Lifted).then(|| tls::find(target, 0)).flatten();
        let local = Local { variable, module: around.module };
        let lifted = (way == Way::Lifted).then_some(kind);
        around.reach.check(&edge, &mut block, lifted, local, |at| locate(&self.of.object.bytes, at)).then_some(())
    }

    /// Returns the address of a symbol.
    fn address(&self, symbol: u32, export: &impl Fn(u32) -> Option<u64>) -> Option<u64> {
        match self.symbols.target(symbol)? {
            Target::Section(section, value) => Some(self.parts.address(section)?.wrapping_add(value)),
            Target::Address(address) => Some(address),
            Target::Export(number) => export(number),
            Target::Unknown => None,
        }
    }

    /// Tells where everything is.
    fn linked(&self, definitions: Vec<u64>) -> Option<Linked> {
        let frames = self.parts.frames().and_then(|frames| self.parts.address(frames)).unwrap_or(0);
        let array = |array: &Array| match array.size {
            0 => 0,
            _ => self.parts.address(array.section).unwrap_or(0),
        };
        let index = &self.of.object.index;
        let arrays = index.arrays.iter().map(array).collect();
        let retained = |section: &u32| {
            let address = self.parts.address(*section)?;
            Some((*section, address..address + self.section(*section)?.size))
        };
        let own_sets = index.retain.iter().filter(|section| !self.is_dead(**section)).filter_map(retained).collect();
        Some(Linked { definitions, arrays, own_sets, frames, functions: self.functions()?, ..Linked::default() })
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
