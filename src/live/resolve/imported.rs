//! The binding of an import.

use crate::name::Name;

/// The provider of the definition that an import was bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum By {
    /// Another object of the library, which knows the address.
    Own,
    /// A linked library.
    Library(Name),
    /// This crate, in place of the process's (`atexit` and its like), or of what compilers link statically.
    Here,
    /// The position of a shared library among those that were given.
    Shared(u32),
    Given,
    Process,
    /// A weak reference to an undefined name.
    Nobody,
}

/// An import and its binding.
#[derive(Debug, Clone)]
pub(crate) struct Imported {
    pub(crate) name: Box<str>,
    /// 0 for `By::Own` and for thread-local variables.
    pub(crate) address: u64,
    pub(crate) by: By,
}
