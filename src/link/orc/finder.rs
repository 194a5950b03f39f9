//! What the shim keeps of ours for dylibs: functions that find names, and objects.
#![allow(unsafe_code, reason = "callbacks from C++")]

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use slabjit_llvm_wrap as shim;

use super::given::Given;
use super::layer::Layer;
use super::lookup::kind_for_orc;
use crate::Result;
use crate::elf::SymbolKind;
use crate::guarded::guarded;
use crate::link::llvm::callbacks::lossy;
use crate::live::lifetime::loaded_library::CodeRef;

/// Where a name is, and what keeps it.
pub(super) struct Address {
    pub(super) address: u64,
    pub(super) kind: SymbolKind,
    pub(super) code: Option<CodeRef>,
}

type Find = dyn Fn(&str) -> Result<Option<Address>> + Send + Sync;

/// A function that finds names for a dylib of ORC's.
struct Finder {
    layer: Arc<Layer>,
    dylib: usize,
    find: Box<Find>,
}

/// Returns a function for the shim, which drops it.
pub(super) fn finder(
    layer: &Arc<Layer>,
    dylib: usize,
    find: impl Fn(&str) -> Result<Option<Address>> + Send + Sync + 'static,
) -> shim::slabjit_finder {
    let finder = Box::new(Finder { layer: Arc::clone(layer), dylib, find: Box::new(find) });
    shim::slabjit_finder { user: Box::into_raw(finder).cast(), find: find_name, dropped: drop_finder }
}

unsafe extern "C" fn find_name(
    user: *mut c_void,
    name: *const c_char,
    len: usize,
    address: *mut u64,
    kind: *mut u8,
) -> c_int {
    guarded(-1, || {
        // SAFETY: of `finder`, and not dropped; a text that is lent for this call.
        let (Finder { layer, dylib, find }, name) = unsafe { (&*user.cast::<Finder>(), lossy(name, len)) };
        let found = match find(&name) {
            Ok(Some(found)) => found,
            Ok(None) => return 0,
            Err(error) => {
                layer.note_failure(*dylib, name, Arc::new(error));
                return -1;
            }
        };
        // Nobody could tell a thread-local variable's address.
        if found.kind == SymbolKind::ThreadLocal {
            return 0;
        }
        if let Some(code) = found.code {
            layer.keep_outside(found.address as usize, code);
        }
        // SAFETY: both may be written.
        unsafe {
            *address = found.address;
            *kind = kind_for_orc(found.kind);
        }
        1
    })
}

unsafe extern "C" fn drop_finder(user: *mut c_void) {
    // SAFETY: of `finder`; called once.
    guarded((), || drop(unsafe { Box::from_raw(user.cast::<Finder>()) }));
}

/// What the shim has the bytes of.
struct Kept {
    layer: Arc<Layer>,
    bytes: usize,
}

/// Returns the argument of [`dropped`] for what the layer [has](Layer::give).
pub(super) fn keep_given(layer: &Arc<Layer>, given: &Given) -> *mut c_void {
    let kept = Kept { layer: Arc::clone(layer), bytes: given.bytes().0.addr() };
    Box::into_raw(Box::new(kept)).cast()
}

/// # Safety
/// `kept` is of [`keep_given`]; called once.
pub(super) unsafe extern "C" fn dropped(kept: *mut c_void) {
    // SAFETY: by the caller.
    let Kept { layer, bytes } = *unsafe { Box::from_raw(kept.cast::<Kept>()) };
    guarded((), || layer.drop_given(bytes));
}
