//! A second linker: `ld` links each object at the addresses that the arena gives, and what is left (`-shared`) is
//! relocated here.
#![allow(unsafe_code, reason = "writes linked code")]

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Mutex;

use object::read::elf::{ElfFile64, FileHeader as _, Rela as _, SectionHeader as _, Sym as _};
use object::{Endianness, elf};

use crate::elf::{EM_X86_64, testing};
use crate::live::linked::linked_object::{Allocation, Linked};
use crate::live::linker::{Batch, LinkedBatch, Linker};
use crate::live::resolve::decided::{Decided, Defined, External};
use crate::live::tls::{self, Storage, Variables};
use crate::memory::{Extent, Lifetime, PlacementHints, Protection, SegmentRequest, WritableSlab};
use crate::{Error, LinkError, Result};

const LITTLE: Endianness = Endianness::Little;
/// Where segments are linked first, to know their sizes.
const TRIAL: [u64; 3] = [0x1000_0000, 0x2000_0000, 0x3000_0000];
const PROTECTIONS: [Protection; 3] = [Protection::ReadExecute, Protection::Read, Protection::ReadWrite];

/// Objects' original bytes by name: `ld` does not take those that preparation has rewritten for LLVM.
#[derive(Default)]
pub(super) struct LdLinker {
    originals: Mutex<HashMap<String, Vec<u8>>>,
    /// True if the next batch fails.
    pub(super) fail: std::sync::atomic::AtomicBool,
}

/// The output of `ld` for an object.
struct Image {
    /// Sections with memory: name, address, bytes, and contents if it has any.
    sections: Vec<Section>,
    /// Values of symbols, and whether they are thread-local.
    symbols: HashMap<String, (u64, bool)>,
    relocations: Vec<Relocation>,
}

struct Section {
    name: String,
    address: u64,
    bytes: u64,
    contents: Option<Vec<u8>>,
    thread_local: bool,
}

struct Relocation {
    at: u64,
    kind: elf::RelocationType,
    symbol: String,
    addend: i64,
}

impl LdLinker {
    pub(super) fn keep(&self, name: &str, bytes: &[u8]) {
        self.originals.lock().unwrap().insert(name.to_owned(), bytes.to_vec());
    }

    fn original(&self, name: &str) -> Vec<u8> {
        self.originals.lock().unwrap().get(name).unwrap_or_else(|| panic!("'{name}' was not kept")).clone()
    }
}

// SAFETY: `ld` links each object at the addresses that are noted. Its script ends the frames.
unsafe impl Linker for LdLinker {
    fn link(&self, batch: Batch<'_>) -> Result<LinkedBatch> {
        if self.fail.swap(false, std::sync::atomic::Ordering::Relaxed) {
            let object = batch.objects[0].object.name.to_string();
            return Err(Error::Link(LinkError::Failed { object, message: "as the test wants it".to_owned() }));
        }
        let in_batch = batch.objects.len() > 1;
        let mut slabs = Vec::new();
        let mut images = Vec::new();
        for decided in &batch.objects {
            let bytes = self.original(&decided.object.name.text());
            let trial = Image::link(&bytes, TRIAL);
            let sizes = trial.sizes();
            let requests: Vec<_> = PROTECTIONS
                .into_iter()
                .zip(sizes)
                .map(|(protection, bytes)| SegmentRequest {
                    protection,
                    lifetime: Lifetime::Standard,
                    alignment: 64,
                    content_bytes: bytes,
                    zero_fill_bytes: 0,
                    outside: false,
                    overwritten: Extent::default(),
                })
                .collect();
            let company = PlacementHints { shares: true, batch: in_batch };
            let slab = batch.arena.allocate(&decided.object.name, &requests, company, |_| Default::default())?;
            let at: Vec<u64> = slab.placements().iter().map(|placed| placed.address as u64).collect();
            let image = Image::link(&bytes, [at[0], at[1], at[2]]);
            assert_eq!(image.sizes(), sizes, "addresses change sizes");
            slabs.push(slab);
            images.push(image);
        }
        let exports = exports(&batch.objects, &images);
        let mut linked = Vec::new();
        for ((decided, image), slab) in batch.objects.iter().zip(&images).zip(&slabs) {
            linked.push(finish(decided, image, slab, &exports));
        }
        let slabs = WritableSlab::publish_all(slabs.into()).map_err(|(error, _)| error)?;
        for (linked, slab) in linked.iter_mut().zip(slabs) {
            linked.allocation = Some(Allocation::new(slab, None));
        }
        Ok(LinkedBatch { objects: linked.into(), sets: None })
    }
}

/// Returns addresses that objects of the batch need of each other, by their numbers in the batch.
fn exports(objects: &[Decided], images: &[Image]) -> HashMap<u32, u64> {
    let mut exports = HashMap::new();
    for (decided, image) in objects.iter().zip(images) {
        let index = &decided.object.index;
        for (definition, decided) in index.definitions.iter().zip(&decided.definitions) {
            if let Defined::Export(number) = decided {
                exports.insert(*number, image.address(index.name(definition.name)).unwrap());
            }
        }
    }
    exports
}

/// Writes and relocates an object's memory.
fn finish(decided: &Decided, image: &Image, slab: &WritableSlab, exports: &HashMap<u32, u64>) -> Linked {
    let index = &decided.object.index;
    let write = |address: u64, bytes: &[u8]| {
        let place = slab.written(address as usize).expect("an address of the slab") as *mut u8;
        // SAFETY: the slab is writable, and has been given room for all sections.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
    };
    for section in &image.sections {
        if let Some(contents) = &section.contents {
            write(section.address, contents);
        }
    }
    let mut linked = Linked { frames: image.section(".eh_frame").unwrap_or(0), ..Linked::default() };
    linked.definitions = index.definitions.iter().map(|d| image.address(index.name(d.name)).unwrap_or(0)).collect();
    linked.arrays = index.arrays.iter().map(|a| image.section(index.section_name(a.section)).unwrap_or(0)).collect();
    if let Some(storage) = &decided.storage {
        let placed = thread_local(decided, image);
        linked.variables = Some(Box::new(Variables::new(&decided.object, decided.number, storage, &placed)));
    }
    let import = |name: &str| {
        let at = index.imports.iter().position(|import| index.name(import.name) == name)?;
        match &decided.externals[at] {
            External::Absolute(address) => Some(*address),
            External::Batch(number) => exports.get(number).copied(),
            External::Bound(..) | External::Leave => None,
        }
    };
    for Relocation { at, kind, symbol, addend } in &image.relocations {
        let target = || match (import(symbol), image.address(symbol)) {
            (Some(address), _) | (None, Some(address)) => address,
            _ => panic!("'{symbol}' is nowhere"),
        };
        let variable = || tls::find(target(), 0).expect("a thread-local variable");
        let value = match Meaning::of(index.machine, *kind) {
            Meaning::Relative => *addend as u64,
            Meaning::Symbol => target().wrapping_add_signed(*addend),
            Meaning::Slot => target(),
            Meaning::Module => variable().module,
            Meaning::Offset => variable().offset.wrapping_add_signed(*addend),
            Meaning::Distance => variable().distance.expect("storage at a fixed distance").wrapping_add(*addend) as u64,
            Meaning::Indirect => {
                linked.slots.push(*at);
                *addend as u64
            }
        };
        write(*at, &value.to_le_bytes());
    }
    if let Some(storage) = &decided.storage {
        copy_thread_local(decided, image, storage);
    }
    linked
}

/// Returns index and address of each thread-local section.
fn thread_local(decided: &Decided, image: &Image) -> Vec<(u32, u64)> {
    let index = &decided.object.index;
    let sections = index.thread_local.iter().flat_map(|thread_local| &thread_local.sections);
    let mut placed: Vec<_> = sections.filter_map(|&i| Some((i, image.section(index.section_name(i))?))).collect();
    placed.sort_unstable();
    placed
}

fn copy_thread_local(decided: &Decided, image: &Image, storage: &Storage) {
    // SAFETY: the sections are there and linked, and nothing has run.
    unsafe { tls::copy_contents(&decided.object, decided.number, storage, &thread_local(decided, image)) };
}

/// The meaning of a relocation of a shared object.
enum Meaning {
    Relative,
    Symbol,
    Slot,
    Module,
    Offset,
    Distance,
    Indirect,
}

impl Meaning {
    fn of(machine: u16, kind: elf::RelocationType) -> Self {
        match (machine == EM_X86_64, kind) {
            (true, elf::R_X86_64_RELATIVE) | (false, elf::R_AARCH64_RELATIVE) => Self::Relative,
            (true, elf::R_X86_64_64) | (false, elf::R_AARCH64_ABS64) => Self::Symbol,
            (true, elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT) => Self::Slot,
            (false, elf::R_AARCH64_GLOB_DAT | elf::R_AARCH64_JUMP_SLOT) => Self::Slot,
            (true, elf::R_X86_64_DTPMOD64) | (false, elf::R_AARCH64_TLS_DTPMOD) => Self::Module,
            (true, elf::R_X86_64_DTPOFF64) | (false, elf::R_AARCH64_TLS_DTPREL) => Self::Offset,
            (true, elf::R_X86_64_TPOFF64) | (false, elf::R_AARCH64_TLS_TPREL) => Self::Distance,
            (true, elf::R_X86_64_IRELATIVE) | (false, elf::R_AARCH64_IRELATIVE) => Self::Indirect,
            _ => panic!("ld has left a relocation of kind {kind:?}"),
        }
    }
}

impl Image {
    fn link(bytes: &[u8], segments: [u64; 3]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("object.o"), bytes).unwrap();
        std::fs::write(dir.path().join("script"), script(bytes, segments)).unwrap();
        let ld = if cfg!(target_arch = "x86_64") { "ld" } else { "aarch64-linux-gnu-ld" };
        let mut arguments = vec!["-shared", "-z", "now", "-z", "norelro", "-z", "noseparate-code", "--hash-style=gnu"];
        if cfg!(target_arch = "x86_64") {
            arguments.push("--no-ld-generated-unwind-info");
        }
        arguments.extend(["-T", "script", "object.o", "-o", "image"]);
        testing::run(dir.path(), ld, &arguments);
        Self::read(dir.path())
    }

    fn read(dir: &Path) -> Self {
        let bytes = std::fs::read(dir.join("image")).unwrap();
        let file = ElfFile64::<Endianness>::parse(&*bytes).unwrap();
        let (header, data) = (file.elf_header(), &*bytes);
        let table = header.sections(LITTLE, data).unwrap();
        let has = |flags: elf::SectionFlags, flag: elf::SectionFlags| flags.0 & flag.0 != 0;
        let name = |section| String::from_utf8(table.section_name(LITTLE, section).unwrap().to_vec()).unwrap();
        let allocated = table.iter().filter(|s| has(s.sh_flags(LITTLE), elf::SHF_ALLOC));
        let mut sections: Vec<Section> = allocated
            .map(|section| Section {
                name: name(section),
                address: section.sh_addr(LITTLE),
                bytes: section.sh_size(LITTLE),
                contents: section.data(LITTLE, data).ok().filter(|c| !c.is_empty()).map(<[u8]>::to_vec),
                thread_local: has(section.sh_flags(LITTLE), elf::SHF_TLS),
            })
            .collect();
        // Zero sections take no addresses there, and stand for variables here: behind everything else.
        let mut end = sections.iter().filter(|s| !s.is_thread_local_bss()).map(Section::end).max().unwrap_or(0);
        let block = sections.iter().filter(|s| s.thread_local).map(|s| s.address).min();
        let mut values = BTreeMap::new();
        for section in sections.iter_mut().filter(|s| s.thread_local) {
            let offset = section.address - block.unwrap();
            if section.is_thread_local_bss() {
                section.address = end.next_multiple_of(64);
                end = section.end();
            }
            values.insert(offset, section.address);
        }
        let mut image = Self { sections, symbols: HashMap::new(), relocations: Vec::new() };
        let symbols = table.symbols(LITTLE, data, elf::SHT_SYMTAB).unwrap();
        for symbol in symbols.iter().filter(|s| !s.is_undefined(LITTLE)) {
            let name = String::from_utf8_lossy(symbol.name(LITTLE, symbols.strings()).unwrap()).into_owned();
            let (value, thread_local) = (symbol.st_value(LITTLE), symbol.st_type() == elf::STT_TLS);
            let address = match values.range(..=value).next_back().filter(|_| thread_local) {
                Some((offset, address)) => address + (value - offset),
                None => value,
            };
            image.symbols.insert(name, (address, thread_local));
        }
        let dynamic = table.symbols(LITTLE, data, elf::SHT_DYNSYM).unwrap();
        for section in table.iter() {
            let Some((relocations, _)) = section.rela(LITTLE, data).unwrap() else { continue };
            for relocation in relocations {
                let symbol = relocation.symbol(LITTLE, false).map(|i| dynamic.symbol(i).unwrap());
                let name = symbol.map_or_else(String::new, |s| {
                    String::from_utf8_lossy(s.name(LITTLE, dynamic.strings()).unwrap()).into_owned()
                });
                image.relocations.push(Relocation {
                    at: relocation.r_offset(LITTLE),
                    kind: relocation.r_type(LITTLE, false),
                    symbol: name,
                    addend: relocation.r_addend(LITTLE),
                });
            }
        }
        image
    }

    /// Returns the bytes from the start of each segment to the end of its last section.
    fn sizes(&self) -> [u64; 3] {
        let mut starts: Vec<u64> = Vec::new();
        for name in ["__slabjit_code", "__slabjit_constants", "__slabjit_data"] {
            starts.push(self.symbols[name].0);
        }
        [0, 1, 2].map(|segment| {
            let start = starts[segment];
            let next = starts.iter().copied().filter(|other| *other > start).min().unwrap_or(u64::MAX);
            let inside = self.sections.iter().filter(|s| (start..next).contains(&s.address));
            inside.map(Section::end).max().unwrap_or(start) - start
        })
    }

    fn section(&self, name: &str) -> Option<u64> {
        self.sections.iter().find(|section| section.name == name).map(|section| section.address)
    }

    fn address(&self, symbol: &str) -> Option<u64> {
        self.symbols.get(symbol).map(|(address, _)| *address)
    }
}

impl Section {
    fn end(&self) -> u64 {
        self.address + self.bytes
    }

    fn is_thread_local_bss(&self) -> bool {
        self.thread_local && self.contents.is_none()
    }
}

/// Returns a script by which `ld` places sections of an object, each by itself, and its own sections among them.
fn script(object: &[u8], [code, constants, data]: [u64; 3]) -> String {
    let file = ElfFile64::<Endianness>::parse(object).unwrap();
    let table = file.elf_header().sections(LITTLE, object).unwrap();
    let mut names: [Vec<String>; 3] = Default::default();
    for section in table.iter() {
        let flags = section.sh_flags(LITTLE);
        let is = |flag: elf::SectionFlags| flags.0 & flag.0 != 0;
        let name = String::from_utf8(table.section_name(LITTLE, section).unwrap().to_vec()).unwrap();
        if !is(elf::SHF_ALLOC) || name == ".eh_frame" || name.starts_with(".note") {
            continue;
        }
        let segment = if is(elf::SHF_EXECINSTR) { 0 } else { 1 + usize::from(is(elf::SHF_WRITE)) };
        if !names[segment].contains(&name) {
            names[segment].push(name);
        }
    }
    // The sections that are thread-local make one block.
    names[2].sort_by_key(|name| (!name.starts_with(".tdata"), !name.starts_with(".tbss")));
    let mut script = String::from("SECTIONS {\n");
    let keep = |names: &[String]| {
        names.iter().fold(String::new(), |mut text, name| {
            let _ = writeln!(text, "  {name} : {{ KEEP(*({name})) }}");
            text
        })
    };
    let _ = writeln!(
        script,
        "  . = {code:#x}; __slabjit_code = .;\n{}  .plt : {{ *(.plt .plt.*) *(.iplt) }}",
        keep(&names[0])
    );
    let _ = writeln!(
        script,
        "  . = {constants:#x}; __slabjit_constants = .;\n{}  .dynsym : {{ *(.dynsym) }}\n  .dynstr : {{ *(.dynstr) }}\n  .gnu.hash : {{ *(.gnu.hash) }}\n  \
         .rela : {{ *(.rela.*) }}\n  .eh_frame : {{ KEEP(*(.eh_frame)) LONG(0) }}",
        keep(&names[1])
    );
    let _ = writeln!(
        script,
        "  . = {data:#x}; __slabjit_data = .;\n{}  .dynamic : {{ *(.dynamic) }}\n  .got : {{ *(.got) *(.got.plt) *(.igot) *(.igot.plt) }}\n  \
         .common : {{ *(COMMON) }}\n  /DISCARD/ : {{ *(.note*) *(.comment) *(.gnu.version*) }}\n}}",
        keep(&names[2])
    );
    script
}
