//! The occupant of an address, and the position of its record.

use std::num::NonZero;
use std::time::{Duration, SystemTime};

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

/// When objects were removed: nanoseconds since 1970, never 0.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct RemovalTime(pub(super) u64);

impl RemovalTime {
    pub(in super::super) fn now() -> Self {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self((since_1970.as_nanos() as u64).max(1))
    }
}

impl From<RemovalTime> for SystemTime {
    fn from(time: RemovalTime) -> Self {
        Self::UNIX_EPOCH + Duration::from_nanos(time.0)
    }
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
