//! The bindings of a library's imports.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// An import of an object, and its binding; see [`Library::imports`](crate::Library::imports).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ResolvedImport {
    /// The name, as the object has it.
    pub name: String,
    /// The object.
    pub object: String,
    /// The address it was bound to: 0 for [`Provider::Nothing`], and for thread-local variables, which have one in each
    /// thread.
    pub address: usize,
    /// The provider of the definition.
    pub provider: Provider,
}

/// The provider of the definition that an import was bound to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Provider {
    /// Another object of the same library, a member of an archive for example.
    Object {
        /// Its name.
        name: String,
    },
    /// A linked library ([`LibraryBuilder::link`](crate::LibraryBuilder::link)).
    Library {
        /// Its name.
        name: String,
    },
    /// A shared library that was given ([`LibraryBuilder::shared_library`](crate::LibraryBuilder::shared_library)), or
    /// one that it depends on.
    SharedLibrary {
        /// The path that was opened: as it was given, or in the folder where it was found.
        path: PathBuf,
    },
    /// [`LibraryBuilder::symbol`](crate::LibraryBuilder::symbol).
    Given,
    /// The process.
    Process {
        /// The file of the shared library that has it. None for the executable, for thread-local variables, and for
        /// what is in no file (functions of the kernel's, such as `time`).
        library: Option<PathBuf>,
    },
    /// This crate: `atexit` and its like, which each library has of its own, and helpers that compilers expect to be
    /// linked statically.
    Slabjit,
    /// Nobody: a weak reference to an undefined name.
    Nothing,
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object { name } => write!(f, "object '{name}'"),
            Self::Library { name } => write!(f, "library '{name}'"),
            Self::SharedLibrary { path } => write!(f, "shared library '{}'", path.display()),
            Self::Given => f.write_str("given"),
            Self::Process { library: Some(path) } => write!(f, "the process ('{}')", path.display()),
            Self::Process { library: None } => f.write_str("the process"),
            Self::Slabjit => f.write_str("slabjit"),
            Self::Nothing => f.write_str("nothing"),
        }
    }
}

impl fmt::Display for ResolvedImport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, object, address, provider } = self;
        write!(f, "{name} of '{object}' is {address:#x}, by {provider}")
    }
}
