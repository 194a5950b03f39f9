//! The headers of a file with names of functions: one section of code, its symbols, and their names.

use std::ops::Range;

use object::elf;

use crate::elf::{HOST_MACHINE, put};

const HEADER: usize = 64;
const SECTIONS: usize = 4;
const SECTION: usize = 64;
pub(super) const SYMBOL: usize = 24;
/// Offset of the symbols: behind the headers.
pub(super) const SYMBOLS_AT: usize = HEADER + SECTIONS * SECTION;
/// Offsets of the section with the functions, of the symbol table, and of the table of names.
const CODE: usize = HEADER + SECTION;
const SYMBOL_TABLE: usize = HEADER + 2 * SECTION;
const STRINGS: usize = HEADER + 3 * SECTION;
const SH_ADDR: usize = 16;
const SH_SIZE: usize = 32;

/// Writes them. The sizes are bytes of symbols and of names; the names begin with [`NAMES_START`]. In a relocatable file
/// the symbols count from the start of the code, else from 0.
///
/// [`NAMES_START`]: crate::elf::image_note::NAMES_START
pub(super) fn put_headers(
    file: &mut [u8],
    kind: elf::FileType,
    sizes: [usize; 2],
    strings_at: usize,
    code: &Range<u64>,
) {
    // ELFCLASS64, ELFDATA2LSB, EV_CURRENT
    put(file, 0, &[0x7f, b'E', b'L', b'F', 2, 1, 1]);
    put(file, 16, &kind.0.to_le_bytes());
    put(file, 18, &HOST_MACHINE.to_le_bytes());
    put(file, 20, &1_u32.to_le_bytes());
    put(file, 40, &(HEADER as u64).to_le_bytes());
    let counts = [HEADER as u16, 0, 0, SECTION as u16, SECTIONS as u16, 3];
    counts.iter().enumerate().for_each(|(i, count)| put(file, 52 + i * 2, &count.to_le_bytes()));
    let mut section = |at: usize, words: [u32; 4], longs: [u64; 6]| {
        let [name, kind, link, info] = words;
        let [flags, address, offset, size, alignment, entry] = longs;
        [name, kind].iter().enumerate().for_each(|(i, word)| put(file, at + i * 4, &word.to_le_bytes()));
        let longs = [flags, address, offset, size];
        longs.iter().enumerate().for_each(|(i, long)| put(file, at + 8 + i * 8, &long.to_le_bytes()));
        [link, info].iter().enumerate().for_each(|(i, word)| put(file, at + 40 + i * 4, &word.to_le_bytes()));
        let longs = [alignment, entry];
        longs.iter().enumerate().for_each(|(i, long)| put(file, at + 48 + i * 8, &long.to_le_bytes()));
    };
    let flags = elf::SHF_ALLOC.0 | elf::SHF_EXECINSTR.0;
    section(CODE, [1, elf::SHT_NOBITS.0, 0, 0], [flags, 0, SYMBOLS_AT as u64, 0, 1, 0]);
    // All symbols but the null symbol are global.
    section(SYMBOL_TABLE, [7, elf::SHT_SYMTAB.0, 3, 1], [0, 0, SYMBOLS_AT as u64, 0, 8, SYMBOL as u64]);
    section(STRINGS, [15, elf::SHT_STRTAB.0, 0, 0], [0, 0, strings_at as u64, 0, 1, 0]);
    put_sizes(file, sizes, code);
}

/// Writes what changes.
pub(super) fn put_sizes(file: &mut [u8], [symbols, names]: [usize; 2], code: &Range<u64>) {
    let code = if code.is_empty() { 0..0 } else { code.clone() };
    put(file, CODE + SH_ADDR, &code.start.to_le_bytes());
    put(file, CODE + SH_SIZE, &(code.end - code.start).to_le_bytes());
    put(file, STRINGS + SH_SIZE, &(names as u64).to_le_bytes());
    put(file, SYMBOL_TABLE + SH_SIZE, &(symbols as u64).to_le_bytes());
}
