//! Modules with blocks at a fixed distance from every thread pointer, and the order of closing them.
//!
//! glibc has some 1.6 KB for such blocks and hands them out one behind the other. It takes only the last one back: the
//! room of any other is lost for the rest of the process (elf/dl-close.c, `_dl_close_worker`, `dl_tls_static_used`). So
//! a module stays open, unused, while one behind it is open.
#![allow(unsafe_code, reason = "closes modules")]

use super::handle::Handle;
use crate::fork_guard::{Guard, Mutex};

struct Fixed {
    handle: Handle,
    /// The distance from the thread pointer, without the sign, which is the same for all.
    distance: u64,
    used: bool,
}

/// Sorted by distance; the farthest was opened last.
static OPEN: Mutex<Vec<Fixed>> = Mutex::new(Vec::new());

fn open() -> Guard<'static, Vec<Fixed>> {
    OPEN.lock()
}

/// Records an opened module.
pub(super) fn opened(handle: Handle, distance: i64) {
    let distance = distance.unsigned_abs();
    let mut open = open();
    let at = open.partition_point(|fixed| fixed.distance < distance);
    open.insert(at, Fixed { handle, distance, used: true });
}

/// Closes a module and the unused ones before it, or keeps it open for a later one.
///
/// The loader's lock is taken: no lock of ours may be held. So another thread may open one between; room is lost then.
///
/// # Safety
/// The code that refers to the module's variables is gone or never ran.
pub(super) unsafe fn unused(handle: Handle) {
    if let Some(fixed) = open().iter_mut().find(|fixed| fixed.handle == handle) {
        fixed.used = false;
    }
    // A loop condition would hold the lock during the body.
    loop {
        let last = open().pop_if(|last| !last.used);
        let Some(last) = last else { return };
        // SAFETY: it is unused, by whoever called this for it, and out of the list.
        unsafe { last.handle.close() };
    }
}
