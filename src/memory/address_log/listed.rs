//! The logs of all arenas of the process, by address: engines come and go meanwhile.
#![allow(unsafe_code, reason = "a log is owned by the list that it is in")]

use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use once_cell::race::OnceBox;

use crate::fork_guard::Mutex;
use crate::memory::address_log::directory::Directory;
use crate::memory::address_log::{History, Occupant};

static ALL: OnceBox<Directory<History>> = OnceBox::new();

/// Logs that were removed while somebody read the list. The lock is also the list's.
static REMOVED: Mutex<Vec<Box<History>>> = Mutex::new(Vec::new());

/// The arenas that were unmapped last.
static FORMER: [Former; 16] = [const { Former::new() }; 16];
static UNMAPPED: AtomicUsize = AtomicUsize::new(0);

/// A log that signal handlers find until it is dropped.
pub(in super::super) struct Listed(*const History);

// SAFETY: it stands for a box, whose contents any thread may use.
unsafe impl Send for Listed {}
// SAFETY: as above.
unsafe impl Sync for Listed {}

impl Listed {
    pub(in super::super) fn new(history: History) -> Self {
        let all = ALL.get_or_init(Box::default);
        let _lock = REMOVED.lock();
        Self(all.add(Box::new(history)))
    }
}

impl Deref for Listed {
    type Target = History;

    fn deref(&self) -> &History {
        // SAFETY: of `add`, and removed by `drop` only.
        unsafe { &*self.0 }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut removed = REMOVED.lock();
        let next = UNMAPPED.fetch_add(1, Ordering::Relaxed) % FORMER.len();
        FORMER[next].set(&self.arena);
        let Some(all) = ALL.get() else { return };
        // SAFETY: of `add`, and dropped once.
        let free = unsafe { all.remove(self.0, &mut removed) };
        let free = if free { std::mem::take(&mut *removed) } else { Vec::new() };
        // They are freed without the lock.
        drop(removed);
        drop(free);
    }
}

/// The owner of an address.
#[allow(clippy::large_enum_variant, reason = "a signal handler has no memory for a box")]
pub(crate) enum Owner {
    /// The address is in an arena, or of a section outside one. An arena has addresses that were never used, or that
    /// nothing is known of any more.
    Arena(Option<Occupant>),
    /// The address was in the arena of an engine that was dropped then.
    Former(SystemTime),
}

/// Returns the owner of an address among all engines. Sections outside the arenas are searched if `anywhere`: that
/// takes longer. Takes no lock and allocates nothing.
pub(crate) fn owner(address: usize, anywhere: bool) -> Option<Owner> {
    let inside = |history: &History| {
        let found = || Owner::Arena(history.find(address));
        history.is_inside(address).then(found)
    };
    let outside = |history: &History| history.find(address).map(|occupant| Owner::Arena(Some(occupant)));
    let all = ALL.get()?;
    all.find(inside).or_else(|| if anywhere { all.find(outside) } else { None })
}

/// Returns the owner of an address that no engine has any more: the engine that was dropped last, of those that had it.
pub(crate) fn former_owner(address: usize) -> Option<Owner> {
    FORMER.iter().filter_map(|former| former.get(address)).max().map(Owner::Former)
}

/// Returns whether there was an engine.
pub(crate) fn any_arena() -> bool {
    ALL.get().is_some()
}

/// An unmapped arena.
struct Former {
    start: AtomicUsize,
    bytes: AtomicUsize,
    /// Nanoseconds since 1970; 0 while the rest is written.
    dropped: AtomicU64,
}

impl Former {
    const fn new() -> Self {
        Self { start: AtomicUsize::new(0), bytes: AtomicUsize::new(0), dropped: AtomicU64::new(0) }
    }

    /// One thread at a time calls this.
    fn set(&self, arena: &Range<usize>) {
        self.dropped.store(0, Ordering::SeqCst);
        self.start.store(arena.start, Ordering::SeqCst);
        self.bytes.store(arena.len(), Ordering::SeqCst);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.dropped.store(now.as_nanos() as u64, Ordering::SeqCst);
    }

    /// Returns when it was dropped, if it had this address.
    fn get(&self, address: usize) -> Option<SystemTime> {
        let dropped = self.dropped.load(Ordering::SeqCst);
        let (start, bytes) = (self.start.load(Ordering::SeqCst), self.bytes.load(Ordering::SeqCst));
        let same = self.dropped.load(Ordering::SeqCst) == dropped;
        let has = dropped != 0 && same && address.checked_sub(start).is_some_and(|offset| offset < bytes);
        has.then(|| SystemTime::UNIX_EPOCH + Duration::from_nanos(dropped))
    }
}
