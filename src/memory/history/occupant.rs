//! What is told of an address, and by which record.

use std::num::NonZero;
use std::time::SystemTime;

use crate::name::ShortName;

/// What lies, or lay, at an address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Occupant {
    /// Where its slab, or its own mapping, begins.
    pub(crate) start: usize,
    pub(crate) library: ShortName,
    pub(crate) object: ShortName,
    pub(crate) generation: u64,
    pub(crate) removed: Option<SystemTime>,
}

/// Which record: its position, and one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct RecordId(NonZero<u32>);

impl RecordId {
    /// None for 0.
    pub(super) fn new(id: u32) -> Option<Self> {
        NonZero::new(id).map(Self)
    }

    pub(super) fn get(self) -> u32 {
        self.0.get()
    }
}
