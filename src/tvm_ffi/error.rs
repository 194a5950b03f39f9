//! Errors of packed functions.

use std::fmt;

use crate::error_text::debug;

/// An error of a packed function, or the reason why it was not called.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum TvmFfiError {
    /// A function of the packed calling convention raised an error.
    #[error("'{function}' of library '{library}' raised {kind}: {message}{}", raised_at(backtrace))]
    Raised {
        /// The library.
        library: String,
        /// The function, without its prefix, or one of the runtime's.
        function: String,
        /// The kind, such as `ValueError`.
        kind: String,
        /// The message.
        message: String,
        /// The backtrace, the most recent call first, if it is known.
        backtrace: Option<String>,
    },

    /// A function of the packed calling convention failed without raising an error, or its error could not be found.
    #[error(
        "'{function}' of library '{library}' returned {code} and raised no error; the function is at fault, or it \
         raises errors elsewhere than where its library finds TVMFFIErrorMoveFromRaised (Library::imports says where)"
    )]
    Failed {
        /// The library.
        library: String,
        /// The function, without its prefix, or one of the runtime's.
        function: String,
        /// The returned code.
        code: i32,
    },

    /// A function of the packed calling convention returned a value of another type than requested. The value was
    /// dropped.
    #[error(
        "'{function}' of library '{library}' returned {found}, the call expects {expected}; ask for what it returns, \
         or for a tvm_ffi::Value"
    )]
    Result {
        /// The library.
        library: String,
        /// The function, without its prefix.
        function: String,
        /// The requested type.
        expected: &'static str,
        /// The type of the value.
        found: String,
    },

    /// There are more arguments than the packed calling convention can count.
    #[error(
        "'{function}' of library '{library}' cannot be called with {count} arguments; at most {} can be counted",
        i32::MAX
    )]
    Arguments {
        /// The library.
        library: String,
        /// The function, without its prefix.
        function: String,
        /// The number of arguments.
        count: usize,
    },

    /// A function of the tvm-ffi runtime was not found.
    #[error(
        "library '{library}' finds no {symbol}; give it libtvm_ffi.so with LibraryBuilder::shared_library{}",
        if is_substituted(symbol) { ", or LibraryBuilder::tvm_ffi" } else { "" }
    )]
    Runtime {
        /// The library.
        library: String,
        /// The name.
        symbol: &'static str,
    },

    /// Nothing has registered a global function of that name.
    #[error(
        "library '{library}' finds no global function '{function}' of tvm-ffi; give it the shared library that \
         registers it, such as libtvm_runtime.so (LibraryBuilder::shared_library)"
    )]
    NoGlobal {
        /// The library.
        library: String,
        /// The function.
        function: String,
    },

    /// An object that is no function was to be called.
    #[error("library '{library}' cannot call {found}; only an ffi.Function can be called")]
    NotAFunction {
        /// The library.
        library: String,
        /// The object's type.
        found: String,
    },

    /// A tensor's shape and strides differ in length, or one of them is missing.
    #[error("a tensor of shape {shape:?} has strides {strides:?}; give one stride, in elements, for each dimension")]
    TensorRank {
        /// Elements in each dimension.
        shape: Vec<i64>,
        /// Elements from one to the next.
        strides: Vec<i64>,
    },

    /// A tensor has a negative number of elements in a dimension.
    #[error("dimension {dimension} of a tensor of shape {shape:?} is negative")]
    TensorExtent {
        /// Elements in each dimension.
        shape: Vec<i64>,
        /// The dimension.
        dimension: usize,
    },

    /// A tensor has a negative stride.
    #[error(
        "stride {dimension} of a tensor with strides {strides:?} is negative; copy it, or pass its mirror image and \
         have the kernel count down"
    )]
    TensorStride {
        /// Elements from one to the next.
        strides: Vec<i64>,
        /// The dimension.
        dimension: usize,
    },

    /// A tensor's number of elements, or the offset of its last element, is too large to count.
    #[error("a tensor of shape {shape:?} and strides {strides:?} does not fit into an address space")]
    TensorOverflow {
        /// Elements in each dimension.
        shape: Vec<i64>,
        /// Elements from one to the next; empty if they were being computed.
        strides: Vec<i64>,
    },

    /// A tensor reaches past its slice.
    #[error("a tensor needs {needed} elements from its first to its last, the slice has {elements}")]
    TensorOutOfBounds {
        /// The number of elements that it needs.
        needed: i64,
        /// The number of elements in the slice.
        elements: usize,
    },

    /// A tensor with elements has a null pointer.
    #[error("a tensor of {bytes} bytes has no memory: its pointer is null")]
    TensorNull {
        /// Its size.
        bytes: u64,
    },

    /// A tensor's first element is not aligned.
    #[error(
        "a tensor's first element is at {address:#x}, which is no multiple of {alignment}, the size of its element type"
    )]
    TensorMisaligned {
        /// Its address.
        address: u64,
        /// The alignment in bytes.
        alignment: u64,
    },
}

impl fmt::Debug for TvmFfiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(self, f)
    }
}

/// Returns whether [`LibraryBuilder::tvm_ffi`](crate::LibraryBuilder::tvm_ffi) has such a function: it has no function
/// objects.
fn is_substituted(symbol: &str) -> bool {
    !symbol.starts_with("TVMFFIFunction")
}

fn raised_at(backtrace: &Option<String>) -> String {
    backtrace.as_ref().map_or_else(String::new, |backtrace| format!("\n{backtrace}"))
}
