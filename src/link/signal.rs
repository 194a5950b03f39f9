//! A value that one thread waits for. Telling nobody costs no system call: it is the ordinary case here.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub(super) struct Signal<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Default)]
struct State<T> {
    value: T,
    waiting: usize,
}

impl<T> Signal<T> {
    pub(super) fn update(&self, change: impl FnOnce(&mut T)) {
        let mut state = self.lock();
        change(&mut state.value);
        if state.waiting > 0 {
            self.changed.notify_all();
        }
    }

    /// Waits until `ready` gives a result.
    pub(super) fn wait<R>(&self, mut ready: impl FnMut(&mut T) -> Option<R>) -> R {
        let mut state = self.lock();
        loop {
            if let Some(result) = ready(&mut state.value) {
                return result;
            }
            state.waiting += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
