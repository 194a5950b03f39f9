//! What lives as long as someone holds it: a library's memory, frames and finalisers.
#![allow(unsafe_code)] // runs finalisers

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use once_cell::race::OnceBox;

use super::arrays::{self, Entry};
#[cfg(feature = "cuda")]
use super::devices::Devices;
use super::drains::Drains;
use super::few::Few;
use super::handlers::Handlers;
use super::hold::{self, Kept};
use super::image::Image;
use super::imported::Imported;
use super::life::Life;
#[cfg(feature = "tvm-ffi")]
use super::raising::Raising;
use super::registry::Registry;
use super::support::Support;
use crate::gate::{Guard, Mutex};
#[cfg(feature = "tvm-ffi")]
use crate::memory::Arena;
use crate::memory::{PublishedSlab, SlabRange};
use crate::name::Name;
use crate::runtime::SharedLibrary;
use crate::{Drain, Result};

/// What keeps a library's code.
pub(crate) type Hold = hold::Hold<Code>;

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
    registry: Arc<Registry<Self>>,
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
    pub(super) fn new(library: Name, linked: bool, shared: Vec<SharedLibrary>, registry: &Arc<Registry<Self>>) -> Self {
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

    pub(crate) fn library(&self) -> &Name {
        &self.library
    }

    pub(super) fn life(&self) -> &Life {
        &self.life
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

    pub(super) fn images(&self) -> Guard<'_, Few<Image>> {
        self.images.lock()
    }

    /// What few libraries need, made if it is not there.
    pub(super) fn support_or(&self, make: impl FnOnce() -> Result<Support>) -> Result<&Support> {
        self.support.get_or_try_init(|| make().map(Box::new))
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

    /// Whether nobody has asked this before.
    pub(super) fn is_enlisted_first(&self) -> bool {
        !self.enlisted.swap(true, Ordering::Relaxed)
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
}

impl Kept for Code {
    fn life(&self) -> &Life {
        &self.life
    }

    fn library(&self) -> &Name {
        &self.library
    }

    fn erased(self: Arc<Self>) -> Arc<dyn Kept> {
        self
    }

    fn drains(&self) -> bool {
        self.unfinished_drains() != 0
    }

    /// It is the order of `dlclose`; a process that ends has run the handlers before it calls this.
    fn finalise(&self) {
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

    fn end(&self) -> Option<Box<dyn Send>> {
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
        (!libraries.is_empty()).then(|| Box::new(libraries) as Box<dyn Send>)
    }

    fn set_gone(&self) {
        self.life.set_gone();
        self.registry.one_has_gone();
    }
}
