//! A shared object with nothing but a PT_TLS segment. When it is opened, the dynamic loader gives each thread, existing
//! ones included, a block of an object's thread-local variables.
//!
//! It has the parts that glibc's loader requires (elf/dl-load.c, elf/get-dynamic-info.h): one writable PT_LOAD, a
//! PT_DYNAMIC with empty tables, and a PT_GNU_STACK, without which stacks would become executable (a separate image
//! asks for that). For a block at a fixed distance from the thread pointer, one relocation makes the loader place it
//! there and store the distance (x86-64 psABI `R_X86_64_TPOFF64`, AAELF64 `R_AARCH64_TLS_TPREL64`).

use object::elf;

use super::Section;
use super::image_bytes::{ImageBytes, PAGE, PROGRAM_HEADER_SIZE};
use crate::elf::elf_abi::{EM_AARCH64, HEADER_SIZE, RELA_SIZE, SYMBOL_SIZE};

/// The layout of the file, and of memory from the load address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsImage {
    /// The file's first bytes: headers and tables.
    pub head: Vec<u8>,
    /// Offset of the block's contents, which end the file.
    pub contents_at: u64,
    /// Bytes of the file.
    pub size: u64,
    /// Offset of the word into which the loader writes the block's distance from the thread pointer, if that is fixed.
    pub distance_at: Option<u64>,
}

/// Upper bound of every address space.
const MOST: u64 = 1 << 47;

/// The layout of thread-local sections in each thread's block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsBlock {
    /// The sections' offsets, in the order given.
    pub offsets: Vec<u64>,
    /// Size of the block, and the part of it with contents.
    pub size: u64,
    pub content_size: u64,
    pub alignment: u64,
}

impl TlsBlock {
    /// Lays out sections with contents before those without. Returns `None` if they are too large.
    pub(crate) fn new(sections: &[Section]) -> Option<Self> {
        let mut block = Self { offsets: vec![0; sections.len()], size: 0, content_size: 0, alignment: 1 };
        for contents in [true, false] {
            for (section, offset) in sections.iter().zip(&mut block.offsets) {
                if section.has_contents != contents {
                    continue;
                }
                let alignment = section.alignment.max(1);
                *offset = block.size.checked_next_multiple_of(alignment)?;
                block.size = offset.checked_add(section.size).filter(|size| *size <= MOST)?;
                block.alignment = block.alignment.max(alignment);
            }
            if contents {
                block.content_size = block.size;
            }
        }
        Some(block)
    }
}

const PROGRAM_HEADERS: u16 = 4;
/// `DF_STATIC_TLS`
const STATIC_TLS: u64 = 0x10;

impl TlsImage {
    /// Creates the image for a block and a machine; `fixed` asks for the same distance from every thread pointer.
    pub(crate) fn new(machine: u16, block: &TlsBlock, fixed: bool) -> Self {
        Self::with_stack(machine, block, fixed, elf::PF_R.0 | elf::PF_W.0)
    }

    /// Creates an image that asks for executable stacks and has an empty block.
    pub(crate) fn asking_for_executable_stacks(machine: u16) -> Self {
        let block = TlsBlock { offsets: Vec::new(), size: 0, content_size: 0, alignment: 1 };
        Self::with_stack(machine, &block, false, elf::PF_R.0 | elf::PF_W.0 | elf::PF_X.0)
    }

    fn with_stack(machine: u16, block: &TlsBlock, fixed: bool, stack: u32) -> Self {
        let dynamic_at = HEADER_SIZE + u64::from(PROGRAM_HEADERS) * PROGRAM_HEADER_SIZE;
        let dynamic_size = 16 * if fixed { 10 } else { 6 };
        let symbols_at = dynamic_at + dynamic_size;
        let rela_at = symbols_at + SYMBOL_SIZE;
        let distance_at = rela_at + RELA_SIZE;
        let hash_at = distance_at + 8;
        let strings_at = hash_at + 16;
        let head_size = strings_at + 8;
        let contents_at = head_size.next_multiple_of(block.alignment.max(16));
        let size = contents_at + block.content_size;

        let mut out = ImageBytes::with_capacity(head_size as usize);
        out.file_header(machine, PROGRAM_HEADERS);
        let (read, write) = (elf::PF_R.0, elf::PF_W.0);
        out.segment(elf::PT_LOAD.0, read | write, 0, [size, size], PAGE);
        out.segment(elf::PT_DYNAMIC.0, read | write, dynamic_at, [dynamic_size, dynamic_size], 8);
        // glibc ignores a block of no bytes.
        let block_size = [block.content_size, block.size.max(1)];
        out.segment(elf::PT_TLS.0, read, contents_at, block_size, block.alignment.max(1));
        out.segment(elf::PT_GNU_STACK.0, stack, 0, [0, 0], 16);

        out.dynamic(elf::DT_HASH.0, hash_at);
        out.dynamic(elf::DT_STRTAB.0, strings_at);
        out.dynamic(elf::DT_SYMTAB.0, symbols_at);
        out.dynamic(elf::DT_STRSZ.0, 1);
        out.dynamic(elf::DT_SYMENT.0, SYMBOL_SIZE);
        if fixed {
            out.dynamic(elf::DT_RELA.0, rela_at);
            out.dynamic(elf::DT_RELASZ.0, RELA_SIZE);
            out.dynamic(elf::DT_RELAENT.0, RELA_SIZE);
            out.dynamic(elf::DT_FLAGS.0, STATIC_TLS);
        }
        out.dynamic(elf::DT_NULL.0, 0);

        // The null symbol stands for this object's block.
        out.raw(&[0; SYMBOL_SIZE as usize]);
        let kind = if machine == EM_AARCH64 { elf::R_AARCH64_TLS_TPREL.0 } else { elf::R_X86_64_TPOFF64.0 };
        [distance_at, kind.into(), 0].into_iter().for_each(|v| out.long(v));
        out.long(0);
        // One bucket and one chain, both empty.
        [1, 1, 0, 0].into_iter().for_each(|v| out.word(v));
        out.raw(&[0; 8]);
        Self { head: out.into_bytes(), contents_at, size, distance_at: fixed.then_some(distance_at) }
    }
}
