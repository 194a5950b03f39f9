//! A symbol that was found.

use super::code::Hold;
use crate::elf::SymbolKind;

/// A symbol that was found, and what keeps it.
pub(crate) struct Found {
    pub(crate) address: u64,
    pub(crate) kind: SymbolKind,
    pub(crate) code: Hold,
}
