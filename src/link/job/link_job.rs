//! One object's link: the decisions about its symbols, and the results.
#![allow(unsafe_code, reason = "contents of thread-local sections")]

use std::sync::Arc;

use slabjit_llvm_wrap as shim;
use smallvec::SmallVec;

use crate::elf::relocations::Kind;
use crate::elf::{ObjectIndex, Section, debug_image, locate};
use crate::fork_guard::{Guard, Mutex};
use crate::functions::FunctionList;
use crate::link::job::exports::Exports;
use crate::link::llvm::actions::Actions;
use crate::link::llvm::graph::{Asks, BoundGraph, Graph};
use crate::link::llvm::link_host::{Answer, LinkHost};
#[cfg(slabjit_faults)]
use crate::link::plain::compare;
use crate::link::plain::{Around, Decisions, Plain};
use crate::link::reach::{Block, Edge, Local, Missing, Reach};
use crate::live::linked::linked_object::{Allocation, Linked};
use crate::live::resolve::decided::{Decided, Defined, External};
use crate::live::resolve::linker_sets::{Memory, Room};
use crate::live::resolve::prepared::PreparedObject;
use crate::live::tls::{self, Storage, Variables};
use crate::memory::{
    Arena, Blame, BlamedSection, Extent, Lifetime, PlacementHints, Protection, PublishedSlab, SegmentRequest,
    WritableSlab,
};
use crate::name::Text;
use crate::out_of_range::OutOfRange;
use crate::{DebugInfo, Error, LinkError, ObjectError, Result};

/// An object while its batch is linked.
pub(in crate::link) struct LinkJob {
    pub(in crate::link) object: Arc<PreparedObject>,
    pub(in crate::link) externals: Vec<External>,
    pub(in crate::link) definitions: Vec<Defined>,
    /// Sections of COMDAT groups that are linked from another object, sorted.
    pub(in crate::link) dead_sections: Vec<u32>,
    /// The object's number in its library, and its position in the batch.
    pub(in crate::link) number: u32,
    pub(in crate::link) position: usize,
    /// Linker sets of the batch, if there are any.
    pub(in crate::link) sets: Option<Arc<Memory>>,
    /// What objects of the batch refer to in each other.
    pub(in crate::link) exports: Option<Arc<Exports>>,
    /// Storage for thread-local variables of the batch, if there are any.
    pub(in crate::link) storage: Option<Arc<Storage>>,
    /// Whether other objects are linked with it.
    pub(in crate::link) in_batch: bool,
    pub(in crate::link) arena: Arc<Arena>,
    pub(in crate::link) reach: Mutex<Reach>,
    pub(in crate::link) state: Mutex<State>,
}

/// What the objects of a batch share: their linker sets, and what they refer to in each other.
#[derive(Clone, Default)]
pub(in crate::link) struct Shared {
    pub(in crate::link) sets: Option<Arc<Memory>>,
    pub(in crate::link) exports: Option<Arc<Exports>>,
}

#[derive(Default)]
pub(in crate::link) struct State {
    writable: Option<WritableSlab>,
    published: Option<PublishedSlab>,
    /// Addresses at which the memory for stubs is written; 0 for absent memory.
    stubs: [usize; 3],
    /// Thread-local sections by index, with their addresses.
    thread_local: Vec<(u32, u64)>,
    pub(in crate::link) linked: Linked,
    /// The error: ours if we refused, otherwise LLVM's message.
    pub(in crate::link) failure: Option<Error>,
}

/// What came of linking an object without a graph.
#[derive(Default)]
pub(in crate::link) enum PlainLink<'a> {
    #[default]
    WantsGraph,
    Written,
    /// Its peers have to get their addresses first.
    Waits(Box<Plain<'a>>),
}

impl PlainLink<'_> {
    pub(in crate::link) fn wants_graph(&self) -> bool {
        matches!(self, Self::WantsGraph)
    }
}

impl LinkJob {
    /// Returns the job of an object that is linked by itself.
    pub(in crate::link) fn new(decided: Decided, arena: &Arc<Arena>, policy: OutOfRange) -> Self {
        Self::of_batch(decided, arena, policy, (0, false), Shared::default())
    }

    /// Returns the job of an object of a batch: its position, and whether there are others; what they share.
    pub(in crate::link) fn of_batch(
        decided: Decided,
        arena: &Arc<Arena>,
        policy: OutOfRange,
        (position, in_batch): (usize, bool),
        Shared { sets, exports }: Shared,
    ) -> Self {
        let Decided { object, externals, definitions, dead_sections, number, storage, .. } = decided;
        let reach = Mutex::new(Reach::new(object.index.machine, policy, arena.range()));
        let (arena, state) = (Arc::clone(arena), Mutex::default());
        Self {
            object,
            externals,
            definitions,
            dead_sections,
            number,
            position,
            sets,
            exports,
            storage,
            in_batch,
            arena,
            reach,
            state,
        }
    }

    /// Builds the object's graph, which asks this job.
    pub(in crate::link) fn graph(&self) -> Result<BoundGraph<'_>> {
        let object = &self.object;
        let graph = Graph::new(&object.name.text(), &object.bytes)
            .map_err(|message| Error::Link(LinkError::Failed { object: object.name.to_string(), message }))?;
        Ok(graph.bind(self, self.asks()))
    }

    /// Returns what its graph has to ask.
    fn asks(&self) -> Asks {
        let index = &self.object.index;
        let retain = !index.arrays.is_empty() || !index.retain.is_empty() || self.storage.is_some();
        Asks { retain, indirect: !index.indirect.is_empty(), locate: index.debug != DebugInfo::Names }
    }

    pub(in crate::link) fn state(&self) -> Guard<'_, State> {
        self.state.lock()
    }

    /// Returns the addresses of its memory, while it is linked.
    pub(in crate::link) fn ranges(&self) -> Vec<std::ops::Range<usize>> {
        let state = self.state();
        let placed = state.writable.iter().flat_map(WritableSlab::placements);
        placed.filter(|placed| placed.size != 0).map(|placed| placed.address..placed.address + placed.size).collect()
    }

    /// Returns whether a section is in a COMDAT group that is linked from another object.
    fn is_dead(&self, section: u32) -> bool {
        self.dead_sections.binary_search(&section).is_ok()
    }

    fn request(&self, s: &shim::slabjit_segment) -> Result<SegmentRequest> {
        let protection = match (s.executable != 0, s.writable != 0) {
            (true, true) => {
                // Preparation refuses such sections, so a pass of LLVM's made it.
                let (object, section) = (self.object.name.to_string(), "(made by LLVM)".to_owned());
                return Err(Error::Object(ObjectError::WritableAndExecutable { object, section }));
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
            overwritten: Extent::default(),
        })
    }

    fn slab(&self, requests: &[SegmentRequest], reach: &Reach) -> Result<WritableSlab> {
        let index = &self.object.index;
        let company = PlacementHints { shares: !reach.needs_one_slab(), batch: self.in_batch };
        self.arena.allocate(&self.object.name, requests, company, |blame| match blame {
            Blame::Largest => blamed(index, None, |s| s.size),
            Blame::Alignment { segment } => blamed(index, requests.get(segment).map(|r| r.protection), |s| s.alignment),
        })
    }

    /// Links the object up to its publication if it is plain, and refers to no other object of the batch.
    pub(in crate::link) fn link_plain(&self) -> Result<PlainLink<'_>> {
        let Self { object, externals, definitions, dead_sections, .. } = self;
        if self.sets.is_some() {
            return Ok(PlainLink::WantsGraph);
        }
        let are_near = self.exports.as_ref().is_some_and(|exports| exports.are_near);
        let decisions = Decisions { object, externals, definitions, dead_sections, are_near };
        let mut reach = self.reach();
        let Some(mut plain) = Plain::new(decisions, &mut reach) else {
            reach.restart();
            return Ok(PlainLink::WantsGraph);
        };
        let slab = self.slab(&plain.requests(), &reach)?;
        let definitions = plain.place(&slab);
        self.export(&definitions);
        if plain.is_together() {
            let mut state = self.state();
            (state.writable, state.linked.definitions) = (Some(slab), definitions);
            return Ok(PlainLink::Waits(Box::new(plain)));
        }
        if self.write(&plain, slab, definitions, &mut reach) {
            return Ok(PlainLink::Written);
        }
        reach.restart();
        Ok(PlainLink::WantsGraph)
    }

    /// Writes a plain object whose peers have their addresses.
    pub(in crate::link) fn write_together(&self, plain: &Plain<'_>) -> Result<()> {
        let mut state = self.state();
        let (slab, definitions) = (state.writable.take(), std::mem::take(&mut state.linked.definitions));
        drop(state);
        if slab.is_some_and(|slab| self.write(plain, slab, definitions, &mut self.reach())) {
            return Ok(());
        }
        self.checked(|_, _| ())?;
        // Each of its references fits wherever it leads.
        let message = "a reference to another object did not fit; please report this".to_owned();
        Err(Error::Link(LinkError::Failed { object: self.object.name.to_string(), message }))
    }

    /// Writes a plain object; false if a reference does not reach its target.
    fn write(&self, plain: &Plain<'_>, mut slab: WritableSlab, definitions: Vec<u64>, reach: &mut Reach) -> bool {
        let export = |number| self.exports.as_ref()?.address(number);
        let module = self.storage.as_ref().map(|storage| storage.module());
        let mut around = Around { reach, export, module };
        let Some(linked) = plain.write(&mut slab, definitions, &mut around) else { return false };
        #[cfg(slabjit_faults)]
        if compare::is_wanted(self.object.bytes.len()) {
            self.compare(plain, &mut slab, &linked);
        }
        let mut state = self.state();
        state.linked = linked;
        state.writable = Some(slab);
        true
    }

    /// Tells the batch where the definitions are that others need.
    fn export(&self, addresses: &[u64]) {
        let Some(exports) = &self.exports else { return };
        for (definition, address) in self.definitions.iter().zip(addresses) {
            if let Defined::Export(number) = definition {
                exports.define(*number, *address);
            }
        }
    }

    /// For tests: compares what was linked without a graph with what JITLink makes of it.
    #[cfg(slabjit_faults)]
    fn compare(&self, plain: &Plain<'_>, slab: &mut WritableSlab, linked: &Linked) {
        // What others have is at an address by now, and what they need is there for itself.
        let known = |external: &External| match external {
            External::Batch(number) => {
                External::Absolute(self.exports.as_ref().and_then(|exports| exports.address(*number)).unwrap_or(0))
            }
            other => other.clone(),
        };
        let definitions = self.definitions.iter().map(|definition| match definition {
            Defined::Discard(instead) => Defined::Discard(known(instead)),
            Defined::Keep | Defined::Export(_) => Defined::Keep,
        });
        let twin = Self {
            object: Arc::clone(&self.object),
            externals: self.externals.iter().map(known).collect(),
            definitions: definitions.collect(),
            dead_sections: self.dead_sections.clone(),
            sets: None,
            exports: None,
            storage: self.storage.clone(),
            arena: Arc::clone(&self.arena),
            reach: Mutex::new(Reach::new(self.object.index.machine, OutOfRange::Bridge, self.arena.range())),
            state: Mutex::default(),
            ..*self
        };
        compare::compare(&twin, self.asks(), plain, slab);
        let theirs = &twin.state().linked;
        let names = |linked: &Linked| {
            let sorted = linked.functions.sorted();
            sorted.all().iter().map(|f| (f.address, f.name.to_owned(), f.bytes)).collect::<Vec<_>>()
        };
        assert_eq!(linked.definitions, theirs.definitions, "{}", self.object.name);
        assert_eq!(linked.arrays, theirs.arrays, "{}", self.object.name);
        assert_eq!(linked.frames, theirs.frames, "{}", self.object.name);
        assert_eq!(names(linked), names(theirs), "{}", self.object.name);
    }

    /// Returns whether sections of this name are placed with those of other objects.
    fn is_in_set(&self, section: &str) -> bool {
        self.sets.as_ref().is_some_and(|sets| sets.has(section))
    }

    fn reach(&self) -> Guard<'_, Reach> {
        self.reach.lock()
    }

    /// Returns the object's name for a symbol that was renamed during the link.
    fn name_in_object(&self, ours: &str) -> Option<&str> {
        let (index, exports) = (&self.object.index, self.exports.as_ref()?);
        let is_ours = |number: u32| exports.name(number) == ours;
        let import = self.externals.iter().position(|e| matches!(e, External::Batch(number) if is_ours(*number)));
        if let Some(import) = import.and_then(|i| index.imports.get(i)) {
            return Some(index.name(import.name));
        }
        let definition = self.definitions.iter().position(|d| matches!(d, Defined::Export(number) if is_ours(*number)));
        Some(index.name(index.definitions.get(definition?)?.name))
    }
}

impl LinkHost for LinkJob {
    fn name(&self) -> Text<'_> {
        self.object.name.text()
    }

    fn bytes(&self) -> &[u8] {
        &self.object.bytes
    }

    fn external(&self, name: &str) -> Option<Answer<'_>> {
        let object = &self.object;
        let imported = object.import_named(name).and_then(|i| self.externals.get(i));
        // A definition that was discarded, or an absolute one, which is undefined in prepared bytes.
        let instead = || match self.definitions.get(object.definition_named(name)?)? {
            Defined::Discard(instead) => Some(instead),
            _ => None,
        };
        Some(match imported.or_else(instead)? {
            // The batch has put an address in the place of each bound.
            External::Leave | External::Bound(..) => Answer::Keep,
            External::Absolute(address) => Answer::Absolute(*address),
            External::Batch(number) => {
                let exports = self.exports.as_ref()?;
                exports.address(*number).map_or_else(|| Answer::Rename(exports.name(*number)), Answer::Absolute)
            }
        })
    }

    fn defined(&self, name: &str) -> Option<(usize, Option<Answer<'_>>)> {
        let i = self.object.definition_named(name)?;
        let answer = self.definitions.get(i).map(|definition| match definition {
            Defined::Keep => Answer::Keep,
            Defined::Export(number) => self.exports.as_ref().map_or(Answer::Keep, |e| Answer::Rename(e.name(*number))),
            Defined::Discard(_) => Answer::Discard,
        });
        Some((i, answer))
    }

    fn retain(&self, section: &str, offset: Option<u64>) -> u64 {
        let object = &self.object;
        if let Some(array) = offset.and_then(|o| object.array_at(section, o)) {
            let dead = object.index.arrays.get(array).is_some_and(|a| self.is_dead(a.section));
            return if dead { 0 } else { array as u64 + 1 };
        }
        if let Some(section) = object.thread_local(section) {
            return if self.is_dead(section) { 0 } else { THREAD_LOCAL + u64::from(section) };
        }
        match object.retained(section, offset) {
            Some(index) if !self.is_dead(index) => {
                let apart = if self.is_in_set(section) { shim::SLABJIT_APART } else { 0 };
                (RETAINED + u64::from(index)) | apart
            }
            _ => 0,
        }
    }

    fn is_indirect(&self, name: &str, offset: u64) -> bool {
        self.object.index.is_indirect(name, offset)
    }

    fn may_leave(&self, section: &str) -> bool {
        self.object.is_large(section)
    }

    fn place(&self, section: &str, offset: Option<u64>, size: u64, alignment: u64) -> Result<Room> {
        let room = self.sets.as_ref().and_then(|sets| sets.take(self.position, section, offset, size, alignment));
        room.ok_or_else(|| {
            Error::Link(LinkError::Failed {
                object: self.object.name.to_string(),
                message: format!("no room was made for section '{section}' of a linker set; please report this"),
            })
        })
    }

    fn allocate(&self, segments: &[shim::slabjit_segment], addresses: &mut [u64], written: &mut [u64]) -> Result<()> {
        let requests = segments.iter().map(|s| self.request(s)).collect::<Result<Vec<_>>>()?;
        let slab = self.slab(&requests, &self.reach())?;
        for ((address, written), placed) in addresses.iter_mut().zip(written).zip(slab.placements()) {
            (*address, *written) = (placed.address as u64, placed.written as u64);
        }
        self.state().writable = Some(slab);
        Ok(())
    }

    fn written(&self, address: u64) -> Option<usize> {
        self.state().writable.as_ref()?.written(address as usize)
    }

    unsafe fn publish(all: &[&Self]) -> Result<()> {
        let mut links = SmallVec::<[&Self; 1]>::with_capacity(all.len());
        let mut slabs = SmallVec::new();
        for link in all {
            let mut state = link.state();
            if let Some(storage) = &link.storage {
                // SAFETY: the sections lie in our slab, LLVM has written everything; nothing of the batch has run.
                unsafe { tls::copy_contents(&link.object, link.number, storage, &state.thread_local) };
            }
            if let Some(slab) = state.writable.take() {
                links.push(*link);
                slabs.push(slab);
            }
        }
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
                // This comes first: see `Linked`.
                all.iter().for_each(|link| link.state().linked.variables = None);
                drop(slabs);
                Err(error)
            }
        }
    }

    fn commit(&self, actions: Option<Actions>) {
        let mut state = self.state();
        if let Some(mut slab) = state.published.take() {
            slab.release_finalize_segments();
            let ending = actions.map(|actions| Box::new(actions) as _);
            state.linked.allocation = Some(Allocation::new(slab, ending));
        }
    }

    unsafe fn abandon(&self) {
        let mut state = self.state();
        // This comes first: see `Linked`.
        state.linked.variables = None;
        state.writable = None;
        state.published = None;
    }

    fn lifted(&self, origin: Option<u64>, edge: &shim::slabjit_edge) -> Option<&'static Kind> {
        self.object.index.lifted(origin?.checked_add(edge.offset.into())?)
    }

    fn survey(
        &self,
        bytes: u64,
        executable: bool,
        content: &[u8],
        edges: impl Iterator<Item = (Edge<'static>, Option<&'static Kind>)>,
    ) {
        self.reach().survey(bytes, executable, content, edges);
    }

    fn reserve(&self) -> [u64; 3] {
        self.reach().reserve()
    }

    fn settle(&self, stubs: [(u64, usize); 3], contents: [usize; 3], got: u64) {
        self.state().stubs = contents;
        self.reach().settle(stubs, got);
    }

    fn check(
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
                variable: of_threads.then(|| tls::find(raw.target, raw.target_block)).flatten(),
                module: self.storage.as_ref().map(|storage| storage.module()),
            };
            raw.drop = reach.check(&edge(raw), &mut block, lifted, local, |at| locate(&self.object.bytes, at)).into();
        }
    }

    fn checked(&self, write: impl Fn(usize, &[u8])) -> Result<()> {
        let stubs = self.state().stubs;
        let mut reach = self.reach();
        for (content, bytes) in stubs.into_iter().zip(reach.rooms()).filter(|(content, _)| *content != 0) {
            write(content, bytes);
        }
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
                Missing::StubArea => "for which no room was made; please report this",
            };
            let symbol = self.name_in_object(&symbol).map_or(symbol.clone(), str::to_owned);
            let object = self.object.name.to_string();
            return Err(Error::Link(LinkError::ThreadLocal {
                object,
                what: format!("{relocation} refers to '{symbol}', {why}"),
            }));
        }
        if let Some((mut references, more)) = reach.take_failures() {
            for reference in &mut references {
                if let Some(name) = self.name_in_object(&reference.symbol) {
                    reference.symbol = name.to_owned();
                }
            }
            let object = self.object.name.to_string();
            return Err(Error::Link(LinkError::ReferencesOutOfRange { object, references, more }));
        }
        let bridges = reach.bridges();
        self.state().linked.bridges = bridges;
        Ok(())
    }

    fn has_signal_frames(&self) -> bool {
        self.object.index.signal_frames
    }

    unsafe fn placed(&self, symbols: &[shim::slabjit_placed], blocks: &[shim::slabjit_placed], frames: u64) {
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
        let put = |list: &mut [u64], p: &shim::slabjit_placed| {
            if let Some(slot) = index_of_cookie(p.cookie).and_then(|i| list.get_mut(i)) {
                *slot = p.address;
            }
        };
        symbols.iter().for_each(|p| put(&mut linked.definitions, p));
        self.export(&linked.definitions);
        // An empty section of the same name may begin where an array does.
        blocks.iter().filter(|p| p.bytes != 0).for_each(|p| put(&mut linked.arrays, p));
        let own = |p: &shim::slabjit_placed| Some((retained_of_cookie(p.cookie)?, p.address..p.address + p.bytes));
        linked.own_sets = blocks.iter().filter_map(own).collect();
        state.thread_local = thread_local;
    }

    fn functions(&self, functions: &mut dyn Iterator<Item = (&str, u64, u64)>) {
        let mut list = FunctionList::default();
        functions.for_each(|(name, address, bytes)| list.push(name, address, bytes));
        self.state().linked.functions = list;
    }

    fn located(&self, blocks: &mut dyn Iterator<Item = (&str, Option<u64>, u64)>) {
        let object = &self.object;
        self.state().linked.debug_image = debug_image(&object.bytes, blocks, object.index.debug);
    }

    fn fail(&self, error: Error) {
        self.state().failure.get_or_insert(error);
    }
}

/// Returns the mapped section for which `by` is largest, with this protection if one is given.
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

/// The first cookie of thread-local sections; the section's index is added.
const THREAD_LOCAL: u64 = 1 << 32;

/// The first cookie of sections that are kept without a reference; the section's index is added.
const RETAINED: u64 = 2 << 32;

fn retained_of_cookie(cookie: u64) -> Option<u32> {
    u32::try_from(cookie.checked_sub(RETAINED)?).ok()
}

fn thread_local_of_cookie(cookie: u64) -> Option<u32> {
    u32::try_from(cookie.checked_sub(THREAD_LOCAL)?).ok()
}
