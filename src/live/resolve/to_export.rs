//! Names that a library is to export to the process.

use crate::live::resolve::symbol::Symbol;
use crate::runtime::Exported;

/// The names of waiting objects, before those are linked.
#[derive(Debug)]
pub(crate) struct ToExport {
    /// The objects' numbers.
    pub(crate) objects: Vec<u32>,
    pub(crate) names: Vec<(Box<str>, Symbol)>,
    /// `None` where there are no names, or the dynamic loader cannot have them.
    pub(crate) exported: Option<Exported>,
}
