//! Addresses of an image: output sections, and the segments that they lie in.
//!
//! Four segments follow each other: read-only, code, what is read-only once it is relocated, and data. A segment begins
//! in the file where the one before ends, and in memory at the same offset in another page, so that no padding is
//! needed.

use hashbrown::{HashMap, HashSet};

use super::arrays::Arrays;
use super::frames::Frames;
use super::input::Input;
use super::machine::Machine;
use super::reference::Slot;
use super::scan::{Scan, Word};
use super::symbols::{Symbols, Target};
use crate::cpu::needs::Needs;
use crate::elf::link_tables::LinkTables;
use crate::elf::{SHN_LORESERVE, is_c_identifier};

/// A segment by its access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Class {
    Read,
    Code,
    Relro,
    Data,
}

pub(super) const CLASSES: [Class; 4] = [Class::Read, Class::Code, Class::Relro, Class::Data];

/// The sections that the linker makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Made {
    BuildId,
    Note,
    GnuHash,
    DynamicSymbols,
    DynamicStrings,
    Versions,
    VersionsNeeded,
    Relocations,
    Relr,
    FramesHeader,
    Frames,
    Stubs,
    Helpers,
    Initialisers,
    Finalisers,
    Dynamic,
    Got,
    Resolved,
    Commons,
}

const MADE: usize = Made::Commons as usize + 1;

/// Sizes of the tables for the dynamic loader.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TableSizes {
    pub(super) build_id: u64,
    pub(super) note: u64,
    pub(super) hash: u64,
    pub(super) symbols: u64,
    pub(super) strings: u64,
    pub(super) versions: u64,
    pub(super) needed: u64,
    pub(super) relocations: u64,
    /// At least.
    pub(super) relr: u64,
    pub(super) dynamic: u64,
}

/// A section of the image.
#[derive(Debug, Clone)]
pub(super) struct Out {
    /// The index of its header.
    pub(super) header: u32,
    pub(super) name: String,
    pub(super) class: Class,
    pub(super) made: Option<Made>,
    pub(super) is_thread_local: bool,
    pub(super) is_zero: bool,
    pub(super) alignment: u64,
    pub(super) size: u64,
    pub(super) address: u64,
    pub(super) offset: u64,
}

/// A segment of the image.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Segment {
    pub(super) offset: u64,
    pub(super) address: u64,
    pub(super) file_bytes: u64,
    pub(super) memory_bytes: u64,
    /// At least a page.
    pub(super) alignment: u64,
    /// That of its sections.
    pub(super) section_alignment: u64,
}

/// The addresses of everything.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) outs: Vec<Out>,
    /// Positions of the sections that the linker makes.
    made: [Option<u32>; MADE],
    /// By linker set: the positions of its first and its last section.
    sets: Vec<Option<(u32, u32)>>,
    /// By object and section: the section of the image and the offset there.
    places: Vec<Vec<Option<(u32, u64)>>>,
    commons: Vec<u64>,
    pub(super) segments: [Segment; 4],
    pub(super) thread_local: Option<ThreadLocal>,
    /// The end of the segments in the file.
    pub(super) file_end: u64,
}

/// The block of thread-local variables.
#[derive(Debug, Clone, Copy)]
pub(super) struct ThreadLocal {
    pub(super) address: u64,
    pub(super) offset: u64,
    pub(super) file_bytes: u64,
    pub(super) memory_bytes: u64,
    pub(super) alignment: u64,
}

/// What is laid out.
pub(super) struct Parts<'p, 'a> {
    pub(super) inputs: &'a [Input],
    /// Of each object.
    pub(super) tables: &'p [Option<LinkTables<'a>>],
    pub(super) symbols: &'p Symbols<'a>,
    pub(super) scan: &'p Scan,
    pub(super) frames: &'p Frames,
    pub(super) arrays: &'p Arrays,
    pub(super) sizes: TableSizes,
    pub(super) machine: Machine,
    /// What functions need of the CPU by the builder's word.
    pub(super) cpu: &'p HashMap<String, Needs>,
    /// Signatures of kernels, a line for each.
    pub(super) contracts: &'p str,
    /// Whether the objects' debug information is kept.
    pub(super) debug: bool,
    /// Bytes of the file's headers.
    pub(super) headers: u64,
}

impl<'p, 'a> Parts<'p, 'a> {
    pub(super) fn tables_of(&self, object: u32) -> Option<&'p LinkTables<'a>> {
        self.tables.get(object as usize)?.as_ref()
    }
}

/// Parts of sections with these names become one section.
const FAMILIES: [&str; 12] = [
    ".text",
    ".data.rel.ro",
    ".data",
    ".rodata",
    ".bss",
    ".tdata",
    ".tbss",
    ".gcc_except_table",
    ".ldata",
    ".lrodata",
    ".lbss",
    ".ltext",
];

impl Layout {
    /// Lays an image out; `None` if it is too large for addresses.
    pub(super) fn new(parts: &Parts<'_, '_>) -> Option<Self> {
        let mut layout = Self::default();
        layout.add_tables(parts)?;
        layout.add_sections(parts)?;
        layout.sort()?;
        layout.number(parts.symbols)?;
        layout.assign(parts.machine.page, parts.headers)?;
        Some(layout)
    }

    fn add_tables(&mut self, parts: &Parts<'_, '_>) -> Option<()> {
        let (sizes, scan, frames) = (parts.sizes, parts.scan, parts.frames);
        let frames_class = if scan.frames_are_relocated { Class::Relro } else { Class::Read };
        let frames_bytes = if frames.records.is_empty() { 0 } else { frames.bytes.checked_add(4)? };
        let header = if frames.records.is_empty() { 0 } else { 12 + 8 * frames.functions() as u64 };
        let lists = [&parts.arrays.initialisers, &parts.arrays.finalisers].map(|list| 8 * list.len() as u64);
        let stubs = parts.machine.stub_bytes * scan.stubs.len() as u64;
        let got = if scan.wants_got { (8 * scan.slot_words).max(8) } else { 8 * scan.slot_words };
        let made = [
            (".note.gnu.build-id", Made::BuildId, Class::Read, 4, sizes.build_id),
            (".note.slabjit", Made::Note, Class::Read, 4, sizes.note),
            (".gnu.hash", Made::GnuHash, Class::Read, 8, sizes.hash),
            (".dynsym", Made::DynamicSymbols, Class::Read, 8, sizes.symbols),
            (".dynstr", Made::DynamicStrings, Class::Read, 1, sizes.strings),
            (".gnu.version", Made::Versions, Class::Read, 2, sizes.versions),
            (".gnu.version_r", Made::VersionsNeeded, Class::Read, 8, sizes.needed),
            (".rela.dyn", Made::Relocations, Class::Read, 8, sizes.relocations),
            (".relr.dyn", Made::Relr, Class::Read, 8, sizes.relr),
            (".eh_frame_hdr", Made::FramesHeader, Class::Read, 4, header),
            (".eh_frame", Made::Frames, frames_class, 8, frames_bytes),
            (".plt", Made::Stubs, Class::Code, 16, stubs),
            (".text", Made::Helpers, Class::Code, 16, parts.machine.helper_bytes * parts.symbols.helpers.len() as u64),
            (".init_array", Made::Initialisers, Class::Relro, 8, lists[0]),
            (".fini_array", Made::Finalisers, Class::Relro, 8, lists[1]),
            (".dynamic", Made::Dynamic, Class::Relro, 8, sizes.dynamic),
            (".got", Made::Got, Class::Relro, 8, got),
            (".got.plt", Made::Resolved, Class::Data, 8, 8 * scan.resolved_words),
        ];
        for (name, made, class, alignment, size) in made.into_iter().filter(|(.., size)| *size != 0) {
            self.outs.push(Out { made: Some(made), alignment, size, ..Out::new(name, class, false, false) });
        }
        let mut out = Out { made: Some(Made::Commons), ..Out::new(".bss", Class::Data, false, true) };
        for common in &parts.symbols.commons {
            out.alignment = out.alignment.max(common.alignment);
            out.size = out.size.checked_next_multiple_of(common.alignment.max(1))?;
            self.commons.push(out.size);
            out.size = out.size.checked_add(common.size)?;
        }
        if !parts.symbols.commons.is_empty() {
            self.outs.push(out);
        }
        Some(())
    }

    fn add_sections(&mut self, parts: &Parts<'_, '_>) -> Option<()> {
        // Data that is read-only in the objects is relocated if a part of it is.
        let mut relocated = HashSet::new();
        let classes = |name: &str, flags: (bool, bool), is_thread_local| match flags {
            (true, _) => Class::Code,
            _ if is_thread_local || name.starts_with(".data.rel.ro") || name.starts_with(".bss.rel.ro") => Class::Relro,
            (false, true) => Class::Data,
            (false, false) => Class::Read,
        };
        let all = || {
            (0..).zip(parts.inputs).flat_map(|(object, input)| {
                let sections = (0..).zip(&input.index.sections).filter(|(i, _)| input.is_placed(*i));
                sections.filter_map(move |(i, section)| {
                    let name = family(input.index.name(section.name));
                    let class = classes(name, section.mapped()?, section.is_thread_local());
                    Some((object, i, section, name, class))
                })
            })
        };
        for (object, i, _, name, class) in all() {
            if class == Class::Read && parts.scan.is_relocated(object, i) {
                relocated.insert(name);
            }
        }
        let mut known = HashMap::<(String, Class, bool), u32>::new();
        self.places = parts.inputs.iter().map(|input| vec![None; input.index.sections.len()]).collect();
        for (object, i, section, name, class) in all() {
            let class = if class == Class::Read && relocated.contains(name) { Class::Relro } else { class };
            let is_zero = !section.has_contents && (class == Class::Data || section.is_thread_local());
            let number = *known.entry((name.to_owned(), class, is_zero)).or_insert_with(|| {
                self.outs.push(Out::new(name, class, section.is_thread_local(), is_zero));
                self.outs.len() as u32 - 1
            });
            let out = self.outs.get_mut(number as usize)?;
            let alignment = section.alignment.max(1);
            out.alignment = out.alignment.max(alignment);
            let offset = out.size.checked_next_multiple_of(alignment)?;
            out.size = offset.checked_add(section.size)?;
            *self.places.get_mut(object as usize)?.get_mut(i as usize)? = Some((number, offset));
        }
        Some(())
    }

    /// Puts the sections in order. Those of one kind stay in the order of the objects.
    fn sort(&mut self) -> Option<()> {
        let mut outs: Vec<(u32, Out)> = (0..).zip(std::mem::take(&mut self.outs)).collect();
        outs.sort_by_key(|(_, out)| out.order());
        let mut now = vec![0; outs.len()];
        for (at, (before, _)) in (0..).zip(&outs) {
            *now.get_mut(*before as usize)? = at;
        }
        for place in self.places.iter_mut().flatten().flatten() {
            place.0 = *now.get(place.0 as usize)?;
        }
        self.outs.extend(outs.into_iter().map(|(_, out)| out));
        Some(())
    }

    /// Notes the positions of what is looked up.
    fn number(&mut self, symbols: &Symbols<'_>) -> Option<()> {
        self.sets = vec![None; symbols.sets.len()];
        for (at, out) in (0..).zip(&mut self.outs) {
            // The null section comes first.
            out.header = at + 1;
            match out.made {
                Some(made) => *self.made.get_mut(made as usize)? = Some(at),
                None => {
                    if let Some(set) = symbols.sets.get(out.name.as_str()) {
                        let set = self.sets.get_mut(*set as usize)?;
                        *set = Some((set.map_or(at, |(first, _)| first), at));
                    }
                }
            }
        }
        Some(())
    }

    fn assign(&mut self, page: u64, headers: u64) -> Option<()> {
        let (mut address, mut offset) = (headers, headers);
        // The block begins where all its variables are aligned: not every loader can have it elsewhere.
        let of_threads = self.outs.iter().filter(|out| out.is_thread_local).map(|out| out.alignment).max();
        if let Some(first) = self.outs.iter_mut().find(|out| out.is_thread_local) {
            first.alignment = of_threads.unwrap_or(1);
        }
        for class in CLASSES {
            let alignment = self.outs.iter().filter(|out| out.class == class).map(|out| out.alignment).max();
            let section_alignment = alignment.unwrap_or(1);
            let page = page.max(section_alignment);
            let (mut start, mut memory_end) = ((offset, address), address);
            if class != Class::Read {
                // No address is the end of one segment and the start of another.
                address = address.checked_add(1)?.checked_next_multiple_of(page)?.checked_add(offset % page)?;
                start = (offset, address);
                memory_end = address;
            }
            let mut zeros = address;
            for out in self.outs.iter_mut().filter(|out| out.class == class) {
                let from = if out.is_zero { zeros.max(address) } else { address };
                let at = from.checked_next_multiple_of(out.alignment)?;
                out.address = at;
                // Zeros of thread-local storage are as far from the segment's start as in memory.
                out.offset = if out.is_zero && out.is_thread_local { start.0 + (at - start.1) } else { offset };
                let end = at.checked_add(out.size)?;
                if !out.is_zero {
                    offset = offset.checked_add(end - address)?;
                    out.offset = offset - out.size;
                    address = end;
                }
                // Thread-local zeros have addresses, and no memory.
                if out.is_zero {
                    zeros = end;
                }
                if !(out.is_zero && out.is_thread_local) {
                    memory_end = end;
                }
                if out.is_thread_local {
                    let block = self.thread_local.get_or_insert(ThreadLocal {
                        address: at,
                        offset: out.offset,
                        file_bytes: 0,
                        memory_bytes: 0,
                        alignment: 1,
                    });
                    block.memory_bytes = end - block.address;
                    if !out.is_zero {
                        block.file_bytes = block.memory_bytes;
                    }
                    block.alignment = block.alignment.max(out.alignment);
                }
            }
            let segment = self.segments.get_mut(class as usize)?;
            let first = if class == Class::Read { (0, 0) } else { start };
            *segment = Segment {
                offset: first.0,
                address: first.1,
                file_bytes: offset - first.0,
                memory_bytes: memory_end.max(address) - first.1,
                alignment: page,
                section_alignment,
            };
            address = memory_end.max(address);
            if class == Class::Relro && segment.memory_bytes != 0 {
                // What follows on the last page would stay writable.
                segment.memory_bytes = address.checked_next_multiple_of(page)? - segment.address;
                address = segment.address + segment.memory_bytes;
            }
        }
        self.file_end = offset;
        Some(())
    }

    /// Returns the address of a place in a section of an object.
    pub(super) fn section(&self, object: u32, section: u32, offset: u64) -> Option<u64> {
        let (out, at) = (*self.places.get(object as usize)?.get(section as usize)?)?;
        self.outs.get(out as usize)?.address.checked_add(at)?.checked_add(offset)
    }

    /// Returns the section of the image that a section of an object is in, and its offset there.
    pub(super) fn out_of(&self, object: u32, section: u32) -> Option<(&Out, u64)> {
        let (out, at) = (*self.places.get(object as usize)?.get(section as usize)?)?;
        Some((self.outs.get(out as usize)?, at))
    }

    /// Returns the segment that has an address in the file, its end included. The padding behind what becomes read-only
    /// is in none.
    pub(super) fn class_of(&self, address: u64) -> Option<Class> {
        let has = |(class, segment): &(Class, &Segment)| {
            let bytes = if *class == Class::Relro { segment.file_bytes } else { segment.memory_bytes };
            (segment.address..=segment.address + bytes).contains(&address)
        };
        CLASSES.into_iter().zip(&self.segments).find(has).map(|(class, _)| class)
    }

    /// Returns the end of the last segment of these that there is.
    fn end(&self, classes: &[Class], bytes: impl Fn(&Segment) -> u64) -> Option<u64> {
        let mut segments = CLASSES.into_iter().zip(&self.segments).filter(|(class, _)| classes.contains(class));
        let (class, last) = segments.rfind(|(_, segment)| segment.memory_bytes != 0)?;
        // There is padding behind what becomes read-only.
        let bytes = if class == Class::Relro { last.file_bytes } else { bytes(last) };
        Some(last.address + bytes)
    }

    pub(super) fn made(&self, made: Made) -> Option<&Out> {
        self.outs.get((*self.made.get(made as usize)?)? as usize)
    }

    /// Returns the address of a word that the dynamic loader relocates.
    pub(super) fn word(&self, word: Word, parts: &Parts<'_, '_>) -> Option<u64> {
        Some(match word {
            Word::Section { object, section, offset } => self.section(object, section, offset)?,
            Word::Frame(record, offset) => {
                self.made(Made::Frames)?.address + parts.frames.records.get(record)?.offset + offset
            }
            Word::Slot(at) => self.made(Made::Got)?.address + 8 * at,
            Word::Resolved(at) => self.made(Made::Resolved)?.address + 8 * at,
            Word::Initialiser(i) => self.made(Made::Initialisers)?.address + 8 * i as u64,
            Word::Finaliser(i) => self.made(Made::Finalisers)?.address + 8 * i as u64,
        })
    }

    /// Returns where the file has these bytes of an address.
    pub(super) fn file_offset(&self, address: u64, bytes: u64) -> Option<usize> {
        let inside = |segment: &Segment| {
            let from = address.checked_sub(segment.address)?;
            let is_inside = from.checked_add(bytes)? <= segment.file_bytes;
            is_inside.then(|| usize::try_from(segment.offset + from).ok())?
        };
        self.segments.iter().find_map(inside)
    }

    /// Returns the address of a target that the image has itself.
    pub(super) fn address(&self, target: Target, parts: &Parts<'_, '_>) -> Option<u64> {
        Some(match target {
            Target::Section { object, section, value } | Target::Indirect { object, section, value } => {
                self.section(object, section, value)?
            }
            Target::Common(common) => self.made(Made::Commons)?.address + self.commons.get(common as usize).copied()?,
            Target::Absolute(value) => value,
            Target::Import(_) => return None,
            Target::Bound { set, is_end } => {
                let (first, last) = (*self.sets.get(set as usize)?)?;
                if is_end { self.outs.get(last as usize)?.end()? } else { self.outs.get(first as usize)?.address }
            }
            Target::Got => self.made(Made::Got)?.address,
            Target::DsoHandle => {
                let at = parts.scan.position(Slot::Handle)?;
                self.made(Made::Got)?.address + 8 * at
            }
            Target::Dynamic => self.made(Made::Dynamic)?.address,
            Target::Start => 0,
            Target::CodeEnd => self.end(&[Class::Read, Class::Code], |code| code.memory_bytes)?,
            Target::DataEnd => self.end(&CLASSES, |data| data.file_bytes)?,
            Target::End => self.end(&CLASSES, |last| last.memory_bytes)?,
            Target::ThreadLocal => self.thread_local?.address,
            Target::Helper(number) => {
                self.made(Made::Helpers)?.address + u64::from(number) * parts.machine.helper_bytes
            }
        })
    }
}

impl Out {
    fn new(name: &str, class: Class, is_thread_local: bool, is_zero: bool) -> Self {
        let name = name.to_owned();
        Self {
            header: 0,
            name,
            class,
            made: None,
            is_thread_local,
            is_zero,
            alignment: 1,
            size: 0,
            address: 0,
            offset: 0,
        }
    }

    fn end(&self) -> Option<u64> {
        self.address.checked_add(self.size)
    }

    /// Returns the file's offset of a place in it.
    pub(super) fn file_offset(&self, at: u64) -> Option<usize> {
        usize::try_from(self.offset.checked_add(at)?).ok()
    }

    /// Returns the index of its header, as symbols have it.
    pub(super) fn symbol_section(&self) -> u16 {
        // Of more sections than there are numbers, any but none will do.
        u16::try_from(self.header).unwrap_or(u16::MAX).min(SHN_LORESERVE - 1)
    }

    /// The order in the image: tables first, thread-local variables together, zeros last.
    fn order(&self) -> (Class, bool, u8, bool) {
        let made = self.made.is_some() && self.made != Some(Made::Commons);
        let rank = match self.class {
            Class::Relro if self.is_thread_local => 0,
            Class::Relro if made => 1,
            Class::Read if made && !matches!(self.made, Some(Made::FramesHeader | Made::Frames)) => 0,
            Class::Code if made => 2,
            _ if is_c_identifier(self.name.as_bytes()) => 3,
            _ => 2,
        };
        (self.class, self.is_zero && !self.is_thread_local, rank, self.is_zero)
    }
}

/// Returns the name that a section has in the image.
fn family(name: &str) -> &str {
    let is_of = |family: &&str| name.strip_prefix(*family).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    FAMILIES.iter().find(|family| is_of(family)).copied().unwrap_or(name)
}
