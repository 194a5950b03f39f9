//! What the imports of linked objects were bound to.

use std::path::PathBuf;

use super::library::Library;
use crate::name::Name;
use crate::runtime::loaded_libraries;
use crate::{Provider, ResolvedImport, Result};

/// Who has what an import was bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum By {
    /// Another object of the library: where it is, the library knows.
    Own,
    /// A linked library.
    Library(Name),
    /// This crate, in place of the process's (`atexit` and its like), or of what compilers link statically.
    Here,
    /// The position of a shared library among those that were given.
    Shared(u32),
    Given,
    Process,
    /// A weak reference to what is nowhere.
    Nobody,
}

/// An import and what it was bound to.
#[derive(Debug, Clone)]
pub(super) struct Imported {
    pub(super) name: Box<str>,
    /// 0 for `By::Own` and for thread-local variables.
    pub(super) address: u64,
    pub(super) by: By,
}

impl Library {
    /// What the imports of linked objects were bound to, in the order of the objects.
    pub(crate) fn imports(&self) -> Result<Vec<ResolvedImport>> {
        let code = self.code()?;
        // No lock is held: it takes the dynamic loader's.
        let loaded = loaded_libraries();
        let file_of = |address: u64| {
            let file = loaded.iter().find(|library| library.addresses.contains(&(address as usize)))?;
            Some(PathBuf::from(&file.name))
        };
        let shared = code.shared();
        let path_of = |at: u32| shared.get(at as usize).map(|library| library.path().to_owned()).unwrap_or_default();
        let resolve = |object: &Name, Imported { name, address, by }: Imported| {
            let (address, provider) = match by {
                By::Own => self.own_definition(&name, &code),
                By::Library(library) => (address, Provider::Library { name: library.to_string() }),
                By::Here => (address, Provider::Slabjit),
                By::Shared(at) => (address, Provider::SharedLibrary { path: path_of(at) }),
                By::Given => (address, Provider::Given),
                By::Process => (address, Provider::Process { library: file_of(address) }),
                By::Nobody => (0, Provider::Nothing),
            };
            ResolvedImport { name: name.into(), object: object.to_string(), address: address as usize, provider }
        };
        let all = code.imports();
        Ok(all
            .into_iter()
            .flat_map(|(object, imports)| imports.into_vec().into_iter().map(move |i| (object.clone(), i)))
            .map(|(object, import)| resolve(&object, import))
            .collect())
    }
}
