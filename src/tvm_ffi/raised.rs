//! Error objects: errors that this crate makes, and copies of errors that may outlive their deleter's code.
#![allow(unsafe_code, reason = "functions that C calls, and what errors consist of")]

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::{mem, ptr};

use crate::fork_guard;
use crate::guarded::guarded;
use crate::runtime::is_image;
use crate::tvm_ffi::abi::{TVMFFIByteArray, TVMFFIErrorCell, TVMFFIObject, TypeIndex};
use crate::tvm_ffi::ffi_object::{Reference, Text, bytes_of, make};

/// `void TVMFFIErrorSetRaised(TVMFFIObjectHandle error)`: keeps another reference to the error for the thread.
pub(crate) const SET_RAISED: &str = "TVMFFIErrorSetRaised";

/// The body of an error that this crate makes.
#[repr(C)]
struct Raised {
    cell: TVMFFIErrorCell,
    kind: Text,
    message: Text,
    backtrace: Text,
}

// SAFETY: the pointers lead to memory that it owns, or are null.
unsafe impl Send for Raised {}

/// Makes an error.
pub(super) fn error(kind: &[u8], message: &[u8], backtrace: &[u8]) -> Reference {
    let [kind, message, backtrace] = [kind, message, backtrace].map(Text::new);
    let cell = TVMFFIErrorCell {
        kind: kind.view(),
        message: message.view(),
        backtrace: backtrace.view(),
        update_backtrace: Some(update_backtrace),
        cause_chain: ptr::null_mut(),
        extra_context: ptr::null_mut(),
    };
    // SAFETY: an error begins with its cell.
    unsafe { make(TypeIndex::ERROR, Raised { cell, kind, message, backtrace }) }
}

/// Returns the kind, message and backtrace of an error.
///
/// # Safety
/// The object is an error, by its type index.
pub(super) unsafe fn texts(error: &Reference) -> [&[u8]; 3] {
    // SAFETY: by the caller's contract; these follow an error's header (`c_api.h`), before parts that not all versions
    // have.
    unsafe { error.body::<[TVMFFIByteArray; 3]>() }.each_ref().map(|array| unsafe { bytes_of(array) })
}

/// Returns an object that may be kept for a raised one: the object itself if its deleter's code is in this crate's
/// image or in that of a runtime's function, otherwise a copy. Linked code is unloaded with its library, and shared
/// libraries may be too.
pub(super) fn lasting(raised: Reference, runtime: Option<usize>) -> Reference {
    // For an object without a deleter, its own place counts.
    let end = image(raised.deleter().map_or(raised.as_ptr().addr(), |deleter| deleter as *const () as usize));
    let ours = update_backtrace as *const () as usize;
    let stays = end.is_some() && [Some(ours), runtime].into_iter().flatten().any(|function| image(function) == end);
    if stays {
        return raised;
    }
    if raised.type_index() != TypeIndex::ERROR {
        return error(b"", was_raised(raised.type_index()).as_bytes(), b"");
    }
    // SAFETY: it is an error, and lives until the texts are copied.
    let [kind, message, backtrace] = unsafe { texts(&raised) };
    error(kind, message, backtrace)
}

/// Returns the message for a raised object that is not an error.
pub(super) fn was_raised(what: TypeIndex) -> String {
    format!("{what} was raised")
}

/// Returns the start of the executable or shared library that contains an address. `None` for memory that the dynamic
/// loader does not know, such as heaps, and for linked code.
fn image(address: usize) -> Option<usize> {
    let mut info = mem::MaybeUninit::<libc::Dl_info>::uninit();
    let address = ptr::with_exposed_provenance(address);
    // SAFETY: a place for the result; the address is not dereferenced.
    let found = fork_guard::loading(|| unsafe { libc::dladdr(address, info.as_mut_ptr()) }) != 0;
    // SAFETY: it was found, and written.
    let info = found.then(|| unsafe { info.assume_init() })?;
    // SAFETY: the loader's string; its module is not closed meanwhile.
    let is_linked = !info.dli_fname.is_null() && is_image(unsafe { CStr::from_ptr(info.dli_fname) });
    (!is_linked).then(|| info.dli_fbase.addr())
}

/// Raises an error in another runtime, as [`SET_RAISED`] for linked code; `function` is the runtime's own.
pub(crate) unsafe extern "C" fn set_raised_in(
    raised: *mut TVMFFIObject,
    function: unsafe extern "C" fn(*mut TVMFFIObject),
) {
    // SAFETY: the caller's object, or null.
    let kept = unsafe { Reference::another(raised) };
    let kept = guarded(None, || kept.map(|raised| lasting(raised, Some(function as usize))));
    let raised = kept.as_ref().map_or(ptr::null_mut(), Reference::as_ptr);
    // SAFETY: the runtime's own function, which takes another reference, or null.
    unsafe { function(raised) };
}

unsafe extern "C" fn update_backtrace(error: *mut c_void, backtrace: *const TVMFFIByteArray, mode: i32) {
    guarded((), || {
        // SAFETY: an error that this crate made, as only those have this function; nobody else uses it meanwhile.
        let raised = unsafe { &mut *error.cast::<TVMFFIObject>().add(1).cast::<Raised>() };
        // SAFETY: the caller's bytes.
        let more = unsafe { bytes_of(&*backtrace) };
        let old = if mode == 0 { &[][..] } else { raised.backtrace.bytes() };
        raised.backtrace = Text::new(&[old, more].concat());
        raised.cell.backtrace = raised.backtrace.view();
    });
}

// ---- the error that a thread has raised ----

thread_local! {
    /// The last error raised, until it is taken.
    static RAISED: Cell<Option<Reference>> = const { Cell::new(None) };
}

/// Returns whether a function is the one that [`LibraryBuilder::tvm_ffi`](crate::LibraryBuilder::tvm_ffi) defines as
/// [`SET_RAISED`].
pub(crate) fn is_set_raised(function: u64) -> bool {
    function == set_raised as *const () as u64
}

/// Replaces the thread's error. User code may destroy the old one, so nothing is borrowed meanwhile.
pub(super) fn set(error: Reference) {
    // A thread that is ending does not take it.
    let _ = RAISED.try_with(|raised| drop(raised.replace(Some(error))));
}

/// Takes the thread's error.
pub(super) fn take() -> Option<Reference> {
    RAISED.try_with(Cell::take).ok().flatten()
}

/// [`SET_RAISED`] of this crate.
pub(super) unsafe extern "C" fn set_raised(error: *mut TVMFFIObject) {
    // SAFETY: the caller's object, or null. Another reference is taken, as by the real function.
    let error = unsafe { Reference::another(error) };
    guarded((), || error.into_iter().for_each(|error| set(lasting(error, None))));
}
