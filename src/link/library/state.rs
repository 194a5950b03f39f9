//! What a library knows of its objects: those that wait, those that are linked, and where more may be found.

use std::sync::Arc;

use hashbrown::HashSet;

use super::super::code::{Code, Hold};
use super::super::linked::Linked;
use super::super::names::{Journal, Names, Symbol};
use super::super::prepared::{Pending, PreparedObject};
use super::super::resolve::{Host, Wanted};
use super::super::sets::Known;
use super::super::thread_local::Storage;
use super::archives::{Archives, MemberRef};
use crate::Result;
use crate::elf::SymbolKind;
use crate::name::Name;

#[derive(Default)]
pub(super) struct State {
    /// `None` most of the time.
    pub(super) work: Option<Box<Work>>,
    /// The number of the next object.
    pub(super) next: u32,
    pub(super) names: Names,
    /// Linker sets of what is linked.
    pub(super) sets: Known,
    /// `None` once removed.
    pub(super) code: Option<Hold>,
    /// How many batches are being linked or initialised; more than one where an initialiser adds objects to its own
    /// library.
    pub(super) busy: u32,
}

/// What waits, what is under way, and where more may be found.
#[derive(Default)]
pub(super) struct Work {
    /// Objects that wait to be linked, in the order of their numbers.
    pub(super) pending: Vec<Pending>,
    /// What an outermost batch that is being initialised may have to undo.
    pub(super) undoing: Option<Undoing>,
    pub(super) archives: Archives,
}

/// Kept while initialisers run, which may fail.
pub(super) struct Undoing {
    /// The lowest number of an object whose initialisation may still be undone.
    pub(super) first: u32,
    /// Whether somebody was given an address in such an object.
    pub(super) taken: bool,
    /// Batches that were linked meanwhile, by initialisers of this one: they may refer to it.
    pub(super) nested: Vec<Pending>,
}

/// Objects for whose thread-local variables there is no storage yet.
pub(super) struct Lacking {
    pub(super) objects: Vec<Pending>,
    /// The first that needs it at a fixed distance from the thread pointer.
    pub(super) fixed: Option<Arc<PreparedObject>>,
}

impl State {
    pub(super) fn pending(&self) -> &[Pending] {
        self.work.as_ref().map_or(&[], |work| &work.pending)
    }

    pub(super) fn take_pending(&mut self) -> Vec<Pending> {
        let pending = self.work.as_mut().map(|work| std::mem::take(&mut work.pending));
        self.rest();
        pending.unwrap_or_default()
    }

    pub(super) fn undoing(&mut self) -> Option<&mut Undoing> {
        self.work.as_mut()?.undoing.as_mut()
    }

    /// What is under way goes on.
    pub(super) fn forget_what_waits(&mut self) {
        if let Some(work) = &mut self.work {
            (work.pending, work.archives) = Default::default();
        }
        self.rest();
    }

    /// Libraries are many, and most have nothing to do.
    pub(super) fn rest(&mut self) {
        self.work.take_if(|work| work.pending.is_empty() && work.undoing.is_none() && work.archives.is_empty());
    }

    /// Adds all of these objects to those that wait, or none.
    pub(super) fn add(&mut self, library: &Name, code: &Code, objects: Vec<PreparedObject>) -> Result<()> {
        let (waiting, mut journal) = (self.pending().len(), self.names.journal());
        let added = objects.into_iter().try_for_each(|object| self.add_one(library, code, object, &mut journal));
        if added.is_err() {
            self.names.undo(journal);
            self.work.iter_mut().for_each(|work| work.pending.truncate(waiting));
            self.rest();
        }
        added
    }

    fn add_one(&mut self, library: &Name, code: &Code, object: PreparedObject, journal: &mut Journal) -> Result<()> {
        let number = self.next;
        let (names, pending) = (&mut self.names, self.work.as_ref().map_or(&[][..], |work| &work.pending));
        let name_of = |n: u32| match pending.binary_search_by_key(&n, |(number, _)| *number) {
            Ok(at) => pending.get(at).map_or_else(String::new, |(_, object)| object.name.to_string()),
            Err(_) => code.object_name(n).map_or_else(String::new, |name| name.to_string()),
        };
        names.add(library, number, &object, &name_of, journal)?;
        if !object.sets().is_empty() {
            let dead = names.dead_sections(number, &object);
            self.sets.admit(library, &object, &dead, name_of)?;
        }
        self.next += 1;
        self.work.get_or_insert_default().pending.push((number, Arc::new(object)));
        Ok(())
    }

    /// Names that waiting objects import and the library does not define, `atexit` and its like aside.
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

    /// Whether `host` has what the objects that wait now import.
    pub(super) fn was_looked_up(&self, host: &Host) -> bool {
        self.pending().iter().map(|(number, _)| number).eq(&host.objects)
    }

    /// Names of variables that code of waiting objects needs at a fixed distance from the thread pointer.
    pub(super) fn static_names(&self) -> HashSet<&str> {
        let objects = self.pending().iter().map(|(_, object)| &object.index);
        let with = objects.filter_map(|index| Some((index, index.thread_local.as_ref()?)));
        with.flat_map(|(index, thread_local)| thread_local.statics.iter().map(|name| index.name(*name))).collect()
    }

    /// The waiting objects with thread-local variables, if `host` has no storage for just these, or not at a fixed distance from
    /// the thread pointer although some code needs it there.
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

    /// From here on, notes what the batch that is about to be linked would have to undo. True for an outermost batch.
    pub(super) fn begin_undoing(&mut self) -> bool {
        if self.undoing().is_some() {
            return false;
        }
        let first = self.pending().iter().map(|(number, _)| *number).min().unwrap_or(self.next);
        let undoing = Undoing { first, taken: false, nested: Vec::new() };
        self.work.get_or_insert_default().undoing = Some(undoing);
        true
    }

    pub(super) fn end_undoing(&mut self) -> Option<Undoing> {
        let undoing = self.work.as_mut()?.undoing.take();
        self.rest();
        undoing
    }

    /// A batch is linked and initialised. A nested one may have to be undone with the outer one, which it may refer to.
    pub(super) fn keep(&mut self, batch: Vec<Pending>, outermost: bool) {
        if outermost {
            self.end_undoing();
        } else if let Some(undoing) = self.undoing() {
            undoing.nested.extend(batch);
        }
    }

    /// A batch failed: hides its names again, and puts its objects back to those that wait. A nested batch goes alone, the
    /// outermost with all that was linked since. Returns their numbers, and whether an address was given out.
    pub(super) fn give_up(&mut self, mut batch: Vec<Pending>, outermost: bool) -> (Vec<u32>, bool) {
        let taken = self.undoing().is_some_and(|u| u.taken);
        if let Some(undoing) = outermost.then(|| self.end_undoing()).flatten() {
            batch.extend(undoing.nested);
        }
        for (number, object) in &batch {
            self.withdraw(*number, object);
        }
        let numbers = batch.iter().map(|(number, _)| *number).collect();
        self.restore(batch);
        (numbers, taken)
    }

    /// Somebody is given the address of a symbol: its memory must stay even if initialisation fails.
    pub(super) fn note_taken(&mut self, symbol: &Symbol) {
        if let Some(undoing) = self.undoing().filter(|u| symbol.object >= u.first) {
            undoing.taken = true;
        }
    }

    /// Marks a batch's definitions as being linked, or as not.
    pub(super) fn set_linking(&mut self, batch: &[Pending], linking: bool) {
        for (number, object) in batch {
            for definition in &object.index.definitions {
                self.names.set_linking(object.index.name(definition.name), *number, linking);
            }
        }
    }

    /// Puts objects back to the front of those that wait.
    pub(super) fn restore(&mut self, mut batch: Vec<Pending>) {
        self.set_linking(&batch, false);
        self.sets.forget(batch.iter().map(|(number, _)| *number));
        if self.code.is_some() {
            batch.append(&mut self.take_pending());
            batch.sort_unstable_by_key(|(number, _)| *number);
            self.work.get_or_insert_default().pending = batch;
        }
    }

    pub(super) fn publish(&mut self, number: u32, object: &PreparedObject, linked: &Linked) {
        let index = &object.index;
        for (i, definition) in index.definitions.iter().enumerate() {
            let address = linked.definitions.get(i).copied().unwrap_or(0);
            let name = index.name(definition.name);
            let counts = |s: &Symbol| s.object == number && s.definition == i as u32;
            if address != 0 && self.names.get(name).is_some_and(counts) {
                self.names.set_address(name, Some(address));
            }
        }
    }

    /// Forgets where an object's definitions are.
    pub(super) fn withdraw(&mut self, number: u32, object: &PreparedObject) {
        let index = &object.index;
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

    /// The member that defines a name, of those that were not taken yet.
    pub(super) fn member_defining(&mut self, name: &str) -> Option<MemberRef> {
        self.archives()?.defining(name)
    }

    /// Names and bytes of the members that were taken, archive by archive.
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

    /// Members that define what pending objects import, each once.
    pub(super) fn wanted_members(&mut self) -> Vec<MemberRef> {
        let Self { work: Some(work), names, next, .. } = self else { return Vec::new() };
        work.archives.wanted(&work.pending, *next, names)
    }
}
