//! What a caller may do with a kernel.
//!
//! ```text
//! KernelSignature ──bind a Symbol──▶ Kernel ──call──▶ check arguments ──▶ find overlaps ──▶ the function
//!                                      └── as Candidates, to an Autotuner: save, run, restore; then the fastest
//! ```
//!
//! Unsafe code is in `call.rs` and `invoke.rs` alone.

mod argument;
mod autotune;
mod bound;
mod call;
mod call_plan;
mod check;
mod element;
mod function;
mod invoke;
mod overlap;
mod signature;
mod span;
mod tuning_memory;

pub use argument::{Argument, BufferView, MemorySpace};
pub use autotune::{Autotuner, Candidate, Trial, Tuning};
pub use bound::Kernel;
pub use call_plan::{CallPlan, Capture};
pub use element::{Element, ElementType, Scalar, ScalarType};
pub use function::{FunctionParameter, FunctionReturn};
pub use invoke::KernelFunction;
pub use signature::{Access, Extent, KernelSignature, KernelSignatureBuilder, Returns, Strides};
#[cfg(feature = "cuda")]
pub(crate) use tuning_memory::NotedRegion;
pub use tuning_memory::{HostMemory, HostSaved, Region, TuningMemory};
