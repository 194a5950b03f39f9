//! What a link and the crash report ask of an image that was read.

use std::ops::Range;

use object::{elf, pod};

use super::unfit::Unfit;
use crate::elf::elf_abi::{LE, RawRela};
use crate::elf::image_note::{DSO_HANDLE, ImageNote, Reference, references};
use crate::elf::relocations::DynamicKind;

/// Bytes from which on an image is placed as a whole, and its file is worth mapping.
pub(crate) const LARGE: u64 = 64 << 10;

/// Bytes of a word that is relocated without an addend.
pub(super) const RELR_WORD: u64 = 8;

/// The part of an image that a link needs beside the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageIndex {
    pub(crate) segments: Vec<ImageSegment>,
    pub(crate) note: ImageNote,
    /// Bytes of the file: relocations by the loader, and references between segments.
    pub(super) relocations: Range<usize>,
    /// Those without addends.
    pub(super) relr: Range<usize>,
    pub(super) references: Range<usize>,
    pub(super) addresses: Range<usize>,
    /// Functions, with room in front, and their names.
    pub(super) functions: Range<usize>,
    pub(super) names: Range<usize>,
    /// What functions need of the CPU.
    pub(super) cpu: Range<usize>,
    /// Signatures of kernels.
    pub(super) contracts: Range<usize>,
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
    pub(crate) export_tables: ExportTables,
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

impl ImageSegment {
    /// Returns whether nothing but references between segments changes it.
    pub(crate) fn stays_as_in_file(&self) -> bool {
        // The first two classes are what is read and what is run.
        self.class < 2 && self.bytes == self.file.len() as u64
    }
}

/// Where the file has the tables: of hashes, of symbols (imports come first) and of their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ExportTables {
    pub(super) hashes: Range<usize>,
    pub(super) symbols: Range<usize>,
    pub(super) strings: Range<usize>,
}

/// A relocation by the loader that does not move an address of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ImageRelocation {
    pub(crate) at: u64,
    pub(crate) kind: DynamicKind,
    /// The import; `None` for the image itself.
    pub(crate) import: Option<u32>,
    pub(crate) addend: i64,
}

impl ExportTables {
    /// The bytes of the file from the first table to the last.
    pub(crate) fn span(&self) -> Range<usize> {
        let all = [&self.hashes, &self.symbols, &self.strings];
        let start = all.iter().map(|range| range.start).min().unwrap_or(0);
        start..all.iter().map(|range| range.end).max().unwrap_or(start)
    }
}

impl ImageIndex {
    /// Gives `to` the relocations by the loader that have addends. Most move an address of the image: `relative` gets
    /// those, as place and address; `other` gets the rest. Returns false where `relative` returned it, which ends them,
    /// as does an error.
    pub(crate) fn relocations<T, E>(
        &self,
        machine: u16,
        bytes: &[u8],
        to: &mut T,
        relative: impl Fn(&mut T, u64, u64) -> bool,
        other: impl Fn(&mut T, ImageRelocation) -> Result<(), E>,
    ) -> Result<bool, E> {
        let table = bytes.get(self.relocations.clone()).unwrap_or_default();
        let entries: &[RawRela] = pod::slice_from_all_bytes(table).unwrap_or_default();
        let is_relative = u64::from(DynamicKind::Relative.number(machine));
        for entry in entries {
            let (info, at, addend) = (entry.r_info.get(LE), entry.r_offset.get(LE), entry.r_addend.get(LE));
            if info == is_relative {
                if !relative(to, at, addend as u64) {
                    return Ok(false);
                }
            } else if let Some(kind) = DynamicKind::of(machine, info as u32) {
                // The null symbol stands for the image; imports come behind it.
                let import = ((info >> 32) as u32).checked_sub(1);
                other(to, ImageRelocation { at, kind, import, addend })?;
            }
        }
        Ok(true)
    }

    /// Returns the places of those without addends, which move the addresses that are there.
    pub(crate) fn relr_places(&self, bytes: &[u8]) -> impl Iterator<Item = u64> {
        RelrPlaces { entries: self.relr(bytes).unwrap_or_default().iter(), bits: 0, from: 0, next: 0 }
    }

    /// Returns their table: addresses, and bitmaps of words behind them.
    pub(super) fn relr<'a>(&self, bytes: &'a [u8]) -> Option<&'a [elf::Relr64<LE>]> {
        pod::slice_from_all_bytes(bytes.get(self.relr.clone())?).ok()
    }

    /// Returns the word that the file has at an address.
    pub(crate) fn word(&self, bytes: &[u8], at: u64) -> Option<u64> {
        let word = bytes.get(self.file_range(at, RELR_WORD).ok()?)?;
        word.first_chunk().map(|word| u64::from_le_bytes(*word))
    }

    /// Returns the fields that depend on where the segments are. One that cannot be read is an error, and ends them.
    pub(crate) fn references(&self, machine: u16, bytes: &[u8]) -> impl Iterator<Item = Result<Reference, ()>> {
        let distances = references(machine, bytes.get(self.references.clone()).unwrap_or_default());
        distances.chain(self.addresses(machine, bytes))
    }

    /// Returns those of them that depend on more than the distances of segments.
    pub(crate) fn addresses(&self, machine: u16, bytes: &[u8]) -> impl Iterator<Item = Result<Reference, ()>> {
        references(machine, bytes.get(self.addresses.clone()).unwrap_or_default())
    }

    /// Returns whether its segments keep the distances that they have in the file. Smaller ones may be packed, and a
    /// mapping of their own would cost more than their references.
    pub(crate) fn keeps_distances(&self) -> bool {
        self.segments.iter().map(|segment| segment.bytes).sum::<u64>() >= LARGE
    }

    /// Returns whether all references can be read, and lie in segments.
    pub(crate) fn has_sound_references(&self, machine: u16, bytes: &[u8]) -> bool {
        self.has_sound(self.references(machine, bytes))
    }

    pub(super) fn has_sound(&self, mut references: impl Iterator<Item = Result<Reference, ()>>) -> bool {
        references.all(|reference| {
            let Ok(reference) = reference else { return false };
            let is_inside = self.has(reference.at, u64::from(reference.kind.width), true);
            let is_known = match reference.segment {
                DSO_HANDLE => self.note.dso_handle != 0,
                class => self.segments.iter().any(|segment| segment.class == class),
            };
            reference.kind.address_form().is_some() && is_inside && is_known
        })
    }

    /// Returns the list of what functions need of the CPU.
    pub(crate) fn cpu<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.cpu.clone()).unwrap_or_default()
    }

    /// Returns the signatures of kernels, a line for each; nothing where it is no text.
    pub(crate) fn contracts<'a>(&self, bytes: &'a [u8]) -> &'a str {
        std::str::from_utf8(bytes.get(self.contracts.clone()).unwrap_or_default()).unwrap_or_default()
    }

    /// Returns the segment of its code.
    pub(crate) fn code(&self) -> Option<&ImageSegment> {
        self.segments.iter().find(|segment| segment.executable)
    }

    /// Returns the segment that has an address, its end included.
    pub(crate) fn segment_at(&self, address: u64) -> Option<usize> {
        self.segments.iter().position(|segment| (segment.address..=segment.address + segment.bytes).contains(&address))
    }

    /// Returns the bytes that the file has of the segment at an address, unless it is executable.
    pub(super) fn data_at(&self, address: u64) -> Range<u64> {
        let bytes = |segment: &ImageSegment| segment.address..segment.address + segment.file.len() as u64;
        let mut data = self.segments.iter().filter(|segment| !segment.executable).map(bytes);
        data.find(|bytes| bytes.contains(&address)).unwrap_or_default()
    }

    /// Returns whether bytes of the file are mapped at an address, in a segment that is not executable unless `code`.
    pub(super) fn has(&self, address: u64, bytes: u64, code: bool) -> bool {
        let inside = |segment: &ImageSegment| {
            let from = address.checked_sub(segment.address)?;
            let end = from.checked_add(bytes)?;
            Some(end <= segment.file.len() as u64 && (code || !segment.executable))
        };
        self.segments.iter().any(|segment| inside(segment).unwrap_or(false))
    }

    /// Returns where the file has the bytes of an address.
    pub(super) fn file_range(&self, address: u64, bytes: u64) -> Result<Range<usize>, Unfit> {
        let inside = |segment: &ImageSegment| {
            let from = usize::try_from(address.checked_sub(segment.address)?).ok()?;
            let end = from.checked_add(usize::try_from(bytes).ok()?)?;
            (end <= segment.file.len()).then_some(segment.file.start + from..segment.file.start + end)
        };
        self.segments.iter().find_map(inside).ok_or(Unfit::Malformed("a table lies outside its segments"))
    }
}

/// The places in a table of relocations without addends. `object` looks at each bit, which takes a third of a
/// millisecond for CPython.
struct RelrPlaces<'a> {
    entries: std::slice::Iter<'a, elf::Relr64<LE>>,
    /// The bitmap that is gone through, and the place of its first word.
    bits: u64,
    from: u64,
    /// The place of the next bitmap's first word.
    next: u64,
}

impl Iterator for RelrPlaces<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        while self.bits == 0 {
            let entry = self.entries.next()?.0.get(LE);
            if entry & 1 == 0 {
                self.next = entry.wrapping_add(RELR_WORD);
                return Some(entry);
            }
            (self.bits, self.from) = (entry >> 1, self.next);
            self.next = self.next.wrapping_add(RELR_WORD * u64::from(u64::BITS - 1));
        }
        let word = self.bits.trailing_zeros();
        self.bits &= self.bits - 1;
        Some(self.from.wrapping_add(RELR_WORD * u64::from(word)))
    }
}
