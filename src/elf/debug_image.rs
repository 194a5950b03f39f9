//! An object's names and debug information at its addresses: a relocatable file whose mapped sections say where they
//! are (`sh_addr`) and whose debug sections are relocated, as debuggers take it from a JIT.
//!
//! Debug information is not validated like what is linked: whatever in it leads nowhere stays as the object has it.

use std::collections::HashMap;

use object::elf;

use super::elf_view::View;
use super::image_bytes::put;
use crate::DebugInfo;
use crate::elf::elf_abi::{
    EM_AARCH64, HEADER_SIZE, LE, RELA_SIZE, RawRela, RawSymbol, SECTION_SIZE, SHF_ALLOC, SHN_ABS, SHN_LORESERVE,
    SHN_XINDEX, SHT_NOBITS, SHT_NULL, SHT_PROGBITS, SHT_STRTAB, SHT_SYMTAB, SHT_SYMTAB_SHNDX, SYMBOL_SIZE,
    SectionHeader, Symbol, field,
};

/// What [`DebugInfo::Lines`] leaves out, beside names: places of variables, macros and indices.
const NOT_FOR_LINES: [&[u8]; 9] = [
    b".debug_loc",
    b".debug_loclists",
    b".debug_macro",
    b".debug_macinfo",
    b".debug_names",
    b".debug_pubnames",
    b".debug_pubtypes",
    b".debug_gnu_pubnames",
    b".debug_gnu_pubtypes",
];

/// Returns the image of a prepared object, given its blocks in memory: their sections' names, offsets in the object's
/// bytes, and addresses. `None` if the object has nothing to tell at this level.
pub(crate) fn debug_image(
    bytes: &[u8],
    blocks: &mut dyn Iterator<Item = (&str, Option<u64>, u64)>,
    level: DebugInfo,
) -> Option<Vec<u8>> {
    // It was prepared, so its headers are right.
    let view = View::parse("", bytes, u64::MAX).ok()?;
    let mut addresses = vec![0; view.count() as usize];
    let (mut by_offset, mut by_name) = (HashMap::new(), HashMap::new());
    for (index, header) in view.sections().filter(|(_, header)| header.is(SHF_ALLOC) && header.size != 0) {
        if header.has_contents() {
            by_offset.insert(header.offset, index);
        } else {
            // Which of several of one name a block is cannot be said.
            by_name.entry(view.name_of(&header).ok()?).and_modify(|i| *i = 0).or_insert(index);
        }
    }
    for (name, offset, address) in blocks {
        let index = match offset {
            Some(offset) => by_offset.get(&offset),
            None => by_name.get(name.as_bytes()),
        };
        if let Some(place) = index.and_then(|index| addresses.get_mut(*index as usize)) {
            *place = address;
        }
    }
    Image { view, addresses, level }.build()
}

struct Image<'a> {
    view: View<'a>,
    /// By section; 0 for one that is not in memory.
    addresses: Vec<u64>,
    level: DebugInfo,
}

/// A table of symbols: an index and its section's contents.
struct Symbols<'a> {
    all: &'a [RawSymbol],
    /// Section indices that do not fit into 16 bits.
    large: &'a [u8],
}

impl Image<'_> {
    fn build(&self) -> Option<Vec<u8>> {
        let count = self.view.count();
        let headers = (HEADER_SIZE + u64::from(count) * SECTION_SIZE) as usize;
        let mut out = self.view.bytes.get(..HEADER_SIZE as usize)?.to_vec();
        out.resize(headers, 0);
        put(&mut out, field::E_SHOFF as usize, &HEADER_SIZE.to_le_bytes());
        let table = usize::try_from(self.view.table).ok()?;
        // The first header may have counts that do not fit elsewhere.
        let first = self.view.bytes.get(table..table.checked_add(SECTION_SIZE as usize)?)?;
        put(&mut out, HEADER_SIZE as usize, first);
        let mut tells = self.level == DebugInfo::Full;
        for (index, header) in self.view.sections() {
            let at = (HEADER_SIZE + u64::from(index) * SECTION_SIZE) as usize;
            let kind = self.kept_as(index, &header);
            if kind == SHT_NULL {
                continue;
            }
            let raw = usize::try_from(self.view.header_field(index, 0)).ok()?;
            let raw = self.view.bytes.get(raw..raw.checked_add(SECTION_SIZE as usize)?)?;
            put(&mut out, at, raw);
            put(&mut out, at + field::SH_TYPE as usize, &kind.to_le_bytes());
            put(&mut out, at + SH_ADDR, &self.address(index).to_le_bytes());
            let start = out.len();
            put(&mut out, at + field::SH_OFFSET as usize, &(start as u64).to_le_bytes());
            if kind == SHT_NOBITS {
                continue;
            }
            tells |= self.is_debug(&header);
            let raw = SectionHeader { kind: SHT_PROGBITS, ..header };
            out.extend_from_slice(self.view.contents(index, &raw).ok()?);
            if kind == SHT_SYMTAB {
                self.drop_symbols_of_nothing(out.get_mut(start..)?, index);
            }
            self.relocate(out.get_mut(start..)?, index);
            out.resize(out.len().next_multiple_of(8), 0);
        }
        tells.then_some(out)
    }

    /// Returns the type that a section has in the image, [`SHT_NULL`] for none.
    fn kept_as(&self, index: u32, header: &SectionHeader) -> u32 {
        let is_full = self.level == DebugInfo::Full;
        if header.is(SHF_ALLOC) {
            let is_there = is_full && self.address(index) != 0;
            let has_frames = self.view.is_unwind_table(header);
            return if !is_there { SHT_NULL } else { if has_frames { header.kind } else { SHT_NOBITS } };
        }
        match header.kind {
            SHT_SYMTAB | SHT_SYMTAB_SHNDX if is_full => header.kind,
            // Of sections' names, or of symbols.
            SHT_STRTAB if is_full || index == self.view.names_index => header.kind,
            // Hidden from LLVM.
            SHT_NULL | SHT_PROGBITS if self.is_debug(header) => SHT_PROGBITS,
            _ => SHT_NULL,
        }
    }

    fn is_debug(&self, header: &SectionHeader) -> bool {
        let name = self.view.name_of(header).unwrap_or_default();
        name.starts_with(b".debug_") && (self.level == DebugInfo::Full || !NOT_FOR_LINES.contains(&name))
    }

    fn address(&self, index: u32) -> u64 {
        self.addresses.get(index as usize).copied().unwrap_or_default()
    }

    /// Clears symbols of sections that are not in memory: at an offset in nothing they would be at an address.
    fn drop_symbols_of_nothing(&self, table: &mut [u8], index: u32) {
        let Some(symbols) = self.symbols(index) else { return };
        for (i, raw) in table.chunks_exact_mut(SYMBOL_SIZE as usize).enumerate().skip(1) {
            if symbols.get(i as u64).is_none_or(|(symbol, section)| self.value(&symbol, section).is_none()) {
                raw.fill(0);
            }
        }
    }

    /// Applies a section's relocations.
    fn relocate(&self, contents: &mut [u8], target: u32) {
        let name = self.view.header(target).and_then(|header| self.view.name_of(&header).ok()).unwrap_or_default();
        // Places in unwind tables are relative.
        let place = self.address(target);
        // Absence has a value that does not end a list (lld's).
        let absent = u64::from(matches!(name, b".debug_ranges" | b".debug_loc"));
        for (index, header) in self.view.sections() {
            let of_target = header.info == target && self.view.name_of(&header).is_ok_and(|n| n.starts_with(b".rela"));
            if !of_target || header.entry_size != RELA_SIZE {
                continue;
            }
            let header = SectionHeader { kind: SHT_PROGBITS, ..header };
            let (Ok(Some(relocations)), Some(symbols)) =
                (self.view.relocations(index, &header), self.symbols(header.link))
            else {
                continue;
            };
            for relocation in relocations {
                self.apply(contents, place, absent, &symbols, relocation);
            }
        }
    }

    fn apply(&self, contents: &mut [u8], place: u64, absent: u64, symbols: &Symbols<'_>, relocation: &RawRela) {
        let (offset, addend) = (relocation.r_offset.get(LE), relocation.r_addend.get(LE).cast_unsigned());
        let info = relocation.r_info.get(LE);
        let Some((symbol, section)) = symbols.get(info >> 32) else { return };
        let Some(form) = Form::of(self.view.machine, info as u32) else { return };
        let found = self.value(&symbol, section);
        let value = match form {
            Form::Absolute(_) => found.map_or(absent, |value| value.wrapping_add(addend)),
            Form::Relative(_) => {
                let here = place.wrapping_add(offset);
                found.map_or(0, |value| value.wrapping_add(addend).wrapping_sub(here))
            }
            Form::Addend(_) => addend,
        };
        let (Form::Absolute(width) | Form::Relative(width) | Form::Addend(width)) = form;
        let Ok(at) = usize::try_from(offset) else { return };
        put(contents, at, value.to_le_bytes().get(..width).unwrap_or_default());
        if found.is_none() && place != 0 {
            // The function of an unwind record, which has its length behind it: of none.
            put(contents, at.saturating_add(width), &[0; 4]);
        }
    }

    /// Returns a symbol's address, or its offset in a section that is in the image only. `None` if it is nowhere.
    fn value(&self, symbol: &Symbol, section: u32) -> Option<u64> {
        if section == u32::from(SHN_ABS) && symbol.shndx == SHN_ABS {
            return Some(symbol.value);
        }
        if section == 0 || (symbol.shndx >= SHN_LORESERVE && symbol.shndx != SHN_XINDEX) {
            return None;
        }
        if !self.view.header(section)?.is(SHF_ALLOC) {
            return Some(symbol.value);
        }
        Some(self.address(section)).filter(|base| *base != 0).map(|base| base.wrapping_add(symbol.value))
    }

    fn symbols(&self, index: u32) -> Option<Symbols<'_>> {
        let all = self.view.symbols(index, &self.view.header(index)?).ok()??;
        let large = self.view.sections().find(|(_, h)| h.kind == SHT_SYMTAB_SHNDX && h.link == index);
        let large = large.and_then(|(index, header)| self.view.contents(index, &header).ok()).unwrap_or_default();
        Some(Symbols { all, large })
    }
}

impl Symbols<'_> {
    /// Returns a symbol, and the index of its section.
    fn get(&self, i: u64) -> Option<(Symbol, u32)> {
        let i = usize::try_from(i).ok()?;
        let symbol = Symbol::decode(self.all.get(i)?);
        let section = match symbol.shndx {
            SHN_XINDEX => u32::from_le_bytes(self.large.get(i.checked_mul(4)?..)?.first_chunk().copied()?),
            index => index.into(),
        };
        Some((symbol, section))
    }
}

/// What a relocation of debug information computes, and its field's width.
enum Form {
    Absolute(usize),
    Relative(usize),
    /// An offset in the object's thread-local storage.
    Addend(usize),
}

impl Form {
    fn of(machine: u16, kind: u32) -> Option<Self> {
        if machine == EM_AARCH64 {
            return Some(match kind {
                kind if kind == elf::R_AARCH64_ABS64.0 => Self::Absolute(8),
                kind if kind == elf::R_AARCH64_ABS32.0 => Self::Absolute(4),
                kind if kind == elf::R_AARCH64_PREL64.0 => Self::Relative(8),
                kind if kind == elf::R_AARCH64_PREL32.0 => Self::Relative(4),
                kind if kind == elf::R_AARCH64_TLS_DTPREL.0 => Self::Addend(8),
                _ => return None,
            });
        }
        Some(match kind {
            kind if kind == elf::R_X86_64_64.0 => Self::Absolute(8),
            kind if kind == elf::R_X86_64_32.0 || kind == elf::R_X86_64_32S.0 => Self::Absolute(4),
            kind if kind == elf::R_X86_64_PC64.0 => Self::Relative(8),
            kind if kind == elf::R_X86_64_PC32.0 => Self::Relative(4),
            kind if kind == elf::R_X86_64_DTPOFF64.0 => Self::Addend(8),
            kind if kind == elf::R_X86_64_DTPOFF32.0 => Self::Addend(4),
            _ => return None,
        })
    }
}

/// Offset of a section header's address.
const SH_ADDR: usize = 16;
