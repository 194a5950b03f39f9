//! What a decoder computes with: candle's operators, or kernels.

mod candle;
mod kernels;

use candle_core::quantized::GgmlDType;
use candle_core::{Result, Tensor};

pub use candle::CandleOps;
pub use kernels::KernelOps;

/// How products with weights are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Precision {
    F32,
    /// Blocks of 32 weights of 4 bits (`Q4_0`).
    Q4,
    /// Blocks of 32 weights of 8 bits (`Q8_0`).
    Q8,
}

impl Precision {
    fn quantized(self) -> Option<GgmlDType> {
        match self {
            Self::F32 => None,
            Self::Q4 => Some(GgmlDType::Q4_0),
            Self::Q8 => Some(GgmlDType::Q8_0),
        }
    }
}

/// The operators of one step of decoding: one token at a time.
pub trait Ops {
    /// Weights of a product.
    type Linear;

    /// Prepares weights of `[rows, columns]`.
    fn linear(&self, weights: &Tensor, precision: Precision) -> Result<Self::Linear>;

    /// Multiplies one vector `[1, columns]` by several weights, each to `[1, rows]`.
    fn products<const N: usize>(&self, x: &Tensor, weights: [&Self::Linear; N]) -> Result<[Tensor; N]>;

    /// `x` is `[1, hidden]`.
    fn rms_norm(&self, x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor>;

    /// `x` is `[heads, size]`; `cosine` and `sine` are `[1, size / 2]`.
    fn rope(&self, x: &Tensor, cosine: &Tensor, sine: &Tensor) -> Result<Tensor>;

    /// `q` is `[heads, size]`; `k` and `v` are `[time, kv_heads, size]`.
    fn attention(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor>;

    fn swiglu(&self, gate: &Tensor, up: &Tensor) -> Result<Tensor>;
}
