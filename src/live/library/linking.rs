//! Links waiting objects and initialises their code.
#![allow(unsafe_code, reason = "runs initialisers")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use smallvec::SmallVec;

use super::Library;
use super::links::Asking;
use super::name_source::Answers;
use super::stage::Before;

use crate::debuggers;
#[cfg(feature = "cuda")]
use crate::live::lifetime::devices::Devices;
use crate::live::lifetime::exit_handlers;
use crate::live::lifetime::init_lock::Claim;
use crate::live::lifetime::loaded_library::{CodeRef, LoadedLibrary};
use crate::live::linked::image::Image;
use crate::live::linker::{Batch, LinkedBatch};
use crate::live::resolve::decide;
use crate::live::resolve::decide::{Host, Outside};
use crate::live::resolve::decided::Decided;
use crate::live::resolve::imported::Imported;
use crate::live::resolve::linker_sets::Plan;
use crate::live::resolve::prepared::PendingList;
use crate::live::tls::{Storage, Turn};
use crate::live::unwind::Frames;
use crate::memory::malloc_trim;
use crate::runtime::{self, SharedLibrary};
use crate::{Error, LibraryError, LinkError, Result, UndefinedSymbol};

/// The limit of links of one batch: each is repeated if storage for its thread-local variables has moved.
const MOST_MOVES: usize = 16;

/// Waiting objects that were taken to be linked.
struct Taken {
    objects: PendingList,
    decided: Vec<Decided>,
    plan: Plan,
    /// Linked libraries that references lead to.
    used: Vec<CodeRef>,
}

impl Library {
    /// Links and initialises the objects that wait. Returns at once where there are none, and where waiting for another
    /// thread's initialiser would be waiting for oneself.
    ///
    /// # Safety
    /// The initialisers may be run.
    pub(crate) unsafe fn make_ready(&self) -> Result<()> {
        // A source of names that asks for this library's own gets those that it has.
        if self.is_ready()? || Asking::is_at(self) {
            return Ok(());
        }
        // SAFETY: by the caller.
        unsafe { self.make_links_ready().and_then(|()| self.link_what_waits()) }.map_err(|mut error| {
            // No lock is held, and nothing is claimed: files are read.
            if let Error::Link(LinkError::UndefinedSymbols { symbols, .. }) = &mut error {
                self.name_exporters(symbols);
            }
            error
        })
    }

    fn is_ready(&self) -> Result<bool> {
        let state = self.state();
        match state.stage.code() {
            Some(_) => Ok(state.pending().is_empty() && state.stage.is_idle()),
            None => Err(self.removed()),
        }
    }

    /// Claims the library for this thread, and links and initialises the objects that wait then.
    ///
    /// # Safety
    /// As for [`make_ready`](Self::make_ready).
    unsafe fn link_what_waits(&self) -> Result<()> {
        loop {
            // This thread holds nothing that others may need: storage at a fixed distance is scarce.
            self.init_lock.wait();
            // The imports of members are then found without the claim, as all others.
            self.add_archive_members()?;
            // SAFETY: by the caller.
            let answers = unsafe { self.ask_sources()? };
            let mut host = Host::default();
            let (code, needed) = {
                let state = self.state();
                host.needs = state.needs;
                (state.code(), state.needed())
            };
            if let Some(code) = code {
                // SAFETY: by the caller.
                unsafe { self.open_needed(&code, &needed)? };
                self.find_outside(&code, &mut host)?;
            }
            // The claim is given back before `host` is dropped, which takes the dynamic loader's lock.
            let _claim = match self.init_lock.claim() {
                Claim::Taken => continue,
                Claim::Circular => return Ok(()),
                Claim::Lost => {
                    return Err(Error::Library(LibraryError::LostInFork { library: self.name.to_string() }));
                }
                Claim::OursAlready => None,
                Claim::Ours(claim) => Some(claim),
            };
            if self.state().pending().is_empty() {
                return Ok(());
            }
            // SAFETY: by the caller.
            if unsafe { self.link_and_initialise(&mut host, &answers)? } {
                return Ok(());
            }
        }
    }

    /// Opens the shared libraries that waiting images and objects need, as the dynamic loader would. No lock is held
    /// meanwhile.
    ///
    /// # Safety
    /// Their initialisers may be run.
    unsafe fn open_needed(&self, code: &LoadedLibrary, needed: &[PathBuf]) -> Result<()> {
        if needed.is_empty() {
            return Ok(());
        }
        let isolated = self.elsewhere().is_some_and(|elsewhere| elsewhere.isolated);
        // Every process has the C library.
        let is_there = |path: &Path| {
            let is_of = |start: &str| path.as_os_str().as_encoded_bytes().starts_with(start.as_bytes());
            !isolated && (is_of("libc.so.") || is_of("ld-linux-"))
        };
        let has = |path: &Path| code.shared().iter().any(|library| library.path() == path);
        let missing = needed.iter().filter(|path| !is_there(path) && !has(path));
        let folders = self.scope().map_or(&[][..], |scope| &scope.folders);
        // SAFETY: by the caller.
        let open = |path: &PathBuf| unsafe { SharedLibrary::open_local(path, folders) };
        // As in the dynamic loader, the process's scope comes first.
        let open = |path| open(path).map(|library| library.searched(runtime::SearchOrder::Last));
        let opened = missing.map(open).collect::<Result<Vec<_>>>()?;
        if !opened.is_empty() {
            code.add_shared(opened);
        }
        self.state().forget_needed(needed);
        Ok(())
    }

    /// Looks for shared libraries that export what is missing.
    pub(super) fn name_exporters(&self, symbols: &mut [UndefinedSymbol]) {
        let folders = self.scope().map_or(&[][..], |scope| &scope.folders);
        let names: BTreeSet<&str> = symbols.iter().filter(|s| s.exported_by.is_empty()).map(|s| &*s.name).collect();
        let mut exporters = runtime::exporters(&names, folders);
        for symbol in symbols {
            symbol.exported_by.extend(exporters.remove(&symbol.name).unwrap_or_default());
        }
    }

    /// Looks up in the host the imports of waiting objects that this library does not define, without a lock.
    pub(super) fn look_up_host(&self, code: &LoadedLibrary, host: &mut Host) {
        let names = {
            let state = self.state();
            host.objects = state.pending().iter().map(|(number, _)| *number).collect();
            state.foreign_imports()
        };
        for (name, wanted) in names {
            host.look_up(name, wanted, self.elsewhere(), code);
        }
    }

    /// Looks up the imports of waiting objects in the host, makes storage for their thread-local variables, and has the
    /// dynamic loader learn the names that they export, where that has not been done. No lock is held meanwhile.
    fn find_outside(&self, code: &LoadedLibrary, host: &mut Host) -> Result<()> {
        self.find_imports_and_storage(code, host)?;
        // The thread with the claim opens them.
        if self.init_lock.is_taken() { Ok(()) } else { self.open_exports(host) }
    }

    /// Does the part of [`find_outside`](Self::find_outside) that concerns imports, stacks and thread-local variables.
    fn find_imports_and_storage(&self, code: &LoadedLibrary, host: &mut Host) -> Result<()> {
        let mut waited = false;
        loop {
            let (looked_up, storage) = {
                let state = self.state();
                (state.was_looked_up(host), state.lacking_storage(host))
            };
            if !looked_up {
                self.look_up_host(code, host);
                self.make_stacks_executable()?;
                continue;
            }
            let Some(lacking) = storage else { return Ok(()) };
            if lacking.fixed.is_some() && !waited {
                host.turn = Turn::wait();
                waited = true;
                continue;
            }
            // The thread with the claim has made the storage.
            if self.init_lock.is_taken() {
                return Ok(());
            }
            // Unsuitable storage goes first, so that its room can be used again.
            host.storage = None;
            host.storage = Some(Arc::new(Storage::open(&lacking.objects, lacking.fixed.as_deref())?));
        }
    }

    /// Makes stacks executable if a waiting object asks for it. No lock is held meanwhile.
    fn make_stacks_executable(&self) -> Result<()> {
        let asking = self.state().pending().iter().find(|(_, object)| object.index.executable_stack).cloned();
        let Some((_, object)) = asking else { return Ok(()) };
        let refused =
            |message| Error::Link(LinkError::ExecutableStackRefused { object: object.name.to_string(), message });
        runtime::executable_stack::enable(object.index.machine).map_err(refused)
    }

    /// Returns false if objects were added that sources of names were not asked for, or that need shared libraries.
    ///
    /// # Safety
    /// As for [`make_ready`](Self::make_ready); this thread has the claim.
    unsafe fn link_and_initialise(&self, host: &mut Host, answers: &Answers) -> Result<bool> {
        host.turn = None;
        // SAFETY: by the caller.
        let result = unsafe { self.run_batch(host, answers) };
        if !matches!(result, Ok(true)) && host.storage.as_ref().is_some_and(|storage| storage.is_fixed()) {
            // The next thread to claim the library needs the room that goes with `host`. This thread may have a turn, and
            // would wait for itself.
            host.turn = None;
            host.turn = Turn::wait();
        }
        result
    }

    /// Takes one batch from waiting to initialised. Returns false as [`link_and_initialise`](Self::link_and_initialise).
    ///
    /// # Safety
    /// As for [`link_and_initialise`](Self::link_and_initialise).
    unsafe fn run_batch(&self, host: &mut Host, answers: &Answers) -> Result<bool> {
        #[cfg(feature = "cuda")]
        let _current = self.remains.devices().map(Devices::make_current).transpose()?.flatten();
        let (code, before, bytes) = {
            let mut state = self.state();
            let bytes: usize = state.pending().iter().map(|(_, object)| object.bytes.len()).sum();
            let (code, before) = state.begin().ok_or_else(|| self.removed())?;
            (code, before, bytes)
        };
        let since = exit_handlers::now();
        let result = match self.link(&code, host, answers) {
            // SAFETY: by the caller.
            Ok(Some(batch)) => unsafe { self.initialise(&code, batch, (before, since), host).map(|()| true) },
            ended => {
                self.state().stage.end(before);
                ended.map(|_| false)
            }
        };
        malloc_trim::after_link(bytes);
        result
    }

    /// Links all objects that wait, in one batch, and returns it; none if sources of names were not asked for them all,
    /// or what they need was not opened.
    fn link(&self, code: &CodeRef, host: &mut Host, answers: &Answers) -> Result<Option<PendingList>> {
        self.add_archive_members()?;
        // Storage for thread-local variables moves only if another thread is in the loader at that very moment.
        for _ in 0..MOST_MOVES {
            let Some(mut batch) = self.take_batch(code, host, answers)? else { return Ok(None) };
            let linker = match self.context.linker(&batch.decided) {
                Ok(linker) => linker,
                Err(error) => {
                    self.state().restore(batch.objects);
                    return Err(error);
                }
            };
            let span = tracing::debug_span!(
                target: "slabjit", "slabjit::link", library = &*self.name.text(), objects = batch.objects.len()
            );
            let _entered = span.enter();
            let imports = batch.decided.iter_mut().map(|decided| std::mem::take(&mut decided.imports)).collect();
            let objects = std::mem::take(&mut batch.decided);
            let (library, arena) = (&self.name, &self.context.arena);
            let linked = linker.link(Batch { library, arena, objects, sets: &batch.plan });
            // No lock is held: this takes the dynamic loader's.
            let settled = linked.and_then(|linked| {
                let stays = host.storage.as_ref().map_or(Ok(true), |storage| storage.settle())?;
                Ok(stays.then_some(linked))
            });
            match settled {
                Ok(Some(linked)) => return self.enter(code, batch, imports, linked, host).map(Some),
                Ok(None) => self.state().restore(batch.objects),
                Err(error) => {
                    self.state().restore(batch.objects);
                    return Err(error);
                }
            }
            host.storage = None;
        }
        let message = "other threads opened and closed shared objects with such variables all the time".to_owned();
        let object = self.state().pending().first().map_or_else(String::new, |(_, object)| object.name.to_string());
        Err(Error::Link(LinkError::ThreadLocalStorage { object, message, source: None }))
    }

    /// Decides every symbol of the objects that wait, and takes them; none as [`link`](Self::link).
    fn take_batch(&self, code: &CodeRef, host: &mut Host, answers: &Answers) -> Result<Option<Taken>> {
        // The references are dropped without a lock.
        let mut used = Vec::new();
        loop {
            let mut state = self.state();
            let ready = state.was_looked_up(host) && state.lacking_storage(host).is_none();
            if !ready || !self.can_export(&state, host) {
                drop(state);
                // Objects were added since the call without the claim, or storage has moved.
                self.find_outside(code, host)?;
                host.turn = None;
                continue;
            }
            if state.needs != host.needs || !self.were_asked(state.pending(), answers) {
                return Ok(None);
            }
            let linked = |name: &str| self.linked_export(name, answers);
            let outside =
                Outside { elsewhere: self.elsewhere(), linked: &linked, code, arena: &self.context.arena, host };
            let (names, sets, pending) = (&state.names, &state.sets, state.pending());
            let (decided, plan) = decide::decide(&self.name, &outside, names, sets, pending, &mut used)?;
            used.extend(host.exporting.iter().cloned());
            let objects = state.take_pending();
            state.sets.begin(&plan);
            return Ok(Some(Taken { objects, decided, plan, used }));
        }
    }

    /// Enters a linked batch into the library: its names get their addresses, also in the process if they are exported,
    /// and its unwind tables are registered.
    fn enter(
        &self,
        code: &CodeRef,
        batch: Taken,
        imports: SmallVec<[Box<[Imported]>; 1]>,
        linked: LinkedBatch,
        host: &mut Host,
    ) -> Result<PendingList> {
        let Taken { objects: batch, plan, used, .. } = batch;
        let LinkedBatch { objects: mut linked, sets } = linked;
        let mut state = self.state();
        if state.stage.code().is_none() {
            return Err(self.removed());
        }
        code.keep(used);
        let own: SmallVec<[_; 1]> = linked.iter_mut().map(|linked| std::mem::take(&mut linked.own_sets)).collect();
        state.sets.settle(plan.bounds(sets.as_deref(), &batch, &own));
        let first = batch.first().map_or(0, |(number, _)| *number);
        let (mut images, mut told) = (Vec::with_capacity(batch.len()), SmallVec::<[_; 1]>::with_capacity(batch.len()));
        // SAFETY: by the linker, each section is terminated and published. An image drops its frames before the memory,
        // when nobody holds the code.
        let frames = unsafe { Frames::register_all(linked.iter().map(Image::table)) };
        for (((number, object), linked), (imports, frames)) in
            batch.iter().zip(linked).zip(imports.into_iter().zip(frames))
        {
            state.publish(*number, object, &linked);
            let wanted = tracing::enabled!(target: "slabjit", tracing::Level::DEBUG);
            let slab = linked.allocation.as_ref().filter(|_| wanted).map(|allocation| allocation.slab().spans());
            told.push((Arc::clone(object), slab, linked.bridges));
            // SAFETY: the linker has linked it from this object: its results are in the order of the batch.
            images.push(unsafe { Image::new(&self.name, object, (*number, first), imports, (linked, frames)) });
        }
        code.add(images);
        state.stage.linked();
        self.publish_exports(&state, code, host);
        drop(state);
        debuggers::announce();
        // No lock is held: subscribers may do what they like.
        for (object, slab, bridges) in told {
            if bridges > 0 {
                tracing::debug!(target: "slabjit", object = &*object.name.text(), bridges, "references were bridged");
            }
            if let Some(slab) = slab {
                let bytes: usize = slab.iter().map(ExactSizeIterator::len).sum();
                tracing::debug!(target: "slabjit", object = &*object.name.text(), ?slab, bytes, "linked");
            }
        }
        Ok(batch)
    }

    /// Runs the initialisers of a linked batch. If one fails, unloads the batch and puts its objects back to wait.
    ///
    /// # Safety
    /// As for [`link_and_initialise`](Self::link_and_initialise).
    unsafe fn initialise(
        &self,
        code: &CodeRef,
        batch: PendingList,
        (before, since): (Before, u64),
        host: &mut Host,
    ) -> Result<()> {
        let numbers: SmallVec<[u32; 1]> = batch.iter().map(|(number, _)| *number).collect();
        // SAFETY: by the caller. `link` published these objects, and nobody else has initialised them: they are no
        // longer pending, and the claim is ours.
        let Err((object, message)) = (unsafe { code.code().initialise(&numbers) }) else {
            self.state().keep(batch, before);
            return Ok(());
        };
        let (numbers, taken) = self.state().give_up(batch, before);
        // SAFETY: as above.
        let gone = unsafe { code.undo(&numbers, since, taken) };
        self.take_exports(&numbers, gone, host);
        Err(Error::Link(LinkError::InitializerFailed { object: object.to_string(), message }))
    }
}
