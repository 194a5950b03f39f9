//! Executable stacks, for trampolines of nested functions of GNU C.
//!
//! The dynamic loader makes stacks executable, those of threads that are there and of threads to come, when it opens an
//! object that asks for it (glibc, `_dl_make_stack_executable`). They stay so when that object goes.

use std::iter;
use std::sync::atomic::{AtomicBool, Ordering};

use super::thread_local::Module;
use crate::elf::TlsImage;

/// Has the dynamic loader make stacks executable, once in a process. It takes the loader's lock: no lock of ours may be
/// held.
///
/// # Errors
/// What the system or the loader said. glibc from 2.41 on refuses unless its tunable `glibc.rtld.execstack` is 2, and
/// any where the system does not let memory become executable.
pub(crate) fn enable(machine: u16) -> Result<(), String> {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !DONE.load(Ordering::Acquire) {
        drop(Module::open(&TlsImage::asking_for_executable_stacks(machine), iter::empty())?);
        DONE.store(true, Ordering::Release);
    }
    Ok(())
}
