//! What an arena holds.

use super::packed::PackedMode;

/// The address space of one engine at one moment, in bytes of addresses unless said otherwise.
///
/// Resident memory is less: pages that were never written occupy none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ArenaStats {
    /// Size of the reservation.
    pub reserved_bytes: usize,
    /// Number of live slabs, one for each linked object, empty ones included.
    pub slabs: usize,
    /// Bytes of the reservation that live slabs occupy, padding for alignment inside them included.
    pub slab_bytes: usize,
    /// Bytes mapped outside the reservation, for sections that need not be near.
    pub outside_bytes: usize,
    /// Bytes of addresses of removed slabs that rest before others get them. They have no memory.
    pub quarantined_bytes: usize,
    /// How objects are packed that share pages; none where no object does.
    pub packed: Option<PackedMode>,
    /// The system lets no page become executable (systemd's `MemoryDenyWriteExecute`, `PR_SET_MDWE`, SELinux's `execmem`), as was seen when
    /// the engine was made, or when it was first refused: all code is written through a second view of its memory.
    pub exec_gain_refused: bool,
    /// Bytes of addresses that are never used again: the system refused to clean them, or they were somebody's before this process was
    /// forked.
    pub lost_bytes: usize,
}
