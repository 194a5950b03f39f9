//! Who keeps a library's code, and what happens when the last of them is gone.
//!
//! ```text
//! held ──last Hold dropped──▶ draining ──every Drain has finished──▶ ending ──▶ gone
//!                                └───── there is none: at once ──────┘
//! ```
//!
//! Whoever takes a step runs what it leads to: there is no thread of ours. What drains is in a list of the process, which is looked
//! through when something is linked or removed.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use super::life::{Life, Waiting};
use super::signal::Signal;
use crate::gate::{Guard, Mutex};
use crate::name::Name;

/// What is kept: a library's code.
pub(crate) trait Kept: fmt::Debug + Send + Sync + UnwindSafe + RefUnwindSafe {
    fn life(&self) -> &Life;
    fn library(&self) -> &Name;
    fn erased(self: Arc<Self>) -> Arc<dyn Kept>;
    /// Whether it has to wait for something.
    fn drains(&self) -> bool;
    /// Runs finalisers and then exit handlers, once.
    fn finalise(&self);
    /// Runs finalisers, and frees everything but what it kept, which is returned. Called once, when nothing keeps it and nothing
    /// has to be waited for.
    fn end(&self) -> Option<Box<dyn Send>>;
    /// It has come to its end, and nothing is left of it but this.
    fn set_gone(&self);
}

/// Keeps a library's code. Dropping the last runs finalisers.
#[derive(Debug)]
pub(crate) struct Hold<C: Kept + ?Sized>(Arc<C>);

impl<C: Kept> Hold<C> {
    /// That of new code, which is held once.
    pub(super) fn first(code: C) -> Self {
        Self(Arc::new(code))
    }
}

impl<C: Kept + ?Sized> Hold<C> {
    /// The code, if something keeps it still.
    pub(super) fn of(code: &Arc<C>) -> Option<Self> {
        code.life().hold().then(|| Self(Arc::clone(code)))
    }

    /// Whether both keep the same.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.0), Arc::as_ptr(&other.0))
    }

    /// What knows the code, and does not keep it.
    pub(super) fn code(&self) -> &Arc<C> {
        &self.0
    }
}

impl<C: Kept + ?Sized> Clone for Hold<C> {
    fn clone(&self) -> Self {
        let held = self.0.life().hold();
        debug_assert!(held, "this one holds it");
        Self(Arc::clone(&self.0))
    }
}

impl<C: Kept + ?Sized> Deref for Hold<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.0
    }
}

impl<C: Kept + ?Sized> Drop for Hold<C> {
    fn drop(&mut self) {
        if self.0.life().release() {
            let code = Arc::clone(&self.0).erased();
            if code.drains() {
                draining().push(code);
            } else {
                end(code);
            }
        }
    }
}

thread_local! {
    /// Where a library ends that others kept alive, those whose last holder it was: not one within the other, as chains may be long.
    static FREED: RefCell<Option<Vec<Arc<dyn Kept>>>> = const { RefCell::new(None) };
}

/// Ends code that nothing holds, and what only that held.
fn end(code: Arc<dyn Kept>) {
    let later = FREED.try_with(|freed| freed.borrow_mut().as_mut().map(|freed| freed.push(Arc::clone(&code))));
    if matches!(later, Ok(Some(()))) {
        return;
    }
    let mut next = vec![code];
    while let Some(code) = next.pop() {
        let libraries = code.end();
        code.set_gone();
        tell();
        let outer = FREED.try_with(|freed| freed.replace(Some(Vec::new())));
        drop(libraries);
        if let Ok(outer) = outer {
            let freed = FREED.try_with(|freed| freed.replace(outer)).ok().flatten();
            next.extend(freed.into_iter().flatten().rev());
        }
    }
}

// ---- what drains ----

/// Code that nothing holds, and that has to wait.
static DRAINING: Mutex<Vec<Arc<dyn Kept>>> = Mutex::new(Vec::new());

fn draining() -> Guard<'static, Vec<Arc<dyn Kept>>> {
    DRAINING.lock()
}

thread_local! {
    // Without a destructor: there to the thread's end.
    static LOOKING: Cell<Looking> = const { Cell::new(Looking::No) };
}

/// Whether this thread is looking through what drains. Drains and finalisers run meanwhile, and make and remove libraries:
/// they do not look within that, but have it look again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looking {
    No,
    Yes,
    AndAgain,
}

impl Looking {
    /// None if this thread is looking already.
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

/// Ends what has drained. No lock may be held: drains are asked, each once, and finalisers run.
pub(super) fn end_what_has_drained() {
    let Some(_looking) = Looking::begin() else { return };
    let (mut asked, mut known) = (Vec::new(), HashSet::new());
    loop {
        let new = |code: &&Arc<dyn Kept>| !known.contains(&address(code));
        let waiting: Vec<_> = draining().iter().filter(new).cloned().collect();
        waiting.iter().for_each(|code| end_if_drained(&**code));
        if waiting.is_empty() || LOOKING.replace(Looking::Yes) != Looking::AndAgain {
            return;
        }
        // They are kept, so that no other one comes to lie there.
        known.extend(waiting.iter().map(address));
        asked.extend(waiting);
    }
}

fn address(code: &Arc<dyn Kept>) -> *const () {
    Arc::as_ptr(code).cast()
}

/// Ends one that nothing holds, if it has drained. No lock may be held.
pub(super) fn end_if_drained(code: &dyn Kept) {
    if code.drains() {
        return;
    }
    // Another thread may have been faster.
    let taken = {
        let mut list = draining();
        list.iter().position(|other| std::ptr::addr_eq(Arc::as_ptr(other), code)).map(|at| list.swap_remove(at))
    };
    if let Some(code) = taken {
        end(code);
    }
}

/// Takes everything that drains: the process ends.
pub(super) fn take_draining() -> Vec<Arc<dyn Kept>> {
    std::mem::take(&mut *draining())
}

// ---- waiting for an end ----

static WAITING: Waiting = Waiting(AtomicUsize::new(0));
static ENDED: Signal<()> = Signal::new(());

/// Something has gone. Nobody waits as a rule, and then no lock is taken.
fn tell() {
    if WAITING.any() {
        ENDED.update(|()| ());
    }
}

/// Waits until code is gone, by its life, or so long.
pub(super) fn wait(life: &Life, time: Duration) {
    WAITING.begin();
    ENDED.wait_for(time, |()| life.is_gone().then_some(()));
    WAITING.end();
}
