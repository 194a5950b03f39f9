//! Errors of libraries.

use std::fmt;
use std::path::PathBuf;

use crate::error_text::{debug, innermost};

/// A reason why a library cannot do, open or find what it is asked for.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum LibraryError {
    /// A thread-local variable was asked for by name.
    #[error(
        "'{symbol}' in library '{library}' is thread-local: each thread has its own; have the library export a \
         function that returns its address"
    )]
    ThreadLocalSymbol {
        /// The library.
        library: String,
        /// The name.
        symbol: String,
    },

    /// The library defines no such name.
    #[error("{}", symbol_not_found(library, symbol, reason))]
    SymbolNotFound {
        /// The library.
        library: String,
        /// The name asked for.
        symbol: String,
        /// The reason.
        reason: SymbolMissing,
    },

    /// A function type was asked for a data symbol.
    #[error(
        "'{symbol}' in library '{library}' is data, but was asked for as a function ({requested}); ask for a pointer \
         type such as *const T"
    )]
    WrongSymbolKind {
        /// The library.
        library: String,
        /// The name.
        symbol: String,
        /// The type asked for.
        requested: &'static str,
    },

    /// A symbol whose address is 0.
    #[error("'{symbol}' in library '{library}' has address 0; a function or reference there cannot be used")]
    NullSymbol {
        /// The library.
        library: String,
        /// The name.
        symbol: String,
    },

    /// A name with a NUL byte.
    #[error("the name {name:?} contains a NUL byte, no symbol has such a name")]
    InvalidName {
        /// The name.
        name: String,
    },

    /// The library was removed.
    #[error(
        "library '{library}' was removed; handles taken before go on working, new ones need the object to be added \
         again"
    )]
    Removed {
        /// The library.
        library: String,
    },

    /// A removed library is not freed in time. It is freed with its last holder.
    #[error(
        "library '{library}' was removed, but is not gone after {waited:?}: {}", waited_for(*holders, *drains)
    )]
    RemovalTimedOut {
        /// The library.
        library: String,
        /// The timeout.
        waited: std::time::Duration,
        /// Holders: symbols, libraries, and calls that are just linking it. If it is 0 and `drains` is 0, another
        /// thread is running its finalisers.
        holders: usize,
        /// The number of its unfinished [`Drain`](crate::Drain)s.
        drains: usize,
    },

    /// Code of a library or of one that needs it, or a [`Drain`](crate::Drain) of either, would have waited for the
    /// library's end, which cannot come before that returns. The library is removed, and goes with its last holder.
    #[error(
        "library '{library}' was removed, but its end cannot be waited for by its own code or Drains, nor by those of \
         a library that needs it; call remove there, or wait on another thread"
    )]
    RemovalFromOwnCode {
        /// The library.
        library: String,
    },

    /// Another thread was linking or initialising the library when this process was forked, and is not here to end it.
    /// Objects that were linked before are still found.
    #[error(
        "library '{library}' was being linked or initialised by another thread when this process was forked, which \
         that thread was not; load it again, as a library of its own"
    )]
    LostInFork {
        /// The library.
        library: String,
    },

    /// There is no file at the path of a shared library.
    #[error(
        "there is no shared library at '{}'; give the path it has, or its name alone with LibraryBuilder::search_path, or a name that the dynamic loader finds (LD_LIBRARY_PATH)", path.display()
    )]
    SharedLibraryNotFound {
        /// The path, as given.
        path: PathBuf,
    },

    /// A file that was given as a shared library is none for this machine.
    #[error("'{}' is no shared library for this machine, but {found}{}", path.display(), use_of(found))]
    NotASharedLibrary {
        /// The path, as given.
        path: PathBuf,
        /// The kind of the file.
        found: FileKind,
    },

    /// A shared library could not be opened.
    #[error("cannot open shared library '{}': {}; give a path, its folder with LibraryBuilder::search_path, or a name that the dynamic loader finds (LD_LIBRARY_PATH)", path.display(), innermost(&**source))]
    SharedLibrary {
        /// The path, as given.
        path: PathBuf,
        /// The dynamic loader's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl fmt::Debug for LibraryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(self, f)
    }
}

/// A reason why a library has no such symbol for the caller; see
/// [`LibraryError::SymbolNotFound`](crate::LibraryError::SymbolNotFound).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SymbolMissing {
    /// An object of the library defines it with hidden visibility.
    Hidden,
    /// An object of the library defines it, and is not linked yet.
    NotLinked,
    /// The name contains a NUL byte, as no symbol's does.
    NulInName,
    /// Nothing that was added to the dylib exports it.
    NotInDylib,
    /// No object of the library defines it.
    Undefined {
        /// Names that the library defines, the likeliest first.
        defined: Vec<String>,
        /// How many more it defines.
        more: usize,
    },
}

/// The kind of a file that is no shared library for this machine; see
/// [`LibraryError::NotASharedLibrary`](crate::LibraryError::NotASharedLibrary).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileKind {
    /// A folder.
    Folder,
    /// Neither a file nor a folder: a device, a socket, a pipe.
    Special,
    /// A file without a byte.
    Empty,
    /// An archive of objects.
    Archive,
    /// A linker script, a text that names the files to link.
    LinkerScript,
    /// A relocatable object.
    RelocatableObject,
    /// A position-dependent executable.
    Executable,
    /// ELF for another machine.
    OtherMachine {
        /// Name of the file's machine.
        machine: &'static str,
    },
    /// A 32-bit ELF file.
    ThirtyTwoBit,
    /// A big-endian ELF file.
    BigEndian,
    /// An ELF file with a header that makes no sense.
    Damaged,
    /// Something else.
    NotElf,
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Folder => "a folder",
            Self::Special => "neither a file nor a link to one",
            Self::Empty => "empty",
            Self::Archive => "an archive",
            Self::LinkerScript => "a script for the linker",
            Self::RelocatableObject => "a relocatable object",
            Self::Executable => "an executable",
            Self::OtherMachine { machine } => {
                return write!(f, "for another machine ({machine})");
            }
            Self::ThirtyTwoBit => "a 32-bit file",
            Self::BigEndian => "a big-endian file",
            Self::Damaged => "a damaged ELF file",
            Self::NotElf => "no ELF file",
        })
    }
}

fn symbol_not_found(library: &str, symbol: &str, reason: &SymbolMissing) -> String {
    match reason {
        SymbolMissing::Hidden => {
            format!("'{symbol}' in library '{library}' is hidden; compile it with default visibility")
        }
        SymbolMissing::NotLinked => format!(
            "'{symbol}' in library '{library}' is not linked yet; call get or initialize first (if that failed, it \
             said why)"
        ),
        SymbolMissing::NulInName => {
            format!("library '{library}' has no symbol {symbol:?}; no symbol's name contains a NUL byte")
        }
        SymbolMissing::NotInDylib => format!(
            "dylib '{library}' exports no symbol '{symbol}'; add the object or module that defines it with default \
             visibility, or ask the dylib that has it"
        ),
        SymbolMissing::Undefined { defined, .. } if defined.is_empty() => {
            format!("library '{library}' defines no symbol '{symbol}', nor any other (is everything static?)")
        }
        SymbolMissing::Undefined { defined, more } => {
            let more = if *more > 0 { format!(" and {more} more") } else { String::new() };
            format!("library '{library}' defines no symbol '{symbol}'; it defines {}{more}", defined.join(", "))
        }
    }
}

fn use_of(found: &FileKind) -> &'static str {
    match found {
        FileKind::Archive => "; add it with Library::add_archive_file",
        FileKind::RelocatableObject => "; add it with Library::add_object_file",
        FileKind::LinkerScript => "; open the file that it names, such as libc.so.6",
        _ => "",
    }
}

fn waited_for(holders: usize, drains: usize) -> String {
    let held = match holders {
        0 => None,
        1 => Some("1 symbol, library or call holds it".to_owned()),
        _ => Some(format!("{holders} symbols, libraries or calls hold it")),
    };
    let drained = match drains {
        0 => None,
        1 => Some("1 Drain has not finished".to_owned()),
        _ => Some(format!("{drains} Drains have not finished")),
    };
    let remedy = "; drop what holds it (this thread may, too), or wait longer";
    match (held, drained) {
        (Some(held), Some(drained)) => format!("{held}, and {drained}{remedy}"),
        (Some(held), None) => format!("{held}{remedy}"),
        (None, Some(drained)) => format!("{drained}; wait longer"),
        (None, None) => "its finalisers are running, on another thread; wait longer".to_owned(),
    }
}
