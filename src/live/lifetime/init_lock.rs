//! Locks by which one thread links and initialises a library, over the whole process.
//!
//! A thread that asks for a library which another is initialising waits, unless that other waits for this one (crossed
//! initialisers): then it goes on with the library as it is, as `dlopen` does. Engines share one table, because
//! initialisers may cross between engines.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};

use hashbrown::{HashMap, HashSet};

use crate::live::lifetime::wakeup::Signal;

/// The lock of a library, or of another value that is initialised once: its number in the table.
#[derive(Debug)]
pub(crate) struct InitLock(u64);

#[derive(Default)]
struct Table {
    owners: HashMap<u64, ThreadId>,
    waiting: HashMap<ThreadId, u64>,
    /// Locks that threads had when this process was forked, which has none of them.
    lost: HashSet<u64>,
}

static TABLE: Signal<Option<Table>> = Signal::new(None);

/// The result of [`InitLock::claim`].
pub(crate) enum Claim {
    /// The lock is this thread's until the guard goes.
    Ours(Guard),
    /// This thread has it already: an initialiser asks for its own library.
    OursAlready,
    /// Another thread has it: [`InitLock::wait`], and ask again.
    Taken,
    /// Waiting would close a circle.
    Circular,
    /// The thread that had it is in the process that this one was forked from.
    Lost,
}

pub(crate) struct Guard {
    lock: u64,
}

impl InitLock {
    /// Returns a lock that nobody has.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Claims the lock without waiting.
    pub(crate) fn claim(&self) -> Claim {
        let (lock, me) = (self.0, thread::current().id());
        table(|table| match table.owners.get(&lock) {
            None if table.lost.contains(&lock) => Claim::Lost,
            None => {
                table.owners.insert(lock, me);
                Claim::Ours(Guard { lock })
            }
            Some(owner) if *owner == me => Claim::OursAlready,
            Some(owner) if table.waits_for(*owner, me) => Claim::Circular,
            Some(_) => Claim::Taken,
        })
    }

    /// Waits while another thread has the lock, unless that would close a circle.
    pub(crate) fn wait(&self) {
        let me = thread::current().id();
        TABLE.wait(|table| {
            let table = table.get_or_insert_default();
            table.waiting.remove(&me);
            match table.owners.get(&self.0) {
                Some(owner) if *owner != me && !table.waits_for(*owner, me) => {
                    table.waiting.insert(me, self.0);
                    None
                }
                _ => Some(()),
            }
        });
    }

    /// Returns whether another thread has the lock.
    pub(crate) fn is_taken(&self) -> bool {
        self.owner().is_some_and(|owner| owner != thread::current().id())
    }

    /// Returns whether this thread has the lock.
    pub(crate) fn is_ours(&self) -> bool {
        self.owner().is_some_and(|owner| owner == thread::current().id())
    }

    fn owner(&self) -> Option<ThreadId> {
        TABLE.change(|table| table.as_ref()?.owners.get(&self.0).copied())
    }
}

/// Marks other threads' locks as lost in a child of `fork`: nobody will ever give them back.
pub(crate) fn lose_those_of_others() {
    let me = thread::current().id();
    table(|table| {
        let others = table.owners.extract_if(|_, owner| *owner != me);
        table.lost.extend(others.map(|(lock, _)| lock));
        table.waiting.clear();
    });
}

/// Changes the table without waking any thread.
fn table<R>(change: impl FnOnce(&mut Table) -> R) -> R {
    TABLE.change(|table| change(table.get_or_insert_default()))
}

impl Table {
    /// Returns whether `thread` waits, over any number of others, for a library that `target` has. Ends: a thread waits
    /// for one library, and no circle is ever closed.
    fn waits_for(&self, mut thread: ThreadId, target: ThreadId) -> bool {
        while let Some(owner) = self.waiting.get(&thread).and_then(|lock| self.owners.get(lock)) {
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
        TABLE.update(|table| table.get_or_insert_default().owners.remove(&self.lock));
    }
}
