//! A value that threads wait for changes of. A change without waiting threads, the usual case, costs no system call.
//!
//! A waiting thread holds no lock, not even for the moment in which a condition variable gives it back: so a child of
//! `fork` finds none locked (`fork_guard`).

use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::fork_guard::{Guard, Mutex};

#[derive(Default)]
pub(crate) struct Signal<T> {
    state: Mutex<State<T>>,
}

#[derive(Default)]
struct State<T> {
    value: T,
    waiting: Vec<Thread>,
}

impl<T> Signal<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { state: Mutex::new(State { value, waiting: Vec::new() }) }
    }

    /// Changes the value, and wakes the waiting threads.
    pub(crate) fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let (result, waiting) = {
            let mut state = self.state.lock();
            (change(&mut state.value), std::mem::take(&mut state.waiting))
        };
        waiting.iter().for_each(Thread::unpark);
        result
    }

    /// Changes the value, or looks at it, where no thread waits for that.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut self.state.lock().value)
    }

    /// Waits until `ready` gives a result.
    pub(crate) fn wait<R>(&self, mut ready: impl FnMut(&mut T) -> Option<R>) -> R {
        loop {
            match self.ready_or_listed(&mut ready) {
                Some(result) => return result,
                None => thread::park(),
            }
        }
    }

    /// Does the same, at most for `time`.
    pub(crate) fn wait_for<R>(&self, time: Duration, mut ready: impl FnMut(&mut T) -> Option<R>) -> Option<R> {
        let start = Instant::now();
        loop {
            if let Some(result) = self.ready_or_listed(&mut ready) {
                return Some(result);
            }
            let left = time.saturating_sub(start.elapsed());
            if left.is_zero() {
                unlist(&mut self.state.lock());
                return None;
            }
            thread::park_timeout(left);
        }
    }

    /// Returns the result, or lists this thread to be woken by the next change.
    fn ready_or_listed<R>(&self, ready: &mut impl FnMut(&mut T) -> Option<R>) -> Option<R> {
        let mut state = self.state.lock();
        // Another event may have woken it.
        unlist(&mut state);
        let result = ready(&mut state.value);
        if result.is_none() {
            state.waiting.push(thread::current());
        }
        result
    }
}

fn unlist<T>(state: &mut Guard<'_, State<T>>) {
    if !state.waiting.is_empty() {
        let me = thread::current().id();
        state.waiting.retain(|thread| thread.id() != me);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_told_and_who_gives_up_is_forgotten() {
        static VALUE: Signal<u32> = Signal::new(0);
        assert_eq!(VALUE.wait_for(Duration::from_millis(20), |_| None::<()>), None);
        assert!(VALUE.state.lock().waiting.is_empty());
        let threads = [1, 2, 3].map(|n| thread::spawn(move || VALUE.wait(|value| (*value >= n).then_some(n))));
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(20));
            VALUE.update(|value| *value += 1);
        }
        assert_eq!(threads.map(|thread| thread.join().unwrap()), [1, 2, 3]);
    }
}
