//! `slabjit link`.

use std::ffi::c_int;
use std::path::{Path, PathBuf};

use slabjit::{ImageBuilder, ImageError};

use crate::input::Inputs;
use crate::output;

/// Links inputs into an image, and writes it.
pub(crate) fn link(inputs: &Inputs, libraries: &[PathBuf], soname: Option<&str>, file: &Path) -> c_int {
    match image(inputs, libraries, soname).and_then(|bytes| write(file, &bytes)) {
        Ok(()) => 0,
        Err(error) => {
            output::say(&error);
            1
        }
    }
}

fn image(inputs: &Inputs, libraries: &[PathBuf], soname: Option<&str>) -> slabjit::Result<Vec<u8>> {
    let mut builder = libraries.iter().fold(ImageBuilder::new(), |builder, path| builder.shared_library(path));
    if let Some(soname) = soname {
        builder = builder.soname(soname);
    }
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
