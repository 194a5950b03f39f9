//! Which thread links and initialises which library, over the whole process.
//!
//! A thread that asks for a library which another is initialising waits, unless that other waits for this one (crossed
//! initialisers): then it goes on with the library as it is, as `dlopen` does. Engines share one table, because
//! initialisers may cross between engines.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

#[derive(Default)]
struct Table {
    owners: HashMap<usize, ThreadId>,
    waiting: HashMap<ThreadId, usize>,
}

static TABLE: Mutex<Option<Table>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();

/// What asking for a library came to.
pub(super) enum Claim {
    /// It is this thread's until the guard goes.
    Ours(Guard),
    /// This thread has it already: an initialiser asks for its own library.
    OursAlready,
    /// Another thread has it: [`wait`], and ask again.
    Taken,
    /// Waiting would close a circle.
    Circular,
}

pub(super) struct Guard {
    library: usize,
}

/// Claims `library` (its address) without waiting.
pub(super) fn claim(library: usize) -> Claim {
    let me = thread::current().id();
    let mut guard = lock();
    let table = guard.get_or_insert_default();
    match table.owners.get(&library) {
        None => {
            table.owners.insert(library, me);
            Claim::Ours(Guard { library })
        }
        Some(owner) if *owner == me => Claim::OursAlready,
        Some(owner) if table.waits_for(*owner, me) => Claim::Circular,
        Some(_) => Claim::Taken,
    }
}

/// Waits while another thread has `library`, unless that would close a circle.
pub(super) fn wait(library: usize) {
    let me = thread::current().id();
    let mut guard = lock();
    loop {
        let table = guard.get_or_insert_default();
        match table.owners.get(&library) {
            Some(owner) if *owner != me && !table.waits_for(*owner, me) => table.waiting.insert(me, library),
            _ => return,
        };
        guard = CHANGED.wait(guard).unwrap_or_else(PoisonError::into_inner);
        guard.get_or_insert_default().waiting.remove(&me);
    }
}

/// Whether another thread has `library`.
pub(super) fn is_taken(library: usize) -> bool {
    let guard = lock();
    guard.as_ref().and_then(|table| table.owners.get(&library)).is_some_and(|owner| *owner != thread::current().id())
}

/// Whether this thread has `library`.
pub(super) fn is_ours(library: usize) -> bool {
    let guard = lock();
    guard.as_ref().and_then(|table| table.owners.get(&library)).is_some_and(|owner| *owner == thread::current().id())
}

impl Table {
    /// Whether `thread` waits, over any number of others, for a library that `target` has. Ends: a thread waits for one
    /// library, and no circle is ever closed.
    fn waits_for(&self, mut thread: ThreadId, target: ThreadId) -> bool {
        while let Some(owner) = self.waiting.get(&thread).and_then(|library| self.owners.get(library)) {
            if *owner == target {
                return true;
            }
            thread = *owner;
        }
        false
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut guard = lock();
        let table = guard.get_or_insert_default();
        table.owners.remove(&self.library);
        // Telling nobody would be a system call for every link.
        if !table.waiting.is_empty() {
            CHANGED.notify_all();
        }
    }
}

fn lock() -> MutexGuard<'static, Option<Table>> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}
