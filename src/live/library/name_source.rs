//! Names that are linked when a library asks for them.

use hashbrown::HashMap;

use crate::Result;
use crate::live::resolve::found::Found;
use crate::name::Name;

/// Names that are linked when they are asked for.
pub(crate) trait NameSource: Send + Sync {
    fn name(&self) -> Name;

    /// Returns whether it has a name. Links nothing; no lock may be held.
    fn defines(&self, name: &str) -> bool;

    /// Links and initialises what defines a name, if it has it. No lock may be held.
    ///
    /// # Safety
    /// The initialisers may be run.
    unsafe fn find(&self, name: &str) -> Result<Option<Found>>;
}

/// What sources answered, for the objects of these numbers.
#[derive(Default)]
pub(crate) struct Answers {
    pub(super) objects: Vec<u32>,
    /// By name, the position among the links and what was found.
    pub(super) found: HashMap<Box<str>, (usize, Found)>,
}
