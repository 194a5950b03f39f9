//! The packed calling convention of CuTe DSL and TVM (feature `tvm-ffi`): functions `__tvm_ffi_<name>`, called with
//! values of any type.
//!
//! ```no_run
//! # fn main() -> slabjit::Result<()> {
//! use slabjit::JitEngine;
//! use slabjit::tvm_ffi::{Function, Layout, Tensor};
//!
//! let engine = JitEngine::new()?;
//! let library = engine.library("model").tvm_ffi().build()?;
//! library.add_object_file("scale.o")?;
//! // SAFETY: scale.o has `__tvm_ffi_scale`, and its initialisers may run.
//! let scale = unsafe { Function::get(&library, "scale")? };
//!
//! let mut data = [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0];
//! let layout = Layout::contiguous(&[2, 3])?;
//! let tensor = Tensor::from_slice_mut(&mut data, &layout)?;
//! // SAFETY: it takes a tensor and a number.
//! let elements: i64 = unsafe { scale.call((&tensor, 0.5))? };
//! assert_eq!(elements, 6);
//! # Ok(())
//! # }
//! ```
//!
//! # Errors
//! A function raises its errors in a runtime, which keeps them for the thread until [`Function::call`] takes them:
//! [`TvmFfiError::Raised`] has kind, message, and backtrace if there is one. The runtime is libtvm_ffi.so, given with
//! [`shared_library`](crate::LibraryBuilder::shared_library) or already in the process, or this crate's substitute:
//! [`LibraryBuilder::tvm_ffi`](crate::LibraryBuilder::tvm_ffi). With both, the shared library's functions come first.
//!
//! An error object that a library's code has made and raised (`TVMFFIErrorSetRaised`) may outlive the library: it is
//! copied when it is raised, with kind, message and backtrace, but without its cause and its context.
//!
//! # Values
//! Arguments are tuples of up to 16 values that convert to [`Any`], or slices of `Any`. Results are types that
//! implement [`FromValue`]. Objects that are neither strings nor bytes are an [`Object`], which releases its reference
//! on drop.
//!
//! The records are in [`abi`].

pub mod abi;
mod any;
mod arguments;
mod dlpack;
mod error;
mod ffi_object;
mod function;
mod host;
mod raised;
mod runtime;
mod tensor;
mod value;

pub use error::TvmFfiError;
pub(crate) use raised::{SET_RAISED, is_set_raised, set_raised_in};

pub use any::Any;
pub use arguments::Arguments;
pub use dlpack::DlpackElement;
pub use function::Function;
pub use runtime::Runtime;
pub use tensor::{Layout, Tensor};
pub use value::{FromValue, Object, Value};

pub use crate::tvm_ffi::abi::{DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLTensor, TypeIndex};
