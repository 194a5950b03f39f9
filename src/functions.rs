//! Names of an object's functions, by address, which a signal handler can read: symbols that the dynamic loader reads,
//! too, or else a table of their own.
#![allow(unsafe_code, reason = "tables are published as thin pointers")]

use std::ffi::CStr;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use crate::elf::image_file::ImageFunctions;

/// Functions of an object, in any order.
#[derive(Debug, Default)]
pub(crate) struct FunctionList {
    names: String,
    all: SmallVec<[Listed; 1]>,
}

/// Functions of an object, sorted by address. Of several names of one function, the shortest comes first.
#[derive(Debug)]
pub(crate) struct SortedFunctions<'a> {
    /// The address of their unwind table, or 0.
    pub(crate) frames: u64,
    all: All<'a>,
}

#[derive(Debug)]
enum All<'a> {
    Listed(SmallVec<[Function<'a>; 1]>),
    Image(ImageFunctions<'a>),
}

/// Some of those, which follow each other.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FunctionSlice<'s, 'a> {
    Listed(&'s [Function<'a>]),
    /// Those of an image, as its file has them.
    Image(ImageFunctions<'a>),
}

#[derive(Debug)]
struct Listed {
    address: u64,
    bytes: u32,
    name: Range<usize>,
}

/// The functions of an object that are kept, sorted by address.
#[derive(Debug)]
pub(crate) enum FunctionTable {
    /// A table of its own. It begins with its length and the number of functions, 4 bytes each. Of each function then:
    /// address (8 bytes), size (4), the end of its name (4) behind the name before; then all names.
    Own(Box<[u8]>),
    /// Symbols that the dynamic loader reads.
    Symbols(SymbolRange),
}

/// Symbols of one object in an arena's [`SymbolTables`]. Their names follow each other, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SymbolRange {
    /// Below 2³¹.
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// The addresses of a table of symbols (`Elf64_Sym`) and of the table of their names; 0 if there are none.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SymbolTables {
    pub(crate) symbols: usize,
    pub(crate) names: usize,
}

/// Functions that somebody else keeps.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Functions<'a> {
    Table(&'a [u8]),
    Symbols(SymbolTables, SymbolRange),
}

/// A function of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Function<'a> {
    pub(crate) name: &'a str,
    pub(crate) address: u64,
    pub(crate) bytes: u32,
}

const HEADER: usize = 8;
const ENTRY: usize = 16;
/// So many functions that begin before an address are looked at: functions seldom lie in each other.
const NESTED: usize = 16;

impl FunctionList {
    pub(crate) fn push(&mut self, name: &str, address: u64, bytes: u64) {
        let start = self.names.len();
        self.names.push_str(name);
        let bytes = bytes.min(u32::MAX.into()) as u32;
        self.all.push(Listed { address, bytes, name: start..self.names.len() });
    }

    pub(crate) fn sorted(&self) -> SortedFunctions<'_> {
        let name = |listed: &Listed| self.names.get(listed.name.clone()).unwrap_or_default();
        let function = |listed: &Listed| Function { name: name(listed), address: listed.address, bytes: listed.bytes };
        let mut all: SmallVec<[Function<'_>; 1]> = self.all.iter().map(function).collect();
        all.sort_unstable_by(|a, b| a.address.cmp(&b.address).then_with(|| order(a).cmp(&order(b))));
        SortedFunctions { frames: 0, all: All::Listed(all) }
    }
}

impl Default for SortedFunctions<'_> {
    fn default() -> Self {
        Self { frames: 0, all: All::Listed(SmallVec::new()) }
    }
}

/// The order of names of one function.
fn order<'a>(function: &Function<'a>) -> (usize, &'a str) {
    (function.name.len(), function.name)
}

impl<'a> SortedFunctions<'a> {
    pub(crate) fn of_image(functions: ImageFunctions<'a>) -> Self {
        Self { frames: 0, all: All::Image(functions) }
    }

    pub(crate) fn all(&self) -> FunctionSlice<'_, 'a> {
        match &self.all {
            All::Listed(all) => FunctionSlice::Listed(all),
            All::Image(all) => FunctionSlice::Image(*all),
        }
    }

    /// Returns those in a range of addresses.
    pub(crate) fn within(&self, range: &Range<usize>) -> FunctionSlice<'_, 'a> {
        match &self.all {
            All::Listed(all) => {
                let [start, end] = [range.start, range.end]
                    .map(|address| all.partition_point(|function| function.address < address as u64));
                FunctionSlice::Listed(all.get(start..end).unwrap_or_default())
            }
            All::Image(all) => FunctionSlice::Image(all.within(&(range.start as u64..range.end as u64))),
        }
    }

    /// Returns a table of those in a range of addresses, if there are some.
    pub(crate) fn table(&self, range: &Range<usize>) -> Option<FunctionTable> {
        let within = self.within(range);
        let len = HEADER + within.len() * ENTRY + within.name_bytes() - within.len();
        let len = u32::try_from(len).ok().filter(|_| within.len() != 0)?;
        let mut table = Vec::with_capacity(len as usize);
        table.extend(len.to_ne_bytes());
        table.extend((within.len() as u32).to_ne_bytes());
        let mut end = 0;
        for function in within.iter() {
            end += function.name.len() as u32;
            table.extend(function.address.to_ne_bytes());
            table.extend(function.bytes.to_ne_bytes());
            table.extend(end.to_ne_bytes());
        }
        within.iter().for_each(|function| table.extend(function.name.as_bytes()));
        Some(FunctionTable::Own(table.into_boxed_slice()))
    }
}

impl<'s, 'a> FunctionSlice<'s, 'a> {
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Listed(all) => all.len(),
            Self::Image(all) => all.len(),
        }
    }

    /// Returns the bytes of all names, with one behind each.
    pub(crate) fn name_bytes(self) -> usize {
        match self {
            Self::Listed(all) => all.iter().map(|function| function.name.len() + 1).sum(),
            Self::Image(all) => all.names().len(),
        }
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Function<'a>> + use<'s, 'a> {
        // One of the two is empty.
        let (listed, image) = match self {
            Self::Listed(all) => (all, ImageFunctions::default()),
            Self::Image(all) => (&[][..], all),
        };
        listed.iter().copied().chain(image.iter().map(|function| {
            let bytes = function.size.min(u32::MAX.into()) as u32;
            Function { name: function.name, address: function.address, bytes }
        }))
    }
}

impl FunctionTable {
    /// Returns a word for [`from_raw`](Self::from_raw). Only symbols set its lowest bit.
    pub(crate) fn into_raw(self) -> *mut u8 {
        match self {
            Self::Own(table) => Box::into_raw(table).cast(),
            Self::Symbols(range) => {
                ptr::without_provenance_mut((range.count as usize) << 32 | (range.first as usize) << 1 | 1)
            }
        }
    }

    /// Returns the symbols, if the word is theirs.
    pub(crate) fn symbols_of_raw(raw: *const u8) -> Option<SymbolRange> {
        let word = raw.addr();
        (word & 1 == 1).then_some(SymbolRange { first: (word as u32) >> 1, count: (word >> 32) as u32 })
    }

    /// # Safety
    /// The word is of [`into_raw`](Self::into_raw), and given back once.
    pub(crate) unsafe fn from_raw(raw: *mut u8) -> Self {
        if let Some(symbols) = Self::symbols_of_raw(raw) {
            return Self::Symbols(symbols);
        }
        // SAFETY: by the caller; a table begins with its length.
        unsafe { Self::Own(Box::from_raw(ptr::slice_from_raw_parts_mut(raw, len(raw)))) }
    }
}

/// # Safety
/// There is a table.
unsafe fn len(table: *const u8) -> usize {
    // SAFETY: by the caller.
    unsafe { table.cast::<u32>().read_unaligned() as usize }
}

impl SymbolTables {
    /// Bytes of a symbol.
    pub(crate) const SYMBOL: usize = 24;

    /// Returns a word of a symbol: what it is, its address, or its size.
    ///
    /// # Safety
    /// The tables are there, the symbol is taken, and nobody writes it but by this.
    pub(crate) unsafe fn word<'a>(self, symbol: usize, word: usize) -> &'a AtomicU64 {
        let at = ptr::with_exposed_provenance_mut(self.symbols + symbol * Self::SYMBOL + word * 8);
        // SAFETY: by the caller.
        unsafe { AtomicU64::from_ptr(at) }
    }
}

impl<'a> Functions<'a> {
    /// # Safety
    /// The word is of [`FunctionTable::into_raw`], symbols are of these tables, and what it means stays as long as this
    /// is used.
    pub(crate) unsafe fn at(raw: *const u8, tables: SymbolTables) -> Self {
        match FunctionTable::symbols_of_raw(raw) {
            Some(range) => Self::Symbols(tables, range),
            // SAFETY: by the caller.
            None => unsafe { Self::Table(std::slice::from_raw_parts(raw, len(raw))) },
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Table(table) => word(table, 4) as usize,
            Self::Symbols(_, range) => range.count as usize,
        }
    }

    fn address(&self, i: usize) -> u64 {
        match self {
            Self::Table(table) => long(table, HEADER + i * ENTRY),
            Self::Symbols(..) => self.symbol(i, 1),
        }
    }

    /// Returns a word of a symbol.
    fn symbol(&self, i: usize, word: usize) -> u64 {
        let Self::Symbols(tables, range) = self else { return 0 };
        // SAFETY: by `at`.
        unsafe { tables.word(range.first as usize + i, word).load(Ordering::Relaxed) }
    }

    pub(crate) fn get(&self, i: usize) -> Function<'a> {
        let (name, bytes) = match self {
            Self::Table(table) => {
                let at = HEADER + i * ENTRY;
                let names = HEADER + self.len() * ENTRY;
                let start = if i == 0 { 0 } else { word(table, at - 4) as usize };
                let name = table.get(names + start..names + word(table, at + 12) as usize).unwrap_or_default();
                (name, word(table, at + 8))
            }
            Self::Symbols(tables, _) => {
                let name = tables.names + self.symbol(i, 0) as u32 as usize;
                // SAFETY: by `at`; names end, and stay as long as their symbols.
                let name = unsafe { CStr::from_ptr(ptr::with_exposed_provenance(name)) };
                (name.to_bytes(), self.symbol(i, 2) as u32)
            }
        };
        Function { name: str::from_utf8(name).unwrap_or_default(), address: self.address(i), bytes }
    }

    /// Returns the function that has an address: of several, the one that begins last.
    pub(crate) fn find(&self, address: u64) -> Option<Function<'a>> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.address(middle) <= address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let mut found: Option<Function<'a>> = None;
        for i in (low.saturating_sub(NESTED)..low).rev() {
            let function = self.get(i);
            if found.is_some_and(|found| found.address != function.address) {
                break;
            }
            if address.wrapping_sub(function.address) < function.bytes.into() {
                found = Some(function);
            }
        }
        found
    }
}

fn word(table: &[u8], at: usize) -> u32 {
    let bytes = table.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u32::from_ne_bytes)
}

fn long(table: &[u8], at: usize) -> u64 {
    let bytes = table.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(functions: &[(&str, u64, u64)]) -> FunctionList {
        let mut list = FunctionList::default();
        functions.iter().for_each(|(name, address, bytes)| list.push(name, *address, *bytes));
        list
    }

    #[test]
    fn an_address_is_found_as_if_one_by_one() {
        let functions =
            [("outer", 100, 50), ("long_alias", 100, 50), ("inner", 120, 10), ("behind", 150, 5), ("far", 1 << 40, 9)];
        let raw = list(&functions).sorted().table(&(0..usize::MAX)).unwrap().into_raw();
        // SAFETY: of `into_raw`; it is given back below.
        let functions_of = unsafe { Functions::at(raw, SymbolTables::default()) };
        assert_eq!(functions_of.len(), 5);
        for address in (90..170).chain((1 << 40) - 1..(1 << 40) + 12) {
            let covers = |f: &&(&str, u64, u64)| (f.1..f.1 + f.2).contains(&address);
            let expected = functions.iter().filter(covers).max_by_key(|f| (f.1, std::cmp::Reverse(f.0.len())));
            let found = functions_of.find(address).map(|function| (function.name, function.address));
            assert_eq!(found, expected.map(|f| (f.0, f.1)), "{address}");
        }
        // SAFETY: as above, once.
        drop(unsafe { FunctionTable::from_raw(raw) });
    }

    #[test]
    fn a_table_has_what_is_in_its_range() {
        let list = list(&[("b", 20, 1), ("a", 10, 1), ("ü", 30, 1)]);
        let list = list.sorted();
        assert!(list.table(&(11..20)).is_none());
        let raw = list.table(&(11..40)).unwrap().into_raw();
        // SAFETY: of `into_raw`; it is given back below.
        let functions = unsafe { Functions::at(raw, SymbolTables::default()) };
        let all: Vec<_> = (0..functions.len()).map(|i| functions.get(i)).map(|f| (f.name, f.address)).collect();
        assert_eq!(all, [("b", 20), ("ü", 30)]);
        // SAFETY: as above, once.
        drop(unsafe { FunctionTable::from_raw(raw) });
    }
}
