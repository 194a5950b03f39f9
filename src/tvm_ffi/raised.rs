//! Errors as objects: those that are made here, and copies of others that may outlive what ends them.
#![allow(unsafe_code)] // functions that C calls, and what errors consist of

use std::cell::Cell;
use std::ffi::c_void;
use std::{mem, ptr};

use super::abi::{TVMFFIByteArray, TVMFFIErrorCell, TVMFFIObject, TypeIndex};
use super::object::{Reference, Text, bytes_of, make};
use crate::gate;
use crate::guarded::guarded;

/// `void TVMFFIErrorSetRaised(TVMFFIObjectHandle error)`: keeps another reference to the error for the thread.
pub(crate) const SET_RAISED: &str = "TVMFFIErrorSetRaised";

/// An error that is made here: what follows its header.
#[repr(C)]
struct Raised {
    cell: TVMFFIErrorCell,
    kind: Text,
    message: Text,
    backtrace: Text,
}

// SAFETY: the pointers are to what it owns, or null.
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
    make(TypeIndex::ERROR, Raised { cell, kind, message, backtrace })
}

/// Kind, message and backtrace of an error.
///
/// # Safety
/// It is one, by its type index.
pub(super) unsafe fn texts(error: &Reference) -> [&[u8]; 3] {
    // SAFETY: by the caller; an error's header is followed by these (`c_api.h`), and then by what not all versions have.
    unsafe { error.body::<[TVMFFIByteArray; 3]>() }.each_ref().map(|array| unsafe { bytes_of(array) })
}

/// What may be kept, however long, of an error or of what is raised for one: itself, if what ends it is in this crate's image
/// or in that of a runtime's function; else a copy. Linked code goes with its library, and shared libraries may go with it.
pub(super) fn lasting(raised: Reference, runtime: Option<usize>) -> Reference {
    // What nothing ends lies somewhere itself.
    let end = image(raised.deleter().map_or(raised.as_ptr().addr(), |deleter| deleter as *const () as usize));
    let ours = update_backtrace as *const () as usize;
    let stays = end.is_some() && [Some(ours), runtime].into_iter().flatten().any(|function| image(function) == end);
    if stays {
        return raised;
    }
    if raised.type_index() != TypeIndex::ERROR {
        return error(b"", was_raised(raised.type_index()).as_bytes(), b"");
    }
    // SAFETY: it is one, and is there until the texts are copied.
    let [kind, message, backtrace] = unsafe { texts(&raised) };
    error(kind, message, backtrace)
}

/// The message for what is no error.
pub(super) fn was_raised(what: TypeIndex) -> String {
    format!("{what} was raised")
}

/// Where the executable or shared library begins that an address is in. None for what the dynamic loader does not know, such
/// as linked code and heaps.
fn image(address: usize) -> Option<usize> {
    let mut info = mem::MaybeUninit::<libc::Dl_info>::uninit();
    let address = ptr::with_exposed_provenance(address);
    // SAFETY: a place for what is found; the address is not followed.
    let found = gate::loading(|| unsafe { libc::dladdr(address, info.as_mut_ptr()) }) != 0;
    // SAFETY: it was found, and written.
    found.then(|| unsafe { info.assume_init() }.dli_fbase.addr())
}

/// [`SET_RAISED`] as linked code finds it where a runtime other than ours has it: `function` there.
pub(crate) unsafe extern "C" fn set_raised_in(
    raised: *mut TVMFFIObject,
    function: unsafe extern "C" fn(*mut TVMFFIObject),
) {
    // SAFETY: an object of the caller's, or null.
    let kept = unsafe { Reference::another(raised) };
    let kept = guarded(None, || kept.map(|raised| lasting(raised, Some(function as usize))));
    let raised = kept.as_ref().map_or(ptr::null_mut(), Reference::as_ptr);
    // SAFETY: the runtime's own, which takes another reference, or null.
    unsafe { function(raised) };
}

unsafe extern "C" fn update_backtrace(error: *mut c_void, backtrace: *const TVMFFIByteArray, mode: i32) {
    guarded((), || {
        // SAFETY: an error that was made here, as it is there that others find this function; nobody else has it meanwhile.
        let raised = unsafe { &mut *error.cast::<TVMFFIObject>().add(1).cast::<Raised>() };
        // SAFETY: bytes of the caller's.
        let more = unsafe { bytes_of(&*backtrace) };
        let old = if mode == 0 { &[][..] } else { raised.backtrace.bytes() };
        raised.backtrace = Text::new(&[old, more].concat());
        raised.cell.backtrace = raised.backtrace.view();
    });
}

// ---- the error that a thread has raised ----

thread_local! {
    /// The error that was raised last, until it is taken.
    static RAISED: Cell<Option<Reference>> = const { Cell::new(None) };
}

/// Whether a function is what [`LibraryBuilder::tvm_ffi`](crate::LibraryBuilder::tvm_ffi) gives under [`SET_RAISED`].
pub(crate) fn is_set_raised(function: u64) -> bool {
    function == set_raised as *const () as u64
}

/// Replaces what was there, which user code may end: nothing is borrowed meanwhile.
pub(super) fn set(error: Reference) {
    // While a thread ends, nobody will ask for it.
    let _ = RAISED.try_with(|raised| drop(raised.replace(Some(error))));
}

/// Takes it.
pub(super) fn take() -> Option<Reference> {
    RAISED.try_with(Cell::take).ok().flatten()
}

/// [`SET_RAISED`] of this crate.
pub(super) unsafe extern "C" fn set_raised(error: *mut TVMFFIObject) {
    // SAFETY: an object of the caller's, or null. Another reference is taken, as the real one does.
    let error = unsafe { Reference::another(error) };
    guarded((), || error.into_iter().for_each(|error| set(lasting(error, None))));
}
