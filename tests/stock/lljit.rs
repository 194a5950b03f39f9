//! Stock LLJIT as its C API makes it, for what is compared with it: tests, benches and tools include this file.
//!
//! Nothing of it is disposed of: it is there until its process ends.
#![allow(dead_code, reason = "each of those that include it uses some of it")]

use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use slabjit::llvm_sys::core::{LLVMCreateMemoryBufferWithMemoryRange, LLVMCreateMemoryBufferWithMemoryRangeCopy};
use slabjit::llvm_sys::error::{LLVMDisposeErrorMessage, LLVMErrorRef, LLVMGetErrorMessage};
use slabjit::llvm_sys::orc2::ee::LLVMOrcCreateRTDyldObjectLinkingLayerWithSectionMemoryManager;
use slabjit::llvm_sys::orc2::lljit::*;
use slabjit::llvm_sys::orc2::*;
use slabjit::llvm_sys::target::{LLVM_InitializeNativeAsmPrinter, LLVM_InitializeNativeTarget};

/// What was said to the sessions' reporters: the error of a look-up says less.
static REPORTED: Mutex<String> = Mutex::new(String::new());

/// What links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linker {
    /// What LLJIT takes by itself: JITLink with its in-process memory manager, if [`is_jitlink`].
    Default,
    /// JITLink with its in-process memory manager, on every version.
    InProcess,
    /// JITLink with the memory manager that maps through a `MemoryMapper`.
    Mapper,
    /// The linker of MCJIT, with a `SectionMemoryManager`.
    RuntimeDyld,
}

/// Before LLVM 17, LLJIT links ELF objects of our machines with RuntimeDyld
/// (LLJITBuilderState::prepareForConstruction), and the C API has no other layer ([`Linker::InProcess`] is of
/// slabjit-stock).
pub fn is_jitlink() -> bool {
    let version = slabjit::llvm_version_string();
    version.split('.').next().and_then(|major| major.parse().ok()).is_some_and(|major: u32| major >= 17)
}

/// An LLJIT.
pub struct Lljit(LLVMOrcLLJITRef);

impl Lljit {
    /// A new one.
    pub fn new(linker: Linker) -> Result<Self, String> {
        // SAFETY: plain use of the C API; the builder is consumed.
        unsafe {
            LLVM_InitializeNativeTarget();
            LLVM_InitializeNativeAsmPrinter();
            let builder = LLVMOrcCreateLLJITBuilder();
            let layer: Option<Creator> = match linker {
                Linker::Default => None,
                Linker::InProcess => Some(in_process),
                Linker::Mapper => Some(mapper),
                Linker::RuntimeDyld => Some(runtime_dyld),
            };
            if let Some(layer) = layer {
                LLVMOrcLLJITBuilderSetObjectLinkingLayerCreator(builder, layer, ptr::null_mut());
            }
            let mut jit = ptr::null_mut();
            check(LLVMOrcCreateLLJIT(&mut jit, builder))?;
            LLVMOrcExecutionSessionSetErrorReporter(LLVMOrcLLJITGetExecutionSession(jit), report, ptr::null_mut());
            let jit = Self(jit);
            if !is_jitlink() {
                jit.find_in_process()?;
            }
            Ok(jit)
        }
    }

    /// Has names be looked for in the process, which LLJIT does by itself since LLVM 17.
    fn find_in_process(&self) -> Result<(), String> {
        let mut generator = ptr::null_mut();
        // SAFETY: plain use of the C API; the generator is consumed.
        unsafe {
            let prefix = LLVMOrcLLJITGetGlobalPrefix(self.0);
            check(LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess(&mut generator, prefix, None, ptr::null_mut()))?;
            LLVMOrcJITDylibAddGenerator(self.main(), generator);
        }
        Ok(())
    }

    /// Its session.
    pub fn session(&self) -> LLVMOrcExecutionSessionRef {
        // SAFETY: plain use of the C API.
        unsafe { LLVMOrcLLJITGetExecutionSession(self.0) }
    }

    /// Its JITDylib, in which the process's names are found.
    pub fn main(&self) -> LLVMOrcJITDylibRef {
        // SAFETY: plain use of the C API.
        unsafe { LLVMOrcLLJITGetMainJITDylib(self.0) }
    }

    /// Has a name mean an address.
    pub fn define(&self, dylib: LLVMOrcJITDylibRef, name: &CStr, address: u64) -> Result<(), String> {
        let flags = LLVMJITSymbolFlags {
            GenericFlags: LLVMJITSymbolGenericFlags::LLVMJITSymbolGenericFlagsExported as u8,
            TargetFlags: 0,
        };
        // SAFETY: plain use of the C API; the name and the unit are consumed.
        unsafe {
            let mut pair = LLVMOrcCSymbolMapPair {
                Name: LLVMOrcExecutionSessionIntern(self.session(), name.as_ptr()),
                Sym: LLVMJITEvaluatedSymbol { Address: address, Flags: flags },
            };
            check(LLVMOrcJITDylibDefine(dylib, LLVMOrcAbsoluteSymbols(&mut pair, 1)))
        }
    }

    /// Adds an object, of which the bytes are copied.
    pub fn add(&self, dylib: LLVMOrcJITDylibRef, bytes: &[u8]) -> Result<Tracker, String> {
        // SAFETY: they are copied.
        unsafe { self.add_all(dylib, [bytes], true) }
    }

    /// Adds objects that are removed together, of which LLVM refers to the bytes.
    ///
    /// # Safety
    /// The bytes stay as they are until the objects are linked.
    pub unsafe fn add_lent<'b>(
        &self,
        dylib: LLVMOrcJITDylibRef,
        objects: impl IntoIterator<Item = &'b [u8]>,
    ) -> Result<Tracker, String> {
        // SAFETY: by the caller.
        unsafe { self.add_all(dylib, objects, false) }
    }

    /// # Safety
    /// As for [`add_lent`](Self::add_lent), unless the bytes are copied.
    unsafe fn add_all<'b>(
        &self,
        dylib: LLVMOrcJITDylibRef,
        objects: impl IntoIterator<Item = &'b [u8]>,
        copies: bool,
    ) -> Result<Tracker, String> {
        // ORC calls the initialisers of an object by its name, and two of one name clash.
        static ADDED: AtomicUsize = AtomicUsize::new(0);
        // SAFETY: plain use of the C API.
        let tracker = unsafe { LLVMOrcJITDylibCreateResourceTracker(dylib) };
        for bytes in objects {
            let mut name = *b"object 0000000000000000\0";
            let mut number = ADDED.fetch_add(1, Ordering::Relaxed);
            for digit in name[7..23].iter_mut().rev() {
                *digit = b'0' + (number % 10) as u8;
                number /= 10;
            }
            let (start, name) = (bytes.as_ptr().cast(), name.as_ptr().cast());
            // SAFETY: by the caller, the bytes last; the buffer is consumed.
            unsafe {
                let buffer = match copies {
                    true => LLVMCreateMemoryBufferWithMemoryRangeCopy(start, bytes.len(), name),
                    false => LLVMCreateMemoryBufferWithMemoryRange(start, bytes.len(), name, 0),
                };
                check(LLVMOrcLLJITAddObjectFileWithRT(self.0, tracker, buffer))?;
            }
        }
        Ok(Tracker(tracker))
    }

    /// The address of a name in the main JITDylib, or LLVM's words.
    pub fn look_up(&self, name: &CStr) -> Result<u64, String> {
        let mut address = 0;
        // SAFETY: plain use of the C API.
        unsafe { check(LLVMOrcLLJITLookup(self.0, &mut address, name.as_ptr())) }.map_err(in_full)?;
        Ok(address)
    }

    /// The addresses of names in the main JITDylib, looked up at once.
    pub fn look_up_all(&self, names: &[&CStr]) -> Result<Vec<u64>, String> {
        let texts: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
        let mut addresses = vec![0; names.len()];
        // SAFETY: arrays of that length; the texts are borrowed.
        let looked_up = unsafe {
            let (texts, addresses) = (texts.as_ptr(), addresses.as_mut_ptr());
            slabjit_stock::slabjit_stock_look_up_all(self.session(), self.main(), texts, names.len(), addresses)
        };
        // SAFETY: ours to consume.
        unsafe { check(looked_up) }.map_err(in_full)?;
        Ok(addresses)
    }
}

/// What was added.
pub struct Tracker(LLVMOrcResourceTrackerRef);

impl Tracker {
    /// Removes it.
    pub fn remove(self) -> Result<(), String> {
        // SAFETY: made by `add`, removed and released once.
        unsafe {
            let removed = check(LLVMOrcResourceTrackerRemove(self.0));
            LLVMOrcReleaseResourceTracker(self.0);
            removed
        }
    }
}

/// What was reported first, if anything was; else the error itself.
pub fn in_full(message: String) -> String {
    let reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    if reported.is_empty() { message } else { reported.clone() }
}

/// # Safety
/// The error is null, or the caller's to consume.
pub unsafe fn check(error: LLVMErrorRef) -> Result<(), String> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: by the caller.
    unsafe {
        let message = LLVMGetErrorMessage(error);
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        LLVMDisposeErrorMessage(message);
        Err(text)
    }
}

type Creator = extern "C" fn(*mut c_void, LLVMOrcExecutionSessionRef, *const c_char) -> LLVMOrcObjectLayerRef;

extern "C" fn in_process(
    _: *mut c_void,
    session: LLVMOrcExecutionSessionRef,
    _: *const c_char,
) -> LLVMOrcObjectLayerRef {
    let mut layer = ptr::null_mut();
    // SAFETY: called by the builder with its session. There is no other way out for an error than to abort, which
    // `expect` does here.
    unsafe { check(slabjit_stock::slabjit_stock_in_process_layer(session, &mut layer)) }.expect("a layer");
    layer
}

extern "C" fn mapper(_: *mut c_void, session: LLVMOrcExecutionSessionRef, _: *const c_char) -> LLVMOrcObjectLayerRef {
    let mut layer = ptr::null_mut();
    // SAFETY: as above.
    unsafe { check(slabjit_stock::slabjit_stock_mapper_layer(session, &mut layer)) }.expect("a layer");
    layer
}

extern "C" fn runtime_dyld(
    _: *mut c_void,
    session: LLVMOrcExecutionSessionRef,
    _: *const c_char,
) -> LLVMOrcObjectLayerRef {
    // SAFETY: called by the builder with its session.
    unsafe { LLVMOrcCreateRTDyldObjectLinkingLayerWithSectionMemoryManager(session) }
}

extern "C" fn report(_: *mut c_void, error: LLVMErrorRef) {
    // SAFETY: the reporter owns the error.
    if let Err(message) = unsafe { check(error) } {
        let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.is_empty() {
            *reported = message;
        }
    }
}
