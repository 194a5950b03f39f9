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
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use super::code::Code;
use super::life::Waiting;
use super::signal::Signal;
use crate::gate::{Guard, Mutex};

/// Keeps a library's code. Dropping the last runs finalisers.
#[derive(Debug)]
pub(crate) struct Hold(Arc<Code>);

impl Hold {
    /// That of new code, which is held once.
    pub(super) fn first(code: Code) -> Self {
        Self(Arc::new(code))
    }

    /// The code, if something keeps it still.
    pub(super) fn of(code: &Arc<Code>) -> Option<Self> {
        code.life().hold().then(|| Self(Arc::clone(code)))
    }

    /// Whether both keep the same.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// What knows the code, and does not keep it.
    pub(super) fn code(&self) -> &Arc<Code> {
        &self.0
    }
}

impl Clone for Hold {
    fn clone(&self) -> Self {
        let held = self.0.life().hold();
        debug_assert!(held, "this one holds it");
        Self(Arc::clone(&self.0))
    }
}

impl Deref for Hold {
    type Target = Code;

    fn deref(&self) -> &Code {
        &self.0
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.0.life().release() {
            let code = Arc::clone(&self.0);
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
    static FREED: RefCell<Option<Vec<Arc<Code>>>> = const { RefCell::new(None) };
}

/// Ends code that nothing holds, and what only that held.
fn end(code: Arc<Code>) {
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
static DRAINING: Mutex<Vec<Arc<Code>>> = Mutex::new(Vec::new());

fn draining() -> Guard<'static, Vec<Arc<Code>>> {
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
        let new = |code: &&Arc<Code>| !known.contains(&Arc::as_ptr(code));
        let waiting: Vec<_> = draining().iter().filter(new).cloned().collect();
        waiting.iter().for_each(end_if_drained);
        if waiting.is_empty() || LOOKING.replace(Looking::Yes) != Looking::AndAgain {
            return;
        }
        // They are kept, so that no other one comes to lie there.
        known.extend(waiting.iter().map(Arc::as_ptr));
        asked.extend(waiting);
    }
}

/// Ends one that nothing holds, if it has drained. No lock may be held.
pub(super) fn end_if_drained(code: &Arc<Code>) {
    if code.drains() {
        return;
    }
    // Another thread may have been faster.
    let taken = {
        let mut list = draining();
        list.iter().position(|other| Arc::ptr_eq(other, code)).map(|at| list.swap_remove(at))
    };
    if let Some(code) = taken {
        end(code);
    }
}

/// Takes everything that drains: the process ends.
pub(super) fn take_draining() -> Vec<Arc<Code>> {
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

/// Waits until the code is gone, or so long.
pub(super) fn wait(code: &Code, time: Duration) {
    WAITING.begin();
    ENDED.wait_for(time, |()| code.life().is_gone().then_some(()));
    WAITING.end();
}
