//! A shared object that stands for an arena: a page of headers and, behind it, the arena's addresses without contents.
//!
//! It has the parts that glibc's loader requires (elf/dl-load.c, elf/get-dynamic-info.h), a PT_GNU_STACK, without which
//! stacks would become executable, and an empty table of frames, as an unwinder may look for one (libgcc,
//! `unwind-dw2-fde-dip.c`). All of its addresses are final: it has to be loaded where it says.
//!
//! The tables of symbols and of names are elsewhere. Their sizes are in the page, and change as symbols come and go. The
//! symbols are in no chain of the hash table: `dladdr` reads them one after the other, and `dlsym` finds none.

use std::ops::Range;

use object::elf;

use super::image_bytes::{ImageBytes, PROGRAM_HEADER_SIZE};
use crate::elf::elf_abi::{HEADER_SIZE, SYMBOL_SIZE};

/// The page of headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ArenaImage(pub(crate) Vec<u8>);

const PROGRAM_HEADERS: u16 = 5;
const DYNAMIC_AT: usize = (HEADER_SIZE + PROGRAM_HEADERS as u64 * PROGRAM_HEADER_SIZE) as usize;
const DYNAMIC_ENTRIES: usize = 6;
const HASH_AT: usize = DYNAMIC_AT + DYNAMIC_ENTRIES * 16;
const FRAMES_AT: usize = HASH_AT + 16;
const FRAMES_SIZE: usize = 16;

/// Encodings of the table of frames (LSB, `.eh_frame_hdr`): relative to the field, a number, relative to the table.
const FRAMES_ENCODINGS: [u8; 4] = [1, 0x1b, 0x03, 0x3b];

impl ArenaImage {
    /// Offset of the flags of the arena's segment (4 bytes).
    pub(crate) const ARENA_FLAGS: usize = (HEADER_SIZE + PROGRAM_HEADER_SIZE) as usize + 4;
    /// Offset of the number of symbols (4 bytes), the null symbol among them.
    pub(crate) const SYMBOLS: usize = HASH_AT + 4;
    /// Offset of the size of the table of names (8 bytes).
    pub(crate) const NAMES_SIZE: usize = DYNAMIC_AT + 3 * 16 + 8;

    /// Creates the page, which is to be loaded at `headers`; the arena begins behind it. There are no symbols.
    pub(crate) fn new(machine: u16, headers: Range<u64>, arena_end: u64, symbols: u64, names: u64) -> Self {
        let (page, base) = (headers.end - headers.start, headers.start);
        let mut out = ImageBytes::with_capacity(page as usize);
        out.file_header(machine, PROGRAM_HEADERS);

        // None is writable: the loader first maps the whole file as its first segment, and memory of that size that
        // can be written may be refused.
        let (read, write) = (elf::PF_R.0, elf::PF_W.0);
        let mut segment = |kind: u32, flags: u32, offset: u64, file: u64, memory: u64, alignment: u64| {
            let address = if memory == 0 { 0 } else { base + offset };
            out.segment_at(kind, flags, [offset, address], [file, memory], alignment);
        };
        segment(elf::PT_LOAD.0, read, 0, page, page, page);
        segment(elf::PT_LOAD.0, read, page, 0, arena_end - headers.end, page);
        let dynamic = DYNAMIC_ENTRIES as u64 * 16;
        segment(elf::PT_DYNAMIC.0, read, DYNAMIC_AT as u64, dynamic, dynamic, 8);
        segment(elf::PT_GNU_EH_FRAME.0, read, FRAMES_AT as u64, FRAMES_SIZE as u64, FRAMES_SIZE as u64, 4);
        segment(elf::PT_GNU_STACK.0, read | write, 0, 0, 0, 16);

        out.dynamic(elf::DT_HASH.0, base + HASH_AT as u64);
        out.dynamic(elf::DT_SYMTAB.0, symbols);
        out.dynamic(elf::DT_STRTAB.0, names);
        out.dynamic(elf::DT_STRSZ.0, 0);
        out.dynamic(elf::DT_SYMENT.0, SYMBOL_SIZE);
        out.dynamic(elf::DT_NULL.0, 0);

        // One bucket, which is empty, and no symbols.
        [1, 0, 0, 0].into_iter().for_each(|v| out.word(v));
        // No functions; the frames themselves are the terminator behind.
        out.raw(&FRAMES_ENCODINGS);
        [8, 0, 0].into_iter().for_each(|v| out.word(v));
        let mut bytes = out.into_bytes();
        bytes.resize(page as usize, 0);
        Self(bytes)
    }
}

#[cfg(test)]
mod tests {
    use object::read::elf::{FileHeader as _, ProgramHeader as _};
    use object::{LittleEndian, elf};

    use super::*;
    use crate::elf::EM_X86_64;

    #[test]
    fn readers_find_what_is_where_it_says() {
        let (page, base) = (0x1000, 0x7000_0000_0000_u64);
        let (symbols, names) = (0x1234_5000, 0x5678_9000);
        let image = ArenaImage::new(EM_X86_64, base..base + page, base + page + (8 << 20), symbols, names).0;
        assert_eq!(image.len() as u64, page);
        let header = elf::FileHeader64::<LittleEndian>::parse(&*image).unwrap();
        let segments = header.program_headers(LittleEndian, &*image).unwrap();
        let loaded: Vec<_> = segments.iter().filter(|s| s.p_type(LittleEndian) == elf::PT_LOAD).collect();
        let at = |s: &elf::ProgramHeader64<LittleEndian>| (s.p_vaddr(LittleEndian), s.p_memsz(LittleEndian));
        assert_eq!(loaded.iter().map(|s| at(s)).collect::<Vec<_>>(), [(base, page), (base + page, 8 << 20)]);
        assert!(segments.iter().all(|s| s.p_type(LittleEndian) == elf::PT_GNU_STACK || s.p_flags(LittleEndian).0 == 4));
        let stack = segments.iter().find(|s| s.p_type(LittleEndian) == elf::PT_GNU_STACK).unwrap();
        assert_eq!(stack.p_flags(LittleEndian).0, 6, "stacks stay as they are");
        let entries = segments.iter().find_map(|s| s.dynamic(LittleEndian, &*image).unwrap()).unwrap();
        let value = |tag: elf::DynamicTag| {
            entries.iter().find(|e| e.d_tag.get(LittleEndian) == tag).unwrap().d_val.get(LittleEndian)
        };
        assert_eq!((value(elf::DT_SYMTAB), value(elf::DT_STRTAB)), (symbols, names));
        let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
        let hash = (value(elf::DT_HASH) - base) as usize;
        assert_eq!([hash, hash + 4, hash + 8].map(word), [1, 0, 0]);
        assert_eq!(ArenaImage::SYMBOLS, hash + 4);
        assert_eq!(word(ArenaImage::ARENA_FLAGS), 4);
        // The table of frames leads to a terminator.
        let frames = FRAMES_AT + 4;
        assert_eq!((word(frames + word(frames) as usize), word(frames + 4)), (0, 0));
    }
}
