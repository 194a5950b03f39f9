//! Where ELF, memory and LLVM meet.
//!
//! ```text
//! library   one namespace: objects, what they define, what they need; claims a library, links its batch, initialises it
//!  ├ names     which definition of a name counts
//!  ├ resolve   what an import binds to
//!  ├ imports   what imports were bound to
//!  ├ batch     objects that are linked together → JITLink → addresses
//!  │  ├ turns     of threads that do so
//!  │  ├ graph     LinkGraphs behind the shim
//!  │  ├ callbacks what the shim calls
//!  │  └ object    one object under way
//!  │     ├ thread_local  storage for what each thread has of its own
//!  │     └ reach  whether its references reach, and bridges for those that do not
//!  ├ code      what lives as long as a handle: memory, frames, finalisers
//!  │  ├ hold      what keeps it, and its end
//!  │  ├ registry  all of it that may be alive
//!  │  └ frames, arrays, indirect, exit, thread_exit, drains, devices
//!  └ claims    which thread links and initialises which library
//! ```
//!
//! ORC has no part in this: a batch is linked by JITLink alone, on the thread that asks for it, and names are this module's. `session` has
//! an LLJIT for what is not wrapped here.

mod arrays;
mod batch;
mod callbacks;
mod claims;
mod code;
#[cfg(feature = "cuda")]
mod devices;
mod drains;
mod exit;
mod few;
mod frames;
mod graph;
mod hold;
mod imports;
mod indirect;
pub(crate) mod library;
mod life;
#[cfg(feature = "llvm-suite")]
mod llvm_suite;

mod names;
mod object;
#[cfg(feature = "cli")]
pub(crate) mod outermost;
mod own_stack;
mod reach;
mod registry;
mod resolve;
mod session;
mod signal;
mod thread_exit;
mod thread_local;
mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(feature = "tvm-ffi")]
pub(crate) use callbacks::guarded;
use code::Code;
pub(crate) use hold::Hold;

pub use reach::OutOfRange;
use registry::Registry;
use session::Session;

use crate::Result;
use crate::elf::{Host, LARGEST_ARENA, LinkPlan, Preparation, Surroundings, Whereabouts};
use crate::memory::{Arena, ArenaConfig};
use crate::name::Name;

const _: () = assert!(ArenaConfig::MAX as u64 == LARGEST_ARENA);

/// What the libraries of one engine share.
pub(crate) struct Context {
    session: Session,
    pub(crate) arena: Arc<Arena>,
    pub(crate) preparation: Preparation,
    out_of_range: OutOfRange,
    registry: Arc<Registry>,
    unnamed: AtomicU32,
}

impl Context {
    pub(crate) fn new(arena: &ArenaConfig, preparation: Preparation, out_of_range: OutOfRange) -> Result<Arc<Self>> {
        exit::hook_process();
        let arena = Arena::reserve(arena)?;
        let (session, registry, unnamed) = (Session::new()?, Arc::default(), AtomicU32::new(0));
        Ok(Arc::new(Self { session, arena, preparation, out_of_range, registry, unnamed }))
    }

    pub(crate) fn lljit(&self) -> slabjit_llvm_wrap::llvm_sys::orc2::lljit::LLVMOrcLLJITRef {
        self.session.lljit()
    }

    /// What preparation finds in an object of which undefined names lead where `find` says.
    pub(crate) fn check(
        &self,
        name: &str,
        bytes: &[u8],
        executable_stack: bool,
        find: &dyn Fn(&str, bool) -> Whereabouts,
    ) -> Result<LinkPlan> {
        let arena = self.arena.range();
        let host = Host { arena: arena.start as u64..arena.end as u64, find };
        let bridges = self.out_of_range == OutOfRange::Bridge;
        self.preparation.check(name, bytes, &Surroundings { bridges, executable_stack, host: Some(host) })
    }

    /// [`check`](Self::check) of an object that has nothing around it but the process.
    pub(crate) fn check_alone(&self, name: &str, bytes: &[u8]) -> Result<LinkPlan> {
        self.check(name, bytes, false, &|name, _| resolve::in_process(name))
    }

    /// A name for an object that was given none.
    pub(crate) fn next_object_name(&self) -> Name {
        Name::Number(self.unnamed.fetch_add(1, Ordering::Relaxed))
    }

    /// Libraries whose code is not gone. Nothing of this keeps it.
    pub(crate) fn live(&self) -> Vec<Arc<Code>> {
        self.registry.live()
    }
}
