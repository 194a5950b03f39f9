//! Where ELF, memory and LLVM meet. Arrows point down: no file uses one above it.
//!
//! ```text
//! library   one namespace: objects, what they define, what they need; claims a library, links its batch, initialises it
//!  ├ context   what the libraries of an engine share (session: an LLJIT for what is not wrapped here)
//!  ├ claims    which thread links and initialises which library
//!  ├ resolve   what an import binds to: names, sets (linker sets of several objects), decided, imported, found
//!  ├ batch     objects that are linked together → JITLink → addresses
//!  │  ├ turns     of threads that do so
//!  │  ├ graph     LinkGraphs behind the shim; callbacks: what it calls; text: what it says
//!  │  └ object    one object under way, by its number in the batch
//!  │     ├ reach     whether its references reach, and bridges for those that do not
//!  │     └ sets, thread_local   memory that it shares with others of the batch
//!  ├ linked    what linking brought: memory (with JITLink's actions), addresses
//!  ├ exit      what exit functions mean to linked code: thread_exit, support, handlers, entry_points
//!  ├ initialise   runs resolvers (indirect) and initialisers (arrays)
//!  └ code      what lives as long as a handle: images (memory, frames), finalisers
//!     ├ hold      what keeps it, and its end; life: the count; drains, devices, raising
//!     └ registry  all of it that may be alive
//! prepared  an object that waits to be linked (lookup: which of its sections is meant)
//! ```
//!
//! ORC has no part in this: a batch is linked by JITLink alone, on the thread that asks for it, and names are this module's. `session` has
//! an LLJIT for what is not wrapped here.

mod actions;
mod arrays;
mod batch;
mod bound;
mod callbacks;
mod claims;
mod code;
mod context;
mod decided;
#[cfg(feature = "cuda")]
mod devices;
mod drains;
mod entry_points;
mod exit;
mod few;
mod found;
mod frames;
mod graph;
mod handlers;
mod hold;
mod image;
mod imported;
mod indirect;
mod initialise;
mod leftovers;
pub(crate) mod library;
mod life;
mod linked;
#[cfg(slabjit_llvm_suite)]
mod llvm_suite;
mod lookup;
mod names;
mod object;
#[cfg(feature = "cli")]
pub(crate) mod outermost;
mod own_stack;
mod prepared;
#[cfg(feature = "tvm-ffi")]
mod raising;
mod reach;
mod registry;
mod resolve;
mod session;
mod sets;
mod signal;
mod support;
mod text;
mod thread_exit;
mod thread_local;
mod turns;

pub(crate) use code::Hold;
pub(crate) use context::Context;
pub(crate) use found::Found;
pub use reach::OutOfRange;
