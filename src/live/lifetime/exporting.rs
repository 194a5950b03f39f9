//! Libraries that export names to the process: what finds such a name there keeps the library, as if it were linked
//! against it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use crate::fork_guard::Mutex;
use crate::live::lifetime::loaded_library::{CodeRef, LoadedLibrary};

static EXPORTING: Mutex<Vec<Weak<LoadedLibrary>>> = Mutex::new(Vec::new());
/// Whether there ever was one, for a look without the lock.
static ANY: AtomicBool = AtomicBool::new(false);

/// Records that a library has exported names.
pub(crate) fn add(code: &Arc<LoadedLibrary>) {
    let mut all = EXPORTING.lock();
    all.retain(|code| code.upgrade().is_some_and(|code| !code.life().is_gone()));
    if !all.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(code))) {
        all.push(Arc::downgrade(code));
    }
    ANY.store(true, Ordering::Relaxed);
}

/// Returns whether a library may be kept that was not linked against: the two may keep each other.
pub(crate) fn any() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// Returns the library that has an address that the process was found to export, if it is one of ours.
pub(crate) fn owner(address: u64) -> Option<CodeRef> {
    if !any() {
        return None;
    }
    let all: Vec<_> = EXPORTING.lock().iter().filter_map(Weak::upgrade).collect();
    all.iter().find(|code| code.contains(address as usize)).and_then(CodeRef::of)
}
