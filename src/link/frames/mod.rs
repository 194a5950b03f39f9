//! Unwind tables, registered by us: LLVM's plugins deregister while handles may still hold the code.
//!
//! What registering costs depends on whose unwinder it is, which is found out once in a process ([`Unwinder`]).
#![allow(unsafe_code)] // the unwinders' interface

mod groups;
mod records;
#[cfg(test)]
mod tests;
mod unwinder;

use std::ffi::c_void;
use std::num::NonZero;

pub(super) use self::groups::CodeRange;
use self::groups::{GROUPS, Member};
use self::unwinder::{__deregister_frame, __register_frame, Unwinder};
use crate::gate::Pass;

/// The registered `.eh_frame` of one object; dropping it deregisters.
#[derive(Debug)]
pub(super) struct Frames {
    begin: NonZero<u64>,
    /// Where the object's code begins, if it is among [`GROUPS`].
    among_groups: Option<NonZero<u64>>,
}

impl Frames {
    /// # Safety
    /// `begin` is the address of an `.eh_frame` section that ends in a zero terminator (JITLink's EHFrameNullTerminator
    /// pass) and stays mapped and unchanged until the result is dropped. So does the code, and until then nobody unwinds it any more.
    pub(super) unsafe fn register(begin: NonZero<u64>, code: Option<CodeRange>) -> Self {
        let _pass = Pass::take();
        let section = begin.get() as *const c_void;
        let mut among_groups = None;
        match (Unwinder::of_process(), code) {
            (Unwinder::List, Some(code)) => {
                among_groups = NonZero::new(code.addresses.start);
                // SAFETY: by the caller.
                let alone = !unsafe { records::describe_only(section, &code.addresses) };
                GROUPS.lock().add(Member::new(code, begin, alone));
            }
            // SAFETY: by the caller.
            (Unwinder::Records, _) => unsafe { records::each(section, |record| __register_frame(record)) },
            // SAFETY: by the caller.
            _ => unsafe { __register_frame(section) },
        }
        Self { begin, among_groups }
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        let _pass = Pass::take();
        let section = self.begin.get() as *const c_void;
        match (self.among_groups, Unwinder::of_process()) {
            (Some(code), _) => {
                let removed = GROUPS.lock().remove(code.get());
                drop(removed);
            }
            // SAFETY: registered by `register`; still mapped, as that function requires.
            (None, Unwinder::Records) => unsafe { records::each(section, |record| __deregister_frame(record)) },
            // SAFETY: as above.
            (None, _) => unsafe { __deregister_frame(section) },
        }
    }
}
