//! The LLJIT of an engine.
#![allow(unsafe_code, reason = "FFI to LLVM")]

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use once_cell::sync::OnceCell;
use slabjit_llvm_wrap as shim;
use slabjit_llvm_wrap::llvm_sys::orc2::lljit::{
    LLVMOrcLLJITGetExecutionSession, LLVMOrcLLJITGetMainJITDylib, LLVMOrcLLJITRef,
};
use slabjit_llvm_wrap::llvm_sys::orc2::{
    LLVMOrcExecutionSessionCreateBareJITDylib, LLVMOrcExecutionSessionGetJITDylibByName,
    LLVMOrcExecutionSessionGetSymbolStringPool, LLVMOrcSymbolStringPoolClearDeadEntries,
};
use slabjit_llvm_wrap::llvm_sys::target::{LLVM_InitializeNativeAsmPrinter, LLVM_InitializeNativeTarget};

use super::entry::Entry;
use super::finder::{self, Address};
use super::later::leave;
use super::names::Names;
use super::pool::Pool;
use super::{Layer, callbacks};
use crate::elf::SymbolKind;
use crate::fork_guard::{self, ForkGuard, Mutex};
use crate::link::llvm::callbacks::session_error;
use crate::link::llvm::shim_text::take_text;
use crate::live::context::Context;
use crate::live::lifetime::exporting;
use crate::live::lifetime::loaded_library::LoadedLibrary;
use crate::live::resolve::imported::By;
use crate::live::resolve::walk::look_up;
use crate::out_of_range::OutOfRange;
use crate::{Error, LinkError, Result};

/// An engine's LLJIT.
pub(crate) struct Session {
    raw: *mut shim::slabjit_session,
    /// What the LLJIT calls until it has ended.
    pub(super) layer: Arc<Layer>,
    dylibs: Mutex<HashMap<String, Arc<Entry>>>,
    /// The dylib that has the process's symbols.
    process: OnceCell<usize>,
    next: AtomicU64,
    pub(super) names: Names,
}

/// # Errors
/// [`LinkError::Session`](crate::LinkError::Session) if the LLVM in this process is not of the crate's version.
pub(in crate::link) fn check_version() -> Result<()> {
    // SAFETY: no arguments; the text is taken once.
    let text = unsafe { take_text(shim::slabjit_check_version()) };
    text.map_or(Ok(()), |message| Err(Error::Link(LinkError::Session { message })))
}

// SAFETY: an LLJIT may be used from any thread.
unsafe impl Send for Session {}
// SAFETY: as above.
unsafe impl Sync for Session {}

impl Session {
    /// Returns a session for those who use its LLJIT by LLVM's C API.
    pub(crate) fn new(context: Arc<Context>, policy: OutOfRange) -> Result<Self> {
        Self::create(context, policy, true)
    }

    fn create(context: Arc<Context>, policy: OutOfRange, find_process_symbols: bool) -> Result<Self> {
        // Those who have it find the process's symbols by LLVM's means.
        let layer = Layer::new(context, policy, find_process_symbols);
        let _pass = ForkGuard::take();
        initialize_native_target()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the function may be called from anywhere; `raw` is valid for a write; the text is taken once.
        let text = unsafe {
            let process = find_process_symbols.into();
            take_text(shim::slabjit_session_create(session_error, &callbacks(&layer), process, &mut raw))
        };
        match text {
            Some(message) => Err(Error::Link(LinkError::Session { message })),
            None => {
                let (dylibs, process, next) = (Mutex::default(), OnceCell::new(), AtomicU64::new(0));
                Ok(Self { raw, layer, dylibs, process, next, names: Names::default() })
            }
        }
    }

    /// Returns a session for dylibs of ours, of which this many threads compile and link.
    pub(crate) fn with_threads(context: Arc<Context>, policy: OutOfRange, threads: usize) -> Result<Arc<Self>> {
        let session = Arc::new(Self::create(context, policy, false)?);
        if threads != 0 {
            let owner: Weak<Self> = Arc::downgrade(&session);
            let _ = session.layer.pool.set(Pool::new(threads, owner));
        }
        Ok(session)
    }

    pub(super) fn raw(&self) -> *mut shim::slabjit_session {
        self.raw
    }

    /// Returns a number that it returned to nobody else.
    pub(super) fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns what it knows of the dylib of a name, which is made if there is none.
    pub(super) fn entry(&self, name: &str) -> Arc<Entry> {
        let mut dylibs = self.dylibs.lock();
        if let Some(entry) = dylibs.get(name) {
            return Arc::clone(entry);
        }
        let raw = match name {
            // SAFETY: the session's.
            "main" => unsafe { LLVMOrcLLJITGetMainJITDylib(self.lljit()) }.cast(),
            _ => self.bare_dylib(name),
        };
        // With a dylib that has no generator, ORC asks those behind it for no name that is hidden there.
        self.find_with(raw, |_| Ok(None));
        let entry = Arc::new(Entry::new(&self.layer.context, raw, name.into()));
        entry.set_order(&entry.links.lock(), self.process());
        dylibs.insert(name.to_owned(), Arc::clone(&entry));
        entry
    }

    /// Makes a dylib of ORC's. The name is for messages.
    pub(super) fn bare_dylib(&self, name: &str) -> *mut c_void {
        let _pass = ForkGuard::take();
        // SAFETY: the session's; the name, which ORC has no other dylib of, is lent.
        unsafe {
            let session = LLVMOrcLLJITGetExecutionSession(self.lljit());
            let mut name = CString::new(name.replace('\0', "\u{fffd}")).unwrap_or_default();
            while !LLVMOrcExecutionSessionGetJITDylibByName(session, name.as_ptr()).is_null() {
                let numbered = format!("{} ({})", name.to_string_lossy(), self.next_number());
                name = CString::new(numbered).unwrap_or_default();
            }
            LLVMOrcExecutionSessionCreateBareJITDylib(session, name.as_ptr()).cast()
        }
    }

    /// Gives a dylib of ORC's a function that finds names. A fork waits for it.
    pub(super) fn find_with(
        &self,
        dylib: *mut c_void,
        find: impl Fn(&str) -> Result<Option<Address>> + Send + Sync + 'static,
    ) {
        let finder = finder::finder(&self.layer, dylib.addr(), find);
        let _pass = ForkGuard::take();
        // SAFETY: a dylib of the session; the finder is the shim's from here on.
        unsafe { shim::slabjit_dylib_add_finder(dylib, &finder) };
    }

    /// Returns the dylib that has the process's symbols.
    pub(super) fn process(&self) -> *mut c_void {
        let make = || {
            let raw = self.bare_dylib("the process");
            let code = LoadedLibrary::new("the process".into(), false, Vec::new(), &self.layer.context.registry);
            self.find_with(raw, move |name| {
                let found = fork_guard::loading_without(|| look_up(name, None, &code));
                let owner = |address, by| if by == By::Process { exporting::owner(address) } else { None };
                Ok(found.map(|(address, by)| Address { address, kind: SymbolKind::Unknown, code: owner(address, by) }))
            });
            raw.expose_provenance()
        };
        std::ptr::with_exposed_provenance_mut(*self.process.get_or_init(make))
    }

    /// Has LLVM forget names that were removed, once they are many.
    pub(super) fn remove_names(&self, n: usize) {
        if self.names.remove(n) {
            self.sweep_names();
        }
    }

    /// Does the same for a name that is nowhere.
    pub(super) fn lose_name(&self) {
        if self.names.lose(1) {
            self.sweep_names();
        }
    }

    fn sweep_names(&self) {
        let _pass = ForkGuard::take();
        // SAFETY: the session's pool, which is locked meanwhile; names that somebody uses are counted.
        unsafe {
            let session = LLVMOrcLLJITGetExecutionSession(self.lljit());
            LLVMOrcSymbolStringPoolClearDeadEntries(LLVMOrcExecutionSessionGetSymbolStringPool(session));
        }
    }

    pub(crate) fn lljit(&self) -> LLVMOrcLLJITRef {
        // SAFETY: the session is ours, and lives.
        unsafe { shim::slabjit_session_lljit(self.raw) }.cast()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(pool) = self.layer.pool.get() {
            pool.end();
        }
        let pass = ForkGuard::take();
        // SAFETY: ours, and given back once; the text is taken once.
        let text = unsafe {
            let text = take_text(shim::slabjit_session_end(self.raw));
            self.dylibs.get_mut().values().for_each(|entry| entry.kept.forget());
            shim::slabjit_session_dispose(self.raw);
            text
        };
        drop(pass);
        leave();
        if let Some(message) = text {
            tracing::error!(target: "slabjit", message, "LLVM's session ended with an error");
        }
    }
}

/// Initialises the target for LLJIT, which needs a target machine for its data layout. Once for the process, as LLVM's
/// registry is global.
fn initialize_native_target() -> Result<()> {
    static DONE: OnceCell<()> = OnceCell::new();
    DONE.get_or_try_init(|| {
        // SAFETY: no arguments; `OnceCell` lets no second thread in.
        let failed = unsafe { LLVM_InitializeNativeTarget() != 0 || LLVM_InitializeNativeAsmPrinter() != 0 };
        if failed {
            let message = "this LLVM was built without a target for this machine".to_owned();
            return Err(Error::Link(LinkError::Session { message }));
        }
        Ok(())
    })
    .copied()
}
