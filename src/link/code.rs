//! What lives as long as someone holds it: a library's memory, frames and finalisers.
#![allow(unsafe_code)] // runs finalisers

use std::fmt;
use std::num::NonZero;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use once_cell::race::OnceBox;
use slabjit_llvm_wrap as shim;

use super::arrays::{self, Arrays, Entry};
#[cfg(feature = "cuda")]
use super::devices::Devices;
use super::drains::Drains;
use super::exit::{Handlers, Own, Support};
use super::few::Few;
use super::frames::{CodeRange, Frames};
use super::graph::take_text;
use super::hold::Hold;
use super::imports::Imported;
use super::indirect;
use super::life::Life;
use super::object::{Linked, PreparedObject};
#[cfg(feature = "tvm-ffi")]
use super::raising::Raising;
use super::registry::Registry;
use super::thread_local::Variables;
use crate::gate::{Guard, Mutex, Pass};
use crate::memory::{Arena, PublishedSlab, SlabRange};
use crate::name::Name;
use crate::runtime::SharedLibrary;
use crate::{Drain, Result};

/// JITLink's deallocation actions; dropping runs them, in reverse.
pub(super) struct Actions {
    raw: *mut shim::slabjit_actions,
}

// SAFETY: a list of calls that belongs to no session or thread.
unsafe impl Send for Actions {}
// SAFETY: nothing can be done with a shared reference.
unsafe impl Sync for Actions {}

impl Actions {
    /// # Safety
    /// `raw` is null, or comes from the shim and is owned by nobody else.
    pub(super) unsafe fn from_shim(raw: *mut shim::slabjit_actions) -> Self {
        Self { raw }
    }
}

impl fmt::Debug for Actions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Actions").field("any", &!self.raw.is_null()).finish()
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        let raw = std::mem::replace(&mut self.raw, ptr::null_mut());
        let _pass = Pass::take();
        // SAFETY: ours, and run once.
        if let Some(message) = take_text(unsafe { shim::slabjit_actions_run(raw) }) {
            tracing::error!(target: "slabjit", message, "a deallocation action failed");
        }
    }
}

/// The memory of one linked object. It is Rust's alone: LLVM holds no share.
#[derive(Debug)]
pub(super) struct Allocation {
    // Dropped in this order: the actions refer to the memory.
    _actions: Actions,
    slab: PublishedSlab,
}

impl Allocation {
    pub(super) fn new(slab: PublishedSlab, actions: Actions) -> Self {
        Self { _actions: actions, slab }
    }

    pub(super) fn slab(&self) -> &PublishedSlab {
        &self.slab
    }

    /// Runs the actions, and leaves the memory.
    fn into_slab(self) -> PublishedSlab {
        self.slab
    }
}

/// One linked object.
#[derive(Debug)]
pub(super) struct Image {
    object: Name,
    /// Position of the object in its library.
    number: u32,
    /// The same for all that were linked together, and for nobody else.
    batch: u32,
    /// References that go through bridges.
    bridges: u32,
    // Dropped in this order: frames describe the memory.
    _frames: Option<Frames>,
    /// Nobody uses it any more: threads that have destructors registered hold the library.
    _variables: Option<Box<Variables>>,
    allocation: Option<Allocation>,
    /// What it and others that were linked with it have of linker sets.
    sets: Option<Arc<PublishedSlab>>,
    /// `None` where there is nothing to call.
    arrays: Option<Box<Arrays>>,
    /// All of its initialisers have run.
    initialised: bool,
    imports: Box<[Imported]>,
}

impl Image {
    /// Registers the object's frames and reads its initialisers.
    pub(super) fn new(
        library: &Name,
        object: &PreparedObject,
        (number, batch): (u32, u32),
        imports: Box<[Imported]>,
        mut linked: Linked,
    ) -> Self {
        if let Some(allocation) = &mut linked.allocation {
            allocation.slab.belong_to(library, &object.kept_name);
        }
        let begin = NonZero::new(linked.frames).filter(|_| linked.allocation.is_some());
        let code = linked.allocation.as_ref().and_then(|allocation| {
            let (code, arena) = (allocation.slab.code()?, allocation.slab.arena());
            Some(CodeRange { addresses: code.start as u64..code.end as u64, arena: arena.start as u64 })
        });
        // SAFETY: JITLink terminates the section (EHFrameNullTerminator); it is published, and the image drops the frames
        // before the memory, when nobody holds the code.
        let frames = begin.map(|begin| unsafe { Frames::register(begin, code) });
        // SAFETY: the addresses are those of the same sections in the published memory.
        let arrays = unsafe { Arrays::read(&object.index, &linked.arrays, linked.slots) };
        // What a fuzzer makes up is linked, and never run.
        let arrays = if cfg!(slabjit_fuzzing) { Arrays::default() } else { arrays };
        Self {
            object: object.kept_name.clone(),
            number,
            batch,
            bridges: linked.bridges,
            _frames: frames,
            _variables: linked.variables,
            allocation: linked.allocation,
            sets: linked.sets,
            arrays: (!arrays.is_empty()).then(|| Box::new(arrays)),
            initialised: false,
            imports,
        }
    }

    /// Ends all but the memory.
    fn into_slab(self) -> Option<PublishedSlab> {
        let Self { _frames, _variables, allocation, .. } = self;
        drop((_frames, _variables));
        allocation.map(Allocation::into_slab)
    }

    /// Its slab, and the one that it has with others.
    fn ranges(&self) -> Vec<SlabRange> {
        let mut ranges = self.allocation.as_ref().map_or_else(Vec::new, |allocation| allocation.slab().ranges());
        ranges.extend(self.sets.iter().flat_map(|slab| slab.ranges()));
        ranges
    }
}

/// A library's code: all that must outlive the last handle on it, and nothing of LLVM's, as handles outlive the session. A [`Hold`] keeps
/// it; what has only an `Arc` knows of it.
#[derive(Debug)]
pub(crate) struct Code {
    life: Life,
    library: Name,
    images: Mutex<Few<Image>>,
    /// What few libraries need.
    support: OnceBox<Support>,
    drains: OnceBox<Drains>,
    #[cfg(feature = "cuda")]
    devices: OnceBox<Devices>,
    #[cfg(feature = "tvm-ffi")]
    raising: OnceBox<Raising>,
    enlisted: AtomicBool,
    finalised: AtomicBool,
    /// What this library may be linked against, if anything.
    ties: Option<Box<Mutex<Ties>>>,
    registry: Arc<Registry>,
}

/// What has to be called for objects that were linked together.
#[derive(Default)]
struct Waiting {
    objects: Vec<Object>,
    /// Initialisers in their order, and whose they are.
    entries: Vec<(usize, Entry)>,
    slots: Vec<(Name, u64)>,
    /// Whether there are finalisers.
    finalisers: bool,
}

/// An object that is being initialised.
struct Object {
    name: Name,
    number: u32,
    /// Where it is among the images.
    position: usize,
    /// Initialisers that have not run.
    left: usize,
}

/// What goes after everything of the library's own.
#[derive(Debug)]
struct Ties {
    shared: Arc<[SharedLibrary]>,
    /// Libraries that its references lead to.
    libraries: Vec<Hold>,
}

impl Code {
    /// `linked`: there are libraries that references may lead to.
    pub(super) fn new(library: Name, linked: bool, shared: Vec<SharedLibrary>, registry: &Arc<Registry>) -> Self {
        let any = linked || !shared.is_empty();
        Self {
            life: Life::new(),
            library,
            images: Mutex::default(),
            support: OnceBox::new(),
            drains: OnceBox::new(),
            #[cfg(feature = "cuda")]
            devices: OnceBox::new(),
            #[cfg(feature = "tvm-ffi")]
            raising: OnceBox::new(),
            enlisted: AtomicBool::new(false),
            finalised: AtomicBool::new(false),
            ties: any.then(|| Box::new(Mutex::new(Ties { shared: shared.into(), libraries: Vec::new() }))),
            registry: Arc::clone(registry),
        }
    }

    pub(super) fn life(&self) -> &Life {
        &self.life
    }

    /// It has come to its end, and nothing is left of it but this.
    pub(super) fn set_gone(&self) {
        self.life.set_gone();
        self.registry.one_has_gone();
    }

    pub(crate) fn library(&self) -> &Name {
        &self.library
    }

    /// Exit handlers, if the library's code can register any.
    pub(super) fn handlers(&self) -> Option<&Handlers> {
        self.support.get().map(|support| support.handlers())
    }

    /// # Safety
    /// The code is still there.
    unsafe fn run_handlers(&self, since: u64) {
        if let Some(handlers) = self.handlers() {
            // SAFETY: by the caller.
            unsafe { handlers.run(&self.library, since) };
        }
    }

    fn ties(&self) -> Option<Guard<'_, Ties>> {
        self.ties.as_ref().map(|ties| ties.lock())
    }

    pub(super) fn shared(&self) -> Arc<[SharedLibrary]> {
        self.ties().map_or_else(Arc::default, |ties| Arc::clone(&ties.shared))
    }

    /// Keeps libraries as long as this one.
    pub(super) fn keep(&self, libraries: Vec<Hold>) {
        if let Some(mut ties) = self.ties() {
            let new = libraries.into_iter().filter(|new| !ties.libraries.iter().any(|old| old.is_same(new)));
            let new: Vec<_> = new.collect();
            ties.libraries.extend(new);
        }
    }

    /// Whether this library keeps another one, over any number of others, or is it.
    pub(super) fn keeps(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        let (mut seen, mut next) = (Vec::<Arc<Self>>::new(), vec![Arc::clone(self)]);
        while let Some(code) = next.pop() {
            if Arc::ptr_eq(&code, other) {
                return true;
            }
            if !seen.iter().any(|known| Arc::ptr_eq(known, &code)) {
                next.extend(code.ties().iter().flat_map(|ties| &ties.libraries).map(|hold| Arc::clone(hold.code())));
                seen.push(code);
            }
        }
        false
    }

    /// Has the code wait for something.
    pub(super) fn drain(&self, drain: Box<dyn Drain>) {
        self.drains.get_or_init(Box::default).add(drain);
    }

    /// Whether the code has to wait for something.
    pub(super) fn drains(&self) -> bool {
        self.unfinished_drains() != 0
    }

    pub(super) fn unfinished_drains(&self) -> usize {
        // What nothing holds is held by nothing from then on.
        self.drains.get().map_or(0, |drains| drains.unfinished(self.life.holders() != 0))
    }

    /// Whether this thread is asking what it has to wait for.
    pub(super) fn drains_are_being_asked(&self) -> bool {
        self.drains.get().is_some_and(Drains::are_being_asked)
    }

    /// Waits for something that has to finish, if there is something, or so long.
    pub(super) fn wait_for_drains(&self, time: Duration) {
        if let Some(drains) = self.drains.get() {
            drains.wait(time);
        }
    }

    /// The devices it is for. Those that are given count if there are none yet.
    #[cfg(feature = "cuda")]
    pub(super) fn devices_or(&self, devices: impl FnOnce() -> Devices) -> &Devices {
        self.devices.get_or_init(|| Box::new(devices()))
    }

    /// The devices it is for, if it is for any.
    #[cfg(feature = "cuda")]
    pub(super) fn devices(&self) -> Option<&Devices> {
        self.devices.get()
    }

    /// The name of a linked object.
    pub(super) fn object_name(&self, number: u32) -> Option<Name> {
        self.images().iter().find(|i| i.number == number).map(|i| i.object.clone())
    }

    /// What the imports of each object were bound to.
    pub(super) fn imports(&self) -> Vec<(Name, Box<[Imported]>)> {
        self.images().iter().map(|i| (i.object.clone(), i.imports.clone())).collect()
    }

    fn images(&self) -> Guard<'_, Few<Image>> {
        self.images.lock()
    }

    /// The address of one of the functions that each library has a copy of; `arena` has room for them.
    pub(super) fn own_function(&self, own: Own, arena: &Arc<Arena>) -> Result<u64> {
        if let Some(address) = own.shared_address() {
            return Ok(address);
        }
        let support = self.support.get_or_try_init(|| Support::new(arena, &self.library).map(Box::new))?;
        Ok(support.address(own))
    }

    /// Where calls of a function lead that was found outside.
    #[cfg(feature = "tvm-ffi")]
    pub(super) fn led_through(&self, name: &str, function: u64, arena: &Arc<Arena>) -> Result<u64> {
        if !Raising::wants(name, function) {
            return Ok(function);
        }
        self.raising.get_or_init(Box::default).entry_point(function, arena, &self.library)
    }

    pub(super) fn add(&self, images: Vec<Image>) {
        self.images().append(images);
    }

    /// Runs the initialisers of the objects with these numbers, which were linked together, in the order of
    /// [`arrays`]. On failure says which object failed, and how.
    ///
    /// # Safety
    /// They may be run, and are run by one thread.
    pub(super) unsafe fn initialise(self: &Arc<Self>, numbers: &[u32]) -> Result<(), (Name, String)> {
        #[cfg(feature = "cli")]
        super::outermost::forget_floating_point();
        // Before anything runs: a process that ends in an initialiser has handlers and finalisers to run, as with dlopen.
        if let Some(support) = self.support.get() {
            support.handlers().belong_to(self);
            self.enlist();
        }
        let Waiting { mut objects, entries, slots, finalisers } = self.take_waiting(numbers);
        // All of them before any initialiser, as the dynamic loader has it: initialisers may call them.
        for (object, slot) in slots {
            // No lock is held: resolvers are linked code like any other.
            // SAFETY: by the caller; the slot is the object's, which is published, and `Image::new` registered its
            // frames.
            unsafe { indirect::resolve(slot) }.map_err(|message| (object, message))?;
        }
        if finalisers {
            self.enlist();
        }
        for (object, entry) in entries {
            let Some(object) = objects.get_mut(object) else { continue };
            if entry.function != 0 {
                // No lock is held: initialisers may look up, load and remove.
                // SAFETY: by the caller; the object is published, and `Image::new` registered its frames.
                unsafe { arrays::call(entry.function) }.map_err(|message| (object.name.clone(), message))?;
            }
            object.left -= 1;
            if object.left == 0 {
                self.set_initialised(object);
            }
        }
        Ok(())
    }

    /// What has to be called for these objects.
    fn take_waiting(&self, numbers: &[u32]) -> Waiting {
        let mut waiting = Waiting::default();
        // Most objects have nothing to call.
        let mut sorted = numbers.to_vec();
        sorted.sort_unstable();
        let mut images = self.images();
        // They lie in the order of the batch.
        for (position, image) in images.iter_mut().enumerate() {
            let Some(arrays) = image.arrays.as_mut().filter(|_| sorted.binary_search(&image.number).is_ok()) else {
                continue;
            };
            waiting.finalisers |= !arrays.finalisers().is_empty();
            waiting.slots.extend(arrays.take_slots().into_iter().map(|slot| (image.object.clone(), slot)));
            let (object, mut entries) = (waiting.objects.len(), arrays.take_initialisers());
            if entries.is_empty() {
                entries.push(Entry::NOTHING);
            }
            let (name, number, left) = (image.object.clone(), image.number, entries.len());
            waiting.objects.push(Object { name, number, position, left });
            waiting.entries.extend(entries.into_iter().map(|entry| (object, entry)));
        }
        arrays::put_in_order(&mut waiting.entries);
        waiting
    }

    fn set_initialised(&self, object: &Object) {
        let mut images = self.images();
        let is = |image: &&mut Image| image.number == object.number;
        // Where it was, unless others before it have gone since.
        let there = images.get(object.position).is_some_and(|image| image.number == object.number);
        let image = if there { images.get_mut(object.position) } else { images.iter_mut().find(is) };
        if let Some(image) = image {
            image.initialised = true;
            // Nobody will ask again.
            image.arrays.take_if(|arrays| arrays.finalisers().is_empty());
        }
    }

    fn enlist(self: &Arc<Self>) {
        if !self.enlisted.swap(true, Ordering::Relaxed) {
            super::exit::enlist(self);
        }
    }

    /// The finalisers of those objects for which this is true and that were initialised, once, in the order of
    /// [`arrays::finalise`]: batch by batch.
    fn take_finalisers(&self, is: impl Fn(&Image) -> bool) -> Vec<(Name, Entry)> {
        let mut batches: Vec<(u32, Vec<(Name, Entry)>)> = Vec::new();
        for image in self.images().iter_mut().filter(|image| image.initialised && is(image)) {
            let Some(arrays) = image.arrays.take() else { continue };
            if batches.last().is_none_or(|(batch, _)| *batch != image.batch) {
                batches.push((image.batch, Vec::new()));
            }
            let entries = arrays.finalisers().iter().map(|entry| (image.object.clone(), *entry));
            batches.iter_mut().last().into_iter().for_each(|(_, all)| all.extend(entries.clone()));
        }
        batches.iter_mut().for_each(|(_, all)| arrays::put_in_order(all));
        batches.into_iter().flat_map(|(_, all)| all).collect()
    }

    /// Undoes a batch whose initialisation failed: runs the finalisers of what was initialised, and the exit handlers
    /// registered since. Its memory goes with what is returned, unless somebody was given an address in it: `taken` says so.
    ///
    /// # Safety
    /// As for [`initialise`](Self::initialise).
    #[must_use = "dropping the images takes the dynamic loader's lock"]
    pub(super) unsafe fn undo(&self, numbers: &[u32], since: u64, mut taken: bool) -> Vec<Image> {
        let mut sorted = numbers.to_vec();
        sorted.sort_unstable();
        let is = |image: &Image| sorted.binary_search(&image.number).is_ok();
        // SAFETY: initialised, and finalised by nobody else, as they were taken.
        unsafe { arrays::finalise(&self.take_finalisers(is)) };
        // SAFETY: the images are still there.
        unsafe { self.run_handlers(since) };
        if let Some(handlers) = self.handlers() {
            handlers.forget_other_lists(since);
            // Threads will run destructors there.
            taken |= handlers.threads_have_some(since);
        }
        if !taken {
            self.images().extract(|i| is(i))
        } else {
            // A handle taken meanwhile may point in: the memory stays until the library goes, under a number that no
            // object has.
            for image in self.images().iter_mut().filter(|i| is(i)) {
                image.number = u32::MAX;
            }
            Vec::new()
        }
    }

    pub(super) fn is_finalised(&self) -> bool {
        self.finalised.load(Ordering::Acquire)
    }

    /// Runs finalisers and then exit handlers, once. It is the order of `dlclose`; a process that ends has run the handlers
    /// before it calls this.
    pub(super) fn finalise(&self) {
        if self.finalised.swap(true, Ordering::AcqRel) {
            return;
        }
        let entries = self.take_finalisers(|_| true);
        // Whatever has become of the device, they run.
        #[cfg(feature = "cuda")]
        let _current = self.devices().and_then(Devices::make_current_for_the_end);
        // SAFETY: initialised, and finalised once.
        unsafe { arrays::finalise(&entries) };
        // SAFETY: the images are taken by `end` afterwards, hence still there.
        unsafe { self.run_handlers(0) };
    }

    /// References that go through bridges.
    pub(crate) fn bridges(&self) -> u64 {
        self.images().iter().map(|i| u64::from(i.bridges)).sum()
    }

    /// Whether an address is in the code.
    pub(super) fn contains(&self, address: usize) -> bool {
        self.slab_containing(address, None).is_some()
    }

    /// The ranges of the slabs of an object that has this address, of the one with this number if it is among them.
    pub(super) fn slab_containing(&self, address: usize, number: Option<u32>) -> Option<Vec<SlabRange>> {
        let images = self.images();
        let of = |image: &Image| {
            let ranges = image.ranges();
            ranges.iter().any(|r| r.addresses.contains(&address)).then_some(ranges)
        };
        let named = images.iter().find(|image| number == Some(image.number)).and_then(of);
        named.or_else(|| images.iter().find_map(of))
    }

    /// Runs finalisers, and frees everything. Returns the libraries that this one kept. Called once, when nothing holds the code and
    /// nothing has to be waited for.
    pub(super) fn end(&self) -> Vec<Hold> {
        let span = tracing::debug_span!(target: "slabjit", "slabjit::remove", library = &*self.library.text());
        let _entered = span.enter();
        self.finalise();
        // Last in, first out.
        let mut images = std::mem::take(&mut *self.images());
        let mut slabs = Vec::new();
        while let Some(image) = images.pop() {
            slabs.extend(image.into_slab());
        }
        PublishedSlab::give_back(slabs);
        if let Some(support) = self.support.get() {
            support.end();
        }
        #[cfg(feature = "tvm-ffi")]
        if let Some(raising) = self.raising.get() {
            raising.end();
        }
        let ties = self.ties().map(|mut ties| (std::mem::take(&mut ties.shared), std::mem::take(&mut ties.libraries)));
        let (shared, libraries) = ties.unwrap_or_default();
        drop(shared);
        #[cfg(feature = "cuda")]
        if let Some(devices) = self.devices() {
            devices.release();
        }
        libraries
    }
}
