//! Exit handlers, quick-exit handlers and fork handlers of one library.
#![allow(unsafe_code, reason = "calls into linked code")]

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{OnceLock, Weak};

use crate::fork_guard::{self, Guard, Mutex};
use crate::live::lifetime::code_ref::{CodeRef, Kept};
use crate::live::linked::catching::catching;
use crate::name::Name;

/// Handlers registered by one library's code.
#[derive(Debug, Default)]
pub(crate) struct Handlers {
    lists: Mutex<Lists>,
    /// The code that stays while destructors of threads are waiting; set before any of it runs.
    code: OnceLock<Weak<dyn Kept>>,
    /// One more than the sequence number of the last destructor that a thread has to run.
    of_threads: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Lists {
    exit: Vec<Handler>,
    pub(crate) quick: Vec<Handler>,
    pub(crate) fork: Vec<Fork>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Handler {
    /// The order of registration over the whole process.
    pub(crate) sequence: u64,
    pub(crate) function: usize,
    pub(crate) argument: usize,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Fork {
    pub(crate) sequence: u64,
    /// The functions prepare, parent, child; 0 for none.
    pub(crate) functions: [usize; 3],
}

static SEQUENCE: AtomicU64 = AtomicU64::new(0);

pub(crate) fn next_sequence() -> u64 {
    SEQUENCE.fetch_add(1, Ordering::Relaxed)
}

impl Handlers {
    pub(crate) fn lists(&self) -> Guard<'_, Lists> {
        self.lists.lock()
    }

    /// Returns the sequence number of the handler registered last, if it is at least `since`.
    pub(crate) fn last(&self, since: u64) -> Option<u64> {
        self.lists().exit.last().map(|h| h.sequence).filter(|s| *s >= since)
    }

    /// Runs exit handlers from the last to the first, those included that are registered meanwhile.
    ///
    /// # Safety
    /// The library's code is still there. What it registered, it may have called.
    pub(crate) unsafe fn run(&self, library: &Name, since: u64) {
        while self.last(since).is_some() {
            // SAFETY: by the caller.
            unsafe { self.run_last(library) };
        }
    }

    /// # Safety
    /// As for [`run`](Self::run).
    pub(crate) unsafe fn run_last(&self, library: &Name) {
        let handler = self.lists().exit.pop();
        if let Some(handler) = handler {
            // SAFETY: by the caller.
            unsafe { handler.call(library) };
        }
    }

    /// Registers an exit handler.
    pub(crate) fn register(&self, handler: Handler) {
        self.lists().exit.push(handler);
    }

    /// Records that a thread will run a destructor.
    pub(crate) fn note_thread(&self, handler: Handler) {
        self.of_threads.fetch_max(handler.sequence + 1, Ordering::Relaxed);
    }

    /// Returns whether threads were given destructors since then.
    pub(crate) fn threads_have_some(&self, since: u64) -> bool {
        self.of_threads.load(Ordering::Relaxed) > since
    }

    /// Sets its library's code.
    pub(crate) fn belong_to(&self, code: Weak<dyn Kept>) {
        fork_guard::once(&self.code, || code);
    }

    /// Returns its library's code, if something keeps it still.
    pub(crate) fn code(&self) -> Option<CodeRef<dyn Kept>> {
        CodeRef::of(&self.code.get()?.upgrade()?)
    }

    /// Removes quick-exit and fork handlers that a library has registered since its failed initialisation began.
    pub(crate) fn forget_other_lists(&self, since: u64) {
        let mut lists = self.lists();
        lists.quick.retain(|h| h.sequence < since);
        lists.fork.retain(|f| f.sequence < since);
    }
}

impl Handler {
    /// Records a function. Nothing is called before [`call`](Self::call).
    pub(crate) fn new(function: usize, argument: usize) -> Self {
        Self { sequence: next_sequence(), function, argument }
    }

    /// # Safety
    /// The function takes the argument, or none, and its code is still there.
    pub(crate) unsafe fn call(self, library: &Name) {
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

/// Returns the lowest sequence number of handlers registered from now on.
pub(crate) fn now() -> u64 {
    SEQUENCE.load(Ordering::Relaxed)
}
