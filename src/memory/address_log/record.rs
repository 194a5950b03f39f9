//! A record of the log: one thread writes it at a time, and any thread reads it, also a signal handler that interrupts
//! the writer.
//!
//! A version tells readers whether their reads are consistent (a seqlock; Boehm, "Can Seqlocks Get Along with
//! Programming Language Memory Models?", MSPC 2012). Names are pointers; [`Readers`] tells when no reader can still see
//! one. `models/` checks the orderings.
#![allow(unsafe_code, reason = "reads names through pointers that were published")]

use std::ops::Range;
use std::ptr;

use super::occupant::{Occupant, RemovalTime};
use crate::functions::{Function, FunctionTable, Functions, SymbolRange, SymbolTables};
use crate::name::{Name, ShortName};
use crate::sync::{Arc, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Box, Ordering, fence};

/// How often a reader retries after the writer has overtaken it.
const TRIES: usize = 4;

/// The unit of addresses and lengths.
const UNIT: usize = 4096;
const LEN_BITS: u32 = 28;

pub(super) struct Record {
    /// Odd if the record is empty or being written.
    version: AtomicU32,
    /// Where the unwind table is, in the arena; 0 if there is none.
    frames: AtomicU32,
    /// Start and length in units of 4096 bytes, which divide every page size: 36 bits and 28.
    range: AtomicU64,
    pub(super) generation: AtomicU64,
    /// Nanoseconds since 1970; 0 while the object lives.
    removed: AtomicU64,
    library: NameCell,
    object: NameCell,
    functions: FunctionsCell,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            version: AtomicU32::new(1),
            frames: AtomicU32::default(),
            range: AtomicU64::default(),
            generation: AtomicU64::default(),
            removed: AtomicU64::default(),
            library: NameCell::default(),
            object: NameCell::default(),
            functions: FunctionsCell::default(),
        }
    }
}

impl Record {
    /// Writes an empty record. The log has one [`Seen`], so one thread at a time calls this and [`clear`](Self::clear).
    pub(super) fn write(
        &self,
        _: &mut Seen,
        range: &Range<usize>,
        generation: u64,
        (library, object): (Name, Name),
        (functions, frames): (Option<FunctionTable>, u32),
    ) {
        let units = (range.len() / UNIT).min((1 << LEN_BITS) - 1);
        self.range.store(((range.start / UNIT) << LEN_BITS | units) as u64, Ordering::Relaxed);
        self.generation.store(generation, Ordering::Relaxed);
        self.removed.store(0, Ordering::Relaxed);
        self.library.put(library);
        self.object.put(object);
        self.functions.put(functions);
        self.frames.store(frames, Ordering::Relaxed);
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Release);
    }

    /// Marks the occupant as removed then, and returns the symbols of its functions.
    pub(super) fn remove(&self, then: RemovalTime) -> Option<SymbolRange> {
        self.removed.store(then.0, Ordering::Release);
        FunctionTable::symbols_of_raw(self.functions.look())
    }

    /// Empties the record. Its names are kept as long as one of the log's readers may be looking at them. Returns what
    /// none looks at any more.
    pub(super) fn clear(&self, seen: &mut Seen, readers: &Readers) -> Vec<Cleared> {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // Precedes all changes to the record, and the writer's check for readers.
        fence(Ordering::SeqCst);
        let (names, functions) = ([self.library.take(), self.object.take()], self.functions.take());
        seen.keep(Cleared { _names: names, functions }, readers)
    }

    /// Returns the occupant, if it covers this address, with its unwind table as it was written.
    pub(super) fn read(&self, address: usize, tables: SymbolTables, _: &Reading<'_>) -> Option<Occupant> {
        for _ in 0..TRIES {
            let version = self.version.load(Ordering::Acquire);
            if version % 2 == 1 {
                return None;
            }
            let range = self.range.load(Ordering::Relaxed) as usize;
            let (generation, removed) = (self.generation.load(Ordering::Relaxed), self.removed.load(Ordering::Relaxed));
            let (library, object) = (self.library.look(), self.object.look());
            let (functions, frames) = (self.functions.look(), self.frames.load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if self.version.load(Ordering::Relaxed) != version {
                continue;
            }
            let (start, len) = ((range >> LEN_BITS) * UNIT, (range & ((1 << LEN_BITS) - 1)) * UNIT);
            if address < start || address - start >= len {
                return None;
            }
            // SAFETY: they were published under this version, and `Reading` keeps them.
            let (library, object) = unsafe { (NameCell::read(library), NameCell::read(object)) };
            // SAFETY: as above.
            let function = unsafe { FunctionsCell::find(functions, address, tables) };
            let removed = (removed != 0).then(|| RemovalTime(removed).into());
            let frames = frames.into();
            return Some(Occupant { start, library, object, generation, removed, function, frames });
        }
        None
    }
}

impl Record {
    /// Returns the names and addresses of its functions.
    pub(super) fn functions(&self, tables: SymbolTables, _: &Reading<'_>) -> Vec<(String, Range<usize>)> {
        let version = self.version.load(Ordering::Acquire);
        let functions = self.functions.look();
        fence(Ordering::Acquire);
        if version % 2 == 1 || self.version.load(Ordering::Relaxed) != version || functions.is_null() {
            return Vec::new();
        }
        // SAFETY: it was published under this version, and `Reading` keeps it.
        let functions = unsafe { Functions::at(functions, tables) };
        let all = (0..functions.len()).map(|i| functions.get(i));
        let addresses = |f: &Function<'_>| f.address as usize..f.address as usize + f.bytes as usize;
        all.map(|function| (function.name.to_owned(), addresses(&function))).collect()
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // A dropped record has no readers.
        drop(([self.library.take(), self.object.take()], self.functions.take()));
    }
}

/// A [`Name`] in one word, as there are as many as objects. A number sets the lowest bit; a text is a pointer.
struct NameCell(AtomicPtr<Arc<str>>);

impl Default for NameCell {
    fn default() -> Self {
        Self(AtomicPtr::new(Self::of_number(0)))
    }
}

impl NameCell {
    fn of_number(number: u32) -> *mut Arc<str> {
        ptr::without_provenance_mut((number as usize) << 1 | 1)
    }

    fn number(pointer: *mut Arc<str>) -> Option<u32> {
        (pointer.addr() & 1 == 1).then_some((pointer.addr() >> 1) as u32)
    }

    fn put(&self, name: Name) {
        let pointer = match name {
            Name::Number(number) => Self::of_number(number),
            Name::Given(text) => Box::into_raw(Box::new(text)),
        };
        self.0.store(pointer, Ordering::Relaxed);
    }

    fn take(&self) -> Unpublished {
        Unpublished(self.0.swap(Self::of_number(0), Ordering::Relaxed))
    }

    fn look(&self) -> *const Arc<str> {
        self.0.load(Ordering::Relaxed)
    }

    /// # Safety
    /// The pointer was in a cell, and its target is still kept.
    unsafe fn read(pointer: *const Arc<str>) -> ShortName {
        match Self::number(pointer.cast_mut()) {
            Some(number) => ShortName::of_number(number),
            // SAFETY: by the caller's contract.
            None => ShortName::new(unsafe { &*pointer }),
        }
    }
}

/// The names of its functions, or null.
#[derive(Default)]
struct FunctionsCell(AtomicPtr<u8>);

impl FunctionsCell {
    fn put(&self, functions: Option<FunctionTable>) {
        self.0.store(functions.map_or(ptr::null_mut(), FunctionTable::into_raw), Ordering::Relaxed);
    }

    fn take(&self) -> Option<FunctionTable> {
        let raw = self.0.swap(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: of `put`, and taken out.
        (!raw.is_null()).then(|| unsafe { FunctionTable::from_raw(raw) })
    }

    fn look(&self) -> *const u8 {
        self.0.load(Ordering::Relaxed)
    }

    /// # Safety
    /// The pointer was in a cell, and its target is still kept.
    unsafe fn find(raw: *const u8, address: usize, tables: SymbolTables) -> Option<(ShortName, usize)> {
        if raw.is_null() {
            return None;
        }
        // SAFETY: by the caller.
        let function = unsafe { Functions::at(raw, tables) }.find(address as u64)?;
        Some((ShortName::new(function.name), address - function.address as usize))
    }
}

/// What was in a cell, until it is dropped.
struct Unpublished(*mut Arc<str>);

// SAFETY: the text is immutable, and counted atomically.
unsafe impl Send for Unpublished {}

impl Drop for Unpublished {
    fn drop(&mut self) {
        if NameCell::number(self.0).is_none() {
            // SAFETY: `put` made it from a box, and only one `Unpublished` got it; the code that drops it knows that
            // there are no readers.
            drop(unsafe { Box::from_raw(self.0) });
        }
    }
}

/// Contents of cleared records, kept while a reader may use them.
#[derive(Default)]
pub(super) struct Seen(Vec<Cleared>);

/// What a record had.
pub(super) struct Cleared {
    _names: [Unpublished; 2],
    pub(super) functions: Option<FunctionTable>,
}

impl Seen {
    fn keep(&mut self, cleared: Cleared, readers: &Readers) -> Vec<Cleared> {
        self.0.push(cleared);
        if readers.none() { std::mem::take(&mut self.0) } else { Vec::new() }
    }
}

/// The number of readers.
#[derive(Default)]
pub(super) struct Readers(AtomicUsize);

/// Keeps the names that are read through it.
pub(super) struct Reading<'a>(&'a Readers);

impl Readers {
    pub(super) fn enter(&self) -> Reading<'_> {
        self.0.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Reading(self)
    }

    /// Returns whether no reader can have seen earlier contents: later readers find the record empty.
    pub(super) fn none(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}
