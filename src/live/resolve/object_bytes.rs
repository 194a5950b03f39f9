//! The bytes of an object that waits to be linked. Large ones get memory that an earlier object has left: malloc gives
//! such memory back to the system, and bringing in its pages again takes longer than copying the bytes.

use std::borrow::Cow;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use crate::fork_guard::Mutex;
use crate::memory::FilePages;

/// malloc keeps what is smaller.
const LEAST: usize = 64 << 10;

/// One buffer of an earlier object, for the next.
#[derive(Debug)]
pub(crate) struct SpareBuffer {
    /// Larger ones are not kept.
    limit: usize,
    kept: Mutex<Option<Vec<u8>>>,
}

#[derive(Debug)]
pub(crate) struct ObjectBytes(Bytes);

#[derive(Debug)]
enum Bytes {
    /// With the place that their buffer goes to.
    Memory {
        bytes: Vec<u8>,
        home: Option<Arc<SpareBuffer>>,
    },
    File(Arc<FilePages>),
}

/// A part of the bytes that is kept when the rest goes.
#[derive(Debug)]
pub(crate) struct KeptBytes {
    start: usize,
    bytes: Kept,
}

#[derive(Debug)]
enum Kept {
    Copy(Box<[u8]>),
    File(Arc<FilePages>, Range<usize>),
}

impl ObjectBytes {
    pub(crate) fn of_file(pages: FilePages) -> Self {
        Self(Bytes::File(Arc::new(pages)))
    }

    /// Keeps a part: a copy, or the pages of a file.
    pub(crate) fn keep(&self, range: Range<usize>) -> KeptBytes {
        let start = range.start;
        let bytes = match &self.0 {
            Bytes::Memory { bytes, .. } => Kept::Copy(bytes.get(range).unwrap_or_default().into()),
            Bytes::File(pages) => Kept::File(Arc::clone(pages), range),
        };
        KeptBytes { start, bytes }
    }
}

impl KeptBytes {
    /// The position of the first byte among all.
    pub(crate) fn start(&self) -> usize {
        self.start
    }
}

impl Deref for KeptBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Kept::Copy(bytes) => bytes,
            Kept::File(pages, range) => pages.get(range.clone()).unwrap_or_default(),
        }
    }
}

impl SpareBuffer {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, kept: Mutex::new(None) })
    }

    /// Copies bytes, or takes those that are owned already. What is owned has at most twice the room that it needs.
    pub(crate) fn own(self: &Arc<Self>, bytes: Cow<'_, [u8]>) -> ObjectBytes {
        let bytes = match bytes {
            Cow::Owned(mut bytes) => {
                bytes.shrink_to(bytes.len().saturating_mul(2));
                bytes
            }
            Cow::Borrowed(bytes) => {
                let mut buffer = self.take(bytes.len()).unwrap_or_else(|| Vec::with_capacity(bytes.len()));
                buffer.extend_from_slice(bytes);
                buffer
            }
        };
        let home = (LEAST..=self.limit).contains(&bytes.capacity()).then(|| Arc::clone(self));
        ObjectBytes(Bytes::Memory { bytes, home })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept.lock().is_none()
    }

    /// Takes the buffer if it has room for so many bytes, and is not too large for so few.
    pub(crate) fn take(&self, bytes: usize) -> Option<Vec<u8>> {
        if bytes < LEAST {
            return None;
        }
        self.kept.lock().take_if(|buffer| (bytes..=bytes.saturating_mul(2)).contains(&buffer.capacity()))
    }

    /// Keeps the larger one of this buffer and the kept one; returns the other.
    fn keep(&self, mut buffer: Vec<u8>) -> Option<Vec<u8>> {
        buffer.clear();
        let mut kept = self.kept.lock();
        if kept.as_ref().is_some_and(|kept| kept.capacity() >= buffer.capacity()) {
            return Some(buffer);
        }
        kept.replace(buffer)
    }
}

impl Deref for ObjectBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Memory { bytes, .. } => bytes,
            Bytes::File(pages) => pages,
        }
    }
}

impl DerefMut for ObjectBytes {
    /// The bytes of a file stay as they are.
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Bytes::Memory { bytes, .. } => bytes,
            Bytes::File(_) => &mut [],
        }
    }
}

impl Drop for ObjectBytes {
    fn drop(&mut self) {
        if let Bytes::Memory { bytes, home } = &mut self.0
            && let Some(home) = home.take()
        {
            // The other one is freed after the lock.
            drop(home.keep(std::mem::take(bytes)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn own(spare: &Arc<SpareBuffer>, len: usize, byte: u8) -> ObjectBytes {
        let bytes = spare.own(Cow::Borrowed(&vec![byte; len]));
        assert!(bytes.len() == len && bytes.iter().all(|b| *b == byte));
        bytes
    }

    #[test]
    fn the_next_object_gets_the_buffer() {
        let spare = SpareBuffer::new(4 * MIB);
        let first = own(&spare, MIB, 1);
        let buffer = first.as_ptr();
        drop(first);
        // Not one that is far smaller, whose own buffer is not kept in its place.
        for len in [0, LEAST - 1, MIB / 2 - 1] {
            assert_ne!(own(&spare, len, 2).as_ptr(), buffer);
        }
        let next = own(&spare, MIB - 5, 3);
        assert_eq!(next.as_ptr(), buffer);
        // While it is used there is none.
        let other = own(&spare, MIB + 4096, 4);
        assert_ne!(other.as_ptr(), buffer);
        drop(next);
        // The larger one is kept.
        let buffer = other.as_ptr();
        drop(other);
        assert_eq!(own(&spare, MIB + 1, 5).as_ptr(), buffer);
        // Not one that is larger.
        let larger = own(&spare, 2 * MIB, 6);
        assert_eq!(spare.kept.lock().as_ref().map(|kept| kept.as_ptr()), Some(buffer));
        drop(larger);
        assert_ne!(spare.kept.lock().as_ref().map(|kept| kept.as_ptr()), Some(buffer));
    }

    #[test]
    fn what_waits_holds_at_most_twice_its_bytes() {
        let spare = SpareBuffer::new(4 * MIB);
        for (len, room) in [(1000, 3 * MIB), (MIB, 2 * MIB), (0, MIB)] {
            let mut bytes = Vec::with_capacity(room);
            bytes.resize(len, 7);
            let owned = spare.own(Cow::Owned(bytes));
            let Bytes::Memory { bytes, .. } = &owned.0 else { panic!("no file") };
            assert!(bytes.capacity() <= 2 * len, "{} of {len}", bytes.capacity());
            assert!(**bytes == vec![7; len]);
        }
    }

    #[test]
    fn what_is_large_or_small_is_not_kept() {
        let spare = SpareBuffer::new(4 * MIB);
        drop(own(&spare, 4 * MIB + 1, 1));
        drop(own(&spare, LEAST - 1, 1));
        assert!(spare.kept.lock().is_none());
    }
}
