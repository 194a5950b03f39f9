//! Finds a library's symbols, and its undefined names.
#![allow(unsafe_code, reason = "runs initialisers")]

use std::ops::Range;
use std::sync::Arc;

use smallvec::smallvec;

use super::name_source::Answers;
use super::state::State;
use super::{Library, Link};

#[cfg(any(feature = "cli", feature = "tvm-ffi"))]
use crate::elf::SymbolKind;
use crate::elf::{LinkPlan, Whereabouts};
use crate::live::lifetime::loaded_library::LoadedLibrary;
use crate::live::resolve::decide::{Host, Outside};
use crate::live::resolve::found::Found;
use crate::live::resolve::symbol::Symbol;
use crate::live::resolve::walk::{Walked, look_up, walk};
use crate::live::resolve::{decide, set_bounds};
use crate::memory::SlabRange;
use crate::{Error, LibraryError, LinkError, Provider, Result, SymbolMissing, UndefinedSymbol};

impl Library {
    /// Returns the names that a link would find undefined now. Links nothing; takes members from archives.
    pub(crate) fn undefined_symbols(&self) -> Result<Vec<UndefinedSymbol>> {
        self.add_archive_members()?;
        let mut host = Host::default();
        let code = self.code()?;
        self.look_up_host(&code, &mut host);
        let mut used = Vec::new();
        let state = self.state();
        let answers = Answers::default();
        let linked = |name: &str| self.linked_export(name, &answers);
        let (arena, host) = (&self.context.arena, &host);
        let outside = Outside { elsewhere: self.elsewhere(), linked: &linked, code: &code, arena, host };
        match decide::decide(&self.name, &outside, &state.names, &state.sets, state.pending(), &mut used) {
            Ok(_) => Ok(Vec::new()),
            Err(Error::Link(LinkError::UndefinedSymbols { mut symbols, .. })) => {
                drop(state);
                // What it is linked against is linked first.
                symbols.retain(|missing| !self.will_be_linked(&missing.name));
                self.name_exporters(&mut symbols);
                Ok(symbols)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns preparation's findings for an object, and the targets of its references as an object of this library.
    pub(crate) fn check(&self, name: &str, bytes: &[u8]) -> Result<LinkPlan> {
        let code = self.code()?;
        let find = |name: &str, weak| self.whereabouts(&code, name, weak);
        self.context.check(name, bytes, self.allows_executable_stack(), &find)
    }

    fn whereabouts(&self, code: &LoadedLibrary, name: &str, weak: bool) -> Whereabouts {
        let of = |symbol: Symbol| symbol.address.map_or(Whereabouts::Arena, Whereabouts::Address);
        let own = || {
            let mut state = self.state();
            // A weak reference takes no member out of an archive.
            let in_arena = |state: &mut State| {
                let member = !weak && state.member_defining(name).is_some();
                member || set_bounds::bound(name).is_some_and(|(_, set)| state.sets.has(set))
            };
            state.names.get(name).map(of).or_else(|| in_arena(&mut state).then_some(Whereabouts::Arena))
        };
        let mut links = self.scope().into_iter().flat_map(|scope| &scope.links);
        let linked = || {
            links.find_map(|link| match link {
                Link::Library(library) => library.state().names.get(name).filter(|s| !s.hidden).map(of),
                Link::Source(source) => source.defines(name).then_some(Whereabouts::Arena),
            })
        };
        match walk(name, self.elsewhere(), own, linked) {
            Walked::Own(place) | Walked::Linked(place) => place,
            Walked::PerLibrary(own) => own.whereabouts(),
            // No lock is held: `dlsym` takes the dynamic loader's.
            Walked::Host => match look_up(name, self.elsewhere(), code) {
                Some((address, _)) => Whereabouts::Address(address),
                None if weak => Whereabouts::Address(0),
                None => Whereabouts::Unknown,
            },
        }
    }

    /// Returns whether other libraries find this name here once it is linked.
    pub(super) fn will_export(&self, name: &str) -> bool {
        self.state().names.get(name).is_some_and(|symbol| !symbol.hidden)
    }

    /// Finds a symbol of the library's own objects, linking and initialising them first.
    ///
    /// # Safety
    /// The initialisers may be run.
    pub(crate) unsafe fn get(&self, name: &str) -> Result<Found> {
        // SAFETY: by the caller.
        if let Err(error) = unsafe { self.make_ready() } {
            // Objects that were linked before go on working, regardless of later ones.
            return self.find(name).map_err(|_| error);
        }
        let pulled = {
            let mut state = self.state();
            state.names.get(name).is_none() && state.member_defining(name).is_some()
        };
        if pulled {
            self.add_member_for(name)?;
            // SAFETY: by the caller.
            unsafe { self.make_ready()? };
        }
        self.find(name)
    }

    /// Makes sure that the library defines a function, hidden or not, and takes the member of an archive that does.
    /// Links nothing.
    #[cfg(feature = "cli")]
    pub(crate) fn require_function(&self, name: &str) -> Result<()> {
        self.add_archive_members()?;
        loop {
            let (kind, more) = {
                let mut state = self.state();
                (state.names.get(name).map(|symbol| symbol.kind), state.member_defining(name).is_some())
            };
            let (library, symbol) = (self.name.to_string(), name.to_owned());
            match kind {
                Some(SymbolKind::ThreadLocal) => {
                    return Err(Error::Library(LibraryError::ThreadLocalSymbol { library, symbol }));
                }
                Some(SymbolKind::Data) => {
                    return Err(Error::Library(LibraryError::WrongSymbolKind { library, symbol, requested: "main" }));
                }
                Some(_) => return Ok(()),
                None if more => self.add_member_for(name)?,
                None => {
                    return Err(Error::Library(LibraryError::SymbolNotFound {
                        library,
                        symbol,
                        reason: self.state().why_missing(name),
                    }));
                }
            }
        }
    }

    /// Returns the address of a [required](Self::require_function) name, hidden or not; links and initialises.
    ///
    /// # Safety
    /// The initialisers may be run.
    #[cfg(feature = "cli")]
    pub(crate) unsafe fn entry(&self, name: &str) -> Result<u64> {
        // SAFETY: by the caller.
        unsafe { self.make_ready()? };
        let state = self.state();
        let symbol = state.names.get(name);
        symbol.iter().try_for_each(|symbol| state.check_cpu(name, symbol))?;
        let address = symbol.and_then(|symbol| symbol.address).filter(|address| *address != 0);
        address.ok_or_else(|| {
            Error::Library(LibraryError::NullSymbol { library: self.name.to_string(), symbol: name.to_owned() })
        })
    }

    /// Returns the members of archives that were taken so far.
    #[cfg(feature = "cli")]
    pub(crate) fn taken_members(&self) -> Result<Vec<(String, Vec<u8>)>> {
        self.state().taken_members()
    }

    /// Adds the archive member that defines a requested name, as for an import.
    fn add_member_for(&self, name: &str) -> Result<()> {
        let Some(member) = self.state().member_defining(name) else { return Ok(()) };
        let (member_name, bytes) = member.read()?;
        let object = self.prepare(member_name.into(), bytes)?;
        let mut state = self.state();
        let code = state.code().ok_or_else(|| self.removed())?;
        match state.names.get(name) {
            // Another thread was faster.
            Some(_) => Ok(()),
            None => {
                state.add(&self.name, &code, smallvec![object])?;
                state.take_member(&member);
                Ok(())
            }
        }
    }

    fn find(&self, name: &str) -> Result<Found> {
        let mut state = self.state();
        let code = state.code().ok_or_else(|| self.removed())?;
        let not_found = |reason| {
            Error::Library(LibraryError::SymbolNotFound {
                library: self.name.to_string(),
                symbol: name.to_owned(),
                reason,
            })
        };
        let Some(symbol) = state.names.get(name) else { return Err(not_found(state.why_missing(name))) };
        if symbol.hidden {
            return Err(not_found(SymbolMissing::Hidden));
        }
        match symbol.address {
            Some(address) => {
                state.check_cpu(name, &symbol)?;
                state.stage.note_taken(symbol.object);
                Ok(Found { address, kind: symbol.kind, code })
            }
            None => Err(not_found(SymbolMissing::NotLinked)),
        }
    }

    /// Returns a linked library's default-visibility symbol.
    pub(crate) fn exported(&self, name: &str) -> Option<Found> {
        let mut state = self.state();
        let code = state.code()?;
        let symbol = state.names.get(name).filter(|s| !s.hidden)?;
        state.stage.note_taken(symbol.object);
        Some(Found { address: symbol.address?, kind: symbol.kind, code })
    }

    /// Returns the linked target of an import of that name, and the reference that keeps it; none for names that each
    /// library has of its own.
    #[cfg(feature = "tvm-ffi")]
    pub(crate) fn import(&self, name: &str) -> Result<Option<Found>> {
        let code = self.code()?;
        Ok(
            match walk(name, self.elsewhere(), || self.exported(name), || self.linked_export(name, &Answers::default()))
            {
                Walked::Own(found) | Walked::Linked((found, _)) => Some(found),
                Walked::PerLibrary(_) => None,
                // No lock is held: `dlsym` takes the dynamic loader's.
                Walked::Host => look_up(name, self.elsewhere(), &code).map(|(address, _)| Found {
                    address,
                    kind: SymbolKind::Unknown,
                    code,
                }),
            },
        )
    }

    /// Returns the address of a name of the library's own, and the object that defines it.
    pub(crate) fn own_definition(&self, name: &str, code: &LoadedLibrary) -> (u64, Provider) {
        let symbol = self.state().names.get(name);
        let object = symbol.and_then(|symbol| code.object_name(symbol.object));
        let name = object.map_or_else(String::new, |name| name.to_string());
        (symbol.and_then(|symbol| symbol.address).unwrap_or(0), Provider::Object { name })
    }

    /// Returns the slab of the object that defines a linked symbol, and that of its linker sets.
    pub(crate) fn slab_of(&self, name: &str) -> Result<Vec<SlabRange>> {
        let found = self.find(name)?;
        let number = self.state().names.get(name).map(|symbol| symbol.object);
        Ok(found.code.slab_containing(found.address as usize, number).unwrap_or_default())
    }

    /// Returns the names and addresses of all functions, by address.
    pub(crate) fn functions(&self) -> Result<Vec<(String, Range<usize>)>> {
        let mut functions = self.code()?.functions();
        functions.sort_unstable_by(|(a, at), (b, bt)| (at.start, a).cmp(&(bt.start, b)));
        Ok(functions)
    }

    /// Returns the signatures of kernels that images have, a line for each.
    pub(crate) fn contracts(&self) -> Vec<Arc<str>> {
        self.state().contracts()
    }

    /// Returns all names that can be asked for.
    pub(crate) fn symbols(&self) -> Vec<String> {
        let state = self.state();
        let mut names: Vec<_> =
            state.names.iter().filter(|(_, s)| !s.hidden).map(|(name, _)| name.to_owned()).collect();
        names.sort_unstable();
        names
    }
}
