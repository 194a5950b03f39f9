//! The tables of symbols and of names that the dynamic loader reads of an arena's module, and the log of addresses, for
//! which functions stay in them when they are hidden from the loader.
//!
//! They have places of their own, with room for more functions than fit into most arenas, and grow there: a reader may
//! be in them at any moment. The loader reads both, and their sizes, for each question (glibc, elf/dl-addr.c), under a
//! lock that nobody else can take. Whatever it finds in between, a symbol leads to a name within the table, and each
//! name ends.
#![allow(unsafe_code, reason = "tables that the dynamic loader reads")]

use std::io;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use object::elf;

use super::Protection;
use super::os::{self, Mapping};
use crate::fault::Call;
use crate::functions::{FunctionSlice, SymbolRange, SymbolTables};
use crate::room::Room;
use crate::runtime::ArenaModule;

const SYMBOL: usize = SymbolTables::SYMBOL;
/// A table grows by this much, or by half.
const STEP: usize = 64 << 10;

/// The tables of one arena.
#[derive(Debug)]
pub(super) struct ModuleNames {
    /// Readers may keep it for longer.
    memory: Arc<Mapping>,
    symbols: Table,
    names: Table,
}

#[derive(Debug)]
struct Table {
    place: Range<usize>,
    /// Bytes that can be written, from the start.
    open: usize,
    /// What is taken, in symbols or in bytes.
    room: Room,
}

impl ModuleNames {
    /// Reserves room for an arena of so many bytes.
    pub(super) fn reserve(arena: usize) -> io::Result<Self> {
        let page = os::page_size();
        let symbols = (arena / 32).max(4 << 20).next_multiple_of(page);
        let names = 2 * symbols;
        let memory = Arc::new(Mapping::reserve_tables(symbols + names)?);
        let start = memory.range().start;
        // The null symbol comes first, and the empty name.
        let table = |place| Table { place, open: 0, room: Room::new(1, 0) };
        let symbols_end = start + symbols;
        Ok(Self { symbols: table(start..symbols_end), names: table(symbols_end..memory.range().end), memory })
    }

    /// Returns the addresses of both tables, and their memory.
    pub(super) fn tables(&self) -> (SymbolTables, Arc<Mapping>) {
        (self.places(), Arc::clone(&self.memory))
    }

    fn places(&self) -> SymbolTables {
        SymbolTables { symbols: self.symbols.place.start, names: self.names.place.start }
    }

    /// Adds functions of one object, unless there is no room.
    pub(super) fn add(&mut self, module: &ArenaModule, functions: FunctionSlice<'_, '_>) -> Option<SymbolRange> {
        let (count, bytes) = (functions.len(), functions.name_bytes());
        let symbol = self.symbols.take(&self.memory, count, SYMBOL)?;
        if symbol + count > 1 << 31 {
            self.symbols.room.give(symbol, count);
            return None;
        }
        let Some(name) = self.names.take(&self.memory, bytes, 1) else {
            self.symbols.room.give(symbol, count);
            return None;
        };
        match functions {
            FunctionSlice::Listed(functions) => {
                let mut name_at = name;
                for (function, at) in functions.iter().zip(symbol..) {
                    self.put_names(name_at, function.name.as_bytes());
                    self.name_byte(name_at + function.name.len()).store(0, Ordering::Relaxed);
                    self.put_symbol(at, name_at, function.address, function.bytes.into());
                    name_at += function.name.len() + 1;
                }
            }
            FunctionSlice::Image(functions) => {
                // Each name ends with a zero.
                self.put_names(name, functions.names());
                for ((address, bytes, name_at), at) in functions.places().zip(symbol..) {
                    self.put_symbol(at, name + name_at, address, bytes.min(u32::MAX.into()));
                }
            }
        }
        self.publish_sizes(module);
        Some(SymbolRange { first: symbol as u32, count: count as u32 })
    }

    /// Writes a symbol whose name is written.
    fn put_symbol(&self, at: usize, name: usize, address: u64, bytes: u64) {
        // Offset of the name, kind, visibility and section, in the order of memory. The loader passes over a symbol
        // whose name is behind the table's end, or that is neither global nor weak.
        let kind = elf::STB_GLOBAL.0 << 4 | elf::STT_FUNC.0;
        let head = u64::from(name as u32) | u64::from(kind) << 32 | 1 << 48;
        self.word(at, 1).store(address, Ordering::Relaxed);
        self.word(at, 2).store(bytes, Ordering::Relaxed);
        self.word(at, 0).store(head, Ordering::Release);
    }

    /// Keeps the functions of one object from the loader. Whoever knows of them still has their names.
    pub(super) fn hide(&self, listed: SymbolRange) {
        let local = u64::from(elf::STB_LOCAL.0 << 4 | elf::STT_FUNC.0) << 32;
        for symbol in (listed.first as usize..).take(listed.count as usize) {
            let head = self.word(symbol, 0);
            head.store(head.load(Ordering::Relaxed) & !(0xff << 32) | local, Ordering::Release);
        }
    }

    /// Removes the functions of one object, of which nobody knows any more.
    pub(super) fn remove(&mut self, module: &ArenaModule, listed: SymbolRange) {
        let (symbol, symbols) = (listed.first as usize, listed.count as usize);
        let name_of = |symbol| (self.word(symbol, 0).load(Ordering::Relaxed) & u64::from(u32::MAX)) as usize;
        let (name, last) = (name_of(symbol), name_of(symbol + symbols - 1));
        let end = (last..).find(|at| self.name_byte(*at).load(Ordering::Relaxed) == 0).unwrap_or(last) + 1;
        for at in symbol..symbol + symbols {
            (0..3).for_each(|word| self.word(at, word).store(0, Ordering::Release));
        }
        self.symbols.room.give(symbol, symbols);
        self.names.room.give(name, end - name);
        self.publish_sizes(module);
    }

    /// The table of names does not become smaller: an old symbol may still be read.
    fn publish_sizes(&self, module: &ArenaModule) {
        let names = self.names.room.used() as u64;
        module.names_size().fetch_max(names, Ordering::Release);
        module.symbols().store(self.symbols.room.used() as u32, Ordering::Release);
    }

    /// A word of a symbol.
    fn word(&self, symbol: usize, word: usize) -> &AtomicU64 {
        // SAFETY: `take` has given the symbol, so that its memory can be written; it is ours alone but for atomic words
        // and whatever the loader reads.
        unsafe { self.places().word(symbol, word) }
    }

    fn put_names(&self, at: usize, names: &[u8]) {
        let to = ptr::with_exposed_provenance_mut::<u8>(self.names.place.start + at);
        // SAFETY: `take` has given these bytes, so that they can be written, and no Rust code reads them meanwhile. The
        // loader may read them by an old symbol; whatever it finds ends at the table's last byte that is taken.
        unsafe { ptr::copy_nonoverlapping(names.as_ptr(), to, names.len()) };
    }

    fn name_byte(&self, at: usize) -> &AtomicU8 {
        // SAFETY: as above.
        unsafe { AtomicU8::from_ptr(ptr::with_exposed_provenance_mut(self.names.place.start + at)) }
    }
}

impl Table {
    /// Takes a part of the table, whose memory can then be written. Behind the last byte that is taken there is a zero.
    fn take(&mut self, memory: &Mapping, count: usize, size: usize) -> Option<usize> {
        if let Some(at) = self.room.take(count) {
            return Some(at);
        }
        let (page, all) = (os::page_size(), self.place.len());
        let least = (self.room.used() + count) * size + 1;
        let open = least.max(self.open + STEP.max(self.open / 2)).next_multiple_of(page).min(all);
        if open < least {
            return None;
        }
        let range = self.place.start + self.open..self.place.start + open;
        memory.protect_for(Call::GrowTable, &range, Protection::ReadWrite).ok()?;
        let needed = range.start..(self.place.start + least).next_multiple_of(page);
        if needed.len() >= STEP {
            // A hint: page faults bring them in otherwise.
            let _ = memory.populate(&needed);
        }
        self.open = open;
        self.room.grow((open - 1) / size - self.room.capacity());
        self.room.take(count)
    }
}
