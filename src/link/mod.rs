//! Where ELF, memory and LLVM meet.
//!
//! ```text
//! library   one namespace: objects, what they define, what they need; claims a library, links its batch, initialises it
//!  ├ names     which definition of a name counts
//!  ├ resolve   what an import binds to
//!  ├ imports   what imports were bound to
//!  ├ sets      linker sets that several objects have a part of
//!  ├ leftovers what malloc keeps after a large batch
//!  ├ batch     objects that are linked together → JITLink → addresses
//!  │  ├ turns     of threads that do so
//!  │  ├ graph     LinkGraphs behind the shim
//!  │  ├ callbacks what the shim calls
//!  │  └ object    one object under way
//!  │     ├ lookup  which of its sections is meant
//!  │     ├ thread_local  storage for what each thread has of its own
//!  │     └ reach  whether its references reach, and bridges for those that do not
//!  ├ code      what lives as long as a handle: memory, frames, finalisers
//!  │  ├ hold      what keeps it, and its end
//!  │  ├ registry  all of it that may be alive
//!  │  └ frames, arrays, indirect, exit, thread_exit, drains, devices, raising
//!  └ claims    which thread links and initialises which library
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
