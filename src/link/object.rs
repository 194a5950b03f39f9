//! One object under way: what was decided about its symbols, what its link brought, and the shim's callbacks.
#![allow(unsafe_code)] // callbacks from C++

use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slabjit_llvm_wrap as shim;

use super::code::{Actions, Allocation};
use super::name::Name;
use super::reach::{Block, Edge, Local, Missing, Reach, place_of};
use super::signal::Signal;
use super::thread_local::{self, Storage, Variables};
use crate::elf::relocations::Kind;
use crate::elf::{ObjectIndex, Section, locate, restore_signal_frames};
use crate::memory::{Arena, Blame, BlamedSection, Lifetime, Protection, SegmentRequest, WritableSlab};
use crate::{Error, Result};

/// An object, prepared and waiting to be linked.
#[derive(Debug)]
pub(super) struct PreparedObject {
    pub(super) name: Arc<str>,
    /// The same, for what outlives the link.
    pub(super) kept_name: Name,
    pub(super) bytes: Box<[u8]>,
    pub(super) index: ObjectIndex,
    /// Definitions and imports, each sorted by name where there are many.
    definitions_by_name: Vec<u32>,
    imports_by_name: Vec<u32>,
    /// Thread-local sections, sorted by name.
    thread_local_by_name: Vec<u32>,
}

impl PreparedObject {
    pub(super) fn new(name: Arc<str>, kept_name: Name, bytes: Box<[u8]>, index: ObjectIndex) -> Self {
        let definitions_by_name = sorted(index.definitions.len(), |i| index.name(index.definitions[i].name));
        let imports_by_name = sorted(index.imports.len(), |i| index.name(index.imports[i].name));
        let mut thread_local_by_name = index.thread_local.as_ref().map_or(Vec::new(), |t| t.sections.clone());
        thread_local_by_name.sort_unstable_by_key(|i| index.section_name(*i));
        Self { name, kept_name, bytes, index, definitions_by_name, imports_by_name, thread_local_by_name }
    }

    fn definition_named(&self, name: &str) -> Option<usize> {
        search(&self.definitions_by_name, self.index.definitions.len(), name, |i| {
            self.index.name(self.index.definitions[i].name)
        })
    }

    fn import_named(&self, name: &str) -> Option<usize> {
        search(&self.imports_by_name, self.index.imports.len(), name, |i| self.index.name(self.index.imports[i].name))
    }

    /// The initialiser or finaliser section whose contents begin at this offset.
    fn array_at(&self, offset: u64) -> Option<usize> {
        self.index.arrays.iter().position(|a| a.offset == offset && a.size != 0)
    }

    /// Whether sections of this name say that they are reached by 64-bit references only.
    fn is_large(&self, section: &str) -> bool {
        if self.index.large_sections.is_empty() {
            return false;
        }
        let mut same =
            self.index.sections.iter().zip(0..).filter(|(s, _)| self.index.name(s.name) == section).peekable();
        same.peek().is_some() && same.all(|(_, i)| self.index.large_sections.contains(&i))
    }

    /// The thread-local section of this name: each has one of its own.
    fn thread_local(&self, section: &str) -> Option<u32> {
        let found = self.thread_local_by_name.binary_search_by_key(&section, |i| self.index.section_name(*i)).ok()?;
        self.thread_local_by_name.get(found).copied()
    }

    /// The section to be retained that this block is: by its contents, or by name where it has none.
    fn retained(&self, section: &str, offset: Option<u64>) -> Option<u32> {
        let is = |s: &&u32| match (offset, self.index.sections.get(**s as usize)) {
            (Some(offset), Some(header)) => header.has_contents && header.offset == offset,
            _ => self.index.section_name(**s) == section,
        };
        self.index.retain.iter().find(is).copied()
    }
}

/// Up to here, names are searched one by one.
const FEW: usize = 8;

fn sorted<'n>(n: usize, name: impl Fn(usize) -> &'n str) -> Vec<u32> {
    if n <= FEW {
        return Vec::new();
    }
    let mut order: Vec<u32> = (0..n as u32).collect();
    order.sort_unstable_by_key(|i| name(*i as usize));
    order
}

fn search<'n>(order: &[u32], n: usize, wanted: &str, name: impl Fn(usize) -> &'n str) -> Option<usize> {
    if order.is_empty() {
        return (0..n).find(|i| name(*i) == wanted);
    }
    order.binary_search_by_key(&wanted, |i| name(*i as usize)).ok().map(|i| order[i] as usize)
}

/// What an import binds to.
#[derive(Debug, Clone)]
pub(super) enum External {
    /// The address is known.
    Absolute(u64),
    /// Another object of the same batch defines it, under this name.
    Batch(Arc<str>),
    /// JITLink defines it (`_GLOBAL_OFFSET_TABLE_`, `__start_…`), or nothing refers to it.
    Leave,
}

/// What becomes of a definition.
#[derive(Debug, Clone)]
pub(super) enum Defined {
    Keep,
    /// Another object of the batch needs it, under this name.
    Export(Arc<str>),
    /// Another object's definition counts; this is what references bind to instead.
    Discard(External),
}

/// What linking brought.
#[derive(Debug, Default)]
pub(super) struct Linked {
    /// `None` where the object has no thread-local variables. Dropped before the memory, whose addresses stand for them: others may
    /// get it at once.
    pub(super) variables: Option<Box<Variables>>,
    /// `None` where the object has no memory.
    pub(super) allocation: Option<Allocation>,
    /// By index of the definition; 0 for those that were discarded.
    pub(super) definitions: Vec<u64>,
    /// Address of each initialiser or finaliser section, by its index in `ObjectIndex::arrays`; 0 where there is none.
    pub(super) arrays: Vec<u64>,
    /// Start of `.eh_frame`, or 0.
    pub(super) frames: u64,
    /// How many references go through bridges.
    pub(super) bridges: u32,
    /// Addresses of the slots of indirect functions.
    pub(super) slots: Vec<u64>,
}

/// An object from `bind` to `end`. The shim holds one reference.
pub(super) struct ObjectLink {
    pub(super) object: Arc<PreparedObject>,
    pub(super) externals: Vec<External>,
    pub(super) definitions: Vec<Defined>,
    /// Sections of COMDAT groups that are linked from another object.
    pub(super) dead_sections: Vec<u32>,
    /// Its number in its library.
    pub(super) number: u32,
    /// Storage for thread-local variables of the objects that are linked with it, if there are any.
    pub(super) storage: Option<Arc<Storage>>,
    pub(super) arena: Arc<Arena>,
    pub(super) progress: Arc<Progress>,
    pub(super) reach: Mutex<Reach>,
    pub(super) state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    writable: Option<WritableSlab>,
    published: Option<crate::memory::PublishedSlab>,
    /// Where the memory of `Reach::rooms` is; 0 where there is none.
    rooms: [usize; 3],
    /// Thread-local sections by index, and where they are.
    thread_local: Vec<(u32, u64)>,
    pub(super) linked: Linked,
    /// Why it failed: ours where we refused, else LLVM's words.
    pub(super) failure: Option<Error>,
    /// It failed only because something else did.
    pub(super) secondary: Option<String>,
}

/// Counts the objects of a batch that the shim still holds.
#[derive(Default)]
pub(super) struct Progress {
    under_way: Signal<usize>,
}

impl Progress {
    fn begin(&self) {
        self.under_way.update(|n| *n += 1);
    }

    fn end(&self) {
        self.under_way.update(|n| *n -= 1);
    }

    /// Another thread may have taken over a part of the batch: ORC hands work out to whoever looks something up.
    pub(super) fn wait(&self) {
        self.under_way.wait(|n| (*n == 0).then_some(()));
    }
}

impl ObjectLink {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a reference to the shim, which gives it back through `end`.
    pub(super) fn into_shim(self: Arc<Self>) -> *mut c_void {
        self.progress.begin();
        Arc::into_raw(self).cast_mut().cast()
    }

    fn allocate(&self, segments: &[shim::slabjit_segment], addresses: &mut [u64]) -> Result<()> {
        let requests = segments.iter().map(|s| self.request(s)).collect::<Result<Vec<_>>>()?;
        let index = &self.object.index;
        let slab = self.arena.allocate(&self.object.name, &requests, |blame| match blame {
            Blame::Largest => blamed(index, None, |s| s.size),
            Blame::Alignment { segment } => blamed(index, requests.get(segment).map(|r| r.protection), |s| s.alignment),
        })?;
        for (address, placed) in addresses.iter_mut().zip(slab.placements()) {
            *address = placed.address as u64;
        }
        self.state().writable = Some(slab);
        Ok(())
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

    fn publish(&self) -> Result<()> {
        if let Some(storage) = &self.storage {
            // SAFETY: the sections lie in our slab, LLVM has written everything; of what is linked together, nothing has run.
            unsafe { thread_local::copy_contents(&self.object, self.number, storage, &self.state().thread_local) };
        }
        let writable = self.state().writable.take();
        let published = writable.map(WritableSlab::publish).transpose()?;
        self.state().published = published;
        Ok(())
    }

    fn commit(&self, actions: Actions) {
        let mut state = self.state();
        if let Some(mut slab) = state.published.take() {
            slab.release_finalize_segments();
            state.linked.allocation = Some(Allocation::new(slab, actions));
        }
    }

    fn abandon(&self) {
        let mut state = self.state();
        // First: see `Linked`.
        state.linked.variables = None;
        state.writable = None;
        state.published = None;
    }

    fn placed(&self, symbols: &[shim::slabjit_placed], blocks: &[shim::slabjit_placed], frames: u64) {
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
        state.thread_local = thread_local;
    }

    fn reach(&self) -> MutexGuard<'_, Reach> {
        self.reach.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kind of a reference that another kind carries, in a block from `origin` of the object's bytes.
    fn lifted(&self, origin: Option<u64>, edge: &shim::slabjit_edge) -> Option<&'static Kind> {
        self.object.index.lifted(origin?.checked_add(edge.offset.into())?)
    }

    /// Looks at a block's references at final addresses.
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
                variable: of_threads.then(|| thread_local::find(raw.target)).flatten(),
                module: self.storage.as_ref().map(|storage| storage.module()),
            };
            raw.drop = reach.check(&edge(raw), &mut block, lifted, local, |at| locate(&self.object.bytes, at)).into();
        }
    }

    /// The end of the check: what failed.
    fn checked(&self) -> Result<()> {
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
        if bridges > 0 {
            tracing::debug!(target: "slabjit", object = &*self.object.name, bridges, "references were bridged");
        }
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

    fn fail(&self, error: Error) {
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
const THREAD_LOCAL: u64 = 1 << 32;

fn thread_local_of_cookie(cookie: u64) -> Option<u32> {
    u32::try_from(cookie.checked_sub(THREAD_LOCAL)?).ok()
}

/// An array section that must not be pruned but is not reported.
const RETAINED: u64 = u64::MAX;

// ---- callbacks: thin, and nothing unwinds out of them ----

pub(super) static CALLBACKS: shim::slabjit_callbacks = shim::slabjit_callbacks {
    external,
    defined,
    retain_block,
    indirect,
    may_leave,
    survey,
    reserve,
    settled,
    check,
    checked,
    allocate,
    publish,
    commit,
    abandon,
    placed,
    failed,
    end,
    session_error,
};

/// Runs a callback's body; a panic in it (a bug of ours) is reported and becomes `otherwise`.
fn guarded<R>(otherwise: R, body: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        tracing::error!(target: "slabjit", "a callback of slabjit panicked; please report this");
        otherwise
    })
}

/// # Safety
/// `object` is what `ObjectLink::into_shim` returned, before its `end`.
unsafe fn link<'a>(object: *mut c_void) -> &'a ObjectLink {
    // SAFETY: the shim's reference keeps it alive; the callbacks share it, its state is behind a lock.
    unsafe { &*object.cast::<ObjectLink>() }
}

/// # Safety
/// Pointer and length are those of a string that the shim lends for the duration of the call.
unsafe fn text<'a>(data: *const c_char, len: usize) -> &'a str {
    if data.is_null() || len == 0 {
        return "";
    }
    // SAFETY: by the caller.
    let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) };
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// # Safety
/// Pointer and length are those of an array that the shim lends for the duration of the call.
unsafe fn slice<'a, T>(data: *const T, len: usize) -> &'a [T] {
    if len == 0 {
        return &[];
    }
    // SAFETY: by the caller.
    unsafe { std::slice::from_raw_parts(data, len) }
}

fn decide_external(external: &External, out: &mut shim::slabjit_decision) {
    match external {
        External::Leave => out.verdict = shim::SLABJIT_KEEP,
        External::Absolute(address) => {
            out.verdict = shim::SLABJIT_ABSOLUTE;
            out.address = *address;
        }
        External::Batch(name) => rename(name, out),
    }
}

fn rename(name: &Arc<str>, out: &mut shim::slabjit_decision) {
    out.verdict = shim::SLABJIT_RENAME;
    out.name = name.as_ptr().cast();
    out.name_len = name.len();
}

unsafe extern "C" fn external(object: *mut c_void, name: *const c_char, len: usize, out: *mut shim::slabjit_decision) {
    // SAFETY: all pointers are the shim's, valid for this call.
    let (link, name, out) = unsafe { (link(object), text(name, len), &mut *out) };
    guarded((), || {
        let object = &link.object;
        let imported = object.import_named(name).and_then(|i| link.externals.get(i));
        // A definition that was discarded, or an absolute one, which is undefined in prepared bytes.
        let instead = || match link.definitions.get(object.definition_named(name)?)? {
            Defined::Discard(instead) => Some(instead),
            _ => None,
        };
        if let Some(external) = imported.or_else(instead) {
            decide_external(external, out);
        }
    });
}

unsafe extern "C" fn defined(object: *mut c_void, name: *const c_char, len: usize, out: *mut shim::slabjit_decision) {
    // SAFETY: all pointers are the shim's, valid for this call.
    let (link, name, out) = unsafe { (link(object), text(name, len), &mut *out) };
    guarded((), || {
        out.verdict = shim::SLABJIT_DROP;
        let Some(i) = link.object.definition_named(name) else { return };
        out.cookie = i as u64 + 1;
        match link.definitions.get(i) {
            Some(Defined::Keep) => out.verdict = shim::SLABJIT_KEEP,
            Some(Defined::Export(name)) => rename(name, out),
            Some(Defined::Discard(_)) => out.verdict = shim::SLABJIT_DISCARD,
            None => {}
        }
    });
}

unsafe extern "C" fn retain_block(
    object: *mut c_void,
    section: *const c_char,
    len: usize,
    content: *const c_char,
) -> u64 {
    // SAFETY: all pointers are the shim's, valid for this call.
    let (link, section) = unsafe { (link(object), text(section, len)) };
    guarded(0, || {
        let offset = (content as usize).checked_sub(link.object.bytes.as_ptr() as usize);
        let offset = offset.filter(|o| *o < link.object.bytes.len()).map(|o| o as u64);
        let object = &link.object;
        if let Some(array) = offset.and_then(|o| object.array_at(o)) {
            let dead = object.index.arrays.get(array).is_some_and(|a| link.dead_sections.contains(&a.section));
            return if dead { 0 } else { array as u64 + 1 };
        }
        if let Some(section) = object.thread_local(section) {
            return if link.dead_sections.contains(&section) { 0 } else { THREAD_LOCAL + u64::from(section) };
        }
        match object.retained(section, offset) {
            Some(section) if !link.dead_sections.contains(&section) => RETAINED,
            _ => 0,
        }
    })
}

unsafe extern "C" fn indirect(object: *mut c_void, name: *const c_char, len: usize, content: *const c_char) -> c_int {
    // SAFETY: all pointers are the shim's, valid for this call.
    let (link, name) = unsafe { (link(object), text(name, len)) };
    guarded(0, || {
        let index = &link.object.index;
        let offset = (content as usize).wrapping_sub(link.object.bytes.as_ptr() as usize) as u64;
        let first = index.indirect.partition_point(|(_, resolver)| *resolver < offset);
        let here = index.indirect.iter().skip(first).take_while(|(_, resolver)| *resolver == offset);
        here.into_iter().any(|(known, _)| index.name(*known) == name).into()
    })
}

unsafe extern "C" fn may_leave(object: *mut c_void, section: *const c_char, len: usize) -> c_int {
    // SAFETY: all pointers are the shim's, valid for this call.
    let (link, section) = unsafe { (link(object), text(section, len)) };
    guarded(0, || link.object.is_large(section).into())
}

/// # Safety
/// `block` is the shim's, for this call; `content` is its bytes, as long as it is.
unsafe fn block<'a>(
    link: &ObjectLink,
    block: *const shim::slabjit_block,
) -> (&'a shim::slabjit_block, &'a str, Option<u64>) {
    // SAFETY: by the caller.
    let (block, section) = unsafe { (&*block, text((*block).section, (*block).section_len)) };
    let origin = (block.origin as usize).checked_sub(link.object.bytes.as_ptr() as usize);
    (block, section, origin.filter(|o| *o < link.object.bytes.len()).map(|o| o as u64))
}

/// # Safety
/// The record's name is lent for as long as the result is used.
unsafe fn edge(raw: &shim::slabjit_edge) -> Edge<'static> {
    Edge {
        relocation: raw.relocation,
        offset: raw.offset as usize,
        place: place_of(raw.place),
        addend: raw.addend,
        target: raw.target,
        // SAFETY: by the caller.
        symbol: unsafe { text(raw.symbol, raw.symbol_len) },
    }
}

unsafe extern "C" fn survey(
    object: *mut c_void,
    bytes: u64,
    raw: *const shim::slabjit_block,
    edges: *const shim::slabjit_edge,
    n: usize,
) {
    // SAFETY: the block, its original bytes and its edges are lent for this call.
    let (link, raw, origin, content, edges) = unsafe {
        let link = link(object);
        let (raw, _, origin) = block(link, raw);
        (link, raw, origin, slice(raw.origin.cast::<u8>(), raw.size as usize), slice(edges, n))
    };
    guarded((), || {
        // SAFETY: as above; `survey` keeps no edge.
        let edges = edges.iter().map(|e| (unsafe { edge(e) }, link.lifted(origin, e)));
        link.reach().survey(bytes, raw.executable != 0, content, edges);
    });
}

unsafe extern "C" fn reserve(object: *mut c_void, head: *mut u64, tail: *mut u64, data: *mut u64) {
    // SAFETY: all pointers are the shim's, valid for this call.
    let (link, head, tail, data) = unsafe { (link(object), &mut *head, &mut *tail, &mut *data) };
    guarded((), || [*head, *tail, *data] = link.reach().reserve());
}

unsafe extern "C" fn settled(object: *mut c_void, rooms: *const shim::slabjit_room, got: u64) {
    // SAFETY: three rooms, lent for this call; the memory they name is writable until `publish`.
    let (link, rooms) = unsafe { (link(object), slice(rooms, 3)) };
    guarded((), || {
        let room = |i: usize| rooms.get(i).map_or((0, 0), |r: &shim::slabjit_room| (r.address, r.size as usize));
        link.state().rooms = [0, 1, 2].map(|i| rooms.get(i).map_or(0, |r| r.content as usize));
        link.reach().settle([room(0), room(1), room(2)], got);
    });
}

unsafe extern "C" fn check(
    object: *mut c_void,
    raw: *const shim::slabjit_block,
    edges: *mut shim::slabjit_edge,
    n: usize,
) {
    // SAFETY: the block and its edges are lent for this call, and its memory is written by nobody else before `publish`.
    let (link, block, edges) = unsafe {
        let link = link(object);
        let (raw, section, origin) = block(link, raw);
        let content = std::slice::from_raw_parts_mut(raw.content, raw.size as usize);
        let edges = std::slice::from_raw_parts_mut(edges, n);
        (link, Block { section, executable: raw.executable != 0, address: raw.address, content, origin }, edges)
    };
    // SAFETY: as above; no edge is kept.
    guarded((), || link.check(block, edges, |e| unsafe { edge(e) }));
}

unsafe extern "C" fn checked(object: *mut c_void) -> c_int {
    // SAFETY: the shim's reference.
    let link = unsafe { link(object) };
    guarded(1, || {
        let rooms = link.state().rooms;
        for (content, bytes) in rooms.into_iter().zip(link.reach().rooms()) {
            if content != 0 {
                // SAFETY: `settled` was told of this memory, of which `bytes` is the size; nobody else writes it before `publish`.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), content as *mut u8, bytes.len()) };
            }
        }
        report(link, link.checked())
    })
}

unsafe extern "C" fn allocate(
    object: *mut c_void,
    segments: *const shim::slabjit_segment,
    n: usize,
    addresses: *mut u64,
    allocation: *mut *mut c_void,
) -> c_int {
    // SAFETY: both arrays have `n` elements, lent for this call; `allocation` may be written.
    let (link, segments, addresses) = unsafe {
        *allocation = object;
        let addresses = if n == 0 { &mut [][..] } else { std::slice::from_raw_parts_mut(addresses, n) };
        (link(object), slice(segments, n), addresses)
    };
    guarded(1, || report(link, link.allocate(segments, addresses)))
}

unsafe extern "C" fn publish(object: *mut c_void, _: *mut c_void) -> c_int {
    // SAFETY: the shim's reference.
    let link = unsafe { link(object) };
    guarded(1, || report(link, link.publish()))
}

fn report(link: &ObjectLink, result: Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            link.fail(error);
            1
        }
    }
}

unsafe extern "C" fn commit(object: *mut c_void, _: *mut c_void, actions: *mut shim::slabjit_actions) {
    // SAFETY: the shim's reference; the actions are ours from here on.
    let (link, actions) = unsafe { (link(object), Actions::from_shim(actions)) };
    guarded((), || link.commit(actions));
}

unsafe extern "C" fn abandon(object: *mut c_void, _: *mut c_void) {
    // SAFETY: the shim's reference.
    let link = unsafe { link(object) };
    guarded((), || link.abandon());
}

unsafe extern "C" fn placed(
    object: *mut c_void,
    symbols: *const shim::slabjit_placed,
    n_symbols: usize,
    blocks: *const shim::slabjit_placed,
    n_blocks: usize,
    eh_frame: u64,
    eh_frame_bytes: u64,
) {
    // SAFETY: arrays of these lengths, lent for this call.
    let (link, symbols, blocks) = unsafe { (link(object), slice(symbols, n_symbols), slice(blocks, n_blocks)) };
    guarded((), || {
        if link.object.index.signal_frames && eh_frame != 0 {
            // SAFETY: the whole section, linked; it is writable, and nobody else's, until `publish`.
            let frames = unsafe { std::slice::from_raw_parts_mut(eh_frame as *mut u8, eh_frame_bytes as usize) };
            restore_signal_frames(frames);
        }
        link.placed(symbols, blocks, eh_frame);
    });
}

unsafe extern "C" fn failed(object: *mut c_void, message: *const c_char, len: usize, secondary: c_int) {
    // SAFETY: the shim's reference, and a string lent for this call.
    let (link, message) = unsafe { (link(object), lossy(message, len)) };
    guarded((), || {
        if secondary != 0 {
            link.state().secondary.get_or_insert(message);
        } else {
            link.fail(Error::Link { object: link.object.name.to_string(), message });
        }
    });
}

/// # Safety
/// As for [`text`].
unsafe fn lossy(data: *const c_char, len: usize) -> String {
    // SAFETY: by the caller.
    String::from_utf8_lossy(unsafe { slice(data.cast::<u8>(), len) }).into_owned()
}

unsafe extern "C" fn end(object: *mut c_void) {
    // SAFETY: the reference that `into_shim` made, given back once.
    let link = unsafe { Arc::from_raw(object.cast::<ObjectLink>()) };
    guarded((), || {
        let progress = Arc::clone(&link.progress);
        drop(link);
        progress.end();
    });
}

unsafe extern "C" fn session_error(message: *const c_char, len: usize) {
    // SAFETY: a string lent for this call.
    let message = unsafe { lossy(message, len) };
    guarded((), || tracing::error!(target: "slabjit", message, "LLVM reported an error that belongs to no object"));
}
