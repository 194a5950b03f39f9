//! What an import binds to.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::Arc;

use super::batch::Decided;
use super::code::{Code, Image};
use super::exit::Own;
use super::hold::Hold;
use super::imports::{By, Imported};
use super::library::{Found, Library, Scope};
use super::names::{Names, Symbol};
use super::object::{Defined, External, PreparedObject};
use super::thread_local::{self, Stand, Storage, Turn};
use crate::elf::{Import, SymbolKind, Whereabouts};
use crate::error::UndefinedSymbol;
use crate::memory::Arena;
use crate::name::Name;
use crate::runtime::{helpers, process};
use crate::{Error, Result};

/// Where names are looked for that the library's own objects do not define.
pub(super) struct Outside<'a> {
    pub(super) scope: Option<&'a Scope>,
    pub(super) code: &'a Code,
    /// Where the library's `__dso_handle` goes, if it needs one.
    pub(super) arena: &'a Arc<Arena>,
    pub(super) host: &'a Host,
}

/// Decides about every symbol of a batch. `used` gets the linked libraries that references lead to, whatever comes of it; it is to be
/// dropped without a lock, as finalisers may run.
///
/// # Errors
/// [`Error::UndefinedSymbols`] with everything that is missing; memory errors from making a library's `__dso_handle`.
pub(super) fn decide(
    library: &Name,
    outside: &Outside<'_>,
    names: &Names,
    batch: &[(u32, Arc<PreparedObject>)],
    used: &mut Vec<Hold>,
) -> Result<Vec<Decided>> {
    let (exports, missing) = Default::default();
    let mut decision = Decision { outside, names, library, exports, missing, used, imports: Vec::new() };
    let mut decided = Vec::with_capacity(batch.len());
    for (number, object) in batch {
        let externals = decision.externals(object)?;
        let imports = std::mem::take(&mut decision.imports).into();
        let definitions = decision.definitions(*number, object)?;
        let dead = |(i, _): &(u32, _)| !names.group_is_from(*number, object, *i);
        let dead_sections = (0..).zip(&object.index.groups).filter(dead).flat_map(|(_, g)| g.members.iter().copied());
        let dead_sections = dead_sections.collect();
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
    let Decision { exports, missing, .. } = decision;
    if !missing.is_empty() {
        let symbols = missing.into_iter().map(|(name, from)| UndefinedSymbol::new(name, from)).collect();
        return Err(Error::UndefinedSymbols { library: library.to_string(), symbols });
    }
    let mut places = HashMap::new();
    if !exports.is_empty() {
        places.extend(batch.iter().zip(0..).map(|((number, _), place): (_, usize)| (*number, place)));
    }
    for ((number, definition), name) in exports {
        let exporter = places.get(&number).and_then(|place| decided.get_mut(*place));
        if let Some(slot) = exporter.and_then(|d| d.definitions.get_mut(definition as usize)) {
            *slot = Defined::Export(name);
        }
    }
    Ok(decided)
}

/// Addresses of names in shared libraries, given symbols and the process, looked up beforehand: `dlsym` takes the dynamic
/// loader's lock, and whoever has that may be waiting for a library of ours.
#[derive(Default)]
pub(super) struct Host {
    addresses: HashMap<Box<str>, Option<(u64, By)>>,
    /// What stands for thread-local variables of the process.
    variables: HashMap<Box<str>, io::Result<Option<(Stand, By)>>>,
    /// Names that the process has for thread-local variables, though an object takes them for something else.
    mistaken: HashSet<Box<str>>,
    /// Numbers of the objects whose imports were looked up.
    pub(super) objects: Vec<u32>,
    /// Storage for thread-local variables of waiting objects.
    pub(super) storage: Option<Arc<Storage>>,
    /// What was undone. The dynamic loader takes their storage back, which it must not be asked for under a claim.
    pub(super) gone: Vec<Image>,
    /// While nothing is linked with the storage. Dropped after that.
    pub(super) turn: Option<Turn>,
}

/// How an object wants a name that it does not define.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) thread_local: bool,
    /// At a fixed distance from the thread pointer.
    pub(super) fixed: bool,
}

impl Host {
    /// Looks a name up. No lock of ours may be held.
    pub(super) fn look_up(&mut self, name: Box<str>, wanted: Wanted, scope: Option<&Scope>, code: &Code) {
        let found = look_up(&name, scope, code);
        if wanted.thread_local {
            let variable = found.map_or(Ok(None), |(address, by)| {
                let variable = thread_local::of_process(address, wanted.fixed)?;
                Ok(variable.map(|variable| (Stand::of_process(variable), by)))
            });
            self.variables.insert(name, variable);
        } else {
            if found.as_ref().is_some_and(|(address, _)| thread_local::is_variable(*address)) {
                self.mistaken.insert(name.clone());
            }
            self.addresses.insert(name, found);
        }
    }
}

/// Looks for a name in shared libraries, given symbols and the process, and among what compilers expect to be there in any case.
pub(super) fn look_up(name: &str, scope: Option<&Scope>, code: &Code) -> Option<(u64, By)> {
    let shared = code.shared();
    let shared = |alone: bool| {
        let mut libraries = (0..).zip(shared.iter()).filter(|(_, library)| library.is_alone() == alone);
        libraries.find_map(|(at, library)| Some((library.symbol(name)?, By::Shared(at))))
    };
    let given = || Some((*scope?.given.get(name)?, By::Given));
    let isolated = scope.is_some_and(|scope| scope.isolated);
    let process = || Some((process::symbol(name)?, By::Process));
    let helper = || Some((helpers::of_libc(name)?, By::Here));
    let process = || if isolated { None } else { process().or_else(helper) };
    shared(false)
        .or_else(given)
        .or_else(|| shared(true))
        .or_else(process)
        .or_else(|| Some((helpers::of_compilers(name)?, By::Here)))
}

/// Where a name leads that each library has of its own, or the process has.
pub(super) fn in_process(name: &str) -> Whereabouts {
    match Own::named(name) {
        Some(own) => own.shared_address().map_or(Whereabouts::Arena, Whereabouts::Address),
        None => process::symbol(name).map_or(Whereabouts::Unknown, Whereabouts::Address),
    }
}

struct Decision<'a> {
    library: &'a Name,
    outside: &'a Outside<'a>,
    names: &'a Names,
    /// What other objects of the batch need: (object, definition) → its name among them.
    exports: HashMap<(u32, u32), Arc<str>>,
    /// Missing names, and who refers to them.
    missing: BTreeMap<String, Vec<String>>,
    /// Linked libraries that references lead to.
    used: &'a mut Vec<Hold>,
    /// What imports of the object in hand were bound to.
    imports: Vec<Imported>,
}

impl Decision<'_> {
    fn externals(&mut self, object: &PreparedObject) -> Result<Vec<External>> {
        object.index.imports.iter().map(|import| self.import(object, import)).collect()
    }

    fn import(&mut self, object: &PreparedObject, import: &Import) -> Result<External> {
        let name = object.index.name(import.name);
        // First: hosts export names of sections of their own.
        if defined_by_jitlink(object, name) {
            return Ok(External::Leave);
        }
        if import.thread_local && name == MODULE_BASE {
            let base = self.outside.host.storage.as_ref().map(|storage| External::Absolute(storage.base()));
            return Ok(base.unwrap_or(External::Absolute(0)));
        }
        if let Some((external, by)) = self.find(name, import.thread_local, object)? {
            let address = match external {
                External::Absolute(address) if by != By::Own && !import.thread_local => address,
                _ => 0,
            };
            self.imports.push(Imported { name: name.into(), address, by });
            return Ok(external);
        }
        // No variable has an address that would say that it is missing.
        if import.weak && !import.thread_local {
            self.imports.push(Imported { name: name.into(), address: 0, by: By::Nobody });
            return Ok(External::Absolute(0));
        }
        self.missing.entry(name.to_owned()).or_default().push(object.name.to_string());
        Ok(External::Leave)
    }

    /// What becomes of each definition, as far as its own object can tell: others may need it.
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

    /// The library's own objects, linked libraries, what each library has of its own, shared libraries, given symbols, the
    /// process.
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
            agrees(kind, library).map_err(|what| Error::ThreadLocal { object: object.name.to_string(), what })
        };
        if let Some(symbol) = self.names.get(name) {
            agrees(symbol.kind, &self.library.to_string())?;
            return Ok(Some((self.own(*symbol), By::Own)));
        }
        let Outside { scope, code, arena, host } = *self.outside;
        let exported = |library: &Arc<Library>| Some((library.exported(name)?, Arc::clone(library)));
        if let Some((Found { address, kind, code }, library)) = scope.and_then(|s| s.links.iter().find_map(exported)) {
            if !self.used.iter().any(|used| used.is_same(&code)) {
                self.used.push(code);
            }
            agrees(kind, library.name())?;
            return Ok(Some((External::Absolute(address), By::Library(library.given_name().clone()))));
        }
        let given = scope.is_some_and(|s| s.given.contains_key(name));
        if let (Some(own), false) = (Own::named(name), given) {
            return code.own_function(own, arena).map(|address| Some((External::Absolute(address), By::Here)));
        }
        if thread_local {
            return match host.variables.get(name) {
                Some(Ok(Some((stand, by)))) => Ok(Some((External::Absolute(stand.address()), by.clone()))),
                Some(Ok(None)) | None => Ok(None),
                Some(Err(error)) => {
                    let message = format!("no thread could be started to compare where '{name}' is: {error}");
                    Err(Error::ThreadLocalStorage { object: object.name.to_string(), message })
                }
            };
        }
        if host.mistaken.contains(name) {
            let what = format!("the process defines '{name}' as thread-local, but it takes it for something else");
            return Err(Error::ThreadLocal { object: object.name.to_string(), what });
        }
        // Imports were looked up beforehand; names that only a discarded copy of a COMDAT group has were not.
        let in_host = host.addresses.get(name).cloned().unwrap_or_else(|| look_up(name, scope, code));
        Ok(in_host.map(|(address, by)| (External::Absolute(address), by)))
    }

    fn own(&mut self, symbol: Symbol) -> External {
        match symbol.address {
            Some(address) => External::Absolute(address),
            None => {
                let number = self.exports.len();
                let export = self.exports.entry((symbol.object, symbol.definition));
                External::Batch(Arc::clone(export.or_insert_with(|| format!("\u{1}slabjit x{number}").into())))
            }
        }
    }
}

/// What linkers define as the start of the module's block ("TLS Descriptors for x86", 4.1).
const MODULE_BASE: &str = "_TLS_MODULE_BASE_";

/// Names that JITLink defines while it links an object (`createDefineExternalSectionStartAndEndSymbolsPass`, GOT passes).
fn defined_by_jitlink(object: &PreparedObject, name: &str) -> bool {
    let index = &object.index;
    let of_section = name.strip_prefix("__start_").or_else(|| name.strip_prefix("__stop_"));
    name == "_GLOBAL_OFFSET_TABLE_"
        || of_section.is_some_and(|wanted| index.sections.iter().any(|s| index.name(s.name) == wanted))
}
