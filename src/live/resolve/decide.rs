//! Decides the binding of each import.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;

use crate::UndefinedSymbol;
use crate::elf::{Import, SymbolKind, Visibility};
use crate::live::lifetime::exporting;
use crate::live::lifetime::loaded_library::{CodeRef, LoadedLibrary};
use crate::live::linked::image::Image;
use crate::live::resolve::decided::{Decided, Defined, External};
use crate::live::resolve::found::Found;
use crate::live::resolve::imported::{By, Imported};
use crate::live::resolve::linker_sets::{Binding, Known, Plan};
use crate::live::resolve::prepared::PreparedObject;
use crate::live::resolve::set_bounds::bound;
use crate::live::resolve::symbol::Symbol;
use crate::live::resolve::symbol_table::SymbolTable;
use crate::live::resolve::to_export::ToExport;
use crate::live::resolve::walk::{Elsewhere, Walked, look_up, walk};
use crate::live::tls::{self, Storage, TlsPlaceholder, Turn};
use crate::memory::Arena;
use crate::name::Name;
use crate::runtime::Exported;
use crate::{Error, LinkError, Result};

/// The places to look for names that the library's own objects do not define.
pub(crate) struct Outside<'a> {
    pub(crate) elsewhere: Option<&'a Elsewhere>,
    /// Returns a linked library's symbol of a name, and that library's name.
    pub(crate) linked: &'a dyn Fn(&str) -> Option<(Found, Name)>,
    pub(crate) code: &'a LoadedLibrary,
    /// The arena that gets the library's `__dso_handle`, if it needs one.
    pub(crate) arena: &'a Arc<Arena>,
    pub(crate) host: &'a Host,
}

/// Decides about every symbol of a batch, and about the linker sets that it has to do with; `known` are the
/// library's. `used` gets the linked libraries that references lead to, whatever comes of it; it is to be dropped
/// without a lock, as finalisers may run.
///
/// # Errors
/// [`LinkError::UndefinedSymbols`](crate::LinkError::UndefinedSymbols) with everything that is missing;
/// [`LinkError::LateForLinkerSet`](crate::LinkError::LateForLinkerSet),
/// [`LinkError::ExecutableLinkerSet`](crate::LinkError::ExecutableLinkerSet); memory errors from making a library's
/// `__dso_handle`.
pub(crate) fn decide(
    library: &Name,
    outside: &Outside<'_>,
    names: &SymbolTable,
    known: &Known,
    batch: &[(u32, Arc<PreparedObject>)],
    used: &mut Vec<CodeRef>,
) -> Result<(Vec<Decided>, Plan)> {
    let dead: SmallVec<[Vec<u32>; 1]> =
        batch.iter().map(|(number, object)| names.dead_sections(*number, object)).collect();
    let name_of = |number| outside.code.object_name(number).map_or_else(String::new, |name| name.to_string());
    let plan = Plan::new(library, known, names, batch, &dead, name_of)?;
    let (exports, missing) = Default::default();
    let mut decision = Decision { outside, names, library, plan, exports, missing, used, imports: Vec::new() };
    let mut decided = Vec::with_capacity(batch.len());
    for ((number, object), dead_sections) in batch.iter().zip(dead) {
        let externals = decision.externals(object)?;
        let imports = std::mem::take(&mut decision.imports).into();
        let definitions = decision.definitions(*number, object)?;
        let (number, storage) = (*number, outside.host.storage.clone());
        decided.push(Decided {
            object: Arc::clone(object),
            externals,
            definitions,
            imports,
            dead_sections,
            number,
            storage,
        });
    }
    let Decision { exports, missing, plan, .. } = decision;
    if !missing.is_empty() {
        let symbols = missing.into_iter().map(|(name, from)| UndefinedSymbol::new(name, from)).collect();
        return Err(Error::Link(LinkError::UndefinedSymbols { library: library.to_string(), symbols }));
    }
    let mut places = HashMap::new();
    if !exports.is_empty() {
        places.extend(batch.iter().zip(0..).map(|((number, _), place): (_, usize)| (*number, place)));
    }
    for ((number, definition), export) in exports {
        let exporter = places.get(&number).and_then(|place| decided.get_mut(*place));
        if let Some(slot) = exporter.and_then(|d| d.definitions.get_mut(definition as usize)) {
            *slot = Defined::Export(export);
        }
    }
    Ok((decided, plan))
}

/// Addresses of names in shared libraries, given symbols and the process, looked up beforehand: `dlsym` takes the
/// dynamic loader's lock, and whoever has that may be waiting for a library of ours.
#[derive(Default)]
pub(crate) struct Host {
    addresses: HashMap<Box<str>, Option<(u64, By)>>,
    /// Placeholders for thread-local variables of the process.
    variables: HashMap<Box<str>, io::Result<Option<(TlsPlaceholder, By)>>>,
    /// Names that the process has for thread-local variables, though an object takes them for something else.
    mistaken: HashSet<Box<str>>,
    /// Numbers of the objects whose imports were looked up.
    pub(crate) objects: SmallVec<[u32; 1]>,
    /// How often the library had been given shared libraries to be opened, when they were.
    pub(crate) needs: u32,
    /// Storage for thread-local variables of waiting objects.
    pub(crate) storage: Option<Arc<Storage>>,
    /// Unloaded objects. The dynamic loader takes their storage back, which it must not be asked for under a claim.
    pub(crate) gone: Vec<Image>,
    /// Modules for the names that waiting objects export.
    pub(crate) to_export: Option<ToExport>,
    /// Names of unloaded objects, for which the dynamic loader must not be asked under a claim, either.
    pub(crate) withdrawn: Vec<Exported>,
    /// Libraries that export to the process what was looked up there.
    pub(crate) exporting: Vec<CodeRef>,
    /// While nothing is linked with the storage. Dropped after that.
    pub(crate) turn: Option<Turn>,
}

/// The way in which an object uses a name that it does not define.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) thread_local: bool,
    /// At a fixed distance from the thread pointer.
    pub(crate) fixed: bool,
}

impl Host {
    /// Looks a name up. No lock of ours may be held.
    pub(crate) fn look_up(
        &mut self,
        name: Box<str>,
        wanted: Wanted,
        elsewhere: Option<&Elsewhere>,
        code: &LoadedLibrary,
    ) {
        let found = look_up(&name, elsewhere, code);
        if wanted.thread_local {
            let variable = found.map_or(Ok(None), |(address, by)| {
                let variable = tls::of_process(address, wanted.fixed)?;
                Ok(variable.map(|variable| (TlsPlaceholder::of_process(variable), by)))
            });
            self.variables.insert(name, variable);
        } else {
            if found.as_ref().is_some_and(|(address, _)| tls::is_variable(*address)) {
                self.mistaken.insert(name.clone());
            }
            let found = found.map(|found| self.keep_exporting(found, code));
            self.addresses.insert(name, found);
        }
    }

    /// Keeps the other library of ours that the process has a name from.
    fn keep_exporting(&mut self, (address, by): (u64, By), code: &LoadedLibrary) -> (u64, By) {
        let owner = if by == By::Process { exporting::owner(address) } else { None };
        let Some(owner) = owner.filter(|owner| !std::ptr::eq(&raw const **owner, code)) else { return (address, by) };
        let by = By::Library(owner.library().clone());
        if !self.exporting.iter().any(|known| known.is_same(&owner)) {
            self.exporting.push(owner);
        }
        (address, by)
    }
}

struct Decision<'a> {
    library: &'a Name,
    outside: &'a Outside<'a>,
    names: &'a SymbolTable,
    plan: Plan,
    /// Definitions that other objects of the batch need: (object, definition) → its number among them.
    exports: HashMap<(u32, u32), u32>,
    /// Missing names, and the objects that refer to them.
    missing: BTreeMap<String, Vec<String>>,
    /// Linked libraries that references lead to.
    used: &'a mut Vec<CodeRef>,
    /// The bindings of the current object's imports.
    imports: Vec<Imported>,
}

impl Decision<'_> {
    fn externals(&mut self, object: &PreparedObject) -> Result<Vec<External>> {
        object.index.imports.iter().map(|import| self.import(object, import)).collect()
    }

    fn import(&mut self, object: &PreparedObject, import: &Import) -> Result<External> {
        let name = object.index.name(import.name);
        if name == GLOBAL_OFFSET_TABLE {
            return Ok(External::Leave);
        }
        // The library's own sets come before all others: hosts export the bounds of sections of their own.
        let set = bound(name).filter(|_| self.names.get(name).is_none());
        if let Some((bound, set)) = set {
            match self.plan.bind(bound, set) {
                Binding::Object => return Ok(External::Leave),
                Binding::Together(set) => return Ok(External::Bound(set, bound)),
                Binding::At(address) => return Ok(External::Absolute(address)),
                Binding::Nowhere => {}
            }
        }
        if import.thread_local && name == MODULE_BASE {
            let base = self.outside.host.storage.as_ref().map(|storage| External::Absolute(storage.base()));
            return Ok(base.unwrap_or(External::Absolute(0)));
        }
        // A hidden reference never binds to a bound of another library.
        let is_own = set.is_some() && import.visibility == Visibility::Hidden;
        let found = if is_own { None } else { self.find(name, import.thread_local, object)? };
        if let Some((external, by)) = found {
            let address = match external {
                External::Absolute(address) if by != By::Own && !import.thread_local => address,
                _ => 0,
            };
            self.imports.push(Imported { name: name.into(), address, by });
            return Ok(external);
        }
        // No variable has an address that would say that it is missing.
        if import.weak && !import.thread_local {
            set.iter().for_each(|(_, set)| self.plan.note_absent(set));
            self.imports.push(Imported { name: name.into(), address: 0, by: By::Nobody });
            return Ok(External::Absolute(0));
        }
        self.missing.entry(name.to_owned()).or_default().push(object.name.to_string());
        Ok(External::Leave)
    }

    /// Returns the fate of each definition, as far as its own object can tell: others may need it.
    fn definitions(&mut self, number: u32, object: &PreparedObject) -> Result<Vec<Defined>> {
        let index = &object.index;
        let mut result = Vec::with_capacity(index.definitions.len());
        for (i, definition) in index.definitions.iter().enumerate() {
            let name = index.name(definition.name);
            let counts = self.names.get(name).is_some_and(|s| s.object == number && s.definition == i as u32);
            result.push(match counts {
                true if definition.absolute => Defined::Discard(External::Absolute(definition.value)),
                true => Defined::Keep,
                // A name that only the discarded copy of a COMDAT group has: nothing may refer to it.
                false => {
                    let thread_local = definition.kind == SymbolKind::ThreadLocal;
                    Defined::Discard(
                        self.find(name, thread_local, object)?.map_or(External::Leave, |(external, _)| external),
                    )
                }
            });
        }
        Ok(result)
    }

    /// Returns the target of a name.
    fn find(&mut self, name: &str, thread_local: bool, object: &PreparedObject) -> Result<Option<(External, By)>> {
        let agrees = |kind: SymbolKind, library: &str| match (thread_local, kind == SymbolKind::ThreadLocal) {
            (true, true) | (false, false) => Ok(()),
            (true, false) => {
                Err(format!("it takes '{name}' for thread-local, but library '{library}' defines it as something else"))
            }
            (false, true) => {
                Err(format!("library '{library}' defines '{name}' as thread-local, but it takes it for something else"))
            }
        };
        let agrees = |kind: SymbolKind, library: &str| {
            agrees(kind, library)
                .map_err(|what| Error::Link(LinkError::ThreadLocal { object: object.name.to_string(), what }))
        };
        let Outside { elsewhere, linked, code, arena, host } = *self.outside;
        match walk(name, elsewhere, || self.names.get(name), || linked(name)) {
            Walked::Own(symbol) => {
                agrees(symbol.kind, &self.library.to_string())?;
                return Ok(Some((self.own(symbol), By::Own)));
            }
            Walked::Linked((Found { address, kind, code }, library)) => {
                if !self.used.iter().any(|used| used.is_same(&code)) {
                    self.used.push(code);
                }
                agrees(kind, &library.text())?;
                return Ok(Some((External::Absolute(address), By::Library(library))));
            }
            Walked::PerLibrary(own) => {
                return code.own_function(own, arena).map(|address| Some((External::Absolute(address), By::Here)));
            }
            Walked::Host => {}
        }
        if thread_local {
            return match host.variables.get(name) {
                Some(Ok(Some((stand, by)))) => Ok(Some((External::Absolute(stand.address()), by.clone()))),
                Some(Ok(None)) | None => Ok(None),
                Some(Err(error)) => {
                    let message = format!("starting a thread, to compare where '{name}' is");
                    let again = || io::Error::new(error.kind(), error.to_string());
                    let source = Some(error.raw_os_error().map_or_else(again, io::Error::from_raw_os_error));
                    Err(Error::Link(LinkError::ThreadLocalStorage { object: object.name.to_string(), message, source }))
                }
            };
        }
        if host.mistaken.contains(name) {
            let what = format!("the process defines '{name}' as thread-local, but it takes it for something else");
            return Err(Error::Link(LinkError::ThreadLocal { object: object.name.to_string(), what }));
        }
        // Imports were looked up beforehand; names that only a discarded copy of a COMDAT group has were not.
        let in_host = host.addresses.get(name).cloned().unwrap_or_else(|| look_up(name, elsewhere, code));
        let Some((address, by)) = in_host else { return Ok(None) };
        #[cfg(feature = "tvm-ffi")]
        let address = code.led_through(name, address, arena)?;
        Ok(Some((External::Absolute(address), by)))
    }

    fn own(&mut self, symbol: Symbol) -> External {
        match symbol.address {
            Some(address) => External::Absolute(address),
            None => {
                let number = self.exports.len() as u32;
                External::Batch(*self.exports.entry((symbol.object, symbol.definition)).or_insert(number))
            }
        }
    }
}

/// Linkers define this name as the start of the module's block ("TLS Descriptors for x86", 4.1).
pub(crate) const MODULE_BASE: &str = "_TLS_MODULE_BASE_";

/// JITLink defines it while it links an object.
const GLOBAL_OFFSET_TABLE: &str = "_GLOBAL_OFFSET_TABLE_";
