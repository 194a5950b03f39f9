//! Patches of an object: fields overwritten in place, and contents appended at the end. Existing contents do not move.

use std::borrow::Cow;

/// The changes of one step, collected while the object is still borrowed.
#[derive(Debug)]
pub(crate) struct Patch {
    end: u64,
    appended: Vec<u8>,
    writes: Vec<(u64, Value)>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Value {
    U8(u8),
    U16(u16),
    U32(u32),
    U64(u64),
}

impl Patch {
    /// Creates an empty patch of an object of `len` bytes.
    pub(crate) fn new(len: usize) -> Self {
        Self { end: len as u64, appended: Vec::new(), writes: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.appended.is_empty() && self.writes.is_empty()
    }

    pub(crate) fn write(&mut self, offset: u64, value: Value) {
        self.writes.push((offset, value));
    }

    /// Begins new contents at a multiple of 8 and returns their file offset.
    pub(crate) fn begin(&mut self) -> u64 {
        let padding = (self.end + self.appended.len() as u64).wrapping_neg() % 8;
        self.appended.resize(self.appended.len() + padding as usize, 0);
        self.end + self.appended.len() as u64
    }

    /// Appends to the contents that `begin` began.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.appended.extend_from_slice(bytes);
    }

    /// Makes the changes; returns false if a field lies outside the object, which would be a step's bug.
    pub(crate) fn apply(self, bytes: &mut Cow<'_, [u8]>) -> bool {
        let bytes = bytes.to_mut();
        bytes.reserve_exact(self.appended.len());
        bytes.extend_from_slice(&self.appended);
        self.writes.into_iter().all(|(offset, value)| match value {
            Value::U8(v) => store(bytes, offset, &v.to_le_bytes()),
            Value::U16(v) => store(bytes, offset, &v.to_le_bytes()),
            Value::U32(v) => store(bytes, offset, &v.to_le_bytes()),
            Value::U64(v) => store(bytes, offset, &v.to_le_bytes()),
        })
    }
}

fn store(bytes: &mut [u8], offset: u64, value: &[u8]) -> bool {
    let Ok(start) = usize::try_from(offset) else { return false };
    let Some(end) = start.checked_add(value.len()) else { return false };
    match bytes.get_mut(start..end) {
        Some(target) => {
            target.copy_from_slice(value);
            true
        }
        None => false,
    }
}
