//! What is given to be loaded.

use std::path::{Path, PathBuf};

use slabjit::ir::{self, OptLevel};
use slabjit::{Error, Library, program};

use crate::output::escaped;

#[derive(clap::Args)]
pub(crate) struct Inputs {
    /// How much LLVM IR is optimised, as by clang.
    #[arg(short = 'O', long = "opt-level", value_name = "LEVEL", default_value = "2", value_parser = level)]
    level: OptLevel,
    /// Objects, in the order in which they are initialised; LLVM IR (.ll, .bc) to make them of; archives, of which the
    /// members are loaded that are needed.
    #[arg(required = true, value_name = "OBJECT")]
    pub(crate) paths: Vec<PathBuf>,
}

/// One of them, as read, or as compiled from IR.
pub(crate) struct Input {
    /// Its path, as it is printed and as libraries know it.
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

impl Inputs {
    /// The object or archive in a file, or what its IR is compiled to. Text of IR is told by the name, all else by its
    /// first bytes.
    pub(crate) fn read(&self, path: &Path) -> slabjit::Result<Input> {
        let name = name_of(path);
        let bytes = std::fs::read(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
        let bitcode = bytes.starts_with(b"BC\xc0\xde") || bytes.starts_with(&[0xde, 0xc0, 0x17, 0x0b]);
        let text = !program::is_archive(&bytes) && path.extension().is_some_and(|extension| extension == "ll");
        let bytes = if bitcode || text { ir::compile(&name, bytes, self.level)? } else { bytes };
        Ok(Input { name, bytes })
    }
}

impl Input {
    pub(crate) fn is_archive(&self) -> bool {
        program::is_archive(&self.bytes)
    }

    pub(crate) fn add_to(&self, library: &Library) -> slabjit::Result<()> {
        match self.is_archive() {
            true => library.add_archive_named(&self.name, &self.bytes),
            false => library.add_object_named(&self.name, &self.bytes),
        }
    }
}

/// What a file is called in what is printed.
pub(crate) fn name_of(path: &Path) -> String {
    escaped(&path.display().to_string())
}

fn level(text: &str) -> Result<OptLevel, String> {
    match text {
        "0" => Ok(OptLevel::None),
        "1" => Ok(OptLevel::Less),
        "2" => Ok(OptLevel::Default),
        "3" => Ok(OptLevel::Aggressive),
        _ => Err("expected 0, 1, 2 or 3".to_owned()),
    }
}
