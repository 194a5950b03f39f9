//! One namespace: the objects of a library, and their way from bytes to initialised code.
#![allow(unsafe_code)] // runs initialisers

mod archives;
mod imports;
mod state;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use once_cell::race::OnceBox;

use state::State;

use super::claims::{self, Claim};
use super::code::{Code, Hold};
use super::context::Context;
#[cfg(feature = "cuda")]
use super::devices::Devices;
use super::found::Found;
use super::hold;
use super::image::Image;
use super::prepared::{Pending, PreparedObject};
use super::resolve::{Elsewhere, Host, Outside};
use super::thread_local::{Storage, Turn};
use super::{batch, bound, exit, handlers, leftovers, own_stack, resolve, sets};
#[cfg(any(feature = "cli", feature = "tvm-ffi"))]
use crate::elf::SymbolKind;
use crate::elf::{Archive, LinkPlan, Whereabouts, hide_unmapped};
use crate::gate::{Guard, Mutex};
use crate::memory::SlabRange;
use crate::name::Name;
use crate::read::Contents;
#[cfg(feature = "cuda")]
use crate::runtime::cuda::Device;
use crate::runtime::{self, SharedLibrary};
use crate::{Drain, Error, Provider, Removal, Result, UndefinedSymbol};

/// How often a batch is linked again because storage for its thread-local variables came to lie elsewhere.
const MOST_MOVES: usize = 16;

/// How long one that waits for a removal waits for one of several things.
const SLICE: Duration = Duration::from_millis(10);

/// Where imports are looked for beside the library's own objects.
#[derive(Default)]
pub(crate) struct Scope {
    pub(crate) links: Vec<Arc<Library>>,
    pub(crate) elsewhere: Elsewhere,
    /// Whether objects may ask for executable stacks.
    pub(crate) executable_stack: bool,
    /// Where shared libraries are looked for.
    pub(crate) folders: Vec<PathBuf>,
    /// What the library is loaded for.
    #[cfg(feature = "cuda")]
    pub(crate) device: Option<Device>,
}

/// A library: what `crate::Library` is a handle of.
pub(crate) struct Library {
    name: Name,
    context: Arc<Context>,
    /// `None` for a library that has the process's symbols and nothing else.
    scope: Option<Box<Scope>>,
    /// The text of a name that has none, once somebody has asked for it.
    text: OnceBox<String>,
    /// The library's code, held by `state` until it is removed.
    remains: Arc<Code>,
    state: Mutex<State>,
}

impl Library {
    pub(crate) fn new(
        context: Arc<Context>,
        name: Name,
        #[cfg_attr(not(feature = "cuda"), expect(unused_mut))] mut scope: Scope,
        shared: Vec<SharedLibrary>,
    ) -> Arc<Self> {
        hold::end_what_has_drained();
        let code = Hold::first(Code::new(name.clone(), !scope.links.is_empty(), shared, &context.registry));
        // The code keeps it, and nothing else.
        #[cfg(feature = "cuda")]
        if let Some(device) = scope.device.take() {
            code.devices_or(|| Devices::loaded_for(device));
        }
        context.registry.add(code.code());
        let remains = Arc::clone(code.code());
        let alone = scope.links.is_empty() && scope.elsewhere.given.is_empty() && scope.folders.is_empty();
        let plain = alone && !scope.elsewhere.isolated && !scope.executable_stack;
        let scope = (!plain).then(|| Box::new(scope));
        let state = State { code: Some(code), ..State::default() };
        Arc::new(Self { name, context, scope, text: OnceBox::new(), remains, state: Mutex::new(state) })
    }

    pub(crate) fn name(&self) -> &str {
        match &self.name {
            Name::Given(text) => text,
            Name::Number(_) => self.text.get_or_init(|| Box::new(self.name.to_string())),
        }
    }

    fn scope(&self) -> Option<&Scope> {
        self.scope.as_deref()
    }

    fn allows_executable_stack(&self) -> bool {
        self.scope().is_some_and(|scope| scope.executable_stack)
    }

    fn elsewhere(&self) -> Option<&Elsewhere> {
        self.scope().map(|scope| &scope.elsewhere)
    }

    /// The first linked library that has a name, and where.
    fn linked_export(&self, name: &str) -> Option<(Found, Name)> {
        let mut links = self.scope().into_iter().flat_map(|scope| &scope.links);
        links.find_map(|library| Some((library.exported(name)?, library.name.clone())))
    }

    /// A name for an object that was given none.
    pub(crate) fn next_object_name(&self) -> Name {
        self.context.next_object_name()
    }

    fn state(&self) -> Guard<'_, State> {
        self.state.lock()
    }

    /// The library's code, unless it was removed.
    pub(super) fn code(&self) -> Result<Hold> {
        self.state().code.clone().ok_or_else(|| self.removed())
    }

    fn removed(&self) -> Error {
        Error::Removed { library: self.name.to_string() }
    }

    /// Prepares objects and takes them into the library: all, or none. Runs nothing but plugins.
    pub(crate) fn add<B: AsRef<[u8]>>(&self, objects: impl IntoIterator<Item = (Name, B)>) -> Result<()> {
        let prepare = |(name, bytes): (Name, B)| self.prepare(name, bytes.as_ref().into());
        let objects = objects.into_iter().map(prepare).collect::<Result<Vec<_>>>()?;
        let mut state = self.state();
        let code = state.code.clone().ok_or_else(|| self.removed())?;
        state.add(&self.name, &code, objects)
    }

    fn prepare(&self, kept_name: Name, bytes: Cow<'_, [u8]>) -> Result<PreparedObject> {
        let name = kept_name.text();
        let span = tracing::debug_span!(target: "slabjit", "slabjit::prepare", object = &*name, bytes = bytes.len());
        let _entered = span.enter();
        let prepared = self.context.preparation.prepare(&name, bytes)?;
        prepared.index.check_stack(&name, self.allows_executable_stack())?;
        for change in &prepared.changes {
            tracing::info!(target: "slabjit", object = &*name, %change, "preparation changed the object");
        }
        let mut bytes: Box<[u8]> = prepared.bytes.into();
        hide_unmapped(&mut bytes, &prepared.index);
        Ok(PreparedObject::new(name, kept_name, bytes, prepared.index))
    }

    pub(crate) fn add_archive(&self, name: &str, contents: Contents) -> Result<()> {
        let archive = Archive::parse(name, contents)?;
        let mut state = self.state();
        if state.code.is_none() {
            return Err(self.removed());
        }
        state.work.get_or_insert_default().archives.add(Arc::new(archive));
        Ok(())
    }

    /// Links and initialises what waits. Returns at once where there is nothing, and where waiting for another thread's
    /// initialiser would be waiting for oneself.
    ///
    /// # Safety
    /// The initialisers may be run.
    pub(crate) unsafe fn make_ready(&self) -> Result<()> {
        // SAFETY: by the caller.
        unsafe { self.make_ready_once() }.map_err(|mut error| {
            // No lock is held, and nothing is claimed: files are read.
            if let Error::UndefinedSymbols { symbols, .. } = &mut error {
                self.name_exporters(symbols);
            }
            error
        })
    }

    /// Looks for shared libraries that export what is missing.
    fn name_exporters(&self, symbols: &mut [UndefinedSymbol]) {
        let folders = self.scope().map_or(&[][..], |scope| &scope.folders);
        let names: BTreeSet<&str> = symbols.iter().filter(|s| s.exported_by.is_empty()).map(|s| &*s.name).collect();
        let mut exporters = runtime::exporters(&names, folders);
        for symbol in symbols {
            symbol.exported_by.extend(exporters.remove(&symbol.name).unwrap_or_default());
        }
    }

    /// # Safety
    /// As for [`make_ready`](Self::make_ready).
    unsafe fn make_ready_once(&self) -> Result<()> {
        {
            let state = self.state();
            if state.code.is_none() {
                return Err(self.removed());
            }
            if state.pending().is_empty() && state.busy == 0 {
                return Ok(());
            }
        }
        // Before the claim: whoever holds one waits for nobody but initialisers.
        for library in self.scope().into_iter().flat_map(|scope| &scope.links) {
            // SAFETY: by the caller.
            match unsafe { library.make_ready() } {
                // Its code is kept; it has no names any more.
                Err(Error::Removed { .. }) | Ok(()) => {}
                Err(error) => return Err(error),
            }
        }
        loop {
            // With nothing in hand that others may need: storage at a fixed distance is scarce.
            claims::wait(self.key());
            // What members need is then found without the claim, as all else.
            self.add_archive_members()?;
            let mut host = Host::default();
            let code = self.state().code.clone();
            if let Some(code) = code {
                self.find_outside(&code, &mut host)?;
            }
            return match claims::claim(self.key()) {
                Claim::Taken => continue,
                Claim::Circular => Ok(()),
                Claim::Lost => Err(Error::LostInFork { library: self.name.to_string() }),
                Claim::OursAlready | Claim::Ours(_) if self.state().pending().is_empty() => Ok(()),
                // SAFETY: by the caller.
                Claim::OursAlready => unsafe { self.link_pending(&mut host) },
                Claim::Ours(_guard) => {
                    // SAFETY: by the caller.
                    unsafe { self.link_pending(&mut host) }
                }
            };
        }
    }

    /// What it is claimed by.
    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Looks up in the host what waiting objects import and this library does not define. No lock is held meanwhile.
    fn look_up_host(&self, code: &Code, host: &mut Host) {
        let names = {
            let state = self.state();
            host.objects = state.pending().iter().map(|(number, _)| *number).collect();
            state.foreign_imports()
        };
        for (name, wanted) in names {
            host.look_up(name, wanted, self.elsewhere(), code);
        }
    }

    /// Looks up what waiting objects need of the host, and has storage made for their thread-local variables, where that has not
    /// been done. No lock is held meanwhile.
    fn find_outside(&self, code: &Code, host: &mut Host) -> Result<()> {
        self.make_stacks_executable()?;
        let mut waited = false;
        loop {
            let (looked_up, storage) = {
                let state = self.state();
                (state.was_looked_up(host), state.lacking_storage(host))
            };
            if !looked_up {
                self.look_up_host(code, host);
                continue;
            }
            let Some(lacking) = storage else { return Ok(()) };
            if lacking.fixed.is_some() && !waited {
                host.turn = Turn::wait();
                waited = true;
                continue;
            }
            // That thread has made it.
            if claims::is_taken(self.key()) {
                return Ok(());
            }
            // What is there and not right goes first, so that its room can be used again.
            host.storage = None;
            host.storage = Some(Arc::new(Storage::open(&lacking.objects, lacking.fixed.as_deref())?));
        }
    }

    /// Has stacks made executable if a waiting object asks for it. No lock is held meanwhile.
    fn make_stacks_executable(&self) -> Result<()> {
        let asking = self.state().pending().iter().find(|(_, object)| object.index.executable_stack).cloned();
        let Some((_, object)) = asking else { return Ok(()) };
        let refused = |message| Error::ExecutableStackRefused { object: object.name.to_string(), message };
        runtime::executable_stack::enable(object.index.machine).map_err(refused)
    }

    /// # Safety
    /// As for [`make_ready`](Self::make_ready); this thread has the claim.
    unsafe fn link_pending(&self, host: &mut Host) -> Result<()> {
        host.turn = None;
        let (code, bytes): (_, usize) = {
            let mut state = self.state();
            let code = state.code.clone().ok_or_else(|| self.removed())?;
            state.busy += 1;
            (code, state.pending().iter().map(|(_, object)| object.bytes.len()).sum())
        };
        // SAFETY: by the caller.
        let result = unsafe { self.link_and_initialise(&code, host) };
        self.state().busy -= 1;
        leftovers::give_back(bytes);
        if result.is_err() && host.storage.as_ref().is_some_and(|storage| storage.is_fixed()) {
            // The next to have the library needs the room of what goes with `host`.
            host.turn = Turn::wait();
        }
        result
    }

    /// # Safety
    /// As for [`link_pending`](Self::link_pending).
    unsafe fn link_and_initialise(&self, code: &Hold, host: &mut Host) -> Result<()> {
        #[cfg(feature = "cuda")]
        let _current = code.devices().map(Devices::make_current).transpose()?.flatten();
        let since = handlers::now();
        let outermost = self.state().begin_undoing();
        let linked = self.link(code, host).inspect_err(|_| {
            if outermost {
                self.state().end_undoing();
            }
        });
        let batch = linked?;
        let numbers: Vec<u32> = batch.iter().map(|(number, _)| *number).collect();
        // SAFETY: by the caller. `link` published these objects, and nobody else has initialised them: they are no longer
        // pending, and the claim is ours.
        let Err((object, message)) = (unsafe { code.code().initialise(&numbers) }) else {
            self.state().keep(batch, outermost);
            return Ok(());
        };
        let (numbers, taken) = self.state().give_up(batch, outermost);
        // SAFETY: as above.
        host.gone.extend(unsafe { code.undo(&numbers, since, taken) });
        Err(Error::InitializerFailed { object: object.to_string(), message })
    }

    /// Links everything pending, in one batch, and returns it.
    fn link(&self, code: &Hold, host: &mut Host) -> Result<Vec<Pending>> {
        self.add_archive_members()?;
        // Storage for thread-local variables moves only if another thread is in the loader at that very moment.
        for _ in 0..MOST_MOVES {
            if let Some(batch) = self.link_once(code, host)? {
                return Ok(batch);
            }
            host.storage = None;
        }
        let message = "other threads opened and closed shared objects with such variables all the time".to_owned();
        let object = self.state().pending().first().map_or_else(String::new, |(_, object)| object.name.to_string());
        Err(Error::ThreadLocalStorage { object, message, source: None })
    }

    /// As [`link`](Self::link); none if everything is as before, because storage for thread-local variables came to lie elsewhere.
    fn link_once(&self, code: &Hold, host: &mut Host) -> Result<Option<Vec<Pending>>> {
        // Dropped without a lock.
        let mut used = Vec::new();
        let (batch, mut decided, plan) = loop {
            // For what was added since this was done without the claim.
            self.find_outside(code, host)?;
            host.turn = None;
            let mut state = self.state();
            if !state.was_looked_up(host) || state.lacking_storage(host).is_some() {
                continue;
            }
            let pending = state.pending();
            let linked = |name: &str| self.linked_export(name);
            let outside =
                Outside { elsewhere: self.elsewhere(), linked: &linked, code, arena: &self.context.arena, host };
            let (decided, plan) = resolve::decide(&self.name, &outside, &state.names, &state.sets, pending, &mut used)?;
            let batch = state.take_pending();
            state.set_linking(&batch, true);
            state.sets.begin(&plan);
            break (batch, decided, plan);
        };
        let span = tracing::debug_span!(target: "slabjit", "slabjit::link", library = &*self.name.text(), objects = batch.len());
        let _entered = span.enter();
        let imports: Vec<_> = decided.iter_mut().map(|decided| std::mem::take(&mut decided.imports)).collect();
        let linked = batch::link(&self.name, &self.context.arena, self.context.out_of_range, decided, &plan);
        // No lock is held: it takes the dynamic loader's.
        let settled = linked.and_then(|linked| {
            let stays = host.storage.as_ref().map_or(Ok(true), |storage| storage.settle())?;
            Ok(stays.then_some(linked))
        });
        let mut state = self.state();
        let (mut linked, sets) = match settled {
            Ok(Some(linked)) => linked,
            Ok(None) => {
                state.restore(batch);
                return Ok(None);
            }
            Err(error) => {
                state.restore(batch);
                return Err(error);
            }
        };
        if state.code.is_none() {
            return Err(self.removed());
        }
        code.keep(used);
        let own: Vec<_> = linked.iter_mut().map(|linked| std::mem::take(&mut linked.own_sets)).collect();
        state.sets.settle(plan.bounds(sets.as_deref(), &batch, &own));
        let first = batch.first().map_or(0, |(number, _)| *number);
        let (mut images, mut told) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
        for (((number, object), linked), imports) in batch.iter().zip(linked).zip(imports) {
            state.publish(*number, object, &linked);
            let wanted = tracing::enabled!(target: "slabjit", tracing::Level::DEBUG);
            let slab = linked.allocation.as_ref().filter(|_| wanted).map(|allocation| allocation.slab().spans());
            told.push((Arc::clone(object), slab, linked.bridges));
            images.push(Image::new(&self.name, object, (*number, first), imports, linked));
        }
        code.add(images);
        drop(state);
        // No lock is held: subscribers may do what they like.
        for (object, slab, bridges) in told {
            if bridges > 0 {
                tracing::debug!(target: "slabjit", object = &*object.name, bridges, "references were bridged");
            }
            if let Some(slab) = slab {
                let bytes: usize = slab.iter().map(ExactSizeIterator::len).sum();
                tracing::debug!(target: "slabjit", object = &*object.name, ?slab, bytes, "linked");
            }
        }
        Ok(Some(batch))
    }

    /// Takes members of archives for names that nothing else of the library defines, until no more are needed.
    fn add_archive_members(&self) -> Result<()> {
        loop {
            let wanted = self.state().wanted_members();
            if wanted.is_empty() {
                return Ok(());
            }
            for member in wanted {
                let (name, bytes) = member.read()?;
                let object = self.prepare(name.into(), bytes)?;
                let mut state = self.state();
                let code = state.code.clone().ok_or_else(|| self.removed())?;
                // Another thread may have been faster.
                if !state.has_taken(&member) {
                    state.add(&self.name, &code, vec![object])?;
                    state.take_member(&member);
                }
            }
        }
    }

    /// What a link would find missing now. Nothing is linked; members are taken from archives.
    pub(crate) fn undefined_symbols(&self) -> Result<Vec<UndefinedSymbol>> {
        self.add_archive_members()?;
        let mut host = Host::default();
        let code = self.code()?;
        self.look_up_host(&code, &mut host);
        let mut used = Vec::new();
        let state = self.state();
        let linked = |name: &str| self.linked_export(name);
        let (arena, host) = (&self.context.arena, &host);
        let outside = Outside { elsewhere: self.elsewhere(), linked: &linked, code: &code, arena, host };
        match resolve::decide(&self.name, &outside, &state.names, &state.sets, state.pending(), &mut used) {
            Ok(_) => Ok(Vec::new()),
            Err(Error::UndefinedSymbols { mut symbols, .. }) => {
                // Linked libraries are linked first.
                let links = || self.scope().into_iter().flat_map(|scope| &scope.links);
                symbols.retain(|missing| !links().any(|library| library.will_export(&missing.name)));
                drop(state);
                self.name_exporters(&mut symbols);
                Ok(symbols)
            }
            Err(error) => Err(error),
        }
    }

    /// What preparation finds in an object, and where its references would lead as one of this library.
    pub(crate) fn check(&self, name: &str, bytes: &[u8]) -> Result<LinkPlan> {
        let code = self.code()?;
        let find = |name: &str, weak| self.whereabouts(&code, name, weak);
        self.context.check(name, bytes, self.allows_executable_stack(), &find)
    }

    /// Where a name leads, in the order in which [`resolve::decide`] looks.
    fn whereabouts(&self, code: &Code, name: &str, weak: bool) -> Whereabouts {
        {
            let mut state = self.state();
            if let Some(symbol) = state.names.get(name) {
                return symbol.address.map_or(Whereabouts::Arena, Whereabouts::Address);
            }
            // A weak reference takes no member out of an archive.
            if !weak && state.member_defining(name).is_some() {
                return Whereabouts::Arena;
            }
            if bound::bound(name).is_some_and(|(_, set)| state.sets.has(set)) {
                return Whereabouts::Arena;
            }
        }
        let links = || self.scope().into_iter().flat_map(|scope| &scope.links);
        if let Some(symbol) = links().find_map(|library| library.state().names.get(name).copied().filter(|s| !s.hidden))
        {
            return symbol.address.map_or(Whereabouts::Arena, Whereabouts::Address);
        }
        let given = self.elsewhere().is_some_and(|elsewhere| elsewhere.given.contains_key(name));
        if exit::Own::named(name).is_some() && !given {
            return resolve::in_process(name);
        }
        // No lock is held: `dlsym` takes the dynamic loader's.
        match resolve::look_up(name, self.elsewhere(), code) {
            Some((address, _)) => Whereabouts::Address(address),
            None if weak => Whereabouts::Address(0),
            None => Whereabouts::Unknown,
        }
    }

    /// Whether others find this name here once it is linked.
    fn will_export(&self, name: &str) -> bool {
        self.state().names.get(name).is_some_and(|symbol| !symbol.hidden)
    }

    /// Whether the library was removed.
    pub(crate) fn is_removed(&self) -> bool {
        self.state().code.is_none()
    }

    /// Finds a symbol of the library's own objects, linking and initialising them first.
    ///
    /// # Safety
    /// The initialisers may be run.
    pub(crate) unsafe fn get(&self, name: &str) -> Result<Found> {
        // SAFETY: by the caller.
        if let Err(error) = unsafe { self.make_ready() } {
            // What was linked before goes on working, whatever was added since.
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

    /// Makes sure that the library defines a function, hidden or not, and takes the member of an archive that does. Links nothing.
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
                Some(SymbolKind::ThreadLocal) => return Err(Error::ThreadLocalSymbol { library, symbol }),
                Some(SymbolKind::Data) => return Err(Error::WrongSymbolKind { library, symbol, requested: "main" }),
                Some(_) => return Ok(()),
                None if more => self.add_member_for(name)?,
                None => {
                    return Err(Error::SymbolNotFound { library, symbol, hint: self.hint(&self.state(), name) });
                }
            }
        }
    }

    /// The address of a name that [was required](Self::require_function), hidden or not; links and initialises.
    ///
    /// # Safety
    /// The initialisers may be run.
    #[cfg(feature = "cli")]
    pub(crate) unsafe fn entry(&self, name: &str) -> Result<u64> {
        // SAFETY: by the caller.
        unsafe { self.make_ready()? };
        let address = self.state().names.get(name).and_then(|symbol| symbol.address).filter(|address| *address != 0);
        address.ok_or_else(|| Error::NullSymbol { library: self.name.to_string(), symbol: name.to_owned() })
    }

    /// Members of archives that were taken so far.
    #[cfg(feature = "cli")]
    pub(crate) fn taken_members(&self) -> Result<Vec<(String, Vec<u8>)>> {
        self.state().taken_members()
    }

    /// A name asked for is as good as an import.
    fn add_member_for(&self, name: &str) -> Result<()> {
        let Some(member) = self.state().member_defining(name) else { return Ok(()) };
        let (member_name, bytes) = member.read()?;
        let object = self.prepare(member_name.into(), bytes)?;
        let mut state = self.state();
        let code = state.code.clone().ok_or_else(|| self.removed())?;
        match state.names.get(name) {
            // Another thread was faster.
            Some(_) => Ok(()),
            None => {
                state.add(&self.name, &code, vec![object])?;
                state.take_member(&member);
                Ok(())
            }
        }
    }

    fn find(&self, name: &str) -> Result<Found> {
        let mut state = self.state();
        let code = state.code.clone().ok_or_else(|| self.removed())?;
        let not_found =
            |hint: String| Error::SymbolNotFound { library: self.name.to_string(), symbol: name.to_owned(), hint };
        let Some(symbol) = state.names.get(name) else { return Err(not_found(self.hint(&state, name))) };
        if symbol.hidden {
            return Err(not_found(" for others: it is hidden; compile it with default visibility".to_owned()));
        }
        let symbol = *symbol;
        match symbol.address {
            Some(address) => {
                state.note_taken(&symbol);
                Ok(Found { address, kind: symbol.kind, code })
            }
            None => Err(not_found(
                " yet: it is not linked; call get or initialize first (if that failed, it said why)".to_owned(),
            )),
        }
    }

    /// What a wrong name may have meant.
    fn hint(&self, state: &State, name: &str) -> String {
        if name.contains('\0') {
            return "; no symbol's name contains a NUL byte".to_owned();
        }
        let mut defined: Vec<_> = state.names.iter().filter(|(_, s)| !s.hidden).map(|(name, _)| name).collect();
        if defined.is_empty() {
            return "; it defines no symbol at all (is everything static?)".to_owned();
        }
        // A C++ or Rust name that contains what was asked for is likelier to be meant than the first by alphabet.
        defined.sort_unstable_by_key(|d| (!d.contains(name), *d));
        let more = defined.len().saturating_sub(8);
        defined.truncate(8);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("; it defines {}{more}", defined.join(", "))
    }

    /// Where a linked library's default-visibility symbol is.
    pub(super) fn exported(&self, name: &str) -> Option<Found> {
        let mut state = self.state();
        let code = state.code.clone()?;
        let symbol = state.names.get(name).copied().filter(|s| !s.hidden)?;
        state.note_taken(&symbol);
        Some(Found { address: symbol.address?, kind: symbol.kind, code })
    }

    /// Where an import of that name leads that is linked now, in the order in which [`resolve::decide`] looks, and what keeps it. Names that
    /// each library has of its own are not among those.
    #[cfg(feature = "tvm-ffi")]
    pub(crate) fn import(&self, name: &str) -> Result<Option<Found>> {
        let code = self.code()?;
        let found = self.exported(name).or_else(|| Some(self.linked_export(name)?.0));
        // No lock is held: `dlsym` takes the dynamic loader's.
        Ok(found.or_else(|| {
            let (address, _) = resolve::look_up(name, self.elsewhere(), &code)?;
            Some(Found { address, kind: SymbolKind::Unknown, code })
        }))
    }

    /// Where a name of the library's own is, and which object has it.
    pub(super) fn own_definition(&self, name: &str, code: &Code) -> (u64, Provider) {
        let symbol = self.state().names.get(name).copied();
        let object = symbol.and_then(|symbol| code.object_name(symbol.object));
        let name = object.map_or_else(String::new, |name| name.to_string());
        (symbol.and_then(|symbol| symbol.address).unwrap_or(0), Provider::Object { name })
    }

    /// The slab of the object that defines a linked symbol, and that of its linker sets.
    pub(crate) fn slab_of(&self, name: &str) -> Result<Vec<SlabRange>> {
        let found = self.find(name)?;
        let number = self.state().names.get(name).map(|symbol| symbol.object);
        Ok(found.code.slab_containing(found.address as usize, number).unwrap_or_default())
    }

    /// Hides the names at once; what they refer to goes with its last holder.
    pub(crate) fn remove(&self) -> Removal {
        let code = {
            let mut state = self.state();
            state.names.clear();
            state.sets = sets::Known::default();
            state.forget_what_waits();
            state.code.take()
        };
        // Finalisers run here if this was the last holder; no lock is held.
        drop(code);
        hold::end_what_has_drained();
        let drains = self.unfinished_drains();
        if self.remains.life().is_gone() {
            return Removal::Freed;
        }
        Removal::Waiting { holders: self.remains.life().holders() + drains }
    }

    /// How much its end has to wait for. If there is nothing and nobody holds it, it has come to its end, also where this
    /// thread is looking through what drains, and does not look within that.
    fn unfinished_drains(&self) -> usize {
        let drains = self.remains.unfinished_drains();
        if drains == 0 && self.remains.life().holders() == 0 {
            hold::end_if_drained(&*self.remains);
        }
        drains
    }

    /// Removes the library, and waits until it is gone.
    pub(crate) fn remove_and_wait(&self, timeout: Duration) -> Result<()> {
        let start = Instant::now();
        if self.remove() == Removal::Freed {
            return Ok(());
        }
        if self.is_in_use_by_this_thread() {
            return Err(Error::RemovalFromOwnCode { library: self.name.to_string() });
        }
        loop {
            let (life, drains) = (self.remains.life(), self.unfinished_drains());
            hold::end_what_has_drained();
            if life.is_gone() {
                return Ok(());
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                let (library, holders) = (self.name.to_string(), life.holders());
                return Err(Error::RemovalTimedOut { library, waited: timeout, holders, drains });
            }
            // What has finished may have been a holder; and what nothing holds may have begun to drain just now.
            match drains == 0 || life.holders() != 0 {
                true => hold::wait(life, left.min(SLICE)),
                false => self.remains.wait_for_drains(left.min(SLICE)),
            }
        }
    }

    /// Whether this thread is running code that keeps the library, or a drain of such code, or is linking it.
    fn is_in_use_by_this_thread(&self) -> bool {
        let stack = own_stack::return_addresses();
        let runs = |code: &Arc<Code>| {
            (code.drains_are_being_asked() || stack.iter().any(|address| code.contains(*address)))
                && code.keeps(&self.remains)
        };
        claims::is_ours(self.key()) || self.context.live().iter().any(runs)
    }

    /// Has the library's end wait for something, also after its removal.
    pub(crate) fn drain(&self, drain: Box<dyn Drain>) -> Result<()> {
        // As long as it is held, it does not end.
        let held = Hold::of(&self.remains).ok_or_else(|| self.removed())?;
        held.drain(drain);
        Ok(())
    }

    /// The device it was loaded for, as long as its code is there.
    #[cfg(feature = "cuda")]
    pub(crate) fn device(&self) -> Option<Device> {
        self.remains.devices().and_then(Devices::device)
    }

    /// Has something done once for a device, with its context current.
    #[cfg(feature = "cuda")]
    pub(crate) fn initialise_on(&self, device: &Device, initialise: impl FnOnce() -> Result<()>) -> Result<()> {
        // As long as it is held, it keeps its devices.
        let code = self.code()?;
        code.devices_or(Devices::default).initialise(&self.name, device, initialise)
    }

    /// Names of everything that can be asked for.
    pub(crate) fn symbols(&self) -> Vec<String> {
        let state = self.state();
        let mut names: Vec<_> =
            state.names.iter().filter(|(_, s)| !s.hidden).map(|(name, _)| name.to_owned()).collect();
        names.sort_unstable();
        names
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        claims::forget(self.key());
        // Not one within the other: chains may be long.
        let mut next = self.scope.take().map(|scope| scope.links).unwrap_or_default();
        while let Some(library) = next.pop() {
            if let Some(mut library) = Arc::into_inner(library) {
                next.extend(library.scope.take().into_iter().flat_map(|scope| scope.links));
            }
        }
    }
}
