//! The limit on the size of files (`RLIMIT_FSIZE`, `ulimit -f`), which counts for memory files (memfd), too.
//!
//! The kernel does not only refuse what goes beyond it: it sends SIGXFSZ to the thread, which ends the process as a
//! rule (Linux, `generic_write_check_limits`, `inode_newsize_ok`). We are a guest in the process, so whoever makes a
//! file larger asks here before.

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// Whether a file may come to have so many bytes.
pub(crate) fn check(bytes: u64) -> Result<(), Errno> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if limit < bytes => Err(Errno::FBIG),
        _ => Ok(()),
    }
}
