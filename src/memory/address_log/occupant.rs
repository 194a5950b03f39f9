//! The occupant of an address, and the position of its record.

use std::num::NonZero;
use std::time::SystemTime;

use crate::name::ShortName;

/// The object that lies, or lay, at an address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Occupant {
    /// The start of its slab, or of its own mapping.
    pub(crate) start: usize,
    pub(crate) library: ShortName,
    pub(crate) object: ShortName,
    pub(crate) generation: u64,
    pub(crate) removed: Option<SystemTime>,
    /// The function at the address, and how far it is from its beginning.
    pub(crate) function: Option<(ShortName, usize)>,
    /// The address of the object's unwind table, or 0.
    pub(crate) frames: u64,
}

/// The position of a record, plus one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct RecordId(NonZero<u32>);

impl RecordId {
    /// Returns `None` for 0.
    pub(super) fn new(id: u32) -> Option<Self> {
        NonZero::new(id).map(Self)
    }

    pub(super) fn get(self) -> u32 {
        self.0.get()
    }
}
