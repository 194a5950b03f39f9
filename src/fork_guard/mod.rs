//! Guards that a fork waits for.
//!
//! A child of `fork` has one thread, and a copy of the other threads' unfinished work: a lock that one of them held
//! stays locked, a structure of LLVM's that one was changing stays half changed. So a thread that has a lock of ours,
//! or is in LLVM, holds a [`ForkGuard`]; a fork lets no thread take a new one, and waits until all are dropped. User
//! code runs without a guard, and may fork.
//!
//! A waiting thread polls without a lock, so that a child can go on from there.

mod crowd;

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{MutexGuard, OnceLock, PoisonError, TryLockError};

use self::crowd::{LOADING, PASS};

/// The number of forks between this process and the one that loaded the crate.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The number of forks by this process and those it comes from.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// The guards and calls of one thread, so that it need not ask again, nor wait for itself.
#[derive(Clone, Copy)]
struct Own {
    passes: u32,
    loadings: u32,
    forks: bool,
}

thread_local! {
    // It has no destructor, and so lives to the thread's end.
    static OWN: Cell<Own> = const { Cell::new(Own { passes: 0, loadings: 0, forks: false }) };
}

/// A guard delays forks until it is dropped. A thread may have several.
#[derive(Debug)]
pub(crate) struct ForkGuard {
    /// The guard belongs to this thread, and no other.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl ForkGuard {
    pub(crate) fn take() -> Self {
        let own = OWN.get();
        if own.passes == 0 && !own.forks {
            crowd::enter(PASS);
        }
        OWN.set(Own { passes: own.passes + 1, ..own });
        Self { _not_send: std::marker::PhantomData }
    }
}

impl Drop for ForkGuard {
    fn drop(&mut self) {
        let own = OWN.get();
        OWN.set(Own { passes: own.passes - 1, ..own });
        if own.passes == 1 && !own.forks {
            crowd::remove(PASS);
        }
    }
}

/// Calls user code from within LLVM: without this thread's guards, so that it may fork, or wait for whoever does. The
/// caller has no lock, of ours or of LLVM's.
pub(crate) fn without<R>(call: impl FnOnce() -> R) -> R {
    struct Again(u32);
    impl Drop for Again {
        fn drop(&mut self) {
            if !OWN.get().forks {
                crowd::enter(PASS);
            }
            OWN.set(Own { passes: self.0, ..OWN.get() });
        }
    }
    let own = OWN.get();
    if own.passes == 0 {
        return call();
    }
    OWN.set(Own { passes: 0, ..own });
    if !own.forks {
        crowd::remove(PASS);
    }
    let _again = Again(own.passes);
    call()
}

/// This thread's guards, for threads that it waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lent {
    guarded: bool,
}

/// Lends this thread's guards, if it has any; `None` while it forks, as other threads wait then.
pub(crate) fn lend() -> Option<Lent> {
    let own = OWN.get();
    (!own.forks).then_some(Lent { guarded: own.passes != 0 })
}

impl Lent {
    /// Runs work on a new thread, for which the lender waits. With a guard that is lent it must not wait for a fork,
    /// which waits for the lender: it takes more guards without asking. It calls neither user code nor the dynamic
    /// loader then.
    pub(crate) fn run<R>(self, work: impl FnOnce() -> R) -> R {
        let own = OWN.get();
        OWN.set(Own { passes: own.passes + u32::from(self.guarded), ..own });
        let result = work();
        OWN.set(own);
        result
    }
}

/// Returns whether a fork waits for this thread: user code must not run then.
pub(crate) fn has_pass() -> bool {
    OWN.get().passes != 0
}

/// Calls the dynamic loader. Its locks are not ours: a child does not get all of them back (glibc's
/// `dl_load_write_lock`). Initialisers may run, and fork, and so on, so that this takes no [`ForkGuard`]; forks wait
/// for it, but not for ever.
pub(crate) fn loading<R>(call: impl FnOnce() -> R) -> R {
    struct Loading;
    impl Drop for Loading {
        fn drop(&mut self) {
            let own = OWN.get();
            OWN.set(Own { loadings: own.loadings - 1, ..own });
            if own.loadings == 1 && !own.forks {
                crowd::remove(LOADING);
            }
        }
    }
    let own = OWN.get();
    // A fork waits for a thread with a guard, which must not wait for the fork.
    if own.loadings == 0 && !own.forks {
        match own.passes {
            0 => crowd::enter(LOADING),
            _ => crowd::add(LOADING),
        }
    }
    OWN.set(Own { loadings: own.loadings + 1, ..own });
    let _loading = Loading;
    call()
}

/// Calls the dynamic loader from within LLVM: without this thread's guards, as its locks may be another thread's that
/// forks. Forks wait for the call, and then for the guards, but not for ever. The caller has no lock, of ours or of
/// LLVM's.
pub(crate) fn loading_without<R>(call: impl FnOnce() -> R) -> R {
    struct Again(Own);
    impl Drop for Again {
        fn drop(&mut self) {
            crowd::pass_in_place_of_load(self.0.loadings == 0);
            OWN.set(self.0);
        }
    }
    let own = OWN.get();
    if own.passes == 0 || own.forks {
        return loading(call);
    }
    crowd::load_in_place_of_pass(own.loadings == 0);
    OWN.set(Own { passes: 0, loadings: own.loadings + 1, ..own });
    let _again = Again(own);
    call()
}

/// Initialises a cell once. A child finds it initialised, or not begun.
pub(crate) fn once<T>(cell: &OnceLock<T>, make: impl FnOnce() -> T) -> &T {
    cell.get().unwrap_or_else(|| {
        let _pass = ForkGuard::take();
        cell.get_or_init(make)
    })
}

/// Returns what of this thread is counted.
fn counted(own: Own) -> u64 {
    u64::from(own.passes != 0) * PASS + u64::from(own.loadings != 0) * LOADING
}

/// Waits before a fork until no other thread has a guard, and lets none take one.
pub(crate) fn close() {
    let own = OWN.get();
    OWN.set(Own { forks: true, ..own });
    crowd::close(counted(own));
    // Both sides see it: from now on there may be another process with the same memory.
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Lets threads take guards again after a fork, in the parent.
pub(crate) fn open() {
    let own = OWN.get();
    OWN.set(Own { forks: false, ..own });
    crowd::open(counted(own));
}

/// Does the same after a fork, in the child: there are no other threads, nor other forks.
pub(crate) fn open_in_child() {
    let own = OWN.get();
    OWN.set(Own { forks: false, ..own });
    crowd::open_in_child(counted(own));
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Returns how many forks lie between this process and the one that loaded the crate.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Returns how many times this process and those it comes from have forked. It stays the same as long as somebody has
/// a [`ForkGuard`].
pub(crate) fn forks() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// How often a thread looks for a lock before it sleeps, and the binary logarithm of the most pauses between two looks:
/// some 20 µs in all. Locks are held for less, and sleeping takes more: two threads that load took a seventh longer.
const LOOKS: u32 = 24;
const MOST_PAUSES: u32 = 6;

/// A mutex that no fork leaves locked. Its users keep the guarded value sound across a panic.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

/// The fields are dropped in this order.
pub(crate) struct Guard<'a, T> {
    value: MutexGuard<'a, T>,
    _pass: ForkGuard,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let pass = ForkGuard::take();
        let value = self.lock_if_free().unwrap_or_else(|| self.wait());
        Guard { value, _pass: pass }
    }

    fn lock_if_free(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(value) => Some(value),
            Err(TryLockError::Poisoned(value)) => Some(value.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Waits for the lock; for a while without a system call.
    #[cold]
    fn wait(&self) -> MutexGuard<'_, T> {
        for pauses in (0..LOOKS).map(|look| 1 << look.min(MOST_PAUSES)) {
            (0..pauses).for_each(|_| std::hint::spin_loop());
            if let Some(value) = self.lock_if_free() {
                return value;
            }
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::crowd::PATIENCE;
    use super::*;

    /// Closes and opens as a fork does. Returns the time that closing took.
    fn fork() -> Duration {
        let start = Instant::now();
        close();
        let waited = start.elapsed();
        open();
        waited
    }

    #[test]
    fn forks_wait_for_locks_and_nobody_waits_for_himself() {
        static LOCK: Mutex<u32> = Mutex::new(0);
        let (inside, wait) = channel();
        let other = thread::spawn(move || {
            let mut value = LOCK.lock();
            // This thread takes a second guard while the fork waits.
            inside.send(()).unwrap();
            thread::sleep(Duration::from_millis(200));
            drop(ForkGuard::take());
            *value += 1;
        });
        wait.recv().unwrap();
        // Two threads fork at once, each with a guard of its own.
        let forks = [0, 1].map(|_| {
            thread::spawn(|| {
                static BOTH: Barrier = Barrier::new(2);
                let _pass = ForkGuard::take();
                BOTH.wait();
                fork()
            })
        });
        let waited = forks.map(|fork| fork.join().unwrap());
        assert!(waited.iter().all(|waited| *waited > Duration::from_millis(100)), "{waited:?}");
        other.join().unwrap();
        assert_eq!(*LOCK.lock(), 1);
    }

    /// There are more threads than lines on which they count.
    #[test]
    fn no_thread_has_a_guard_during_a_fork() {
        static INSIDE: AtomicU32 = AtomicU32::new(0);
        static END: AtomicU32 = AtomicU32::new(0);
        let work = || {
            while END.load(Ordering::Relaxed) == 0 {
                let guards = [ForkGuard::take(), ForkGuard::take()];
                INSIDE.fetch_add(1, Ordering::Relaxed);
                thread::yield_now();
                INSIDE.fetch_sub(1, Ordering::Relaxed);
                drop(guards);
                thread::sleep(Duration::from_millis(2));
            }
        };
        let threads: Vec<_> = (0..80).map(|_| thread::spawn(work)).collect();
        for _ in 0..20 {
            close();
            for _ in 0..20 {
                assert_eq!(INSIDE.load(Ordering::Relaxed), 0);
                thread::yield_now();
            }
            open();
            thread::sleep(Duration::from_millis(2));
        }
        END.store(1, Ordering::Relaxed);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn a_fork_does_not_hold_up_threads_that_the_lender_waits_for() {
        let (inside, wait) = channel();
        let lender = thread::spawn(move || {
            let _pass = ForkGuard::take();
            let lent = lend().unwrap();
            thread::scope(|scope| {
                scope.spawn(move || {
                    lent.run(|| {
                        inside.send(()).unwrap();
                        thread::sleep(Duration::from_millis(200));
                        // The fork waits for the lender.
                        drop(ForkGuard::take());
                    });
                    assert!(!has_pass());
                });
            });
        });
        wait.recv().unwrap();
        assert!(fork() > Duration::from_millis(100));
        lender.join().unwrap();
        close();
        assert!(lend().is_none());
        open();
    }

    #[test]
    fn a_fork_waits_for_the_loader_for_a_second() {
        let (inside, wait) = channel();
        let other = thread::spawn(move || {
            loading(|| {
                inside.send(()).unwrap();
                thread::sleep(Duration::from_secs(3));
            });
        });
        wait.recv().unwrap();
        // One that is in an initialiser itself waits for the others only.
        let waited = loading(fork);
        assert!(waited >= PATIENCE && waited < Duration::from_millis(2500), "{waited:?}");
        other.join().unwrap();
        assert!(fork() < PATIENCE);
    }
}
