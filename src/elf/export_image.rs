//! A shared object with nothing but names: the dynamic loader finds them in it, and they lead to code that it has not
//! loaded. Symbols are absolute (glibc from 2.28 on adds no load address to them), and become defined when their
//! addresses are written into the loaded image.
//!
//! glibc (elf/dl-lookup.c, `check_match`) shows a hidden symbol of version 2 to relocations without a version, and not
//! to `dlsym`, which asks for the newest version. So there are images for either.

use std::ops::Range;

use object::elf;

use super::SymbolKind;
use super::gnu_hash::{GNU_HASH_HEADER, gnu_hash, gnu_hash_bucket, gnu_hash_filter_bytes, gnu_hash_table};
use super::image_bytes::{ImageBytes, PAGE, PROGRAM_HEADER_SIZE};
use crate::elf::elf_abi::{HEADER_SIZE, SHN_ABS, SHN_UNDEF, STB_GLOBAL, STT_FUNC, STT_NOTYPE, STT_OBJECT, SYMBOL_SIZE};

/// The lookups that find an image's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Relocations of shared libraries.
    Relocations,
    /// `dlsym`, and relocations that find the name nowhere before.
    Anyone,
}

/// The file, which is the same in memory from the load address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExportImage {
    pub bytes: Vec<u8>,
    /// Offset of the symbol table.
    pub symbols_at: u64,
    /// The place of each name in the symbol table, in the order given.
    pub places: Vec<u32>,
    /// Offsets of the Bloom filter: the loader finds no name if it is all zeros.
    pub filter: Range<u64>,
}

/// Offset of a symbol's section index in its record, and of its value.
pub(crate) const SYMBOL_SECTION: u64 = 6;
pub(crate) const SYMBOL_VALUE: u64 = 8;
/// The section index of a symbol with an address.
pub(crate) const DEFINED: u16 = SHN_ABS;

const PROGRAM_HEADERS: u16 = 3;
/// The least version index that `dlsym` does not take for the base version, and the flag of hidden ones.
const HIDDEN: u16 = 2 | 0x8000;
const VERSION: &[u8] = b"SLABJIT\0";

impl ExportImage {
    /// Creates an image of these distinct names without addresses. `finalisers`: functions to be called when it is
    /// unloaded, the last one first. `None` if the names are too long for one.
    pub(crate) fn new(
        machine: u16,
        names: &[(&str, SymbolKind)],
        audience: Audience,
        finalisers: &[u64],
    ) -> Option<Self> {
        let count = u32::try_from(names.len()).ok().filter(|count| *count < u32::MAX / 16)?;
        let symbols = u64::from(count) + 1;
        let mut sorted: Vec<(u32, usize)> = names.iter().map(|(name, _)| gnu_hash(name)).zip(0..).collect();
        sorted.sort_by_key(|(hash, _)| gnu_hash_bucket(*hash, names.len()));
        let table = gnu_hash_table(&sorted.iter().map(|(hash, _)| *hash).collect::<Vec<_>>(), 1);

        let versioned = audience == Audience::Relocations;
        let strings_size: u64 = 1 + names.iter().map(|(name, _)| name.len() as u64 + 1).sum::<u64>();
        let version_at = u32::try_from(strings_size).ok()?;
        let dynamic_at = HEADER_SIZE + u64::from(PROGRAM_HEADERS) * PROGRAM_HEADER_SIZE;
        let dynamic_size = 16 * (6 + 2 * u64::from(!finalisers.is_empty()) + 3 * u64::from(versioned));
        let symbols_at = dynamic_at + dynamic_size;
        let finalisers_at = symbols_at + symbols * SYMBOL_SIZE;
        let hash_at = finalisers_at + 8 * finalisers.len() as u64;
        let filter_at = hash_at + GNU_HASH_HEADER;
        let filter = filter_at..filter_at + gnu_hash_filter_bytes(names.len());
        let definition_at = hash_at + table.len() as u64;
        let versions_at = definition_at + if versioned { 28 } else { 0 };
        let strings_at = versions_at + if versioned { 2 * symbols } else { 0 };
        let all_strings = strings_size + if versioned { VERSION.len() as u64 } else { 0 };
        let size = strings_at + all_strings;

        let mut out = ImageBytes::with_capacity(usize::try_from(size).ok()?);
        out.file_header(machine, PROGRAM_HEADERS);
        let access = elf::PF_R.0 | elf::PF_W.0;
        out.segment(elf::PT_LOAD.0, access, 0, [size, size], PAGE);
        out.segment(elf::PT_DYNAMIC.0, access, dynamic_at, [dynamic_size, dynamic_size], 8);
        out.segment(elf::PT_GNU_STACK.0, access, 0, [0, 0], 16);

        out.dynamic(elf::DT_GNU_HASH.0, hash_at);
        out.dynamic(elf::DT_STRTAB.0, strings_at);
        out.dynamic(elf::DT_SYMTAB.0, symbols_at);
        out.dynamic(elf::DT_STRSZ.0, all_strings);
        out.dynamic(elf::DT_SYMENT.0, SYMBOL_SIZE);
        if !finalisers.is_empty() {
            out.dynamic(elf::DT_FINI_ARRAY.0, finalisers_at);
            out.dynamic(elf::DT_FINI_ARRAYSZ.0, 8 * finalisers.len() as u64);
        }
        if versioned {
            out.dynamic(elf::DT_VERSYM.0, versions_at);
            out.dynamic(elf::DT_VERDEF.0, definition_at);
            out.dynamic(elf::DT_VERDEFNUM.0, 1);
        }
        out.dynamic(elf::DT_NULL.0, 0);

        out.raw(&[0; SYMBOL_SIZE as usize]);
        let mut places = vec![0; names.len()];
        let mut strings = vec![0];
        for ((_, name), place) in sorted.iter().zip(1..) {
            let (text, kind) = names.get(*name)?;
            *places.get_mut(*name)? = place;
            let kind = match kind {
                SymbolKind::Function => STT_FUNC,
                SymbolKind::Data => STT_OBJECT,
                SymbolKind::Unknown | SymbolKind::ThreadLocal => STT_NOTYPE,
            };
            // Its address comes later; a size means something to copy relocations alone.
            out.symbol(u32::try_from(strings.len()).ok()?, STB_GLOBAL << 4 | kind, SHN_UNDEF, 0, 0);
            strings.extend_from_slice(text.as_bytes());
            strings.push(0);
        }
        finalisers.iter().for_each(|finaliser| out.long(*finaliser));

        out.raw(&table);
        if versioned {
            // The loader reads version indices if a definition of the highest is there: version 1, no flags, index 2,
            // one name, its hash, and where that and the next definition are.
            [1, 0, HIDDEN & 0x7fff, 1].into_iter().for_each(|v| out.half(v));
            [sysv_hash(VERSION), 20, 0, version_at, 0].into_iter().for_each(|v| out.word(v));
            out.half(0);
            names.iter().for_each(|_| out.half(HIDDEN));
            strings.extend_from_slice(VERSION);
        }
        out.raw(&strings);
        Some(Self { bytes: out.into_bytes(), symbols_at, places, filter })
    }
}

/// The hash of version names (System V gABI, Hash Table).
pub(crate) fn sysv_hash(name: &[u8]) -> u32 {
    name.iter().take_while(|byte| **byte != 0).fold(0, |hash: u32, byte| {
        let hash = (hash << 4).wrapping_add((*byte).into());
        (hash ^ (hash & 0xf000_0000) >> 24) & 0x0fff_ffff
    })
}
