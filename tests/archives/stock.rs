//! A member through stock LLJIT as its C API makes it (JITLink, in-process memory manager), in a JITDylib with nothing
//! else in it.
#![allow(non_snake_case, reason = "locals are named as the fields of LLVM's structures")]

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_void};
use std::sync::mpsc;

use slabjit::llvm_sys::error::LLVMErrorRef;
use slabjit::llvm_sys::orc2::*;

use crate::lljit::{Linker, Lljit, check, in_full};
use crate::low;

type Answer = Result<Vec<(String, u64)>, String>;

/// Links a member and returns the addresses of the names asked for, or LLVM's words.
pub fn link(bytes: &[u8], imports: &BTreeMap<String, usize>, wanted: &[&str]) -> Result<BTreeMap<String, u64>, String> {
    low::map_low();
    let addresses = link_in(bytes, imports, wanted).map_err(in_full)?;
    Ok(addresses.into_iter().collect())
}

fn link_in(bytes: &[u8], imports: &BTreeMap<String, usize>, wanted: &[&str]) -> Answer {
    let jit = Lljit::new(Linker::Default)?;
    let session = jit.session();
    // SAFETY: plain use of the C API.
    let dylib = unsafe { LLVMOrcExecutionSessionCreateBareJITDylib(session, c"member".as_ptr()) };
    let c_string = |name: &str| CString::new(name).unwrap_or_default();
    for (name, address) in imports {
        jit.define(dylib, &c_string(name), *address as u64)?;
    }
    jit.add(dylib, bytes)?;
    // SAFETY: plain use of the C API; the names are given once.
    unsafe {
        let names = wanted.iter().map(|name| LLVMOrcExecutionSessionIntern(session, c_string(name).as_ptr()));
        look_up(session, dylib, names.collect())
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
