//! The records of `tvm/ffi/c_api.h`, under their own names, for features that this crate does not wrap.
//!
//! They are those of apache-tvm-ffi 0.1.15; the DLPack records in them are dlpark's. A test compares every size and
//! offset with a C program that includes the header.
// tvm-ffi-sys has them too, but its build script requires libtvm_ffi.

use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::mem::{align_of, offset_of, size_of};
use std::sync::atomic::AtomicU64;

pub use crate::tvm_ffi::dlpack::{DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLTensor};

/// `TVMFFISafeCallType`, the type of every `__tvm_ffi_<name>`. The parameters are the handle, which functions of an
/// object do not use, the arguments and their number, and the place of the result, which is None before. It returns 0,
/// or another number after it has raised an error.
pub type TVMFFISafeCallType = unsafe extern "C" fn(*mut c_void, *const TVMFFIAny, i32, *mut TVMFFIAny) -> c_int;

/// The type of a value: `TVMFFITypeIndex`. From 64 on it is an object, with a reference count.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeIndex(pub i32);

macro_rules! type_indices {
    ($($name:ident = $value:literal $shown:literal,)*) => {
        impl TypeIndex {
            $(#[doc = concat!("`", $shown, "`")] pub const $name: Self = Self($value);)*
        }

        impl fmt::Display for TypeIndex {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self {
                    $(Self::$name => f.write_str($shown),)*
                    Self(other) if self.is_object() => write!(f, "an object of type {other}"),
                    Self(other) => write!(f, "a value of the unknown type {other}"),
                }
            }
        }
    };
}

type_indices! {
    NONE = 0 "None",
    INT = 1 "int",
    BOOL = 2 "bool",
    FLOAT = 3 "float",
    OPAQUE_PTR = 4 "void*",
    DATA_TYPE = 5 "DLDataType",
    DEVICE = 6 "DLDevice",
    DL_TENSOR_PTR = 7 "DLTensor*",
    RAW_STR = 8 "const char*",
    BYTE_ARRAY_PTR = 9 "TVMFFIByteArray*",
    OBJECT_R_VALUE_REF = 10 "an r-value reference",
    SMALL_STR = 11 "str",
    SMALL_BYTES = 12 "bytes",
    OBJECT = 64 "ffi.Object",
    STR = 65 "ffi.String",
    BYTES = 66 "ffi.Bytes",
    ERROR = 67 "ffi.Error",
    FUNCTION = 68 "ffi.Function",
    SHAPE = 69 "ffi.Shape",
    TENSOR = 70 "ffi.Tensor",
    ARRAY = 71 "ffi.Array",
    MAP = 72 "ffi.Map",
    MODULE = 73 "ffi.Module",
    OPAQUE_PY_OBJECT = 74 "ffi.OpaquePyObject",
    LIST = 75 "ffi.List",
    DICT = 76 "ffi.Dict",
}

impl TypeIndex {
    /// Returns whether values of this type are references to objects.
    pub const fn is_object(self) -> bool {
        self.0 >= Self::OBJECT.0
    }
}

impl fmt::Debug for TypeIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({self})", self.0)
    }
}

/// A value with its type.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct TVMFFIAny {
    /// The type.
    pub type_index: TypeIndex,
    /// Bytes of a small string, at most 7; 0 for everything else.
    pub small_str_len: u32,
    /// The value itself.
    pub value: TVMFFIAnyValue,
}

/// The value of a [`TVMFFIAny`]. Unused bytes of the eight are 0.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "the header's own names, one for each type")]
pub union TVMFFIAnyValue {
    pub v_int64: i64,
    pub v_float64: f64,
    pub v_ptr: *mut c_void,
    pub v_c_str: *const c_char,
    pub v_obj: *mut TVMFFIObject,
    pub v_dtype: DLDataType,
    pub v_device: DLDevice,
    pub v_bytes: [u8; 8],
    pub v_uint64: u64,
}

/// Only [`TVMFFIAny`] knows the type.
impl fmt::Debug for TVMFFIAnyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TVMFFIAnyValue").finish_non_exhaustive()
    }
}

/// The header of every object.
#[repr(C)]
#[derive(Debug)]
pub struct TVMFFIObject {
    /// Strong references in the lower half; weak ones in the upper half, plus one while there are strong ones.
    pub combined_ref_count: AtomicU64,
    /// The type.
    pub type_index: TypeIndex,
    #[doc(hidden)]
    pub __padding: u32,
    /// Destroys it, or frees its memory, or both: [`DELETE_STRONG`] and [`DELETE_WEAK`].
    pub deleter: Option<unsafe extern "C" fn(*mut c_void, c_int)>,
}

/// A deleter's flag: no strong references are left, so the object's contents are destroyed.
pub const DELETE_STRONG: c_int = 1;
/// A deleter's flag: no references are left, so its memory is freed.
pub const DELETE_WEAK: c_int = 2;

/// The record before every object. Null if its deleter frees the memory itself.
#[repr(C)]
#[derive(Debug)]
pub struct TVMFFIObjectAllocHeader {
    /// Frees the memory of an object.
    pub delete_space: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// Bytes with another owner. They follow the header of a string.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct TVMFFIByteArray {
    /// The first byte.
    pub data: *const u8,
    /// The number of bytes.
    pub size: usize,
}

/// The record after the header of an error.
#[repr(C)]
#[derive(Debug)]
pub struct TVMFFIErrorCell {
    /// The kind, such as `ValueError`.
    pub kind: TVMFFIByteArray,
    /// The message.
    pub message: TVMFFIByteArray,
    /// The backtrace, the most recent call first.
    pub backtrace: TVMFFIByteArray,
    /// Replaces the backtrace (mode 0), or adds to it (mode 1).
    pub update_backtrace: Option<unsafe extern "C" fn(*mut c_void, *const TVMFFIByteArray, i32)>,
    /// The error that led to this one, or null.
    pub cause_chain: *mut TVMFFIObject,
    /// An object that belongs to it, or null.
    pub extra_context: *mut TVMFFIObject,
}

const _: () = {
    assert!(size_of::<TVMFFIAny>() == 16 && align_of::<TVMFFIAny>() == 8);
    assert!(offset_of!(TVMFFIAny, small_str_len) == 4 && offset_of!(TVMFFIAny, value) == 8);
    assert!(size_of::<TVMFFIObject>() == 24 && align_of::<TVMFFIObject>() == 8);
    assert!(offset_of!(TVMFFIObject, type_index) == 8 && offset_of!(TVMFFIObject, deleter) == 16);
    assert!(size_of::<TVMFFIObjectAllocHeader>() == 8 && size_of::<TVMFFIByteArray>() == 16);
    assert!(size_of::<TVMFFIErrorCell>() == 72 && offset_of!(TVMFFIErrorCell, update_backtrace) == 48);
};
