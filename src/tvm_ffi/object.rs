//! Objects: their reference counts, and those that are made here.
#![allow(unsafe_code)] // reference counts, and memory that is freed by hand

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::abi::{DELETE_STRONG, DELETE_WEAK, TVMFFIByteArray, TVMFFIObject, TVMFFIObjectAllocHeader, TypeIndex};

/// As [`TVMFFIObject::deleter`].
type Deleter = unsafe extern "C" fn(*mut c_void, c_int);

const STRONG: u64 = 1;
const WEAK: u64 = 1 << 32;

/// One strong reference.
pub(super) struct Reference(NonNull<TVMFFIObject>);

impl Reference {
    /// Takes a reference over; none for null.
    ///
    /// # Safety
    /// An object, one strong reference to which is the caller's to give.
    pub(super) unsafe fn owned(object: *mut TVMFFIObject) -> Option<Self> {
        NonNull::new(object).map(Self)
    }

    /// Takes another reference; none for null.
    ///
    /// # Safety
    /// An object with a strong reference that is there meanwhile.
    pub(super) unsafe fn another(object: *mut TVMFFIObject) -> Option<Self> {
        let object = NonNull::new(object)?;
        // SAFETY: by the caller.
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

    /// What ends it, if anything does.
    pub(super) fn deleter(&self) -> Option<Deleter> {
        // SAFETY: there is a reference.
        unsafe { self.0.as_ref() }.deleter
    }

    /// What follows the header.
    ///
    /// # Safety
    /// It is a `T`, as the type index says.
    pub(super) unsafe fn body<T>(&self) -> &T {
        // SAFETY: by the caller; headers are a multiple of 8 bytes, and no body of these is aligned to more.
        unsafe { &*self.0.as_ptr().add(1).cast::<T>() }
    }
}

impl Clone for Reference {
    fn clone(&self) -> Self {
        // SAFETY: this one is there.
        unsafe { self.0.as_ref() }.combined_ref_count.fetch_add(STRONG, Ordering::Relaxed);
        Self(self.0)
    }
}

impl Drop for Reference {
    /// As `Object::DecRef` of `tvm/ffi/object.h` has it.
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

/// An object that is made here: what the ABI wants before it, its header, and the rest.
#[repr(C)]
struct Made<T> {
    before: TVMFFIObjectAllocHeader,
    header: TVMFFIObject,
    body: T,
}

/// Makes an object with one reference. `T` begins with what the type index promises, and may be dropped by any thread.
pub(super) fn make<T: Send>(type_index: TypeIndex, body: T) -> Reference {
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

/// What it owns goes with its memory: it is bytes.
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

    /// All but the NUL.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0[..self.0.len() - 1]
    }

    pub(super) fn view(&self) -> TVMFFIByteArray {
        TVMFFIByteArray { data: self.0.as_ptr(), size: self.0.len() - 1 }
    }
}

/// What follows the header of a string that is made here.
#[repr(C)]
struct Owned {
    view: TVMFFIByteArray,
    text: Text,
}

// SAFETY: the pointer is to what it owns.
unsafe impl Send for Owned {}

/// A string or bytes, as an object.
pub(super) fn make_bytes(type_index: TypeIndex, bytes: &[u8]) -> Reference {
    let text = Text::new(bytes);
    make(type_index, Owned { view: text.view(), text })
}

/// What a byte array points to; nothing for null.
///
/// # Safety
/// The bytes are there as long as the result.
pub(super) unsafe fn bytes_of<'a>(array: &TVMFFIByteArray) -> &'a [u8] {
    if array.data.is_null() || array.size == 0 {
        return &[];
    }
    // SAFETY: by the caller.
    unsafe { std::slice::from_raw_parts(array.data, array.size) }
}
