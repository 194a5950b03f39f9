//! The state of a library's objects: waiting objects, linked objects, and archives.

use std::path::PathBuf;
use std::sync::Arc;

use hashbrown::HashSet;
use smallvec::SmallVec;

use super::stage::{Before, Stage};

use crate::elf::SymbolKind;
use crate::live::images::lack_error;
use crate::live::library::archive_members::{Archives, MemberRef};
use crate::live::lifetime::loaded_library::{CodeRef, LoadedLibrary};
use crate::live::linked::linked_object::Linked;
use crate::live::resolve::decide::{Host, Wanted};
use crate::live::resolve::linker_sets::Known;
use crate::live::resolve::prepared::{Pending, PendingList, PreparedObject};
use crate::live::resolve::symbol::Symbol;
use crate::live::resolve::symbol_table::{Journal, Others, SymbolTable};
use crate::live::tls::Storage;
use crate::name::Name;
use crate::{Error, Result, SymbolMissing};

pub(super) struct State {
    /// `None` most of the time.
    pub(super) work: Option<Box<Work>>,
    /// The number of the next object.
    pub(super) next: u32,
    /// How often shared libraries were added to those that are to be opened before the next link.
    pub(super) needs: u32,
    pub(super) names: SymbolTable,
    /// Linker sets of linked objects.
    pub(super) sets: Known,
    pub(super) stage: Stage,
}

/// Waiting objects, batches under way, and archives.
#[derive(Default)]
pub(super) struct Work {
    /// Objects that wait to be linked, in the order of their numbers.
    pub(super) pending: PendingList,
    pub(super) archives: Archives,
    /// Shared libraries that are to be opened before the next link.
    pub(super) needed: Vec<PathBuf>,
    /// Names and bytes of the objects that were added, if they are kept.
    pub(super) kept: Vec<KeptObject>,
    /// Signatures of kernels, by image.
    contracts: Vec<Arc<str>>,
}

/// An object's name, and its bytes as they came.
pub(crate) type KeptObject = (Name, Arc<[u8]>);

/// Objects for whose thread-local variables there is no storage yet.
pub(super) struct Lacking {
    pub(super) objects: Vec<Pending>,
    /// The first object that needs it at a fixed distance from the thread pointer.
    pub(super) fixed: Option<Arc<PreparedObject>>,
}

impl Work {
    fn is_empty(&self) -> bool {
        self.pending.is_empty()
            && self.archives.is_empty()
            && self.needed.is_empty()
            && self.kept.is_empty()
            && self.contracts.is_empty()
    }
}

impl State {
    /// Returns the state of a library without objects.
    pub(super) fn new(code: CodeRef) -> Self {
        let (names, sets) = Default::default();
        Self { work: None, next: 0, needs: 0, names, sets, stage: Stage::Idle { code } }
    }

    /// Returns the library's code, unless it was removed.
    pub(super) fn code(&self) -> Option<CodeRef> {
        self.stage.code().cloned()
    }

    pub(super) fn pending(&self) -> &[Pending] {
        self.work.as_ref().map_or(&[], |work| &work.pending)
    }

    pub(super) fn take_pending(&mut self) -> PendingList {
        let pending = self.work.as_mut().map(|work| std::mem::take(&mut work.pending));
        self.rest();
        pending.unwrap_or_default()
    }

    /// Removes the library: drops its names and waiting objects. Returns its code. A batch under way goes on.
    pub(super) fn remove(&mut self) -> Option<CodeRef> {
        self.names.clear();
        self.sets = Known::default();
        self.work = None;
        self.stage.remove()
    }

    /// Frees an empty `work`: libraries are many, and most have nothing to do.
    pub(super) fn rest(&mut self) {
        self.work.take_if(|work| work.is_empty());
    }

    /// Returns the reason why a name is missing, and the name that may have been meant.
    pub(super) fn why_missing(&self, name: &str) -> SymbolMissing {
        if name.contains('\0') {
            return SymbolMissing::NulInName;
        }
        let mut defined: Vec<_> = self.names.iter().filter(|(_, s)| !s.hidden).map(|(name, _)| name).collect();
        // A C++ or Rust name that contains the requested one is likelier to be meant than the first by alphabet.
        defined.sort_unstable_by_key(|d| (!d.contains(name), *d));
        let more = defined.len().saturating_sub(8);
        defined.truncate(8);
        SymbolMissing::Undefined { defined: defined.into_iter().map(str::to_owned).collect(), more }
    }

    /// Adds all of these objects to those that wait, or none.
    pub(super) fn add(
        &mut self,
        library: &Name,
        code: &LoadedLibrary,
        objects: SmallVec<[Arc<PreparedObject>; 1]>,
    ) -> Result<()> {
        let (waiting, mut journal) = (self.pending().len(), self.names.journal());
        let kept = self.work.as_ref().map_or(0, |work| work.kept.len());
        let added = objects.into_iter().try_for_each(|object| self.add_one(library, code, object, &mut journal));
        if added.is_err() {
            self.names.undo(journal);
            self.work.iter_mut().for_each(|work| {
                work.pending.truncate(waiting);
                work.kept.truncate(kept);
            });
            self.rest();
        }
        added
    }

    fn add_one(
        &mut self,
        library: &Name,
        code: &LoadedLibrary,
        object: Arc<PreparedObject>,
        journal: &mut Journal,
    ) -> Result<()> {
        let number = self.next;
        let (names, pending) = (&mut self.names, self.work.as_ref().map_or(&[][..], |work| &work.pending));
        let name_of = |n: u32| match pending.binary_search_by_key(&n, |(number, _)| *number) {
            Ok(at) => pending.get(at).map_or_else(String::new, |(_, object)| object.name.to_string()),
            Err(_) => code.object_name(n).map_or_else(String::new, |name| name.to_string()),
        };
        // Its own definitions may clash, too.
        let waits = |n: u32| n == number || pending.binary_search_by_key(&n, |(number, _)| *number).is_ok();
        names.add(library, number, &object, &Others { name_of: &name_of, waits: &waits }, journal)?;
        if !object.sets().is_empty() {
            let dead = names.dead_sections(number, &object);
            self.sets.admit(library, &object, &dead, name_of)?;
        }
        self.next += 1;
        self.needs += u32::from(object.image.as_ref().is_some_and(|image| !image.needed.is_empty()));
        let work = self.work.get_or_insert_default();
        work.kept.extend(object.original.clone().map(|bytes| (object.name.clone(), bytes)));
        let contracts = object.image.as_ref().map_or("", |image| image.contracts(&object.bytes));
        work.contracts.extend((!contracts.is_empty()).then(|| contracts.into()));
        work.pending.push((number, object));
        Ok(())
    }

    /// Returns the signatures of kernels that images have, a line for each.
    pub(super) fn contracts(&self) -> Vec<Arc<str>> {
        self.work.as_ref().map_or_else(Vec::new, |work| work.contracts.clone())
    }

    /// Returns an error for a function that this CPU does not run.
    pub(super) fn check_cpu(&self, name: &str, symbol: &Symbol) -> Result<()> {
        match self.names.lack(symbol) {
            Some((object, lack)) => Err(Error::Image(lack_error(&object.text(), name, lack))),
            None => Ok(()),
        }
    }

    /// Returns the shared libraries that waiting images and objects need.
    pub(super) fn needed(&self) -> Vec<PathBuf> {
        let images = self.pending().iter().filter_map(|(_, object)| object.image.as_ref());
        let of_images = images.flat_map(|image| image.needed.iter().map(PathBuf::from));
        let of_objects = self.work.iter().flat_map(|work| &work.needed);
        of_images.chain(of_objects.cloned()).collect()
    }

    /// Adds shared libraries to those that are to be opened before the next link.
    pub(super) fn need(&mut self, libraries: &[PathBuf]) {
        if !libraries.is_empty() {
            self.work.get_or_insert_default().needed.extend_from_slice(libraries);
            self.needs += 1;
        }
    }

    /// Forgets shared libraries that were opened.
    pub(super) fn forget_needed(&mut self, opened: &[PathBuf]) {
        if let Some(work) = &mut self.work {
            work.needed.retain(|path| !opened.contains(path));
        }
    }

    /// Returns names that waiting objects import and the library does not define, `atexit` and its like aside.
    pub(super) fn foreign_imports(&self) -> Vec<(Box<str>, Wanted)> {
        let statics = self.static_names();
        let imports =
            self.pending().iter().flat_map(|(_, object)| object.index.imports.iter().map(move |i| (object, i)));
        let names = imports.map(|(object, import)| (object.index.name(import.name), import.thread_local));
        let mut foreign: Vec<(&str, bool)> = names.filter(|(name, _)| self.names.get(name).is_none()).collect();
        if self.pending().len() > 1 {
            // Most of them want the same of the host.
            foreign.sort_unstable();
            foreign.dedup();
        }
        let wanted = |(name, thread_local): (&str, bool)| {
            (Box::from(name), Wanted { thread_local, fixed: statics.contains(name) })
        };
        foreign.into_iter().map(wanted).collect()
    }

    /// Returns whether `host` has the imports of the objects that wait now.
    pub(super) fn was_looked_up(&self, host: &Host) -> bool {
        self.pending().iter().map(|(number, _)| number).eq(&host.objects)
    }

    /// Returns names of variables that code of waiting objects needs at a fixed distance from the thread pointer.
    pub(super) fn static_names(&self) -> HashSet<&str> {
        let objects = self.pending().iter().map(|(_, object)| &object.index);
        let with = objects.filter_map(|index| Some((index, index.thread_local.as_ref()?)));
        with.flat_map(|(index, thread_local)| thread_local.statics.iter().map(|name| index.name(*name))).collect()
    }

    /// Returns the waiting objects with thread-local variables, if `host` has no storage for just these, or not at a
    /// fixed distance from the thread pointer although some code needs it there.
    pub(super) fn lacking_storage(&self, host: &Host) -> Option<Lacking> {
        let has_variables = |(_, object): &&Pending| {
            object.index.thread_local.as_ref().is_some_and(|thread_local| !thread_local.sections.is_empty())
        };
        let with: Vec<_> = self.pending().iter().filter(has_variables).cloned().collect();
        if with.is_empty() {
            return None;
        }
        let statics = self.static_names();
        let fixed = |object: &&Arc<PreparedObject>| {
            let index = &object.index;
            let mut named = index.definitions.iter().filter(|d| d.kind == SymbolKind::ThreadLocal);
            index.thread_local.as_ref().is_some_and(|thread_local| thread_local.own_static)
                || !statics.is_empty() && named.any(|d| statics.contains(index.name(d.name)))
        };
        let fixed = with.iter().map(|(_, object)| object).find(fixed).cloned();
        let enough = |storage: &Storage| {
            storage.is_for(with.iter().map(|(number, _)| *number)) && (storage.is_fixed() || fixed.is_none())
        };
        let lacks = !host.storage.as_ref().is_some_and(|storage| enough(storage));
        lacks.then_some(Lacking { objects: with, fixed })
    }

    /// Begins a batch of the objects that wait; `None` for a removed library.
    pub(super) fn begin(&mut self) -> Option<(CodeRef, Before)> {
        let first = self.pending().first().map_or(self.next, |(number, _)| *number);
        self.stage.begin(first)
    }

    /// Keeps an initialised batch. A nested one may have to be undone with the outer one, which it may refer to.
    pub(super) fn keep(&mut self, batch: PendingList, before: Before) {
        self.stage.end(before);
        if before != Before::Idle
            && let Some(undo) = self.stage.undo()
        {
            undo.nested.extend(batch);
        }
    }

    /// Hides the names of a failed batch again, and puts its objects back to wait. A nested batch goes alone, the
    /// outermost with all that was linked since. Returns their numbers, and whether an address was given out.
    pub(super) fn give_up(&mut self, mut batch: PendingList, before: Before) -> (Vec<u32>, bool) {
        let taken = self.stage.undo().is_some_and(|undo| undo.taken);
        if let Some(undo) = self.stage.end(before) {
            batch.extend(undo.nested);
        }
        for (number, object) in &batch {
            self.withdraw(*number, object);
        }
        let numbers = batch.iter().map(|(number, _)| *number).collect();
        self.restore(batch);
        (numbers, taken)
    }

    /// Puts objects back to the front of those that wait.
    pub(super) fn restore(&mut self, mut batch: PendingList) {
        self.sets.forget(batch.iter().map(|(number, _)| *number));
        if self.stage.code().is_some() {
            batch.append(&mut self.take_pending());
            batch.sort_unstable_by_key(|(number, _)| *number);
            self.work.get_or_insert_default().pending = batch;
        }
    }

    pub(super) fn publish(&mut self, number: u32, object: &PreparedObject, linked: &Linked) {
        let index = &object.index;
        if object.image.is_some() {
            self.names.set_image(number, Some(&linked.definitions));
        }
        for (i, definition) in index.definitions.iter().enumerate() {
            let address = linked.definitions.get(i).copied().unwrap_or(0);
            let name = index.name(definition.name);
            let counts = |s: Symbol| s.object == number && s.definition == i as u32;
            if address != 0 && self.names.get(name).is_some_and(counts) {
                self.names.set_address(name, Some(address));
            }
        }
    }

    /// Removes the addresses of an object's definitions.
    pub(super) fn withdraw(&mut self, number: u32, object: &PreparedObject) {
        let index = &object.index;
        if object.image.is_some() {
            self.names.set_image(number, None);
        }
        for definition in index.definitions.iter().filter(|d| !d.absolute) {
            let name = index.name(definition.name);
            if self.names.get(name).is_some_and(|s| s.object == number) {
                self.names.set_address(name, None);
            }
        }
    }

    fn archives(&mut self) -> Option<&mut Archives> {
        self.work.as_mut().map(|work| &mut work.archives)
    }

    /// Returns the untaken member that defines a name.
    pub(super) fn member_defining(&mut self, name: &str) -> Option<MemberRef> {
        self.archives()?.defining(name)
    }

    /// Returns names and bytes of the taken members, archive by archive.
    #[cfg(feature = "cli")]
    pub(super) fn taken_members(&self) -> Result<Vec<(String, Vec<u8>)>> {
        self.work.as_ref().map_or(Ok(Vec::new()), |work| work.archives.taken_members())
    }

    pub(super) fn has_taken(&mut self, member: &MemberRef) -> bool {
        self.archives().is_none_or(|archives| archives.has_taken(member))
    }

    pub(super) fn take_member(&mut self, member: &MemberRef) {
        if let Some(archives) = self.archives() {
            archives.take(member);
        }
    }

    /// Returns the members that define imports of pending objects, each once.
    pub(super) fn wanted_members(&mut self) -> Vec<MemberRef> {
        let Self { work: Some(work), names, next, .. } = self else { return Vec::new() };
        work.archives.wanted(&work.pending, *next, names)
    }
}
