//! What happens to references that do not reach their targets.

/// What happens to a reference that does not reach its target; see
/// [`JitEngineBuilder::out_of_range`](crate::JitEngineBuilder::out_of_range).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OutOfRange {
    /// It is made to go through a literal, a slot or a stub near it, where that computes exactly the same: instructions
    /// that take an address (`ADRP`, `ADR`, `lea`) and branches. Everything else is refused.
    #[default]
    Bridge,
    /// It is refused.
    Reject,
}
