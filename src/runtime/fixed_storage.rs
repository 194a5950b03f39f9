//! Modules whose blocks are at a fixed distance from every thread pointer, and the order in which they are closed.
//!
//! glibc has some 1.6 KB for such blocks and hands them out one behind the other. It takes only the last one back: the room of any
//! other is lost for the rest of the process (elf/dl-close.c, `_dl_close_worker`, `dl_tls_static_used`). So a module stays open, unused,
//! while one behind it is open.

use super::handle::Handle;
use crate::gate::{Guard, Mutex};

struct Fixed {
    handle: Handle,
    /// From the thread pointer, without the direction, which is the same for all.
    distance: u64,
    used: bool,
}

/// From the nearest to the farthest, which was opened last.
static OPEN: Mutex<Vec<Fixed>> = Mutex::new(Vec::new());

fn open() -> Guard<'static, Vec<Fixed>> {
    OPEN.lock()
}

/// Takes note of a module that was opened.
pub(super) fn opened(handle: Handle, distance: i64) {
    let distance = distance.unsigned_abs();
    let mut open = open();
    let at = open.partition_point(|fixed| fixed.distance < distance);
    open.insert(at, Fixed { handle, distance, used: true });
}

/// Closes a module, and those that stayed open for its sake, or has it stay open.
///
/// The loader's lock is taken: no lock of ours may be held. So another thread may open one between; room is lost then.
pub(super) fn unused(handle: Handle) {
    if let Some(fixed) = open().iter_mut().find(|fixed| fixed.handle == handle) {
        fixed.used = false;
    }
    // Not the condition of a loop: that would keep the lock.
    loop {
        let last = open().pop_if(|last| !last.used);
        let Some(last) = last else { return };
        last.handle.close();
    }
}
