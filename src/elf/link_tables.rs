//! The tables of a prepared object as a linker reads them.

use std::ops::Range;

use object::{U32 as AnyU32, pod};

use crate::elf::elf_abi::{
    HEADER_SIZE, Header, LE, RawRela, RawSection, RawSymbol, SHN_LORESERVE, SHN_UNDEF, SHN_XINDEX, SHT_RELA,
    SHT_SYMTAB, SHT_SYMTAB_SHNDX, STB_LOCAL, STT_FILE, STT_SECTION, Symbol,
};
use crate::elf::elf_view::string_at;

type U32 = AnyU32<LE>;

/// Section headers and symbols of an object that passed preparation. What a table lacks is `None`.
pub(crate) struct LinkTables<'a> {
    bytes: &'a [u8],
    sections: &'a [RawSection],
    symbols: &'a [RawSymbol],
    strings: &'a [u8],
    /// Section indices of symbols, where 16 bits are too few.
    indices: &'a [U32],
}

/// A relocation's field and value, in the ABI's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Relocation {
    /// The kind's number.
    pub kind: u32,
    /// Offset of the field in its section.
    pub offset: u64,
    /// Index of the symbol.
    pub symbol: u32,
    pub addend: i64,
}

/// The relocations of a section, or some of them.
#[derive(Clone, Copy, Default)]
pub(crate) struct Relocations<'a>(&'a [RawRela]);

impl<'a> Relocations<'a> {
    pub(crate) fn iter(self) -> impl Iterator<Item = Relocation> + use<'a> {
        self.0.iter().map(|entry| {
            let info = entry.r_info.get(LE);
            let (offset, addend) = (entry.r_offset.get(LE), entry.r_addend.get(LE));
            Relocation { kind: info as u32, offset, symbol: (info >> 32) as u32, addend }
        })
    }

    /// Returns those at these positions.
    pub(crate) fn within(self, positions: Range<usize>) -> Self {
        Self(self.0.get(positions).unwrap_or_default())
    }
}

/// Where a symbol is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SymbolPlace {
    /// In a section, at an offset.
    Section(u32, u64),
    /// Undefined: another object's.
    Undefined,
    /// An absolute or common one, or none that can be referred to.
    Other,
}

impl<'a> LinkTables<'a> {
    /// Reads the headers. `sections` is the number of sections that preparation has found.
    pub(crate) fn new(bytes: &'a [u8], sections: usize) -> Option<Self> {
        let (header, _) = pod::from_bytes::<Header>(bytes.get(..HEADER_SIZE as usize)?).ok()?;
        let at = usize::try_from(header.e_shoff.get(LE)).ok()?;
        let (sections, _) = pod::slice_from_bytes::<RawSection>(bytes.get(at..)?, sections).ok()?;
        let mut tables = Self { bytes, sections, symbols: &[], strings: &[], indices: &[] };
        if let Some(symbols) = sections.iter().find(|section| section.sh_type.get(LE).0 == SHT_SYMTAB) {
            tables.symbols = pod::slice_from_all_bytes(tables.contents(symbols)?).ok()?;
            tables.strings = tables.contents(sections.get(symbols.sh_link.get(LE) as usize)?)?;
        }
        if let Some(indices) = sections.iter().find(|section| section.sh_type.get(LE).0 == SHT_SYMTAB_SHNDX) {
            tables.indices = pod::slice_from_all_bytes(tables.contents(indices)?).ok()?;
        }
        Some(tables)
    }

    fn contents(&self, section: &RawSection) -> Option<&'a [u8]> {
        let start = usize::try_from(section.sh_offset.get(LE)).ok()?;
        self.bytes.get(start..start.checked_add(usize::try_from(section.sh_size.get(LE)).ok()?)?)
    }

    /// Returns each section of relocations that are linked, with the section that it patches.
    pub(crate) fn relocation_sections(&self) -> impl Iterator<Item = (u32, u32)> {
        let all = (0u32..).zip(self.sections);
        all.filter(|(_, section)| section.sh_type.get(LE).0 == SHT_RELA)
            .map(|(i, section)| (i, section.sh_info.get(LE)))
    }

    /// Returns a section's relocations, given the section that they are in.
    pub(crate) fn relocations(&self, section: u32) -> Option<Relocations<'a>> {
        pod::slice_from_all_bytes(self.contents(self.sections.get(section as usize)?)?).ok().map(Relocations)
    }

    /// Returns the number of symbols, the null symbol included.
    pub(crate) fn symbol_count(&self) -> usize {
        self.symbols.len()
    }

    /// Returns all symbols but the null symbol and the names of files, with their indices.
    pub(crate) fn symbols(&self) -> impl Iterator<Item = (u32, Symbol)> + use<'a> {
        let all = (0u32..).zip(self.symbols.iter().map(Symbol::decode)).skip(1);
        all.filter(|(_, symbol)| symbol.kind != STT_FILE)
    }

    /// Returns where a symbol is, given its index.
    pub(crate) fn place(&self, index: u32, symbol: &Symbol) -> SymbolPlace {
        let section = self.indices.get(index as usize).filter(|_| symbol.shndx == SHN_XINDEX);
        section.map_or_else(|| symbol.place(), |section| SymbolPlace::Section(section.get(LE), symbol.value))
    }

    pub(crate) fn symbol(&self, index: u32) -> Option<Symbol> {
        self.symbols.get(index as usize).map(Symbol::decode)
    }

    /// Returns a symbol's name; empty if it has none, or is a section's.
    pub(crate) fn name(&self, symbol: &Symbol) -> Option<&'a str> {
        if symbol.kind == STT_SECTION && symbol.name == 0 {
            return Some("");
        }
        std::str::from_utf8(string_at(self.strings, symbol.name)?).ok()
    }
}

impl Symbol {
    pub(crate) fn place(&self) -> SymbolPlace {
        match self.shndx {
            SHN_UNDEF if self.binding != STB_LOCAL => SymbolPlace::Undefined,
            SHN_UNDEF | SHN_LORESERVE.. => SymbolPlace::Other,
            section if self.kind != STT_FILE => SymbolPlace::Section(section.into(), self.value),
            _ => SymbolPlace::Other,
        }
    }
}
