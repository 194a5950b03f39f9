//! A relocation with its target, and a summary of all relocations of an object.

use std::collections::BTreeSet;

use super::tables::Tables;
use crate::elf::elf_abi::SectionHeader;
use crate::elf::elf_view::View;
use crate::elf::index::Lifted;

/// A summary of an object's relocations.
#[derive(Default)]
pub(super) struct Found {
    pub lifted: Lifted,
    /// Symbol indices of variables that code needs at a fixed distance from the thread pointer.
    pub statics: BTreeSet<u32>,
    /// Whether thread-local contents hold addresses.
    pub relocated: bool,
}

/// A relocation, decoded.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    /// Offset in the relocation section.
    pub at: u64,
    pub offset: u64,
    pub symbol: u32,
    pub kind: u32,
    pub addend: i64,
}

/// A relocation, its target section, and its symbol.
pub(super) struct Site<'v, 'a> {
    pub view: &'v View<'a>,
    pub tables: &'v Tables<'a>,
    /// The relocation section.
    pub index: u32,
    /// The section that is patched.
    pub target: u32,
    pub header: &'v SectionHeader,
    pub bytes: &'a [u8],
    pub entry: Entry,
}
