//! An object that is prepared and waits to be linked.

use std::sync::Arc;

use crate::elf::ObjectIndex;
use crate::live::resolve::section_lookup::Lookup;
use crate::name::Name;

/// An object and its number in the library.
pub(crate) type Pending = (u32, Arc<PreparedObject>);

/// An object, prepared and waiting to be linked.
#[derive(Debug)]
pub(crate) struct PreparedObject {
    pub(crate) name: Arc<str>,
    /// The same name, for objects that outlive the link.
    pub(crate) kept_name: Name,
    pub(crate) bytes: Box<[u8]>,
    pub(crate) index: ObjectIndex,
    /// Definitions and imports, each sorted by name where there are many.
    definitions_by_name: Vec<u32>,
    imports_by_name: Vec<u32>,
    lookup: Lookup,
}

impl PreparedObject {
    pub(crate) fn new(name: Arc<str>, kept_name: Name, bytes: Box<[u8]>, index: ObjectIndex) -> Self {
        let definitions_by_name = sorted(index.definitions.len(), |i| index.name(index.definitions[i].name));
        let imports_by_name = sorted(index.imports.len(), |i| index.name(index.imports[i].name));
        let lookup = Lookup::new(&index);
        Self { name, kept_name, bytes, index, definitions_by_name, imports_by_name, lookup }
    }

    pub(crate) fn definition_named(&self, name: &str) -> Option<usize> {
        search(&self.definitions_by_name, self.index.definitions.len(), name, |i| {
            self.index.name(self.index.definitions[i].name)
        })
    }

    pub(crate) fn import_named(&self, name: &str) -> Option<usize> {
        search(&self.imports_by_name, self.index.imports.len(), name, |i| self.index.name(self.index.imports[i].name))
    }

    /// Returns the initialiser or finaliser section of this name whose contents begin at this offset.
    pub(crate) fn array_at(&self, section: &str, offset: u64) -> Option<usize> {
        self.lookup.array_at(&self.index, section, offset)
    }

    /// Returns whether sections of this name say that they are reached by 64-bit references only.
    pub(crate) fn is_large(&self, section: &str) -> bool {
        self.lookup.is_large(&self.index, section)
    }

    /// Returns the thread-local section of this name: each has one of its own.
    pub(crate) fn thread_local(&self, section: &str) -> Option<u32> {
        self.lookup.thread_local(&self.index, section)
    }

    /// Returns the retained section that this block is: by its contents, or by name where it has none.
    pub(crate) fn retained(&self, section: &str, offset: Option<u64>) -> Option<u32> {
        self.lookup.retained(&self.index, section, offset)
    }

    /// Returns the sections that belong to linker sets, in order.
    pub(crate) fn sets(&self) -> &[u32] {
        self.lookup.sets()
    }
}

/// Up to here, names are searched one by one.
const FEW: usize = 8;

fn sorted<'n>(n: usize, name: impl Fn(usize) -> &'n str) -> Vec<u32> {
    if n <= FEW {
        return Vec::new();
    }
    let mut order: Vec<u32> = (0..n as u32).collect();
    order.sort_unstable_by_key(|i| name(*i as usize));
    order
}

fn search<'n>(order: &[u32], n: usize, wanted: &str, name: impl Fn(usize) -> &'n str) -> Option<usize> {
    if order.is_empty() {
        return (0..n).find(|i| name(*i) == wanted);
    }
    order.binary_search_by_key(&wanted, |i| name(*i as usize)).ok().map(|i| order[i] as usize)
}
