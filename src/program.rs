//! Functions that the `slabjit` program needs beside the public interface. Not public.
#![allow(unsafe_code, reason = "an unsafe fn, whose contract is the caller's")]

use std::ffi::{CString, c_int};

use object::read::archive::ArchiveFile;
use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSymbol as _};

use crate::elf::Archive;
use crate::live::outermost;
#[cfg(feature = "llvm")]
use crate::orc::Dylib;
use crate::read::Contents;
use crate::runtime::vectors::{Vectors, program};
use crate::{Library, LibraryBuilder, Result};

/// Returns whether bytes are an archive, thin ones included.
pub fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(b"!<arch>\n") || bytes.starts_with(b"!<thin>\n")
}

/// Returns whether bytes are a shared object, by the header.
pub fn is_shared_object(bytes: &[u8]) -> bool {
    // e_type: ET_DYN
    bytes.starts_with(b"\x7fELF") && bytes.get(16..18) == Some(&[3, 0])
}

/// Returns whether an object, or a member of an archive, defines a name for others. True also where nobody can tell.
pub fn defines(bytes: &[u8], name: &str) -> bool {
    if is_archive(bytes) {
        let symbols = ArchiveFile::parse(bytes).and_then(|archive| archive.symbols());
        let Ok(Some(mut symbols)) = symbols else { return true };
        return symbols.any(|symbol| symbol.map_or(true, |symbol| symbol.name() == name.as_bytes()));
    }
    let Ok(object) = ElfFile64::<object::LittleEndian>::parse(bytes) else { return true };
    let symbols = || object.symbols().chain(object.dynamic_symbols());
    symbols().any(|symbol| symbol.is_global() && !symbol.is_undefined() && symbol.name() == Ok(name))
}

/// Returns the objects in an archive, and their names. Skips members that are no ELF objects, as a linker does.
///
/// # Errors
/// As for [`Library::add_archive_named`].
pub fn members(name: &str, bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>> {
    let members = Archive::parse(name, Contents::Memory(bytes.into()))?.copies(|_| true)?;
    Ok(members.into_iter().filter(|(_, bytes)| bytes.starts_with(b"\x7fELF")).collect())
}

/// Returns the objects that a library has taken out of archives so far, and their names.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io) if an archive that was added as a file cannot be read any more.
pub fn taken_members(library: &Library) -> Result<Vec<(String, Vec<u8>)>> {
    library.inner().taken_members()
}

/// Exports a program's names to the process where the system lets it, and goes on without where it does not. The
/// library stays until the process ends.
pub fn exporting(builder: LibraryBuilder) -> LibraryBuilder {
    builder.export_program()
}

/// Makes these the arguments of the process, for what is loaded from now on: `argv` of initialisers and of `main`, with
/// the environment and the auxiliary vector behind it.
///
/// # Safety
/// No other thread reads or changes the environment meanwhile.
pub unsafe fn set_arguments(arguments: Vec<CString>) {
    // SAFETY: by the caller.
    unsafe { program::begin(arguments) }
}

/// Runs a library as this process's program: its initialisers, and the function of this name, hidden or not, with
/// `argc`, `argv` and `envp`. Exceptions that they do not catch end the process, as they end any program; the entry may
/// end its thread. Returns what it returns.
///
/// # Errors
/// [`LibraryError::SymbolNotFound`](crate::LibraryError::SymbolNotFound),
/// [`LibraryError::WrongSymbolKind`](crate::LibraryError::WrongSymbolKind),
/// [`LibraryError::ThreadLocalSymbol`](crate::LibraryError::ThreadLocalSymbol) before anything is linked; what can go
/// wrong in linking, before any of the library's code has run.
///
/// # Safety
/// The function is such a `main`. All of the library may be run, by this thread, which is the process's first.
pub unsafe fn run(library: &Library, entry: &str) -> Result<c_int> {
    library.inner().require_function(entry)?;
    outermost::begin_program();
    // SAFETY: by the caller.
    let address = unsafe { library.inner().entry(entry)? };
    // SAFETY: by the caller.
    Ok(unsafe { call(address) })
}

/// Does the same as [`run`] with a dylib: links what defines the function, runs the initialisers of all that was added,
/// and calls it.
///
/// # Errors
/// As for [`Dylib::get`] and [`Dylib::initialize`], before any code of the dylib has run unless an initialiser fails.
///
/// # Safety
/// As for [`run`].
#[cfg(feature = "llvm")]
pub unsafe fn run_dylib(dylib: &Dylib, entry: &str) -> Result<c_int> {
    outermost::begin_program();
    // SAFETY: by the caller.
    let found = unsafe { dylib.inner().entry(entry)? };
    // Perhaps no initialiser was the first to run.
    outermost::forget_floating_point();
    // SAFETY: by the caller. The code stays until the process ends.
    let status = unsafe { call(found.address) };
    std::mem::forget(found);
    Ok(status)
}

/// # Safety
/// It is the address of a `main`, which may be called.
unsafe fn call(address: u64) -> c_int {
    let Vectors { count, arguments, environment } = Vectors::of_process();
    let function = std::ptr::with_exposed_provenance(address as usize);
    // SAFETY: by the caller.
    unsafe {
        outermost::call(function, [count as usize, arguments.expose_provenance(), environment.expose_provenance()])
    }
}
