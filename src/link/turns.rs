//! Threads that link small objects with pages of their own take turns.
//!
//! Such a link changes protections, for which the kernel interrupts every core that runs this process, and waits for them. Two threads that
//! do nothing else take twice as long for as many objects as one alone; one after the other, while the rest sleep, a sixth more
//! (docs/performance.md, Threads).

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::gate::Pass;

/// Of the process: so is what the kernel interrupts.
pub(super) static TURNS: Turns = Turns::new();

#[derive(Debug)]
pub(super) struct Turns {
    taken: AtomicBool,
}

/// Until it is dropped, others wait.
#[derive(Debug)]
pub(super) struct Turn<'a>(&'a Turns);

/// How often who waits looks again: asleep, as a core that runs nothing is not interrupted.
const AGAIN: Duration = Duration::from_micros(200);
/// How often at all. A turn saves time, and nothing else depends on it.
const LOOKS: u32 = 20;

impl Turns {
    const fn new() -> Self {
        Self { taken: AtomicBool::new(false) }
    }

    /// Waits for a turn, and for a pass: forks wait for who has a turn, and not for who waits for one. The pass is to go after the turn, which a
    /// child of `fork` would find taken. Where no turn came, it goes on without.
    pub(super) fn wait(&self) -> (Pass, Option<Turn<'_>>) {
        for _ in 0..LOOKS {
            let pass = Pass::take();
            if !self.taken.swap(true, Ordering::Acquire) {
                return (pass, Some(Turn(self)));
            }
            drop(pass);
            thread::sleep(AGAIN);
        }
        (Pass::take(), None)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::time::Instant;

    use super::*;
    use crate::gate;

    #[test]
    fn one_thread_at_a_time() {
        let (turns, inside, turned) = (Turns::new(), AtomicU32::new(0), AtomicU32::new(0));
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
        // The first of all, at least.
        assert!(turned.into_inner() > 0);
        assert!(turns.wait().1.is_some(), "nobody gave it back");
    }

    #[test]
    fn who_waits_goes_on_without_a_turn_and_holds_up_no_fork() {
        let turns = Turns::new();
        let (pass, turn) = turns.wait();
        // A thread's own pass would hide that another has one.
        drop(pass);
        let start = Instant::now();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let came = turns.wait().1.is_some();
                (came, start.elapsed())
            });
            let mut forks = 0;
            while !waiting.is_finished() {
                gate::close();
                gate::open();
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
