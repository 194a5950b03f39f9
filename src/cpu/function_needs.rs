//! What a function needs, for users.

/// What a function needs of the CPU beyond the baseline of its machine (x86-64 with SSE2, or ARMv8.0-A with floating
/// point and Advanced SIMD), by its instructions: see [`cpu_needs`](crate::cpu_needs).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FunctionNeeds {
    /// The function's name; of an image's function without a name, its address there.
    pub function: String,
    /// Features, in the order in which instructions need them.
    pub features: Vec<CpuFeature>,
    /// Whether there may be more: it has no size, or bytes that are no instruction of those that are known.
    pub unknown: bool,
}

/// A feature of CPUs that a function needs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CpuFeature {
    /// Its name: of x86-64, as in the manuals of the makers with `_` for other characters (`AVX512_VNNI`); of AArch64,
    /// as in the architecture without `FEAT_` (`SVE2`, `DOTPROD`).
    pub name: String,
    /// Offset in the function of the first instruction that needs it.
    pub offset: u64,
    /// Whether this CPU has it; `None` for another machine's.
    pub present: Option<bool>,
}

impl CpuFeature {
    pub(crate) fn new(name: &str, offset: u64, is_native: bool) -> Self {
        Self { name: name.to_owned(), offset, present: is_native.then(|| super::has(name)) }
    }
}
