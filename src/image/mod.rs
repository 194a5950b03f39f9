//! Images: objects linked once into a shared object (`ET_DYN`) that `dlopen` loads, too.
//!
//! The objects pass the same preparation as those that are loaded, and are then linked by the ABI's tables: no LLVM
//! takes part. A link goes one way: `input` (prepared objects), `symbols` (who defines what), `scan` (which GOT
//! entries, stubs and dynamic relocations the references want), `layout` (addresses), `write` (bytes). `load` is the
//! way back: from a file that `elf::image_file` has read to memory of the living half. `identity` says what images
//! depend on beside their objects, for the cache.

mod arrays;
mod builder;
mod cpu;
mod debug;
mod dynamic;
mod file;
mod frames;
mod identity;
mod input;
mod layout;
mod link;
mod linked;
mod load;
mod machine;
mod providers;
mod reference;
mod relr;
mod room;
mod scan;
mod symbols;
mod symtab;
#[cfg(test)]
mod tests;
mod write;

pub use builder::ImageBuilder;
pub(crate) use builder::link_kept;
pub use cpu::cpu_needs;
#[cfg(feature = "shared-cache")]
pub(crate) use cpu::needs_of_all;
pub(crate) use identity::ImageIdentity;
pub use linked::Linked;
pub(crate) use load::ImageLoader;
