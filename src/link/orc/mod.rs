//! The engine's LLJIT, and its object layer. Objects that ORC emits are linked like all others; ORC's resource trackers
//! own them.
//!
//! ```text
//! layer      the layer's objects: who owns what, and what ORC is told
//! object     one object while it is linked
//! readiness  when objects are ready
//! callbacks  the shim's calls
//! session    the LLJIT
//! dylib      namespaces: what is added to them, defined in them, and looked up
//! entry      what a session knows of its dylibs
//! given      what ORC has until it emits it
//! offer      what is added to a dylib, and its names
//! failures   why names have failed
//! names      how many names LLVM keeps
//! later      what is done once a thread has left LLVM
//! finder     functions that find names for dylibs, and what the shim keeps
//! lookup     finds a name, now or later
//! pool       threads that compile and link
//! tracker    what is removed together
//! trackers   ORC's trackers
//! lazy/      functions that are compiled when they are first called
//! ```

mod callbacks;
mod dylib;
mod entry;
mod failures;
mod finder;
mod given;
mod later;
mod layer;
mod lazy;
mod lookup;
mod names;
mod object;
mod offer;
mod pool;
mod readiness;
mod session;
mod tracker;
mod trackers;

use callbacks::callbacks;
pub(crate) use dylib::Dylib;
#[cfg(feature = "inkwell")]
pub(crate) use given::Deferred;
use layer::Layer;
#[cfg(feature = "inkwell")]
pub(crate) use lazy::Lazy;
pub(crate) use session::Session;
pub(in crate::link) use session::check_version;
pub(crate) use tracker::Tracker;
