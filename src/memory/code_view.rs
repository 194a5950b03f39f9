//! Code of an object's own pages that is written where it is not run, for where no page may become executable.

use std::io;
use std::ops::Range;

use super::Protection;
use super::os::{Mapping, SharedMemory};

/// A writable view of code, which goes when the code is written. The code has its final protection from the beginning.
#[derive(Debug)]
pub(super) struct CodeView {
    code: Range<usize>,
    writable: Mapping,
}

impl CodeView {
    /// Puts new memory in the place of whole pages of a mapping.
    pub(super) fn map(mapping: &Mapping, code: Range<usize>, memory: &SharedMemory) -> io::Result<Self> {
        let writable = Mapping::reserve(code.len())?;
        writable.show(&writable.range(), memory, Protection::ReadWrite)?;
        mapping.show(&code, memory, Protection::ReadExecute)?;
        Ok(Self { code, writable })
    }

    /// Where an address is written, if it is in this code.
    pub(super) fn written(&self, address: usize) -> Option<usize> {
        self.code.contains(&address).then(|| self.writable.range().start + (address - self.code.start))
    }
}
