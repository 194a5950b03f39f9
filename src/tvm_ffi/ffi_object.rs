//! Objects of the ABI: reference counts, and objects that this crate makes.
#![allow(unsafe_code, reason = "reference counts, and memory that is freed by hand")]

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::tvm_ffi::abi::{
    DELETE_STRONG, DELETE_WEAK, TVMFFIByteArray, TVMFFIObject, TVMFFIObjectAllocHeader, TypeIndex,
};

/// The type of [`TVMFFIObject::deleter`].
type Deleter = unsafe extern "C" fn(*mut c_void, c_int);

const STRONG: u64 = 1;
const WEAK: u64 = 1 << 32;

/// One strong reference.
pub(super) struct Reference(NonNull<TVMFFIObject>);

impl Reference {
    /// Takes a reference over; returns `None` for null.
    ///
    /// # Safety
    /// An object with a strong reference that the caller gives away.
    pub(super) unsafe fn owned(object: *mut TVMFFIObject) -> Option<Self> {
        NonNull::new(object).map(Self)
    }

    /// Takes another reference; returns `None` for null.
    ///
    /// # Safety
    /// An object with a strong reference that lasts during the call.
    pub(super) unsafe fn another(object: *mut TVMFFIObject) -> Option<Self> {
        let object = NonNull::new(object)?;
        // SAFETY: by the caller's contract.
        unsafe { object.as_ref() }.combined_ref_count.fetch_add(STRONG, Ordering::Relaxed);
        Some(Self(object))
    }

    pub(super) fn as_ptr(&self) -> *mut TVMFFIObject {
        self.0.as_ptr()
    }

    /// Gives the reference away.
    pub(super) fn into_raw(self) -> *mut TVMFFIObject {
        std::mem::ManuallyDrop::new(self).as_ptr()
    }

    pub(super) fn type_index(&self) -> TypeIndex {
        // SAFETY: there is a reference.
        unsafe { self.0.as_ref() }.type_index
    }

    /// Returns its deleter, if it has one.
    pub(super) fn deleter(&self) -> Option<Deleter> {
        // SAFETY: there is a reference.
        unsafe { self.0.as_ref() }.deleter
    }

    /// Returns the record after the header.
    ///
    /// # Safety
    /// It is a `T`, as the type index says.
    pub(super) unsafe fn body<T>(&self) -> &T {
        // SAFETY: by the caller's contract; headers are a multiple of 8 bytes, and no body of these is aligned to more.
        unsafe { &*self.0.as_ptr().add(1).cast::<T>() }
    }
}

impl Clone for Reference {
    fn clone(&self) -> Self {
        // SAFETY: this reference exists.
        unsafe { self.0.as_ref() }.combined_ref_count.fetch_add(STRONG, Ordering::Relaxed);
        Self(self.0)
    }
}

impl Drop for Reference {
    /// Works like `Object::DecRef` of `tvm/ffi/object.h`.
    fn drop(&mut self) {
        // SAFETY: there is a reference, and then a weak one.
        let (count, deleter) = unsafe { (&raw const (*self.0.as_ptr()).combined_ref_count, self.0.as_ref().deleter) };
        let delete = |flags| {
            fence(Ordering::Acquire);
            if let Some(deleter) = deleter {
                // SAFETY: the object's own; its references are gone, as the flags say.
                unsafe { deleter(self.0.as_ptr().cast(), flags) };
            }
        };
        // SAFETY: as above.
        let before = unsafe { (*count).fetch_sub(STRONG, Ordering::Release) };
        if before == STRONG | WEAK {
            delete(DELETE_STRONG | DELETE_WEAK);
        } else if before & (WEAK - 1) == STRONG {
            delete(DELETE_STRONG);
            // SAFETY: the weak reference that belongs to all strong ones is still there.
            if unsafe { (*count).fetch_sub(WEAK, Ordering::Release) } == WEAK {
                delete(DELETE_WEAK);
            }
        }
    }
}

/// An object that this crate makes: the ABI's record before it, its header, and the body.
#[repr(C)]
struct Made<T> {
    before: TVMFFIObjectAllocHeader,
    header: TVMFFIObject,
    body: T,
}

/// Makes an object with one reference. It may be dropped by any thread.
///
/// # Safety
/// `T` is `repr(C)`, and begins with what the type index promises.
pub(super) unsafe fn make<T: Send>(type_index: TypeIndex, body: T) -> Reference {
    let header = TVMFFIObject {
        combined_ref_count: AtomicU64::new(STRONG | WEAK),
        type_index,
        __padding: 0,
        deleter: Some(delete::<T>),
    };
    let made = Box::into_raw(Box::new(Made { before: TVMFFIObjectAllocHeader { delete_space: None }, header, body }));
    // SAFETY: just made, and not null.
    Reference(unsafe { NonNull::new_unchecked(&raw mut (*made).header) })
}

/// Frees an object with its body, which owns only bytes.
unsafe extern "C" fn delete<T>(object: *mut c_void, flags: c_int) {
    if flags & DELETE_WEAK != 0 {
        // SAFETY: `make` has made it in a box, and no reference is left.
        drop(unsafe { Box::from_raw(object.byte_sub(offset_of!(Made<T>, header)).cast::<Made<T>>()) });
    }
}

/// Bytes with a NUL after them, as C++ strings have.
pub(super) struct Text(Box<[u8]>);

impl Text {
    pub(super) fn new(bytes: &[u8]) -> Self {
        let mut all = Vec::with_capacity(bytes.len() + 1);
        all.extend_from_slice(bytes);
        all.push(0);
        Self(all.into())
    }

    /// Returns everything but the NUL.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0[..self.0.len() - 1]
    }

    pub(super) fn view(&self) -> TVMFFIByteArray {
        TVMFFIByteArray { data: self.0.as_ptr(), size: self.0.len() - 1 }
    }
}

/// The body of a string that this crate makes.
#[repr(C)]
struct Owned {
    view: TVMFFIByteArray,
    text: Text,
}

// SAFETY: the pointer leads to memory that it owns.
unsafe impl Send for Owned {}

/// A string or bytes, as an object.
///
/// # Safety
/// The type index is that of strings or of bytes.
pub(super) unsafe fn make_bytes(type_index: TypeIndex, bytes: &[u8]) -> Reference {
    let text = Text::new(bytes);
    // SAFETY: by the caller; both begin with a byte array.
    unsafe { make(type_index, Owned { view: text.view(), text }) }
}

/// Returns the bytes of a byte array; none for null.
///
/// # Safety
/// The bytes outlive the result.
pub(super) unsafe fn bytes_of<'a>(array: &TVMFFIByteArray) -> &'a [u8] {
    if array.data.is_null() || array.size == 0 {
        return &[];
    }
    // SAFETY: by the caller's contract.
    unsafe { std::slice::from_raw_parts(array.data, array.size) }
}
