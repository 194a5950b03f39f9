//! A substitute for libtvm_ffi with the functions that raise errors and find the stream.
#![allow(unsafe_code, reason = "functions that C calls")]

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use super::raised::{SET_RAISED, error, set, set_raised, take};
use crate::LibraryBuilder;
use crate::guarded::guarded;
use crate::tvm_ffi::abi::TVMFFIObject;
use crate::tvm_ffi::ffi_object::Reference;

thread_local! {
    /// Streams that were set, by the device's type and number.
    static STREAMS: RefCell<Vec<((i32, i32), *mut c_void)>> = const { RefCell::new(Vec::new()) };
}

impl LibraryBuilder {
    /// Defines the functions of the tvm-ffi runtime that objects of CuTe DSL need. Definitions in the given shared
    /// libraries come first. A later [`symbol`](Self::symbol) of the same name replaces one.
    ///
    /// | | |
    /// |---|---|
    /// | `TVMFFIErrorSetRaisedFromCStr`, `TVMFFIErrorSetRaisedFromCStrParts`, `TVMFFIErrorSetRaised` | raise an error of the thread |
    /// | `TVMFFIErrorMoveFromRaised` | takes it, for functions that call others |
    /// | `TVMFFIObjectIncRef`, `TVMFFIObjectDecRef` | count references |
    /// | `TVMFFIEnvGetStream`, `TVMFFIEnvSetStream` | the thread's stream for a device ([`Runtime::set_stream`](crate::tvm_ffi::Runtime::set_stream)) |
    ///
    /// Code that uses other objects, global functions or modules needs libtvm_ffi.so itself:
    /// [`shared_library`](Self::shared_library).
    pub fn tvm_ffi(self) -> Self {
        [
            (SET_RAISED, set_raised as *const ()),
            ("TVMFFIErrorSetRaisedFromCStr", set_raised_from_c_str as *const ()),
            ("TVMFFIErrorSetRaisedFromCStrParts", set_raised_from_c_str_parts as *const ()),
            ("TVMFFIErrorMoveFromRaised", move_from_raised as *const ()),
            ("TVMFFIObjectIncRef", inc_ref as *const ()),
            ("TVMFFIObjectDecRef", dec_ref as *const ()),
            ("TVMFFIEnvGetStream", get_stream as *const ()),
            ("TVMFFIEnvSetStream", set_stream as *const ()),
        ]
        .into_iter()
        // SAFETY: each is the function of that name in `c_api.h`, and stays as long as this crate's code.
        .fold(self, |builder, (name, address)| unsafe { builder.symbol(name, address) })
    }
}

/// # Safety
/// A string, or null for none.
unsafe fn text<'a>(string: *const c_char) -> &'a [u8] {
    if string.is_null() {
        return &[];
    }
    // SAFETY: by the caller's contract.
    unsafe { CStr::from_ptr(string) }.to_bytes()
}

// ---- the functions that objects import, as in the header ----

unsafe extern "C" fn set_raised_from_c_str(kind: *const c_char, message: *const c_char) {
    // SAFETY: the caller's strings.
    guarded((), || unsafe { set(error(text(kind), text(message), b"")) });
}

unsafe extern "C" fn set_raised_from_c_str_parts(kind: *const c_char, parts: *const *const c_char, count: i32) {
    guarded((), || {
        let count = if parts.is_null() { 0 } else { usize::try_from(count).unwrap_or(0) };
        // SAFETY: this many strings of the caller's, some of which may be null.
        let message: Vec<u8> = (0..count).flat_map(|i| unsafe { text(*parts.add(i)) }).copied().collect();
        // SAFETY: as above.
        set(error(unsafe { text(kind) }, &message, b""));
    });
}

unsafe extern "C" fn move_from_raised(result: *mut *mut TVMFFIObject) {
    let error = guarded(None, take);
    // SAFETY: the caller's place; the caller gets the reference.
    unsafe { *result = error.map_or(ptr::null_mut(), Reference::into_raw) };
}

unsafe extern "C" fn inc_ref(object: *mut TVMFFIObject) -> c_int {
    // SAFETY: the caller's object; the caller gets the reference.
    std::mem::forget(unsafe { Reference::another(object) });
    0
}

unsafe extern "C" fn dec_ref(object: *mut TVMFFIObject) -> c_int {
    // SAFETY: an object with a reference that the caller gives away.
    drop(unsafe { Reference::owned(object) });
    0
}

unsafe extern "C" fn get_stream(device_type: i32, device: i32) -> *mut c_void {
    let of = |streams: &Vec<((i32, i32), *mut c_void)>| {
        streams.iter().find(|(key, _)| *key == (device_type, device)).map(|(_, stream)| *stream)
    };
    let stream = guarded(None, || STREAMS.try_with(|streams| of(&streams.borrow())).ok().flatten());
    stream.unwrap_or(ptr::null_mut())
}

unsafe extern "C" fn set_stream(device_type: i32, device: i32, stream: *mut c_void, before: *mut *mut c_void) -> c_int {
    let set = |streams: &mut Vec<((i32, i32), *mut c_void)>| match streams
        .iter_mut()
        .find(|(key, _)| *key == (device_type, device))
    {
        Some((_, place)) => std::mem::replace(place, stream),
        None => {
            streams.push(((device_type, device), stream));
            ptr::null_mut()
        }
    };
    let Some(old) = guarded(None, || STREAMS.try_with(|streams| set(&mut streams.borrow_mut())).ok()) else {
        return -1;
    };
    if !before.is_null() {
        // SAFETY: the caller's place.
        unsafe { *before = old };
    }
    0
}
