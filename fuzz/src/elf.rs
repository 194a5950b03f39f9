//! Where things are in an object: just enough of ELF, and nothing of what is under test.

use std::ops::Range;

/// Sizes of a section header, a symbol and a relocation (ELF64).
pub const SECTION: usize = 64;
pub const SYMBOL: usize = 24;
pub const RELOCATION: usize = 24;

/// The section headers of an object.
pub struct Layout {
    table: usize,
    count: usize,
}

/// The integer of 1 to 8 bytes at an offset.
pub fn read(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(width)?)?;
    Some(field.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
}

impl Layout {
    /// None for what is no ELF object, or has no sections.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let field = |at, width| read(bytes, at, width).and_then(|value| usize::try_from(value).ok());
        let (table, count) = (field(40, 8)?, field(60, 2)?);
        let fits = count.checked_mul(SECTION)?.checked_add(table)? <= bytes.len();
        (bytes.starts_with(b"\x7fELF") && count > 1 && fits).then_some(Self { table, count })
    }

    /// All section headers.
    pub fn sections(&self) -> Range<usize> {
        self.table..self.table + self.count * SECTION
    }

    /// The contents of some section that has any; `which` may be any number.
    pub fn contents(&self, bytes: &[u8], which: u16) -> Option<Range<usize>> {
        self.contents_of(bytes, which, |_| true)
    }

    /// The same of sections of these types (`sh_type`).
    pub fn contents_of(&self, bytes: &[u8], which: u16, is: impl Fn(u64) -> bool) -> Option<Range<usize>> {
        let range = |section: usize| {
            let header = self.table + section * SECTION;
            let (kind, start, size) =
                (read(bytes, header + 4, 4)?, read(bytes, header + 24, 8)?, read(bytes, header + 32, 8)?);
            let (start, size) = (usize::try_from(start).ok()?, usize::try_from(size).ok()?);
            let range = start..start.checked_add(size)?;
            // SHT_NULL and SHT_NOBITS have none.
            (is(kind) && kind != 0 && kind != 8 && size != 0 && range.end <= bytes.len()).then_some(range)
        };
        let first = usize::from(which) % self.count;
        (0..self.count).find_map(|i| range((first + i) % self.count))
    }
}
