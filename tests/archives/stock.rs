//! A member through stock LLJIT as its C API makes it (JITLink, in-process memory manager), in a JITDylib with nothing else in it.
#![allow(non_snake_case)]

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError, mpsc};

use slabjit::llvm_sys::core::{LLVMCreateMemoryBufferWithMemoryRangeCopy, LLVMDisposeMessage};
use slabjit::llvm_sys::error::{LLVMErrorRef, LLVMGetErrorMessage};
use slabjit::llvm_sys::orc2::lljit::*;
use slabjit::llvm_sys::orc2::*;
use slabjit::llvm_sys::target::{LLVM_InitializeNativeAsmPrinter, LLVM_InitializeNativeTarget};

use crate::low;

type Answer = Result<Vec<(String, u64)>, String>;

/// What was said to the session's reporter: the error of a lookup says less.
static REPORTED: Mutex<String> = Mutex::new(String::new());

/// Before LLVM 17, LLJIT links ELF objects of our machines with RuntimeDyld (LLJITBuilderState::prepareForConstruction), and the C API
/// has no other layer.
pub fn is_jitlink() -> bool {
    let version = slabjit::llvm_version_string();
    version.split('.').next().and_then(|major| major.parse().ok()).is_some_and(|major: u32| major >= 17)
}

/// Links a member and returns the addresses of the names asked for, or LLVM's words.
pub fn link(bytes: &[u8], imports: &BTreeMap<String, usize>, wanted: &[&str]) -> Result<BTreeMap<String, u64>, String> {
    low::map_low();
    // SAFETY: plain use of the C API; what it takes is given once, and what is needed afterwards is never released.
    let result = unsafe { link_in(bytes, imports, wanted) };
    let addresses = result.map_err(|message| {
        let reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.is_empty() { message } else { reported.clone() }
    })?;
    Ok(addresses.into_iter().collect())
}

unsafe fn link_in(bytes: &[u8], imports: &BTreeMap<String, usize>, wanted: &[&str]) -> Answer {
    // SAFETY: by the caller.
    unsafe {
        LLVM_InitializeNativeTarget();
        LLVM_InitializeNativeAsmPrinter();
        let mut jit = ptr::null_mut();
        check(LLVMOrcCreateLLJIT(&mut jit, ptr::null_mut()))?;
        let session = LLVMOrcLLJITGetExecutionSession(jit);
        LLVMOrcExecutionSessionSetErrorReporter(session, report, ptr::null_mut());
        let dylib = LLVMOrcExecutionSessionCreateBareJITDylib(session, c"member".as_ptr());
        let intern = |name: &str| {
            let name = CString::new(name).unwrap_or_default();
            LLVMOrcExecutionSessionIntern(session, name.as_ptr())
        };
        let flags = || LLVMJITSymbolFlags { GenericFlags: 1, TargetFlags: 0 }; // LLVMJITSymbolGenericFlagsExported
        let pair = |(name, address): (&String, &usize)| LLVMOrcCSymbolMapPair {
            Name: intern(name),
            Sym: LLVMJITEvaluatedSymbol { Address: *address as u64, Flags: flags() },
        };
        let mut pairs: Vec<_> = imports.iter().map(pair).collect();
        check(LLVMOrcJITDylibDefine(dylib, LLVMOrcAbsoluteSymbols(pairs.as_mut_ptr(), pairs.len())))?;
        let buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(bytes.as_ptr().cast(), bytes.len(), c"member".as_ptr());
        check(LLVMOrcLLJITAddObjectFile(jit, dylib, buffer))?;
        look_up(session, dylib, wanted.iter().map(|name| intern(name)).collect())
    }
}

unsafe fn look_up(
    session: LLVMOrcExecutionSessionRef,
    dylib: LLVMOrcJITDylibRef,
    names: Vec<LLVMOrcSymbolStringPoolEntryRef>,
) -> Answer {
    let JDLookupFlags = LLVMOrcJITDylibLookupFlags::LLVMOrcJITDylibLookupFlagsMatchAllSymbols;
    let mut order = [LLVMOrcCJITDylibSearchOrderElement { JD: dylib, JDLookupFlags }];
    let LookupFlags = LLVMOrcSymbolLookupFlags::LLVMOrcSymbolLookupFlagsRequiredSymbol;
    let mut symbols: Vec<_> = names.into_iter().map(|Name| LLVMOrcCLookupSetElement { Name, LookupFlags }).collect();
    let (sender, receiver) = mpsc::channel::<Answer>();
    let context = Box::into_raw(Box::new(sender)).cast::<c_void>();
    // SAFETY: by the caller; `answer` takes the box, and is called once.
    unsafe {
        LLVMOrcExecutionSessionLookup(
            session,
            LLVMOrcLookupKind::LLVMOrcLookupKindStatic,
            order.as_mut_ptr(),
            order.len(),
            symbols.as_mut_ptr(),
            symbols.len(),
            answer,
            context,
        );
    }
    receiver.recv().unwrap_or_else(|_| Err("the lookup was never answered".into()))
}

extern "C" fn answer(error: LLVMErrorRef, pairs: LLVMOrcCSymbolMapPairs, count: usize, context: *mut c_void) {
    // SAFETY: `look_up` made the box for this one call; LLVM passes `count` pairs whose names are NUL-terminated.
    unsafe {
        let sender = Box::from_raw(context.cast::<mpsc::Sender<Answer>>());
        let found = |i: usize| {
            let pair = &*pairs.add(i);
            let name = CStr::from_ptr(LLVMOrcSymbolStringPoolEntryStr(pair.Name)).to_string_lossy();
            (name.into_owned(), pair.Sym.Address)
        };
        let _ = sender.send(check(error).map(|()| (0..count).map(found).collect()));
    }
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

/// # Safety
/// The error is null, or the caller's to consume.
unsafe fn check(error: LLVMErrorRef) -> Result<(), String> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: by the caller.
    unsafe {
        let message = LLVMGetErrorMessage(error);
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        LLVMDisposeMessage(message);
        Err(text)
    }
}
