//! A library's code: the memory, frames and finalisers that live as long as something holds them.
#![allow(unsafe_code, reason = "runs finalisers")]

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use once_cell::race::OnceBox;
use smallvec::SmallVec;

use crate::fork_guard::{Guard, Mutex};
use crate::live::lifetime::code_ref::{self, Kept};
#[cfg(feature = "cuda")]
use crate::live::lifetime::devices::Devices;
use crate::live::lifetime::exit_handlers::Handlers;
use crate::live::lifetime::own_symbols::OwnSymbols;
#[cfg(feature = "tvm-ffi")]
use crate::live::lifetime::raising::Raising;
use crate::live::lifetime::refcount::RefCount;
use crate::live::lifetime::registry::Registry;
use crate::live::lifetime::unload_waits::UnloadWaits;
use crate::live::linked::image::Image;
use crate::live::linked::init_fini::{self, Entry};
use crate::live::resolve::imported::Imported;
#[cfg(feature = "tvm-ffi")]
use crate::memory::Arena;
use crate::memory::SlabRange;
use crate::name::Name;
use crate::runtime::SharedLibrary;
use crate::{Drain, Result};

/// A reference that keeps a library's code.
pub(crate) type CodeRef = code_ref::CodeRef<LoadedLibrary>;

/// A library's code: all that must outlive the last handle on it, and nothing of LLVM's, as handles outlive the
/// session. A [`CodeRef`] keeps it; an `Arc` does not.
#[derive(Debug)]
pub(crate) struct LoadedLibrary {
    life: RefCount,
    library: Name,
    /// Linked objects. Most libraries have one, and there may be many libraries.
    images: Mutex<SmallVec<[Image; 1]>>,
    /// Symbols that few libraries need.
    support: OnceBox<OwnSymbols>,
    drains: OnceBox<UnloadWaits>,
    #[cfg(feature = "cuda")]
    devices: OnceBox<Devices>,
    #[cfg(feature = "tvm-ffi")]
    raising: OnceBox<Raising>,
    enlisted: AtomicBool,
    /// Whether objects may have finalisers.
    finalises: AtomicBool,
    finalised: AtomicBool,
    /// Libraries that this one may be linked against, if any.
    ties: OnceBox<Mutex<Ties>>,
    registry: Arc<Registry<Self>>,
}

/// References that are dropped after everything of the library's own.
#[derive(Debug, Default)]
struct Ties {
    shared: Arc<[SharedLibrary]>,
    /// Libraries that its references lead to.
    libraries: Vec<CodeRef>,
    /// Libraries whose objects it has [adopted](LoadedLibrary::adopt).
    adopted: Vec<CodeRef>,
    /// What its code refers to, and is no code.
    owned: Option<Arc<dyn Owned>>,
}

/// What code may refer to.
pub(crate) trait Owned: fmt::Debug + Send + Sync {
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

impl LoadedLibrary {
    /// Returns code without objects. `linked`: there are libraries that references may lead to.
    pub(crate) fn new(library: Name, linked: bool, shared: Vec<SharedLibrary>, registry: &Arc<Registry<Self>>) -> Self {
        let ties = if linked || !shared.is_empty() {
            let ties = Ties { shared: shared.into(), ..Ties::default() };
            OnceBox::with_value(Box::new(Mutex::new(ties)))
        } else {
            OnceBox::new()
        };
        Self {
            life: RefCount::new(),
            library,
            images: Mutex::default(),
            support: OnceBox::new(),
            drains: OnceBox::new(),
            #[cfg(feature = "cuda")]
            devices: OnceBox::new(),
            #[cfg(feature = "tvm-ffi")]
            raising: OnceBox::new(),
            enlisted: AtomicBool::new(false),
            finalises: AtomicBool::new(false),
            finalised: AtomicBool::new(false),
            ties,
            registry: Arc::clone(registry),
        }
    }

    pub(crate) fn library(&self) -> &Name {
        &self.library
    }

    pub(crate) fn life(&self) -> &RefCount {
        &self.life
    }

    /// Returns the exit handlers, if the library's code can register any.
    pub(crate) fn handlers(&self) -> Option<&Handlers> {
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
        self.ties.get().map(|ties| ties.lock())
    }

    pub(crate) fn shared(&self) -> Arc<[SharedLibrary]> {
        self.ties().map_or_else(Arc::default, |ties| Arc::clone(&ties.shared))
    }

    /// Adds shared libraries behind those that it has.
    pub(crate) fn add_shared(&self, more: Vec<SharedLibrary>) {
        let mut ties = self.ties.get_or_init(Box::default).lock();
        ties.shared = ties.shared.iter().cloned().chain(more).collect();
    }

    /// Keeps libraries as long as this one.
    pub(crate) fn keep(&self, libraries: Vec<CodeRef>) {
        if !libraries.is_empty() {
            let mut ties = self.ties.get_or_init(Box::default).lock();
            let new = libraries.into_iter().filter(|new| !ties.libraries.iter().any(|old| old.is_same(new)));
            let new: Vec<_> = new.collect();
            ties.libraries.extend(new);
        }
    }

    /// Keeps a library that it does not keep yet.
    pub(crate) fn keep_one_more(&self, library: CodeRef) {
        if let Some(mut ties) = self.ties() {
            ties.libraries.push(library);
        }
    }

    /// Keeps a library, and, for it, another no more, which is returned.
    pub(crate) fn keep_in_place_of(&self, other: Option<&Arc<Self>>, library: CodeRef) -> Option<CodeRef> {
        let mut ties = self.ties()?;
        ties.libraries.push(library);
        let is = |kept: &CodeRef| other.is_some_and(|other| Arc::ptr_eq(kept.code(), other));
        let at = ties.libraries.iter().position(is)?;
        // What it keeps is in use meanwhile.
        self.life.disturb();
        Some(ties.libraries.swap_remove(at))
    }

    /// Returns the value that it keeps.
    pub(crate) fn owned(&self) -> Option<Arc<dyn Owned>> {
        self.ties()?.owned.clone()
    }

    /// Returns the libraries that it keeps, each as often as it does.
    pub(crate) fn kept(&self) -> Vec<Arc<Self>> {
        let of = |ties: &Ties| ties.libraries.iter().chain(&ties.adopted).map(|kept| Arc::clone(kept.code())).collect();
        self.ties().map_or_else(Vec::new, |ties| of(&ties))
    }

    /// Returns what it keeps, which it does no more: its code must not be called again.
    pub(crate) fn take_kept(&self) -> Vec<CodeRef> {
        let take = |ties: &mut Ties| ties.libraries.drain(..).chain(ties.adopted.drain(..)).collect();
        self.ties().map_or_else(Vec::new, |mut ties| take(&mut ties))
    }

    /// Keeps a value as long as its code.
    pub(crate) fn own(&self, owned: Arc<dyn Owned>) {
        if let Some(mut ties) = self.ties() {
            ties.owned = Some(owned);
        }
    }

    /// Takes over a library's objects, which refer to this one's and are referred to by them: all are unloaded together.
    /// The other library is left with its `__dso_handle`, and its exit handlers run before the objects go.
    pub(crate) fn adopt(&self, other: CodeRef) {
        let Some(mut ties) = self.ties() else { return };
        let same = std::ptr::eq(self, Arc::as_ptr(other.code()));
        if !same {
            let images = std::mem::take(&mut *other.images());
            self.add(images);
            if let Some(theirs) = other.ties() {
                ties.libraries.extend(theirs.libraries.iter().cloned());
            }
            ties.adopted.push(other);
        }
    }

    /// Returns the libraries whose objects it has adopted.
    pub(crate) fn adopted(&self) -> Vec<CodeRef> {
        self.ties().map_or_else(Vec::new, |ties| ties.adopted.clone())
    }

    /// Returns whether this library keeps another one, over any number of others, or is it.
    pub(crate) fn keeps(self: &Arc<Self>, other: &Arc<Self>) -> bool {
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

    /// Adds a drain that the code has to wait for.
    pub(crate) fn drain(&self, drain: Box<dyn Drain>) {
        self.drains.get_or_init(Box::default).add(drain);
    }

    pub(crate) fn unfinished_drains(&self) -> usize {
        // Code without holders never gets one again.
        self.drains.get().map_or(0, |drains| drains.unfinished(self.life.holders() != 0))
    }

    /// Returns whether this thread is asking the code's drains.
    pub(crate) fn drains_are_being_asked(&self) -> bool {
        self.drains.get().is_some_and(UnloadWaits::are_being_asked)
    }

    /// Waits for one of the drains, if there is one, at most for `time`.
    pub(crate) fn wait_for_drains(&self, time: Duration) {
        if let Some(drains) = self.drains.get() {
            drains.wait(time);
        }
    }

    /// Returns the devices it is for, set to the given ones if there are none yet.
    #[cfg(feature = "cuda")]
    pub(crate) fn devices_or(&self, devices: impl FnOnce() -> Devices) -> &Devices {
        self.devices.get_or_init(|| Box::new(devices()))
    }

    /// Returns the devices it is for, if it is for any.
    #[cfg(feature = "cuda")]
    pub(crate) fn devices(&self) -> Option<&Devices> {
        self.devices.get()
    }

    /// Returns the name of a linked object.
    pub(crate) fn object_name(&self, number: u32) -> Option<Name> {
        self.images().iter().find(|i| i.number == number).map(|i| i.object.clone())
    }

    /// Returns the bindings of each object's imports.
    pub(crate) fn imports(&self) -> Vec<(Name, Box<[Imported]>)> {
        self.images().iter().map(|i| (i.object.clone(), i.imports.clone())).collect()
    }

    pub(crate) fn images(&self) -> Guard<'_, SmallVec<[Image; 1]>> {
        self.images.lock()
    }

    /// Returns the symbols that few libraries need, made if they are not there.
    pub(crate) fn support_or(&self, make: impl FnOnce() -> Result<OwnSymbols>) -> Result<&OwnSymbols> {
        self.support.get_or_try_init(|| make().map(Box::new))
    }

    /// Returns the target of calls of a function that was found outside.
    #[cfg(feature = "tvm-ffi")]
    pub(crate) fn led_through(&self, name: &str, function: u64, arena: &Arc<Arena>) -> Result<u64> {
        if !Raising::wants(name, function) {
            return Ok(function);
        }
        self.raising.get_or_init(Box::default).entry_point(function, arena, &self.library)
    }

    pub(crate) fn add(&self, images: impl IntoIterator<Item = Image>) {
        let mut all = self.images();
        let before = all.len();
        all.extend(images);
        if all.iter().skip(before).any(|image| image.arrays.is_some()) {
            self.finalises.store(true, Ordering::Release);
        }
    }

    /// Returns whether this is the first call.
    pub(crate) fn is_enlisted_first(&self) -> bool {
        !self.enlisted.swap(true, Ordering::Relaxed)
    }

    /// Takes the finalisers of initialised objects for which `is` is true, once, in the order of
    /// [`init_fini::finalise`]: batch by batch.
    fn take_finalisers(&self, is: impl Fn(&Image) -> bool) -> Vec<(Name, Entry)> {
        let mut batches: Vec<(u32, Vec<(Name, Entry)>)> = Vec::new();
        if !self.finalises.load(Ordering::Acquire) {
            return Vec::new();
        }
        for image in self.images().iter_mut().filter(|image| image.initialised && is(image)) {
            let Some(arrays) = image.arrays.take() else { continue };
            if batches.last().is_none_or(|(batch, _)| *batch != image.batch) {
                batches.push((image.batch, Vec::new()));
            }
            let entries = arrays.finalisers().iter().map(|entry| (image.object.clone(), *entry));
            batches.iter_mut().last().into_iter().for_each(|(_, all)| all.extend(entries.clone()));
        }
        if batches.is_empty() {
            return Vec::new();
        }
        batches.iter_mut().for_each(|(_, all)| init_fini::put_in_order(all));
        batches.into_iter().flat_map(|(_, all)| all).collect()
    }

    /// Undoes a batch whose initialisation failed: runs the finalisers of initialised objects, and the exit handlers
    /// registered since. Its memory goes with the returned images, unless a caller was given an address in it:
    /// `taken` says so.
    ///
    /// # Safety
    /// As for [`initialise`](Self::initialise).
    #[must_use = "dropping the images takes the dynamic loader's lock"]
    pub(crate) unsafe fn undo(&self, numbers: &[u32], since: u64, mut taken: bool) -> Vec<Image> {
        let mut sorted = numbers.to_vec();
        sorted.sort_unstable();
        let is = |image: &Image| sorted.binary_search(&image.number).is_ok();
        // SAFETY: initialised, and finalised by nobody else, as they were taken.
        unsafe { init_fini::finalise(&self.take_finalisers(is)) };
        // SAFETY: the images are still there.
        unsafe { self.run_handlers(since) };
        if let Some(handlers) = self.handlers() {
            handlers.forget_other_lists(since);
            // Threads will run destructors there.
            taken |= handlers.threads_have_some(since);
        }
        if !taken {
            let mut images = self.images();
            let (gone, kept): (SmallVec<_>, _) = std::mem::take(&mut *images).into_iter().partition(|i| is(i));
            *images = kept;
            gone.into_vec()
        } else {
            // A handle taken meanwhile may point in: the memory stays until the library goes, under a number that no
            // object has.
            for image in self.images().iter_mut().filter(|i| is(i)) {
                image.number = u32::MAX;
            }
            Vec::new()
        }
    }

    pub(crate) fn is_finalised(&self) -> bool {
        self.finalised.load(Ordering::Acquire)
    }

    /// Returns the number of references that go through bridges.
    pub(crate) fn bridges(&self) -> u64 {
        self.images().iter().map(|i| u64::from(i.bridges)).sum()
    }

    /// Returns the names and addresses of all functions.
    pub(crate) fn functions(&self) -> Vec<(String, Range<usize>)> {
        self.images().iter().flat_map(Image::functions).collect()
    }

    /// Returns whether an address is in the code.
    pub(crate) fn contains(&self, address: usize) -> bool {
        self.slab_containing(address, None).is_some()
    }

    /// Returns the slab ranges of an object that has this address, of the one with this number if it is among them.
    pub(crate) fn slab_containing(&self, address: usize, number: Option<u32>) -> Option<Vec<SlabRange>> {
        let images = self.images();
        let of = |image: &Image| {
            let ranges = image.ranges();
            ranges.iter().any(|r| r.addresses.contains(&address)).then_some(ranges)
        };
        let named = images.iter().find(|image| number == Some(image.number)).and_then(of);
        named.or_else(|| images.iter().find_map(of))
    }
}

impl Kept for LoadedLibrary {
    fn life(&self) -> &RefCount {
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

    /// Follows the order of `dlclose`; a process that ends has run the handlers before it calls this.
    unsafe fn finalise(&self) {
        if self.finalised.swap(true, Ordering::AcqRel) {
            return;
        }
        let entries = self.take_finalisers(|_| true);
        // The finalisers run even if the device has failed.
        #[cfg(feature = "cuda")]
        let _current = self.devices().and_then(Devices::make_current_for_the_end);
        // SAFETY: initialised, and finalised once; the code is there, by the caller.
        unsafe { init_fini::finalise(&entries) };
        // SAFETY: as above.
        unsafe { self.run_handlers(0) };
        for adopted in self.adopted() {
            // SAFETY: its objects are among these.
            unsafe { adopted.finalise() };
        }
    }

    unsafe fn end(&self) -> Option<Box<dyn Send>> {
        let span = tracing::debug_span!(target: "slabjit", "slabjit::remove", library = &*self.library.text());
        let _entered = span.enter();
        // SAFETY: by the caller, nobody uses the code; it is freed below.
        unsafe { self.finalise() };
        let images = std::mem::take(&mut *self.images());
        self.registry.leaving.end(images);
        if let Some(support) = self.support.get() {
            // SAFETY: the code is gone, by which alone these functions were called.
            unsafe { support.end() };
        }
        #[cfg(feature = "tvm-ffi")]
        if let Some(raising) = self.raising.get() {
            // SAFETY: as above.
            unsafe { raising.end() };
        }
        let ties = self.ties().map(|mut ties| {
            let Ties { shared, libraries, adopted, owned } = &mut *ties;
            libraries.append(adopted);
            self.life.disturb();
            (std::mem::take(shared), std::mem::take(libraries), owned.take())
        });
        let (shared, libraries, owned) = ties.unwrap_or_default();
        drop((shared, owned));
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
