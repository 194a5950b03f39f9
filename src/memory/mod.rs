//! Address space: one reservation per engine, in it one contiguous slab per object, or pools that small objects share (`packed`).
//!
//! ```text
//! Arena      at most 2 GiB − 32 MiB of reserved addresses, so that every 32-bit reference inside it is in range
//!  ├ slab    R-X | R-- | RW- | segments that are only needed until finalisation (in batches, every other one begins with RW-)
//!  └ areas   of a pool each: R-X, R-- or RW-, in which packed objects have whole cache lines
//! ```
//!
//! A slab goes through typestates, each of which consumes the one before: `WritableSlab` (everything `RW-`, contents
//! are written) → `PublishedSlab` (final protections). Dropping either gives pages and addresses back. No page of an
//! arena is ever writable and executable, and pages that could not be cleaned are never handed out again.
//!
//! Addresses of a removed object rest (`quarantine`) before others get them, and it stays known what lay there (`history`).
//!
//! One concern a file: `os` has the system calls on memory (`leftover` what they refused to give back), `cores` what other threads need to see new code, `code_view` where code is
//! written that no page may become executable for, `place` and `maps` find
//! the arena's addresses, `ranges` is the free list, `layout` the arithmetic, `runs` what is kept of it,
//! `limit` how many mappings there may be.

mod arena;
mod code_view;
mod cores;
mod history;
mod layout;
mod leftover;
mod limit;
mod maps;
mod os;
mod outside;
mod packed;
mod place;
mod protection;
mod quarantine;
mod ranges;
mod runs;
mod slab;
mod stats;
#[cfg(test)]
mod tests;

pub(crate) use arena::{Arena, ArenaConfig, Blame, BlamedSection, Company, PackedConfig};
pub(crate) use history::Occupant;
pub(crate) use layout::{Lifetime, SegmentRequest};
pub use packed::PackedMode;
pub(crate) use place::Place;
pub use protection::Protection;
pub(crate) use runs::SlabRange;
pub(crate) use slab::{PublishedSlab, WritableSlab};
pub use stats::ArenaStats;
