//! Decisions about an object's symbols before it is linked.

use std::sync::Arc;

use crate::live::resolve::imported::Imported;
use crate::live::resolve::prepared::PreparedObject;
use crate::live::resolve::set_bounds::Bound;
use crate::live::tls::Storage;

/// An object whose symbols have been decided about.
pub(crate) struct Decided {
    pub(crate) object: Arc<PreparedObject>,
    pub(crate) externals: Vec<External>,
    pub(crate) definitions: Vec<Defined>,
    /// The bindings of its imports, for queries.
    pub(crate) imports: Box<[Imported]>,
    /// Sections of COMDAT groups that are linked from another object, sorted.
    pub(crate) dead_sections: Vec<u32>,
    /// Its number in its library.
    pub(crate) number: u32,
    /// Storage for thread-local variables of all of them.
    pub(crate) storage: Option<Arc<Storage>>,
}

/// The binding of an import.
#[derive(Debug, Clone)]
pub(crate) enum External {
    /// The address is known.
    Absolute(u64),
    /// Another object of the same batch defines it, as the export of this number.
    Batch(u32),
    /// A bound of the set of this number, which the batch puts together.
    Bound(usize, Bound),
    /// JITLink defines it (`_GLOBAL_OFFSET_TABLE_`, `__start_…`), or nothing refers to it.
    Leave,
}

/// The fate of a definition.
#[derive(Debug, Clone)]
pub(crate) enum Defined {
    Keep,
    /// Other objects of the batch need it, as the export of this number. Numbers are below the number of all exports.
    Export(u32),
    /// Another object's definition counts; this is what references bind to instead.
    Discard(External),
}
