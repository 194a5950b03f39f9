//! Mappings that the kernel refused to unmap because there are too many. They are retried after another unmapping
//! succeeds.

use std::ops::Range;

use crate::fork_guard::Mutex;

static LEFT: Mutex<Vec<Range<usize>>> = Mutex::new(Vec::new());

/// Keeps a whole unused mapping for later.
pub(super) fn keep(range: Range<usize>) {
    LEFT.lock().push(range);
}

/// Unmaps the kept mappings until one is refused again.
pub(super) fn retry(mut unmap: impl FnMut(&Range<usize>) -> bool) {
    // A loop condition would hold the lock during the body.
    loop {
        let last = LEFT.lock().pop();
        let Some(last) = last else { return };
        if !unmap(&last) {
            return keep(last);
        }
    }
}
