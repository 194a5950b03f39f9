//! A limit of the bytes of names that are read of a table: many hostile symbols may share a long name.

use std::ffi::CStr;

pub(crate) struct NameBytes(usize);

impl NameBytes {
    /// For a table of so many bytes, and so many symbols.
    pub(super) fn of(table: usize, symbols: usize) -> Self {
        Self(2 * table + 64 * symbols)
    }

    /// Reads the name at a place of a table, which is not empty.
    pub(super) fn read<'a>(&mut self, table: &'a [u8], at: u32) -> Option<&'a str> {
        let text = table.get(at as usize..)?;
        let text = CStr::from_bytes_until_nul(text.get(..self.0).unwrap_or(text)).ok()?;
        self.0 -= text.count_bytes();
        text.to_str().ok().filter(|name| !name.is_empty())
    }
}
