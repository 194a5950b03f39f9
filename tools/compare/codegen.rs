//! What MCJIT would do before it links: the code of the small function, from its IR.
#![allow(deprecated, reason = "LLVM 22's name for the parser is not in the others")]

use std::ffi::CStr;
use std::ptr;

use slabjit::llvm_sys::core::*;
use slabjit::llvm_sys::ir_reader::LLVMParseIRInContext;
use slabjit::llvm_sys::target::{LLVM_InitializeNativeAsmPrinter, LLVM_InitializeNativeTarget};
use slabjit::llvm_sys::target_machine::*;

use crate::measure::Cost;

const IR: &CStr = c"define i32 @kernel_00000000(i32 %x) {\n  %y = add i32 %x, 42\n  ret i32 %y\n}\n";

/// The cost of so many modules, each from IR in memory to an object in memory; their parsing is not counted.
///
/// # Errors
/// In LLVM's words.
pub fn cost(count: usize) -> Result<Cost, String> {
    // SAFETY: plain use of the C API: the context is disposed of last, buffers are consumed by the parser, and messages
    // of failures are not kept.
    unsafe {
        LLVM_InitializeNativeTarget();
        LLVM_InitializeNativeAsmPrinter();
        let triple = LLVMGetDefaultTargetTriple();
        let (mut target, mut message) = (ptr::null_mut(), ptr::null_mut());
        if LLVMGetTargetFromTriple(triple, &mut target, &mut message) != 0 {
            return Err(CStr::from_ptr(message).to_string_lossy().into_owned());
        }
        // As MCJIT has it unless told otherwise.
        let machine = LLVMCreateTargetMachine(
            target,
            triple,
            c"".as_ptr(),
            c"".as_ptr(),
            LLVMCodeGenOptLevel::LLVMCodeGenLevelDefault,
            LLVMRelocMode::LLVMRelocDefault,
            LLVMCodeModel::LLVMCodeModelJITDefault,
        );
        let context = LLVMContextCreate();
        let parse = || {
            let text = IR.to_bytes();
            let buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(text.as_ptr().cast(), text.len(), c"ir".as_ptr());
            let (mut module, mut message) = (ptr::null_mut(), ptr::null_mut());
            match LLVMParseIRInContext(context, buffer, &mut module, &mut message) {
                0 => Ok(module),
                _ => Err(CStr::from_ptr(message).to_string_lossy().into_owned()),
            }
        };
        let emit = |module| {
            let (mut object, mut message) = (ptr::null_mut(), ptr::null_mut());
            let kind = LLVMCodeGenFileType::LLVMObjectFile;
            match LLVMTargetMachineEmitToMemoryBuffer(machine, module, kind, &mut message, &mut object) {
                0 => {
                    LLVMDisposeMemoryBuffer(object);
                    Ok(())
                }
                _ => Err(CStr::from_ptr(message).to_string_lossy().into_owned()),
            }
        };
        emit(parse()?)?;
        let modules = (0..count).map(|_| parse()).collect::<Result<Vec<_>, _>>()?;
        let (cost, ()) = Cost::of(count, || modules.iter().try_for_each(|module| emit(*module)))?;
        LLVMContextDispose(context);
        LLVMDisposeTargetMachine(machine);
        LLVMDisposeMessage(triple);
        Ok(cost)
    }
}
