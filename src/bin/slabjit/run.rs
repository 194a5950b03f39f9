//! `slabjit run`.
#![allow(unsafe_code)] // running the objects is what the user asked for

use std::ffi::{CString, c_char, c_int};
use std::process::ExitCode;

use slabjit::{JitEngine, Library, LibraryBuilder, Symbol};

use crate::Scope;
use crate::input::Inputs;

/// Exit status for failures that are not the object's own.
pub(crate) const OUR_FAILURE: u8 = 125;

pub(crate) fn run(entry: &str, scope: &Scope, inputs: &Inputs, arguments: Vec<String>) -> ExitCode {
    match call(entry, scope, inputs, arguments) {
        // Exit handlers and finalisers run in the order in which a process's do, and what C code buffers is written.
        Ok(status) => std::process::exit(status),
        Err(error) => {
            eprintln!("slabjit: {error}");
            ExitCode::from(OUR_FAILURE)
        }
    }
}

fn call(entry: &str, scope: &Scope, inputs: &Inputs, arguments: Vec<String>) -> slabjit::Result<c_int> {
    type Main = unsafe extern "C-unwind" fn(c_int, *const *const c_char) -> c_int;

    let engine = JitEngine::new()?;
    let library = scope.library(&engine)?;
    for path in &inputs.paths {
        library.add_object_named(&path.display().to_string(), inputs.read(path)?)?;
    }
    let own_name = inputs.paths.first().map(|o| o.display().to_string()).unwrap_or_default();
    let arguments: Vec<CString> = std::iter::once(own_name)
        .chain(arguments)
        // The system hands over no argument with a NUL byte.
        .filter_map(|a| CString::new(a).ok())
        .collect();
    let mut vector: Vec<*const c_char> = arguments.iter().map(|a| a.as_ptr()).collect();
    vector.push(std::ptr::null());
    // SAFETY: the user asked for this function to be called so, and for the objects' initialisers to run.
    let status = unsafe {
        let main: Symbol<Main> = library.get(entry)?;
        main(c_int::try_from(arguments.len()).unwrap_or(c_int::MAX), vector.as_ptr())
    };
    // It is to be there when the process ends.
    std::mem::forget(library);
    Ok(status)
}

/// Opens the shared libraries that the user named.
pub(crate) fn build(builder: LibraryBuilder) -> slabjit::Result<Library> {
    // SAFETY: the user named the shared libraries, and answers for the addresses.
    unsafe { builder.build() }
}
