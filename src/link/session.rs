//! LLVM's LLJIT, for what is not wrapped here: objects are linked without it.
#![allow(unsafe_code)] // FFI to LLVM

use std::ptr;

use once_cell::sync::OnceCell;
use slabjit_llvm_wrap as shim;
use slabjit_llvm_wrap::llvm_sys::orc2::lljit::LLVMOrcLLJITRef;
use slabjit_llvm_wrap::llvm_sys::target::{LLVM_InitializeNativeAsmPrinter, LLVM_InitializeNativeTarget};

use super::callbacks;
use super::text::take_text;
use crate::gate::Pass;
use crate::{Error, Result};

/// An engine's LLJIT.
pub(crate) struct Session {
    raw: *mut shim::slabjit_session,
}

// SAFETY: an LLJIT may be used from any thread.
unsafe impl Send for Session {}
// SAFETY: as above.
unsafe impl Sync for Session {}

impl Session {
    pub(crate) fn new() -> Result<Self> {
        let _pass = Pass::take();
        initialize_native_target()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the function may be called from anywhere; `raw` is valid for a write.
        let text = unsafe { shim::slabjit_session_create(callbacks::session_error, &mut raw) };
        take_text(text).map_or(Ok(Self { raw }), |message| Err(Error::Session { message }))
    }

    pub(crate) fn lljit(&self) -> LLVMOrcLLJITRef {
        // SAFETY: the session is ours, and lives.
        unsafe { shim::slabjit_session_lljit(self.raw) }.cast()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _pass = Pass::take();
        // SAFETY: ours, and given back once.
        let text = unsafe { shim::slabjit_session_dispose(self.raw) };
        if let Some(message) = take_text(text) {
            tracing::error!(target: "slabjit", message, "LLVM's session ended with an error");
        }
    }
}

/// LLJIT wants a target machine, if only for its data layout. Once for the process: LLVM's registry is global.
fn initialize_native_target() -> Result<()> {
    static DONE: OnceCell<()> = OnceCell::new();
    DONE.get_or_try_init(|| {
        // SAFETY: no arguments; `OnceCell` lets no second thread in.
        let failed = unsafe { LLVM_InitializeNativeTarget() != 0 || LLVM_InitializeNativeAsmPrinter() != 0 };
        if failed {
            let message = "this LLVM was built without a target for this machine".to_owned();
            return Err(Error::Session { message });
        }
        Ok(())
    })
    .copied()
}
