//! What a caller may do with a kernel.

mod call_plan;

pub use call_plan::{CallPlan, Capture};
