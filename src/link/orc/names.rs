//! How many names LLVM keeps for us: its pool has those that nothing uses any more until it is told to look for them.

use std::sync::atomic::{AtomicUsize, Ordering};

/// So few are not worth looking for.
const FEW: usize = 4096;

/// An estimate: what is shared is counted for each.
#[derive(Default)]
pub(super) struct Names {
    used: AtomicUsize,
    unused: AtomicUsize,
}

impl Names {
    pub(super) fn add(&self, n: usize) {
        self.used.fetch_add(n, Ordering::Relaxed);
    }

    /// Takes note of names that were used. Returns whether the pool is to be swept: that walks all of it, so as many
    /// as are used have to be unused.
    pub(super) fn remove(&self, n: usize) -> bool {
        let less = |used: usize| Some(used.saturating_sub(n));
        let _ = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        self.lose(n)
    }

    /// Does the same for names that were asked for, and are nowhere.
    pub(super) fn lose(&self, n: usize) -> bool {
        let unused = self.unused.fetch_add(n, Ordering::Relaxed) + n;
        if unused < FEW.max(self.used.load(Ordering::Relaxed)) {
            return false;
        }
        self.unused.store(0, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_cost_what_was_removed() {
        let names = Names::default();
        names.add(100_000);
        assert!((0..99).all(|_| !names.remove(500)), "half are used yet");
        assert!((0..99).any(|_| names.remove(500)));
        let names = Names::default();
        names.add(100_000);
        let sweeps = (0..1_000_000).filter(|_| names.lose(1)).count();
        assert_eq!(sweeps, 10);
    }
}
