//! `slabjit run`.
#![allow(unsafe_code, reason = "running the objects is what the user asked for")]

use std::ffi::{CString, OsString, c_int};
use std::io;
use std::os::unix::ffi::OsStringExt as _;

use slabjit::crash::{self, AlternateStack};
use slabjit::program;

use crate::input::Inputs;
use crate::scope::{Scope, Settings};
use crate::{OUR_FAILURE, output};

/// Returns the entry's result. The caller ends the process with it, so that exit handlers and finalisers run in the
/// usual order, and buffers of C code are written.
pub(crate) fn run(entry: &str, scope: &Scope, settings: &Settings, inputs: &Inputs, arguments: Vec<OsString>) -> c_int {
    set_arguments(inputs, arguments);
    told(call(entry, scope, settings, inputs))
}

/// Does the same as [`run`], but that each function of IR is compiled when it is called.
#[cfg(feature = "inkwell")]
pub(crate) fn run_lazily(
    entry: &str,
    scope: &Scope,
    settings: &Settings,
    inputs: &Inputs,
    arguments: Vec<OsString>,
) -> c_int {
    set_arguments(inputs, arguments);
    told(call_lazily(entry, scope, settings, inputs))
}

/// Reports crashes of this process from now on, also where this thread's stack has overflowed.
pub(crate) fn report_crashes() -> io::Result<()> {
    // Until the process ends.
    std::mem::forget(AlternateStack::of_this_thread()?);
    crash::install();
    Ok(())
}

fn told(status: slabjit::Result<c_int>) -> c_int {
    status.unwrap_or_else(|error| {
        output::say(&error);
        OUR_FAILURE
    })
}

fn call(entry: &str, scope: &Scope, settings: &Settings, inputs: &Inputs) -> slabjit::Result<c_int> {
    let read = inputs.paths.iter().map(|path| inputs.read(path)).collect::<slabjit::Result<Vec<_>>>()?;
    let engine = scope.engine(Some(settings))?;
    // Without an entry nothing runs, not even an initialiser of a shared library.
    let library = match scope.opens_libraries() && !read.iter().any(|input| program::defines(&input.bytes, entry)) {
        true => scope.library_without_shared(&engine)?,
        false => scope.library(&engine)?,
    };
    read.into_iter().try_for_each(|input| input.add_to(&library))?;
    // SAFETY: the user asked for this function to be called so, and for the objects' initialisers to run.
    let status = unsafe { program::run(&library, entry)? };
    // The library stays until the process ends.
    std::mem::forget(library);
    Ok(status)
}

#[cfg(feature = "inkwell")]
fn call_lazily(entry: &str, scope: &Scope, settings: &Settings, inputs: &Inputs) -> slabjit::Result<c_int> {
    let engine = scope.engine(Some(settings))?;
    let dylib = engine.orc().build()?.dylib("slabjit");
    inputs.paths.iter().try_for_each(|path| inputs.add_lazily(path, &dylib))?;
    dylib.link(&scope.library(&engine)?)?;
    // SAFETY: the user asked for this function to be called so, and for the initialisers to run.
    let status = unsafe { program::run_dylib(&dylib, entry)? };
    // It stays until the process ends.
    std::mem::forget(dylib);
    Ok(status)
}

fn set_arguments(inputs: &Inputs, arguments: Vec<OsString>) {
    let own_name = inputs.paths.first().map(|path| path.as_os_str().to_owned());
    let arguments = own_name.into_iter().chain(arguments);
    // The system hands over no argument with a NUL byte.
    let arguments = arguments.filter_map(|argument| CString::new(argument.into_vec()).ok()).collect();
    // SAFETY: there is one thread.
    unsafe { program::set_arguments(arguments) };
}
