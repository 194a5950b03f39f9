//! Results.
#![allow(unsafe_code)] // reads the union, and what objects consist of

use std::ffi::c_void;
use std::fmt;

use super::Any;
use super::abi::{DLDataType, DLDevice, DLTensor, TVMFFIByteArray, TypeIndex};
use super::object::{Reference, bytes_of};
use crate::link::Hold;

/// A result, whatever it is.
#[derive(Debug)]
#[non_exhaustive]
pub enum Value {
    /// None: nothing.
    None,
    /// A bool.
    Bool(bool),
    /// An int.
    Int(i64),
    /// A float.
    Float(f64),
    /// A pointer that nobody owns.
    Pointer(*mut c_void),
    /// An element type.
    DataType(DLDataType),
    /// A device.
    Device(DLDevice),
    /// A string.
    String(String),
    /// Bytes, or a string that is not UTF-8.
    Bytes(Vec<u8>),
    /// Any other object.
    Object(Object),
    /// What a result must not be, since nobody would own it, or what is not known here.
    Other(TypeIndex),
}

/// An object that a function returned: a tensor, a function, a container. Dropping it lets go of it. It keeps the code of the library whose
/// function returned it, as that has what ends it. What another library has made and this one passes on, that other library has to outlive.
///
/// It may be passed on as an argument.
#[derive(Clone)]
pub struct Object {
    // Dropped in this order: the library may have the deleter.
    reference: Reference,
    #[expect(dead_code, reason = "held")]
    code: Hold,
}

impl Object {
    /// What it is.
    pub fn type_index(&self) -> TypeIndex {
        self.reference.type_index()
    }

    /// The tensor, if it is one. Its memory is where its device says.
    pub fn tensor(&self) -> Option<&DLTensor> {
        // SAFETY: a tensor's header is followed by that (`c_api.h`).
        (self.type_index() == TypeIndex::TENSOR).then(|| unsafe { self.reference.body() })
    }

    /// The object itself, as `TVMFFIObjectHandle`; valid as long as this one.
    pub fn as_ptr(&self) -> *mut c_void {
        self.reference.as_ptr().cast()
    }

    pub(super) fn reference(&self) -> &Reference {
        &self.reference
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object").field("type", &self.type_index()).field("address", &self.as_ptr()).finish()
    }
}

impl Value {
    /// Takes what a function of that code returned.
    pub(super) fn returned(any: Any<'static>, code: &Hold) -> Self {
        let raw = any.into_raw();
        if raw.type_index.is_object() {
            // SAFETY: as the type index says; the result had the reference.
            let object = unsafe { Reference::owned(raw.value.v_obj) };
            return object.map_or(Self::Other(raw.type_index), |reference| Self::object(reference, code));
        }
        // SAFETY: the type index says which it is, and all of the union has been written.
        unsafe {
            let small = || raw.value.v_bytes[..(raw.small_str_len as usize).min(8)].to_vec();
            match raw.type_index {
                TypeIndex::NONE => Self::None,
                TypeIndex::INT => Self::Int(raw.value.v_int64),
                TypeIndex::BOOL => Self::Bool(raw.value.v_int64 != 0),
                TypeIndex::FLOAT => Self::Float(raw.value.v_float64),
                TypeIndex::OPAQUE_PTR => Self::Pointer(raw.value.v_ptr),
                TypeIndex::DATA_TYPE => Self::DataType(raw.value.v_dtype),
                TypeIndex::DEVICE => Self::Device(raw.value.v_device),
                TypeIndex::SMALL_STR => Self::text(small()),
                TypeIndex::SMALL_BYTES => Self::Bytes(small()),
                other => Self::Other(other),
            }
        }
    }

    #[cold]
    fn object(reference: Reference, code: &Hold) -> Self {
        // SAFETY: headers of both are followed by that (`c_api.h`).
        let bytes = || unsafe { bytes_of(reference.body::<TVMFFIByteArray>()) }.to_vec();
        match reference.type_index() {
            TypeIndex::STR => Self::text(bytes()),
            TypeIndex::BYTES => Self::Bytes(bytes()),
            _ => Self::Object(Object { reference, code: code.clone() }),
        }
    }

    fn text(bytes: Vec<u8>) -> Self {
        String::from_utf8(bytes).map_or_else(|not| Self::Bytes(not.into_bytes()), Self::String)
    }

    /// What it is.
    pub fn type_index(&self) -> TypeIndex {
        match self {
            Self::None => TypeIndex::NONE,
            Self::Bool(_) => TypeIndex::BOOL,
            Self::Int(_) => TypeIndex::INT,
            Self::Float(_) => TypeIndex::FLOAT,
            Self::Pointer(_) => TypeIndex::OPAQUE_PTR,
            Self::DataType(_) => TypeIndex::DATA_TYPE,
            Self::Device(_) => TypeIndex::DEVICE,
            Self::String(_) => TypeIndex::STR,
            Self::Bytes(_) => TypeIndex::BYTES,
            Self::Object(object) => object.type_index(),
            Self::Other(type_index) => *type_index,
        }
    }
}

/// What the result of a call can be asked for as: exactly what it is, nothing is converted. `Option` takes None as well, and [`Value`]
/// takes everything.
pub trait FromValue: Sized {
    /// What it wants, for errors.
    const EXPECTED: &'static str;

    /// Takes the value, or gives it back.
    ///
    /// # Errors
    /// The value, if it is something else.
    fn from_value(value: Value) -> Result<Self, Value>;
}

macro_rules! from_value {
    ($($type:ty: $expected:literal, $pattern:pat => $value:expr;)*) => { $(
        impl FromValue for $type {
            const EXPECTED: &'static str = $expected;

            #[inline]
            fn from_value(value: Value) -> Result<Self, Value> {
                match value {
                    $pattern => Ok($value),
                    #[allow(unreachable_patterns, reason = "one takes all")]
                    other => Err(other),
                }
            }
        }
    )* };
}

from_value! {
    (): "None", Value::None => ();
    bool: "bool", Value::Bool(value) => value;
    i64: "int", Value::Int(value) => value;
    f64: "float", Value::Float(value) => value;
    *mut c_void: "void*", Value::Pointer(value) => value;
    DLDataType: "DLDataType", Value::DataType(value) => value;
    DLDevice: "DLDevice", Value::Device(value) => value;
    String: "str in UTF-8", Value::String(value) => value;
    Vec<u8>: "bytes", Value::Bytes(value) => value;
    Object: "an object", Value::Object(value) => value;
    Value: "anything", value => value;
}

impl<T: FromValue> FromValue for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;

    fn from_value(value: Value) -> Result<Self, Value> {
        match value {
            Value::None => Ok(None),
            value => T::from_value(value).map(Some),
        }
    }
}

impl<'a> From<&'a Object> for Any<'a> {
    fn from(object: &'a Object) -> Self {
        Self::object(object.reference().clone())
    }
}
