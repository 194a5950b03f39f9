//! One object under way: what was decided about its symbols, and what its link brought.
#![allow(unsafe_code)] // contents of thread-local sections

use std::sync::Arc;

use slabjit_llvm_wrap as shim;

use super::actions::Actions;
use super::decided::{Defined, External};
use super::linked::{Allocation, Linked};
use super::prepared::PreparedObject;
use super::reach::{Block, Edge, Local, Missing, Reach};
use super::sets::{Memory, Room};
use super::thread_local::{self, Storage, Variables};
use crate::elf::relocations::Kind;
use crate::elf::{ObjectIndex, Section, locate};
use crate::gate::{Guard, Mutex};
use crate::memory::{
    Arena, Blame, BlamedSection, Company, Lifetime, Protection, PublishedSlab, SegmentRequest, WritableSlab,
};
use crate::{Error, Result};

/// An object while its batch is linked.
pub(super) struct ObjectLink {
    pub(super) object: Arc<PreparedObject>,
    pub(super) externals: Vec<External>,
    pub(super) definitions: Vec<Defined>,
    /// Sections of COMDAT groups that are linked from another object, sorted.
    pub(super) dead_sections: Vec<u32>,
    /// Its number in its library, and its position in the batch.
    pub(super) number: u32,
    pub(super) position: usize,
    /// Linker sets that the batch puts together, if there are any.
    pub(super) sets: Option<Arc<Memory>>,
    /// Storage for thread-local variables of the objects that are linked with it, if there are any.
    pub(super) storage: Option<Arc<Storage>>,
    /// Others are linked with it.
    pub(super) in_batch: bool,
    pub(super) arena: Arc<Arena>,
    pub(super) reach: Mutex<Reach>,
    pub(super) state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    writable: Option<WritableSlab>,
    published: Option<PublishedSlab>,
    /// Where the memory of `Reach::rooms` is; 0 where there is none.
    pub(super) rooms: [usize; 3],
    /// Thread-local sections by index, and where they are.
    thread_local: Vec<(u32, u64)>,
    pub(super) linked: Linked,
    /// Why it failed: ours where we refused, else LLVM's words.
    pub(super) failure: Option<Error>,
}

impl ObjectLink {
    pub(super) fn state(&self) -> Guard<'_, State> {
        self.state.lock()
    }

    /// Whether a section is in a COMDAT group that is linked from another object.
    pub(super) fn is_dead(&self, section: u32) -> bool {
        self.dead_sections.binary_search(&section).is_ok()
    }

    pub(super) fn allocate(
        &self,
        segments: &[shim::slabjit_segment],
        addresses: &mut [u64],
        written: &mut [u64],
    ) -> Result<()> {
        let requests = segments.iter().map(|s| self.request(s)).collect::<Result<Vec<_>>>()?;
        let index = &self.object.index;
        let company = Company { shares: !self.reach().needs_one_slab(), batch: self.in_batch };
        let slab = self.arena.allocate(&self.object.name, &requests, company, |blame| match blame {
            Blame::Largest => blamed(index, None, |s| s.size),
            Blame::Alignment { segment } => blamed(index, requests.get(segment).map(|r| r.protection), |s| s.alignment),
        })?;
        for ((address, written), placed) in addresses.iter_mut().zip(written).zip(slab.placements()) {
            (*address, *written) = (placed.address as u64, placed.written as u64);
        }
        self.state().writable = Some(slab);
        Ok(())
    }

    /// Where what comes to lie at an address is written.
    pub(super) fn written(&self, address: u64) -> Option<usize> {
        self.state().writable.as_ref()?.written(address as usize)
    }

    fn request(&self, s: &shim::slabjit_segment) -> Result<SegmentRequest> {
        let protection = match (s.executable != 0, s.writable != 0) {
            (true, true) => {
                // Preparation refuses such sections, so it came from a pass of LLVM's.
                let (object, section) = (self.object.name.to_string(), "(made by LLVM)".to_owned());
                return Err(Error::WritableAndExecutable { object, section });
            }
            (true, false) => Protection::ReadExecute,
            (false, true) => Protection::ReadWrite,
            (false, false) => Protection::Read,
        };
        Ok(SegmentRequest {
            protection,
            lifetime: if s.finalize != 0 { Lifetime::Finalize } else { Lifetime::Standard },
            alignment: s.alignment,
            content_bytes: s.content_bytes,
            zero_fill_bytes: s.zero_fill_bytes,
            outside: s.outside != 0,
        })
    }

    /// Whether sections of this name lie with those of other objects.
    pub(super) fn is_in_set(&self, section: &str) -> bool {
        self.sets.as_ref().is_some_and(|sets| sets.has(section))
    }

    /// Where a section lies that is in a set with those of other objects.
    pub(super) fn place(&self, section: &str, offset: Option<u64>, size: u64, alignment: u64) -> Result<Room> {
        let room = self.sets.as_ref().and_then(|sets| sets.take(self.position, section, offset, size, alignment));
        room.ok_or_else(|| Error::Link {
            object: self.object.name.to_string(),
            message: format!("no room was made for section '{section}' of a linker set; please report this"),
        })
    }

    /// Publishes the memory of what is linked together.
    pub(super) fn publish(all: &[&Self]) -> Result<()> {
        let mut writable = Vec::with_capacity(all.len() + 1);
        for link in all {
            let mut state = link.state();
            if let Some(storage) = &link.storage {
                // SAFETY: the sections lie in our slab, LLVM has written everything; of what is linked together, nothing has run.
                unsafe { thread_local::copy_contents(&link.object, link.number, storage, &state.thread_local) };
            }
            writable.extend(state.writable.take().map(|slab| (*link, slab)));
        }
        let (links, mut slabs): (Vec<_>, Vec<_>) = writable.into_iter().unzip();
        let sets = all.first().and_then(|link| link.sets.as_ref());
        let sets = sets.and_then(|sets| {
            slabs.push(sets.take_writable()?);
            Some(sets)
        });
        match WritableSlab::publish_all(slabs) {
            Ok(mut slabs) => {
                if let Some(sets) = sets {
                    slabs.pop().into_iter().for_each(|slab| sets.set_published(slab));
                }
                links.into_iter().zip(slabs).for_each(|(link, slab)| link.state().published = Some(slab));
                Ok(())
            }
            Err((error, slabs)) => {
                // First: see `Linked`.
                all.iter().for_each(|link| link.state().linked.variables = None);
                drop(slabs);
                Err(error)
            }
        }
    }

    pub(super) fn commit(&self, actions: Actions) {
        let mut state = self.state();
        if let Some(mut slab) = state.published.take() {
            slab.release_finalize_segments();
            state.linked.allocation = Some(Allocation::new(slab, actions));
        }
    }

    pub(super) fn abandon(&self) {
        let mut state = self.state();
        // First: see `Linked`.
        state.linked.variables = None;
        state.writable = None;
        state.published = None;
    }

    pub(super) fn placed(&self, symbols: &[shim::slabjit_placed], blocks: &[shim::slabjit_placed], frames: u64) {
        let mut state = self.state();
        let linked = &mut state.linked;
        linked.definitions = vec![0; self.object.index.definitions.len()];
        linked.arrays = vec![0; self.object.index.arrays.len()];
        linked.slots = blocks.iter().filter(|p| p.cookie == shim::SLABJIT_SLOT).map(|p| p.address).collect();
        linked.frames = frames;
        let thread_local = blocks.iter().filter_map(|p| Some((thread_local_of_cookie(p.cookie)?, p.address)));
        let mut thread_local: Vec<_> = thread_local.collect();
        thread_local.sort_unstable();
        if let Some(storage) = self.storage.as_ref().filter(|_| !thread_local.is_empty()) {
            linked.variables = Some(Box::new(Variables::new(&self.object, self.number, storage, &thread_local)));
        }
        for (list, placed) in [(&mut linked.definitions, symbols), (&mut linked.arrays, blocks)] {
            for p in placed {
                if let Some(slot) = index_of_cookie(p.cookie).and_then(|i| list.get_mut(i)) {
                    *slot = p.address;
                }
            }
        }
        let own = |p: &shim::slabjit_placed| Some((retained_of_cookie(p.cookie)?, p.address..p.address + p.bytes));
        linked.own_sets = blocks.iter().filter_map(own).collect();
        state.thread_local = thread_local;
    }

    pub(super) fn reach(&self) -> Guard<'_, Reach> {
        self.reach.lock()
    }

    /// The kind of a reference that another kind carries, in a block from `origin` of the object's bytes.
    pub(super) fn lifted(&self, origin: Option<u64>, edge: &shim::slabjit_edge) -> Option<&'static Kind> {
        self.object.index.lifted(origin?.checked_add(edge.offset.into())?)
    }

    /// Looks at a block's references at final addresses.
    pub(super) fn check(
        &self,
        mut block: Block<'_>,
        edges: &mut [shim::slabjit_edge],
        edge: impl Fn(&shim::slabjit_edge) -> Edge<'static>,
    ) {
        let mut reach = self.reach();
        for raw in edges {
            let lifted = self.lifted(block.origin, raw);
            let of_threads = lifted.is_some_and(|kind| kind.tls);
            let local = Local {
                variable: of_threads.then(|| thread_local::find(raw.target, raw.target_block)).flatten(),
                module: self.storage.as_ref().map(|storage| storage.module()),
            };
            raw.drop = reach.check(&edge(raw), &mut block, lifted, local, |at| locate(&self.object.bytes, at)).into();
        }
    }

    /// The end of the check: what failed.
    pub(super) fn checked(&self) -> Result<()> {
        let mut reach = self.reach();
        if let Some((relocation, symbol, missing)) = reach.take_missing() {
            let why = match missing {
                Missing::Variable => "which is not a thread-local variable",
                Missing::Distance => {
                    "which is not at a fixed distance from the thread pointer: add the object that defines it together with this one, \
                     or compile with -fPIC -ftls-model=global-dynamic"
                }
                Missing::Module => {
                    "which is a variable of another library, or of an object that was linked before, and cannot be found together \
                     with those of this one: compile with -ftls-model=global-dynamic, or give it default visibility"
                }
                Missing::Room => "for which no room was made; please report this",
            };
            let symbol = self.name_in_object(&symbol).map_or(symbol.clone(), str::to_owned);
            let object = self.object.name.to_string();
            return Err(Error::ThreadLocal { object, what: format!("{relocation} refers to '{symbol}', {why}") });
        }
        if let Some((mut references, more)) = reach.take_failures() {
            for reference in &mut references {
                if let Some(name) = self.name_in_object(&reference.symbol) {
                    reference.symbol = name.to_owned();
                }
            }
            let object = self.object.name.to_string();
            return Err(Error::ReferencesOutOfRange { object, references, more });
        }
        let bridges = reach.bridges();
        self.state().linked.bridges = bridges;
        Ok(())
    }

    /// What the object calls a symbol that has a name of ours while a batch is linked.
    fn name_in_object(&self, ours: &str) -> Option<&str> {
        let index = &self.object.index;
        let import = self.externals.iter().position(|e| matches!(e, External::Batch(name) if **name == *ours));
        if let Some(import) = import.and_then(|i| index.imports.get(i)) {
            return Some(index.name(import.name));
        }
        let definition = self.definitions.iter().position(|d| matches!(d, Defined::Export(name) if **name == *ours));
        Some(index.name(index.definitions.get(definition?)?.name))
    }

    pub(super) fn fail(&self, error: Error) {
        self.state().failure.get_or_insert(error);
    }
}

/// The mapped section of which `by` is largest, among those with this protection if one is given.
fn blamed(index: &ObjectIndex, protection: Option<Protection>, by: impl Fn(&Section) -> u64) -> BlamedSection {
    let of = |s: &Section| match s.mapped()? {
        (true, _) => Some(Protection::ReadExecute),
        (false, true) => Some(Protection::ReadWrite),
        (false, false) => Some(Protection::Read),
    };
    let mapped = index.sections.iter().filter(|s| of(s).is_some());
    let suspects = mapped.filter(|s| protection.is_none() || of(s) == protection);
    suspects
        .max_by_key(|s| by(s))
        .map_or_else(BlamedSection::default, |s| BlamedSection { name: index.name(s.name).to_owned(), bytes: s.size })
}

/// Cookies are indices plus one: 0 means none.
fn index_of_cookie(cookie: u64) -> Option<usize> {
    usize::try_from(cookie).ok()?.checked_sub(1)
}

/// Cookies of thread-local sections begin here: their indices follow.
pub(super) const THREAD_LOCAL: u64 = 1 << 32;

/// Cookies of sections that are kept although nothing refers to them begin here: their indices follow.
pub(super) const RETAINED: u64 = 2 << 32;

fn retained_of_cookie(cookie: u64) -> Option<u32> {
    u32::try_from(cookie.checked_sub(RETAINED)?).ok()
}

fn thread_local_of_cookie(cookie: u64) -> Option<u32> {
    u32::try_from(cookie.checked_sub(THREAD_LOCAL)?).ok()
}
