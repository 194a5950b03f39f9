//! A symbol that was found.

use crate::elf::SymbolKind;
use crate::live::lifetime::loaded_library::CodeRef;

/// A symbol that was found, and the reference that keeps its code.
pub(crate) struct Found {
    pub(crate) address: u64,
    pub(crate) kind: SymbolKind,
    pub(crate) code: CodeRef,
}
