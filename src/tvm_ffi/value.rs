//! Results of packed functions.
#![allow(unsafe_code, reason = "reads the union, and what objects consist of")]

use std::ffi::c_void;
use std::fmt;

use super::Any;
use crate::live::lifetime::loaded_library::CodeRef;
use crate::tvm_ffi::abi::{DLDataType, DLDevice, DLTensor, TVMFFIByteArray, TypeIndex};
use crate::tvm_ffi::ffi_object::{Reference, bytes_of};

/// A result of any type.
#[derive(Debug)]
#[non_exhaustive]
pub enum Value {
    /// None.
    None,
    /// A bool.
    Bool(bool),
    /// An int.
    Int(i64),
    /// A float.
    Float(f64),
    /// A pointer without an owner.
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
    /// A type that a result must not have, since it has no owner, or an unknown type.
    Other(TypeIndex),
}

/// An object that a function returned: a tensor, a function, a container. Dropping it releases the reference. It keeps
/// the code of the library whose function returned it, which contains the deleter. An object that another library made
/// must be dropped before that library is unloaded.
///
/// It can be passed on as an argument.
#[derive(Clone)]
pub struct Object {
    // Dropped in this order: the deleter may be in the library.
    reference: Reference,
    #[expect(dead_code, reason = "held")]
    code: CodeRef,
}

impl Object {
    /// Keeps a reference, and the code that its deleter may be in.
    pub(super) fn new(reference: Reference, code: &CodeRef) -> Self {
        Self { reference, code: code.clone() }
    }

    /// Returns its type.
    pub fn type_index(&self) -> TypeIndex {
        self.reference.type_index()
    }

    /// Returns the tensor, if it is one. Its device says which memory it has.
    pub fn tensor(&self) -> Option<&DLTensor> {
        // SAFETY: this record follows a tensor's header (`c_api.h`).
        (self.type_index() == TypeIndex::TENSOR).then(|| unsafe { self.reference.body() })
    }

    /// Returns the object as `TVMFFIObjectHandle`; valid while this one lives.
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
    /// Takes the result of a function of that code.
    pub(super) fn returned(any: Any<'static>, code: &CodeRef) -> Self {
        let raw = any.into_raw();
        if raw.type_index.is_object() {
            // SAFETY: an object by its type index; the result had the reference.
            let object = unsafe { Reference::owned(raw.value.v_obj) };
            return object.map_or(Self::Other(raw.type_index), |reference| Self::object(reference, code));
        }
        // SAFETY: the type index selects the field, and the whole union was written.
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
    fn object(reference: Reference, code: &CodeRef) -> Self {
        // SAFETY: this record follows the headers of both (`c_api.h`).
        let bytes = || unsafe { bytes_of(reference.body::<TVMFFIByteArray>()) }.to_vec();
        match reference.type_index() {
            TypeIndex::STR => Self::text(bytes()),
            TypeIndex::BYTES => Self::Bytes(bytes()),
            _ => Self::Object(Object::new(reference, code)),
        }
    }

    fn text(bytes: Vec<u8>) -> Self {
        String::from_utf8(bytes).map_or_else(|not| Self::Bytes(not.into_bytes()), Self::String)
    }

    /// Returns its type.
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

/// A type that the result of a call can be requested as. The types must match exactly, without conversion. `Option`
/// also accepts None, and [`Value`] accepts everything.
pub trait FromValue: Sized {
    /// The expected type, for errors.
    const EXPECTED: &'static str;

    /// Converts the value, or returns it.
    ///
    /// # Errors
    /// The value, if it has another type.
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
