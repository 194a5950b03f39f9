//! What an import was bound to.

use crate::name::Name;

/// Who has what an import was bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum By {
    /// Another object of the library: where it is, the library knows.
    Own,
    /// A linked library.
    Library(Name),
    /// This crate, in place of the process's (`atexit` and its like), or of what compilers link statically.
    Here,
    /// The position of a shared library among those that were given.
    Shared(u32),
    Given,
    Process,
    /// A weak reference to what is nowhere.
    Nobody,
}

/// An import and what it was bound to.
#[derive(Debug, Clone)]
pub(super) struct Imported {
    pub(super) name: Box<str>,
    /// 0 for `By::Own` and for thread-local variables.
    pub(super) address: u64,
    pub(super) by: By,
}
