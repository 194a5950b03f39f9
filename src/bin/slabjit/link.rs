//! `slabjit link`.

use std::ffi::c_int;
use std::path::{Path, PathBuf};

use slabjit::{Error, ImageBuilder, ImageError, KernelSignature};

use crate::input::Inputs;
use crate::output::{self, escaped};
use crate::words;

/// A function, and the features that it needs of the CPU.
pub(crate) type FunctionNeeds = (String, Vec<String>);

/// Reads `FUNCTION=FEATURE,FEATURE`.
pub(crate) fn function_needs(text: &str) -> Result<FunctionNeeds, String> {
    let (function, features) = text.split_once('=').ok_or("give FUNCTION=FEATURE,FEATURE, or FUNCTION= for none")?;
    let features = features.split(',').filter(|feature| !feature.is_empty()).map(str::to_owned).collect();
    Ok((function.to_owned(), features))
}

/// What an image is besides its inputs.
pub(crate) struct Options<'a> {
    pub(crate) libraries: Vec<PathBuf>,
    pub(crate) soname: Option<&'a str>,
    pub(crate) cpu: Vec<FunctionNeeds>,
    /// Files of signatures.
    pub(crate) contracts: Vec<PathBuf>,
    pub(crate) debug_info: bool,
    pub(crate) pack_relative_relocs: bool,
}

/// Links inputs into an image, and writes it.
pub(crate) fn link(inputs: &Inputs, options: &Options<'_>, file: &Path) -> c_int {
    let linked = signatures(&options.contracts).and_then(|signatures| {
        let linked = image(inputs, options, &signatures).and_then(|bytes| write(file, &bytes));
        linked.map_err(|error| words::of(&error))
    });
    match linked {
        Ok(()) => 0,
        Err(text) => {
            output::complain(&text);
            1
        }
    }
}

/// Reads files of signatures.
fn signatures(files: &[PathBuf]) -> Result<Vec<KernelSignature>, String> {
    let mut all = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(path).map_err(|source| Error::Io { path: path.clone(), source });
        let text = text.map_err(|error| words::of(&error))?;
        let read = KernelSignature::parse_all(&text);
        all.extend(read.map_err(|error| format!("'{}': {}", escaped(&path.to_string_lossy()), words::of(&error)))?);
    }
    Ok(all)
}

fn image(inputs: &Inputs, options: &Options<'_>, signatures: &[KernelSignature]) -> slabjit::Result<Vec<u8>> {
    let mut builder = options.libraries.iter().fold(ImageBuilder::new(), |builder, path| builder.shared_library(path));
    if let Some(soname) = options.soname {
        builder = builder.soname(soname);
    }
    for (function, features) in &options.cpu {
        builder = builder.cpu_needs(function, features.iter().map(String::as_str));
    }
    builder = builder.debug_info(options.debug_info).pack_relative_relocations(options.pack_relative_relocs);
    builder = signatures.iter().fold(builder, |builder, of| builder.signature(of));
    for path in &inputs.paths {
        let input = inputs.read(path)?;
        builder = match input.is_archive() {
            true => builder.archive(&input.name, input.bytes),
            false => builder.object(&input.name, input.bytes),
        };
    }
    builder.link()
}

fn write(file: &Path, bytes: &[u8]) -> slabjit::Result<()> {
    let refused = |source| ImageError::Write { path: file.to_owned(), source };
    Ok(output::write_whole(file, bytes).map_err(refused)?)
}
