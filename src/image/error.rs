//! Errors of images.

use std::io;
use std::path::PathBuf;

/// An image was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// No object was given.
    #[error("an image needs an object; add one with ImageBuilder::add_object or ImageBuilder::add_archive")]
    Empty,
    /// Two strong definitions of one name.
    #[error("'{symbol}' is defined twice: by '{first}' and by '{second}'; leave one of them out, or make one weak")]
    DuplicateDefinition {
        /// The name.
        symbol: String,
        /// The object that defines it first.
        first: String,
        /// The object that defines it again.
        second: String,
    },
    /// A hidden name that no object defines.
    #[error(
        "'{object}' wants '{symbol}' of the image itself, as it is hidden, and no object defines it; add the object or \
         archive that does"
    )]
    UndefinedHidden {
        /// The object that refers to it.
        object: String,
        /// The name.
        symbol: String,
    },
    /// A reference that would need a change of code or of read-only data at another address.
    #[error(
        "'{object}', section '{section}' offset {offset:#x}: {relocation} against '{symbol}' depends on the load \
         address; compile with -fPIC{}",
        also(advice)
    )]
    NotPositionIndependent {
        /// The object's name.
        object: String,
        /// The section that refers.
        section: String,
        /// Offset in that section.
        offset: u64,
        /// The relocation's name in the ABI.
        relocation: &'static str,
        /// The target.
        symbol: String,
        /// What else helps; may be empty.
        advice: &'static str,
    },
    /// A reference that does not reach its target.
    #[error(
        "'{object}', section '{section}' offset {offset:#x}: {relocation} against '{symbol}' does not reach its \
         target; make several images of the objects"
    )]
    OutOfRange {
        /// The object's name.
        object: String,
        /// The section that refers.
        section: String,
        /// Offset in that section.
        offset: u64,
        /// The relocation's name in the ABI.
        relocation: &'static str,
        /// The target.
        symbol: String,
    },
    /// A reference to a section of a COMDAT group that is linked from another object, or is not linked at all.
    #[error(
        "'{object}', section '{section}' offset {offset:#x}: '{symbol}' is not in the image, as its section '{target}' \
         {}",
        if *is_group { "belongs to a COMDAT group that is linked from another object; compile both objects from the \
                        same sources with the same options" }
        else { "is a list of initialisers or finalisers, which the linker puts in order" }
    )]
    NotLinked {
        /// The object's name.
        object: String,
        /// The section that refers.
        section: String,
        /// Offset in that section.
        offset: u64,
        /// The target.
        symbol: String,
        /// The target's section.
        target: String,
        /// Whether it was discarded with its COMDAT group.
        is_group: bool,
    },
    /// A name that a shared library was given for cannot be had from it.
    #[error("'{}' is no shared library of this machine: {message}; give the file that the dynamic loader opens", path.display())]
    NotASharedLibrary {
        /// The file.
        path: PathBuf,
        /// The problem.
        message: String,
    },
    /// It would be larger than 2 GiB.
    #[error("an image of {bytes} bytes is too large; make several")]
    TooLarge {
        /// Its size.
        bytes: u64,
    },
    /// The image's bytes could not be written.
    #[error("cannot write the image: {0}")]
    Write(#[source] io::Error),
}

fn also(advice: &str) -> String {
    if advice.is_empty() { String::new() } else { format!(", or {advice}") }
}
