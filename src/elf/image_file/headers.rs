//! The outer parts of an image's file: program headers, the note with the hash, segments, and the dynamic section.

use std::ops::Range;

use object::{elf, pod};

use super::index::{ImageIndex, ImageSegment};
use super::unfit::Unfit;
use crate::elf::elf_abi::{HEADER_SIZE, Header, LE};
use crate::elf::image_note::{IMAGE_NOTE, ImageNote, OWNER};

type ProgramHeader = elf::ProgramHeader64<LE>;
type Dynamic = elf::Dyn64<LE>;

/// The bytes of a shared object for a machine.
pub(super) struct File<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) machine: u16,
    headers: &'a [ProgramHeader],
}

/// The tables that the dynamic section names.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) strings: (u64, u64),
    pub(super) symbols: u64,
    pub(super) hashes: u64,
    pub(super) relocations: (u64, u64),
    pub(super) relr: (u64, u64),
    pub(super) initialisers: (u64, u64),
    pub(super) finalisers: (u64, u64),
    /// Places of names in the strings.
    pub(super) needed: Vec<u64>,
}

impl<'a> File<'a> {
    /// Opens an ELF shared object for a machine.
    pub(super) fn open(bytes: &'a [u8], machine: u16) -> Result<Self, Unfit> {
        if !bytes.starts_with(b"\x7fELF") {
            return Err(Unfit::NotElf);
        }
        let (header, _) = pod::from_bytes::<Header>(bytes).map_err(|()| Unfit::TOO_SHORT)?;
        // ELFCLASS64, ELFDATA2LSB
        if header.e_ident.class != elf::ELFCLASS64 || header.e_ident.data != elf::ELFDATA2LSB {
            return Err(Unfit::NotElf);
        }
        if header.e_type.get(LE) != elf::ET_DYN {
            return Err(Unfit::NotShared);
        }
        let of = header.e_machine.get(LE).0;
        if of != machine {
            return Err(Unfit::Machine(of));
        }
        if header.e_phoff.get(LE) != HEADER_SIZE {
            return Err(Unfit::Foreign);
        }
        let count = usize::from(header.e_phnum.get(LE));
        let table = bytes.get(HEADER_SIZE as usize..).ok_or(Unfit::TOO_SHORT)?;
        let (headers, _) = pod::slice_from_bytes(table, count).map_err(|()| Unfit::TOO_SHORT)?;
        Ok(Self { bytes, machine, headers })
    }

    /// Returns these bytes' range, if the file has them.
    pub(super) fn range(&self, offset: u64, bytes: u64) -> Result<Range<usize>, Unfit> {
        let range = || {
            let (start, bytes) = (usize::try_from(offset).ok()?, usize::try_from(bytes).ok()?);
            let range = start..start.checked_add(bytes)?;
            self.bytes.get(range.clone()).map(|_| range)
        };
        range().ok_or(Unfit::TOO_SHORT)
    }

    /// Finds the first program header of a kind.
    pub(super) fn find(&self, kind: elf::ProgramType) -> Option<&'a ProgramHeader> {
        self.headers.iter().find(|header| header.p_type.get(LE) == kind)
    }

    /// Finds the note of this crate's among those that the file has.
    pub(super) fn note(&self) -> Result<ImageNote, Unfit> {
        let header = self.find(elf::PT_NOTE).ok_or(Unfit::Foreign)?;
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
    pub(super) fn verify(&self, note: &ImageNote) -> Result<(), Unfit> {
        let header = self.find(elf::PT_NOTE).ok_or(Unfit::Foreign)?;
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
            hasher.update(self.bytes.get(at..zeros.start).ok_or(Unfit::TOO_SHORT)?);
            hasher.update(&[0; 32][..zeros.len().min(32)]);
            at = zeros.end;
        }
        hasher.update(self.bytes.get(at..).ok_or(Unfit::TOO_SHORT)?);
        if *hasher.finalize().as_bytes() == note.hash { Ok(()) } else { Err(Unfit::Changed) }
    }

    /// Returns the loaded segments, which are in the order of their addresses and apart.
    pub(super) fn segments(&self, note: &ImageNote) -> Result<Vec<ImageSegment>, Unfit> {
        let mut segments: Vec<ImageSegment> = Vec::new();
        let relro = self.find(elf::PT_GNU_RELRO).map(|header| header.p_vaddr.get(LE));
        for header in self.headers.iter().filter(|header| header.p_type.get(LE) == elf::PT_LOAD) {
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
            let class = position as u8;
            if segments.iter().any(|other| other.class == class) {
                return Err(Unfit::Malformed("it has two segments of one kind"));
            }
            let alignment = 1 << alignment;
            let writable = writable && !is_relro;
            segments.push(ImageSegment { class, file, address, bytes, alignment, executable, writable });
        }
        Ok(segments)
    }

    /// Reads the dynamic section.
    pub(super) fn tables(&self, image: &ImageIndex) -> Result<Tables, Unfit> {
        let header = self.find(elf::PT_DYNAMIC).ok_or(Unfit::Malformed("it has no dynamic section"))?;
        let range = image.file_range(header.p_vaddr.get(LE), header.p_filesz.get(LE))?;
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
                elf::DT_GNU_HASH => tables.hashes = value,
                elf::DT_SYMTAB => tables.symbols = value,
                elf::DT_RELA => tables.relocations.0 = value,
                elf::DT_RELASZ => tables.relocations.1 = value,
                elf::DT_RELR => tables.relr.0 = value,
                elf::DT_RELRSZ => tables.relr.1 = value,
                elf::DT_INIT_ARRAY => tables.initialisers.0 = value,
                elf::DT_INIT_ARRAYSZ => tables.initialisers.1 = value,
                elf::DT_FINI_ARRAY => tables.finalisers.0 = value,
                elf::DT_FINI_ARRAYSZ => tables.finalisers.1 = value,
                _ => {}
            }
        }
        Ok(tables)
    }
}
