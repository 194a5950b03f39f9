//! What removing a library came to.

/// What has become of a library's code; see [`Library::remove`](crate::Library::remove).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// Finalisers have run and the memory is freed.
    Freed,
    /// It goes when the last holder does.
    Waiting {
        /// Symbols and libraries that hold it, calls that are just linking it, and [what it has to wait for](crate::Library::drain). 0 when
        /// its finalisers are just running.
        holders: usize,
    },
}
