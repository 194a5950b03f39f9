//! Where random objects are linked: an engine at a random place, a library in it, and memory around it.

use std::cell::Cell;
use std::ops::Range;

use slabjit::{ArenaPlacement, JitEngine, JitEngineBuilder, Library};

use super::arch::{CODE_ALIGN, MACHINE, SELF};
use super::elf;
use crate::common::{Random, freed};

/// An engine and what its objects may refer to.
pub struct Bench {
    pub engine: JitEngine,
    pub arena: Range<u64>,
    /// It fills the pages that the arena has ready, so that small objects come to lie behind `base`, too; of packed
    /// objects, it keeps the pools, so that their room is used again.
    first: Library,
    /// A library that was linked before: names, addresses, and whether there is a function.
    pub base: Library,
    pub library: Vec<(String, u64, bool)>,
    pub islands: Vec<Island>,
    /// How many references of the last link were bridged.
    pub bridges: Cell<u64>,
    /// Say which probe is run.
    pub told: bool,
    filler: Vec<u8>,
    start: slabjit::EngineStats,
}

/// Memory outside the arena: random bytes, and functions that return their addresses.
pub struct Island {
    pub start: u64,
    /// Every byte of the arena is within 2 GiB.
    pub in_reach: bool,
}

const HALF: usize = 8 << 10;
const GIB: i64 = 1 << 30;

impl Bench {
    /// A place at random.
    pub fn new(random: &mut Random) -> Self {
        let filler: Vec<u8> = (0..HALF).flat_map(|_| random.next().to_le_bytes()).collect();
        let engine = engine(random, JitEngine::builder);
        let start = engine.stats();
        let arena = engine.arena().start as u64..engine.arena().end as u64;
        let mut islands = Vec::new();
        let reach = (1 << 31) - (arena.end - arena.start) as i64 - (64 << 10);
        for distance in [reach, reach / 2, 3 * GIB, 16 * GIB, 16 << 40] {
            // Above the arena, and below it.
            let jitter = random.below(1 << 12) as i64 & !1;
            islands.extend(Island::map(&filler, arena.end.wrapping_add_signed(distance), &arena));
            islands.extend(Island::map(&filler, arena.start.wrapping_add_signed(-distance - jitter * 4096), &arena));
        }
        for bits in [31, 32, 33] {
            islands.extend(Island::map(&filler, (1 << (bits - 1)) + random.below(1 << 26) as u64, &arena));
        }
        let first = first(random, &engine);
        let (base, library) = base(random, &engine, &filler);
        Self { engine, arena, first, base, library, islands, bridges: Cell::new(0), told: false, filler, start }
    }

    /// Bytes of a section.
    pub fn filler(&self, random: &mut Random, size: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(size);
        while bytes.len() < size {
            let from = &self.filler[random.below(self.filler.len())..];
            bytes.extend_from_slice(&from[..from.len().min(size - bytes.len())]);
        }
        bytes
    }

    /// Nothing is left.
    pub fn finish(self) {
        freed(&self.base);
        freed(&self.first);
        assert_eq!(self.engine.stats(), self.start);
    }
}

/// An engine whose arena is anywhere, of any size.
pub fn engine(random: &mut Random, builder: impl Fn() -> JitEngineBuilder) -> JitEngine {
    for _ in 0..100 {
        let size = (64 << 20 << random.below(6)) - random.below(1 << 20);
        let placement = match random.below(10) {
            0 => ArenaPlacement::Anywhere,
            1 => ArenaPlacement::Low2GiB,
            _ => ArenaPlacement::Near { address: (random.next() >> 17 >> random.below(14)) as usize },
        };
        // Where something is already, there is no place, or too little for the largest objects.
        // What is linked again is to come to lie where it was.
        match builder().arena_size(size).arena_placement(placement).quarantine(0).build() {
            Ok(engine) if engine.arena().len() >= 48 << 20 => return engine,
            _ => {}
        }
    }
    panic!("no engine can be placed");
}

/// Two objects of as many pages as an object takes at most of those that are ready. No more are ready at first.
fn first(random: &mut Random, engine: &JitEngine) -> Library {
    let bytes = vec![1; 4 * rustix::param::page_size()];
    let size = bytes.len() as u64;
    let library = engine.library("first").build().unwrap();
    for name in ["first", "second"] {
        let flags = elf::SHF_ALLOC | elf::SHF_WRITE;
        let section = elf::Section { name: ".data", flags, align: 16, bytes: &bytes, size, relocations: vec![] };
        let place = elf::Place::Section(0);
        let symbol = elf::Symbol { name, place, value: 0, size: 0, binding: 1, kind: 1, visibility: 0 };
        library.add_object_named(name, elf::write(MACHINE, &[section], &[symbol], random)).unwrap();
        // SAFETY: only linking is wanted; there are no initialisers.
        unsafe { library.get::<*const u8>(name).unwrap() };
    }
    library
}

/// A library with two sections of functions and two of data, far from each other if the arena is large.
fn base(random: &mut Random, engine: &JitEngine, filler: &[u8]) -> (Library, Vec<(String, u64, bool)>) {
    let mut code = filler[..256].to_vec();
    let mut symbols = Vec::new();
    let symbol = |name: &'static str, section, value| elf::Symbol {
        name,
        place: elf::Place::Section(section),
        value,
        size: 0,
        binding: 1,
        kind: 0,
        visibility: 0,
    };
    for (name, offset) in [("library_first", 0), ("library_second", 128 / CODE_ALIGN * CODE_ALIGN)] {
        code[offset as usize..][..SELF.len()].copy_from_slice(&SELF);
        symbols.push(symbol(name, 0, offset));
    }
    symbols.push(symbol("library_data", 1, 16));
    symbols.push(symbol("library_zeros", 2, 0));
    let spacer = random.below(engine.arena().len() / 2) as u64;
    let section = |name, flags, bytes: &'static [u8], size| elf::Section {
        name,
        flags,
        align: 16,
        bytes,
        size,
        relocations: vec![],
    };
    let data = elf::SHF_ALLOC | elf::SHF_WRITE;
    let sections = [
        elf::Section { bytes: &code, ..section(".text", elf::SHF_ALLOC | elf::SHF_EXECINSTR, &[], code.len() as u64) },
        elf::Section { bytes: &filler[..4096], ..section(".data", data, &[], 4096) },
        section(".bss", data, &[], 4096 + spacer),
    ];
    let bytes = elf::write(MACHINE, &sections, &symbols, random);
    let library = engine.library("base").build().unwrap();
    library.add_object_named("base.o", bytes).unwrap();
    let known = symbols.iter().map(|s| {
        // SAFETY: only addresses are wanted; there are no initialisers.
        let found = unsafe { library.get::<*const u8>(s.name).unwrap() };
        (s.name.to_owned(), found.address() as u64, matches!(s.place, elf::Place::Section(0)))
    });
    let known = known.collect();
    (library, known)
}

impl Island {
    /// If there is room.
    fn map(filler: &[u8], near: u64, arena: &Range<u64>) -> Option<Self> {
        let start = near & !0xffff;
        let memory = Memory::map(start, 2 * HALF)?;
        memory.write(start, &filler[..HALF]);
        let functions = [SELF, [0; 8]].concat().repeat(HALF / 16);
        memory.write(start + HALF as u64, &functions);
        memory.make_executable();
        // Kept until the process ends: 16 KiB.
        std::mem::forget(memory);
        let end = start + 2 * HALF as u64;
        let farthest = end.max(arena.end) - start.min(arena.start);
        Some(Self { start, in_reach: farthest < (1 << 31) - (32 << 20) })
    }

    /// Where data is, with so many bytes behind it.
    pub fn data(&self, random: &mut Random, align: u64) -> u64 {
        self.start + random.below(HALF - 64) as u64 / align * align
    }

    /// Where a function is.
    pub fn function(&self, random: &mut Random) -> u64 {
        self.start + HALF as u64 + 16 * random.below(HALF / 16) as u64
    }
}

/// Mapped memory at an address of our choice.
pub struct Memory {
    start: usize,
    len: usize,
}

impl Memory {
    /// If nothing is there, and something may be.
    pub fn map(start: u64, len: usize) -> Option<Self> {
        if start < 64 << 10 {
            return None;
        }
        let at = std::ptr::with_exposed_provenance_mut::<libc::c_void>(start as usize);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: MAP_FIXED_NOREPLACE replaces nothing; where the kernel does not know it, it is a hint.
        let got = unsafe { libc::mmap(at, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if got == libc::MAP_FAILED {
            return None;
        }
        let memory = Self { start: got as usize, len };
        (got == at).then_some(memory)
    }

    /// Writes bytes at an address in it, before it is executable.
    pub fn write(&self, address: u64, bytes: &[u8]) {
        let offset = address as usize - self.start;
        assert!(offset + bytes.len() <= self.len);
        let to = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
        // SAFETY: inside the mapping, by the assertion.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Readable and executable from now on. The kernel makes instruction caches coherent when it maps pages as
    /// executable.
    pub fn make_executable(&self) {
        let at = std::ptr::with_exposed_provenance_mut::<libc::c_void>(self.start);
        // SAFETY: our own mapping.
        assert_eq!(unsafe { libc::mprotect(at, self.len, libc::PROT_READ | libc::PROT_EXEC) }, 0);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let at = std::ptr::with_exposed_provenance_mut::<libc::c_void>(self.start);
        // SAFETY: our own mapping, which nobody refers to any more.
        assert_eq!(unsafe { libc::munmap(at, self.len) }, 0);
    }
}
