//! The records of `dlpack/dlpack.h`, under its own names. DLPack's ABI fixes them. A test compares them with the
//! header.
#![allow(unsafe_code, reason = "an unsafe trait, and what it says of Rust's numbers")]

use std::ffi::c_void;
use std::mem::{align_of, offset_of, size_of};

/// A kind of device: `DLDeviceType`. A new kind needs no new version of this crate.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DLDeviceType(pub u32);

macro_rules! device_types {
    ($($name:ident = $value:literal $shown:literal,)*) => {
        impl DLDeviceType {
            $(#[doc = concat!("`", $shown, "`")] pub const $name: Self = Self($value);)*
        }
    };
}

device_types! {
    CPU = 1 "kDLCPU",
    CUDA = 2 "kDLCUDA",
    CUDAHOST = 3 "kDLCUDAHost",
    OPENCL = 4 "kDLOpenCL",
    VULKAN = 7 "kDLVulkan",
    METAL = 8 "kDLMetal",
    VPI = 9 "kDLVPI",
    ROCM = 10 "kDLROCM",
    ROCMHOST = 11 "kDLROCMHost",
    EXTDEV = 12 "kDLExtDev",
    CUDAMANAGED = 13 "kDLCUDAManaged",
    ONEAPI = 14 "kDLOneAPI",
    WEBGPU = 15 "kDLWebGPU",
    HEXAGON = 16 "kDLHexagon",
    MAIA = 17 "kDLMAIA",
    TRN = 18 "kDLTrn",
}

/// A device: `DLDevice`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DLDevice {
    /// Its kind.
    pub device_type: DLDeviceType,
    /// Its number among those of its kind; 0 for memory of the host.
    pub device_id: i32,
}

impl DLDevice {
    /// The host.
    pub const CPU: Self = Self { device_type: DLDeviceType::CPU, device_id: 0 };

    /// A CUDA device, by its ordinal.
    pub const fn cuda(device_id: i32) -> Self {
        Self { device_type: DLDeviceType::CUDA, device_id }
    }
}

/// A kind of number: `DLDataTypeCode`. A new kind needs no new version of this crate.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DLDataTypeCode(pub u8);

/// The type of an element: `DLDataType`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DLDataType {
    /// Its kind of number.
    pub code: DLDataTypeCode,
    /// Bits of one lane.
    pub bits: u8,
    /// How many lanes a vector has; 1 for a number.
    pub lanes: u16,
}

impl DLDataType {
    /// A vector of numbers.
    pub const fn new(code: DLDataTypeCode, bits: u8, lanes: u16) -> Self {
        Self { code, bits, lanes }
    }

    /// A number.
    pub const fn scalar(code: DLDataTypeCode, bits: u8) -> Self {
        Self::new(code, bits, 1)
    }
}

macro_rules! codes {
    ($($name:ident = $value:literal $shown:literal,)*) => {
        impl DLDataTypeCode {
            $(#[doc = concat!("`", $shown, "`")] pub const $name: Self = Self($value);)*
        }
    };
}

codes! {
    INT = 0 "kDLInt",
    UINT = 1 "kDLUInt",
    FLOAT = 2 "kDLFloat",
    OPAQUEHANDLE = 3 "kDLOpaqueHandle",
    BFLOAT = 4 "kDLBfloat",
    COMPLEX = 5 "kDLComplex",
    BOOL = 6 "kDLBool",
    FLOAT8_E3M4 = 7 "kDLFloat8_e3m4",
    FLOAT8_E4M3 = 8 "kDLFloat8_e4m3",
    FLOAT8_E4M3B11FNUZ = 9 "kDLFloat8_e4m3b11fnuz",
    FLOAT8_E4M3FN = 10 "kDLFloat8_e4m3fn",
    FLOAT8_E4M3FNUZ = 11 "kDLFloat8_e4m3fnuz",
    FLOAT8_E5M2 = 12 "kDLFloat8_e5m2",
    FLOAT8_E5M2FNUZ = 13 "kDLFloat8_e5m2fnuz",
    FLOAT8_E8M0FNU = 14 "kDLFloat8_e8m0fnu",
    FLOAT6_E2M3FN = 15 "kDLFloat6_e2m3fn",
    FLOAT6_E3M2FN = 16 "kDLFloat6_e3m2fn",
    FLOAT4_E2M1FN = 17 "kDLFloat4_e2m1fn",
}

macro_rules! data_types {
    ($($name:ident = $code:ident $bits:literal,)*) => {
        impl DLDataType {
            $(
                #[doc = concat!("`", stringify!($code), "` of ", $bits, " bits.")]
                pub const $name: Self = Self::scalar(DLDataTypeCode::$code, $bits);
            )*
        }
    };
}

data_types! {
    BOOL = BOOL 8,
    I8 = INT 8,
    I16 = INT 16,
    I32 = INT 32,
    I64 = INT 64,
    U8 = UINT 8,
    U16 = UINT 16,
    U32 = UINT 32,
    U64 = UINT 64,
    F16 = FLOAT 16,
    F32 = FLOAT 32,
    F64 = FLOAT 64,
    BF16 = BFLOAT 16,
    C64 = COMPLEX 64,
    C128 = COMPLEX 128,
    F8E3M4 = FLOAT8_E3M4 8,
    F8E4M3 = FLOAT8_E4M3 8,
    F8E4M3B11FNUZ = FLOAT8_E4M3B11FNUZ 8,
    F8E4M3FN = FLOAT8_E4M3FN 8,
    F8E4M3FNUZ = FLOAT8_E4M3FNUZ 8,
    F8E5M2 = FLOAT8_E5M2 8,
    F8E5M2FNUZ = FLOAT8_E5M2FNUZ 8,
    F8E8M0FNU = FLOAT8_E8M0FNU 8,
    F6E2M3FN = FLOAT6_E2M3FN 6,
    F6E3M2FN = FLOAT6_E3M2FN 6,
    F4E2M1FN = FLOAT4_E2M1FN 4,
}

/// A tensor that owns no memory: `DLTensor`. Those of other crates, such as dlpark's, are cast to it by pointer.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DLTensor {
    /// The memory, on the device.
    pub data: *mut c_void,
    /// Where the memory is.
    pub device: DLDevice,
    /// How many dimensions.
    pub ndim: i32,
    /// The type of an element.
    pub dtype: DLDataType,
    /// Elements in each dimension; may be null without dimensions.
    pub shape: *mut i64,
    /// Elements from one to the next in each dimension; may be null without dimensions.
    pub strides: *mut i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// A Rust type that is an element of a tensor: integers, `f32` and `f64`.
///
/// What else has the bits of an element is a newtype with this trait. Of `half`'s numbers, for example:
/// ```
/// use slabjit::tvm_ffi::{DLDataType, DlpackElement};
///
/// #[repr(transparent)]
/// struct Bf16(u16); // or half::bf16
///
/// // SAFETY: 16 bits, all of which may have any value.
/// unsafe impl DlpackElement for Bf16 {
///     const DTYPE: DLDataType = DLDataType::BF16;
/// }
/// ```
///
/// # Safety
/// The type has the size and the alignment that [`DTYPE`](Self::DTYPE) says, which has one lane and whole bytes. Every
/// pattern of bits that DLPack allows there is a value of it.
pub unsafe trait DlpackElement: 'static {
    /// The type of an element.
    const DTYPE: DLDataType;
}

macro_rules! elements {
    ($($type:ident = $name:ident,)*) => { $(
        // SAFETY: a number of so many bits, each of which may have any value.
        unsafe impl DlpackElement for $type {
            const DTYPE: DLDataType = DLDataType::$name;
        }
    )* };
}

elements! { i8 = I8, i16 = I16, i32 = I32, i64 = I64, u8 = U8, u16 = U16, u32 = U32, u64 = U64, f32 = F32, f64 = F64, }

const _: () = {
    assert!(size_of::<DLDevice>() == 8 && align_of::<DLDevice>() == 4 && offset_of!(DLDevice, device_id) == 4);
    assert!(size_of::<DLDataType>() == 4 && align_of::<DLDataType>() == 2);
    assert!(offset_of!(DLDataType, bits) == 1 && offset_of!(DLDataType, lanes) == 2);
    assert!(size_of::<DLTensor>() == 48 && align_of::<DLTensor>() == 8);
    assert!(offset_of!(DLTensor, device) == 8 && offset_of!(DLTensor, ndim) == 16);
    assert!(offset_of!(DLTensor, dtype) == 20 && offset_of!(DLTensor, shape) == 24);
    assert!(offset_of!(DLTensor, strides) == 32 && offset_of!(DLTensor, byte_offset) == 40);
};
