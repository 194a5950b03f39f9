//! Reading a whole file.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use crate::fault::{Call, check};

/// The contents of a file. `open` and `read` name the calls.
pub(crate) fn read(path: &Path, [open, read]: [Call; 2]) -> io::Result<Vec<u8>> {
    check(open)?;
    let mut file = File::open(path)?;
    check(read)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}
