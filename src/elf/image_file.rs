//! Reads images that this crate has made: shared objects with its note.
//!
//! Everything that a link will use is checked here: what lies outside its segment is refused before any memory is
//! taken.

use std::ops::Range;

use object::{elf, pod};

use super::elf_abi::{
    EM_X86_64, HEADER_SIZE, Header, LE, RELA_SIZE, RawRela, RawSymbol, SHF_ALLOC, SHF_EXECINSTR, SHF_TLS, SHF_WRITE,
    SHN_ABS, SHN_UNDEF, SHT_FINI_ARRAY, SHT_INIT_ARRAY, SHT_NOBITS, SHT_PROGBITS, STB_GLOBAL, STB_WEAK, STT_FUNC,
    STT_OBJECT, STT_TLS, SYMBOL_SIZE, Symbol,
};
use super::identity::machine_text;
use super::image_error::{ImageError, NoImage};
use super::image_note::{DSO_HANDLE, FORMAT, IMAGE_NOTE, ImageNote, OWNER, Reference, references};
use super::index::{
    Array, ArrayKind, Binding, Definition, Import, Name, ObjectIndex, PLAIN_PRIORITY, Section, SymbolKind, ThreadLocal,
    Visibility,
};

type ProgramHeader = elf::ProgramHeader64<LE>;
type Dynamic = elf::Dyn64<LE>;

/// The reason why bytes are no image, or none that can be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// It is no ELF file.
    NotElf,
    /// An ELF file of another kind: an object, a program.
    NotShared,
    /// A shared object of another linker.
    Foreign,
    Machine(u16),
    Format(u32),
    /// The hash is another.
    Changed,
    Malformed(&'static str),
}

impl Unfit {
    /// Makes the error about an image of this name.
    pub(crate) fn into_error(self, object: &str) -> ImageError {
        let object = object.to_owned();
        let no_image = |kind| ImageError::NotAnImage { object: object.clone(), kind };
        match self {
            Self::NotElf => no_image(NoImage::NotElf),
            Self::NotShared => no_image(NoImage::NotShared),
            Self::Foreign => no_image(NoImage::Foreign),
            Self::Machine(machine) => ImageError::ForeignMachine { object, machine: machine_text(machine).to_owned() },
            Self::Format(format) => ImageError::UnknownFormat { object, format, known: FORMAT },
            Self::Changed => ImageError::Changed { object },
            Self::Malformed(problem) => ImageError::Damaged { object, problem },
        }
    }
}

/// The part of an image that a link needs beside the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageIndex {
    pub(crate) segments: Vec<ImageSegment>,
    pub(crate) note: ImageNote,
    /// Bytes of the file: relocations by the loader, and references between segments.
    relocations: Range<usize>,
    references: Range<usize>,
    /// Symbols of functions that are not exported, and their names.
    locals: Range<usize>,
    names: Range<usize>,
    /// The address of the unwind table, or 0.
    pub(crate) frames: u64,
    /// The thread-local block: address, bytes with contents, all bytes.
    pub(crate) thread_local: Option<(u64, u64, u64)>,
    /// Addresses of the lists in the order of the index's arrays.
    pub(crate) arrays: Vec<u64>,
    /// The number of descriptors of thread-local variables.
    pub(crate) descriptors: usize,
    /// The import that stands for the image (`__dso_handle`).
    pub(crate) dso_handle: Option<u32>,
    /// Names of shared libraries that it needs.
    pub(crate) needed: Vec<String>,
}

/// A segment of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageSegment {
    /// Its number by its access.
    pub(crate) class: u8,
    /// Its contents in the file.
    pub(crate) file: Range<usize>,
    pub(crate) address: u64,
    /// Bytes with zero-fill.
    pub(crate) bytes: u64,
    /// Of its sections.
    pub(crate) alignment: u64,
    pub(crate) executable: bool,
    pub(crate) writable: bool,
}

/// A relocation by the loader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ImageRelocation {
    pub(crate) at: u64,
    pub(crate) operation: ImageOperation,
    /// The import; `None` for the image itself.
    pub(crate) import: Option<u32>,
    pub(crate) addend: i64,
}

/// What a relocation of an image does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ImageOperation {
    /// The address of a place in the image.
    Relative,
    /// An import's address.
    Address,
    /// The number of a thread-local variable's module.
    Module,
    /// Its offset there.
    Offset,
    /// Its distance from the thread pointer.
    Distance,
    /// Its descriptor: two words.
    Descriptor,
    /// The result of the resolver at a place in the image.
    Indirect,
}

impl ImageOperation {
    fn of(machine: u16, kind: u32) -> Option<Self> {
        let x86_64 = machine == EM_X86_64;
        let all = [
            (elf::R_X86_64_RELATIVE, elf::R_AARCH64_RELATIVE, Self::Relative),
            (elf::R_X86_64_64, elf::R_AARCH64_ABS64, Self::Address),
            (elf::R_X86_64_GLOB_DAT, elf::R_AARCH64_GLOB_DAT, Self::Address),
            (elf::R_X86_64_DTPMOD64, elf::R_AARCH64_TLS_DTPMOD, Self::Module),
            (elf::R_X86_64_DTPOFF64, elf::R_AARCH64_TLS_DTPREL, Self::Offset),
            (elf::R_X86_64_TPOFF64, elf::R_AARCH64_TLS_TPREL, Self::Distance),
            (elf::R_X86_64_TLSDESC, elf::R_AARCH64_TLSDESC, Self::Descriptor),
            (elf::R_X86_64_IRELATIVE, elf::R_AARCH64_IRELATIVE, Self::Indirect),
        ];
        all.into_iter().find(|(x86, arm, _)| kind == if x86_64 { x86.0 } else { arm.0 }).map(|(.., found)| found)
    }

    pub(crate) fn is_of_variable(self) -> bool {
        matches!(self, Self::Module | Self::Offset | Self::Distance | Self::Descriptor)
    }
}

impl ImageIndex {
    /// Returns the relocations by the loader.
    pub(crate) fn relocations(&self, machine: u16, bytes: &[u8]) -> impl Iterator<Item = ImageRelocation> {
        let entries: &[RawRela] =
            bytes.get(self.relocations.clone()).and_then(|table| pod::slice_from_all_bytes(table).ok()).unwrap_or(&[]);
        entries.iter().filter_map(move |entry| {
            let (info, at, addend) = (entry.r_info.get(LE), entry.r_offset.get(LE), entry.r_addend.get(LE));
            // The null symbol stands for the image; imports come behind it.
            let import = ((info >> 32) as u32).checked_sub(1);
            Some(ImageRelocation { at, operation: ImageOperation::of(machine, info as u32)?, import, addend })
        })
    }

    /// Returns the fields that depend on where the segments are.
    pub(crate) fn references(&self, machine: u16, bytes: &[u8]) -> impl Iterator<Item = Reference> {
        references(machine, bytes.get(self.references.clone()).unwrap_or_default()).map_while(Result::ok)
    }

    /// Returns functions that are not exported: name, address in the file, bytes. What contradicts itself is left out.
    pub(crate) fn locals<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = (&'a str, u64, u64)> {
        let names = bytes.get(self.names.clone()).unwrap_or_default();
        let symbols =
            bytes.get(self.locals.clone()).and_then(|table| pod::slice_from_all_bytes::<RawSymbol>(table).ok());
        let all = symbols.unwrap_or_default().iter().map(Symbol::decode).skip(1);
        // A name is as long as names are, and a hostile table must not make more of them.
        let mut budget = 2 * names.len();
        all.filter_map(move |symbol| {
            let text = names.get(symbol.name as usize..)?;
            let text = text.get(..text.iter().take(budget).position(|byte| *byte == 0)?)?;
            budget -= text.len();
            let name = std::str::from_utf8(text).ok().filter(|name| !name.is_empty())?;
            Some((name, symbol.value, symbol.size))
        })
    }

    /// Returns the segment that has an address, its end included.
    pub(crate) fn segment_at(&self, address: u64) -> Option<usize> {
        self.segments.iter().position(|segment| (segment.address..=segment.address + segment.bytes).contains(&address))
    }

    /// Returns whether bytes of the file are mapped at an address, in a segment that is not executable unless `code`.
    fn has(&self, address: u64, bytes: u64, code: bool) -> bool {
        let inside = |segment: &ImageSegment| {
            let from = address.checked_sub(segment.address)?;
            let end = from.checked_add(bytes)?;
            Some(end <= segment.file.len() as u64 && (code || !segment.executable))
        };
        self.segments.iter().any(|segment| inside(segment).unwrap_or(false))
    }
}

/// Reads an image for a machine. `verify`: its bytes are hashed.
pub(crate) fn read_image(bytes: &[u8], machine: u16, verify: bool) -> Result<(ObjectIndex, ImageIndex), Unfit> {
    Reader { bytes, machine }.read(verify)
}

struct Reader<'a> {
    bytes: &'a [u8],
    machine: u16,
}

/// The tables that the dynamic section names.
#[derive(Default)]
struct Tables {
    strings: (u64, u64),
    symbols: u64,
    relocations: (u64, u64),
    initialisers: (u64, u64),
    finalisers: (u64, u64),
    /// Places of names in the strings.
    needed: Vec<u64>,
}

const TOO_SHORT: Unfit = Unfit::Malformed("it is cut short");

impl<'a> Reader<'a> {
    fn read(&self, verify: bool) -> Result<(ObjectIndex, ImageIndex), Unfit> {
        let headers = self.headers()?;
        let note = self.note(headers)?;
        if verify {
            self.verify(headers, &note)?;
        }
        let segments = self.segments(headers, &note)?;
        let range = |(at, bytes)| self.range(at, bytes);
        let references = range(note.references)?;
        let (locals, names) = (range(note.locals)?, range(note.names)?);
        let mut image = ImageIndex {
            segments,
            note,
            relocations: 0..0,
            references,
            locals,
            names,
            frames: 0,
            thread_local: None,
            arrays: Vec::new(),
            descriptors: 0,
            dso_handle: None,
            needed: Vec::new(),
        };
        let tables = self.tables(headers, &image)?;
        let mut index = ObjectIndex { machine: self.machine, ..ObjectIndex::default() };
        self.read_sections(headers, &mut image, &mut index, &tables)?;
        self.read_symbols(&mut image, &mut index, &tables)?;
        self.check_relocations(&mut image, &mut index, &tables)?;
        self.check_references(&image)?;
        Ok((index, image))
    }

    fn headers(&self) -> Result<&'a [ProgramHeader], Unfit> {
        if !self.bytes.starts_with(b"\x7fELF") {
            return Err(Unfit::NotElf);
        }
        let (header, _) = pod::from_bytes::<Header>(self.bytes).map_err(|()| TOO_SHORT)?;
        // ELFCLASS64, ELFDATA2LSB
        if header.e_ident.class != elf::ELFCLASS64 || header.e_ident.data != elf::ELFDATA2LSB {
            return Err(Unfit::NotElf);
        }
        if header.e_type.get(LE) != elf::ET_DYN {
            return Err(Unfit::NotShared);
        }
        let machine = header.e_machine.get(LE).0;
        if machine != self.machine {
            return Err(Unfit::Machine(machine));
        }
        if header.e_phoff.get(LE) != HEADER_SIZE {
            return Err(Unfit::Foreign);
        }
        let count = usize::from(header.e_phnum.get(LE));
        let table = self.bytes.get(HEADER_SIZE as usize..).ok_or(TOO_SHORT)?;
        Ok(pod::slice_from_bytes(table, count).map_err(|()| TOO_SHORT)?.0)
    }

    fn range(&self, offset: u64, bytes: u64) -> Result<Range<usize>, Unfit> {
        let range = || {
            let (start, bytes) = (usize::try_from(offset).ok()?, usize::try_from(bytes).ok()?);
            let range = start..start.checked_add(bytes)?;
            self.bytes.get(range.clone()).map(|_| range)
        };
        range().ok_or(TOO_SHORT)
    }

    fn find(headers: &'a [ProgramHeader], kind: elf::ProgramType) -> Option<&'a ProgramHeader> {
        headers.iter().find(|header| header.p_type.get(LE) == kind)
    }

    /// Finds the note of this crate's among those that the file has.
    fn note(&self, headers: &'a [ProgramHeader]) -> Result<ImageNote, Unfit> {
        let header = Self::find(headers, elf::PT_NOTE).ok_or(Unfit::Foreign)?;
        let mut notes =
            self.bytes.get(self.range(header.p_offset.get(LE), header.p_filesz.get(LE))?).unwrap_or_default();
        while !notes.is_empty() {
            let word = |i: usize| notes.get(4 * i..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
            let (Some(owner), Some(size), Some(kind)) = (word(0), word(1), word(2)) else { break };
            let contents = 12 + (owner as usize).next_multiple_of(4);
            let end = contents.saturating_add((size as usize).next_multiple_of(4));
            let is_ours = notes.get(12..12 + owner as usize) == Some(&OWNER[..]) && kind == IMAGE_NOTE;
            if is_ours {
                return ImageNote::read(notes.get(contents..end).unwrap_or_default())
                    .map_err(|format| format.map_or(Unfit::Malformed("its note is cut short"), Unfit::Format));
            }
            notes = notes.get(end..).unwrap_or_default();
        }
        Err(Unfit::Foreign)
    }

    /// Compares the hash, which is that of the file with zeros for the build ID and the hash.
    fn verify(&self, headers: &'a [ProgramHeader], note: &ImageNote) -> Result<(), Unfit> {
        let header = Self::find(headers, elf::PT_NOTE).ok_or(Unfit::Foreign)?;
        let notes = self.range(header.p_offset.get(LE), header.p_filesz.get(LE))?;
        // The build ID ends the first note, the hash the second.
        let build_id = notes.start + 16..notes.start + 36;
        let hash = notes.end.saturating_sub(32)..notes.end;
        if self.bytes.get(build_id.clone()) != note.hash.get(..build_id.len()) {
            return Err(Unfit::Changed);
        }
        let mut hasher = blake3::Hasher::new();
        let mut at = 0;
        for zeros in [build_id, hash] {
            hasher.update(self.bytes.get(at..zeros.start).ok_or(TOO_SHORT)?);
            hasher.update(&[0; 32][..zeros.len().min(32)]);
            at = zeros.end;
        }
        hasher.update(self.bytes.get(at..).ok_or(TOO_SHORT)?);
        if *hasher.finalize().as_bytes() == note.hash { Ok(()) } else { Err(Unfit::Changed) }
    }

    fn segments(&self, headers: &'a [ProgramHeader], note: &ImageNote) -> Result<Vec<ImageSegment>, Unfit> {
        let mut segments: Vec<ImageSegment> = Vec::new();
        let relro = Self::find(headers, elf::PT_GNU_RELRO).map(|header| header.p_vaddr.get(LE));
        for header in headers.iter().filter(|header| header.p_type.get(LE) == elf::PT_LOAD) {
            let address = header.p_vaddr.get(LE);
            let file = self.range(header.p_offset.get(LE), header.p_filesz.get(LE))?;
            let flags = header.p_flags.get(LE).0;
            let (executable, writable) = (flags & elf::PF_X.0 != 0, flags & elf::PF_W.0 != 0);
            let is_relro = relro == Some(address);
            // The end of a page that becomes read-only is padding.
            let bytes = if is_relro { file.len() as u64 } else { header.p_memsz.get(LE) };
            let class = (executable, writable, is_relro);
            let position = match class {
                (false, false, false) => 0,
                (true, false, false) => 1,
                (false, true, true) => 2,
                (false, true, false) => 3,
                _ => return Err(Unfit::Malformed("a segment is writable and executable")),
            };
            let end = address.checked_add(bytes).filter(|end| *end < 1 << 31);
            let follows = segments.last().is_none_or(|last| last.address + last.bytes < address);
            let alignment = note.alignments.get(position).copied().unwrap_or(0);
            if end.is_none() || !follows || bytes < file.len() as u64 || alignment > 30 {
                return Err(Unfit::Malformed("its segments overlap, or are too large"));
            }
            let alignment = 1 << alignment;
            let writable = writable && !is_relro;
            let class = position as u8;
            segments.push(ImageSegment { class, file, address, bytes, alignment, executable, writable });
        }
        Ok(segments)
    }

    /// Returns the bytes at an address.
    fn at(&self, image: &ImageIndex, address: u64, bytes: u64) -> Result<Range<usize>, Unfit> {
        let inside = |segment: &ImageSegment| {
            let from = usize::try_from(address.checked_sub(segment.address)?).ok()?;
            let end = from.checked_add(usize::try_from(bytes).ok()?)?;
            (end <= segment.file.len()).then_some(segment.file.start + from..segment.file.start + end)
        };
        image.segments.iter().find_map(inside).ok_or(Unfit::Malformed("a table lies outside its segments"))
    }

    fn tables(&self, headers: &'a [ProgramHeader], image: &ImageIndex) -> Result<Tables, Unfit> {
        let header = Self::find(headers, elf::PT_DYNAMIC).ok_or(Unfit::Malformed("it has no dynamic section"))?;
        let range = self.at(image, header.p_vaddr.get(LE), header.p_filesz.get(LE))?;
        let entries: &[Dynamic] = pod::slice_from_all_bytes(self.bytes.get(range).unwrap_or_default())
            .map_err(|()| Unfit::Malformed("its dynamic section is cut short"))?;
        let mut tables = Tables::default();
        for entry in entries {
            let value = entry.d_val.get(LE);
            match entry.d_tag.get(LE) {
                elf::DT_NULL => break,
                elf::DT_NEEDED => tables.needed.push(value),
                elf::DT_STRTAB => tables.strings.0 = value,
                elf::DT_STRSZ => tables.strings.1 = value,
                elf::DT_SYMTAB => tables.symbols = value,
                elf::DT_RELA => tables.relocations.0 = value,
                elf::DT_RELASZ => tables.relocations.1 = value,
                elf::DT_INIT_ARRAY => tables.initialisers.0 = value,
                elf::DT_INIT_ARRAYSZ => tables.initialisers.1 = value,
                elf::DT_FINI_ARRAY => tables.finalisers.0 = value,
                elf::DT_FINI_ARRAYSZ => tables.finalisers.1 = value,
                _ => {}
            }
        }
        Ok(tables)
    }

    /// Makes sections of what the living half knows by sections.
    fn read_sections(
        &self,
        headers: &'a [ProgramHeader],
        image: &mut ImageIndex,
        index: &mut ObjectIndex,
        tables: &Tables,
    ) -> Result<(), Unfit> {
        let none = Section {
            name: Name::default(),
            kind: SHT_PROGBITS,
            flags: SHF_ALLOC,
            size: 0,
            alignment: 1,
            offset: 0,
            has_contents: true,
        };
        index.sections.push(Section { flags: 0, kind: 0, has_contents: false, ..none });
        for segment in &image.segments {
            let executable = if segment.executable { SHF_EXECINSTR } else { 0 };
            let writable = if segment.writable { SHF_WRITE } else { 0 };
            let (size, alignment) = (segment.bytes, segment.alignment);
            let flags = SHF_ALLOC | executable | writable;
            index.sections.push(Section { size, alignment, flags, offset: segment.file.start as u64, ..none });
        }
        if let Some(header) = Self::find(headers, elf::PT_TLS) {
            let (address, contents, bytes) = (header.p_vaddr.get(LE), header.p_filesz.get(LE), header.p_memsz.get(LE));
            let (alignment, offset) = (header.p_align.get(LE), header.p_offset.get(LE));
            let fits = bytes >= contents && bytes < 1 << 31 && alignment.is_power_of_two() && alignment <= 1 << 30;
            let is_inside = || {
                let at = self.at(image, address, contents).ok();
                image.has(address, contents, false) && at.is_some_and(|at| at.start as u64 == offset)
            };
            if !fits || contents != 0 && !is_inside() {
                return Err(Unfit::Malformed("its thread-local storage is not in a segment"));
            }
            let flags = SHF_ALLOC | SHF_WRITE | SHF_TLS;
            let first = index.sections.len() as u32;
            index.sections.push(Section { size: contents, alignment, flags, offset, ..none });
            let rest = Section { kind: SHT_NOBITS, size: bytes - contents, flags, has_contents: false, ..none };
            // What comes first has the block's alignment.
            index.sections.push(Section { alignment: if contents == 0 { alignment } else { 1 }, ..rest });
            let sections = if contents == 0 { vec![first + 1] } else { vec![first, first + 1] };
            index.thread_local = Some(Box::new(ThreadLocal { sections, ..ThreadLocal::default() }));
            image.thread_local = Some((address, contents, bytes));
        }
        let lists = [
            (tables.initialisers, ArrayKind::Init, SHT_INIT_ARRAY),
            (tables.finalisers, ArrayKind::Fini, SHT_FINI_ARRAY),
        ];
        for ((address, size), kind, of) in lists.into_iter().filter(|((_, size), ..)| *size != 0) {
            let offset = self.at(image, address, size)?.start as u64;
            if !size.is_multiple_of(8) || !image.has(address, size, false) {
                return Err(Unfit::Malformed("a list of initialisers is not in its segment"));
            }
            let section = index.sections.len() as u32;
            index.sections.push(Section { kind: of, size, alignment: 8, offset, ..none });
            index.arrays.push(Array { kind, priority: PLAIN_PRIORITY, offset, size, section });
            image.arrays.push(address);
        }
        if let Some(header) = Self::find(headers, elf::PT_GNU_EH_FRAME) {
            let address = header.p_vaddr.get(LE);
            let range = self.at(image, address, 8)?;
            let bytes = self.bytes.get(range).unwrap_or_default();
            // DW_EH_PE_pcrel | DW_EH_PE_sdata4, as our linker writes it.
            if bytes.get(1) != Some(&0x1b) {
                return Err(Unfit::Malformed("its unwind table is found in another way"));
            }
            let distance = bytes.get(4..).and_then(|bytes| bytes.first_chunk()).map_or(0, |b| i32::from_le_bytes(*b));
            image.frames = address.wrapping_add(4).wrapping_add_signed(distance.into());
            if !image.has(image.frames, 4, false) {
                return Err(Unfit::Malformed("its unwind table lies outside"));
            }
        }
        Ok(())
    }

    fn read_symbols(&self, image: &mut ImageIndex, index: &mut ObjectIndex, tables: &Tables) -> Result<(), Unfit> {
        let strings = self.at(image, tables.strings.0, tables.strings.1)?;
        let strings = std::str::from_utf8(self.bytes.get(strings).unwrap_or_default())
            .map_err(|_| Unfit::Malformed("a name is not UTF-8"))?;
        if !strings.ends_with('\0') {
            return Err(Unfit::Malformed("its names have no end"));
        }
        let bytes = image.note.symbols.checked_mul(SYMBOL_SIZE).ok_or(TOO_SHORT)?;
        let symbols = self.at(image, tables.symbols, bytes)?;
        let symbols: &[RawSymbol] =
            pod::slice_from_all_bytes(self.bytes.get(symbols).unwrap_or_default()).map_err(|()| TOO_SHORT)?;
        for at in &tables.needed {
            let name = usize::try_from(*at).ok().and_then(|at| strings.get(at..)?.split('\0').next());
            let name =
                name.filter(|name| !name.is_empty()).ok_or(Unfit::Malformed("a library that it needs has no name"))?;
            image.needed.push(name.to_owned());
        }
        // Names are looked at for as long as the longest, in all no longer than twice the table and some.
        let mut budget = 2 * strings.len() + 64 * symbols.len();
        let mut name = |at: u32| {
            let text = strings.get(at as usize..)?;
            let len = text.bytes().take(budget).position(|byte| byte == 0).filter(|len| *len != 0)?;
            budget -= len;
            Some(Name { start: at, len: len as u32 })
        };
        let bad = Unfit::Malformed("a symbol has no name, or lies outside");
        index.names = strings.to_owned();
        for (i, symbol) in (0_u64..).zip(symbols.iter().map(Symbol::decode)).skip(1) {
            let name = name(symbol.name).ok_or_else(|| bad.clone())?;
            let is_variable = symbol.kind == STT_TLS;
            let weak = match symbol.binding {
                STB_GLOBAL => false,
                STB_WEAK => true,
                _ => return Err(bad),
            };
            if i <= image.note.imports {
                if symbol.shndx != SHN_UNDEF {
                    return Err(bad);
                }
                let visibility = Visibility::Default;
                index.imports.push(Import { name, weak, visibility, thread_local: is_variable });
                continue;
            }
            let absolute = symbol.shndx == SHN_ABS;
            let (section, value) = if absolute {
                (0, symbol.value)
            } else if is_variable {
                let (_, contents, bytes) = image.thread_local.ok_or_else(|| bad.clone())?;
                if symbol.value.checked_add(symbol.size).is_none_or(|end| end > bytes) {
                    return Err(bad);
                }
                let first = image.segments.len() as u32 + 1;
                let is_zero = symbol.value >= contents;
                (first + u32::from(is_zero), symbol.value - if is_zero { contents } else { 0 })
            } else {
                let at = image.segment_at(symbol.value).ok_or_else(|| bad.clone())?;
                let (start, bytes) = image.segments.get(at).map_or((0, 0), |segment| (segment.address, segment.bytes));
                let value = symbol.value - start;
                if symbol.size > bytes - value {
                    return Err(bad);
                }
                (at as u32 + 1, value)
            };
            let kind = match symbol.kind {
                STT_TLS => SymbolKind::ThreadLocal,
                STT_FUNC => SymbolKind::Function,
                STT_OBJECT => SymbolKind::Data,
                _ => SymbolKind::Unknown,
            };
            index.definitions.push(Definition {
                name,
                kind,
                binding: if weak { Binding::Weak } else { Binding::Strong },
                visibility: Visibility::Default,
                value,
                size: symbol.size,
                section,
                comdat: None,
                common: None,
                absolute,
            });
        }
        if index.imports.len() as u64 != image.note.imports {
            return Err(bad);
        }
        if image.note.dso_handle != 0 {
            // The living half has one for each library.
            const HANDLE: &str = "__dso_handle";
            let start = index.names.len() as u32;
            index.names.push_str(HANDLE);
            index.names.push('\0');
            let name = Name { start, len: HANDLE.len() as u32 };
            image.dso_handle = Some(index.imports.len() as u32);
            let visibility = Visibility::Hidden;
            index.imports.push(Import { name, weak: false, visibility, thread_local: false });
        }
        Ok(())
    }

    fn check_relocations(&self, image: &mut ImageIndex, index: &mut ObjectIndex, tables: &Tables) -> Result<(), Unfit> {
        let (address, size) = tables.relocations;
        if size != 0 {
            image.relocations = self.at(image, address, size)?;
        }
        if !size.is_multiple_of(RELA_SIZE) {
            return Err(TOO_SHORT);
        }
        let bad = Unfit::Malformed("a relocation is of an unknown kind, or outside its segment");
        let (mut count, mut descriptors) = (0, 0);
        let mut statics = Vec::new();
        let (block, mut relocated, mut own_static) = (image.thread_local, false, false);
        for relocation in image.relocations(self.machine, self.bytes) {
            let ImageRelocation { at, operation, import, addend } = relocation;
            count += RELA_SIZE;
            let words = if operation == ImageOperation::Descriptor { 2 } else { 1 };
            let symbol =
                import.map(|import| index.imports.get(import as usize).ok_or_else(|| bad.clone())).transpose()?;
            let is_variable = operation.is_of_variable();
            let agrees = match (operation, symbol) {
                // What lies outside is among the references, too.
                (ImageOperation::Relative, None) => true,
                (ImageOperation::Indirect, None) => image.segment_at(addend as u64).is_some(),
                (ImageOperation::Address, Some(symbol)) => !symbol.thread_local,
                (_, Some(symbol)) => is_variable && symbol.thread_local,
                (_, None) => is_variable && block.is_some_and(|(.., bytes)| (0..=bytes as i64).contains(&addend)),
            };
            if !agrees || !image.has(at, 8 * words, false) {
                return Err(bad);
            }
            descriptors += usize::from(words == 2);
            relocated |= block.is_some_and(|(address, contents, _)| (address..address + contents).contains(&at));
            if operation == ImageOperation::Distance {
                match symbol {
                    Some(symbol) => statics.push(symbol.name),
                    None => own_static = true,
                }
            }
        }
        if count != size {
            return Err(bad);
        }
        image.descriptors = descriptors;
        if own_static || relocated || !statics.is_empty() || descriptors != 0 {
            let own = index.thread_local.get_or_insert_default();
            (own.relocated, own.own_static) = (relocated, own_static);
            own.statics.extend(statics);
        }
        Ok(())
    }

    fn check_references(&self, image: &ImageIndex) -> Result<(), Unfit> {
        let bytes = self.bytes.get(image.references.clone()).unwrap_or_default();
        let bad = Unfit::Malformed("a reference between its segments lies outside");
        for reference in references(self.machine, bytes) {
            let reference = reference.map_err(|()| bad.clone())?;
            let has_form = reference.kind.address_form().is_some();
            let is_inside = image.has(reference.at, u64::from(reference.kind.width), true);
            let is_known = match reference.segment {
                DSO_HANDLE => image.note.dso_handle != 0,
                class => image.segments.iter().any(|segment| segment.class == class),
            };
            if !has_form || !is_inside || !is_known {
                return Err(bad);
            }
        }
        Ok(())
    }
}
