//! The symbols that an image has for tools, of which a link takes the names of functions. Nothing else depends on them:
//! what contradicts itself is left out.

use object::pod;

use super::index::ImageIndex;
use super::name_bytes::NameBytes;
use crate::elf::elf_abi::{RawSymbol, STT_FUNC, Symbol};

/// The table of symbols for tools.
#[derive(Clone, Copy)]
pub(crate) struct Symtab<'a> {
    image: &'a ImageIndex,
    symbols: &'a [RawSymbol],
    names: &'a [u8],
}

/// A function of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NamedFunction<'a> {
    pub(crate) name: &'a str,
    /// In the file.
    pub(crate) address: u64,
    pub(crate) size: u64,
}

impl ImageIndex {
    /// Returns the symbols for tools.
    pub(crate) fn symtab<'a>(&'a self, bytes: &'a [u8]) -> Symtab<'a> {
        Symtab::new(self, bytes)
    }
}

impl<'a> Symtab<'a> {
    fn new(image: &'a ImageIndex, bytes: &'a [u8]) -> Self {
        let names = bytes.get(image.strtab.clone()).unwrap_or_default();
        let symbols = bytes.get(image.symtab.clone()).unwrap_or_default();
        Self { image, symbols: pod::slice_from_all_bytes(symbols).unwrap_or_default(), names }
    }

    pub(crate) fn name_bytes(self) -> NameBytes {
        NameBytes::of(self.names.len(), self.symbols.len())
    }

    /// Returns the functions with their names.
    pub(crate) fn named(self) -> impl Iterator<Item = NamedFunction<'a>> {
        let mut left = self.name_bytes();
        self.functions().filter_map(move |(number, _)| self.get(number, &mut left))
    }

    /// Returns numbers and addresses of the functions that have code.
    pub(crate) fn functions(self) -> impl Iterator<Item = (u32, u64)> {
        (1..).zip(self.symbols.iter().skip(1).map(Symbol::decode)).filter_map(move |(number, symbol)| {
            let Symbol { value, size, kind, .. } = symbol;
            let segment = self.image.segments.get(self.image.segment_at(value)?)?;
            let fits = segment.executable && size != 0 && size <= segment.address + segment.bytes - value;
            (fits && kind == STT_FUNC).then_some((number, value))
        })
    }

    /// Returns the function of a number.
    pub(crate) fn get(self, number: u32, left: &mut NameBytes) -> Option<NamedFunction<'a>> {
        let symbol = Symbol::decode(self.symbols.get(number as usize)?);
        let name = left.read(self.names, symbol.name)?;
        Some(NamedFunction { name, address: symbol.value, size: symbol.size })
    }
}
