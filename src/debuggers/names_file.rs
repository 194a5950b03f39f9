//! A file with names of functions that begin in a region of addresses. It changes in place while it is registered. Its
//! section reaches from the first function to the end of the last one, which may be in another region: functions do not
//! overlap, so neither do sections. A debugger reads it when it attaches, at whatever moment that is.

use std::fmt;
use std::ops::Range;

use object::elf;

use super::jit_interface::Registered;
use super::names_headers::{SYMBOL, SYMBOLS_AT, put_headers, put_sizes};
use crate::elf::image_note::{FUNCTION, NAMES_START};
use crate::elf::put;
use crate::functions::Function;
use crate::room::Room;

/// Returns the binary logarithm of a region's bytes: 64 pages, as objects may have pages of their own, and not more than
/// a mebibyte. Debuggers read files of some hundred functions fast, and ten thousand files slowly.
pub(crate) fn region_bits() -> u32 {
    (64 * rustix::param::page_size()).min(1 << 20).ilog2()
}

/// Offsets in a symbol.
const ST_INFO: usize = 4;
const ST_VALUE: usize = 8;
const ST_SIZE: usize = 16;

/// Symbols whose bounds are noted together.
const BLOCK: usize = 32;

/// The names of a region.
pub(super) struct NamesFile {
    registered: Registered<Vec<u8>>,
    region: usize,
    slots: Room,
    strings: Room,
    /// From its first function to the end of its last.
    code: Range<u64>,
    /// The same of the functions in each [`BLOCK`] of symbols, so that a removal need not look at all.
    blocks: Vec<Range<u64>>,
    /// Blocks from which functions were removed, whose bounds may reach too far until `settle`.
    stale: Vec<usize>,
    /// Functions in it.
    live: usize,
}

/// Where an object's functions are in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// Of the region's addresses, in regions.
    pub(super) region: u32,
    slot: u32,
    slots: u32,
    string: u32,
    strings: u32,
}

impl Piece {
    /// Appends a piece that was added next, if it was. Returns whether it was.
    pub(super) fn append(&mut self, next: &Self) -> bool {
        let follows =
            (next.region, next.slot, next.string) == (self.region, self.slot + self.slots, self.string + self.strings);
        if follows {
            self.slots += next.slots;
            self.strings += next.strings;
        }
        follows
    }
}

impl NamesFile {
    pub(super) fn new(region: usize, functions: usize, bytes: usize) -> Self {
        let slots = Room::new(1, functions);
        let strings = Room::new(NAMES_START.len(), bytes);
        let file = empty(&slots, &strings);
        Self {
            registered: Registered::silently(file),
            region,
            slots,
            strings,
            code: NOTHING,
            blocks: Vec::new(),
            stale: Vec::new(),
            live: 0,
        }
    }

    /// Adds functions of one object.
    pub(super) fn add(&mut self, functions: &[Function<'_>]) -> Option<Piece> {
        let bytes: usize = functions.iter().map(|function| function.name.len() + 1).sum();
        let (slot, string) = match (self.slots.take(functions.len()), self.strings.take(bytes)) {
            (Some(slot), Some(string)) => (slot, string),
            (slot, string) => {
                if let Some(slot) = slot {
                    self.slots.give(slot, functions.len());
                }
                if let Some(string) = string {
                    self.strings.give(string, bytes);
                }
                self.grow(functions.len(), bytes);
                (self.slots.take(functions.len())?, self.strings.take(bytes)?)
            }
        };
        let (mut at, mut name_at) = (SYMBOLS_AT + slot * SYMBOL, string);
        let strings_at = self.strings_at();
        let file = self.registered.file();
        for function in functions {
            put(file, strings_at + name_at, function.name.as_bytes());
            put(file, strings_at + name_at + function.name.len(), &[0]);
            // Kind, visibility and section, value, size. The name comes last: a symbol without one is none.
            let mut symbol = [0; SYMBOL - ST_INFO];
            let (head, rest) = symbol.split_at_mut(ST_VALUE - ST_INFO);
            let (value, size) = rest.split_at_mut(ST_SIZE - ST_VALUE);
            head.copy_from_slice(&FUNCTION);
            value.copy_from_slice(&function.address.to_le_bytes());
            size.copy_from_slice(&u64::from(function.bytes).to_le_bytes());
            put(file, at + ST_INFO, &symbol);
            put(file, at, &(name_at as u32).to_le_bytes());
            at += SYMBOL;
            name_at += function.name.len() + 1;
        }
        self.blocks.resize(self.slots.used().div_ceil(BLOCK).max(self.blocks.len()), NOTHING);
        for (function, slot) in functions.iter().zip(slot..) {
            let bounds = function.address..function.address + u64::from(function.bytes);
            if let Some(block) = self.blocks.get_mut(slot / BLOCK) {
                *block = around(block, &bounds);
            }
            self.code = around(&self.code, &bounds);
        }
        self.publish_sizes();
        self.live += functions.len();
        let (slots, strings) = (functions.len() as u32, bytes as u32);
        Some(Piece { region: self.region as u32, slot: slot as u32, slots, string: string as u32, strings })
    }

    /// Removes the functions of one object. Returns whether there are others. Bounds may reach too far until
    /// [`settle`](Self::settle): nothing else has a function there.
    pub(super) fn remove(&mut self, piece: Piece) -> bool {
        let (slot, slots) = (piece.slot as usize, piece.slots as usize);
        let range = SYMBOLS_AT + slot * SYMBOL..SYMBOLS_AT + (slot + slots) * SYMBOL;
        if let Some(symbols) = self.registered.file().get_mut(range) {
            symbols.fill(0);
        }
        for block in slot / BLOCK..(slot + slots).div_ceil(BLOCK) {
            if self.stale.last() != Some(&block) {
                self.stale.push(block);
            }
        }
        self.slots.give(slot, slots);
        self.strings.give(piece.string as usize, piece.strings as usize);
        self.live -= slots;
        self.live != 0
    }

    /// Returns whether its bounds are those of its functions.
    pub(super) fn is_settled(&self) -> bool {
        self.stale.is_empty()
    }

    /// Notes the bounds of what is left after removals.
    pub(super) fn settle(&mut self) {
        self.stale.sort_unstable();
        self.stale.dedup();
        let end = self.strings_at();
        for block in self.stale.drain(..) {
            let from = SYMBOLS_AT + block * BLOCK * SYMBOL;
            let symbols = self.registered.file().get(from..end.min(from + BLOCK * SYMBOL));
            if let (Some(bounds), Some(symbols)) = (self.blocks.get_mut(block), symbols) {
                *bounds = extent(symbols);
            }
        }
        self.code = self.blocks.iter().fold(NOTHING, |all, block| around(&all, block));
        self.publish_sizes();
    }

    /// Tells a debugger that it has changed.
    pub(super) fn tell(&mut self) {
        self.registered.tell();
    }

    /// Makes room, half as much again as there is at least.
    fn grow(&mut self, functions: usize, bytes: usize) {
        let (slots, strings) = (self.slots.capacity(), self.strings.capacity());
        self.slots.grow(functions.max(slots / 2));
        self.strings.grow(bytes.max(strings / 2));
        let mut file = empty(&self.slots, &self.strings);
        let before = SYMBOLS_AT + slots * SYMBOL;
        let old = self.registered.file();
        put(&mut file, SYMBOLS_AT, old.get(SYMBOLS_AT..before).unwrap_or_default());
        let strings_at = SYMBOLS_AT + self.slots.capacity() * SYMBOL;
        put(&mut file, strings_at, old.get(before..before + strings).unwrap_or_default());
        self.registered.replace(file);
    }

    fn strings_at(&self) -> usize {
        SYMBOLS_AT + self.slots.capacity() * SYMBOL
    }

    fn publish_sizes(&mut self) {
        let sizes = [self.slots.used() * SYMBOL, self.strings.used()];
        put_sizes(self.registered.file(), sizes, &self.code);
    }
}

impl fmt::Debug for NamesFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamesFile").field("code", &self.code).finish_non_exhaustive()
    }
}

/// The bounds of no functions.
const NOTHING: Range<u64> = Range { start: u64::MAX, end: 0 };

/// Returns the bounds of two ranges together.
fn around(one: &Range<u64>, other: &Range<u64>) -> Range<u64> {
    one.start.min(other.start)..one.end.max(other.end)
}

/// Returns the bounds of the functions among symbols.
fn extent(symbols: &[u8]) -> Range<u64> {
    let word = |symbol: &[u8], at: usize| {
        symbol.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    symbols.chunks_exact(SYMBOL).fold(NOTHING, |all, symbol| match word(symbol, ST_VALUE) {
        0 => all,
        start => around(&all, &(start..start + word(symbol, ST_SIZE))),
    })
}

/// A file with room, and no names yet.
fn empty(slots: &Room, strings: &Room) -> Vec<u8> {
    let strings_at = SYMBOLS_AT + slots.capacity() * SYMBOL;
    let mut file = vec![0; strings_at + strings.capacity()];
    let sizes = [slots.used() * SYMBOL, strings.used()];
    put_headers(&mut file, elf::ET_EXEC, sizes, strings_at, &NOTHING);
    put(&mut file, strings_at, NAMES_START.as_bytes());
    file
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
    use rand::rngs::SmallRng;
    use rand::{Rng as _, SeedableRng as _};

    use super::*;

    /// Names, addresses and sizes of functions in a file, read as a debugger does.
    fn read(file: &NamesFile) -> BTreeSet<(String, u64, u64)> {
        let file = object::File::parse(file.registered.shown()).unwrap();
        let named = file.symbols().filter(|symbol| !symbol.name_bytes().unwrap().is_empty());
        let section = file.section_by_name(".text").unwrap();
        let all: BTreeSet<_> = named.map(|s| (s.name().unwrap().to_owned(), s.address(), s.size())).collect();
        let bounds = all.iter().map(|(_, start, size)| (*start, start + size));
        let bounds = bounds.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1))).unwrap_or((0, 0));
        assert_eq!((section.address(), section.address() + section.size()), bounds);
        all
    }

    /// What was added one after the other is removed as one.
    #[test]
    fn pieces_that_follow_each_other_are_one() {
        let region = 0x7f00_1230_0000 >> region_bits();
        let mut file = NamesFile::new(region, 10, 100);
        let names: Vec<String> = (0..6).map(|i| format!("f{i}")).collect();
        let address = |i: usize| (region << region_bits()) as u64 + 16 * i as u64;
        let mut add = |i: usize| {
            let function = Function { name: &names[i], address: address(i), bytes: 16 };
            file.add(&[function]).unwrap()
        };
        let [first, second, third, fourth, fifth] = [0, 1, 2, 3, 4].map(&mut add);
        let mut run = second;
        assert!(!run.append(&fourth) && !run.append(&first) && run.append(&third) && run.append(&fourth));
        assert!(file.remove(run));
        file.settle();
        let left = [0, 4].map(|i| (names[i].clone(), address(i), 16));
        assert_eq!(read(&file), left.into());
        assert!(file.remove(first) && !file.remove(fifth));
    }

    #[test]
    fn a_file_has_what_was_added_and_not_removed() {
        let mut random = SmallRng::seed_from_u64(1);
        let region = 0x7f00_1230_0000 >> region_bits();
        let mut file = NamesFile::new(region, 1, 10);
        let (mut objects, mut expected) = (Vec::new(), BTreeSet::new());
        for round in 0..5000 {
            if objects.len() < 40 && random.random_bool(0.55) {
                let functions: Vec<(String, u64, u32)> = (0..random.random_range(1..9))
                    .map(|i| {
                        let name = format!("f{round}_{i}{}", "x".repeat(random.random_range(0..40)));
                        let offset = random.random_range(0..1_u64 << region_bits());
                        (name, (region << region_bits()) as u64 + offset, random.random_range(1..100))
                    })
                    .collect();
                let given: Vec<Function<'_>> = functions
                    .iter()
                    .map(|(name, address, bytes)| Function { name, address: *address, bytes: *bytes })
                    .collect();
                objects.push((file.add(&given).unwrap(), functions.clone()));
                expected.extend(functions.into_iter().map(|(name, address, bytes)| (name, address, bytes.into())));
            } else if !objects.is_empty() {
                let (piece, functions) = objects.swap_remove(random.random_range(0..objects.len()));
                let others = file.remove(piece);
                assert_eq!(others, !objects.is_empty());
                for (name, address, bytes) in functions {
                    expected.remove(&(name, address, bytes.into()));
                }
                // Sometimes several are removed, or others added, before it is looked at.
                if random.random_bool(0.5) {
                    continue;
                }
            }
            file.settle();
            assert_eq!(read(&file), expected);
        }
        // At most 40 objects of 8 names of 47 bytes at a time.
        assert!(file.registered.shown().len() < 2 * 40 * 8 * (SYMBOL + 48), "{}", file.registered.shown().len());
    }
}
