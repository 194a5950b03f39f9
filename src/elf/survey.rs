//! What an object has that a step of preparation may change: most objects have little of it, and one walk tells.

use super::raw::{SHF_COMPRESSED, SHT_CREL, SHT_REL, SHT_RELA, SHT_SYMTAB};
use super::view::View;

/// Sections by what tells them, not by whether they are sound.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Survey {
    /// Compact relocations.
    pub crel: bool,
    pub compressed: bool,
    /// Relocations without addends, and with.
    pub rel: bool,
    pub rela: bool,
    /// `.eh_frame`.
    pub unwind_table: bool,
    /// `.init` or `.fini`.
    pub fragments: bool,
    /// Index of the last symbol table, or 0.
    pub symbols: u32,
}

impl Survey {
    pub(crate) fn of(view: &View<'_>) -> Self {
        let mut has = Self::default();
        for (index, header) in view.sections() {
            match header.kind {
                SHT_CREL => has.crel = true,
                SHT_REL => has.rel = true,
                SHT_RELA => has.rela = true,
                SHT_SYMTAB => has.symbols = index,
                _ => {
                    has.unwind_table |= view.is_unwind_table(&header);
                    has.fragments |= view.name_begins_with(&header, b".init\0");
                    has.fragments |= view.name_begins_with(&header, b".fini\0");
                }
            }
            has.compressed |= header.is(SHF_COMPRESSED);
        }
        has
    }
}
