//! Kernels that slabjit has loaded. Products of unquantised weights are candle's.

use candle_core::quantized::QTensor;
use candle_core::{Device, Result, Tensor};
use slabjit_candle::{KernelOp, OpError};
use slabjit_candle_kernels::Kernels;

use super::{Ops, Precision};
use crate::weights::CONFIG;

#[derive(Debug)]
pub struct KernelOps {
    rms_norm: KernelOp,
    rope: KernelOp,
    swiglu: KernelOp,
    attention: KernelOp,
    quantize: KernelOp,
    matvec_q4: KernelOp,
    matvec_q8: KernelOp,
}

pub enum Linear {
    /// Transposed: `[columns, rows]`.
    Dense(Tensor),
    /// `[rows, blocks, 18]`
    Q4(Tensor),
    /// `[rows, blocks, 34]`
    Q8(Tensor),
}

/// Rows that a thread takes at least: fewer are done before another has begun.
const ROWS_FOR_A_THREAD: usize = 64;

impl KernelOps {
    pub fn new(kernels: &Kernels) -> std::result::Result<Self, OpError> {
        let scale = 1.0 / (CONFIG.head_size as f32).sqrt();
        let matvec =
            |tilings: &[(&str, slabjit::Kernel)]| KernelOp::builder(&tilings[1].1).split("rows", ROWS_FOR_A_THREAD);
        // SAFETY: the kernels do what their contracts say, with any scalars.
        unsafe {
            Ok(Self {
                rms_norm: KernelOp::builder(&kernels.rmsnorm).scalar("eps", CONFIG.eps).build()?,
                rope: KernelOp::builder(&kernels.rope).build_in_place()?,
                swiglu: KernelOp::builder(&kernels.swiglu).build_in_place()?,
                attention: KernelOp::builder(&kernels.attention).scalar("scale", scale).build()?,
                quantize: KernelOp::builder(&kernels.quantize_q8).build()?,
                matvec_q4: matvec(&kernels.matvec_q4).build()?,
                matvec_q8: matvec(&kernels.matvec_q8).build()?,
            })
        }
    }

    /// Puts the fastest tilings in, measured on these weights and this vector.
    pub fn tune(&self, kernels: &Kernels, weights: &Linear, x: &Tensor) -> Result<()> {
        let (op, tilings, weights) = match weights {
            Linear::Dense(_) => return Ok(()),
            Linear::Q4(weights) => (&self.matvec_q4, &kernels.matvec_q4, weights),
            Linear::Q8(weights) => (&self.matvec_q8, &kernels.matvec_q8, weights),
        };
        // SAFETY: the tilings do what their contracts say.
        let (_, tuning) = unsafe { op.tune(tilings, &[weights, &self.quantized(x)?]) }?;
        println!("{tuning}");
        Ok(())
    }

    /// Puts another load of the kernels in.
    pub fn replace(&self, kernels: &Kernels) -> std::result::Result<(), OpError> {
        let all = [
            (&self.rms_norm, &kernels.rmsnorm),
            (&self.rope, &kernels.rope),
            (&self.swiglu, &kernels.swiglu),
            (&self.attention, &kernels.attention),
            (&self.quantize, &kernels.quantize_q8),
            (&self.matvec_q4, &kernels.matvec_q4[1].1),
            (&self.matvec_q8, &kernels.matvec_q8[1].1),
        ];
        // SAFETY: as in `new`.
        all.into_iter().try_for_each(|(op, kernel)| unsafe { op.replace(kernel) })
    }

    fn quantized(&self, x: &Tensor) -> Result<Tensor> {
        self.quantize.apply(&[&x.reshape(((), 32))?])
    }
}

impl Ops for KernelOps {
    type Linear = Linear;

    fn linear(&self, weights: &Tensor, precision: Precision) -> Result<Linear> {
        let Some(blocks) = precision.quantized() else { return Ok(Linear::Dense(weights.t()?)) };
        let (rows, columns) = weights.dims2()?;
        let quantized = QTensor::quantize(weights, blocks)?;
        let shape = (rows, columns / 32, blocks.type_size());
        let bytes = Tensor::from_slice(&quantized.data()?, shape, &Device::Cpu)?;
        Ok(if precision == Precision::Q4 { Linear::Q4(bytes) } else { Linear::Q8(bytes) })
    }

    fn products<const N: usize>(&self, x: &Tensor, weights: [&Linear; N]) -> Result<[Tensor; N]> {
        // Once for all of them.
        let quantized = match weights[0] {
            Linear::Dense(_) => None,
            _ => Some(self.quantized(x)?),
        };
        let mut products = Vec::with_capacity(N);
        for weights in weights {
            products.push(match (weights, &quantized) {
                (Linear::Q4(weights), Some(x)) => self.matvec_q4.apply(&[weights, x])?.unsqueeze(0)?,
                (Linear::Q8(weights), Some(x)) => self.matvec_q8.apply(&[weights, x])?.unsqueeze(0)?,
                (Linear::Dense(weights), _) => x.matmul(weights)?,
                (Linear::Q4(_) | Linear::Q8(_), None) => unreachable!("all weights have one precision"),
            });
        }
        Ok(products.try_into().expect("one for each of N"))
    }

    fn rms_norm(&self, x: &Tensor, weight: &Tensor, _: f32) -> Result<Tensor> {
        self.rms_norm.apply(&[x, weight])
    }

    fn rope(&self, x: &Tensor, cosine: &Tensor, sine: &Tensor) -> Result<Tensor> {
        let (heads, size) = x.dims2()?;
        self.rope.apply_in_place(&[&x.reshape((heads, 1, 2, size / 2))?, cosine, sine])?;
        Ok(x.clone())
    }

    fn attention(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let (heads, size) = q.dims2()?;
        let kv_heads = k.dim(1)?;
        let q = q.reshape((kv_heads, heads / kv_heads, size))?;
        self.attention.apply(&[&q, k, v])?.reshape((heads, size))
    }

    fn swiglu(&self, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
        self.swiglu.apply_in_place(&[&gate.flatten_all()?, &up.flatten_all()?])?;
        Ok(gate.clone())
    }
}
