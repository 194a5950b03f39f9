//! A list of an engine's code that may be alive, for statistics and for queries by address, and what is left of code
//! that has ended.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use crate::fork_guard::Mutex;
use crate::live::lifetime::code_ref::Kept;
use crate::live::lifetime::leaving::Leaving;

/// A list of code that does not keep it.
#[derive(Debug)]
pub(crate) struct Registry<C> {
    all: Mutex<Vec<Weak<C>>>,
    /// The length of `all`, for a look without its lock.
    listed: AtomicUsize,
    /// The number of entries that have gone since the last look.
    gone: AtomicUsize,
    pub(crate) leaving: Leaving,
}

/// The least number of gone entries to look for.
const FEW: usize = 64;

impl<C> Default for Registry<C> {
    fn default() -> Self {
        let (listed, gone, leaving) = Default::default();
        Self { all: Mutex::new(Vec::new()), listed, gone, leaving }
    }
}

impl<C: Kept> Registry<C> {
    pub(crate) fn add(&self, code: &Arc<C>) {
        let mut all = self.all.lock();
        all.push(Arc::downgrade(code));
        self.listed.store(all.len(), Ordering::Relaxed);
    }

    /// Counts an entry that has gone. Where half have, they are taken off the list, which keeps their memory: each
    /// costs O(1) on average.
    pub(crate) fn one_has_gone(&self) {
        let gone = self.gone.fetch_add(1, Ordering::Relaxed) + 1;
        let listed = self.listed.load(Ordering::Relaxed);
        if gone == listed {
            self.leaving.end_now();
        }
        if gone < FEW || gone < listed / 2 {
            return;
        }
        let mut all = self.all.lock();
        self.gone.store(0, Ordering::Relaxed);
        // Most have gone.
        let is_live = |code: &Weak<C>| code.upgrade().is_some_and(|code| !code.life().is_gone());
        all.retain(|code| code.strong_count() != 0 && is_live(code));
        let left = all.len();
        if all.capacity() > 4 * left {
            all.shrink_to(2 * left);
        }
        self.listed.store(left, Ordering::Relaxed);
    }

    /// Returns the entries that have not gone.
    pub(crate) fn live(&self) -> Vec<Arc<C>> {
        let known: Vec<_> = self.all.lock().iter().filter_map(Weak::upgrade).collect();
        known.into_iter().filter(|code| !code.life().is_gone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::lifetime::loaded_library::{CodeRef, LoadedLibrary};
    use crate::name::Name;

    #[test]
    fn what_has_gone_is_listed_no_more_and_keeps_no_memory() {
        let registry = Arc::default();
        let add = |number| {
            let held = CodeRef::first(LoadedLibrary::new(Name::Number(number), false, Vec::new(), &registry));
            registry.add(held.code());
            held
        };
        let mut held: Vec<CodeRef> = (0..10_000).map(add).collect();
        let weak: Vec<Weak<LoadedLibrary>> = held.iter().map(|held| Arc::downgrade(held.code())).collect();
        for left in [9_000, 2_000, 100, 0] {
            held.truncate(left);
            assert_eq!(registry.live().len(), left);
            let listed = registry.all.lock().len();
            assert!((left..=2 * left + FEW).contains(&listed), "{listed} are listed, {left} are left");
        }
        assert!(registry.all.lock().capacity() <= 4 * FEW, "the list has room for what is not there");
        assert!(weak.iter().all(|code| code.upgrade().is_none()));
    }
}
