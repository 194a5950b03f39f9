//! A survey of an object's sections, which tells the steps of preparation whether they have work.

use crate::elf::elf_abi::{
    SHF_ALLOC, SHF_COMPRESSED, SHT_CREL, SHT_NOBITS, SHT_NOTE, SHT_REL, SHT_RELA, SHT_SYMTAB, SectionHeader,
};

/// Sections by their features, before validation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Survey {
    /// Compact relocations.
    pub crel: bool,
    pub compressed: bool,
    /// Relocations without addends, and relocations with addends.
    pub rel: bool,
    pub rela: bool,
    /// Index of the first `.eh_frame`, or 0.
    pub unwind_table: u32,
    /// `.init` or `.fini`.
    pub fragments: bool,
    /// GCC's intermediate code.
    pub lto: bool,
    /// Contents that are mapped.
    pub contents: bool,
    /// Index of the last symbol table, or 0.
    pub symbols: u32,
}

impl Survey {
    /// Surveys sections, each with the beginning of its name.
    pub(crate) fn of<'a>(sections: impl Iterator<Item = (u32, SectionHeader, &'a [u8])>) -> Self {
        let mut has = Self::default();
        for (index, header, name) in sections {
            match header.kind {
                SHT_CREL => has.crel = true,
                SHT_REL => has.rel = true,
                SHT_RELA => has.rela = true,
                SHT_SYMTAB => has.symbols = index,
                _ => has.fragments |= name == b".init" || name == b".fini",
            }
            if has.unwind_table == 0 && name == b".eh_frame" {
                has.unwind_table = index;
            }
            has.compressed |= header.is(SHF_COMPRESSED);
            if header.is(SHF_ALLOC) {
                has.contents |= header.size != 0 && !matches!(header.kind, SHT_NOTE | SHT_NOBITS);
            } else {
                has.lto |= name.starts_with(b".gnu.lto_");
            }
        }
        has
    }
}
