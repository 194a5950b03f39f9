//! The functions in an image's code, in the order of addresses, and their names, which follow each other. With headers
//! in the room in front, both are a file that debuggers read.

use std::ops::Range;

use object::pod;

use super::index::ImageIndex;
use super::unfit::Unfit;
use crate::elf::elf_abi::{LE, RawSymbol};
use crate::elf::image_note::{FUNCTION, FUNCTIONS_ROOM, NAMES_START};

/// Zeros in [`NAMES_START`].
const SECTION_NAMES: usize = 4;

/// Functions that follow each other.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ImageFunctions<'a> {
    symbols: &'a [RawSymbol],
    /// Names of all functions of the image.
    names: &'a [u8],
    /// The end of the names of these.
    end: usize,
    /// The address from which the symbols count.
    code: u64,
}

/// A function of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NamedFunction<'a> {
    pub(crate) name: &'a str,
    pub(crate) address: u64,
    pub(crate) size: u64,
}

impl ImageIndex {
    /// Returns its functions, with their addresses in the file.
    pub(crate) fn functions<'a>(&self, bytes: &'a [u8]) -> ImageFunctions<'a> {
        let names = bytes.get(self.names.clone()).unwrap_or_default();
        let symbols = bytes.get(self.functions.clone()).and_then(|symbols| symbols.get(FUNCTIONS_ROOM..));
        let symbols = pod::slice_from_all_bytes(symbols.unwrap_or_default()).unwrap_or_default();
        let code = self.code().map_or(0, |segment| segment.address);
        ImageFunctions { symbols, names, end: names.len(), code }
    }

    /// Returns the bytes of the file that debuggers read, with room for headers in front, and the place of names in
    /// them.
    pub(crate) fn functions_file(&self) -> (Range<usize>, usize) {
        (self.functions.start..self.names.end, self.functions.len())
    }

    /// Checks its functions: nothing else does it.
    pub(super) fn check_functions(&self, bytes: &[u8]) -> Result<(), Unfit> {
        let functions = self.functions(bytes);
        let code = self.code().map_or(0, |segment| segment.bytes);
        let room = self.functions.len().checked_sub(FUNCTIONS_ROOM);
        let is_whole = room == Some(size_of_val(functions.symbols)) && self.functions.end == self.names.start;
        (is_whole && functions.are_sound(code))
            .then_some(())
            .ok_or(Unfit::Malformed("its list of functions is damaged"))
    }
}

impl<'a> ImageFunctions<'a> {
    /// Returns whether they are in order, in so many bytes of code, and each has a name of its own.
    fn are_sound(self, code: u64) -> bool {
        let names = self.names;
        let are_names = names.starts_with(NAMES_START.as_bytes())
            && names.ends_with(&[0])
            && std::str::from_utf8(names).is_ok()
            && zeros(names) == SECTION_NAMES + self.len();
        let (mut last, mut name) = (0, NAMES_START.len());
        // Each name begins behind a zero, and there is one zero for each name: none has a zero inside.
        let are_symbols = self.symbols.iter().all(|symbol| {
            let (at, size, start) = (symbol.st_value.get(LE), symbol.st_size.get(LE), symbol.st_name.get(LE) as usize);
            let [info, other, section, _] = FUNCTION;
            let is_function = symbol.st_info.0 == info
                && symbol.st_other.0 == other
                && symbol.st_shndx.get(LE).0 == u16::from(section);
            let is_inside = at >= last && at <= code && size != 0 && size <= code - at;
            let has_name = names.get(start).is_some_and(|byte| *byte != 0);
            let is_named = start >= name && has_name && names.get(start - 1) == Some(&0);
            (last, name) = (at, start + 2);
            is_function && is_inside && is_named
        });
        are_names
            && are_symbols
            && self.symbols.first().is_none_or(|first| first.st_name.get(LE) as usize == NAMES_START.len())
    }

    /// The same, so much further on.
    pub(crate) fn moved(self, by: u64) -> Self {
        Self { code: self.code.wrapping_add(by), ..self }
    }

    pub(crate) fn len(self) -> usize {
        self.symbols.len()
    }

    /// Returns the address and the size of each, and where its name begins among [`names`](Self::names).
    pub(crate) fn places(self) -> impl Iterator<Item = (u64, u64, usize)> {
        let first = self.start();
        self.symbols.iter().map(move |symbol| {
            let name = symbol.st_name.get(LE) as usize;
            (self.code.wrapping_add(symbol.st_value.get(LE)), symbol.st_size.get(LE), name.saturating_sub(first))
        })
    }

    /// Returns their names, each with a zero behind it.
    pub(crate) fn names(self) -> &'a [u8] {
        self.names.get(self.start()..self.end).unwrap_or_default()
    }

    fn start(self) -> usize {
        self.symbols.first().map_or(self.end, |first| first.st_name.get(LE) as usize)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = NamedFunction<'a>> {
        let ends = self.symbols.iter().skip(1).map(|next| next.st_name.get(LE) as usize).chain([self.end]);
        self.symbols.iter().zip(ends).map(move |(symbol, end)| {
            let name = self.names.get(symbol.st_name.get(LE) as usize..end.saturating_sub(1)).unwrap_or_default();
            let name = std::str::from_utf8(name).unwrap_or_default();
            let address = self.code.wrapping_add(symbol.st_value.get(LE));
            NamedFunction { name, address, size: symbol.st_size.get(LE) }
        })
    }

    /// Returns those that begin in a range of addresses.
    pub(crate) fn within(self, range: &Range<u64>) -> Self {
        let before = |address: u64| {
            self.symbols.partition_point(|symbol| self.code.wrapping_add(symbol.st_value.get(LE)) < address)
        };
        let (start, end) = (before(range.start), before(range.end));
        let symbols = self.symbols.get(start..end).unwrap_or_default();
        let end = self.symbols.get(end).map_or(self.end, |next| next.st_name.get(LE) as usize);
        Self { symbols, end, ..self }
    }
}

/// Returns how many bytes are zero. The count of each chunk fits into a byte, so that it is made with vectors of bytes.
fn zeros(bytes: &[u8]) -> usize {
    let in_chunk = |chunk: &[u8]| usize::from(chunk.iter().map(|byte| u8::from(*byte == 0)).sum::<u8>());
    bytes.chunks(usize::from(u8::MAX)).map(in_chunk).sum()
}

#[cfg(test)]
mod tests {
    use object::{U16, U32, U64, elf};

    use super::*;

    fn symbol(name: usize, value: u64, size: u64) -> RawSymbol {
        RawSymbol {
            st_name: U32::new(LE, name as u32),
            st_info: elf::SymbolInfo(FUNCTION[0]),
            st_other: elf::SymbolOther(0),
            st_shndx: U16::new(LE, elf::SymbolSection(1)),
            st_value: U64::new(LE, value),
            st_size: U64::new(LE, size),
        }
    }

    const AT: usize = NAMES_START.len();

    #[test]
    fn functions_are_found_by_their_addresses() {
        let names = [NAMES_START, "one\0ü\0three\0"].concat();
        let symbols = [symbol(AT, 0, 8), symbol(AT + 4, 16, 4), symbol(AT + 7, 16, 16)];
        let all = ImageFunctions { symbols: &symbols, names: names.as_bytes(), end: names.len(), code: 0x1000 };
        assert!(all.are_sound(32));
        assert!(!all.are_sound(31));
        let all = all.moved(0x100);
        let named = |functions: ImageFunctions<'_>| {
            functions.iter().map(|of| (of.name.to_owned(), of.address, of.size)).collect::<Vec<_>>()
        };
        let expected =
            [("one", 0x1100, 8), ("ü", 0x1110, 4), ("three", 0x1110, 16)].map(|(n, a, s)| (n.to_owned(), a, s));
        assert_eq!(named(all), expected);
        for (range, of, names) in [
            (0..0x1100, 0..0, ""),
            (0x1100..0x1101, 0..1, "one\0"),
            (0x1101..0x1110, 0..0, ""),
            (0x1101..0x1111, 1..3, "ü\0three\0"),
            (0..u64::MAX, 0..3, "one\0ü\0three\0"),
        ] {
            let within = all.within(&range);
            assert_eq!(named(within), expected[of], "{range:x?}");
            if within.len() != 0 {
                assert_eq!(str::from_utf8(within.names()).unwrap(), names);
                let places: Vec<_> = within.places().map(|(.., name)| name).collect();
                assert_eq!(places.first(), Some(&0));
            }
        }
    }

    #[test]
    fn any_number_of_zeros_is_counted() {
        for bytes in [0, 1, 254, 255, 256, 511, 10_000] {
            assert_eq!(zeros(&vec![0; bytes]), bytes);
            assert_eq!(zeros(&[vec![1; bytes], vec![0; bytes], vec![255]].concat()), bytes);
        }
    }

    #[test]
    fn what_is_damaged_is_seen() {
        let good = [symbol(AT, 0, 8), symbol(AT + 4, 16, 4)];
        let sound = |symbols: &[RawSymbol], names: &str| {
            ImageFunctions { symbols, names: names.as_bytes(), end: names.len(), code: 0 }.are_sound(32)
        };
        let names = [NAMES_START, "one\0two\0"].concat();
        assert!(sound(&good, &names));
        assert!(sound(&[], NAMES_START));
        for (what, symbols) in [
            ("order", [symbol(AT, 17, 8), symbol(AT + 4, 16, 4)]),
            ("outside", [symbol(AT, 0, 8), symbol(AT + 4, 33, 4)]),
            ("too large", [symbol(AT, 0, 8), symbol(AT + 4, 16, 17)]),
            ("no code", [symbol(AT, 0, 0), symbol(AT + 4, 16, 4)]),
            ("overflow", [symbol(AT, 0, 8), symbol(AT + 4, u64::MAX, 4)]),
            ("a name's middle", [symbol(AT, 0, 8), symbol(AT + 5, 16, 4)]),
            ("one name", [symbol(AT, 0, 8), symbol(AT, 16, 4)]),
            ("a section's name", [symbol(1, 0, 8), symbol(AT + 4, 16, 4)]),
            ("no name", [symbol(AT, 0, 8), symbol(AT + 8, 16, 4)]),
            ("far", [symbol(AT, 0, 8), symbol(u32::MAX as usize, 16, 4)]),
        ] {
            assert!(!sound(&symbols, &names), "{what}");
        }
        let mut other = good;
        other[1].st_shndx = U16::new(LE, elf::SymbolSection(2));
        assert!(!sound(&other, &names));
        other[1] = RawSymbol { st_info: elf::SymbolInfo(0), ..good[1] };
        assert!(!sound(&other, &names));
        for names in [
            "one\0two\0",
            "",
            "\0.text\0.symtab\0.strtab\0one\0two",
            "\0.text\0.symtab\0.strtab\0one\0t\0o\0",
            "\0.text\0.symtab\0.strtab\0one\0two\0three\0",
        ] {
            assert!(!sound(&good, names), "{names:?}");
        }
        let only = [symbol(AT, 0, 8)];
        assert!(sound(&only, &[NAMES_START, "f\0"].concat()));
        assert!(!sound(&only, &[NAMES_START, "\0"].concat()));
        assert!(!sound(&good, &[NAMES_START, "one\0\0"].concat()));
        let mut bytes = names.clone().into_bytes();
        *bytes.get_mut(AT + 1).unwrap() = 0xff;
        assert!(!ImageFunctions { symbols: &good, names: &bytes, end: bytes.len(), code: 0 }.are_sound(32));
    }
}
