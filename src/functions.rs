//! Names of an object's functions, by address: one piece of memory, which a signal handler can read.
#![allow(unsafe_code, reason = "tables are published as thin pointers")]

use std::ops::Range;

/// Functions of an object.
#[derive(Debug, Default)]
pub(crate) struct FunctionList {
    /// The address of their unwind table, or 0.
    pub(crate) frames: u64,
    names: String,
    all: Vec<Listed>,
}

#[derive(Debug)]
struct Listed {
    address: u64,
    bytes: u32,
    name: Range<usize>,
}

/// A table of functions. It begins with its length and the number of functions, 4 bytes each, and the address of their
/// `.eh_frame` (8), or 0. Of each function then, sorted: address (8 bytes), size (4), the end of its name (4) behind
/// the name before; then all names.
#[derive(Debug)]
pub(crate) struct FunctionTable(Box<[u8]>);

/// A table that somebody else keeps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Functions<'a>(&'a [u8]);

/// A function of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Function<'a> {
    pub(crate) name: &'a str,
    pub(crate) address: u64,
    pub(crate) bytes: u32,
}

const HEADER: usize = 16;
const ENTRY: usize = 16;
/// So many functions that begin before an address are looked at: functions seldom lie in each other.
const NESTED: usize = 16;

impl FunctionList {
    pub(crate) fn push(&mut self, name: &str, address: u64, bytes: u64) {
        let start = self.names.len();
        self.names.push_str(name);
        self.all.push(Listed { address, bytes: bytes.min(u32::MAX.into()) as u32, name: start..self.names.len() });
    }

    /// Sorts them by address. Of several names of one function, the shortest comes first.
    pub(crate) fn sort(&mut self) {
        let Self { names, all, .. } = self;
        let name = |listed: &Listed| names.get(listed.name.clone()).unwrap_or_default();
        all.sort_unstable_by_key(|listed| (listed.address, listed.name.len(), name(listed)));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Function<'_>> {
        self.all.iter().map(|listed| Function { name: self.name(listed), address: listed.address, bytes: listed.bytes })
    }

    fn name(&self, listed: &Listed) -> &str {
        self.names.get(listed.name.clone()).unwrap_or_default()
    }

    /// Returns the table of those in a range of addresses, if there are some, or an unwind
    /// table. They were [sorted](Self::sort).
    pub(crate) fn table(&self, range: &Range<usize>) -> Option<FunctionTable> {
        let within: Vec<&Listed> =
            self.all.iter().filter(|listed| range.contains(&(listed.address as usize))).collect();
        let names: usize = within.iter().map(|listed| listed.name.len()).sum();
        let len = u32::try_from(HEADER + within.len() * ENTRY + names)
            .ok()
            .filter(|_| !within.is_empty() || self.frames != 0)?;
        let mut table = Vec::with_capacity(len as usize);
        table.extend(len.to_ne_bytes());
        table.extend((within.len() as u32).to_ne_bytes());
        table.extend(self.frames.to_ne_bytes());
        let mut end = 0;
        for listed in &within {
            end += listed.name.len() as u32;
            table.extend(listed.address.to_ne_bytes());
            table.extend(listed.bytes.to_ne_bytes());
            table.extend(end.to_ne_bytes());
        }
        within.iter().for_each(|listed| table.extend(self.name(listed).as_bytes()));
        Some(FunctionTable(table.into_boxed_slice()))
    }
}

impl FunctionTable {
    /// Returns a pointer for [`from_raw`](Self::from_raw).
    pub(crate) fn into_raw(self) -> *mut u8 {
        Box::into_raw(self.0).cast()
    }

    /// # Safety
    /// The pointer is of [`into_raw`](Self::into_raw), and given back once.
    pub(crate) unsafe fn from_raw(raw: *mut u8) -> Self {
        // SAFETY: by the caller; a table begins with its length.
        unsafe { Self(Box::from_raw(std::ptr::slice_from_raw_parts_mut(raw, len(raw)))) }
    }
}

/// # Safety
/// There is a table.
unsafe fn len(table: *const u8) -> usize {
    // SAFETY: by the caller.
    unsafe { table.cast::<u32>().read_unaligned() as usize }
}

impl<'a> Functions<'a> {
    /// # Safety
    /// The pointer is of [`FunctionTable::into_raw`], and the table stays as long as this is used.
    pub(crate) unsafe fn at(raw: *const u8) -> Self {
        // SAFETY: by the caller.
        unsafe { Self(std::slice::from_raw_parts(raw, len(raw))) }
    }

    fn word(&self, at: usize) -> u32 {
        let bytes = self.0.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_ne_bytes)
    }

    fn long(&self, at: usize) -> u64 {
        let bytes = self.0.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    }

    /// Returns the address of the unwind table, or 0.
    pub(crate) fn frames(&self) -> u64 {
        self.long(8)
    }

    pub(crate) fn len(&self) -> usize {
        self.word(4) as usize
    }

    fn address(&self, i: usize) -> u64 {
        self.long(HEADER + i * ENTRY)
    }

    pub(crate) fn get(&self, i: usize) -> Function<'a> {
        let at = HEADER + i * ENTRY;
        let names = HEADER + self.len() * ENTRY;
        let start = if i == 0 { 0 } else { self.word(at - 4) as usize };
        let name = self.0.get(names + start..names + self.word(at + 12) as usize);
        let name = name.and_then(|name| str::from_utf8(name).ok()).unwrap_or_default();
        Function { name, address: self.address(i), bytes: self.word(at + 8) }
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
            if address - function.address < function.bytes.into() {
                found = Some(function);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(functions: &[(&str, u64, u64)]) -> FunctionList {
        let mut list = FunctionList::default();
        functions.iter().for_each(|(name, address, bytes)| list.push(name, *address, *bytes));
        list.sort();
        list
    }

    #[test]
    fn an_address_is_found_as_if_one_by_one() {
        let functions =
            [("outer", 100, 50), ("long_alias", 100, 50), ("inner", 120, 10), ("behind", 150, 5), ("far", 1 << 40, 9)];
        let table = list(&functions).table(&(0..usize::MAX)).unwrap();
        let functions_of = Functions(&table.0);
        assert_eq!(functions_of.len(), 5);
        for address in (90..170).chain((1 << 40) - 1..(1 << 40) + 12) {
            let covers = |f: &&(&str, u64, u64)| (f.1..f.1 + f.2).contains(&address);
            let expected = functions.iter().filter(covers).max_by_key(|f| (f.1, std::cmp::Reverse(f.0.len())));
            let found = functions_of.find(address).map(|function| (function.name, function.address));
            assert_eq!(found, expected.map(|f| (f.0, f.1)), "{address}");
        }
    }

    #[test]
    fn a_table_has_what_is_in_its_range() {
        let list = list(&[("b", 20, 1), ("a", 10, 1), ("ü", 30, 1)]);
        assert!(list.table(&(11..20)).is_none());
        let raw = list.table(&(11..40)).unwrap().into_raw();
        // SAFETY: of `into_raw`; it is given back below.
        let functions = unsafe { Functions::at(raw) };
        let all: Vec<_> = (0..functions.len()).map(|i| functions.get(i)).map(|f| (f.name, f.address)).collect();
        assert_eq!((all, functions.frames()), (vec![("b", 20), ("ü", 30)], 0));
        // SAFETY: as above, once.
        drop(unsafe { FunctionTable::from_raw(raw) });
    }

    #[test]
    fn an_unwind_table_is_known_without_functions_too() {
        let nameless = FunctionList { frames: 1 << 40, ..FunctionList::default() };
        let table = nameless.table(&(11..40)).unwrap();
        assert_eq!((Functions(&table.0).frames(), Functions(&table.0).find(12)), (1 << 40, None));
    }
}
