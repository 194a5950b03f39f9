//! The result of removing a library.

/// The state of a library's code after its removal; see [`Library::remove`](crate::Library::remove).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Removal {
    /// Finalisers have run and the memory is freed.
    Freed,
    /// The last holder frees it.
    Waiting {
        /// Symbols and libraries that hold it, calls that are just linking it, and [what it has to wait
        /// for](crate::Library::drain). 0 when its finalisers are just running.
        holders: usize,
    },
}
