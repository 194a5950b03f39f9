//! A definition of a name.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;
use once_cell::race::OnceBox;

use crate::elf::SymbolKind;
use crate::elf::image_file::Export;

/// The definition that counts for a name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Symbol {
    /// Position of the object in its library.
    pub(crate) object: u32,
    /// Position of the definition in the object.
    pub(crate) definition: u32,
    pub(super) size: u64,
    /// `None` until its object is linked.
    pub(crate) address: Option<u64>,
    pub(super) strength: Strength,
    /// Of a common symbol: its alignment's logarithm.
    pub(super) alignment: u8,
    pub(crate) kind: SymbolKind,
    pub(crate) hidden: bool,
}

/// How definitions of one name compare (System V gABI, Symbol Table; common over weak as GNU ld has it).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Strength {
    Weak,
    Common,
    Strong,
}

impl Symbol {
    /// Makes the symbol of a name that an image defines.
    pub(super) fn of_image(object: u32, export: &Export<'_>, address: Option<u64>) -> Self {
        let strength = if export.weak { Strength::Weak } else { Strength::Strong };
        let Export { number: definition, kind, size, .. } = *export;
        Self { object, definition, size, address, strength, alignment: 0, kind, hidden: false }
    }
}

/// Hashes a name. Names come from files: the hash is keyed, with one key for the process.
pub(crate) fn hash(name: &str) -> u64 {
    static KEY: OnceBox<DefaultHashBuilder> = OnceBox::new();
    KEY.get_or_init(Box::default).hash_one(name)
}
