//! Detects the unwinder of this process.

use std::ffi::c_void;
use std::sync::OnceLock;

use crate::fork_guard;

unsafe extern "C" {
    // libgcc_s, which Rust's standard library links on glibc (libgcc/unwind-dw2-fde.c), or an LLVM libunwind that comes
    // before it.
    pub(super) fn __register_frame(begin: *const c_void);
    pub(super) fn __deregister_frame(begin: *const c_void);
    // libgcc: a section, and memory for its notes.
    pub(super) fn __register_frame_info(begin: *const c_void, notes: *mut c_void);
    pub(super) fn __deregister_frame_info(begin: *const c_void) -> *mut c_void;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unwinder {
    /// libgcc before 13: it has sections in lists ([`groups`](crate::live::unwind::groups)).
    List,
    /// libgcc from 13 on: a tree, by the addresses of code.
    Tree,
    /// LLVM's libunwind: each FDE is registered by itself.
    Records,
}

impl Unwinder {
    /// Returns the unwinder of this process.
    pub(super) fn of_process() -> Self {
        static FOUND: OnceLock<Unwinder> = OnceLock::new();
        *fork_guard::once(&FOUND, || match is_libunwind() {
            true => Self::Records,
            false if has_list() => Self::List,
            false => Self::Tree,
        })
    }
}

/// Returns whether `__register_frame` is an LLVM libunwind's, which another function of it reveals.
fn is_libunwind() -> bool {
    // SAFETY: a plain call with a string.
    let own = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__unw_add_dynamic_fde".as_ptr()) };
    !own.is_null() && module_of(own) == module_of(__register_frame as *const c_void)
}

/// Returns the start of the module that has this address.
fn module_of(address: *const c_void) -> Option<usize> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: it writes to `info`.
    let found = unsafe { libc::dladdr(address, &mut info) };
    (found != 0).then_some(info.dli_fbase.addr())
}

/// Returns whether libgcc keeps registered sections in a list: then it writes the last word of its notes (`struct
/// object`, unwind-dw2-fde.h), which it leaves as it is where they are in a tree.
fn has_list() -> bool {
    /// The words of the notes before the chain: `pc_begin`, `tbase`, `dbase`, `u`, `s`.
    const BEFORE: usize = 5;
    const PATTERN: usize = usize::MAX / 3;
    let mut notes = [PATTERN; 16];
    // This code is never run.
    let code = 0_u64;
    let section = describing((&raw const code).addr() as u64, size_of::<u64>() as u32);
    let begin = section.as_ptr().cast();
    // SAFETY: a section that ends with a terminator; it and the notes are there until it is deregistered.
    unsafe {
        __register_frame_info(begin, notes.as_mut_ptr().cast());
        __deregister_frame_info(begin);
    }
    notes[BEFORE..].iter().any(|word| *word != PATTERN)
}

/// Returns an `.eh_frame` section with one FDE, for so many bytes of code, and the terminator.
pub(super) fn describing(code: u64, bytes: u32) -> [u32; 12] {
    // Version 1 without augmentation, so that pointers are absolute; factors 1 and -8, return address in column 16.
    let cie = [12, 0, 0x7801_0001, 16];
    let [low, high] = [code as u32, (code >> 32) as u32];
    // The CIE begins 20 bytes before the field that says so.
    let fde = [20, 20, low, high, bytes, 0];
    let mut section = [0; 12];
    section.iter_mut().zip(cie.iter().chain(&fde)).for_each(|(to, from)| *to = *from);
    section
}
