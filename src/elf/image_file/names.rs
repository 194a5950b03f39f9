//! Names of a table, with a limit of their bytes: many hostile symbols may share a long name.

use std::ffi::CStr;

/// Reads names of a table.
pub(crate) struct Names<'a> {
    table: &'a [u8],
    /// The bytes that may still be looked through.
    left: usize,
}

impl<'a> Names<'a> {
    /// Reads names of so many symbols.
    pub(super) fn new(table: &'a [u8], symbols: usize) -> Self {
        Self { table, left: 2 * table.len() + 64 * symbols }
    }

    /// Reads the name at a place, which is not empty.
    pub(crate) fn read(&mut self, at: u32) -> Option<&'a str> {
        let start = at as usize;
        let bytes = self.table.get(start..)?;
        let bytes = bytes.get(..self.left).unwrap_or(bytes);
        let name = CStr::from_bytes_until_nul(bytes).ok();
        self.left -= name.map_or(bytes.len(), CStr::count_bytes);
        name.filter(|name| !name.is_empty())?.to_str().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_text() {
        let mut names = Names::new(b"\0one\0\xc3\xbc\0\xff\0end", 9);
        assert_eq!([1, 3, 5].map(|at| names.read(at)), [Some("one"), Some("e"), Some("\u{fc}")]);
        // An empty name, half a character, none, one without an end, one behind the end.
        assert_eq!([0, 6, 8, 10, 99].map(|at| names.read(at)), [None; 5]);
    }

    #[test]
    fn names_that_many_share_are_not_read_for_ever() {
        let table = [&[b'x'; 1 << 16][..], &[0]].concat();
        let mut names = Names::new(&table, 1000);
        let read: usize = (0..1000).filter_map(|at| names.read(at)).map(str::len).sum();
        assert!((1 << 16..3 << 16).contains(&read), "{read}");
        // Nor is the end looked for that there is not.
        let mut names = Names::new(&[b'x'; 1000], 1);
        assert_eq!([0; 3].map(|at| names.read(at)), [None; 3]);
        assert_eq!(names.left, 0);
    }
}
