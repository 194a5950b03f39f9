//! The living half: libraries, from their names to their removal. It knows no LLVM, and builds without one.
//!
//! ```text
//! context     state that the libraries of an engine share
//! images/     how images and their files are read
//! library/    one library: objects, names and archives; claims it, links its batch through `Linker`, initialises it
//! resolve/    the binding of imports to definitions
//! linker      the interface to the linking half: one trait
//! linked/     the result of linking an object: memory, addresses, initialisers
//! tls/        thread-local storage of linked objects
//! unwind/     unwind tables of linked code
//! xsave       registers that code of ours keeps where no function is expected
//! vectors_asm assembly that keeps vector registers over a call
//! lifetime/   references to code, its unloading, and its exit handlers and finalisers
//! ```

pub(crate) mod context;
pub(crate) mod error;
pub(crate) mod images;
pub(crate) mod library;
pub(crate) mod lifetime;
pub(crate) mod linked;
pub(crate) mod linker;
#[cfg(feature = "cli")]
pub(crate) mod outermost;
pub(crate) mod resolve;
#[cfg(test)]
mod tests;
pub(crate) mod tls;
pub(crate) mod unwind;
pub(crate) mod vectors_asm;
#[cfg(target_arch = "x86_64")]
pub(crate) mod xsave;
