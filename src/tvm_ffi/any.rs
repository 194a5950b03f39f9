//! Arguments.
#![allow(unsafe_code, reason = "reads and writes the union")]

use std::ffi::{CStr, c_void};
use std::fmt;
use std::marker::PhantomData;

use crate::tvm_ffi::abi::{DLDataType, DLDevice, TVMFFIAny, TVMFFIAnyValue, TypeIndex};
use crate::tvm_ffi::ffi_object::{Reference, make_bytes};

/// An argument of a call, converted from one of these types.
///
/// | from | passed as |
/// |---|---|
/// | `bool` | bool |
/// | signed integers, unsigned ones below 64 bits | int |
/// | `f32`, `f64` | float |
/// | `()`, `None` | None |
/// | `&CStr` | `const char*` |
/// | `&str`, `&String` | str: within the value up to 7 bytes, else as a new string object, which the callee may keep |
/// | `&[u8]` | bytes: the same |
/// | `*const c_void`, `*mut c_void` | `void*` |
/// | [`DLDataType`], [`DLDevice`] | the same |
/// | `&`[`Tensor`](super::Tensor) | `DLTensor*`, valid during the call |
/// | `&`[`Object`](super::Object) | another reference to the object |
///
/// Only strings and bytes of more than 7 bytes are allocated.
#[repr(transparent)]
pub struct Any<'a> {
    raw: TVMFFIAny,
    borrowed: PhantomData<&'a ()>,
}

impl<'a> Any<'a> {
    /// None.
    // SAFETY: None has no value.
    pub const NONE: Self = unsafe { Self::new(TypeIndex::NONE, TVMFFIAnyValue { v_uint64: 0 }) };

    /// # Safety
    /// The value is what the type index says, with all eight bytes written. It brings a reference to an object, and
    /// lasts as long as `'a`.
    pub(super) const unsafe fn new(type_index: TypeIndex, value: TVMFFIAnyValue) -> Self {
        Self { raw: TVMFFIAny { type_index, small_str_len: 0, value }, borrowed: PhantomData }
    }

    /// Returns its type.
    pub fn type_index(&self) -> TypeIndex {
        self.raw.type_index
    }

    /// Returns the record.
    pub fn as_raw(&self) -> &TVMFFIAny {
        &self.raw
    }

    /// Returns the place for a result.
    pub(super) fn as_mut_ptr(&mut self) -> *mut TVMFFIAny {
        &raw mut self.raw
    }

    /// Returns the record, with its reference if it is an object.
    pub(super) fn into_raw(self) -> TVMFFIAny {
        std::mem::ManuallyDrop::new(self).raw
    }

    pub(super) fn object(object: Reference) -> Self {
        let type_index = object.type_index();
        // SAFETY: the object says what it is, and the reference is given away.
        unsafe { Self::new(type_index, TVMFFIAnyValue { v_obj: object.into_raw() }) }
    }

    /// # Safety
    /// The type indices are those of a small and a large string, or of small and large bytes.
    unsafe fn bytes(bytes: &[u8], small: TypeIndex, large: TypeIndex) -> Self {
        let mut v_bytes = [0; 8];
        // The eighth byte is the NUL.
        match v_bytes[..7].get_mut(..bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                // SAFETY: by the caller.
                let mut any = unsafe { Self::new(small, TVMFFIAnyValue { v_bytes }) };
                any.raw.small_str_len = bytes.len() as u32;
                any
            }
            // SAFETY: by the caller.
            None => Self::object(unsafe { make_bytes(large, bytes) }),
        }
    }
}

impl Drop for Any<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.raw.type_index.is_object() {
            // SAFETY: the type index says that it is an object, and every value has a reference to its object.
            drop(unsafe { Reference::owned(self.raw.value.v_obj) });
        }
    }
}

impl Clone for Any<'_> {
    fn clone(&self) -> Self {
        if self.raw.type_index.is_object() {
            // SAFETY: as for Drop; the clone owns the reference that is taken here.
            std::mem::forget(unsafe { Reference::another(self.raw.value.v_obj) });
        }
        Self { raw: self.raw, borrowed: PhantomData }
    }
}

impl fmt::Debug for Any<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: all of it was written.
        write!(f, "Any({}, {:#x})", self.raw.type_index, unsafe { self.raw.value.v_uint64 })
    }
}

macro_rules! from {
    ($($type:ty => $index:ident $field:ident $of:expr;)*) => { $(
        impl From<$type> for Any<'_> {
            #[inline]
            fn from(value: $type) -> Self {
                // Unused bytes of the eight must be 0.
                let mut all = TVMFFIAnyValue { v_uint64: 0 };
                all.$field = $of(value);
                // SAFETY: the field is that of the type, which is no object's.
                unsafe { Self::new(TypeIndex::$index, all) }
            }
        }
    )* };
}

from! {
    bool => BOOL v_int64 i64::from;
    i8 => INT v_int64 i64::from;
    i16 => INT v_int64 i64::from;
    i32 => INT v_int64 i64::from;
    i64 => INT v_int64 i64::from;
    u8 => INT v_int64 i64::from;
    u16 => INT v_int64 i64::from;
    u32 => INT v_int64 i64::from;
    f32 => FLOAT v_float64 f64::from;
    f64 => FLOAT v_float64 f64::from;
    *mut c_void => OPAQUE_PTR v_ptr std::convert::identity;
    *const c_void => OPAQUE_PTR v_ptr <*const c_void>::cast_mut;
    DLDataType => DATA_TYPE v_dtype std::convert::identity;
    DLDevice => DEVICE v_device std::convert::identity;
}

impl From<()> for Any<'_> {
    fn from((): ()) -> Self {
        Self::NONE
    }
}

impl<'a, T: Into<Any<'a>>> From<Option<T>> for Any<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::NONE, Into::into)
    }
}

impl<'a> From<&'a CStr> for Any<'a> {
    fn from(text: &'a CStr) -> Self {
        // SAFETY: the string is borrowed as long as the value.
        unsafe { Self::new(TypeIndex::RAW_STR, TVMFFIAnyValue { v_c_str: text.as_ptr() }) }
    }
}

impl From<&str> for Any<'_> {
    fn from(text: &str) -> Self {
        // SAFETY: both are of strings.
        unsafe { Self::bytes(text.as_bytes(), TypeIndex::SMALL_STR, TypeIndex::STR) }
    }
}

impl From<&String> for Any<'_> {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<&[u8]> for Any<'_> {
    fn from(bytes: &[u8]) -> Self {
        // SAFETY: both are of bytes.
        unsafe { Self::bytes(bytes, TypeIndex::SMALL_BYTES, TypeIndex::BYTES) }
    }
}
