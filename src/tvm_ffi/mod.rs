//! The packed calling convention of CuTe DSL and TVM: functions `__tvm_ffi_<name>`, called with values of any type. Feature `tvm-ffi`.
//!
//! ```no_run
//! # fn main() -> slabjit::Result<()> {
//! use slabjit::JitEngine;
//! use slabjit::tvm_ffi::{Function, Layout, Tensor};
//!
//! let engine = JitEngine::new()?;
//! // SAFETY: nothing is opened.
//! let library = unsafe { engine.library("model").tvm_ffi().build()? };
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
//! A function raises its errors in a runtime, where they belong to the thread until they are taken, and [`Function::call`] takes them:
//! [`Error::TvmFfiRaised`](crate::Error::TvmFfiRaised) has kind, message, and backtrace if there is one. The runtime is libtvm_ffi.so, given
//! with [`shared_library`](crate::LibraryBuilder::shared_library) or already in the process, or what this crate has of it:
//! [`LibraryBuilder::tvm_ffi`](crate::LibraryBuilder::tvm_ffi). With both, the shared library's functions come first.
//!
//! An error that a library's code has made itself and raises (`TVMFFIErrorSetRaised`) may stay there longer than the library:
//! it is copied as it is raised, with kind, message and backtrace, and without its cause and what else belongs to it.
//!
//! # Values
//! Arguments are tuples of up to 16 of what an [`Any`] can be made from, or slices of those. Results are what [`FromValue`] is implemented
//! for; objects that are neither strings nor bytes are an [`Object`], which lets go of what it is when it is dropped.
//!
//! The records are in [`abi`].

pub mod abi;
mod any;
mod arguments;
mod function;
mod host;
mod object;
mod raised;
mod runtime;
mod tensor;
mod value;

pub(crate) use raised::{SET_RAISED, is_set_raised, set_raised_in};

pub use any::Any;
pub use arguments::Arguments;
pub use dlpark::DlpackElement;
pub use function::Function;
pub use runtime::Runtime;
pub use tensor::{Layout, Tensor};
pub use value::{FromValue, Object, Value};

pub use self::abi::{DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLTensor, TypeIndex};
