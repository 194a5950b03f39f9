//! The bytes of an image.

use object::elf;

use super::dynamic::Tables;
use super::input::{Field, Input};
use super::layout::{Layout, Made, Parts};
use super::reference::{Slot, Use, decide};
use super::relr::{self, RELR_SIZE};
use super::scan::{Dynamic, Scan, Site};
use super::symbols::{Global, Referred, Target};
use crate::Result;
use crate::elf::image_note::{DSO_HANDLE, Reference};
use crate::elf::link_tables::LinkTables;
use crate::elf::relocations::{AddressForm, DynamicKind};
use crate::elf::{ImageBytes, put};

pub(super) struct Writer<'w, 'a> {
    pub(super) parts: &'w Parts<'w, 'a>,
    pub(super) layout: &'w Layout,
    pub(super) tables: &'w Tables,
    pub(super) out: Vec<u8>,
    /// Fields that depend on the distance of segments, or on a segment's place in a page.
    pub(super) references: Vec<Reference>,
}

/// A field's value, and the addresses of its symbol and of its target, if it has such.
type Value = (i64, Option<(u64, u64)>);

/// Where a field is.
#[derive(Clone, Copy)]
struct Place {
    offset: usize,
    address: u64,
}

impl<'w, 'a> Writer<'w, 'a> {
    pub(super) fn new(parts: &'w Parts<'w, 'a>, layout: &'w Layout, tables: &'w Tables) -> Self {
        let out = vec![0; usize::try_from(layout.file_end).unwrap_or(0)];
        Self { parts, layout, tables, out, references: Vec::new() }
    }

    pub(super) fn write(mut self) -> Result<Vec<u8>> {
        self.write_sections()?;
        self.write_frames()?;
        self.write_stubs();
        self.write_helpers();
        self.write_slots();
        self.write_tables();
        self.write_addends();
        self.refer_out_of_segments();
        Ok(self.finish())
    }

    pub(super) fn put(&mut self, made: Made, bytes: &[u8]) {
        if let Some(out) = self.layout.made(made) {
            let at = out.offset as usize;
            put(&mut self.out, at, bytes);
        }
    }

    fn write_sections(&mut self) -> Result<()> {
        let inputs = self.parts.inputs;
        for (object, input) in (0..).zip(inputs) {
            let Some(tables) = self.parts.tables_of(object) else { continue };
            for section in (0..input.index.sections.len() as u32).filter(|section| input.is_placed(*section)) {
                let Some((out, at)) = self.layout.out_of(object, section) else { continue };
                let (Some(start), address) = (out.file_offset(at), out.address + at) else { continue };
                if out.is_zero {
                    continue;
                }
                put(&mut self.out, start, input.contents(section));
                for field in input.fields(tables, section) {
                    let place = Place { offset: start + field.offset as usize, address: address + field.offset };
                    self.relocate((object, input, tables), (section, field), place)?;
                }
            }
        }
        Ok(())
    }

    /// Writes the unwind table, and the sorted table of its functions.
    fn write_frames(&mut self) -> Result<()> {
        let parts = self.parts;
        let Some(out) = self.layout.made(Made::Frames) else { return Ok(()) };
        let mut functions = Vec::with_capacity(parts.frames.functions());
        for record in &parts.frames.records {
            let Some(input) = parts.inputs.get(record.object as usize) else { continue };
            let Some(tables) = parts.tables_of(record.object) else { continue };
            let start = (out.offset + record.offset) as usize;
            let contents = input.contents(record.section).get(record.start as usize..).unwrap_or_default();
            put(&mut self.out, start, contents.get(..record.bytes as usize).unwrap_or_default());
            for field in &record.fields {
                let by = field.offset - record.start;
                let place = Place { offset: start + by as usize, address: out.address + record.offset + by };
                self.relocate((record.object, input, tables), (record.section, *field), place)?;
            }
            let Some((cie, function)) = record.describes else { continue };
            let cie = parts.frames.records.get(cie).map_or(0, |cie| cie.offset);
            put(&mut self.out, start + 4, &(record.offset as u32 + 4 - cie as u32).to_le_bytes());
            let function = function.and_then(|(target, addend)| self.address(target)?.checked_add_signed(addend));
            functions.push(function.map(|function| (function, out.address + record.offset)));
        }
        let Some(header) = self.layout.made(Made::FramesHeader) else { return Ok(()) };
        // DW_EH_PE_pcrel | sdata4, udata4, datarel | sdata4; DW_EH_PE_omit where the table would not be complete.
        let sorted: Option<Vec<(u64, u64)>> = functions.into_iter().collect();
        let encodings = if sorted.is_some() { [1, 0x1b, 3, 0x3b] } else { [1, 0x1b, 0xff, 0xff] };
        let mut bytes = ImageBytes::with_capacity(header.size as usize);
        bytes.raw(&encodings);
        bytes.word((out.address as u32).wrapping_sub(header.address as u32 + 4));
        if let Some(mut sorted) = sorted {
            sorted.sort_unstable();
            bytes.word(sorted.len() as u32);
            for (function, record) in sorted {
                let from = |address: u64| address.wrapping_sub(header.address) as u32;
                [from(function), from(record)].into_iter().for_each(|word| bytes.word(word));
            }
        }
        let at = header.offset as usize;
        put(&mut self.out, at, &bytes.into_bytes());
        Ok(())
    }

    fn write_stubs(&mut self) {
        let Some(stubs) = self.layout.made(Made::Stubs) else { return };
        let machine = self.parts.machine;
        for (i, target) in (0..).zip(&self.parts.scan.stubs) {
            let by = i * machine.stub_bytes;
            if let Some(slot) = self.slot(Scan::slot_of_stub(*target)) {
                machine.write_stub(&mut self.out, (stubs.offset + by) as usize, stubs.address + by, slot);
                self.refer(machine.references_of_stub(stubs.address + by, slot));
            }
        }
    }

    fn write_helpers(&mut self) {
        let (machine, symbols) = (self.parts.machine, self.parts.symbols);
        let Some(out) = self.layout.made(Made::Helpers) else { return };
        let Some(dso) = symbols.dso_handle.and_then(|handle| self.address(handle)) else { return };
        for (i, helper) in (0..).zip(&symbols.helpers) {
            let by = i * machine.helper_bytes;
            let Some(slot) = self.slot(Slot::Address(Target::Import(helper.import))) else { continue };
            let place = ((out.offset + by) as usize, out.address + by);
            let argument = (helper.argument, helper.with_null);
            machine.write_helper(&mut self.out, place, argument, (dso, slot));
            self.refer(machine.references_of_helper(place.1, argument.1, (dso, slot)));
        }
    }

    /// Writes what the GOT has without the dynamic loader.
    fn write_slots(&mut self) {
        let Some(got) = self.layout.made(Made::Got) else { return };
        for (slot, at) in &self.parts.scan.slots {
            let (word, value) = match *slot {
                Slot::Address(Target::Absolute(value)) => (*at, value),
                Slot::Variable(target) => match self.in_block(target) {
                    Some(offset) => (at + 1, offset),
                    None => continue,
                },
                _ => continue,
            };
            put(&mut self.out, (got.offset + 8 * word) as usize, &value.to_le_bytes());
        }
    }

    fn write_tables(&mut self) {
        let (tables, layout, parts) = (self.tables, self.layout, self.parts);
        let variables = parts.scan.variables();
        let is_variable = |id| variables.binary_search(&id).is_ok();
        let symbols = tables.symbol_table(parts.symbols, layout, |global| self.defined_at(global), is_variable);
        let section = |made| layout.made(made).map(|out| (out.address, out.size));
        let lists = (section(Made::Initialisers).is_some(), section(Made::Finalisers).is_some());
        let mut dynamic = ImageBytes::with_capacity(512);
        tables.entries(section, lists).into_iter().for_each(|(tag, value)| dynamic.dynamic(tag, value));
        let relocations = tables.relocations(parts.scan, parts.machine, |dynamic| self.dynamic(dynamic));
        let made = [
            (Made::DynamicSymbols, symbols),
            (Made::DynamicStrings, tables.strings.clone()),
            (Made::GnuHash, tables.hash.clone()),
            (Made::Versions, tables.versions.clone()),
            (Made::VersionsNeeded, tables.needed.clone()),
            (Made::Relocations, relocations.unwrap_or_default()),
            (Made::Relr, relr::table(layout, parts).unwrap_or_default()),
            (Made::Dynamic, dynamic.into_bytes()),
        ];
        made.into_iter().for_each(|(made, bytes)| self.put(made, &bytes));
    }

    /// Writes the addends that are not in a table.
    fn write_addends(&mut self) {
        let of_relr = self.parts.scan.dynamic.iter().filter(|dynamic| dynamic.is_relr);
        let mut addends: Vec<(u64, i64)> = of_relr.filter_map(|dynamic| self.dynamic(dynamic)).collect();
        // Of two in one place the one wins that does so in the other table.
        addends.sort_unstable();
        for (at, addend) in addends {
            if let Some(offset) = self.layout.file_offset(at, RELR_SIZE) {
                put(&mut self.out, offset, &addend.to_le_bytes());
            }
        }
    }

    /// Returns the section header's index and the address of a symbol that is exported.
    pub(super) fn defined_at(&self, global: &Global<'_>) -> Option<(u16, u64)> {
        let address = self.address(global.target)?;
        let out = match global.target {
            Target::Absolute(value) => return Some((elf::SHN_ABS.0, value)),
            Target::Section { object, section, .. } => self.layout.out_of(object, section)?.0,
            Target::Indirect { .. } => self.layout.made(Made::Stubs)?,
            Target::Helper(_) => self.layout.made(Made::Helpers)?,
            _ => self.layout.made(Made::Commons)?,
        };
        Some((out.symbol_section(), address))
    }

    /// Returns the place and the addend of a relocation by the dynamic loader.
    fn dynamic(&self, dynamic: &Dynamic) -> Option<(u64, i64)> {
        let layout = self.layout;
        let at = layout.word(dynamic.word, self.parts)?;
        let Some(target) = dynamic.target.filter(|target| !matches!(target, Target::Import(_))) else {
            return Some((at, dynamic.addend));
        };
        let value = match dynamic.kind {
            DynamicKind::Indirect => layout.address(target, self.parts)?,
            DynamicKind::Distance | DynamicKind::Descriptor | DynamicKind::Offset => self.in_block(target)?,
            _ => self.address(target)?,
        };
        Some((at, (value as i64).wrapping_add(dynamic.addend)))
    }

    /// Returns the address at which references find a target: of an indirect function, its stub.
    fn address(&self, target: Target) -> Option<u64> {
        match target {
            Target::Indirect { .. } => self.stub(target),
            _ => self.layout.address(target, self.parts),
        }
    }

    fn stub(&self, target: Target) -> Option<u64> {
        let number = u64::from(self.parts.scan.stub_of(target)?);
        Some(self.layout.made(Made::Stubs)?.address + number * self.parts.machine.stub_bytes)
    }

    fn slot(&self, slot: Slot) -> Option<u64> {
        let made = if matches!(slot, Slot::Resolved(_)) { Made::Resolved } else { Made::Got };
        Some(self.layout.made(made)?.address + 8 * self.parts.scan.position(slot)?)
    }

    /// Returns the offset of a variable in the image's thread-local block.
    pub(super) fn in_block(&self, target: Target) -> Option<u64> {
        let address = self.layout.address(target, self.parts).filter(|_| !matches!(target, Target::Absolute(_)))?;
        Some(address.wrapping_sub(self.layout.thread_local?.address))
    }

    /// Writes the field of a relocation.
    fn relocate(
        &mut self,
        (object, input, tables): (u32, &'a Input, &LinkTables<'a>),
        (section, field): (u32, Field),
        place: Place,
    ) -> Result<()> {
        let referred = self.parts.symbols.referred((object, input), tables, &field);
        let site = Site { input, section, field, referred };
        let decided = decide(field.kind, referred.target).unwrap_or(Use::Nothing);
        if matches!(decided, Use::Nothing | Use::Dynamic(_)) {
            return Ok(());
        }
        let written = self.value(&field, decided, &referred, place.address).and_then(|(value, target)| {
            let bytes = self.out.get_mut(place.offset..)?;
            field.kind.encode(bytes, value).ok()?;
            Some(target)
        });
        if let Some((symbol, target)) = written.ok_or_else(|| site.out_of_range())? {
            self.refer([(Reference { at: place.address, kind: field.kind, target, segment: 0 }, symbol)]);
        }
        Ok(())
    }

    /// Notes fields that have other values if segments are apart, or begin elsewhere in a page. Each comes with the
    /// address of its symbol.
    fn refer(&mut self, references: impl IntoIterator<Item = (Reference, u64)>) {
        let dso_handle = self.dso_handle();
        for (mut reference, symbol) in references {
            let Some(class) = self.layout.class_of(symbol) else { continue };
            reference.segment = if symbol != 0 && symbol == dso_handle { DSO_HANDLE } else { class as u8 };
            let always = matches!(
                reference.kind.address_form(),
                Some(
                    AddressForm::Whole
                        | AddressForm::Pages
                        | AddressForm::InPage
                        | AddressForm::FromGot
                        | AddressForm::FromGotPage
                )
            );
            if always || self.layout.class_of(reference.at) != Some(class) {
                self.references.push(reference);
            }
        }
    }

    /// Returns the value of a field, and the symbol's address and the one that it has in the kind's form.
    fn value(&self, field: &Field, decided: Use, referred: &Referred<'_>, at: u64) -> Option<Value> {
        let (target, addend) = (referred.target, referred.addend);
        let got = self.layout.made(Made::Got).map(|got| got.address);
        let symbol = match decided {
            Use::Nothing | Use::Dynamic(_) => return None,
            Use::Size => return Some(((referred.size as i64).wrapping_add(addend), None)),
            Use::InBlock => return Some(((self.in_block(target)? as i64).wrapping_add(addend), None)),
            Use::Address => self.address(target)?,
            Use::Stub => self.stub(target)?,
            Use::Entry(slot) => self.slot(slot)?,
            Use::Got => got?,
        };
        let address = symbol.wrapping_add_signed(addend);
        let form = field.kind.address_form()?;
        let is_absolute = matches!((decided, target), (Use::Address, Target::Absolute(_)));
        Some((form.value(address, at, got.unwrap_or(0)), (!is_absolute).then_some((symbol, address))))
    }

    /// Returns the address of the word that stands for the image, or 0.
    pub(super) fn dso_handle(&self) -> u64 {
        match self.parts.symbols.dso_handle {
            Some(Target::DsoHandle) => self.address(Target::DsoHandle).unwrap_or(0),
            _ => 0,
        }
    }

    /// Notes pointers that lead out of their symbol's segment: their addresses do not tell which it is.
    fn refer_out_of_segments(&mut self) {
        let parts = self.parts;
        let mut outside = Vec::new();
        for dynamic in parts.scan.dynamic.iter().filter(|dynamic| dynamic.kind == DynamicKind::Relative) {
            let symbol = dynamic.target.and_then(|target| self.address(target));
            let Some(((at, target), symbol)) = self.dynamic(dynamic).zip(symbol) else { continue };
            let target = target as u64;
            if self.layout.class_of(symbol) != self.layout.class_of(target) {
                outside.extend(parts.machine.pointer(at, target).map(|reference| (reference, symbol)));
            }
        }
        self.refer(outside);
    }
}
