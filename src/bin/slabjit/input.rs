//! What is given to be loaded.

use std::path::{Path, PathBuf};

use slabjit::Error;
use slabjit::ir::{self, OptLevel};

#[derive(clap::Args)]
pub(crate) struct Inputs {
    /// How much LLVM IR is optimised, as by clang.
    #[arg(short = 'O', long = "opt-level", value_name = "LEVEL", default_value = "2", value_parser = level)]
    level: OptLevel,
    /// Objects, or LLVM IR (.ll, .bc) to make them of, in the order in which they are initialised.
    #[arg(required = true, value_name = "OBJECT")]
    pub(crate) paths: Vec<PathBuf>,
}

impl Inputs {
    /// The object in a file, or what its IR is compiled to. Bitcode is told by its first bytes, text by the name.
    pub(crate) fn read(&self, path: &Path) -> slabjit::Result<Vec<u8>> {
        let bytes = std::fs::read(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
        let bitcode = bytes.starts_with(b"BC\xc0\xde") || bytes.starts_with(&[0xde, 0xc0, 0x17, 0x0b]);
        if bitcode || path.extension().is_some_and(|extension| extension == "ll") {
            return ir::compile(&path.display().to_string(), bytes, self.level);
        }
        Ok(bytes)
    }
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
