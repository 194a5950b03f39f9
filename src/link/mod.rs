//! The linking half: turns prepared objects into linked memory. Only this module, `ir` and the crate's root know LLVM.
//!
//! ```text
//! job/     batch: objects that are linked together; link_job: one of them; link_throttle: turns of threads
//! plain/   the link of objects that need no graph
//! reach/   range checks of references, and bridges
//! llvm/    graphs behind the shim, and the trait of what they ask (`LinkHost`)
//! orc/     the engine's LLJIT, and its object layer
//! ```
//!
//! ORC takes no part in the link of an engine's own objects: JITLink links a batch on the calling thread. The living
//! half (`crate::live`) decides every symbol beforehand, and owns the results of a link.

mod job;
mod llvm;
#[cfg(slabjit_llvm_suite)]
#[path = "../../ci/llvm-suite.d/llvm_suite.rs"]
mod llvm_suite;
mod orc;
mod plain;
mod reach;

use crate::Result;
use crate::live::linker::{Batch, LinkedBatch, Linker};
use crate::out_of_range::OutOfRange;
use crate::threads::Threads;
#[cfg(feature = "inkwell")]
pub(crate) use orc::{Deferred, Lazy};
pub(crate) use orc::{Dylib, Session, Tracker};

/// The linker that uses JITLink.
pub(crate) struct JitLinker {
    policy: OutOfRange,
    threads: Threads,
}

impl JitLinker {
    pub(crate) fn new(policy: OutOfRange, threads: Threads) -> Result<Self> {
        orc::check_version()?;
        Ok(Self { policy, threads })
    }
}

#[allow(unsafe_code, reason = "what is linked is run")]
// SAFETY: JITLink fixes up what it has placed, and `LinkJob::placed` notes where. Its pass EHFrameNullTerminator ends
// the frames.
unsafe impl Linker for JitLinker {
    fn link(&self, batch: Batch<'_>) -> Result<LinkedBatch> {
        job::batch::link(batch, self.policy, self.threads)
    }
}
