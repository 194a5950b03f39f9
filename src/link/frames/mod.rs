//! Unwind tables, registered by us: LLVM's plugins deregister while handles may still hold the code.
//!
//! What registering costs depends on whose unwinder it is, which is found out once in a process ([`Unwinder`]).
#![allow(unsafe_code)] // the unwinders' interface

mod tables;
mod unwinder;

use std::ffi::c_void;
use std::num::NonZero;

use self::tables::TABLES;
use self::unwinder::Unwinder;
use crate::gate::Pass;

unsafe extern "C" {
    // libgcc_s, which Rust's standard library links on glibc (libgcc/unwind-dw2-fde.c), or an LLVM libunwind that comes before it.
    fn __register_frame(begin: *const c_void);
    fn __deregister_frame(begin: *const c_void);
}

/// The registered `.eh_frame` of one object; dropping it deregisters.
#[derive(Debug)]
pub(super) struct Frames {
    begin: NonZero<u64>,
    /// Where the code begins that it describes, if it is registered together with others.
    code: Option<u64>,
}

impl Frames {
    /// `code`: where the code of the section begins, if it is in one piece and nobody else's code lies within.
    ///
    /// # Safety
    /// `begin` is the address of an `.eh_frame` section that ends in a zero terminator (JITLink's EHFrameNullTerminator
    /// pass) and stays mapped and unchanged until the result is dropped.
    pub(super) unsafe fn register(begin: NonZero<u64>, code: Option<u64>) -> Self {
        let _pass = Pass::take();
        let (unwinder, section) = (Unwinder::of_process(), begin.get() as *const c_void);
        let code = code.filter(|_| unwinder == Unwinder::List);
        match code {
            Some(code) => TABLES.lock().add(code, begin),
            None if unwinder == Unwinder::Records => {
                // SAFETY: by the caller.
                unsafe { each_record(section, |record| __register_frame(record)) };
            }
            // SAFETY: by the caller.
            None => unsafe { __register_frame(section) },
        }
        Self { begin, code }
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        let _pass = Pass::take();
        let section = self.begin.get() as *const c_void;
        match self.code {
            Some(code) => TABLES.lock().remove(code),
            None if Unwinder::of_process() == Unwinder::Records => {
                // SAFETY: registered by `register`; still mapped, as that function requires.
                unsafe { each_record(section, |record| __deregister_frame(record)) };
            }
            // SAFETY: as above.
            None => unsafe { __deregister_frame(section) },
        }
    }
}

/// Calls `what` with each FDE of a section.
///
/// # Safety
/// As for [`Frames::register`].
unsafe fn each_record(section: *const c_void, what: impl Fn(*const c_void)) {
    let mut record = section.cast::<u32>();
    loop {
        // SAFETY: by the caller, records follow each other to the terminator. Those of 64 bits JITLink refuses
        // (parseEHFrameRecord), and lengths are multiples of 4 (`elf::validate::unwind`).
        let (length, id) = unsafe { (record.read_unaligned(), record.add(1)) };
        if length == 0 {
            return;
        }
        // SAFETY: as above; the id is 0 in a CIE.
        if unsafe { id.read_unaligned() } != 0 {
            what(record.cast());
        }
        // SAFETY: as above.
        record = unsafe { id.byte_add(length as usize) };
    }
}
