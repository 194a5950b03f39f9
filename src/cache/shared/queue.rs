//! Keys of entries that are to be sent, and the threads that send them.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use crate::cache::key::CacheKey;
use crate::fork_guard::{self, Mutex};

/// Threads that send at a time.
const THREADS: usize = 4;

/// Keys that wait to be sent.
const LONGEST: usize = 1 << 16;

/// The interval at which a waiting thread asks again.
const AGAIN: Duration = Duration::from_millis(2);

/// Keys of entries that are in the cache's folder, and not yet in the store.
pub(super) struct Queue(Mutex<State>);

struct State {
    keys: VecDeque<CacheKey>,
    /// Threads of this process that send.
    threads: usize,
    generation: u32,
    /// Keys that were not sent.
    failures: u64,
}

impl Queue {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(State { keys: VecDeque::new(), threads: 0, generation: 0, failures: 0 }))
    }

    /// Adds a key; returns whether it had room, and whether to start a thread, which is counted already.
    pub(super) fn add(&self, key: &CacheKey) -> (bool, bool) {
        let mut state = self.0.lock();
        state.adopt();
        if state.keys.len() >= LONGEST {
            state.failures += 1;
            return (false, false);
        }
        state.keys.push_back(key.clone());
        let starts = state.threads < THREADS;
        state.threads += usize::from(starts);
        (true, starts)
    }

    /// Takes the next key.
    pub(super) fn next(&self) -> Option<CacheKey> {
        self.0.lock().keys.pop_front()
    }

    /// Notes that a key was not sent.
    pub(super) fn failed(&self) {
        self.0.lock().failures += 1;
    }

    /// Drops all keys, and returns their number.
    pub(super) fn give_up(&self) -> u64 {
        self.0.lock().drop_keys()
    }

    /// Ends a thread, or one that could not be started; returns how many keys nobody sends any more.
    pub(super) fn end(&self) -> u64 {
        let mut state = self.0.lock();
        state.threads -= 1;
        if state.threads == 0 { state.drop_keys() } else { 0 }
    }

    /// Waits until no key is left; returns whether all were sent since the last time.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let end = Instant::now().checked_add(time);
        loop {
            let mut state = self.0.lock();
            state.adopt();
            if state.threads == 0 {
                return std::mem::take(&mut state.failures) == 0;
            }
            drop(state);
            if end.is_some_and(|end| Instant::now() >= end) {
                return false;
            }
            thread::sleep(AGAIN);
        }
    }
}

impl State {
    fn drop_keys(&mut self) -> u64 {
        let dropped = std::mem::take(&mut self.keys).len() as u64;
        self.failures += dropped;
        dropped
    }

    /// In a child of `fork`, there are no threads, and the parent sends what it had to send.
    fn adopt(&mut self) {
        let generation = fork_guard::generation();
        if self.generation != generation {
            *self = Self { keys: VecDeque::new(), threads: 0, generation, failures: 0 };
        }
    }
}
