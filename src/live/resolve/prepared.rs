//! An object that is prepared and waits to be linked.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use crate::cpu::list::Lacks;
use crate::elf::ObjectIndex;
use crate::elf::image_file::ImageIndex;
use crate::live::resolve::object_bytes::ObjectBytes;
use crate::live::resolve::section_lookup::Lookup;
use crate::name::Name;
use crate::read::LastingFile;

/// An object and its number in the library.
pub(crate) type Pending = (u32, Arc<PreparedObject>);

/// Objects of a library: most have one.
pub(crate) type PendingList = SmallVec<[Pending; 1]>;

/// An object, prepared and waiting to be linked.
#[derive(Debug)]
pub(crate) struct PreparedObject {
    pub(crate) name: Name,
    pub(crate) bytes: ObjectBytes,
    pub(crate) index: ObjectIndex,
    /// Of what was linked before.
    pub(crate) image: Option<Arc<ImageIndex>>,
    /// The file whose bytes these are, as long as it is not changed.
    pub(crate) file: Option<Box<LastingFile>>,
    /// Functions of an image that this CPU does not run.
    pub(crate) lacks: Option<Arc<Lacks>>,
    /// The bytes as they came, if the library keeps them.
    pub(crate) original: Option<Arc<[u8]>>,
    definitions: Searched,
    imports: Searched,
    lookup: Lookup,
}

impl PreparedObject {
    pub(crate) fn new(name: Name, bytes: ObjectBytes, index: ObjectIndex) -> Self {
        let lookup = Lookup::new(&index);
        let (definitions, imports) = Default::default();
        Self { name, bytes, index, image: None, file: None, lacks: None, original: None, definitions, imports, lookup }
    }

    pub(crate) fn definition_named(&self, name: &str) -> Option<usize> {
        let definitions = &self.index.definitions;
        self.definitions.find(definitions.len(), name, |i| self.index.name(definitions[i].name))
    }

    pub(crate) fn import_named(&self, name: &str) -> Option<usize> {
        let imports = &self.index.imports;
        self.imports.find(imports.len(), name, |i| self.index.name(imports[i].name))
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

/// Names that are asked for in the order of the file, or in any order.
#[derive(Debug, Default)]
struct Searched {
    /// The one behind the last that was found.
    next: AtomicUsize,
    /// All, sorted by name: made when one is asked for that is not the next.
    by_name: OnceLock<Vec<u32>>,
}

impl Searched {
    fn find<'n>(&self, n: usize, wanted: &str, name: impl Fn(usize) -> &'n str) -> Option<usize> {
        let next = self.next.load(Relaxed);
        let found = if next < n && name(next) == wanted {
            next
        } else if n <= FEW {
            (0..n).find(|i| name(*i) == wanted)?
        } else {
            let by_name = self.by_name.get_or_init(|| {
                let mut all: Vec<u32> = (0..n as u32).collect();
                all.sort_unstable_by_key(|i| name(*i as usize));
                all
            });
            by_name[by_name.binary_search_by_key(&wanted, |i| name(*i as usize)).ok()?] as usize
        };
        self.next.store(found + 1, Relaxed);
        Some(found)
    }
}
