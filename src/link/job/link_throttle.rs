//! A throttle for threads that link small objects with pages of their own: they take turns.
//!
//! Such a link changes protections, for which the kernel interrupts every core that runs this process, and waits for
//! them. Two threads that only link take twice as long for as many objects as one alone; in turns, with the others
//! asleep, they take a sixth longer (docs/performance.md, Threads).

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::fork_guard::ForkGuard;

/// One for the process, like the kernel's interrupts.
pub(in crate::link) static THROTTLE: LinkThrottle = LinkThrottle::new();

#[derive(Debug)]
pub(in crate::link) struct LinkThrottle {
    taken: AtomicBool,
}

/// A turn: other threads wait until it is dropped.
#[derive(Debug)]
pub(in crate::link) struct Throttled<'a>(&'a LinkThrottle);

/// The interval at which a waiting thread retries. It sleeps meanwhile, so that its core is not interrupted.
const AGAIN: Duration = Duration::from_micros(200);
/// The number of retries. A turn only saves time.
const LOOKS: u32 = 20;

impl LinkThrottle {
    const fn new() -> Self {
        Self { taken: AtomicBool::new(false) }
    }

    /// Waits for a turn and a pass. A fork waits for the thread with the turn, not for threads that wait. The pass is
    /// dropped after the turn, which a child of `fork` would otherwise find taken. Without a turn, the thread continues
    /// nevertheless.
    pub(in crate::link) fn wait(&self) -> (ForkGuard, Option<Throttled<'_>>) {
        for _ in 0..LOOKS {
            let pass = ForkGuard::take();
            if !self.taken.swap(true, Ordering::Acquire) {
                return (pass, Some(Throttled(self)));
            }
            drop(pass);
            thread::sleep(AGAIN);
        }
        (ForkGuard::take(), None)
    }
}

impl Drop for Throttled<'_> {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::time::Instant;

    use super::*;
    use crate::fork_guard;

    #[test]
    fn one_thread_at_a_time() {
        let (turns, inside, turned) = (LinkThrottle::new(), AtomicU32::new(0), AtomicU32::new(0));
        let work = || {
            for _ in 0..20 {
                let (_pass, turn) = turns.wait();
                if turn.is_some() {
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    thread::sleep(Duration::from_micros(50));
                    inside.fetch_sub(1, Ordering::SeqCst);
                    turned.fetch_add(1, Ordering::SeqCst);
                }
            }
        };
        thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(work))));
        // At least the first one got a turn.
        assert!(turned.into_inner() > 0);
        assert!(turns.wait().1.is_some(), "nobody gave it back");
    }

    #[test]
    fn who_waits_goes_on_without_a_turn_and_holds_up_no_fork() {
        let turns = LinkThrottle::new();
        let (pass, turn) = turns.wait();
        // The thread's own pass would hide another thread's.
        drop(pass);
        let start = Instant::now();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let came = turns.wait().1.is_some();
                (came, start.elapsed())
            });
            let mut forks = 0;
            while !waiting.is_finished() {
                fork_guard::close();
                fork_guard::open();
                forks += 1;
            }
            let (came, waited) = waiting.join().unwrap();
            assert!(!came, "two have turns");
            assert!(waited >= AGAIN * LOOKS, "{waited:?}");
            assert!(forks > 1, "a fork waited for who waits");
        });
        drop(turn);
        assert!(turns.wait().1.is_some());
    }
}
