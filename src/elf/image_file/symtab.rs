//! The symbols that an image has for tools, of which a link takes the names of functions. Nothing else depends on them:
//! what contradicts itself is left out.

use object::pod;

use super::index::ImageIndex;
use super::names::Names;
use crate::elf::elf_abi::{RawSymbol, STT_FUNC, Symbol};

/// The table of symbols for tools.
#[derive(Clone, Copy)]
pub(crate) struct Symtab<'a> {
    image: &'a ImageIndex,
    symbols: &'a [RawSymbol],
    strings: &'a [u8],
}

/// A function of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NamedFunction<'a> {
    pub(crate) name: &'a str,
    /// In the file.
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// The number of its segment.
    pub(crate) segment: usize,
}

impl ImageIndex {
    /// Returns the symbols for tools.
    pub(crate) fn symtab<'a>(&'a self, bytes: &'a [u8]) -> Symtab<'a> {
        Symtab::new(self, bytes)
    }
}

impl<'a> Symtab<'a> {
    fn new(image: &'a ImageIndex, bytes: &'a [u8]) -> Self {
        let strings = bytes.get(image.strtab.clone()).unwrap_or_default();
        let symbols = bytes.get(image.symtab.clone()).unwrap_or_default();
        Self { image, symbols: pod::slice_from_all_bytes(symbols).unwrap_or_default(), strings }
    }

    pub(crate) fn len(self) -> usize {
        self.symbols.len()
    }

    /// Returns the functions that have code.
    pub(crate) fn functions(self) -> impl Iterator<Item = NamedFunction<'a>> {
        let mut names = Names::most(self.strings, self.symbols.len());
        self.symbols.iter().skip(1).map(Symbol::decode).filter(|symbol| symbol.kind == STT_FUNC).filter_map(
            move |symbol| {
                let Symbol { value: address, size, .. } = symbol;
                let segment = self.image.segment_at(address)?;
                let of = self.image.segments.get(segment)?;
                let fits = of.executable && size != 0 && size <= of.address + of.bytes - address;
                let name = fits.then(|| names.read(symbol.name))??;
                Some(NamedFunction { name, address, size, segment })
            },
        )
    }
}
