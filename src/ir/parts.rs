//! Modules whose functions are compiled one by one.
#![allow(unsafe_code, reason = "parts of modules, which LLVM's C API does not make")]

use std::ffi::{CStr, CString, c_char};
use std::ptr;

use inkwell::context::Context;
use inkwell::module::Module;
use slabjit_llvm_wrap as shim;
use slabjit_llvm_wrap::llvm_sys::bit_reader::LLVMGetBitcodeModuleInContext2;
use slabjit_llvm_wrap::llvm_sys::core::LLVMCreateMemoryBufferWithMemoryRange;

use super::names::{self, Interface};
use super::{OptLevel, Transform, failed, generate, in_context, machine_for, make_native, read};
use crate::Result;
use crate::name::DefinedName;

/// A module in parts.
pub(crate) struct Parts {
    /// The bitcode of all parts.
    pub(crate) bitcode: Vec<u8>,
    /// The functions that are parts.
    pub(crate) functions: Vec<DefinedName>,
    /// What the part with all the rest defines.
    pub(crate) rest: Interface,
}

/// A part of a module.
pub(crate) enum Part<'a> {
    /// A function, and the name that its code gets.
    Function {
        name: &'a str,
        body: &'a str,
    },
    Rest,
}

/// Reads and verifies IR, and makes parts of it. What was the module's own gets the suffix, and is the dylib's.
pub(crate) fn parts(name: &str, ir: &[u8], suffix: &str) -> Result<Parts> {
    read(name, ir, |module, _| {
        make_native(name, module, &*machine_for(name, OptLevel::None)?)?;
        // SAFETY: the module is this function's alone; the suffix is lent.
        unsafe { shim::slabjit_module_part(module.as_mut_ptr(), suffix.as_ptr().cast(), suffix.len()) };
        names::keep_all(module);
        let mut functions = Vec::new();
        let rest = Interface::of_values(module, |value, defined| {
            // SAFETY: a value of the module.
            let is_part = unsafe { shim::slabjit_function_is_part(value) != 0 };
            if is_part {
                functions.push(defined);
                return None;
            }
            Some(defined)
        });
        let bitcode = module.write_bitcode_to_memory().as_slice().to_vec();
        Ok(Parts { bitcode, functions, rest })
    })
}

/// Compiles a part of a module to an object.
pub(crate) fn compile_part(
    name: &str,
    bitcode: &[u8],
    part: &Part<'_>,
    level: OptLevel,
    transforms: &[Transform],
) -> Result<Vec<u8>> {
    in_context(|context, complaints| {
        let module = read_lazily(name, context, bitcode)?;
        let (function, body) = match part {
            Part::Function { name, body } => (*name, *body),
            Part::Rest => ("", ""),
        };
        let start = if matches!(part, Part::Rest) { ptr::null() } else { function.as_ptr() };
        // SAFETY: the module is this function's alone; the texts are lent, and what is returned is taken once.
        let text = unsafe {
            let (start, body_start) = (start.cast::<c_char>(), body.as_ptr().cast());
            let text =
                shim::slabjit_module_keep_part(module.as_mut_ptr(), start, function.len(), body_start, body.len());
            (!text.is_null()).then(|| {
                let copy = CStr::from_ptr(text).to_string_lossy().into_owned();
                shim::slabjit_string_free(text);
                copy
            })
        };
        text.map_or(Ok(()), |message| Err(failed(name)(message)))?;
        generate(name, &module, complaints, level, transforms)
    })
}

/// Reads bitcode of ours, but for its functions, which are read when they are needed. The bytes are lent to the module.
fn read_lazily<'a>(name: &str, context: &'a Context, bitcode: &'a [u8]) -> Result<Module<'a>> {
    let mut module = ptr::null_mut();
    let c_name = CString::new(name.replace('\0', "\u{fffd}")).unwrap_or_default();
    // SAFETY: the bytes live as long as the module, which owns the buffer, as does the reader where it fails; bitcode
    // needs no NUL behind it.
    unsafe {
        let buffer = LLVMCreateMemoryBufferWithMemoryRange(bitcode.as_ptr().cast(), bitcode.len(), c_name.as_ptr(), 0);
        if LLVMGetBitcodeModuleInContext2(context.raw(), buffer, &mut module) != 0 {
            return Err(failed(name)("LLVM cannot read its own bitcode".to_owned()));
        }
        Ok(Module::new(module))
    }
}
