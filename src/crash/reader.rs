//! What gimli reads unwind tables from: memory, of which each byte is read only if it can be.

use std::borrow::Cow;

use gimli::{Error, LittleEndian, ReaderOffsetId, Result};

use super::readable::Readable;

/// Bytes from an address on.
///
/// Slices would not do: nothing says how long a module's table is, and its pages are too many to ask for all of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bytes<'a> {
    address: usize,
    len: usize,
    memory: &'a Readable,
}

impl<'a> Bytes<'a> {
    /// Returns all that is from an address on.
    pub(super) fn from(address: usize, memory: &'a Readable) -> Self {
        Self { address, len: usize::MAX - address, memory }
    }
}

impl gimli::Reader for Bytes<'_> {
    type Endian = LittleEndian;
    type Offset = usize;

    fn endian(&self) -> LittleEndian {
        LittleEndian
    }

    fn len(&self) -> usize {
        self.len
    }

    fn empty(&mut self) {
        self.len = 0;
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        *self = self.split(len)?;
        Ok(())
    }

    fn offset_from(&self, base: &Self) -> usize {
        self.address.wrapping_sub(base.address)
    }

    fn offset_id(&self) -> ReaderOffsetId {
        ReaderOffsetId(self.address as u64)
    }

    fn lookup_offset_id(&self, id: ReaderOffsetId) -> Option<usize> {
        (id.0 as usize).checked_sub(self.address).filter(|offset| *offset <= self.len)
    }

    fn find(&self, byte: u8) -> Result<usize> {
        let mut rest = *self;
        while rest.read_u8()? != byte {}
        Ok(self.len - rest.len - 1)
    }

    fn skip(&mut self, len: usize) -> Result<()> {
        self.split(len).map(drop)
    }

    fn split(&mut self, len: usize) -> Result<Self> {
        let rest = self.len.checked_sub(len).ok_or(Error::UnexpectedEof(self.offset_id()))?;
        let taken = Self { len, ..*self };
        (self.address, self.len) = (self.address + len, rest);
        Ok(taken)
    }

    fn read_slice(&mut self, into: &mut [u8]) -> Result<()> {
        let taken = self.split(into.len())?;
        taken.memory.read(taken.address, into).ok_or(Error::Io)
    }

    /// Names of debug information are read like this, not unwind tables: it would allocate.
    fn to_slice(&self) -> Result<Cow<'_, [u8]>> {
        Err(Error::Io)
    }

    /// As above.
    fn to_string(&self) -> Result<Cow<'_, str>> {
        Err(Error::Io)
    }

    /// As above.
    fn to_string_lossy(&self) -> Result<Cow<'_, str>> {
        Err(Error::Io)
    }
}

#[cfg(test)]
mod tests {
    use gimli::Reader;

    use super::*;

    #[test]
    fn what_cannot_be_read_is_an_error() {
        let (text, memory) = (*b"zR\0\x01\x02", Readable::default());
        let mut bytes = Bytes::from(text.as_ptr().expose_provenance(), &memory).split(text.len()).unwrap();
        let whole = bytes;
        assert_eq!((bytes.read_null_terminated_slice().unwrap().len(), bytes.offset_from(&whole)), (2, 3));
        assert_eq!(
            (bytes.lookup_offset_id(whole.offset_id()), whole.lookup_offset_id(bytes.offset_id())),
            (None, Some(3))
        );
        assert_eq!((bytes.find(2), bytes.find(3), bytes.split(3).is_err()), (Ok(1), Err(bytes_end(&whole)), true));
        assert_eq!((bytes.read_u16(), bytes.is_empty(), bytes.read_u8()), (Ok(0x201), true, Err(bytes_end(&whole))));
        for absent in [0, 8, usize::MAX - 3, usize::MAX] {
            assert!(Bytes::from(absent, &memory).read_u8().is_err(), "{absent:#x}");
        }
    }

    fn bytes_end(whole: &Bytes<'_>) -> Error {
        Error::UnexpectedEof(ReaderOffsetId((whole.address + whole.len) as u64))
    }
}
