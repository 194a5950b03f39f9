//! Kernels: signatures, checked calls, call plans and autotuning.
//!
//! ```text
//! KernelSignature ──bind a Symbol──▶ Kernel ──call──▶ check arguments ──▶ find overlaps ──▶ the function
//!                                      └── as Candidates, to an Autotuner: save, run, restore; then the fastest
//! ```
//!
//! Only `call.rs` and `invoke.rs` have unsafe code.

mod argument;
mod argument_checks;
mod autotune;
mod bound_kernel;
mod call;
mod call_plan;
mod element;
mod error;
mod invoke;
mod kernel_function;
mod overlap;
mod parameter;
mod signature;
mod signature_text;
mod span;
mod tuning_memory;

pub use argument::{Argument, BufferView, MemorySpace};
pub use autotune::{Autotuner, Candidate, Trial, Tuning};
pub use bound_kernel::Kernel;
pub use call_plan::{CallPlan, Capture};
pub use element::{Element, ElementType, Scalar, ScalarType};
pub use error::{KernelError, Overlap};
pub use invoke::KernelFunction;
pub use kernel_function::{FunctionParameter, FunctionReturn};
pub use parameter::KernelParameter;
pub use signature::{Access, Extent, KernelSignature, KernelSignatureBuilder, Returns, Strides};
#[cfg(feature = "cuda")]
pub(crate) use tuning_memory::NotedRegion;
pub use tuning_memory::{HostMemory, HostSaved, Region, TuningMemory};
