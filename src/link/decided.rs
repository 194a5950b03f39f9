//! What was decided about an object's symbols before it is linked.

use std::sync::Arc;

use super::bound::Bound;
use super::imported::Imported;
use super::prepared::PreparedObject;
use super::thread_local::Storage;

/// An object whose symbols have been decided about.
pub(super) struct Decided {
    pub(super) object: Arc<PreparedObject>,
    pub(super) externals: Vec<External>,
    pub(super) definitions: Vec<Defined>,
    /// What its imports are bound to, for those who ask.
    pub(super) imports: Box<[Imported]>,
    /// Sections of COMDAT groups that are linked from another object, sorted.
    pub(super) dead_sections: Vec<u32>,
    /// Its number in its library.
    pub(super) number: u32,
    /// Storage for thread-local variables of all of them.
    pub(super) storage: Option<Arc<Storage>>,
}

/// What an import binds to.
#[derive(Debug, Clone)]
pub(super) enum External {
    /// The address is known.
    Absolute(u64),
    /// Another object of the same batch defines it, under this name.
    Batch(Arc<str>),
    /// A bound of the set of this number, which the batch puts together.
    Bound(usize, Bound),
    /// JITLink defines it (`_GLOBAL_OFFSET_TABLE_`, `__start_…`), or nothing refers to it.
    Leave,
}

/// What becomes of a definition.
#[derive(Debug, Clone)]
pub(super) enum Defined {
    Keep,
    /// Another object of the batch needs it, under this name.
    Export(Arc<str>),
    /// Another object's definition counts; this is what references bind to instead.
    Discard(External),
}
