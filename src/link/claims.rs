//! Which thread links and initialises which library, over the whole process.
//!
//! A thread that asks for a library which another is initialising waits, unless that other waits for this one (crossed
//! initialisers): then it goes on with the library as it is, as `dlopen` does. Engines share one table, because
//! initialisers may cross between engines.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};

use super::signal::Signal;

#[derive(Default)]
struct Table {
    owners: HashMap<usize, ThreadId>,
    waiting: HashMap<ThreadId, usize>,
    /// Libraries that threads had when this process was forked, which has none of them.
    lost: HashSet<usize>,
}

static TABLE: Signal<Option<Table>> = Signal::new(None);

/// Whether anything was ever lost.
static ANY_LOST: AtomicBool = AtomicBool::new(false);

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
    /// The thread that had it is in the process that this one was forked from.
    Lost,
}

pub(super) struct Guard {
    library: usize,
}

/// Claims `library` (its address) without waiting.
pub(super) fn claim(library: usize) -> Claim {
    let me = thread::current().id();
    table(|table| match table.owners.get(&library) {
        None if table.lost.contains(&library) => Claim::Lost,
        None => {
            table.owners.insert(library, me);
            Claim::Ours(Guard { library })
        }
        Some(owner) if *owner == me => Claim::OursAlready,
        Some(owner) if table.waits_for(*owner, me) => Claim::Circular,
        Some(_) => Claim::Taken,
    })
}

/// Waits while another thread has `library`, unless that would close a circle.
pub(super) fn wait(library: usize) {
    let me = thread::current().id();
    TABLE.wait(|table| {
        let table = table.get_or_insert_default();
        table.waiting.remove(&me);
        match table.owners.get(&library) {
            Some(owner) if *owner != me && !table.waits_for(*owner, me) => {
                table.waiting.insert(me, library);
                None
            }
            _ => Some(()),
        }
    });
}

/// Whether another thread has `library`.
pub(super) fn is_taken(library: usize) -> bool {
    owner(library).is_some_and(|owner| owner != thread::current().id())
}

/// Whether this thread has `library`.
pub(super) fn is_ours(library: usize) -> bool {
    owner(library).is_some_and(|owner| owner == thread::current().id())
}

fn owner(library: usize) -> Option<ThreadId> {
    TABLE.change(|table| table.as_ref()?.owners.get(&library).copied())
}

/// In a child of `fork`: what others had, nobody will ever give back.
pub(super) fn lose_those_of_others() {
    let me = thread::current().id();
    table(|table| {
        let others = table.owners.extract_if(|_, owner| *owner != me);
        table.lost.extend(others.map(|(library, _)| library));
        table.waiting.clear();
        ANY_LOST.store(!table.lost.is_empty(), Ordering::Relaxed);
    });
}

/// The library is gone: another one may come to lie there.
pub(super) fn forget(library: usize) {
    if ANY_LOST.load(Ordering::Relaxed) {
        table(|table| table.lost.remove(&library));
    }
}

/// Changes the table without telling anybody.
fn table<R>(change: impl FnOnce(&mut Table) -> R) -> R {
    TABLE.change(|table| change(table.get_or_insert_default()))
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
        TABLE.update(|table| table.get_or_insert_default().owners.remove(&self.library));
    }
}
