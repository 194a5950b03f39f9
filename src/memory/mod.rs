//! Memory for linked code: one reservation of addresses per engine, with one contiguous slab per object, or pools that
//! small objects share (`packed`).
//!
//! ```text
//! Arena      at most 2 GiB − 32 MiB of reserved addresses, so that every 32-bit reference inside it is in range
//!  ├ slab    R-X | R-- | RW- | segments that are only needed until finalisation (in batches, every other one begins with RW-)
//!  └ areas   of a pool each: R-X, R-- or RW-, in which packed objects have whole granules
//! ```
//!
//! A slab goes through typestates, each of which consumes the one before: `WritableSlab` (everything `RW-`, contents
//! are written) → `PublishedSlab` (final protections). Dropping either frees its pages and addresses. No page of an
//! arena is ever writable and executable, and pages that could not be cleaned are never reused.
//!
//! Addresses of a removed object rest in `quarantine` before they are reused, and `address_log` still knows the object.
//!
//! Each file has one concern: `os` the system calls on memory (`deferred_unmap` the refused unmappings), `membarrier`
//! the synchronisation of other threads' cores, `code_view` the writing of code that cannot become executable later,
//! `place` and `maps` the search for the arena's addresses, `addresses` and `module_names` what the dynamic loader knows
//! of them, `ranges` the free list, `warm` the pages that keep their memory for other slabs, `layout` the arithmetic,
//! `runs` its compact result, `map_count` the limit on mappings.

mod address_log;
mod addresses;
mod arena;
mod code_view;
mod deferred_unmap;
mod error;
mod layout;
pub(crate) mod malloc_trim;
mod map_count;
mod maps;
mod membarrier;
mod module_names;
mod os;
mod outside;
mod packed;
mod pages;
mod place;
mod protection;
mod quarantine;
mod ranges;
mod runs;
mod slab;
mod stats;
#[cfg(test)]
mod tests;
mod warm;

pub(crate) use address_log::{Occupant, Owner, any_arena, former_owner, owner};
pub(crate) use arena::{Arena, ArenaConfig, Blame, BlamedSection, PackedConfig, PlacementHints};
pub use error::MemoryError;
pub(crate) use layout::{Extent, Lifetime, SegmentRequest};
pub(crate) use os::{FilePages, FilePart, page_size};
pub use packed::PackedMode;
pub(crate) use place::Place;
pub use protection::Protection;
pub(crate) use runs::SlabRange;
#[cfg(slabjit_faults)]
pub(crate) use slab::Placed;
pub(crate) use slab::{Contents, PublishedSlab, WritableSlab};
pub use stats::ArenaStats;
