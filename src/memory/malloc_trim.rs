//! Memory that malloc keeps: of graphs and bytes of objects after a large batch, and of what was known about objects
//! after many were removed.
#![allow(unsafe_code, reason = "malloc_trim")]

/// A large batch has so many bytes of objects: LLVM's graphs of them take as much again, and malloc, which gives back
/// little but the end of its heap, keeps all of that. A small batch keeps little, and is not made to wait for it.
const LARGE: usize = 16 << 20;
/// So many objects take 20 MiB of malloc's memory.
const MANY: usize = 32 << 10;

/// Returns free memory to the system after objects of so many bytes were linked.
pub(crate) fn after_link(bytes: usize) {
    if bytes >= LARGE {
        trim();
    }
}

/// The largest number of objects that an engine has had since malloc's memory was last [trimmed](trim).
#[derive(Debug, Default)]
pub(super) struct Peak(usize);

impl Peak {
    /// Notes that one object was removed. Returns whether it is time to [`trim`]: when half are gone, so that the time
    /// that it takes, which grows with malloc's memory, is divided among them. As long as others come it is not.
    pub(super) fn is_past(&mut self, left: usize) -> bool {
        self.0 = self.0.max(left + 1);
        let is_past = self.0 - left >= MANY.max(left);
        if is_past {
            self.0 = left;
        }
        is_past
    }
}

/// Returns free memory to the system.
#[cfg(target_env = "gnu")]
pub(super) fn trim() {
    let _span = tracing::debug_span!(target: "slabjit", "slabjit::trim").entered();
    // SAFETY: it may be called at any time, by any thread; what is in use stays.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
pub(super) fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_when_half_are_gone() {
        let mut peak = Peak::default();
        let trims: Vec<usize> = (0..1_000_000).rev().filter(|left| peak.is_past(*left)).collect();
        assert_eq!(trims, [500_000, 250_000, 125_000, 62_500, 29_732]);
        // Not while others come, however many go.
        let mut peak = Peak::default();
        assert!((0..1_000_000).all(|_| !peak.is_past(20_000)));
    }
}
