//! Errors of kernels.

use std::fmt;

use crate::error_text::debug;

/// Why a kernel is not called or not tuned.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// A [`KernelSignature`](crate::KernelSignature) that makes no sense.
    #[error("the signature of kernel '{kernel}' makes no sense{}: {problem}", at_argument(argument))]
    InvalidSignature {
        /// The kernel.
        kernel: String,
        /// The argument concerned, where there is one.
        argument: Option<String>,
        /// What is wrong with it.
        problem: String,
    },

    /// A text that is not one of [signatures](crate::KernelSignature::parse_all).
    #[error("signatures, line {line}, column {column}: expected {expected}, found {found}; {instead}")]
    SignatureSyntax {
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// What is there.
        found: String,
        /// What may be there.
        expected: String,
        /// What to write instead.
        instead: String,
    },

    /// A [`KernelSignature`](crate::KernelSignature) that makes no sense, in a text.
    #[error("signatures, line {line}, column {column}: {source}")]
    SignatureInText {
        /// The line of the argument concerned, or of the signature, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// An [`InvalidSignature`](Self::InvalidSignature).
        source: Box<KernelError>,
    },

    /// A function that is not what the signature says.
    #[error(
        "a function cannot be bound to the signature of kernel '{kernel}'{}: {problem}; correct the type that \
         Library::get was given, or the signature",
        at_argument(argument)
    )]
    FunctionMismatch {
        /// The kernel.
        kernel: String,
        /// The argument concerned, where there is one.
        argument: Option<String>,
        /// In what they differ.
        problem: String,
    },

    /// A kernel was called with more or fewer arguments than it takes. It did not run.
    #[error("kernel '{kernel}' takes {} arguments ({}), and was given {given}", expected.len(), expected.join(", "))]
    ArgumentCount {
        /// The kernel.
        kernel: String,
        /// The names of its arguments.
        expected: Vec<String>,
        /// How many there were.
        given: usize,
    },

    /// A kernel was called with the arguments that it takes, in another order. It did not run.
    #[error(
        "kernel '{kernel}' takes the arguments that it was given in another order: '{argument}', in place {position}, \
         is {expected}, and {given} is there"
    )]
    ArgumentOrder {
        /// The kernel.
        kernel: String,
        /// The first argument in whose place another is.
        argument: String,
        /// Its place, from 0.
        position: usize,
        /// What it is.
        expected: String,
        /// What is there.
        given: String,
    },

    /// A kernel was called with an argument of another kind: a scalar, a buffer, or one that must not be written to,
    /// where another is taken. It did not run.
    #[error("kernel '{kernel}': argument '{argument}', in place {position}, is {expected}, and was given {given}")]
    ArgumentKind {
        /// The kernel.
        kernel: String,
        /// The argument.
        argument: String,
        /// Its place, from 0.
        position: usize,
        /// What it is.
        expected: String,
        /// What is there.
        given: String,
    },

    /// A buffer with elements of another type. The kernel did not run.
    #[error("kernel '{kernel}': buffer '{argument}' has elements of type {expected}, and was given {given}")]
    ElementMismatch {
        /// The kernel.
        kernel: String,
        /// The argument.
        argument: String,
        /// What it takes.
        expected: crate::ElementType,
        /// What it was given.
        given: crate::ElementType,
    },

    /// A buffer of another shape. The kernel did not run.
    #[error("kernel '{kernel}': buffer '{argument}' has the shape {expected}, and was given {given:?}")]
    ShapeMismatch {
        /// The kernel.
        kernel: String,
        /// The argument.
        argument: String,
        /// The shape it has, in words.
        expected: String,
        /// The shape that was given.
        given: Vec<usize>,
    },

    /// A buffer whose elements lie otherwise. The kernel did not run.
    #[error(
        "kernel '{kernel}': buffer '{argument}' has the strides {expected}, and was given {given:?}; copy it, or \
         declare them (KernelSignatureBuilder::strides)"
    )]
    StridesMismatch {
        /// The kernel.
        kernel: String,
        /// The argument.
        argument: String,
        /// The strides it has, in words, in elements.
        expected: String,
        /// The strides that were given.
        given: Vec<isize>,
    },

    /// A buffer that runs backwards. The kernel did not run.
    #[error(
        "kernel '{kernel}': buffer '{argument}' has the stride {stride} in dimension {dimension}; strides must not be \
         negative: copy it"
    )]
    NegativeStride {
        /// The kernel.
        kernel: String,
        /// The argument.
        argument: String,
        /// The dimension, from 0 for the outermost.
        dimension: usize,
        /// Its stride, in elements.
        stride: isize,
    },

    /// A buffer that cannot be anywhere: its size overflows, or it would go on beyond the last address (56 bits). The
    /// kernel did not run.
    #[error(
        "kernel '{kernel}': buffer '{argument}' of shape {shape:?}{} fits into no address space where it begins; \
         shape or strides are wrong",
        strides_of(strides)
    )]
    BufferTooLarge {
        /// The kernel.
        kernel: String,
        /// The argument.
        argument: String,
        /// Its shape.
        shape: Vec<usize>,
        /// Its strides, in elements, where they were given.
        strides: Option<Vec<isize>>,
    },

    /// A null pointer to a buffer that has elements. The kernel did not run.
    #[error("kernel '{kernel}': buffer '{argument}' has elements, and its pointer is null")]
    NullBuffer {
        /// The kernel.
        kernel: String,
        /// The argument.
        argument: String,
    },

    /// A pointer that is not aligned as the kernel needs it. The kernel did not run.
    #[error("kernel '{kernel}': buffer '{argument}' is at {address:#x}, which is no multiple of {alignment}")]
    MisalignedBuffer {
        /// The kernel.
        kernel: String,
        /// The argument.
        argument: String,
        /// Where it is.
        address: usize,
        /// What that has to be a multiple of, in bytes.
        alignment: usize,
    },

    /// Shape and strides that lead out of the slice that a buffer was made of. The kernel did not run.
    #[error(
        "kernel '{kernel}': buffer '{argument}' takes {needed} bytes with its shape and strides, and the slice it was \
         made of has {given}"
    )]
    BufferTooSmall {
        /// The kernel.
        kernel: String,
        /// The argument.
        argument: String,
        /// Bytes from its first element to its last.
        needed: u64,
        /// Bytes there are.
        given: u64,
    },

    /// A scalar that is an extent of the buffers, and has another value. The kernel did not run.
    #[error(
        "kernel '{kernel}': scalar '{argument}' is an extent, {expected} as of buffer '{buffer}', and was given \
         {given}; give Argument::extent() to have it taken from the buffers"
    )]
    ExtentMismatch {
        /// The kernel.
        kernel: String,
        /// The argument.
        argument: String,
        /// The first buffer with that extent.
        buffer: String,
        /// Its extent.
        expected: usize,
        /// The value that was given.
        given: String,
    },

    /// An extent that its scalar's type cannot hold. The kernel did not run.
    #[error(
        "kernel '{kernel}': scalar '{argument}' is an extent, {extent} as of buffer '{buffer}', which {scalar} cannot \
         hold; give smaller buffers"
    )]
    ExtentTooLarge {
        /// The kernel.
        kernel: String,
        /// The argument.
        argument: String,
        /// The first buffer with that extent.
        buffer: String,
        /// Its extent.
        extent: usize,
        /// The scalar's type.
        scalar: crate::ScalarType,
    },

    /// Two buffers, one of which is written, share memory that they may not share. The kernel did not run
    /// (TransformerEngine#2730 is what happens if it does).
    #[error("kernel '{kernel}': buffers '{first}' and '{second}' overlap in bytes {:#x}..{:#x}, {overlap}", bytes.start, bytes.end)]
    BuffersOverlap {
        /// The kernel.
        kernel: String,
        /// The earlier of the two arguments.
        first: String,
        /// The later one.
        second: String,
        /// The addresses that lie in the range of both. Where they have gaps, not each of these bytes is shared.
        bytes: std::ops::Range<u64>,
        /// Why they may not.
        overlap: Overlap,
    },

    /// A kernel returned a status that is not 0.
    #[error("kernel '{kernel}' failed with status {status}; its author says what that means")]
    Failed {
        /// The kernel.
        kernel: String,
        /// What it returned.
        status: i64,
    },

    /// The candidate that an [`Autotuner`](crate::Autotuner) has found to be the fastest is not where it was. None was
    /// run.
    #[error(
        "for '{key}' candidate '{candidate}', in place {place}, is the fastest, and is not there; give all candidates \
         in the same order each time, or Autotuner::forget the key"
    )]
    TunedCandidateMissing {
        /// The key.
        key: String,
        /// The candidate.
        candidate: String,
        /// Its place, from 0.
        place: usize,
    },

    /// An [`Autotuner`](crate::Autotuner) could not save or restore memory.
    #[error("{bytes} bytes of {space} could not be saved or restored: {problem}")]
    TuningMemory {
        /// Where it is.
        space: crate::MemorySpace,
        /// How many.
        bytes: usize,
        /// What is wrong, and what to do about it.
        problem: String,
    },
}

impl fmt::Debug for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(self, f)
    }
}

/// Why two buffers may not overlap; see [`KernelError::BuffersOverlap`](crate::KernelError::BuffersOverlap).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Overlap {
    /// They are not declared as an output and the input whose place it may have.
    Undeclared,
    /// They are, but the kernel is not said to be safe in place.
    NotInPlace,
    /// They are, and the kernel is safe in place, but the two are not the same view: elements would be written where
    /// others are read from.
    Partial,
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Undeclared => "one of them is written, and they are not declared as aliases; give them memory of their own",
            Self::NotInPlace => "and the kernel is not safe in place (KernelSignatureBuilder::in_place), though they are declared as aliases; give them memory of their own",
            Self::Partial => "and aliases have to be the same view: one address, one shape, the same strides",
        })
    }
}

fn at_argument(argument: &Option<String>) -> String {
    argument.as_ref().map_or_else(String::new, |argument| format!(", argument '{argument}'"))
}

fn strides_of(strides: &Option<Vec<isize>>) -> String {
    strides.as_ref().map_or_else(String::new, |strides| format!(" and strides {strides:?}"))
}
