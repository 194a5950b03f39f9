//! Statistics of an arena.

use super::packed::PackedMode;

/// The address space of one engine at one moment, in bytes of addresses unless stated otherwise.
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
    /// Bytes mapped outside the reservation, for sections that may lie far away.
    pub outside_bytes: usize,
    /// Bytes of removed slabs' addresses that are not reused yet. They have no memory, except for `warm_bytes`.
    pub quarantined_bytes: usize,
    /// Bytes of removed slabs' memory that is kept for the next slabs; see
    /// [`JitEngineBuilder::warm_pages`](crate::JitEngineBuilder::warm_pages).
    pub warm_bytes: usize,
    /// The mode in which objects are packed; none if no object is packed.
    pub packed: Option<PackedMode>,
    /// Whether the system refuses to make pages executable (systemd's `MemoryDenyWriteExecute`, `PR_SET_MDWE`,
    /// SELinux's `execmem`), as seen when the engine was made or at the first refusal. All code is then written through
    /// a second view of its memory.
    pub exec_gain_refused: bool,
    /// Whether the dynamic loader has a module for the arena, so that `dladdr`, `backtrace_symbols` and
    /// `dl_iterate_phdr` know it and its functions. It needs glibc 2.36, `/proc` and memory files.
    pub known_to_loader: bool,
    /// Bytes of addresses that are never reused: the system refused to clean them, or they come from before a fork.
    pub lost_bytes: usize,
}
