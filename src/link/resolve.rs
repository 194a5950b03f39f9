//! What an import binds to.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use super::bound::bound;
use super::code::{Code, Hold};
use super::decided::{Decided, Defined, External};
use super::exit::Own;
use super::found::Found;
use super::image::Image;
use super::imported::{By, Imported};
use super::names::{Names, Symbol};
use super::prepared::PreparedObject;
use super::sets::{Binding, Known, Plan};
use super::thread_local::{self, Stand, Storage, Turn};
use crate::elf::{Import, SymbolKind, Visibility, Whereabouts};
use crate::error::UndefinedSymbol;
use crate::memory::Arena;
use crate::name::Name;
use crate::runtime::{helpers, process};
use crate::{Error, Result, hints};

/// What a library is given beside linked libraries, and whether it sees the process.
#[derive(Default)]
pub(crate) struct Elsewhere {
    pub(crate) given: HashMap<Box<str>, u64>,
    pub(crate) isolated: bool,
}

/// Where names are looked for that the library's own objects do not define.
pub(super) struct Outside<'a> {
    pub(super) elsewhere: Option<&'a Elsewhere>,
    /// What a linked library has under a name, and that library's name.
    pub(super) linked: &'a dyn Fn(&str) -> Option<(Found, Name)>,
    pub(super) code: &'a Code,
    /// Where the library's `__dso_handle` goes, if it needs one.
    pub(super) arena: &'a Arc<Arena>,
    pub(super) host: &'a Host,
}

/// Decides about every symbol of a batch, and about the linker sets that it has to do with; `known` are the
/// library's. `used` gets the linked libraries that references lead to, whatever comes of it; it is to be dropped
/// without a lock, as finalisers may run.
///
/// # Errors
/// [`Error::UndefinedSymbols`] with everything that is missing; [`Error::LateForLinkerSet`],
/// [`Error::ExecutableLinkerSet`]; memory errors from making a library's `__dso_handle`.
pub(super) fn decide(
    library: &Name,
    outside: &Outside<'_>,
    names: &Names,
    known: &Known,
    batch: &[(u32, Arc<PreparedObject>)],
    used: &mut Vec<Hold>,
) -> Result<(Vec<Decided>, Plan)> {
    let dead: Vec<Vec<u32>> = batch.iter().map(|(number, object)| names.dead_sections(*number, object)).collect();
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
    Ok((decided, plan))
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
    pub(super) fn look_up(&mut self, name: Box<str>, wanted: Wanted, elsewhere: Option<&Elsewhere>, code: &Code) {
        let found = look_up(&name, elsewhere, code);
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
pub(super) fn look_up(name: &str, elsewhere: Option<&Elsewhere>, code: &Code) -> Option<(u64, By)> {
    let shared = code.shared();
    let shared = |alone: bool| {
        let mut libraries = (0..).zip(shared.iter()).filter(|(_, library)| library.is_alone() == alone);
        libraries.find_map(|(at, library)| Some((library.symbol(name)?, By::Shared(at))))
    };
    let given = || Some((*elsewhere?.given.get(name)?, By::Given));
    // Of another file than this one's.
    if hints::is_bound(name) {
        return given();
    }
    let isolated = elsewhere.is_some_and(|elsewhere| elsewhere.isolated);
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
        None if hints::is_bound(name) => Whereabouts::Unknown,
        None => process::symbol(name).map_or(Whereabouts::Unknown, Whereabouts::Address),
    }
}

struct Decision<'a> {
    library: &'a Name,
    outside: &'a Outside<'a>,
    names: &'a Names,
    plan: Plan,
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
        if name == GLOBAL_OFFSET_TABLE {
            return Ok(External::Leave);
        }
        // Before all others: hosts export the bounds of sections of their own.
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
        // Those of others are others'.
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
        let Outside { elsewhere, linked, code, arena, host } = *self.outside;
        if let Some((Found { address, kind, code }, library)) = linked(name) {
            if !self.used.iter().any(|used| used.is_same(&code)) {
                self.used.push(code);
            }
            agrees(kind, &library.text())?;
            return Ok(Some((External::Absolute(address), By::Library(library))));
        }
        let given = elsewhere.is_some_and(|elsewhere| elsewhere.given.contains_key(name));
        if let (Some(own), false) = (Own::named(name), given) {
            return code.own_function(own, arena).map(|address| Some((External::Absolute(address), By::Here)));
        }
        if thread_local {
            return match host.variables.get(name) {
                Some(Ok(Some((stand, by)))) => Ok(Some((External::Absolute(stand.address()), by.clone()))),
                Some(Ok(None)) | None => Ok(None),
                Some(Err(error)) => {
                    let message = format!("starting a thread, to compare where '{name}' is");
                    let again = || io::Error::new(error.kind(), error.to_string());
                    let source = Some(error.raw_os_error().map_or_else(again, io::Error::from_raw_os_error));
                    Err(Error::ThreadLocalStorage { object: object.name.to_string(), message, source })
                }
            };
        }
        if host.mistaken.contains(name) {
            let what = format!("the process defines '{name}' as thread-local, but it takes it for something else");
            return Err(Error::ThreadLocal { object: object.name.to_string(), what });
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
                let number = self.exports.len();
                let export = self.exports.entry((symbol.object, symbol.definition));
                External::Batch(Arc::clone(export.or_insert_with(|| format!("\u{1}slabjit x{number}").into())))
            }
        }
    }
}

/// What linkers define as the start of the module's block ("TLS Descriptors for x86", 4.1).
const MODULE_BASE: &str = "_TLS_MODULE_BASE_";

/// JITLink defines it while it links an object.
const GLOBAL_OFFSET_TABLE: &str = "_GLOBAL_OFFSET_TABLE_";
