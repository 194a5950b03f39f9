//! LLVM IR in place of objects (feature `inkwell`): the LLVM that links also optimises and compiles IR for this
//! machine, in memory.
//!
//! [`JitEngine::add_module`] takes a module made with inkwell, [`JitEngine::add_bitcode`] takes bitcode or text.
//! [`compile`] and [`compile_module`] return the object;
//! [`ObjectCache::get_or_compile_ir`](crate::ObjectCache::get_or_compile_ir) keeps it for the next time. Each
//! compilation has a context of its own, so results are independent of the caller's context, and threads compile in
//! parallel.
//!
//! `Module` and `OptimizationLevel` are types of inkwell 0.11, for the LLVM of this crate.
//!
//! Code is compiled for the CPU that it runs on, unless functions name one (`target-cpu`, as clang's do), and
//! position-independent (`-fPIC`), by LLVM's new pass manager as `opt -passes='default<O2>'` does.
//!
//! # Limits
//! LLVM's code generator ends the process at IR that it has no instructions for ("Cannot select", an intrinsic of
//! another machine), and its bitcode reader is not made for hostile bytes; its text reader is more careful.
#![allow(unsafe_code, reason = "a handler for LLVM's diagnostics, and a flag that inkwell does not set")]

mod cached;
mod error;
mod machine;
mod names;
mod parts;
mod transform;

pub(crate) use cached::cache_key;
pub use error::IrError;
use error::text;
use machine::Machine;
pub(crate) use names::Interface;
pub(crate) use parts::{Part, Parts, compile_part, parts};
use std::ffi::{CStr, c_void};
use std::panic::catch_unwind;
pub(crate) use transform::Transform;

use inkwell::OptimizationLevel;
use inkwell::context::Context;
use inkwell::memory_buffer::MemoryBuffer;
use inkwell::module::Module;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{FileType, TargetMachine};
use slabjit_llvm_wrap::llvm_sys::LLVMDiagnosticSeverity;
use slabjit_llvm_wrap::llvm_sys::core::{
    LLVMContextSetDiagnosticHandler, LLVMDisposeMessage, LLVMGetDataLayoutStr, LLVMGetDiagInfoDescription,
    LLVMGetDiagInfoSeverity,
};
use slabjit_llvm_wrap::llvm_sys::prelude::LLVMDiagnosticInfoRef;

use crate::fork_guard::ForkGuard;
use crate::{Error, JitEngine, Library, Result};

/// LLVM's optimisation level, as `-O0` to `-O3` of clang.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OptLevel {
    /// `-O0`: quick to compile.
    None,
    /// `-O1`.
    Less,
    /// `-O2`.
    #[default]
    Default,
    /// `-O3`.
    Aggressive,
}

impl From<OptimizationLevel> for OptLevel {
    fn from(level: OptimizationLevel) -> Self {
        match level {
            OptimizationLevel::None => Self::None,
            OptimizationLevel::Less => Self::Less,
            OptimizationLevel::Default => Self::Default,
            OptimizationLevel::Aggressive => Self::Aggressive,
        }
    }
}

impl OptLevel {
    /// Returns the code generator's level, and the pass pipeline's name (`PassBuilder::parsePassPipeline`).
    fn of_llvm(self) -> (OptimizationLevel, &'static str) {
        match self {
            Self::None => (OptimizationLevel::None, "default<O0>"),
            Self::Less => (OptimizationLevel::Less, "default<O1>"),
            Self::Default => (OptimizationLevel::Default, "default<O2>"),
            Self::Aggressive => (OptimizationLevel::Aggressive, "default<O3>"),
        }
    }
}

impl JitEngine {
    /// Compiles a module and adds the object to a new library with the module's name. The module is not changed.
    ///
    /// # Errors
    /// Those of [`compile_module`], and of [`add_object`](Self::add_object).
    pub fn add_module(&self, module: &Module<'_>, level: impl Into<OptLevel>) -> Result<Library> {
        self.add_object_named(&name_of(module), compile_module(module, level)?)
    }

    /// Compiles bitcode or the text of IR at [`OptLevel::Default`], and adds the object to a new library.
    ///
    /// # Errors
    /// Those of [`compile`], and of [`add_object`](Self::add_object).
    pub fn add_bitcode(&self, ir: impl AsRef<[u8]>) -> Result<Library> {
        self.add_object(compile("bitcode", ir, OptLevel::default())?)
    }
}

impl Library {
    /// Compiles a module and adds the object. The module is not changed.
    ///
    /// # Errors
    /// Those of [`compile_module`], and of [`add_object`](Self::add_object).
    pub fn add_module(&self, module: &Module<'_>, level: impl Into<OptLevel>) -> Result<()> {
        self.add_object_named(&name_of(module), compile_module(module, level)?)
    }

    /// Compiles bitcode or the text of IR at [`OptLevel::Default`], and adds the object.
    ///
    /// # Errors
    /// Those of [`compile`], and of [`add_object`](Self::add_object).
    pub fn add_bitcode(&self, ir: impl AsRef<[u8]>) -> Result<()> {
        self.add_object(compile("bitcode", ir, OptLevel::default())?)
    }
}

/// Compiles a module to an object for this machine. The module and its context are not changed: the module is copied as
/// bitcode into another context.
///
/// # Errors
/// [`IrError::Invalid`] if LLVM's verifier refuses it; [`IrError::OtherTarget`]; [`IrError::CodeGeneration`].
pub fn compile_module(module: &Module<'_>, level: impl Into<OptLevel>) -> Result<Vec<u8>> {
    let (name, bitcode) = bitcode_of(module)?;
    compile(&name, bitcode.as_slice(), level)
}

/// Returns a module's name and bitcode.
pub(crate) fn bitcode_of(module: &Module<'_>) -> Result<(String, MemoryBuffer<'static>)> {
    let name = name_of(module);
    let _pass = ForkGuard::take();
    // The writer requires a valid module.
    module.verify().map_err(|message| invalid(&name, message.to_bytes()))?;
    Ok((name, module.write_bitcode_to_memory()))
}

/// Compiles bitcode or the text of IR (`.ll`) to an object for this machine. The name is for errors.
///
/// # Errors
/// [`IrError::Invalid`] if LLVM cannot read it, or its verifier refuses it; [`IrError::OtherTarget`];
/// [`IrError::CodeGeneration`].
pub fn compile(name: &str, ir: impl AsRef<[u8]>, level: impl Into<OptLevel>) -> Result<Vec<u8>> {
    read(name, ir.as_ref(), |module, complaints| generate(name, module, complaints, level.into(), &[]))
}

/// Reads and verifies IR, and returns what others have to know of it.
pub(crate) fn interface(name: &str, ir: &[u8]) -> Result<Interface> {
    read(name, ir, |module, _| {
        make_native(name, module, &*machine_for(name, OptLevel::None)?)?;
        Ok(Interface::of(module))
    })
}

/// Does the same as [`compile`]; the object defines all of the module's [`interface`].
pub(crate) fn compile_interface(name: &str, ir: &[u8], level: OptLevel, transforms: &[Transform]) -> Result<Vec<u8>> {
    read(name, ir, |module, complaints| {
        names::keep_all(module);
        generate(name, module, complaints, level, transforms)
    })
}

/// Reads IR into a context of its own, and verifies it.
fn read<R>(name: &str, ir: &[u8], then: impl FnOnce(&Module<'_>, &Complaints) -> Result<R>) -> Result<R> {
    in_context(|context, complaints| {
        // The copy has the NUL at its end that LLVM's text reader requires.
        let buffer = MemoryBuffer::create_from_memory_range_copy(ir, &name.replace('\0', "\u{fffd}"));
        let module = context.create_module_from_ir(buffer).map_err(|message| invalid(name, message.to_bytes()))?;
        complaints.check(|message| invalid(name, message.as_bytes()))?;
        module.verify().map_err(|message| invalid(name, message.to_bytes()))?;
        then(&module, complaints)
    })
}

fn in_context<R>(then: impl FnOnce(&Context, &Complaints) -> Result<R>) -> Result<R> {
    // A fork during the compilation would leave LLVM's locks taken in the child.
    let _pass = ForkGuard::take();
    let complaints = Complaints::default();
    let context = Context::create();
    // SAFETY: the context is used by this function alone, and dropped before the errors that the handler writes to.
    unsafe {
        LLVMContextSetDiagnosticHandler(context.raw(), Some(complain), (&raw const complaints).cast_mut().cast());
    }
    then(&context, &complaints)
}

fn failed(name: &str) -> impl Fn(String) -> Error {
    |message| Error::Ir(IrError::CodeGeneration { module: name.to_owned(), message })
}

fn machine_for(name: &str, level: OptLevel) -> Result<Machine> {
    Machine::new(level.of_llvm().0).map_err(failed(name))
}

/// Transforms and optimises a module, and generates its code.
fn generate(
    name: &str,
    module: &Module<'_>,
    complaints: &Complaints,
    level: OptLevel,
    transforms: &[Transform],
) -> Result<Vec<u8>> {
    let failed = failed(name);
    let machine = machine_for(name, level)?;
    make_native(name, module, &machine)?;
    transforms.iter().try_for_each(|transform| transform.apply(name, module))?;
    // SAFETY: the module is this function's alone.
    unsafe { slabjit_llvm_wrap::slabjit_module_set_shared(module.as_mut_ptr()) };
    let options = PassBuilderOptions::create();
    // The settings of clang.
    options.set_loop_vectorization(true);
    options.set_loop_slp_vectorization(true);
    module.run_passes(level.of_llvm().1, &machine, options).map_err(|message| failed(text(message.to_bytes())))?;
    let object = machine.write_to_memory_buffer(module, FileType::Object);
    complaints.check(&failed)?;
    Ok(object.map_err(|message| failed(text(message.to_bytes())))?.as_slice().to_vec())
}

/// Makes the module native to this process, if it was made for this machine.
fn make_native(name: &str, module: &Module<'_>, machine: &TargetMachine) -> Result<()> {
    let other = |what: &'static str, found: &CStr, expected: &CStr| {
        Error::Ir(IrError::OtherTarget {
            module: name.to_owned(),
            what,
            found: text(found.to_bytes()),
            expected: text(expected.to_bytes()),
        })
    };
    let (found, expected) = (module.get_triple(), machine.get_triple());
    let normalized = TargetMachine::normalize_triple(&found);
    if !is_native(&text(normalized.as_str().to_bytes())) {
        return Err(other("target triple", found.as_str(), expected.as_str()));
    }
    module.set_triple(&expected);
    let data = machine.get_target_data();
    let layout = data.get_data_layout();
    // Not inkwell's, which is where the text was when the module was read: with LLVM 15, it may have moved since.
    // SAFETY: a module that lives, and the text that it has now.
    let given = unsafe { CStr::from_ptr(LLVMGetDataLayoutStr(module.as_mut_ptr())) }.to_owned();
    if !given.is_empty() && *given != *layout.as_str() {
        return Err(other("data layout", &given, layout.as_str()));
    }
    module.set_data_layout(&layout);
    Ok(())
}

/// Returns whether a triple fits this machine in the parts that it has: architecture, vendor, system, environment.
fn is_native(normalized: &str) -> bool {
    let mut parts = normalized.split('-').filter(|part| !matches!(*part, "" | "unknown"));
    let architectures: &[&str] =
        if cfg!(target_arch = "aarch64") { &["aarch64", "arm64"] } else { &["x86_64", "amd64"] };
    match parts.next() {
        None => true,
        Some(architecture) => {
            let system: Vec<_> = parts.collect();
            architectures.contains(&architecture)
                && (system.is_empty() || system.iter().any(|p| p.starts_with("linux") || *p == "elf"))
        }
    }
}

/// Errors that LLVM reports to a handler. Without a handler it prints them and ends the process.
#[derive(Default)]
struct Complaints {
    errors: std::cell::RefCell<Vec<String>>,
}

impl Complaints {
    fn check(&self, error: impl FnOnce(String) -> Error) -> Result<()> {
        match self.errors.take() {
            errors if errors.is_empty() => Ok(()),
            errors => Err(error(errors.join("\n"))),
        }
    }
}

extern "C" fn complain(info: LLVMDiagnosticInfoRef, complaints: *mut c_void) {
    // Nothing here panics, except without memory.
    let _ = catch_unwind(|| {
        // SAFETY: LLVM's information is valid for the call, and its text ours to give back; the other is what `compile`
        // gave, on its thread.
        unsafe {
            if LLVMGetDiagInfoSeverity(info) != LLVMDiagnosticSeverity::LLVMDSError {
                return;
            }
            let description = LLVMGetDiagInfoDescription(info);
            (*complaints.cast::<Complaints>()).errors.borrow_mut().push(text(CStr::from_ptr(description).to_bytes()));
            LLVMDisposeMessage(description);
        }
    });
}

fn invalid(name: &str, message: &[u8]) -> Error {
    Error::Ir(IrError::Invalid { module: name.to_owned(), message: text(message) })
}

fn name_of(module: &Module<'_>) -> String {
    text(module.get_name().to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triples_of_this_machine() {
        let (own, other) = if cfg!(target_arch = "aarch64") { ("aarch64", "x86_64") } else { ("x86_64", "aarch64") };
        for (triple, native) in [
            (String::new(), true),
            (own.to_owned(), true),
            (format!("{own}-unknown-unknown"), true),
            (format!("{own}-unknown-unknown-elf"), true),
            (format!("{own}-pc-linux-gnu"), true),
            (format!("{own}-unknown-linux-musl"), true),
            (format!("{own}-pc-windows-msvc"), false),
            (format!("{own}-apple-macosx14.0.0"), false),
            (format!("{other}-unknown-linux-gnu"), false),
            ("nvptx64-nvidia-cuda".to_owned(), false),
        ] {
            assert_eq!(is_native(&triple), native, "{triple}");
        }
    }
}
