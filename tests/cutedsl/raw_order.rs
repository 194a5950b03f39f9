//! CUTLASS#3075 with the real runtime: it is open, and what it exports is not found.
#![allow(unsafe_code, reason = "opens the runtime; links, and runs nothing")]

use std::ffi::CString;
use std::path::Path;
use std::process::Command;

use libloading::os::unix::{Library as Raw, RTLD_LOCAL, RTLD_NOW};
use slabjit::{Error, JitEngine, Library, LibraryBuilder, LinkError, Provider};

use crate::Test;
use crate::compiled::{Compiled, Form};
use crate::lljit::{Linker, Lljit};

pub const TESTS: &[Test] = &[("a_runtime_that_is_open_is_not_found", in_a_process_of_its_own)];

/// Set in a process that has nothing else opened: the folder.
const CHILD: &str = "SLABJIT_CUTEDSL_RAW_ORDER";

fn in_a_process_of_its_own(compiled: &Compiled) {
    let output = Command::new(std::env::current_exe().unwrap()).env(CHILD, compiled.folder()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Whether this process is that one.
pub fn run_as_child() -> bool {
    let Some(folder) = std::env::var_os(CHILD) else { return false };
    runtime_is_open(&Compiled::read(Path::new(&folder)));
    true
}

const KERNEL: &str = "saxpy";

fn stock(compiled: &Compiled) -> Result<u64, String> {
    let jit = Lljit::new(Linker::InProcess)?;
    jit.add(jit.main(), &compiled.bytes(KERNEL, Form::C))?;
    jit.look_up(&CString::new(format!("{KERNEL}_cuda_init")).unwrap())
}

fn ours(builder: LibraryBuilder, compiled: &Compiled) -> Result<Library, Error> {
    let library = builder.build()?;
    library.add_object(compiled.bytes(KERNEL, Form::C))?;
    // SAFETY: the object has no initialisers.
    unsafe { library.initialize()? };
    Ok(library)
}

#[track_caller]
fn assert_provider(library: &Library, provider: &Provider) {
    let imports = library.imports().unwrap();
    assert!(!imports.is_empty());
    assert!(imports.iter().all(|import| import.provider == *provider), "{imports:?}");
}

fn runtime_is_open(compiled: &Compiled) {
    let runtime = compiled.runtime();
    // SAFETY: its initialisers may run.
    let open = unsafe { Raw::open(Some(&runtime), RTLD_NOW | RTLD_LOCAL).unwrap() };
    // SAFETY: only whether it is there matters.
    unsafe { open.get::<*const ()>("_cudaLibraryLoadData").unwrap() };
    let engine = JitEngine::new().unwrap();

    // What programs have seen.
    let said = stock(compiled).unwrap_err();
    assert!(said.contains("Symbols not found") && said.contains("_cudaLibraryLoadData"), "{said}");
    // The same, with what to do about it.
    let error = ours(engine.library("without"), compiled).unwrap_err();
    let Error::Link(LinkError::UndefinedSymbols { symbols, .. }) = &error else { panic!("{error}") };
    assert!(symbols.iter().all(|symbol| symbol.exported_by == [runtime.clone()]), "{error}");

    // SAFETY: its initialisers have run already.
    let given = ours(unsafe { engine.library("given").shared_library(&runtime) }, compiled).unwrap();
    assert_provider(&given, &Provider::SharedLibrary { path: runtime.clone() });
    // SAFETY: its initialisers have run already.
    unsafe { engine.preload_global(&runtime).unwrap() };
    let preloaded = ours(engine.library("preloaded"), compiled).unwrap();
    assert_provider(&preloaded, &Provider::Process { library: Some(runtime) });
    stock(compiled).unwrap();
}
