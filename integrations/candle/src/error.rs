//! Errors of operators.

use candle_core::DType;

/// Why an operator is not made, or does not run. candle has it as [`candle_core::Error::Wrapped`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// The contract refuses the tensors, or the kernel failed.
    #[error(transparent)]
    Kernel(#[from] slabjit::Error),

    /// A contract that no operator of candle has.
    #[error("kernel '{kernel}' cannot be an operator of candle: {problem}")]
    Contract {
        /// The kernel.
        kernel: String,
        /// What the operator cannot do, and what to do instead.
        problem: String,
    },

    /// Another number of tensors than the kernel reads, or than candle has operators for.
    #[error("kernel '{kernel}' takes {} ({}), and was given {given} tensors", expected.len(), expected.join(", "))]
    Tensors {
        /// The kernel.
        kernel: String,
        /// The buffers that are tensors.
        expected: Vec<String>,
        /// How many tensors were given.
        given: usize,
    },

    /// Two tensors of an operator in place are views of one storage, which candle would lock twice.
    #[error(
        "kernel '{kernel}': buffers '{first}' and '{second}' are views of one storage, and the first is written; copy \
         the other (Tensor::copy)"
    )]
    SharedStorage {
        /// The kernel.
        kernel: String,
        /// The buffer that is written.
        first: String,
        /// The other buffer.
        second: String,
    },

    /// A type that is not passed on.
    #[error("kernel '{kernel}': buffer '{buffer}' was given {dtype:?}, which slabjit-candle does not pass on")]
    Type {
        /// The kernel.
        kernel: String,
        /// The buffer.
        buffer: String,
        /// Its type in candle.
        dtype: DType,
    },

    /// A tensor whose layout leads out of its storage, or that is written and may have elements at one address; or a
    /// result without memory.
    #[error("kernel '{kernel}': buffer '{buffer}' {problem}")]
    Layout {
        /// The kernel.
        kernel: String,
        /// The buffer.
        buffer: String,
        /// What is wrong with it.
        problem: &'static str,
    },
}

impl From<OpError> for candle_core::Error {
    fn from(error: OpError) -> Self {
        Self::wrap(error)
    }
}
