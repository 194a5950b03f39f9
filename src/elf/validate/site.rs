//! A relocation, what it applies to, and what all of an object's bring.

use std::collections::BTreeSet;

use super::tables::Tables;
use crate::elf::index::Lifted;
use crate::elf::raw::SectionHeader;
use crate::elf::view::View;

/// What the relocations of an object bring.
#[derive(Default)]
pub(super) struct Found {
    pub lifted: Lifted,
    /// Symbols, by index, of variables that code needs at a fixed distance from the thread pointer.
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

/// A relocation and where it applies.
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
