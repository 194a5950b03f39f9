//! Registers unwind tables: LLVM's plugins would deregister them while handles may still hold the code.
//!
//! The cost of registering depends on the process's unwinder, which is detected once ([`Unwinder`]).
#![allow(unsafe_code, reason = "the unwinders' interface")]

mod frame_records;
mod groups;
#[cfg(test)]
mod tests;
mod unwinder;

use std::ffi::c_void;
use std::num::NonZero;
use std::ops::Range;

use smallvec::SmallVec;

use crate::fork_guard::ForkGuard;
pub(crate) use crate::live::unwind::groups::CodeRange;
use crate::live::unwind::groups::{GROUPS, Member};
use crate::live::unwind::unwinder::{__deregister_frame, __register_frame, Unwinder};

/// The registered `.eh_frame` of one object; dropping it deregisters.
#[derive(Debug)]
pub(crate) struct Frames {
    begin: NonZero<u64>,
    /// The start of the object's code, if it is among [`GROUPS`].
    among_groups: Option<NonZero<u64>>,
}

/// The `.eh_frame` of an object, and its code if it lies in an arena.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) begin: NonZero<u64>,
    pub(crate) code: Option<CodeRange>,
}

impl Frames {
    /// Registers the tables of a batch, those of neighbours together. Returns one for each.
    ///
    /// # Safety
    /// Each is an `.eh_frame` section that ends in a zero terminator (JITLink's EHFrameNullTerminator pass) and stays
    /// mapped and unchanged until its result is dropped. So does the code, and until then nobody unwinds it any more.
    pub(crate) unsafe fn register_all(tables: impl Iterator<Item = Option<Table>>) -> SmallVec<[Option<Self>; 1]> {
        let _pass = ForkGuard::take();
        let mut members = SmallVec::new();
        let mut register = |Table { begin, code }: Table| {
            let section = begin.get() as *const c_void;
            let mut among_groups = None;
            match (Unwinder::of_process(), code) {
                (Unwinder::List, Some(code)) => {
                    among_groups = NonZero::new(code.addresses.start);
                    // SAFETY: by the caller.
                    let alone = !unsafe { frame_records::describe_only(section, &code.addresses) };
                    // SAFETY: by the caller; removed when the result is dropped.
                    members.push(unsafe { Member::new(code, begin, alone) });
                }
                // SAFETY: by the caller.
                (Unwinder::Records, _) => unsafe { frame_records::each(section, |record| __register_frame(record)) },
                // SAFETY: by the caller.
                _ => unsafe { __register_frame(section) },
            }
            Self { begin, among_groups }
        };
        let frames = tables.map(|table| table.map(&mut register)).collect();
        if !members.is_empty() {
            GROUPS.lock().add_all(members);
        }
        frames
    }

    /// Returns the addresses of the section, unless it has many records.
    pub(crate) fn section(&self) -> Option<Range<usize>> {
        // SAFETY: `register_all` was promised that the section is there until this is dropped.
        unsafe { frame_records::extent(self.begin.get() as *const c_void) }
    }

    /// Drops several: those of neighbours are deregistered together.
    pub(crate) fn drop_all(all: impl Iterator<Item = Self>) {
        let mut code = SmallVec::<[u64; 1]>::with_capacity(all.size_hint().1.unwrap_or_default());
        for frames in all {
            match frames.among_groups {
                Some(start) => {
                    code.push(start.get());
                    // It is deregistered below.
                    std::mem::forget(frames);
                }
                None => drop(frames),
            }
        }
        if code.is_empty() {
            return;
        }
        code.sort_unstable();
        let _pass = ForkGuard::take();
        let removed = GROUPS.lock().remove(&code);
        drop(removed);
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        let _pass = ForkGuard::take();
        let section = self.begin.get() as *const c_void;
        match (self.among_groups, Unwinder::of_process()) {
            (Some(code), _) => {
                let removed = GROUPS.lock().remove(&[code.get()]);
                drop(removed);
            }
            // SAFETY: registered by `register_all`; still mapped, as that function requires.
            (None, Unwinder::Records) => unsafe { frame_records::each(section, |record| __deregister_frame(record)) },
            // SAFETY: as above.
            (None, _) => unsafe { __deregister_frame(section) },
        }
    }
}
