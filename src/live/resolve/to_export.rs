//! Names that a library is to export to the process.

use crate::runtime::Exported;

/// The names of waiting objects, before those are linked.
#[derive(Debug)]
pub(crate) struct ToExport {
    /// The objects' numbers.
    pub(crate) objects: Vec<u32>,
    /// With the object and the number of the definition.
    pub(crate) names: Vec<(Box<str>, (u32, u32))>,
    /// `None` where there are no names, or the dynamic loader cannot have them.
    pub(crate) exported: Option<Exported>,
}
