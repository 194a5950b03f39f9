//! The names that an image defines. They are looked up in the image's own tables, as the dynamic loader does: a large
//! image has thousands, of which few are asked for.

use std::ops::Range;

use object::pod;

use super::index::{ExportTables, ImageIndex};
use super::names::Names;
use super::unfit::Unfit;
use crate::elf::elf_abi::{RawSymbol, SHN_ABS, STB_GLOBAL, STB_WEAK, STT_FUNC, STT_OBJECT, STT_TLS, Symbol};
use crate::elf::gnu_hash::{gnu_hash, gnu_hash_find};
use crate::elf::index::SymbolKind;

/// The names that an image defines.
#[derive(Clone, Copy)]
pub(crate) struct Exports<'a> {
    image: &'a ImageIndex,
    hashes: &'a [u8],
    symbols: &'a [RawSymbol],
    strings: &'a [u8],
}

/// A name that an image defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Export<'a> {
    /// Its number in the image.
    pub(crate) number: u32,
    pub(crate) name: &'a str,
    pub(crate) weak: bool,
    pub(crate) kind: SymbolKind,
    pub(crate) size: u64,
    pub(crate) place: ExportPlace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExportPlace {
    Absolute(u64),
    /// An address in the file, in a segment of this number.
    Segment(usize, u64),
    /// Bytes from the start of the thread-local block.
    ThreadLocal(u64),
}

impl ImageIndex {
    /// Returns the names that it defines.
    pub(crate) fn exports<'a>(&'a self, bytes: &'a [u8]) -> Exports<'a> {
        Exports::new(self, bytes, 0)
    }
}

impl<'a> Exports<'a> {
    /// Reads the tables from bytes that begin at `start` of the file.
    pub(crate) fn new(image: &'a ImageIndex, bytes: &'a [u8], start: usize) -> Self {
        let ExportTables { hashes, symbols, strings } = &image.export_tables;
        let table = |range: &Range<usize>| {
            let range = range.start.checked_sub(start)?..range.end.checked_sub(start)?;
            bytes.get(range)
        };
        let [hashes, symbols, strings] = [hashes, symbols, strings].map(|range| table(range).unwrap_or_default());
        Self { image, hashes, symbols: pod::slice_from_all_bytes(symbols).unwrap_or_default(), strings }
    }

    pub(crate) fn find<'n>(self, name: &'n str) -> Option<Export<'n>> {
        let named = |number| {
            let symbol = self.defined(number)?;
            let found = self.strings.get(symbol.name as usize..)?.split_at_checked(name.len());
            found.filter(|(found, end)| *found == name.as_bytes() && end.first() == Some(&0))?;
            self.export(number, &symbol, name)
        };
        gnu_hash_find(self.hashes, gnu_hash(name), named)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Export<'a>> {
        let mut names = Names::new(self.strings, self.symbols.len());
        self.numbers().filter_map(move |number| {
            let symbol = self.defined(number)?;
            self.export(number, &symbol, names.read(symbol.name)?)
        })
    }

    /// Returns the place of the one of a number.
    pub(crate) fn place(self, number: u32) -> Option<ExportPlace> {
        Some(self.export(number, &self.defined(number)?, "")?.place)
    }

    /// Checks all of them.
    pub(super) fn check(self) -> Result<(), Unfit> {
        let is_sound = |number| {
            let symbol = self.defined(number)?;
            self.strings.get(symbol.name as usize).filter(|byte| **byte != 0)?;
            self.export(number, &symbol, "")
        };
        let is_sound = self.numbers().all(|number| is_sound(number).is_some());
        is_sound.then_some(()).ok_or(Unfit::Malformed("a symbol has no name, or lies outside"))
    }

    fn numbers(self) -> Range<u32> {
        self.image.note.imports as u32 + 1..self.symbols.len() as u32
    }

    fn defined(self, number: u32) -> Option<Symbol> {
        let symbol = self.symbols.get(number as usize).filter(|_| u64::from(number) > self.image.note.imports)?;
        Some(Symbol::decode(symbol))
    }

    fn export<'n>(self, number: u32, symbol: &Symbol, name: &'n str) -> Option<Export<'n>> {
        let weak = is_weak(symbol.binding)?;
        let kind = match symbol.kind {
            STT_TLS => SymbolKind::ThreadLocal,
            STT_FUNC => SymbolKind::Function,
            STT_OBJECT => SymbolKind::Data,
            _ => SymbolKind::Unknown,
        };
        let end = symbol.value.checked_add(symbol.size);
        let place = if symbol.shndx == SHN_ABS {
            ExportPlace::Absolute(symbol.value)
        } else if kind == SymbolKind::ThreadLocal {
            let (_, _, bytes) = self.image.thread_local?;
            end.filter(|end| *end <= bytes)?;
            ExportPlace::ThreadLocal(symbol.value)
        } else {
            let segment = self.image.segment_at(symbol.value)?;
            let of = self.image.segments.get(segment)?;
            end.filter(|end| *end <= of.address + of.bytes)?;
            ExportPlace::Segment(segment, symbol.value)
        };
        Some(Export { number, name, weak, kind, size: symbol.size, place })
    }
}

/// Returns whether a symbol of this binding is weak; `None` for what no image has.
pub(super) fn is_weak(binding: u8) -> Option<bool> {
    match binding {
        STB_GLOBAL => Some(false),
        STB_WEAK => Some(true),
        _ => None,
    }
}
