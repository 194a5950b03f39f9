//! `slabjit run`.
#![allow(unsafe_code, reason = "running the objects is what the user asked for")]

use std::ffi::{CString, OsString, c_int};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use slabjit::crash::{self, AlternateStack};
use slabjit::{Library, program};

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
    if let [path] = &inputs.paths[..]
        && !scope.opens_libraries()
        && is_image(path)
    {
        let library = scope.library(&scope.engine(Some(settings))?)?;
        library.add_image_file(path)?;
        return run_and_keep(library, entry);
    }
    let read = inputs.paths.iter().map(|path| inputs.read(path)).collect::<slabjit::Result<Vec<_>>>()?;
    let engine = scope.engine(Some(settings))?;
    // Without an entry nothing runs, not even an initialiser of a shared library.
    let library = match scope.opens_libraries() && !read.iter().any(|input| program::defines(&input.bytes, entry)) {
        true => scope.library_without_shared(&engine)?,
        false => scope.library(&engine)?,
    };
    read.into_iter().try_for_each(|input| input.add_to(&library))?;
    run_and_keep(library, entry)
}

/// Returns whether a file is an image, by its first bytes: such a file is read where it is loaded.
fn is_image(path: &Path) -> bool {
    let mut start = [0; 18];
    // What a pipe has given is gone.
    path.is_file()
        && File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok()
        && program::is_shared_object(&start)
}

fn run_and_keep(library: Library, entry: &str) -> slabjit::Result<c_int> {
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
