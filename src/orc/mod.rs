//! ORC: dylibs whose code is linked when it is looked up, and taken back with its tracker.
//!
//! ```no_run
//! # fn main() -> slabjit::Result<()> {
//! # let (parser, lexer) = (&[][..], &[][..]);
//! let engine = slabjit::JitEngine::new()?;
//! let jit = engine.orc().build()?;
//! let main = jit.dylib("main");
//! main.add_object(parser)?;
//! let tracker = main.tracker();
//! tracker.add_object(lexer)?;
//! // SAFETY: the objects define `int parse(int)`, and their initialisers may run.
//! let parse = unsafe { main.get::<unsafe extern "C" fn(i32) -> i32>("parse")? };
//! // SAFETY: as above.
//! assert_eq!(unsafe { parse(1) }, 2);
//! tracker.remove()?; // `parse` and what it needs stay until `parse` is dropped
//! # Ok(())
//! # }
//! ```
//!
//! A [`Library`](crate::Library) links all of its objects together. A [`Dylib`] links an object when one of its names
//! is looked up or is needed by one that is linked; objects may refer to each other in circles, over several dylibs.
//! All of them are prepared, placed and checked like an engine's other objects.
//!
//! # Names
//! Code of a dylib finds names in this order: in the dylib, by its [generators](Generator), in the dylibs and libraries
//! that it was linked against, in that order, and in the process. Hidden names are found within the dylib only, and
//! hidden weak ones, as compilers make them for inline functions, only within the object.
//!
//! # What is kept
//! A [`Symbol`](crate::Symbol) keeps its object and all that this refers to, also after their removal and the end of
//! the [`Jit`]. Objects that refer to each other go together.
//!
//! # Limits
//! Thread-local variables are seen by the object that defines them only. A name whose object could not be linked stays
//! failed until the object is removed, with its tracker or by [`Dylib::clear`].

mod compiler;
mod dylib;
mod generator;
mod jit;
mod tracker;

pub use dylib::{Dylib, LinkTarget, Replaced};
pub use generator::Generator;
pub use jit::{Jit, JitBuilder};
pub use tracker::Tracker;
