//! Locks by which one thread links and initialises a library.
//!
//! A thread that asks for a library which another is initialising waits, unless that other waits for this one (crossed
//! initialisers): then it goes on with the library as it is, as `dlopen` does. The threads that wait are in one table
//! of the process, because initialisers may cross between engines.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hashbrown::HashMap;

use crate::fork_guard;
use crate::live::lifetime::wakeup::Signal;

/// The lock of a library, or of another value that is initialised once.
#[derive(Debug, Default)]
pub(crate) struct InitLock(AtomicU64);

/// Threads by the threads whose locks they wait for.
static WAITING: Signal<Option<Waiting>> = Signal::new(None);
/// How many there are. Whoever waits counts before it looks at the lock, and whoever gives the lock back looks at the
/// count afterwards: one of the two sees the other.
static COUNT: AtomicU32 = AtomicU32::new(0);

#[derive(Default)]
struct Waiting(HashMap<Thread, Thread>);

/// The number of a thread, never 0.
type Thread = u64;

/// Returns this thread's number.
fn me() -> Thread {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        // It has no destructor, and so lives to the thread's end.
        static NUMBER: Cell<Thread> = const { Cell::new(0) };
    }
    match NUMBER.get() {
        0 => {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            NUMBER.set(number);
            number
        }
        number => number,
    }
}

/// A thread that has a lock, and the generation of the process in which it took it.
#[derive(Clone, Copy)]
struct Owner {
    thread: Thread,
    generation: u32,
}

/// The bits of a generation in a lock.
const GENERATION: u32 = 24;

impl Owner {
    fn now(thread: Thread) -> Self {
        Self { thread, generation: fork_guard::generation() % (1 << GENERATION) }
    }

    /// Returns the owner in a lock's word, which is 0 if there is none.
    fn of(word: u64) -> Option<Self> {
        let generation = word as u32 % (1 << GENERATION);
        (word != 0).then_some(Self { thread: word >> GENERATION, generation })
    }

    fn word(self) -> u64 {
        self.thread << GENERATION | u64::from(self.generation)
    }

    /// Returns whether it is in the process that this one was forked from, and not in this one.
    fn is_lost(self, me: Thread) -> bool {
        self.thread != me && self.generation != Self::now(me).generation
    }
}

/// The result of [`InitLock::claim`].
pub(crate) enum Claim<'a> {
    /// The lock is this thread's until the guard goes.
    Ours(Guard<'a>),
    /// This thread has it already: an initialiser asks for its own library.
    OursAlready,
    /// Another thread has it: [`InitLock::wait`], and ask again.
    Taken,
    /// Waiting would close a circle.
    Circular,
    /// The thread that had it is in the process that this one was forked from.
    Lost,
}

pub(crate) struct Guard<'a>(&'a InitLock);

impl InitLock {
    /// Claims the lock without waiting.
    pub(crate) fn claim(&self) -> Claim<'_> {
        let me = me();
        match self.0.compare_exchange(0, Owner::now(me).word(), Ordering::Acquire, Ordering::Relaxed).map_err(Owner::of)
        {
            Ok(_) => Claim::Ours(Guard(self)),
            Err(Some(owner)) if owner.is_lost(me) => Claim::Lost,
            Err(Some(owner)) if owner.thread == me => Claim::OursAlready,
            // The owner is looked up again: the one from before may have given the lock back, and wait for another.
            Err(_) if waiting(|waiting| self.other_owner().is_some_and(|owner| waiting.leads(owner, me))) => {
                Claim::Circular
            }
            Err(_) => Claim::Taken,
        }
    }

    /// Waits while another thread has the lock, unless that would close a circle.
    pub(crate) fn wait(&self) {
        if !self.is_taken() {
            return;
        }
        let me = me();
        COUNT.fetch_add(1, Ordering::SeqCst);
        WAITING.wait(|waiting| {
            let waiting = waiting.get_or_insert_default();
            waiting.0.remove(&me);
            match self.other_owner() {
                Some(owner) if !waiting.leads(owner, me) => {
                    waiting.0.insert(me, owner);
                    None
                }
                _ => Some(()),
            }
        });
        COUNT.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns whether another thread of this process has the lock.
    pub(crate) fn is_taken(&self) -> bool {
        self.other_owner().is_some()
    }

    /// Returns whether this thread has the lock.
    pub(crate) fn is_ours(&self) -> bool {
        self.owner().is_some_and(|owner| owner.thread == me())
    }

    /// Returns the other thread of this process that has the lock.
    fn other_owner(&self) -> Option<Thread> {
        let me = me();
        self.owner().filter(|owner| owner.thread != me && !owner.is_lost(me)).map(|owner| owner.thread)
    }

    fn owner(&self) -> Option<Owner> {
        Owner::of(self.0.load(Ordering::SeqCst))
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let owner = Owner::of(self.0.0.swap(0, Ordering::SeqCst));
        if COUNT.load(Ordering::SeqCst) != 0
            && let Some(Owner { thread, .. }) = owner
        {
            // All look again, also those that wait for another lock of this thread's.
            WAITING.update(|waiting| waiting.get_or_insert_default().0.retain(|_, owner| *owner != thread));
        }
    }
}

/// Forgets other threads in a child of `fork`.
pub(crate) fn forget_those_who_wait() {
    waiting(|waiting| waiting.0.clear());
    COUNT.store(0, Ordering::Relaxed);
}

/// Looks at the threads that wait, or changes them, without waking any.
fn waiting<R>(with: impl FnOnce(&mut Waiting) -> R) -> R {
    WAITING.change(|waiting| with(waiting.get_or_insert_default()))
}

impl Waiting {
    /// Returns whether `thread` waits, over any number of others, for `target`. Ends, as no circle is ever closed: the
    /// last thread of one sees those that wait already, and one that was woken looks again.
    fn leads(&self, mut thread: Thread, target: Thread) -> bool {
        while let Some(owner) = self.0.get(&thread) {
            if *owner == target {
                return true;
            }
            thread = *owner;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use rand::rngs::SmallRng;
    use rand::{Rng as _, SeedableRng as _};

    use super::*;

    const LOCKS: usize = 4;

    /// Takes a lock, and returns whether that closed a circle.
    fn take(lock: &InitLock) -> (Option<Guard<'_>>, bool) {
        loop {
            lock.wait();
            match lock.claim() {
                Claim::Taken => {}
                Claim::Ours(guard) => return (Some(guard), false),
                Claim::OursAlready => return (None, false),
                Claim::Circular => return (None, true),
                Claim::Lost => unreachable!("nobody forks"),
            }
        }
    }

    #[test]
    fn there_is_no_circle_where_all_take_locks_in_one_order() {
        let locks: [InitLock; LOCKS] = Default::default();
        let inside: [AtomicU32; LOCKS] = Default::default();
        let work = |seed| {
            let mut random = SmallRng::seed_from_u64(seed);
            for _ in 0..5000 {
                let mut held = Vec::new();
                for (lock, inside) in locks.iter().zip(&inside).filter(|_| random.random_bool(0.5)) {
                    let (guard, circular) = take(lock);
                    assert!(!circular);
                    assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                    held.push((guard.unwrap(), inside));
                    assert!(matches!(lock.claim(), Claim::OursAlready) && lock.is_ours() && !lock.is_taken());
                }
                if random.random_bool(0.5) {
                    held.reverse();
                }
                for (guard, inside) in held {
                    inside.fetch_sub(1, Ordering::Relaxed);
                    drop(guard);
                }
            }
        };
        thread::scope(|scope| (0..4).for_each(|seed| drop(scope.spawn(move || work(seed)))));
        assert!(locks.iter().all(|lock| lock.owner().is_none()));
    }

    #[test]
    fn of_threads_in_a_circle_one_goes_on() {
        for _ in 0..500 {
            let locks: [InitLock; LOCKS] = Default::default();
            let all = Barrier::new(LOCKS);
            let circles = AtomicU32::new(0);
            let work = |at: usize| {
                let (own, _) = take(&locks[at]);
                all.wait();
                let (other, circular) = take(&locks[(at + 1) % LOCKS]);
                assert_eq!(other.is_none(), circular);
                circles.fetch_add(circular.into(), Ordering::Relaxed);
                drop((other, own));
            };
            thread::scope(|scope| (0..LOCKS).for_each(|at| drop(scope.spawn(move || work(at)))));
            assert!(circles.into_inner() >= 1);
        }
    }
}
