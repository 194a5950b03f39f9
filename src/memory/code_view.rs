//! A second, writable view of an object's code, for systems on which written pages cannot become executable.

use std::io;
use std::ops::Range;

use super::Protection;
use super::os::{Mapping, SharedMemory};

/// A writable view of code, unmapped once the code is written. The code has its final protection from the beginning.
#[derive(Debug)]
pub(super) struct CodeView {
    code: Range<usize>,
    writable: Mapping,
}

impl CodeView {
    /// Replaces whole pages of a mapping by new memory.
    pub(super) fn map(mapping: &Mapping, code: Range<usize>, memory: &SharedMemory) -> io::Result<Self> {
        let writable = Mapping::reserve(code.len())?;
        writable.show(&writable.range(), memory, 0, Protection::ReadWrite)?;
        mapping.show(&code, memory, 0, Protection::ReadExecute)?;
        Ok(Self { code, writable })
    }

    /// Returns the writable address for an address in this code.
    pub(super) fn written(&self, address: usize) -> Option<usize> {
        self.code.contains(&address).then(|| self.writable.range().start + (address - self.code.start))
    }
}
