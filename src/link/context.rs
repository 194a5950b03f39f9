//! What the libraries of one engine share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::code::Code;
use super::reach::OutOfRange;
use super::registry::Registry;
use super::session::Session;
use super::{exit, resolve};
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
    pub(super) out_of_range: OutOfRange,
    pub(super) registry: Arc<Registry<Code>>,
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
