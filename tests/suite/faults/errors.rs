//! What the kernel may say to a call, by its manual page.

use slabjit::fault::Call;

/// The errors of a call. EINTR is only there for calls that the crate makes again by itself: what the standard library
/// does, it also tries again.
pub fn of(call: Call) -> &'static [i32] {
    use libc::*;
    match (call, call.function()) {
        (Call::ReserveAt, _) => &[ENOMEM, EEXIST, EPERM],
        (_, "mmap") => &[ENOMEM, EAGAIN, EINVAL, EPERM],
        (_, "munmap") => &[ENOMEM, EINVAL],
        (_, "mremap") => &[ENOMEM, EAGAIN, EFAULT, EINVAL],
        (_, "mprotect") => &[ENOMEM, EACCES, EINVAL],
        (_, "madvise") => &[ENOMEM, EAGAIN, EINVAL, EIO, EFAULT, EPERM, EHWPOISON],
        (_, "membarrier") => &[ENOSYS, EINVAL, EPERM],
        (_, "open") => &[ENOENT, EACCES, EMFILE, ENFILE, ENOMEM],
        (_, "read" | "pread") => &[EIO, EISDIR, ENOMEM],
        (_, "memfd_create") => &[EMFILE, EINVAL, ENFILE, ENOMEM, EPERM, EACCES],
        (_, "ftruncate") => &[EINTR, EFBIG, EIO, EPERM],
        (_, "fcntl") => &[EMFILE, EINVAL],
        (_, "pwrite") => &[ENOSPC, EINTR, EFBIG, EIO, EDQUOT],
        (_, "dlopen") => &[EMFILE, ENOMEM],
        (_, "mkdir") => &[ENOSPC, EROFS, EACCES, EDQUOT, EMLINK],
        (_, "fstat" | "fstatat") => &[EIO, ENOMEM, EOVERFLOW],
        (_, "write") => &[ENOSPC, EIO, EFBIG, EDQUOT],
        (_, "fsync") => &[EIO, ENOSPC, EDQUOT],
        (_, "rename") => &[ENOSPC, EROFS, EACCES, EIO],
        (_, "unlink") => &[EROFS, EACCES, EIO, EBUSY],
        (_, "getdents") => &[EIO, ENOENT],
        (_, "flock") => &[ENOLCK, EINTR, ENOMEM],
        (_, "utimensat") => &[EACCES, EROFS, EPERM, ENOENT],
        (_, "pthread_create") => &[EAGAIN, EPERM],
        (_, function) => panic!("what does {function} say?"),
    }
}
