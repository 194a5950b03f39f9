//! The note by which an image is known, and its list of references between segments: what the loader of this crate has
//! beside the tables of the dynamic loader.

use object::elf;

use super::elf_abi::{HEADER_SIZE, SECTION_SIZE, SYMBOL_SIZE};
use super::image_bytes::ImageBytes;
use super::relocations::{AddressForm, Kind, Table};

/// The name and the type of the note.
pub(crate) const OWNER: &[u8; 8] = b"slabjit\0";
pub(crate) const IMAGE_NOTE: u32 = 1;
/// The last format. A loader refuses those that it does not know.
pub(crate) const FORMAT: u32 = RELR_FORMAT;
/// The first format that is still read, and that of images with relative relocations that a loader of the first does
/// not see.
const FIRST_FORMAT: u32 = 3;
const RELR_FORMAT: u32 = 4;
/// The name of the section of references, which is not mapped.
pub(crate) const REFERENCES: &str = ".slabjit.references";
/// The name of the section of what functions need of the CPU, which is not mapped.
pub(crate) const CPU: &str = ".slabjit.cpu";
/// The name of the section of kernels' signatures, a line for each in the order of bytes, which is not mapped.
pub(crate) const CONTRACTS: &str = ".slabjit.contracts";
/// The name of the section of the linked objects' BLAKE3 hashes, in the order of the link, which is not mapped.
pub(crate) const OBJECTS: &str = ".slabjit.objects";

/// The name of the section of functions in the code, which is not mapped: symbols in the order of addresses. Their names
/// follow in `.strtab`. With headers in the room in front, both are a file that debuggers read.
pub(crate) const FUNCTIONS: &str = ".slabjit.functions";
/// The bytes of that room: a file's header, those of four sections, and the null symbol.
pub(crate) const FUNCTIONS_ROOM: usize = (HEADER_SIZE + 4 * SECTION_SIZE + SYMBOL_SIZE) as usize;
/// What is in front of the functions' names: those of that file's sections.
pub(crate) const NAMES_START: &str = "\0.text\0.symtab\0.strtab\0";
/// Of each of these symbols, what follows its name: kind, visibility, and the section's number in two bytes.
pub(crate) const FUNCTION: [u8; 4] = [elf::STB_GLOBAL.0 << 4 | elf::STT_FUNC.0, 0, 1, 0];

const HASH: usize = 32;
/// Bytes of the note's contents.
pub(crate) const NOTE_SIZE: usize = 8 + 16 * 8 + HASH;

/// What the note says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ImageNote {
    /// The alignment of each segment's sections, as a power of two.
    pub(crate) alignments: [u8; 4],
    /// Entries of `.dynsym`, and how many of the first ones are imports.
    pub(crate) symbols: u64,
    pub(crate) imports: u64,
    /// Address of the GOT, and of the word that stands for the image; 0 for none.
    pub(crate) got: u64,
    pub(crate) dso_handle: u64,
    /// File offset and bytes of the references.
    pub(crate) references: (u64, u64),
    /// Of those that are written also where the segments keep their distances.
    pub(crate) addresses: (u64, u64),
    /// Of the functions, with the room in front, and of their names.
    pub(crate) functions: (u64, u64),
    pub(crate) names: (u64, u64),
    /// Of what functions need of the CPU.
    pub(crate) cpu: (u64, u64),
    /// Of kernels' signatures.
    pub(crate) contracts: (u64, u64),
    /// Whether there is a table of relative relocations without addends (`DT_RELR`).
    pub(crate) has_relr: bool,
    /// The hash of the file with zeros in the place of this and of the build ID.
    pub(crate) hash: [u8; HASH],
}

impl ImageNote {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut out = ImageBytes::with_capacity(NOTE_SIZE);
        out.word(if self.has_relr { RELR_FORMAT } else { FIRST_FORMAT });
        out.raw(&self.alignments);
        [self.symbols, self.imports, self.got, self.dso_handle].into_iter().for_each(|word| out.long(word));
        for (at, bytes) in [self.references, self.functions, self.names, self.cpu, self.contracts, self.addresses] {
            out.long(at);
            out.long(bytes);
        }
        out.raw(&self.hash);
        out.into_bytes()
    }

    /// Reads the note's contents. An unknown format is the error.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Option<u32>> {
        let format = bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)).ok_or(None)?;
        let has_relr = match format {
            FIRST_FORMAT => false,
            RELR_FORMAT => true,
            _ => return Err(Some(format)),
        };
        let word = |i: usize| bytes.get(8 + 8 * i..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let read = || {
            Some(Self {
                alignments: *bytes.get(4..)?.first_chunk()?,
                symbols: word(0)?,
                imports: word(1)?,
                got: word(2)?,
                dso_handle: word(3)?,
                references: (word(4)?, word(5)?),
                functions: (word(6)?, word(7)?),
                names: (word(8)?, word(9)?),
                cpu: (word(10)?, word(11)?),
                contracts: (word(12)?, word(13)?),
                addresses: (word(14)?, word(15)?),
                has_relr,
                hash: *bytes.get(NOTE_SIZE - HASH..)?.first_chunk()?,
            })
        };
        read().ok_or(None)
    }
}

/// A field whose value depends on the distance of segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) at: u64,
    pub(crate) kind: &'static Kind,
    /// The address that the kind writes in its form. With its addend it may lie outside.
    pub(crate) target: u64,
    /// The segment that the symbol is in, or [`DSO_HANDLE`].
    pub(crate) segment: u8,
}

impl Reference {
    /// Returns whether its value depends on where the image is, and not only on the segments' distances.
    pub(crate) fn is_address(&self) -> bool {
        self.segment == DSO_HANDLE || self.kind.address_form() == Some(AddressForm::Whole)
    }
}

/// In place of a segment: the word that stands for the image.
pub(crate) const DSO_HANDLE: u8 = 4;
const SEGMENT_BITS: u32 = 3;

/// Writes references, in ascending order of their fields.
#[derive(Debug, Default)]
pub(crate) struct ReferenceList {
    bytes: Vec<u8>,
    last: u64,
}

impl ReferenceList {
    pub(crate) fn push(&mut self, machine: u16, reference: Reference) {
        let Some((position, _)) = Table::of(machine).get(reference.kind.number) else { return };
        push_number(&mut self.bytes, reference.at.wrapping_sub(self.last));
        self.last = reference.at;
        self.bytes.push(position as u8);
        let distance = reference.target.wrapping_sub(reference.at) as i64;
        let zigzag = (distance << 1 ^ distance >> 63) as u64;
        push_number(&mut self.bytes, zigzag << SEGMENT_BITS | u64::from(reference.segment));
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Reads references. One that cannot be read ends them, with an error.
pub(crate) fn references(machine: u16, bytes: &[u8]) -> impl Iterator<Item = Result<Reference, ()>> {
    let (table, mut bytes, mut at) = (Table::of(machine), bytes, 0_u64);
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let mut read = || {
            at = at.wrapping_add(number(&mut bytes)?);
            let (position, rest) = bytes.split_first()?;
            bytes = rest;
            let kind = table.kinds().get(usize::from(*position))?;
            let packed = number(&mut bytes)?;
            let (zigzag, segment) = (packed >> SEGMENT_BITS, packed as u8 & ((1 << SEGMENT_BITS) - 1));
            let distance = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
            Some(Reference { at, kind, target: at.wrapping_add_signed(distance), segment })
        };
        let read = read();
        if read.is_none() {
            bytes = &[];
        }
        Some(read.ok_or(()))
    })
}

/// Writes a ULEB128.
pub(crate) fn push_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads a ULEB128; of an SLEB128, its bytes.
pub(crate) fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::{EM_AARCH64, EM_X86_64};

    #[test]
    fn references_are_read_as_they_were_written() {
        for machine in [EM_X86_64, EM_AARCH64] {
            let kinds = Table::of(machine).kinds();
            let all: Vec<Reference> = (0..)
                .zip(kinds)
                .map(|(i, kind)| Reference {
                    at: 7 + i * i * i,
                    kind,
                    target: (i << 29).wrapping_sub(3) & 0x7fff_ffff,
                    segment: i as u8 % 5,
                })
                .collect();
            let mut list = ReferenceList::default();
            all.iter().for_each(|reference| list.push(machine, *reference));
            let bytes = list.into_bytes();
            assert_eq!(references(machine, &bytes).collect::<Result<Vec<_>, _>>().unwrap(), all);
            // Cut off inside one, that one is an error.
            assert!(references(machine, &bytes[..bytes.len() - 1]).last().unwrap().is_err());
            assert!(references(machine, &[0, 255, 0]).next().unwrap().is_err());
            assert!(references(machine, &[0x80; 20]).next().unwrap().is_err());
        }
    }

    #[test]
    fn notes_are_read_as_they_were_written() {
        for (has_relr, format) in [(false, FIRST_FORMAT), (true, RELR_FORMAT)] {
            let (alignments, hash) = ([1, 2, 3, 4], [9; HASH]);
            let note = ImageNote { alignments, symbols: 5, got: 1 << 40, has_relr, hash, ..Default::default() };
            let bytes = note.write();
            assert_eq!((bytes.len(), &bytes[..4]), (NOTE_SIZE, &format.to_le_bytes()[..]));
            assert_eq!(ImageNote::read(&bytes), Ok(note));
            assert_eq!(ImageNote::read(&bytes[..NOTE_SIZE - 1]), Err(None));
        }
        for unknown in [0, FIRST_FORMAT - 1, FORMAT + 1] {
            assert_eq!(ImageNote::read(&unknown.to_le_bytes()), Err(Some(unknown)));
        }
    }
}
