//! Exit handlers, quick-exit handlers and fork handlers of one library.
#![allow(unsafe_code)] // calls into linked code

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{OnceLock, Weak};

use super::arrays::catching;
use super::hold::{Hold, Kept};
use crate::gate::{self, Guard, Mutex};
use crate::name::Name;

/// Handlers registered by one library's code.
#[derive(Debug, Default)]
pub(super) struct Handlers {
    lists: Mutex<Lists>,
    /// What has to stay while destructors of threads are waiting; set before any of its code runs.
    code: OnceLock<Weak<dyn Kept>>,
    /// One more than the sequence number of the last destructor that a thread has to run.
    of_threads: AtomicU64,
}

#[derive(Debug, Default)]
pub(super) struct Lists {
    exit: Vec<Handler>,
    pub(super) quick: Vec<Handler>,
    pub(super) fork: Vec<Fork>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Handler {
    /// Order of registration over the whole process.
    pub(super) sequence: u64,
    pub(super) function: usize,
    pub(super) argument: usize,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Fork {
    pub(super) sequence: u64,
    /// prepare, parent, child; 0 for none.
    pub(super) functions: [usize; 3],
}

static SEQUENCE: AtomicU64 = AtomicU64::new(0);

pub(super) fn next_sequence() -> u64 {
    SEQUENCE.fetch_add(1, Ordering::Relaxed)
}

impl Handlers {
    pub(super) fn lists(&self) -> Guard<'_, Lists> {
        self.lists.lock()
    }

    /// The sequence number of the handler registered last, if it is at least `since`.
    pub(super) fn last(&self, since: u64) -> Option<u64> {
        self.lists().exit.last().map(|h| h.sequence).filter(|s| *s >= since)
    }

    /// Runs exit handlers from the last to the first, those included that are registered meanwhile.
    ///
    /// # Safety
    /// The library's code is still there.
    pub(super) unsafe fn run(&self, library: &Name, since: u64) {
        while self.last(since).is_some() {
            // SAFETY: by the caller.
            unsafe { self.run_last(library) };
        }
    }

    /// # Safety
    /// As for [`run`](Self::run).
    pub(super) unsafe fn run_last(&self, library: &Name) {
        let handler = self.lists().exit.pop();
        if let Some(handler) = handler {
            // SAFETY: by the caller.
            unsafe { handler.call(library) };
        }
    }

    /// Registers an exit handler.
    pub(super) fn register(&self, handler: Handler) {
        self.lists().exit.push(handler);
    }

    /// Notes that a thread will run a destructor.
    pub(super) fn note_thread(&self, handler: Handler) {
        self.of_threads.fetch_max(handler.sequence + 1, Ordering::Relaxed);
    }

    /// Whether threads were given destructors since then.
    pub(super) fn threads_have_some(&self, since: u64) -> bool {
        self.of_threads.load(Ordering::Relaxed) > since
    }

    /// Says what its library's code is.
    pub(super) fn belong_to(&self, code: Weak<dyn Kept>) {
        gate::once(&self.code, || code);
    }

    /// Its library's code, if something keeps it still.
    pub(super) fn code(&self) -> Option<Hold<dyn Kept>> {
        Hold::of(&self.code.get()?.upgrade()?)
    }

    /// A library whose initialisation failed half way: what it registered since is not called any more.
    pub(super) fn forget_other_lists(&self, since: u64) {
        let mut lists = self.lists();
        lists.quick.retain(|h| h.sequence < since);
        lists.fork.retain(|f| f.sequence < since);
    }
}

impl Handler {
    pub(super) fn new(function: usize, argument: usize) -> Self {
        Self { sequence: next_sequence(), function, argument }
    }

    /// # Safety
    /// The function's code is still there.
    pub(super) unsafe fn call(self, library: &Name) {
        unsafe extern "C-unwind" fn run(handler: *mut c_void) {
            // SAFETY: `call` passes a handler, whose function takes one pointer.
            unsafe {
                let handler = *handler.cast::<Handler>();
                let function: unsafe extern "C-unwind" fn(usize) = std::mem::transmute(handler.function);
                function(handler.argument);
            }
        }
        let mut copy = self;
        // SAFETY: by the caller.
        if let Err(message) = unsafe { catching(run, (&raw mut copy).cast()) } {
            tracing::error!(target: "slabjit", library = &*library.text(), message, "an exit handler failed");
        }
    }
}

/// The number from which handlers registered from now on count.
pub(super) fn now() -> u64 {
    SEQUENCE.load(Ordering::Relaxed)
}
