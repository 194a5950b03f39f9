//! Binds imports to definitions.

pub(crate) mod decide;
pub(crate) mod decided;
pub(crate) mod found;
mod image_names;
pub(crate) mod imported;
pub(crate) mod linker_sets;
pub(crate) mod object_bytes;
pub(crate) mod prepared;
pub(crate) mod section_lookup;
pub(crate) mod set_bounds;
pub(crate) mod symbol;
pub(crate) mod symbol_table;
pub(crate) mod to_export;
pub(crate) mod walk;
