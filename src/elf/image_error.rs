//! Errors of images.

use std::io;
use std::path::PathBuf;

/// An image was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// No object was given.
    #[error("an image needs an object; add one with ImageBuilder::object or ImageBuilder::archive")]
    Empty,
    /// A library whose objects are not known any more.
    #[error(
        "library '{library}' has not kept the bytes of its objects; make the engine with \
         JitEngineBuilder::keep_objects, and add the objects anew"
    )]
    NotKept {
        /// The library.
        library: String,
    },
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
    #[error(
        "'{}' is no shared library of this machine: {message}; give the file that the dynamic loader opens",
        path.display()
    )]
    NotASharedLibrary {
        /// The file.
        path: PathBuf,
        /// The problem.
        message: String,
    },
    /// Bytes that are no image of this crate's.
    #[error(
        "'{object}' is no image: {}",
        match kind {
            NoImage::NotElf => "it is no ELF file; make one with ImageBuilder::link",
            NoImage::NotShared => "it is an object or a program; link it with ImageBuilder, or load it with add_object",
            NoImage::Foreign => "it is a shared object that another linker has made; open it with \
                                 LibraryBuilder::shared_library, or link its objects with ImageBuilder",
        }
    )]
    NotAnImage {
        /// The image's name.
        object: String,
        /// What it is.
        kind: NoImage,
    },
    /// An image for another machine.
    #[error("'{object}' is for {machine}, this process is of another machine; link its objects for this one")]
    ForeignMachine {
        /// The image's name.
        object: String,
        /// Its machine.
        machine: String,
    },
    /// An image of a format that this version of the crate does not read.
    #[error(
        "'{object}' has format {format}, this version of slabjit reads format {known}; link its objects again, or \
         update slabjit"
    )]
    UnknownFormat {
        /// The image's name.
        object: String,
        /// Its format.
        format: u32,
        /// The one that is known.
        known: u32,
    },
    /// An image whose bytes are not those that were hashed when it was made.
    #[error("'{object}' was changed after it was made; copy or link it again")]
    Changed {
        /// The image's name.
        object: String,
    },
    /// An image whose tables contradict each other.
    #[error("'{object}' is damaged: {problem}; copy or link it again")]
    Damaged {
        /// The image's name.
        object: String,
        /// The contradiction.
        problem: &'static str,
    },
    /// A reference from one segment to another that does not reach it where they were placed.
    #[error(
        "'{object}', address {offset:#x}: {relocation} does not reach another segment in packed memory; load the image \
         with an engine of SlabLayout::PerObject"
    )]
    Far {
        /// The image's name.
        object: String,
        /// The field's address in the image.
        offset: u64,
        /// The relocation's name in the ABI.
        relocation: &'static str,
    },
    /// An image and objects of one library that wait together.
    #[error(
        "'{object}' is an image and cannot be linked together with the objects of its library; give them a library of \
         their own, which links the image's, or add them after the image was initialised"
    )]
    NotAlone {
        /// The image's name.
        object: String,
    },
    /// A thread-local variable that is not there, or not at a fixed distance from the thread pointer.
    #[error(
        "'{object}' wants '{symbol}' as a thread-local variable of another library at a place that it has not got; \
         compile with -ftls-model=global-dynamic"
    )]
    NoVariable {
        /// The image's name.
        object: String,
        /// The variable.
        symbol: String,
    },
    /// A function whose instructions this CPU has not got.
    #[error(
        "'{function}' of '{object}' at +{offset:#x} needs {feature}; this CPU has not got it. Call a version of the \
         function for this CPU; if it asks the CPU before it uses this, say so with ImageBuilder::cpu_needs"
    )]
    Cpu {
        /// The image's name.
        object: String,
        /// The function.
        function: String,
        /// Offset in the function of the first instruction that needs it.
        offset: u64,
        /// The feature.
        feature: String,
    },
    /// A function that was said to need features, and is not in the objects.
    #[error("no object defines the function '{function}', whose needs were given; see ImageBuilder::cpu_needs")]
    UnknownFunction {
        /// The function.
        function: String,
    },
    /// A signature of a kernel that is not in the objects, or that others cannot find.
    #[error("no object exports the kernel '{kernel}', whose signature was given; name a function as C does")]
    UnknownKernel {
        /// The kernel.
        kernel: String,
    },
    /// A kernel whose signature no image of the library has.
    #[error(
        "no image of library '{library}' has a signature of '{kernel}'; give it with ImageBuilder::signature or \
         `slabjit link --contract`"
    )]
    NoSignature {
        /// The library.
        library: String,
        /// The kernel.
        kernel: String,
    },
    /// A feature that is none.
    #[error("'{function}' is said to need '{feature}', which is none of {}", known.join(", "))]
    UnknownFeature {
        /// The function.
        function: String,
        /// The name.
        feature: String,
        /// All features of the image's machine.
        known: Vec<&'static str>,
    },
    /// It would be larger than 2 GiB.
    #[error("an image of {bytes} bytes is too large; make several")]
    TooLarge {
        /// Its size.
        bytes: u64,
    },
    /// The image could not be written.
    #[error("cannot write '{}': {source}", path.display())]
    Write {
        /// The file, or the library's name.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// What bytes are that are no image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoImage {
    /// No ELF file.
    NotElf,
    /// An object or a program.
    NotShared,
    /// A shared object without this crate's note.
    Foreign,
}

fn also(advice: &str) -> String {
    if advice.is_empty() { String::new() } else { format!(", or {advice}") }
}
