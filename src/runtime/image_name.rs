//! Names for images that the dynamic loader opens. (The tests contain this file twice, like a process with another copy
//! of the crate.)

use std::ffi::CString;
use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZero;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use once_cell::race::OnceNonZeroUsize;

/// The prefix of the loader's name for our images. It is the thread's folder: the thread may have a table of open files
/// of its own, and the process's first thread, which `/proc/self` stands for, may have ended.
pub(super) const IMAGE_PREFIX: &str = "/proc/thread-self/fd/";

/// Returns a path to an open file that no other image has had: the loader compares paths first, and would mistake a new
/// file with a reused number for the old one. Each bit of two numbers is a component without effect, or two empty ones,
/// so that most paths have one length: a counter, and a random number, as other copies of this crate in the process
/// share the loader. (An address instead could recur after such a copy was unloaded.)
pub(super) fn unique_path(file: &OwnedFd) -> CString {
    /// The bits of most counters.
    const MOST: u32 = 24;
    static NEXT: AtomicU64 = AtomicU64::new(0);
    static COPY: OnceNonZeroUsize = OnceNonZeroUsize::new();
    let copy = COPY.get_or_init(|| NonZero::<usize>::MIN | RandomState::new().hash_one(0) as usize).get() as u64;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let bits = |number: u64, count| (0..count).map(move |bit| if number >> bit & 1 == 1 { "./" } else { "//" });
    // The second has all its bits, so equal lengths mean equal positions.
    let bits = bits(number, (u64::BITS - number.leading_zeros()).max(MOST)).chain(bits(copy, u64::BITS));
    let path = format!("{IMAGE_PREFIX}{}./{}", bits.collect::<String>(), file.as_raw_fd());
    CString::new(path).unwrap_or_default()
}
