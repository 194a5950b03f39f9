//! An image's segments, thread-local block, lists of functions and unwind table, as sections of the index.

use object::elf;

use super::headers::{File, Tables};
use super::index::ImageIndex;
use super::unfit::Unfit;
use crate::elf::elf_abi::{
    LE, SHF_ALLOC, SHF_EXECINSTR, SHF_TLS, SHF_WRITE, SHT_FINI_ARRAY, SHT_INIT_ARRAY, SHT_NOBITS, SHT_PROGBITS,
};
use crate::elf::index::{Array, ArrayKind, Name, ObjectIndex, PLAIN_PRIORITY, Section, ThreadLocal};

/// Makes sections of what the living half knows by sections.
pub(super) fn read(
    file: &File<'_>,
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
    if let Some(header) = file.find(elf::PT_TLS) {
        let (address, contents, bytes) = (header.p_vaddr.get(LE), header.p_filesz.get(LE), header.p_memsz.get(LE));
        let (alignment, offset) = (header.p_align.get(LE), header.p_offset.get(LE));
        let fits = bytes >= contents && bytes < 1 << 31 && alignment.is_power_of_two() && alignment <= 1 << 30;
        let is_inside = || {
            let at = image.file_range(address, contents).ok();
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
    let lists =
        [(tables.initialisers, ArrayKind::Init, SHT_INIT_ARRAY), (tables.finalisers, ArrayKind::Fini, SHT_FINI_ARRAY)];
    for ((address, size), kind, of) in lists.into_iter().filter(|((_, size), ..)| *size != 0) {
        let offset = image.file_range(address, size)?.start as u64;
        if !size.is_multiple_of(8) || !image.has(address, size, false) {
            return Err(Unfit::Malformed("a list of initialisers is not in its segment"));
        }
        let section = index.sections.len() as u32;
        index.sections.push(Section { kind: of, size, alignment: 8, offset, ..none });
        index.arrays.push(Array { kind, priority: PLAIN_PRIORITY, offset, size, section });
        image.arrays.push(address);
    }
    if let Some(header) = file.find(elf::PT_GNU_EH_FRAME) {
        let address = header.p_vaddr.get(LE);
        let range = image.file_range(address, 8)?;
        let bytes = file.bytes.get(range).unwrap_or_default();
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
