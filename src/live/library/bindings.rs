//! The bindings of imports of a library's linked objects.

use std::path::PathBuf;

use crate::live::library::Library;
use crate::live::resolve::imported::{By, Imported};
use crate::name::Name;
use crate::runtime::loaded_libraries;
use crate::{Provider, ResolvedImport, Result};

impl Library {
    /// Returns the bindings of linked objects' imports, in the order of the objects.
    pub(crate) fn imports(&self) -> Result<Vec<ResolvedImport>> {
        let code = self.code()?;
        // No lock is held: the call takes the dynamic loader's.
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
