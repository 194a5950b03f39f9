//! Changes to single fields of an object.

use std::ops::Range;

use libfuzzer_sys::arbitrary::{self, Arbitrary};

use crate::elf::{Layout, RELOCATION, SECTION, SYMBOL, read};

/// Fields as (offset, width) in the ELF header, a section header, a symbol and a relocation.
const HEADER_FIELDS: [(usize, usize); 7] = [(7, 1), (16, 2), (18, 2), (40, 8), (58, 2), (60, 2), (62, 2)];
const SECTION_FIELDS: [(usize, usize); 10] =
    [(0, 4), (4, 4), (8, 8), (16, 8), (24, 8), (32, 8), (40, 4), (44, 4), (48, 8), (56, 8)];
const SYMBOL_FIELDS: [(usize, usize); 6] = [(0, 4), (4, 1), (5, 1), (6, 2), (8, 8), (16, 8)];
const RELOCATION_FIELDS: [(usize, usize); 4] = [(0, 8), (8, 4), (12, 4), (16, 8)];

/// Types of sections (`sh_type`).
const SYMTAB: u64 = 2;
const RELA: u64 = 4;
const GROUP: u64 = 17;

/// Numbers are taken modulo how many there are of what they choose.
#[derive(Arbitrary, Debug)]
pub enum Edit {
    Header {
        field: u8,
        value: Value,
    },
    Section {
        which: u16,
        field: u8,
        value: Value,
    },
    Symbol {
        which: u16,
        field: u8,
        value: Value,
    },
    Relocation {
        section: u16,
        which: u16,
        field: u8,
        value: Value,
    },
    GroupMember {
        section: u16,
        which: u16,
        value: Value,
    },
    /// A word of some section's contents.
    Word {
        section: u16,
        at: u32,
        value: Value,
    },
    /// One section's header instead of another's.
    CopySection {
        from: u16,
        to: u16,
    },
    CopySymbol {
        from: u16,
        to: u16,
    },
    CopyRelocation {
        section: u16,
        from: u16,
        to: u16,
    },
}

/// What a field becomes.
#[derive(Arbitrary, Debug)]
pub enum Value {
    Any(u64),
    Small(u8),
    Add(i8),
    Flip(u8),
    /// Two to some power, and a little less or more.
    Near {
        power: u8,
        by: i8,
    },
    /// What the same field of another entry is.
    Other(u16),
}

/// Entries of one size that follow each other.
struct Table {
    range: Range<usize>,
    entry: usize,
}

impl Table {
    fn at(&self, which: u16) -> Option<usize> {
        let count = self.range.len() / self.entry;
        Some(self.range.start + usize::from(which).checked_rem(count)? * self.entry)
    }

    fn set(&self, bytes: &mut [u8], which: u16, (offset, width): (usize, usize), value: &Value) -> Option<()> {
        let at = self.at(which)? + offset;
        let old = read(bytes, at, width)?;
        let new = match *value {
            Value::Any(value) => value,
            Value::Small(value) => value.into(),
            Value::Add(by) => old.wrapping_add_signed(by.into()),
            Value::Flip(bit) => old ^ 1 << (usize::from(bit) % (8 * width)),
            Value::Near { power, by } => (1_u64 << (power % 64)).wrapping_add_signed((by % 4).into()),
            Value::Other(other) => read(bytes, self.at(other)? + offset, width)?,
        };
        bytes.get_mut(at..at + width)?.copy_from_slice(&new.to_le_bytes()[..width]);
        Some(())
    }

    fn copy(&self, bytes: &mut [u8], from: u16, to: u16) -> Option<()> {
        let (from, to) = (self.at(from)?, self.at(to)?);
        bytes.copy_within(from..from + self.entry, to);
        Some(())
    }
}

impl Edit {
    /// Does nothing where the object lacks what it is to change.
    pub fn apply(&self, layout: &Layout, bytes: &mut [u8]) {
        let _ = self.try_apply(layout, bytes);
    }

    fn try_apply(&self, layout: &Layout, bytes: &mut [u8]) -> Option<()> {
        let table = |bytes: &[u8], section: u16, kind: u64, entry: usize| {
            let range = layout.contents_of(bytes, section, |found| found == kind)?;
            Some(Table { range, entry })
        };
        let sections = Table { range: layout.sections(), entry: SECTION };
        let of = |fields: &[(usize, usize)], field: u8| fields[usize::from(field) % fields.len()];
        match self {
            Self::Header { field, value } => {
                Table { range: 0..64, entry: 64 }.set(bytes, 0, of(&HEADER_FIELDS, *field), value)
            }
            Self::Section { which, field, value } => sections.set(bytes, *which, of(&SECTION_FIELDS, *field), value),
            Self::Symbol { which, field, value } => {
                table(bytes, 0, SYMTAB, SYMBOL)?.set(bytes, *which, of(&SYMBOL_FIELDS, *field), value)
            }
            Self::Relocation { section, which, field, value } => {
                let table = table(bytes, *section, RELA, RELOCATION)?;
                table.set(bytes, *which, of(&RELOCATION_FIELDS, *field), value)
            }
            Self::GroupMember { section, which, value } => {
                table(bytes, *section, GROUP, 4)?.set(bytes, *which, (0, 4), value)
            }
            Self::Word { section, at, value } => {
                let range = layout.contents(bytes, *section)?;
                let start = range.start + *at as usize % range.len();
                Table { range: start..range.end, entry: 4 }.set(bytes, 0, (0, 4), value)
            }
            Self::CopySection { from, to } => sections.copy(bytes, *from, *to),
            Self::CopySymbol { from, to } => table(bytes, 0, SYMTAB, SYMBOL)?.copy(bytes, *from, *to),
            Self::CopyRelocation { section, from, to } => {
                table(bytes, *section, RELA, RELOCATION)?.copy(bytes, *from, *to)
            }
        }
    }
}
