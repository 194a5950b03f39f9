//! Loads relocatable ELF objects into the running process through LLVM's JITLink.
//!
//! An ML runtime calls kernels that were compiled ahead of time (CuTe DSL, MLIR, TVM, Halide, IREE, clang, rustc): this
//! crate takes their `.o` files as bytes and hands back typed functions, without a linker process and without a
//! temporary shared object.
//!
//! ```no_run
//! # fn main() -> slabjit::Result<()> {
//! use slabjit::{JitEngine, Symbol};
//!
//! let engine = JitEngine::new()?;
//! let kernel = engine.add_object_file("add.o")?;
//! // SAFETY: `int add(int, int)` is what add.c says; its initialisers may run.
//! let add: Symbol<unsafe extern "C" fn(i32, i32) -> i32> = unsafe { kernel.get("add")? };
//! assert_eq!(unsafe { add(40, 2) }, 42);
//! # Ok(())
//! # }
//! ```
//!
//! # What it promises
//! - **Reach.** Each object lies in one contiguous slab, all slabs of an engine in one arena of less than 2 GiB. A
//!   reference that leaves the arena is bridged or refused with a full diagnosis ([`LinkError::ReferencesOutOfRange`])
//!   before anything runs; nothing is ever truncated.
//! - **Preparation.** Objects are checked, and where needed rewritten, before LLVM sees them; see
//!   [`JitEngine::check_object`].
//! - **W^X.** No mapping of an engine is ever writable and executable.
//! - **Ownership.** A [`Symbol`] keeps its code alive, also past its [`Library`] and its engine; a [`CallPlan`] keeps
//!   all that a call needs. Removed code traps, and [`JitEngine::explain_address`] says what it was.
//! - **Buffers.** A [`Kernel`] is called through its [`KernelSignature`]: nothing runs on buffers that are not what it
//!   takes, or that share memory they must not. An [`Autotuner`] leaves no trace of what it has tried.
//! - **Nothing lost on failure.** Bad input and exhausted resources are an [`Error`]; what was loaded before goes on
//!   working. Only exhausted `malloc` aborts, as it does in Rust and in LLVM.
//!
//! # Limits, for now
//! Linux with glibc on x86-64, and on AArch64 as far as qemu-user shows; memory operands and 32-bit fields that refer
//! to something far away are refused, so compile with `-fPIC`. A child of `fork` calls, loads and removes as its parent
//! does. `docs/limits.md` lists every limit.
//!
//! # Features
//! At most one chooses the LLVM. Without one, objects are prepared and checked, and nothing is linked: that is
//! [`LinkError::NoLinker`].
//!
//! | feature | what |
//! |---|---|
//! | `llvm15-0`, `llvm16-0`, `llvm17-0`, `llvm18-1`, `llvm19-1` (default), `llvm20-1`, `llvm21-1`, `llvm22-1`, `llvm23-1` | the shared libLLVM is linked |
//! | the same with `-prefer-static` behind it | LLVM is linked into the program |
//! | the same with `-no-llvm-linking` behind it | the program links an LLVM itself |
//! | `inkwell` | LLVM IR in place of objects: modules of inkwell's, bitcode, text (`ir`) |
//! | `cuda` | NVIDIA's driver, found at run time (`cuda`) |
//! | `tvm-ffi` | calls of packed functions of CuTe DSL and TVM (`tvm_ffi`) |
//! | `llvm` | set by those of an LLVM |
//! | `cli` | the `slabjit` program: without LLVM, `check` and `map` |
//!
//! # Tracing
//! Spans at debug level: `slabjit::prepare` (object, bytes), `slabjit::link` (library, number of objects; in it an
//! event for each object with its slab) and `slabjit::remove` (library). Changes that preparation makes are info
//! events; failures of finalisers, which have no caller to return an error to, are error events. All have the target
//! `slabjit`.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]
#![warn(unreachable_pub)]
#![cfg_attr(not(feature = "llvm"), allow(dead_code, unused_imports, reason = "only a linker asks for them"))]

#[cfg(all(
    feature = "llvm",
    not(any(
        feature = "llvm15-0",
        feature = "llvm15-0-prefer-static",
        feature = "llvm15-0-no-llvm-linking",
        feature = "llvm16-0",
        feature = "llvm16-0-prefer-static",
        feature = "llvm16-0-no-llvm-linking",
        feature = "llvm17-0",
        feature = "llvm17-0-prefer-static",
        feature = "llvm17-0-no-llvm-linking",
        feature = "llvm18-1",
        feature = "llvm18-1-prefer-static",
        feature = "llvm18-1-no-llvm-linking",
        feature = "llvm19-1",
        feature = "llvm19-1-prefer-static",
        feature = "llvm19-1-no-llvm-linking",
        feature = "llvm20-1",
        feature = "llvm20-1-prefer-static",
        feature = "llvm20-1-no-llvm-linking",
        feature = "llvm21-1",
        feature = "llvm21-1-prefer-static",
        feature = "llvm21-1-no-llvm-linking",
        feature = "llvm22-1",
        feature = "llvm22-1-prefer-static",
        feature = "llvm22-1-no-llvm-linking",
        feature = "llvm23-1",
        feature = "llvm23-1-prefer-static",
        feature = "llvm23-1-no-llvm-linking",
    ))
))]
compile_error!("choose an LLVM: slabjit's feature llvm15-0, … llvm23-1 (`inkwell` needs one, too)");

mod cache;
mod cpu;
pub mod crash;
#[cfg(feature = "cuda")]
pub mod cuda;
mod debug_info;
mod debuggers;
mod drain;
mod elf;
mod engine;
mod error;
mod error_text;
mod explanation;
#[cfg(slabjit_faults)]
#[doc(hidden)]
pub mod fault;
#[cfg(not(slabjit_faults))]
#[allow(unreachable_pub, reason = "tests reach it")]
mod fault;
mod file;
mod file_limit;
mod fork_guard;
mod functions;
mod given_bytes;
mod guarded;
mod hints;
mod image;
mod imports;
#[cfg(feature = "inkwell")]
pub mod ir;
mod kernel;
mod library;
#[cfg(feature = "llvm")]
mod link;
mod live;
mod memory;
mod name;
#[cfg(feature = "llvm")]
pub mod orc;
mod out_of_range;
mod panic_hook;
mod placement;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod program;
mod read;
mod removal;
mod room;
mod runtime;
#[cfg(feature = "shared-cache")]
pub mod store;
mod symbol;
mod sync;
mod threads;
#[cfg(feature = "tvm-ffi")]
pub mod tvm_ffi;

pub use cache::{
    CacheCounters, CacheEntry, CacheError, CacheKey, CacheKeyBuilder, CachedImage, CachedObject, Collected,
    KeyHashError, MissExplanation, ObjectCache, ObjectCacheBuilder, PartDifference, Verified,
};
pub use cpu::{CpuFeature, FunctionNeeds};
pub use debug_info::DebugInfo;
pub use debuggers::jitdump::write_jitdump;
pub use drain::Drain;
#[cfg(slabjit_fuzzing)]
#[doc(hidden)]
pub use elf::exercise;
pub use elf::{
    Change, ChangeKind, ChangedSection, ImageError, Limits, LinkPlan, NoImage, ObjectError, ObjectInput, ObjectPlugin,
    ObjectReport, PlannedDefinition, PlannedImport, PlannedReference, PlannedRelocation, PlannedSection, Problem,
    SectionConflicts, Severity, Verdict,
};
pub use engine::{EngineStats, JitEngine, JitEngineBuilder, SlabLayout};
pub use error::{Error, Result};
pub use explanation::{Explanation, FunctionOffset, SourceLine, Symbolized, symbolize};
pub use hints::SymbolHint;
pub use image::{ImageBuilder, Linked, cpu_needs};
pub use imports::{Provider, ResolvedImport};
#[cfg(feature = "inkwell")]
pub use ir::IrError;
pub use kernel::{
    Access, Argument, Autotuner, BufferView, CallPlan, Candidate, Capture, Element, ElementType, Extent,
    FunctionParameter, FunctionReturn, HostMemory, HostSaved, Kernel, KernelError, KernelFunction, KernelParameter,
    KernelSignature, KernelSignatureBuilder, MemorySpace, Overlap, Region, Returns, Scalar, ScalarType, Strides, Trial,
    Tuning, TuningMemory,
};
pub use library::{Function, Library, LibraryBuilder, Linkable, Slab, SlabSegment};
pub use live::error::{FarReference, LinkError, LinkerSetUse, UndefinedSymbol};
pub use live::library::error::{FileKind, LibraryError, SymbolMissing};
pub use memory::{ArenaStats, MemoryError, PackedMode, Protection};
pub use name::ShortName;
pub use out_of_range::OutOfRange;
pub use panic_hook::install_panic_hook;
pub use placement::ArenaPlacement;
pub use removal::Removal;
#[cfg(feature = "cuda")]
pub use runtime::cuda_driver::{CudaError, DeviceHandleProblem};
pub use symbol::Symbol;
#[cfg(feature = "tvm-ffi")]
pub use tvm_ffi::TvmFfiError;

/// llvm-sys of the LLVM this crate is built for, 150, 160, 191 or 221; see [`JitEngine::raw`].
#[cfg(feature = "llvm")]
pub use slabjit_llvm_wrap::llvm_sys;

/// Returns the major version of the LLVM this crate was compiled for, such as 19; 0 in a build without LLVM.
pub fn llvm_version() -> u32 {
    #[cfg(feature = "llvm")]
    return slabjit_llvm_wrap::slabjit_llvm_major();
    #[cfg(not(feature = "llvm"))]
    return 0;
}

/// Returns the full version of the loaded LLVM, such as `19.1.7`; `none` in a build without LLVM.
#[cfg(not(feature = "llvm"))]
pub fn llvm_version_string() -> String {
    "none".to_owned()
}

/// Returns the full version of the loaded LLVM, such as `19.1.7`; `none` in a build without LLVM.
#[cfg(feature = "llvm")]
#[allow(unsafe_code, reason = "three integers from LLVM")]
pub fn llvm_version_string() -> String {
    let mut numbers = [0; 3];
    // SAFETY: a valid place for three integers.
    unsafe { slabjit_llvm_wrap::slabjit_llvm_version(&mut numbers) }
    let [major, minor, patch] = numbers;
    format!("{major}.{minor}.{patch}")
}

/// The programs in the guides are compiled with the tests.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../docs/cache.md")]
    struct Cache;
    #[cfg(feature = "tvm-ffi")]
    #[doc = include_str!("../docs/guides/cute-dsl.md")]
    struct CuteDsl;
    #[cfg(feature = "shared-cache")]
    #[doc = include_str!("../docs/guides/fleet.md")]
    struct Fleet;
    #[doc = include_str!("../docs/images.md")]
    struct Images;
    #[doc = include_str!("../docs/guides/images.md")]
    struct ShippedImages;
    #[doc = include_str!("../docs/guides/linker.md")]
    struct Linker;
    #[doc = include_str!("../docs/guides/mlir.md")]
    struct Mlir;
    #[cfg(feature = "tvm-ffi")]
    #[doc = include_str!("../docs/guides/tvm.md")]
    struct Tvm;
    #[cfg(feature = "inkwell")]
    #[doc = include_str!("../docs/guides/orc.md")]
    struct Orc;
    #[cfg(feature = "inkwell")]
    #[doc = include_str!("../docs/guides/inkwell.md")]
    struct Inkwell;
}
