//! What lives as long as someone holds it: a library's memory, frames and finalisers.
#![allow(unsafe_code)] // runs finalisers

use std::fmt;
use std::num::NonZero;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use once_cell::race::OnceBox;
use slabjit_llvm_wrap as shim;

use super::arrays::Arrays;
use super::exit::{Handlers, Own, Support};
use super::few::Few;
use super::frames::Frames;
use super::indirect;
use super::name::Name;
use super::object::{Linked, PreparedObject};
use super::session::take_text;
use super::thread_local::Variables;
use crate::Result;
use crate::memory::{Arena, PublishedSlab};
use crate::runtime::SharedLibrary;

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
        // SAFETY: ours, and run once.
        if let Some(message) = take_text(unsafe { shim::slabjit_actions_run(raw) }) {
            tracing::error!(target: "slabjit", message, "a deallocation action failed");
        }
    }
}

/// The memory of one linked object. It is Rust's alone: ORC holds no share, so the session may go first.
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
}

/// One linked object.
#[derive(Debug)]
pub(super) struct Image {
    object: Name,
    /// Position of the object in its library.
    number: u32,
    /// References that go through bridges.
    bridges: u32,
    // Dropped in this order: frames describe the memory.
    _frames: Option<Frames>,
    /// Nobody uses it any more: threads that have destructors registered hold the library.
    _variables: Option<Box<Variables>>,
    allocation: Option<Allocation>,
    /// `None` where there is nothing to call.
    arrays: Option<Box<Arrays>>,
    initialised: bool,
}

impl Image {
    /// Registers the object's frames and reads its initialisers.
    pub(super) fn new(object: &PreparedObject, number: u32, linked: Linked) -> Self {
        let begin = NonZero::new(linked.frames).filter(|_| linked.allocation.is_some());
        // SAFETY: JITLink terminates the section (EHFrameNullTerminator); it is published, and the image drops the frames
        // before the memory.
        let frames = begin.map(|begin| unsafe { Frames::register(begin) });
        // SAFETY: the addresses are those of the same sections in the published memory.
        let arrays = unsafe { Arrays::read(&object.index.arrays, &linked.arrays, linked.slots) };
        Self {
            object: object.kept_name.clone(),
            number,
            bridges: linked.bridges,
            _frames: frames,
            _variables: linked.variables,
            allocation: linked.allocation,
            arrays: (!arrays.is_empty()).then(|| Box::new(arrays)),
            initialised: false,
        }
    }

    /// Bytes in the arena, and the place.
    fn span(&self) -> Option<Range<usize>> {
        self.allocation.as_ref().map(|a| a.slab.span())
    }
}

/// All that must outlive the last handle on a library, and nothing of LLVM's: handles outlive the session.
#[derive(Debug)]
pub(crate) struct Code {
    library: Name,
    images: Mutex<Few<Image>>,
    /// What few libraries need.
    support: OnceBox<Support>,
    enlisted: AtomicBool,
    finalised: AtomicBool,
    /// What this library was linked against, if anything; dropped after everything of its own.
    ties: Option<Box<Ties>>,
}

#[derive(Debug)]
struct Ties {
    shared: Vec<SharedLibrary>,
    _libraries: Vec<Arc<Code>>,
}

impl Code {
    pub(super) fn new(library: Name, libraries: Vec<Arc<Code>>, shared: Vec<SharedLibrary>) -> Self {
        let any = !libraries.is_empty() || !shared.is_empty();
        Self {
            library,
            images: Mutex::default(),
            support: OnceBox::new(),
            enlisted: AtomicBool::new(false),
            finalised: AtomicBool::new(false),
            ties: any.then(|| Box::new(Ties { shared, _libraries: libraries })),
        }
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

    pub(super) fn shared(&self) -> &[SharedLibrary] {
        self.ties.as_ref().map_or(&[], |ties| &ties.shared)
    }

    /// The name of a linked object.
    pub(super) fn object_name(&self, number: u32) -> Option<Name> {
        self.images().iter().find(|i| i.number == number).map(|i| i.object.clone())
    }

    fn images(&self) -> MutexGuard<'_, Few<Image>> {
        self.images.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address of one of the functions that each library has a copy of; `arena` has room for them.
    pub(super) fn own_function(&self, own: Own, arena: &Arc<Arena>) -> Result<u64> {
        if let Some(address) = own.shared_address() {
            return Ok(address);
        }
        let support = self.support.get_or_try_init(|| Support::new(arena, &self.library).map(Box::new))?;
        Ok(support.address(own))
    }

    pub(super) fn add(&self, images: Vec<Image>) {
        self.images().append(images);
    }

    /// Runs the initialisers of the objects with these numbers, in order. On failure says which object failed, and how.
    ///
    /// # Safety
    /// They may be run, and are run by one thread.
    pub(super) unsafe fn initialise(self: &Arc<Self>, numbers: &[u32]) -> Result<(), (Name, String)> {
        // Before anything runs: a process that ends in an initialiser has handlers and finalisers to run, as with dlopen.
        if let Some(support) = self.support.get() {
            support.handlers().belong_to(self);
            self.enlist();
        }
        // All of them before any initialiser, as the dynamic loader has it: initialisers may call them.
        for &number in numbers {
            let slots = |i: &mut Image| Some((i.object.clone(), i.arrays.as_mut()?.take_slots()));
            let Some((object, slots)) = self.with_image(number, slots).flatten() else { continue };
            for slot in slots {
                // No lock is held: resolvers are linked code like any other.
                // SAFETY: by the caller; the slot is the object's, which is published, and `Image::new` registered its frames.
                unsafe { indirect::resolve(slot) }.map_err(|message| (object.clone(), message))?;
            }
        }
        for &number in numbers {
            let taken = self.with_image(number, |i| {
                // Without initialisers, it is initialised.
                i.initialised = i.arrays.is_none();
                Some((i.object.clone(), i.arrays.take()?))
            });
            let Some((object, arrays)) = taken.flatten() else { continue };
            if arrays.has_finalisers() {
                self.enlist();
            }
            // No lock is held: initialisers may look up, load and remove.
            // SAFETY: by the caller; the object is published, and `Image::new` registered its frames.
            let result = unsafe { arrays.initialise() };
            self.with_image(number, |i| {
                i.arrays = Some(arrays);
                i.initialised = result.is_ok();
            });
            result.map_err(|message| (object, message))?;
        }
        Ok(())
    }

    fn enlist(self: &Arc<Self>) {
        if !self.enlisted.swap(true, Ordering::Relaxed) {
            super::exit::enlist(self);
        }
    }

    fn with_image<R>(&self, number: u32, with: impl FnOnce(&mut Image) -> R) -> Option<R> {
        self.images().iter_mut().find(|i| i.number == number).map(with)
    }

    /// Undoes a batch whose initialisation failed: runs the finalisers of what was initialised, and the exit handlers
    /// registered since. Its memory goes with what is returned, unless somebody was given an address in it: `taken` says so.
    ///
    /// # Safety
    /// As for [`initialise`](Self::initialise).
    #[must_use = "dropping the images takes the dynamic loader's lock"]
    pub(super) unsafe fn undo(&self, numbers: &[u32], since: u64, mut taken: bool) -> Vec<Image> {
        for &number in numbers.iter().rev() {
            let taken =
                self.with_image(number, |i| (std::mem::take(&mut i.initialised), i.arrays.take(), i.object.clone()));
            if let Some((true, Some(arrays), object)) = taken {
                // SAFETY: initialised, and not finalised before: `initialised` was true.
                unsafe { arrays.finalise(&object) };
            }
        }
        // SAFETY: the images are still there.
        unsafe { self.run_handlers(since) };
        if let Some(handlers) = self.handlers() {
            handlers.forget_other_lists(since);
            // Threads will run destructors there.
            taken |= handlers.threads_have_some(since);
        }
        if !taken {
            self.images().extract(|i| numbers.contains(&i.number))
        } else {
            // A handle taken meanwhile may point in: the memory stays until the library goes, under a number that no
            // object has.
            for image in self.images().iter_mut().filter(|i| numbers.contains(&i.number)) {
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
        let taken: Vec<_> = {
            let mut images = self.images();
            let initialised = images.iter_mut().rev().filter(|i| i.initialised);
            initialised.filter_map(|i| Some((i.arrays.take()?, i.object.clone()))).collect()
        };
        for (arrays, object) in taken {
            // SAFETY: initialised, and finalised once.
            unsafe { arrays.finalise(&object) };
        }
        // SAFETY: the images are dropped by our Drop, hence still there.
        unsafe { self.run_handlers(0) };
    }

    /// References that go through bridges.
    pub(crate) fn bridges(&self) -> u64 {
        self.images().iter().map(|i| u64::from(i.bridges)).sum()
    }

    /// The ranges of the slab that contains this address.
    pub(super) fn slab_containing(&self, address: usize) -> Option<Vec<crate::memory::SlabRange>> {
        self.images().iter().find_map(|i| {
            let ranges = i.allocation.as_ref()?.slab().ranges();
            ranges.iter().any(|r| r.addresses.contains(&address)).then_some(ranges)
        })
    }

    /// The object that has this address.
    pub(crate) fn object_containing(&self, address: usize) -> Option<(Name, Range<usize>)> {
        self.images().iter().find_map(|i| {
            let ranges = i.allocation.as_ref()?.slab().ranges();
            let range = ranges.into_iter().find(|r| r.addresses.contains(&address))?;
            let span = i.span().filter(|s| s.contains(&address)).unwrap_or(range.addresses);
            Some((i.object.clone(), span))
        })
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        let span = tracing::debug_span!(target: "slabjit", "slabjit::remove", library = &*self.library.text());
        let _entered = span.enter();
        self.finalise();
        // Last in, first out; then `support`, the shared libraries and what this was linked against.
        let images = self.images.get_mut().unwrap_or_else(PoisonError::into_inner);
        while images.pop().is_some() {}
    }
}
