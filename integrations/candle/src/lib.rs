//! [candle](https://docs.rs/candle-core) operators made of kernels that [slabjit] loads.
//!
//! A [`KernelOp`] is made of a [`slabjit::Kernel`]: a loaded function and its contract. It takes tensors. Their types,
//! shapes and strides come from candle, and the contract checks them before the kernel runs. A tensor that does not fit
//! is an error of candle that names the kernel and the buffer.
//!
//! ```
//! use candle_core::{Device, Tensor};
//! use slabjit::JitEngine;
//! use slabjit_candle::KernelOp;
//! use slabjit_candle_kernels::Kernels;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let kernels = Kernels::load(&JitEngine::new()?)?;
//! // SAFETY: the kernel does what its contract says, for every eps.
//! let rmsnorm = unsafe { KernelOp::builder(&kernels.rmsnorm).scalar("eps", 1e-5_f32).build()? };
//!
//! let x = Tensor::new(&[[3.0_f32, 4.0], [6.0, 8.0]], &Device::Cpu)?;
//! let weight = Tensor::new(&[1.0_f32, 2.0], &Device::Cpu)?;
//! let y = rmsnorm.apply(&[&x, &weight])?;
//! assert_eq!(y.dims(), [2, 2]);
//!
//! let error = rmsnorm.apply(&[&x.t()?, &weight]).unwrap_err();
//! assert!(error.to_string().contains("buffer 'x' has the strides"), "{error}");
//! # Ok(())
//! # }
//! ```

mod call;
mod error;
mod op;
mod plan;
mod storage;
mod view;

pub use error::OpError;
pub use op::{KernelOp, KernelOpBuilder};
