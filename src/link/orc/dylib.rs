//! Dylibs: namespaces of a session, the objects that are added to them, and look-ups.
#![allow(unsafe_code, reason = "FFI to LLVM")]

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use slabjit_llvm_wrap as shim;
use slabjit_llvm_wrap::llvm_sys::orc2::LLVMOrcJITDylibClear;

use super::entry::Entry;
use super::finder::Address;
use super::given::Deferred;
use super::later::{later, leave};
#[cfg(feature = "inkwell")]
use super::lazy::Lazy;
use super::lazy::{FindBody, Stubs, first_call};
use super::lookup::{self, LookedUp, kind_for_orc};
use super::offer::Offer;
use super::session::Session;
use super::tracker::Tracker;
use crate::elf::{Archive, SymbolKind};
use crate::fork_guard::{self, ForkGuard, Mutex};
use crate::link::llvm::shim_text::{take_error, take_text};
use crate::live::library::Library;
use crate::live::library::name_source::NameSource;
use crate::live::lifetime::loaded_library::CodeRef;
use crate::live::resolve::found::Found;
use crate::name::{DefinedName, Name};
use crate::read::Contents;
use crate::{Error, LibraryError, LinkError, Result, SymbolMissing};

/// A dylib of a session, which it keeps.
#[derive(Clone)]
pub(crate) struct Dylib {
    pub(super) session: Arc<Session>,
    pub(super) entry: Arc<Entry>,
}

impl Dylib {
    /// Returns the dylib of a name, which is made if there is none.
    pub(crate) fn of(session: &Arc<Session>, name: &str) -> Self {
        Self { session: Arc::clone(session), entry: session.entry(name) }
    }

    pub(crate) fn name(&self) -> String {
        self.entry.name.to_string()
    }

    fn raw(&self) -> *mut c_void {
        self.entry.raw
    }

    /// Has its code find the exported names of another dylib, behind those that it was linked against before.
    pub(crate) fn link(&self, other: &Self) -> Result<()> {
        if !Arc::ptr_eq(&self.session, &other.session) {
            return Err(Error::Link(LinkError::OtherJit { dylib: self.name(), other: other.name() }));
        }
        let mut links = self.entry.links.lock();
        links.dylibs.push(Arc::downgrade(&other.entry));
        links.order.push(other.raw().addr());
        self.entry.set_order(&links, self.session.process());
        Ok(())
    }

    /// Returns its names for libraries.
    pub(crate) fn names(&self) -> Arc<dyn NameSource> {
        let (session, entry) = (Arc::downgrade(&self.session), Arc::downgrade(&self.entry));
        Arc::new(Names { name: self.name().as_str().into(), session, entry })
    }

    /// Returns whether it exports a name, which nothing is linked for. Generators are asked.
    fn defines(&self, name: &str) -> bool {
        // SAFETY: the session's dylib; the name is lent.
        unsafe { shim::slabjit_dylib_defines(self.raw(), name.as_ptr().cast(), name.len()) != 0 }
    }

    /// Has its code find the exported names of a library, which is kept from then on, as long as the session.
    pub(crate) fn link_library(&self, library: &Arc<Library>) {
        let raw = self.session.bare_dylib(library.name());
        let of_library = Arc::clone(library);
        self.session.find_with(raw, move |name| {
            let found = of_library.exported(name);
            Ok(found.map(|Found { address, kind, code }| Address { address, kind, code: Some(code) }))
        });
        let mut links = self.entry.links.lock();
        links.libraries.push(Arc::clone(library));
        links.order.push(raw.addr());
        self.entry.set_order(&links, self.session.process());
    }

    /// Asks a function for names that the dylib does not define, before those that it is linked against. The function
    /// may add to the dylib, and returns an address to define.
    pub(crate) fn add_generator(
        &self,
        generate: impl Fn(&Self, &str) -> Result<Option<usize>> + Send + Sync + 'static,
    ) {
        let (session, entry) = (Arc::downgrade(&self.session), Arc::downgrade(&self.entry));
        self.session.find_with(self.raw(), move |name| {
            // They live, unless this is the session's end.
            let (Some(session), Some(entry)) = (session.upgrade(), entry.upgrade()) else { return Ok(None) };
            // It may be a user's.
            let address = fork_guard::without(|| generate(&Self { session, entry }, name))?;
            Ok(address.map(|address| Address { address: address as u64, kind: SymbolKind::Unknown, code: None }))
        });
    }

    /// Prepares an object and gives it to ORC, which has it linked when one of its names is looked up.
    pub(crate) fn add_object(&self, tracker: Option<&Tracker>, name: Option<&str>, bytes: Cow<'_, [u8]>) -> Result<()> {
        let context = &self.session.layer.context;
        let name = name.map_or_else(|| context.next_object_name(), Name::from);
        let object = context.prepare(name, bytes, false)?;
        self.add(tracker, &[Offer::object(&self.session, object)])
    }

    /// Has members of an archive be added when a name of theirs is asked for.
    pub(crate) fn add_archive(&self, name: &str, contents: Contents) -> Result<()> {
        let archive = Archive::parse(name, contents)?;
        let mut index = HashMap::with_capacity(archive.symbols().len());
        for (symbol, member) in archive.symbols() {
            index.entry(symbol.to_owned()).or_insert(member);
        }
        let taken = Mutex::new(HashSet::new());
        self.add_generator(move |dylib, asked| {
            let Some(id) = index.get(asked) else { return Ok(None) };
            let (member, bytes) = archive.member(*id)?;
            let is_new = taken.lock().insert(*id);
            match dylib.add_object(None, Some(member), bytes) {
                // Another thread may have added it meanwhile, for another name.
                Err(Error::Link(LinkError::Failed { .. })) if !is_new => Ok(None),
                added => added.map(|()| None),
            }
        });
        Ok(())
    }

    /// Gives ORC an object that is made when one of its names is looked up.
    #[cfg_attr(not(feature = "inkwell"), allow(dead_code, reason = "only modules are made later"))]
    pub(crate) fn add_deferred(&self, tracker: Option<&Tracker>, deferred: Deferred) -> Result<()> {
        self.add(tracker, &[Offer::deferred(&self.session, deferred)])
    }

    /// Gives ORC a module whose functions are made when they are first called; all of it, or nothing.
    #[cfg(feature = "inkwell")]
    pub(crate) fn add_lazily(&self, tracker: Option<&Tracker>, suffix: &str, lazy: &Lazy) -> Result<()> {
        let all = self.tracker();
        self.add_parts(&all, suffix, lazy).or_else(|error| all.remove().and(Err(error)))?;
        all.go_to(tracker);
        Ok(())
    }

    #[cfg(feature = "inkwell")]
    fn add_parts(&self, all: &Tracker, suffix: &str, lazy: &Lazy) -> Result<()> {
        let Lazy { name, functions, rest, has_initialisers, make } = lazy;
        let bodies =
            functions.iter().map(|function| (function.name.as_str(), format!("{}.body{suffix}", function.name)));
        let stubs = Stubs::of_functions(self.for_stubs(), bodies.clone());
        // Before anybody can call them.
        for (function, body) in bodies {
            let (make, of, body_name) = (Arc::clone(make), function.to_owned(), body.clone());
            let make = Box::new(move || make(Some((&of, &body_name))));
            let names = vec![DefinedName { name: body, is_function: true, is_weak: false, is_exported: false }];
            let name = format!("{name}:{function}");
            self.add_deferred(Some(all), Deferred { name, names, has_initialisers: false, make })?;
        }
        // They refer to each other.
        let mut visible = Vec::new();
        if !functions.is_empty() {
            visible.push(self.stubs(name, functions, stubs)?);
        }
        if !rest.is_empty() || *has_initialisers {
            let make = Arc::clone(make);
            let deferred = Deferred {
                name: name.clone(),
                names: rest.clone(),
                has_initialisers: *has_initialisers,
                make: Box::new(move || make(None)),
            };
            visible.push(Offer::deferred(&self.session, deferred));
        }
        self.add(Some(all), &visible)
    }

    fn for_stubs(&self) -> Box<dyn FindBody> {
        Box::new(ForStubs { session: Arc::downgrade(&self.session), entry: Arc::downgrade(&self.entry) })
    }

    fn stubs(&self, name: &str, functions: &[DefinedName], stubs: Arc<Stubs>) -> Result<Offer> {
        let bytes = stubs.object(name, functions, first_call())?;
        let object = self.session.layer.context.prepare(name.into(), bytes.into(), false)?;
        Ok(Offer::stubs(&self.session, object, stubs))
    }

    /// Defines a name as a stub that leads to an address.
    pub(crate) fn define_stub(&self, tracker: Option<&Tracker>, name: &str, to: u64, code: &CodeRef) -> Result<()> {
        let defined = DefinedName { name: name.to_owned(), is_function: true, is_weak: false, is_exported: true };
        let stubs = self.stubs(name, &[defined], Stubs::leading_to(self.for_stubs(), name, to, code))?;
        self.add(tracker, &[stubs])
    }

    /// Has the stub of a name lead to another address. Returns what kept the code that it led to.
    ///
    /// # Safety
    /// The initialisers of what is linked for it may be run.
    pub(crate) unsafe fn redirect(&self, name: &str, to: u64, code: &CodeRef) -> Result<Option<CodeRef>> {
        // SAFETY: by the caller.
        let Found { address, code: own, .. } = unsafe { self.get(name)? };
        let refused = |why| Error::Link(LinkError::NoStub { symbol: name.to_owned(), library: self.name(), why });
        if address == to {
            return Err(refused("it would lead to itself"));
        }
        let stubs = own.owned().and_then(|owned| owned.as_any().downcast::<Stubs>().ok());
        // SAFETY: they are linked, and `own` keeps them.
        let redirected = stubs.and_then(|stubs| unsafe { stubs.redirect(address, name, to, code) });
        redirected.ok_or_else(|| refused("it has no stub"))
    }

    /// Returns a number that it returned to nobody else.
    #[cfg(feature = "inkwell")]
    pub(crate) fn next_number(&self) -> u64 {
        self.session.next_number()
    }

    /// No look-up finds some of them only.
    fn add(&self, tracker: Option<&Tracker>, offers: &[Offer]) -> Result<()> {
        let Some(first) = offers.first() else { return Ok(()) };
        let used = offers.iter().map(Offer::name_count).sum();
        self.session.names.add(used);
        let names = tracker.map_or(&self.entry.names, |tracker| &tracker.names);
        names.fetch_add(used, Ordering::Relaxed);
        let orc = tracker.map(|tracker| tracker.with_room(used));
        let objects: Vec<_> = offers.iter().map(|offer| offer.for_shim(&self.session)).collect();
        let pass = ForkGuard::take();
        // SAFETY: the session's dylib and a tracker of it; the bytes are there until `dropped`, the rest is lent.
        let text = unsafe {
            let orc = orc.as_ref().map_or(std::ptr::null_mut(), |orc| orc.raw());
            let (session, raw) = (self.session.raw(), self.raw());
            take_text(shim::slabjit_dylib_add_objects(session, raw, orc, objects.as_ptr(), objects.len()))
        };
        drop(pass);
        // Of several, some may have been added: whoever adds several removes them.
        if let (Some(_), [_]) = (&text, offers) {
            if let (Some(tracker), Some(orc)) = (tracker, &orc) {
                tracker.give_back(orc, used);
            }
            // The dylib may have been cleared meanwhile.
            let _ = names.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |all| Some(all.saturating_sub(used)));
            self.session.remove_names(used);
        }
        let object = || first.given.name().to_owned();
        text.map_or(Ok(()), |message| Err(Error::Link(LinkError::Failed { object: object(), message })))
    }

    /// Defines a name as an address.
    pub(crate) fn define(&self, name: &str, address: usize) -> Result<()> {
        let symbol = shim::slabjit_named {
            name: name.as_ptr().cast(),
            name_len: name.len(),
            exported: 1,
            weak: 0,
            kind: kind_for_orc(SymbolKind::Unknown),
        };
        let _pass = ForkGuard::take();
        // SAFETY: the session's dylib; the name is lent.
        let text = unsafe { take_text(shim::slabjit_dylib_define(self.raw(), &symbol, address as u64)) };
        text.map_or(Ok(()), |message| Err(self.failed(name, LinkError::Failed { object: self.name(), message })))
    }

    pub(crate) fn tracker(&self) -> Tracker {
        Tracker::new(Arc::clone(&self.session), Arc::clone(&self.entry))
    }

    /// Removes all that was added and defined.
    pub(crate) fn clear(&self) -> Result<()> {
        let pass = ForkGuard::take();
        self.entry.clears.fetch_add(1, Ordering::Release);
        // SAFETY: the session's dylib.
        let text = unsafe { take_error(LLVMOrcJITDylibClear(self.raw().cast())) };
        self.entry.kept.forget();
        drop(pass);
        leave();
        self.session.remove_names(self.entry.names.swap(0, Ordering::Relaxed));
        text.map_or(Ok(()), |message| Err(Error::Link(LinkError::Failed { object: self.name(), message })))
    }

    /// Links what defines a name that it exports and all that it needs, and initialises what is linked.
    ///
    /// # Safety
    /// The initialisers may be run.
    pub(crate) unsafe fn get(&self, name: &str) -> Result<Found> {
        // SAFETY: by the caller.
        unsafe { self.make(name, false) }
    }

    /// Does the same with any name that it defines.
    ///
    /// # Safety
    /// As for [`get`](Self::get).
    pub(super) unsafe fn get_hidden(&self, name: &str) -> Result<Found> {
        // SAFETY: by the caller.
        unsafe { self.make(name, true) }
    }

    /// # Safety
    /// As for [`get`](Self::get).
    unsafe fn make(&self, name: &str, hidden: bool) -> Result<Found> {
        // SAFETY: by the caller.
        unsafe { self.make_libraries_ready()? };
        let found = self.look_up(name, hidden)?;
        // SAFETY: by the caller. What an initialiser throws is told to those that need its object.
        let _ = unsafe { self.session.layer.initialise(None) };
        self.session.layer.check(found)
    }

    /// Links what defines a name and all that it needs.
    fn look_up(&self, name: &str, hidden: bool) -> Result<Found> {
        let layer = &self.session.layer;
        loop {
            let lost = layer.lost();
            let found = self.found(self.told(name, lookup::look_up(layer.pool.get(), self.raw(), name, hidden))?);
            if layer.lost() == lost {
                return Ok(found);
            }
        }
    }

    /// Links what defines a function, hidden or not, and initialises all that was added, that first. Nothing of the
    /// dylib has run if there is no such function.
    ///
    /// # Safety
    /// The initialisers may be run.
    #[cfg(feature = "cli")]
    pub(crate) unsafe fn entry(&self, name: &str) -> Result<Found> {
        // SAFETY: by the caller.
        unsafe { self.make_libraries_ready()? };
        let found = self.session.layer.check(self.look_up(name, true)?)?;
        let (library, symbol) = (self.name(), name.to_owned());
        match found.kind {
            SymbolKind::Data => {
                Err(Error::Library(LibraryError::WrongSymbolKind { library, symbol, requested: "main" }))
            }
            _ => {
                // SAFETY: by the caller.
                unsafe { self.initialise()? };
                Ok(found)
            }
        }
    }

    /// Has a name's code linked by the pool, and calls `done` then: once, also if it fails. Objects are not
    /// initialised.
    ///
    /// # Safety
    /// The initialisers of libraries that it is linked against may be run.
    pub(crate) unsafe fn request(&self, name: &str, done: impl FnOnce(Result<Found>) + Send + 'static) {
        // SAFETY: by the caller.
        if let Err(error) = unsafe { self.make_libraries_ready() } {
            return done(Err(error));
        }
        self.clone().ask(name.to_owned(), done);
    }

    fn ask(self, name: String, done: impl FnOnce(Result<Found>) + Send + 'static) {
        let (raw, asked, layer) = (self.raw(), name.clone(), Arc::clone(&self.session.layer));
        let lost = layer.lost();
        lookup::request(layer.pool.get(), raw, &asked, false, move |outcome| {
            let found = self.told(&name, outcome).map(|looked_up| self.found(looked_up));
            let layer = &self.session.layer;
            if found.is_ok() && layer.lost() != lost {
                return self.ask(name, done);
            }
            // It is a user's.
            later(move || done(found.and_then(|found| self.session.layer.check(found))));
        });
    }

    /// Returns a symbol with what keeps its code, if nothing was [lost](Layer::lost) since it was looked up.
    fn found(&self, LookedUp { address, kind }: LookedUp) -> Found {
        let owner = self.session.layer.owner(address as usize);
        Found { address, kind, code: owner.unwrap_or_else(|| self.entry.code.clone()) }
    }

    /// Returns what a look-up found, or why it did not.
    fn told(&self, name: &str, outcome: lookup::Outcome) -> Result<LookedUp> {
        outcome.map_err(|failure| match failure {
            lookup::Failure::Missing => {
                self.session.lose_name();
                let (library, symbol) = (self.name(), name.to_owned());
                Error::Library(LibraryError::SymbolNotFound { library, symbol, reason: SymbolMissing::NotInDylib })
            }
            lookup::Failure::Failed(message) => match self.session.layer.failure(self.raw().addr(), name) {
                Some(cause) => {
                    Error::Link(LinkError::SymbolFailed { symbol: name.to_owned(), library: self.name(), cause })
                }
                None => self.failed(name, LinkError::Failed { object: self.name(), message }),
            },
        })
    }

    /// Links everything in it that has initialisers, and runs these.
    ///
    /// # Safety
    /// The initialisers may be run.
    pub(crate) unsafe fn initialise(&self) -> Result<()> {
        // SAFETY: by the caller.
        unsafe { self.make_libraries_ready()? };
        // SAFETY: the session and its dylib; the initialisers by the caller.
        let text = unsafe { take_text(shim::slabjit_dylib_initialise(self.session.raw(), self.raw())) };
        leave();
        text.map_or(Ok(()), |message| Err(Error::Link(LinkError::InitializerFailed { object: self.name(), message })))
    }

    fn failed(&self, symbol: &str, cause: LinkError) -> Error {
        let cause = Arc::new(Error::Link(cause));
        Error::Link(LinkError::SymbolFailed { symbol: symbol.to_owned(), library: self.name(), cause })
    }

    /// Links and initialises the libraries that it and the dylibs behind it are linked against, without a lock.
    ///
    /// # Safety
    /// The initialisers may be run.
    unsafe fn make_libraries_ready(&self) -> Result<()> {
        let (mut seen, mut next, mut libraries) = (HashSet::new(), vec![Arc::clone(&self.entry)], Vec::new());
        while let Some(entry) = next.pop() {
            if seen.insert(entry.raw.addr()) {
                let links = entry.links.lock();
                libraries.extend(links.libraries.iter().cloned());
                next.extend(links.dylibs.iter().filter_map(Weak::upgrade));
            }
        }
        for library in libraries {
            // SAFETY: by the caller.
            match unsafe { library.make_ready() } {
                // What was found in it is kept.
                Err(Error::Library(LibraryError::Removed { .. })) | Ok(()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The names of a dylib for libraries, which do not keep it.
struct Names {
    name: Name,
    session: Weak<Session>,
    entry: Weak<Entry>,
}

impl Names {
    fn dylib(&self) -> Option<Dylib> {
        Some(Dylib { session: self.session.upgrade()?, entry: self.entry.upgrade()? })
    }
}

impl NameSource for Names {
    fn name(&self) -> Name {
        self.name.clone()
    }

    fn defines(&self, name: &str) -> bool {
        self.dylib().is_some_and(|dylib| dylib.defines(name))
    }

    unsafe fn find(&self, name: &str) -> Result<Option<Found>> {
        let Some(dylib) = self.dylib() else { return Ok(None) };
        // SAFETY: by the caller.
        match unsafe { dylib.get(name) } {
            Err(Error::Library(LibraryError::SymbolNotFound { .. })) => Ok(None),
            found => found.map(Some),
        }
    }
}

/// A dylib that its stubs do not keep.
struct ForStubs {
    session: Weak<Session>,
    entry: Weak<Entry>,
}

impl FindBody for ForStubs {
    unsafe fn find(&self, body: &str) -> Result<Found> {
        let (Some(session), Some(entry)) = (self.session.upgrade(), self.entry.upgrade()) else {
            return Err(Error::Link(LinkError::Session { message: "it has ended".to_owned() }));
        };
        // SAFETY: by the caller.
        unsafe { Dylib { session, entry }.get_hidden(body) }
    }

    fn dylib(&self) -> String {
        self.entry.upgrade().map_or_else(String::new, |entry| entry.name.to_string())
    }
}
