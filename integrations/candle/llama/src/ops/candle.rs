//! candle's own operators.

use candle_core::quantized::{QMatMul, QTensor};
use candle_core::{D, Module as _, Result, Tensor};

use super::{Ops, Precision};

#[derive(Debug)]
pub struct CandleOps;

pub enum Linear {
    /// Transposed: `[columns, rows]`.
    Dense(Tensor),
    Quantized(QMatMul),
}

impl Ops for CandleOps {
    type Linear = Linear;

    fn linear(&self, weights: &Tensor, precision: Precision) -> Result<Linear> {
        Ok(match precision.quantized() {
            None => Linear::Dense(weights.t()?),
            Some(blocks) => Linear::Quantized(QMatMul::from_qtensor(QTensor::quantize(weights, blocks)?)?),
        })
    }

    fn products<const N: usize>(&self, x: &Tensor, weights: [&Linear; N]) -> Result<[Tensor; N]> {
        let mut products = Vec::with_capacity(N);
        for weights in weights {
            products.push(match weights {
                Linear::Dense(weights) => x.matmul(weights)?,
                Linear::Quantized(weights) => weights.forward(x)?,
            });
        }
        Ok(products.try_into().expect("one for each of N"))
    }

    fn rms_norm(&self, x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
        candle_nn::ops::rms_norm(x, weight, eps)
    }

    fn rope(&self, x: &Tensor, cosine: &Tensor, sine: &Tensor) -> Result<Tensor> {
        let (heads, size) = x.dims2()?;
        candle_nn::rotary_emb::rope(&x.reshape((1, heads, 1, size))?, cosine, sine)?.reshape((heads, size))
    }

    fn attention(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let (heads, size) = q.dims2()?;
        let kv_heads = k.dim(1)?;
        let q = q.reshape((kv_heads, heads / kv_heads, size))?;
        let (k, v) = (k.permute((1, 2, 0))?.contiguous()?, v.transpose(0, 1)?.contiguous()?);
        let scores = (q.matmul(&k)? * (1.0 / (size as f64).sqrt()))?;
        candle_nn::ops::softmax(&scores, D::Minus1)?.matmul(&v)?.reshape((heads, size))
    }

    fn swiglu(&self, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
        gate.silu()? * up
    }
}
