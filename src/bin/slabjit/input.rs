//! Input files: objects, archives and LLVM IR.

use std::path::{Path, PathBuf};

#[cfg(feature = "inkwell")]
use slabjit::ir::{self, OptLevel};
#[cfg(feature = "inkwell")]
use slabjit::orc::Dylib;
use slabjit::{Error, Library, program};

use crate::output::escaped;

#[derive(clap::Args)]
pub(crate) struct Inputs {
    #[cfg(feature = "inkwell")]
    /// The optimisation level for LLVM IR, as of clang.
    #[arg(short = 'O', long = "opt-level", value_name = "LEVEL", default_value = "2", value_parser = level)]
    level: OptLevel,
    /// Objects, in the order of initialisation; archives, whose needed members are loaded; one image, made by `slabjit
    /// link`, alone; with the feature `inkwell`, LLVM IR (.ll, .bc), which is compiled to objects.
    #[arg(required = true, value_name = "OBJECT")]
    pub(crate) paths: Vec<PathBuf>,
}

/// An input as read, or as compiled from IR.
pub(crate) struct Input {
    /// The path, as it is printed and as libraries know it.
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

impl Inputs {
    /// Reads the object or archive in a file, or compiles its IR. Text of IR is recognised by the file's name,
    /// everything else by the first bytes.
    pub(crate) fn read(&self, path: &Path) -> slabjit::Result<Input> {
        let name = name_of(path);
        let bytes = std::fs::read(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
        Ok(Input { bytes: self.compiled(path, &name, bytes)?, name })
    }

    #[cfg(not(feature = "inkwell"))]
    fn compiled(&self, _path: &Path, _name: &str, bytes: Vec<u8>) -> slabjit::Result<Vec<u8>> {
        Ok(bytes)
    }

    /// Compiles IR, and returns everything else unchanged.
    #[cfg(feature = "inkwell")]
    fn compiled(&self, path: &Path, name: &str, bytes: Vec<u8>) -> slabjit::Result<Vec<u8>> {
        if is_ir(path, &bytes) { ir::compile(name, bytes, self.level) } else { Ok(bytes) }
    }

    /// Adds a file to a dylib: IR in functions that are compiled when they are called.
    #[cfg(feature = "inkwell")]
    pub(crate) fn add_lazily(&self, path: &Path, dylib: &Dylib) -> slabjit::Result<()> {
        let name = name_of(path);
        let bytes = std::fs::read(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
        match program::is_archive(&bytes) {
            true => dylib.add_archive_named(&name, bytes),
            false if is_ir(path, &bytes) => dylib.add_bitcode_lazily(&name, bytes, self.level),
            false => dylib.add_object_named(&name, bytes),
        }
    }
}

impl Input {
    pub(crate) fn is_archive(&self) -> bool {
        program::is_archive(&self.bytes)
    }

    pub(crate) fn add_to(self, library: &Library) -> slabjit::Result<()> {
        match () {
            () if self.is_archive() => library.add_archive_named(&self.name, &self.bytes),
            () if program::is_shared_object(&self.bytes) => library.add_image_named(&self.name, self.bytes),
            () => library.add_object_named(&self.name, &self.bytes),
        }
    }
}

#[cfg(feature = "inkwell")]
fn is_ir(path: &Path, bytes: &[u8]) -> bool {
    let bitcode = bytes.starts_with(b"BC\xc0\xde") || bytes.starts_with(&[0xde, 0xc0, 0x17, 0x0b]);
    let text = !program::is_archive(bytes) && path.extension().is_some_and(|extension| extension == "ll");
    bitcode || text
}

/// Returns a file's name for output.
pub(crate) fn name_of(path: &Path) -> String {
    escaped(&path.display().to_string())
}

#[cfg(feature = "inkwell")]
fn level(text: &str) -> Result<OptLevel, String> {
    match text {
        "0" => Ok(OptLevel::None),
        "1" => Ok(OptLevel::Less),
        "2" => Ok(OptLevel::Default),
        "3" => Ok(OptLevel::Aggressive),
        _ => Err("expected 0, 1, 2 or 3".to_owned()),
    }
}
