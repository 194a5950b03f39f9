//! What RuntimeDyld, the linker of MCJIT and of older users of LLJIT, makes of a reference that does not reach: the reason why
//! this project exists (llvm#71963, llvm#173269). The same object is loaded by both.

use std::ffi::{CStr, c_char, c_void};

use slabjit::llvm_sys::core::LLVMCreateMemoryBufferWithMemoryRangeCopy;
use slabjit::llvm_sys::error::{LLVMErrorRef, LLVMGetErrorMessage};
use slabjit::llvm_sys::orc2::ee::LLVMOrcCreateRTDyldObjectLinkingLayerWithSectionMemoryManager;
use slabjit::llvm_sys::orc2::lljit::*;
use slabjit::llvm_sys::orc2::*;
use slabjit::llvm_sys::target::{LLVM_InitializeNativeAsmPrinter, LLVM_InitializeNativeTarget};

use crate::common::{self, Checked, compile_bytes, freed};
use crate::target::by_arch;

common::tests![runtime_dyld_truncates; parts: runtime_dyld_part];

type Take = unsafe extern "C" fn() -> u64;

/// Nothing need be there: its address is taken. Mappings are further away than 4 GiB.
const FAR: u64 = 0x0000_0007_1234_5678;

/// The address of an array somewhere, by an instruction that reaches 2 GiB (`lea`) or 4 GiB (`adrp`).
fn object() -> Vec<u8> {
    let flags: &[&str] = by_arch(&["-fpie"], &["-fno-pic", "-fno-pie"]);
    compile_bytes("take.c", "extern char far[]; void *take(void) { return far; }", flags)
}

fn runtime_dyld_truncates() {
    let end = common::child("runtime_dyld_part");
    let version = slabjit::llvm_version();
    match (end.signal, end.stdout.trim()) {
        (Some(signal), _) => println!("RuntimeDyld of LLVM {version} ends with signal {signal}: {end:?}"),
        (None, "right") => println!("skipped: RuntimeDyld of LLVM {version} happens to be right here"),
        (None, said) => {
            assert!(said.starts_with("value ") || said.starts_with("error "), "{end:?}");
            println!("RuntimeDyld of LLVM {version}, for {FAR:#x}: {said}");
        }
    }
    let engine = Checked::new();
    // SAFETY: the address is only taken.
    let library =
        unsafe { engine.library("far").symbol("far", std::ptr::without_provenance(FAR as usize)).build().unwrap() };
    library.add_object(object()).unwrap();
    // SAFETY: that is its type.
    assert_eq!(unsafe { library.get::<Take>("take").unwrap()() }, FAR);
    freed(&library);
    engine.finish();
}

/// Prints what LLJIT with RuntimeDyld makes of it.
fn runtime_dyld_part() {
    match take_by_runtime_dyld(&object()) {
        Ok(FAR) => println!("right"),
        Ok(value) => println!("value {value:#x}"),
        Err(error) => println!("error {error}"),
    }
}

extern "C" fn runtime_dyld(
    _: *mut c_void,
    session: LLVMOrcExecutionSessionRef,
    _: *const c_char,
) -> LLVMOrcObjectLayerRef {
    // SAFETY: called by the builder with its session.
    unsafe { LLVMOrcCreateRTDyldObjectLinkingLayerWithSectionMemoryManager(session) }
}

fn checked(error: LLVMErrorRef) -> Result<(), String> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: an error of LLVM's is consumed by asking for its message, a C string.
    let text = unsafe { CStr::from_ptr(LLVMGetErrorMessage(error)) };
    Err(text.to_string_lossy().into_owned())
}

fn take_by_runtime_dyld(object: &[u8]) -> Result<u64, String> {
    // SAFETY: LLVM's C API as its headers say: the builder is consumed by LLVMOrcCreateLLJIT, the unit and the buffer by
    // those they are given to. Nothing is disposed of: the process ends.
    unsafe {
        LLVM_InitializeNativeTarget();
        LLVM_InitializeNativeAsmPrinter();
        let builder = LLVMOrcCreateLLJITBuilder();
        LLVMOrcLLJITBuilderSetObjectLinkingLayerCreator(builder, runtime_dyld, std::ptr::null_mut());
        let mut jit = std::ptr::null_mut();
        checked(LLVMOrcCreateLLJIT(&mut jit, builder))?;
        let dylib = LLVMOrcLLJITGetMainJITDylib(jit);
        let flags = LLVMJITSymbolFlags {
            GenericFlags: LLVMJITSymbolGenericFlags::LLVMJITSymbolGenericFlagsExported as u8,
            TargetFlags: 0,
        };
        let mut far = LLVMOrcCSymbolMapPair {
            Name: LLVMOrcLLJITMangleAndIntern(jit, c"far".as_ptr()),
            Sym: LLVMJITEvaluatedSymbol { Address: FAR, Flags: flags },
        };
        checked(LLVMOrcJITDylibDefine(dylib, LLVMOrcAbsoluteSymbols(&mut far, 1)))?;
        let buffer =
            LLVMCreateMemoryBufferWithMemoryRangeCopy(object.as_ptr().cast(), object.len(), c"take.o".as_ptr());
        checked(LLVMOrcLLJITAddObjectFile(jit, dylib, buffer))?;
        let mut address = 0;
        checked(LLVMOrcLLJITLookup(jit, &mut address, c"take".as_ptr()))?;
        let take: Take = std::mem::transmute(std::ptr::with_exposed_provenance::<()>(address as usize));
        Ok(take())
    }
}
