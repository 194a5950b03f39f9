//! The records of `tvm/ffi/c_api.h`, under its own names, for what is not wrapped here.
//!
//! Those of apache-tvm-ffi 0.1.15; the records of DLPack in them are dlpark's. A test compares every size and
//! offset with a C program that includes the header.
// tvm-ffi-sys has them too, but its build script does not build without libtvm_ffi.

use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::mem::{align_of, offset_of, size_of};
use std::sync::atomic::AtomicU64;

pub use dlpark::ffi::{DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLTensor};

/// `TVMFFISafeCallType`, what every `__tvm_ffi_<name>` is: the handle, which functions of an object do not use; arguments and how many;
/// where the result goes, which is None before. Not 0 where it failed, after an error was raised.
pub type TVMFFISafeCallType = unsafe extern "C" fn(*mut c_void, *const TVMFFIAny, i32, *mut TVMFFIAny) -> c_int;

/// What a value is: `TVMFFITypeIndex`. From 64 on it is an object, with a reference count.
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
    /// Whether a value of it is a reference to an object.
    pub const fn is_object(self) -> bool {
        self.0 >= Self::OBJECT.0
    }
}

impl fmt::Debug for TypeIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({self})", self.0)
    }
}

/// A value: what it is, and itself.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TVMFFIAny {
    /// What it is.
    pub type_index: TypeIndex,
    /// Bytes of a small string, at most 7; 0 for everything else.
    pub small_str_len: u32,
    /// The value itself.
    pub value: TVMFFIAnyValue,
}

/// The value of a [`TVMFFIAny`]. What a value leaves of the eight bytes is 0.
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

/// What every object begins with.
#[repr(C)]
pub struct TVMFFIObject {
    /// Strong references in the lower half; in the upper weak ones, and one more as long as there are strong ones.
    pub combined_ref_count: AtomicU64,
    /// What it is.
    pub type_index: TypeIndex,
    #[doc(hidden)]
    pub __padding: u32,
    /// Ends it, or frees its memory, or both: [`DELETE_STRONG`] and [`DELETE_WEAK`].
    pub deleter: Option<unsafe extern "C" fn(*mut c_void, c_int)>,
}

/// For a deleter: no strong references are left, what the object owns is to go.
pub const DELETE_STRONG: c_int = 1;
/// For a deleter: no references are left, its memory is to go.
pub const DELETE_WEAK: c_int = 2;

/// What lies before every object. Null where its deleter frees the memory itself.
#[repr(C)]
pub struct TVMFFIObjectAllocHeader {
    /// Takes the memory of an object back.
    pub delete_space: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// Bytes of somebody else's. What follows the header of a string.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TVMFFIByteArray {
    /// The first.
    pub data: *const u8,
    /// How many.
    pub size: usize,
}

/// What follows the header of an error.
#[repr(C)]
pub struct TVMFFIErrorCell {
    /// Such as `ValueError`.
    pub kind: TVMFFIByteArray,
    /// What happened.
    pub message: TVMFFIByteArray,
    /// Where, the most recent call first.
    pub backtrace: TVMFFIByteArray,
    /// Replaces the backtrace (mode 0), or adds to it (mode 1).
    pub update_backtrace: Option<unsafe extern "C" fn(*mut c_void, *const TVMFFIByteArray, i32)>,
    /// The error that led to this one, or null.
    pub cause_chain: *mut TVMFFIObject,
    /// Something that belongs to it, or null.
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
