//! Executable stacks, for trampolines of nested functions of GNU C.
//!
//! The dynamic loader makes the stacks of present and future threads executable when it opens an object that asks for
//! it (glibc, `_dl_make_stack_executable`). They stay so after that object is closed.

use std::iter;
use std::sync::atomic::{AtomicBool, Ordering};

use super::open_image::OpenError;
use super::thread_local::Module;
use crate::elf::TlsImage;

/// Makes stacks executable through the dynamic loader, once in a process. It takes the loader's lock: no lock of ours
/// may be held.
///
/// # Errors
/// The message of the system or the loader. glibc from 2.41 on refuses unless its tunable `glibc.rtld.execstack` is 2;
/// every version refuses if the system does not let memory become executable.
pub(crate) fn enable(machine: u16) -> Result<(), String> {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !DONE.load(Ordering::Acquire) {
        let told = |error: OpenError| match error.into_parts() {
            (message, Some(source)) => format!("{message}: {source}"),
            (message, None) => message,
        };
        let image = TlsImage::asking_for_executable_stacks(machine);
        drop(Module::open(&image, iter::empty()).map_err(told)?);
        DONE.store(true, Ordering::Release);
    }
    Ok(())
}
