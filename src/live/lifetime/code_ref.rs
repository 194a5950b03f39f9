//! References to a library's code, and its unloading when the last of them is dropped.
//!
//! ```text
//! held ──last CodeRef dropped──▶ draining ──every Drain has finished──▶ ending ──▶ gone
//!                                   └───── there is none: at once ──────┘
//! ```
//!
//! The thread that takes a step runs its finalisers: there is no thread of ours. Draining code is in a list of the
//! process, which is looked through when an object is linked or a library removed.
#![allow(unsafe_code, reason = "runs finalisers and frees code")]

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use crate::fork_guard::{Guard, Mutex};
use crate::live::lifetime::refcount::{RefCount, Waiting};
use crate::live::lifetime::wakeup::Signal;
use crate::name::Name;

/// A library's code, as kept by references.
pub(crate) trait Kept: fmt::Debug + Send + Sync + UnwindSafe + RefUnwindSafe {
    fn life(&self) -> &RefCount;
    fn library(&self) -> &Name;
    fn erased(self: Arc<Self>) -> Arc<dyn Kept>;
    /// Returns whether it has to wait for drains.
    fn drains(&self) -> bool;
    /// Runs finalisers and then exit handlers, once.
    ///
    /// # Safety
    /// The code has not [ended](Self::end), and nobody uses it any more, or the process ends.
    unsafe fn finalise(&self);
    /// Runs finalisers, and frees everything but what it kept, which is returned.
    ///
    /// # Safety
    /// Called once, when nothing keeps it and nothing has to be waited for.
    unsafe fn end(&self) -> Option<Box<dyn Send>>;
    /// Records that it has ended, and nothing is left of it but this.
    fn set_gone(&self);
}

/// Keeps a library's code. Dropping the last runs finalisers.
#[derive(Debug)]
pub(crate) struct CodeRef<C: Kept + ?Sized>(Arc<C>);

impl<C: Kept> CodeRef<C> {
    /// Returns the first reference to new code, which is held once.
    pub(crate) fn first(code: C) -> Self {
        Self(Arc::new(code))
    }
}

impl<C: Kept + ?Sized> CodeRef<C> {
    /// Returns a reference to the code, if something keeps it still.
    pub(crate) fn of(code: &Arc<C>) -> Option<Self> {
        code.life().hold().then(|| Self(Arc::clone(code)))
    }

    /// Returns whether both keep the same code.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.0), Arc::as_ptr(&other.0))
    }

    /// Returns the code as an `Arc`, which does not keep it.
    pub(crate) fn code(&self) -> &Arc<C> {
        &self.0
    }
}

impl<C: Kept + ?Sized> Clone for CodeRef<C> {
    fn clone(&self) -> Self {
        let held = self.0.life().hold();
        debug_assert!(held, "this one holds it");
        Self(Arc::clone(&self.0))
    }
}

impl<C: Kept + ?Sized> Deref for CodeRef<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.0
    }
}

impl<C: Kept + ?Sized> Drop for CodeRef<C> {
    fn drop(&mut self) {
        if self.0.life().release() {
            let code = Arc::clone(&self.0).erased();
            if code.drains() {
                HAS_DRAINED.store(true, Ordering::Relaxed);
                draining().push(code);
            } else {
                // SAFETY: the last reference was released just now, and there is nothing to wait for.
                unsafe { end(code) };
            }
        }
    }
}

thread_local! {
    /// Libraries whose last holder was the library that ends: they end in a loop, not by recursion, as chains may be
    /// long.
    static FREED: RefCell<Option<Vec<Arc<dyn Kept>>>> = const { RefCell::new(None) };
}

/// Ends code that nothing holds, and code that only it held.
///
/// # Safety
/// Called once, when nothing keeps the code and nothing has to be waited for.
unsafe fn end(code: Arc<dyn Kept>) {
    let later = FREED.try_with(|freed| freed.borrow_mut().as_mut().map(|freed| freed.push(Arc::clone(&code))));
    if matches!(later, Ok(Some(()))) {
        return;
    }
    let mut next: SmallVec<[Arc<dyn Kept>; 1]> = smallvec![code];
    while let Some(code) = next.pop() {
        // SAFETY: by the caller; the others came here by calls of this function.
        let libraries = unsafe { code.end() };
        code.set_gone();
        tell();
        if libraries.is_none() {
            continue;
        }
        let outer = FREED.try_with(|freed| freed.replace(Some(Vec::new())));
        drop(libraries);
        if let Ok(outer) = outer {
            let freed = FREED.try_with(|freed| freed.replace(outer)).ok().flatten();
            next.extend(freed.into_iter().flatten().rev());
        }
    }
}

// ---- draining code ----

/// Code without holders that has to wait for drains.
static DRAINING: Mutex<Vec<Arc<dyn Kept>>> = Mutex::new(Vec::new());
/// Whether there ever was such code: mostly there is none, and then no lock is taken.
static HAS_DRAINED: AtomicBool = AtomicBool::new(false);

fn draining() -> Guard<'static, Vec<Arc<dyn Kept>>> {
    DRAINING.lock()
}

thread_local! {
    // It has no destructor, and so lives to the thread's end.
    static LOOKING: Cell<Looking> = const { Cell::new(Looking::No) };
}

/// State of this thread's look through draining code. Drains and finalisers run meanwhile, and make and remove
/// libraries: they do not look within that, but have it look again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looking {
    No,
    Yes,
    AndAgain,
}

impl Looking {
    /// Begins a look; none if this thread is looking already.
    fn begin() -> Option<impl Drop> {
        struct Guard;
        impl Drop for Guard {
            fn drop(&mut self) {
                LOOKING.set(Looking::No);
            }
        }
        if LOOKING.get() != Self::No {
            LOOKING.set(Self::AndAgain);
            return None;
        }
        LOOKING.set(Self::Yes);
        Some(Guard)
    }
}

/// Ends drained code. No lock may be held: drains are asked, each once, and finalisers run.
pub(crate) fn end_what_has_drained() {
    if !HAS_DRAINED.load(Ordering::Relaxed) {
        return;
    }
    let Some(_looking) = Looking::begin() else { return };
    let (mut asked, mut known) = (Vec::new(), HashSet::new());
    loop {
        let new = |code: &&Arc<dyn Kept>| !known.contains(&address(code));
        let waiting: Vec<_> = draining().iter().filter(new).cloned().collect();
        waiting.iter().for_each(|code| end_if_drained(&**code));
        if waiting.is_empty() || LOOKING.replace(Looking::Yes) != Looking::AndAgain {
            return;
        }
        // The `Arc`s are kept, so that no other code gets the same address.
        known.extend(waiting.iter().map(address));
        asked.extend(waiting);
    }
}

fn address(code: &Arc<dyn Kept>) -> *const () {
    Arc::as_ptr(code).cast()
}

/// Ends one library's code that nothing holds, if it has drained. No lock may be held.
pub(crate) fn end_if_drained(code: &dyn Kept) {
    if code.drains() {
        return;
    }
    // Another thread may have been faster.
    let taken = {
        let mut list = draining();
        list.iter().position(|other| std::ptr::addr_eq(Arc::as_ptr(other), code)).map(|at| list.swap_remove(at))
    };
    if let Some(code) = taken {
        // SAFETY: nothing keeps what was in the list, from which one thread has taken it. It has drained.
        unsafe { end(code) };
    }
}

/// Takes all draining code: the process ends.
pub(crate) fn take_draining() -> Vec<Arc<dyn Kept>> {
    std::mem::take(&mut *draining())
}

// ---- waiting for an end ----

static WAITING: Waiting = Waiting(AtomicUsize::new(0));
static ENDED: Signal<()> = Signal::new(());

/// Wakes threads that wait for the end of code. Mostly none waits, and then no lock is taken.
fn tell() {
    if WAITING.any() {
        ENDED.update(|()| ());
    }
}

/// Waits until `life` says that the code is gone, at most for `time`.
pub(crate) fn wait(life: &RefCount, time: Duration) {
    WAITING.begin();
    ENDED.wait_for(time, |()| life.is_gone().then_some(()));
    WAITING.end();
}
