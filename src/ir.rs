//! LLVM IR in place of objects (feature `inkwell`): optimised and compiled for this machine by the LLVM that links, in memory.
//!
//! [`JitEngine::add_module`] takes a module made with inkwell, [`JitEngine::add_bitcode`] bitcode or text; [`compile`] and [`compile_module`]
//! hand out the object, for an [`ObjectCache`](crate::ObjectCache) say. Everything is compiled in a context of its own, so nothing that is
//! returned has to do with the caller's, and other threads compile at the same time.
//!
//! Code is compiled for the CPU that it runs on, unless functions name one (`target-cpu`, as clang's do), and position-independent (`-fPIC`), by LLVM's
//! new pass manager as `opt -passes='default<O2>'` does.
//!
//! # Limits
//! LLVM's code generator ends the process at IR that it has no instructions for ("Cannot select", an intrinsic of another machine), and its bitcode
//! reader is not made for hostile bytes: text is read with more care.
#![allow(unsafe_code)] // a handler for LLVM's diagnostics, and a flag that inkwell does not set

use std::ffi::{CStr, c_void};
use std::panic::catch_unwind;
use std::sync::OnceLock;

use inkwell::OptimizationLevel;
use inkwell::context::Context;
use inkwell::memory_buffer::MemoryBuffer;
use inkwell::module::Module;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{CodeModel, FileType, InitializationConfig, RelocMode, Target, TargetMachine, TargetTriple};
use slabjit_llvm_wrap::llvm_sys::LLVMDiagnosticSeverity;
use slabjit_llvm_wrap::llvm_sys::core::{
    LLVMContextSetDiagnosticHandler, LLVMDisposeMessage, LLVMGetDiagInfoDescription, LLVMGetDiagInfoSeverity,
};
use slabjit_llvm_wrap::llvm_sys::prelude::LLVMDiagnosticInfoRef;

use crate::gate::{self, Pass};
use crate::{Error, JitEngine, Library, Result};

/// How much LLVM optimises, as `-O0` to `-O3` of clang do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
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
    /// What the code generator is told, and LLVM's name of the passes (`PassBuilder::parsePassPipeline`).
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
    /// Compiles a module and adds the object, in a library of its own, which has the module's name. The module stays as it is.
    ///
    /// # Errors
    /// Those of [`compile_module`], and of [`add_object`](Self::add_object).
    pub fn add_module(&self, module: &Module<'_>, level: impl Into<OptLevel>) -> Result<Library> {
        self.add_object_named(&name_of(module), compile_module(module, level)?)
    }

    /// Compiles bitcode, or the text of IR, at [`OptLevel::Default`], and adds the object, in a library of its own.
    ///
    /// # Errors
    /// Those of [`compile`], and of [`add_object`](Self::add_object).
    pub fn add_bitcode(&self, ir: impl AsRef<[u8]>) -> Result<Library> {
        self.add_object(compile("bitcode", ir, OptLevel::default())?)
    }
}

impl Library {
    /// Compiles a module and adds the object. The module stays as it is.
    ///
    /// # Errors
    /// Those of [`compile_module`], and of [`add_object`](Self::add_object).
    pub fn add_module(&self, module: &Module<'_>, level: impl Into<OptLevel>) -> Result<()> {
        self.add_object_named(&name_of(module), compile_module(module, level)?)
    }

    /// Compiles bitcode, or the text of IR, at [`OptLevel::Default`], and adds the object.
    ///
    /// # Errors
    /// Those of [`compile`], and of [`add_object`](Self::add_object).
    pub fn add_bitcode(&self, ir: impl AsRef<[u8]>) -> Result<()> {
        self.add_object(compile("bitcode", ir, OptLevel::default())?)
    }
}

/// Compiles a module to an object for this machine. The module stays as it is, and so does its context: it is written as bitcode, and read into
/// another.
///
/// # Errors
/// [`Error::InvalidIr`] if LLVM's verifier refuses it; [`Error::IrForOtherTarget`]; [`Error::CodeGeneration`].
pub fn compile_module(module: &Module<'_>, level: impl Into<OptLevel>) -> Result<Vec<u8>> {
    let name = name_of(module);
    let bitcode = {
        let _pass = Pass::take();
        // The writer expects that it is.
        module.verify().map_err(|message| invalid(&name, message.to_bytes()))?;
        module.write_bitcode_to_memory()
    };
    compile(&name, bitcode.as_slice(), level)
}

/// Compiles bitcode, or the text of IR (`.ll`), to an object for this machine. The name is for errors.
///
/// # Errors
/// [`Error::InvalidIr`] for what LLVM cannot read, or its verifier refuses; [`Error::IrForOtherTarget`]; [`Error::CodeGeneration`].
pub fn compile(name: &str, ir: impl AsRef<[u8]>, level: impl Into<OptLevel>) -> Result<Vec<u8>> {
    // A fork in the middle of it would leave LLVM's locks taken in the child.
    let _pass = Pass::take();
    let (level, passes) = level.into().of_llvm();
    let complaints = Complaints::default();
    let context = Context::create();
    // SAFETY: the context is used by this function alone, and dropped before what the handler writes to.
    unsafe {
        LLVMContextSetDiagnosticHandler(context.raw(), Some(complain), (&raw const complaints).cast_mut().cast());
    }
    // Copied, with the NUL that LLVM's reader of text wants behind it.
    let buffer = MemoryBuffer::create_from_memory_range_copy(ir.as_ref(), &name.replace('\0', "\u{fffd}"));
    let module = context.create_module_from_ir(buffer).map_err(|message| invalid(name, message.to_bytes()))?;
    complaints.check(|message| invalid(name, message.as_bytes()))?;
    module.verify().map_err(|message| invalid(name, message.to_bytes()))?;

    let failed = |message: String| Error::CodeGeneration { module: name.to_owned(), message };
    let machine = machine(level).map_err(failed)?;
    make_native(name, &module, &machine)?;
    // SAFETY: the module is this function's alone.
    unsafe { slabjit_llvm_wrap::slabjit_module_set_shared(module.as_mut_ptr()) };
    let options = PassBuilderOptions::create();
    // As clang has it.
    options.set_loop_vectorization(true);
    options.set_loop_slp_vectorization(true);
    module.run_passes(passes, &machine, options).map_err(|message| failed(text(message.to_bytes())))?;
    let object = machine.write_to_memory_buffer(&module, FileType::Object);
    complaints.check(failed)?;
    Ok(object.map_err(|message| failed(text(message.to_bytes())))?.as_slice().to_vec())
}

/// Has the module compiled for this process, if it was made for such.
fn make_native(name: &str, module: &Module<'_>, machine: &TargetMachine) -> Result<()> {
    let other = |what: &'static str, found: &CStr, expected: &CStr| Error::IrForOtherTarget {
        module: name.to_owned(),
        what,
        found: text(found.to_bytes()),
        expected: text(expected.to_bytes()),
    };
    let (found, expected) = (module.get_triple(), machine.get_triple());
    let normalized = TargetMachine::normalize_triple(&found);
    if !is_native(&text(normalized.as_str().to_bytes())) {
        return Err(other("target triple", found.as_str(), expected.as_str()));
    }
    module.set_triple(&expected);
    let data = machine.get_target_data();
    let layout = data.get_data_layout();
    // It stays borrowed as long as this is there.
    let given = module.get_data_layout().as_str().to_owned();
    if !given.is_empty() && *given != *layout.as_str() {
        return Err(other("data layout", &given, layout.as_str()));
    }
    module.set_data_layout(&layout);
    Ok(())
}

/// Whether a triple is one of this machine, as far as it says: architecture, vendor, system, environment.
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

fn machine(level: OptimizationLevel) -> Result<TargetMachine, String> {
    struct Host {
        triple: TargetTriple,
        cpu: String,
        features: String,
    }
    // SAFETY: strings of LLVM's, which nobody changes.
    unsafe impl Send for Host {}
    // SAFETY: as above.
    unsafe impl Sync for Host {}
    static HOST: OnceLock<Result<Host, String>> = OnceLock::new();
    let host = gate::once(&HOST, || {
        Target::initialize_native(&InitializationConfig::default())?;
        let [cpu, features] = [TargetMachine::get_host_cpu_name(), TargetMachine::get_host_cpu_features()];
        let [cpu, features] = [cpu, features].map(|string| text(string.to_bytes()));
        Ok(Host { triple: TargetMachine::get_default_triple(), cpu, features })
    });
    let Host { triple, cpu, features } = host.as_ref().map_err(Clone::clone)?;
    let target = Target::from_triple(triple).map_err(|message| text(message.to_bytes()))?;
    let machine = target.create_target_machine(triple, cpu, features, level, RelocMode::PIC, CodeModel::Small);
    machine.ok_or_else(|| format!("LLVM has no code generator for {cpu} with {features}"))
}

/// The errors that LLVM reports by the way. Without a handler it prints them and ends the process.
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
    // Nothing here panics, but for want of memory.
    let _ = catch_unwind(|| {
        // SAFETY: LLVM's information is valid for the call, and its text ours to give back; the other is what `compile` gave, on its thread.
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
    Error::InvalidIr { module: name.to_owned(), message: text(message) }
}

fn name_of(module: &Module<'_>) -> String {
    text(module.get_name().to_bytes())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end().to_owned()
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
