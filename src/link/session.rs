//! LLJIT behind the shim, and the few things asked of ORC through its C API.
#![allow(unsafe_code)] // FFI to LLVM

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use once_cell::sync::OnceCell;
use slabjit_llvm_wrap as shim;
use slabjit_llvm_wrap::llvm_sys::error::{LLVMDisposeErrorMessage, LLVMErrorRef, LLVMGetErrorMessage};
use slabjit_llvm_wrap::llvm_sys::orc2::lljit::*;
use slabjit_llvm_wrap::llvm_sys::orc2::*;
use slabjit_llvm_wrap::llvm_sys::target::{LLVM_InitializeNativeAsmPrinter, LLVM_InitializeNativeTarget};

use super::callbacks;
use super::signal::Signal;
use crate::gate::{Guard, Mutex, Pass};
use crate::{Error, Result};

/// An engine's LLVM.
pub(crate) struct Session {
    raw: *mut shim::slabjit_session,
    lljit: LLVMOrcLLJITRef,
    execution: LLVMOrcExecutionSessionRef,
    dylib: LLVMOrcJITDylibRef,
    slots: Arc<Mutex<Slots>>,
    /// What the next batches are added under.
    tracker: Mutex<Option<Arc<Tracker>>>,
}

// SAFETY: an ORC session may be used from any thread; what is not safe to share (a graph) never leaves a function here.
unsafe impl Send for Session {}
// SAFETY: as above.
unsafe impl Sync for Session {}

impl Session {
    pub(crate) fn new() -> Result<Self> {
        let _pass = Pass::take();
        initialize_native_target()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the table is copied; `raw` is valid for a write.
        let text = unsafe { shim::slabjit_session_create(&callbacks::CALLBACKS, &mut raw) };
        take_text(text).map_or(Ok(()), |message| Err(Error::Session { message }))?;
        // SAFETY: the session was just made, and owns all that is asked of it here. The name is fresh in a fresh session.
        unsafe {
            let lljit: LLVMOrcLLJITRef = shim::slabjit_session_lljit(raw).cast();
            let execution = LLVMOrcLLJITGetExecutionSession(lljit);
            let dylib = LLVMOrcExecutionSessionCreateBareJITDylib(execution, c"slabjit".as_ptr());
            Ok(Self { raw, lljit, execution, dylib, slots: Arc::default(), tracker: Mutex::default() })
        }
    }

    pub(crate) fn lljit(&self) -> LLVMOrcLLJITRef {
        self.lljit
    }

    /// Builds the graph of an object; `bytes` must outlive its link.
    pub(super) fn graph(&self, name: &str, bytes: &[u8]) -> std::result::Result<Graph, String> {
        let mut raw = ptr::null_mut();
        // SAFETY: pointers and lengths are those of slices; the caller keeps the bytes.
        let text = unsafe {
            let (bytes, len) = (bytes.as_ptr().cast(), bytes.len());
            shim::slabjit_graph_create(self.raw, bytes, len, name.as_ptr().cast(), name.len(), &mut raw)
        };
        take_text(text).map_or(Ok(Graph { raw }), Err)
    }

    /// What to add a batch under. Batches share a tracker, because making and removing one costs as much as a quarter of
    /// what ORC does for an object; after a while it is replaced, and goes with the last batch that uses it.
    pub(super) fn tracker(&self) -> Arc<Tracker> {
        const BATCHES: u32 = 64;
        let _pass = Pass::take();
        let mut current = self.current();
        let tracker = match current.as_ref().filter(|t| t.batches.load(Ordering::Relaxed) < BATCHES) {
            Some(tracker) => Arc::clone(tracker),
            None => {
                // SAFETY: the dylib lives as long as the session; the session gives its tracker up before it ends.
                let raw = unsafe { LLVMOrcJITDylibCreateResourceTracker(self.dylib) };
                let taken = Taken { numbers: Mutex::default(), slots: Arc::clone(&self.slots) };
                let tracker = Arc::new(Tracker { raw, batches: AtomicU32::new(0), taken: Arc::new(taken) });
                // The old one may have to be removed, which takes locks of ORC's: not under ours.
                let old = current.replace(Arc::clone(&tracker));
                drop(current);
                drop(old);
                self.tidy();
                tracker
            }
        };
        tracker.batches.fetch_add(1, Ordering::Relaxed);
        tracker
    }

    /// Has a tracker removed as soon as its last batch is done.
    pub(super) fn retire(&self, tracker: &Arc<Tracker>) {
        let old = self.current().take_if(|current| Arc::ptr_eq(current, tracker));
        drop(old);
    }

    fn current(&self) -> Guard<'_, Option<Arc<Tracker>>> {
        self.tracker.lock()
    }

    /// Links everything behind `names`, and returns when that has succeeded or failed; why is told to the objects.
    pub(super) fn materialize(&self, names: &[CString]) -> std::result::Result<(), String> {
        let mut set: Vec<_> = names
            .iter()
            .map(|name| LLVMOrcCLookupSetElement {
                // SAFETY: the name is NUL-terminated; the lookup takes the reference over.
                Name: unsafe { LLVMOrcExecutionSessionIntern(self.execution, name.as_ptr()) },
                LookupFlags: LLVMOrcSymbolLookupFlags::LLVMOrcSymbolLookupFlagsWeaklyReferencedSymbol,
            })
            .collect();
        let mut order = [LLVMOrcCJITDylibSearchOrderElement {
            JD: self.dylib,
            JDLookupFlags: LLVMOrcJITDylibLookupFlags::LLVMOrcJITDylibLookupFlagsMatchAllSymbols,
        }];
        let outcome = Arc::new(Outcome::default());
        // SAFETY: the arrays live through the call; the handler owns a reference to `outcome` and is called once. It is
        // given the context also on failure (OrcV2CBindings.cpp of every supported version).
        unsafe {
            LLVMOrcExecutionSessionLookup(
                self.execution,
                LLVMOrcLookupKind::LLVMOrcLookupKindStatic,
                order.as_mut_ptr(),
                order.len(),
                set.as_mut_ptr(),
                set.len(),
                looked_up,
                Arc::into_raw(Arc::clone(&outcome)).cast_mut().cast(),
            );
        }
        outcome.wait(Option::take)
    }

    /// Names of linked objects stay in ORC's string pool until it is told to drop them; that walks the whole pool.
    fn tidy(&self) {
        // SAFETY: the pool is the session's, and synchronises itself.
        unsafe {
            let pool = LLVMOrcExecutionSessionGetSymbolStringPool(self.execution);
            LLVMOrcSymbolStringPoolClearDeadEntries(pool);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _pass = Pass::take();
        let tracker = self.current().take();
        drop(tracker);
        // SAFETY: the last user is gone: every batch borrows the session while it is under way.
        let text = unsafe { shim::slabjit_session_dispose(self.raw) };
        if let Some(message) = take_text(text) {
            tracing::error!(target: "slabjit", message, "LLVM's session ended with an error");
        }
    }
}

#[derive(Default)]
struct Slots {
    free: Vec<u32>,
    next: u32,
}

impl Slots {
    fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next
        })
    }
}

/// A LinkGraph that was not given to ORC yet.
pub(super) struct Graph {
    raw: *mut shim::slabjit_graph,
}

impl Graph {
    /// Asks the object's callbacks what becomes of each symbol, and hands the object over until `end`.
    pub(super) fn bind(&self, object: *mut c_void, retain: bool, indirect: bool) {
        // SAFETY: the graph is ours; `object` is what the callbacks expect, and theirs until `end`.
        unsafe { shim::slabjit_graph_bind(self.raw, object, retain.into(), indirect.into()) }
    }

    pub(super) fn define(self, tracker: &Tracker, key: &CStr) -> std::result::Result<(), String> {
        let raw = self.raw;
        std::mem::forget(self);
        // SAFETY: the shim takes the graph over, also on failure, and borrows the tracker.
        let text = unsafe { shim::slabjit_graph_define(raw, tracker.raw.cast(), key.as_ptr(), key.to_bytes().len()) };
        take_text(text).map_or(Ok(()), Err)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: not defined, hence still ours.
        unsafe { shim::slabjit_graph_dispose(self.raw) }
    }
}

/// What ORC keeps of some batches. Dropping it makes ORC forget them.
pub(super) struct Tracker {
    raw: LLVMOrcResourceTrackerRef,
    batches: AtomicU32,
    taken: Arc<Taken>,
}

/// Numbers in names of some batches. They can be taken again once this is dropped.
pub(super) struct Taken {
    numbers: Mutex<Vec<u32>>,
    slots: Arc<Mutex<Slots>>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let numbers = self.numbers.get_mut();
        self.slots.lock().free.append(numbers);
    }
}

// SAFETY: a tracker may be used from any thread; the session's lock guards it.
unsafe impl Send for Tracker {}
// SAFETY: as above.
unsafe impl Sync for Tracker {}

impl Tracker {
    /// A number that is in no name ORC knows. Numbers come again, so that its string pool sees the same few names.
    pub(super) fn slot(&self) -> u32 {
        let slot = self.taken.slots.lock().take();
        self.taken.numbers.lock().push(slot);
        slot
    }

    /// Keeps its numbers taken. An object whose tracker is gone may still look names up, on another thread: they must not be those of
    /// another batch by then.
    pub(super) fn taken(&self) -> Arc<Taken> {
        Arc::clone(&self.taken)
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        let _pass = Pass::take();
        // SAFETY: we hold one reference, which goes last. The session outlives its trackers.
        let error = unsafe {
            let error = LLVMOrcResourceTrackerRemove(self.raw);
            LLVMOrcReleaseResourceTracker(self.raw);
            error
        };
        if let Some(message) = take_error(error) {
            tracing::error!(target: "slabjit", message, "ORC could not forget a batch");
        }
    }
}

/// The result of a lookup, which may arrive on another thread.
type Outcome = Signal<Option<std::result::Result<(), String>>>;

extern "C" fn looked_up(error: LLVMErrorRef, _: LLVMOrcCSymbolMapPairs, _: usize, context: *mut c_void) {
    // SAFETY: `materialize` passed a reference of its own, and the handler is called once.
    let outcome = unsafe { Arc::from_raw(context.cast::<Outcome>()) };
    let result = take_error(error).map_or(Ok(()), Err);
    outcome.update(|slot| *slot = Some(result));
}

/// LLVM's words in an error, which is consumed.
fn take_error(error: LLVMErrorRef) -> Option<String> {
    if error.is_null() {
        return None;
    }
    // SAFETY: the error is ours and not null; its message is a C string that is disposed of once.
    unsafe {
        let message = LLVMGetErrorMessage(error);
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        LLVMDisposeErrorMessage(message);
        Some(text)
    }
}

/// The text that a function of the shim returned, if any.
pub(super) fn take_text(text: *mut c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: a string of the shim's is NUL-terminated, ours, and freed once.
    unsafe {
        let copy = CStr::from_ptr(text).to_string_lossy().into_owned();
        shim::slabjit_string_free(text);
        Some(copy)
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
