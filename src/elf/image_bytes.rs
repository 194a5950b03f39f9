//! Writes images for the dynamic loader and for debuggers: the file header, segments, and little-endian numbers.

use object::elf;

use crate::elf::elf_abi::HEADER_SIZE;

pub(crate) const PROGRAM_HEADER_SIZE: u64 = 56;
/// A multiple of every page size.
pub(super) const PAGE: u64 = 64 << 10;

/// The bytes of an image so far.
pub(crate) struct ImageBytes(Vec<u8>);

impl ImageBytes {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Appends a symbol (`Elf64_Sym`) of default visibility. `info`: its binding and its kind.
    pub(crate) fn symbol(&mut self, name: u32, info: u8, section: u16, value: u64, size: u64) {
        self.word(name);
        self.raw(&[info, 0]);
        self.half(section);
        self.long(value);
        self.long(size);
    }

    pub(crate) fn half(&mut self, value: u16) {
        self.raw(&value.to_le_bytes());
    }

    pub(crate) fn word(&mut self, value: u32) {
        self.raw(&value.to_le_bytes());
    }

    pub(crate) fn long(&mut self, value: u64) {
        self.raw(&value.to_le_bytes());
    }

    /// Writes the header of a shared object with this number of segments, whose headers come next.
    pub(crate) fn file_header(&mut self, machine: u16, segments: u16) {
        // ELFCLASS64, ELFDATA2LSB, EV_CURRENT
        self.raw(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        self.half(elf::ET_DYN.0);
        self.half(machine);
        self.word(1);
        // Entry point, program headers, section headers (none), flags.
        [0, HEADER_SIZE, 0].into_iter().for_each(|v| self.long(v));
        self.word(0);
        [HEADER_SIZE as u16, PROGRAM_HEADER_SIZE as u16, segments, 0, 0, 0].into_iter().for_each(|v| self.half(v));
    }

    /// Writes the header of a segment at one offset in file and memory, with its sizes there.
    pub(crate) fn segment(&mut self, kind: u32, flags: u32, offset: u64, sizes: [u64; 2], alignment: u64) {
        self.segment_at(kind, flags, [offset, offset], sizes, alignment);
    }

    /// Writes the header of a segment at an offset in the file and an address, with its sizes there.
    pub(crate) fn segment_at(
        &mut self,
        kind: u32,
        flags: u32,
        [offset, address]: [u64; 2],
        [file, memory]: [u64; 2],
        alignment: u64,
    ) {
        self.word(kind);
        self.word(flags);
        [offset, address, address, file, memory, alignment].into_iter().for_each(|v| self.long(v));
    }

    /// Writes an entry of the dynamic section.
    pub(crate) fn dynamic(&mut self, tag: i64, value: u64) {
        self.long(tag as u64);
        self.long(value);
    }
}

/// Writes bytes, unless they would leave the slice.
pub(crate) fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(field) = at.checked_add(bytes.len()).and_then(|end| out.get_mut(at..end)) {
        field.copy_from_slice(bytes);
    }
}
