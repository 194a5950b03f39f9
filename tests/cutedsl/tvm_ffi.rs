//! TVM-FFI's packed calling convention, as far as these kernels need it (`tvm/ffi/c_api.h`, `dlpack.h`).
#![allow(unsafe_code, reason = "calls of what the caller vouches for")]

use std::ffi::{c_int, c_void};
use std::path::Path;

use slabjit::{Library, Symbol};

/// `TVMFFIAny`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Any {
    kind: i32,
    padding: u32,
    value: u64,
}

impl Any {
    pub const NONE: Self = Self::of(0, 0);

    const fn of(kind: i32, value: u64) -> Self {
        Self { kind, padding: 0, value }
    }

    pub const fn int(value: i64) -> Self {
        Self::of(1, value.cast_unsigned())
    }

    pub const fn float(value: f64) -> Self {
        Self::of(3, value.to_bits())
    }

    pub const fn pointer(address: usize) -> Self {
        Self::of(4, address as u64)
    }

    /// The tensor has to outlive it.
    pub fn tensor(tensor: &Tensor) -> Self {
        Self::of(7, (&raw const tensor.header).expose_provenance() as u64)
    }
}

#[repr(C)]
struct DLTensor {
    data: usize,
    device: [i32; 2],
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// A `DLTensor` on the first CUDA device, row by row, with the shape it points to.
pub struct Tensor {
    header: DLTensor,
    _shape: Box<[i64]>,
    _strides: Box<[i64]>,
}

/// `kDLInt` and `kDLFloat`.
#[derive(Debug, Clone, Copy)]
pub enum Code {
    Int = 0,
    Float = 2,
}

impl Tensor {
    /// Of 32-bit elements, the first at `first`, told as an address `byte_offset` bytes before it and this offset.
    pub fn new(first: usize, byte_offset: u64, code: Code, shape: &[i64]) -> Self {
        const CUDA: i32 = 2;
        let shape: Box<[i64]> = shape.into();
        let strides: Box<[i64]> = (1..=shape.len()).map(|i| shape[i..].iter().product()).collect();
        let header = DLTensor {
            data: first - byte_offset as usize,
            device: [CUDA, 0],
            ndim: shape.len() as i32,
            code: code as u8,
            bits: 32,
            lanes: 1,
            shape: shape.as_ptr(),
            strides: strides.as_ptr(),
            byte_offset,
        };
        Self { header, _shape: shape, _strides: strides }
    }
}

pub type Packed = unsafe extern "C" fn(*mut c_void, *const Any, i32, *mut Any) -> c_int;

/// A kernel's function of this convention.
#[track_caller]
pub fn function(library: &Library, kernel: &str) -> Symbol<Packed> {
    // SAFETY: every `__tvm_ffi_<name>` has this type; the objects have no initialisers, and a finaliser of the
    // compiler's own.
    unsafe { library.get(&format!("__tvm_ffi_{kernel}")).unwrap_or_else(|e| panic!("{e}")) }
}

/// Calls it; 0 is success.
pub fn call(function: &Symbol<Packed>, arguments: &[Any]) -> c_int {
    let mut result = Any::NONE;
    // SAFETY: the function checks the arguments' number and kinds, and writes one result.
    unsafe { function(std::ptr::null_mut(), arguments.as_ptr(), arguments.len() as i32, &mut result) }
}

/// The kind and the message of the error that this thread has raised, which is taken away.
pub fn raised(libtvm_ffi: &Path) -> (String, String) {
    /// `TVMFFIObject`, then `TVMFFIErrorCell`, as far as it is looked at.
    #[repr(C)]
    struct Error {
        object: [usize; 3],
        kind: Bytes,
        message: Bytes,
    }
    #[repr(C)]
    struct Bytes {
        start: *const u8,
        length: usize,
    }
    let text = |bytes: &Bytes| {
        // SAFETY: the error has as many.
        String::from_utf8(unsafe { std::slice::from_raw_parts(bytes.start, bytes.length) }.to_vec()).unwrap()
    };
    // SAFETY: the library is open already; both functions have these types (c_api.h), and the error is ours to release.
    unsafe {
        let library = libloading::Library::new(libtvm_ffi).unwrap();
        let take = library.get::<unsafe extern "C" fn(*mut *mut Error)>("TVMFFIErrorMoveFromRaised").unwrap();
        let release = library.get::<unsafe extern "C" fn(*mut Error) -> c_int>("TVMFFIObjectDecRef").unwrap();
        let mut error = std::ptr::null_mut();
        take(&mut error);
        let said = error.as_ref().map(|error| (text(&error.kind), text(&error.message)));
        release(error);
        said.expect("an error is raised")
    }
}
