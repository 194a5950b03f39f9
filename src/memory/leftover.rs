//! Mappings that the kernel would not unmap: it refuses where a mapping would have to be split and there are too many. They
//! are tried again when one could be unmapped.

use std::ops::Range;

use crate::gate::Mutex;

static LEFT: Mutex<Vec<Range<usize>>> = Mutex::new(Vec::new());

/// Keeps a whole mapping, which nobody uses any more, for later.
pub(super) fn keep(range: Range<usize>) {
    LEFT.lock().push(range);
}

/// Tries to unmap what is kept, until one is refused again.
pub(super) fn retry(mut unmap: impl FnMut(&Range<usize>) -> bool) {
    // Not the condition of a loop: that would keep the lock.
    loop {
        let last = LEFT.lock().pop();
        let Some(last) = last else { return };
        if !unmap(&last) {
            return keep(last);
        }
    }
}
