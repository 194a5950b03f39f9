//! The limit on a process's mappings (`vm.max_map_count`, Linux, Documentation/admin-guide/sysctl/vm.rst). An object
//! with pages of its own takes two or three. The last ones are left to malloc and the dynamic loader, which abort or
//! fail without them.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::fault::Call;
use crate::memory::maps;
use crate::read::read;

/// The error that one object more would take too many mappings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooMany {
    /// The number of mappings that the process has.
    pub(super) mappings: usize,
    /// The number that it may have.
    pub(super) limit: usize,
}

/// Objects with pages of their own, in all arenas of the process.
static COUNTED: AtomicUsize = AtomicUsize::new(0);
/// Runs that will get their protections later: until then, neighbours are one mapping.
static TO_COME: AtomicUsize = AtomicUsize::new(0);
static WATCH: Watch = Watch::new();

/// Counts an object with pages of its own until it is dropped.
#[derive(Debug)]
pub(super) struct Counted {
    to_come: u8,
}

impl Counted {
    /// Counts an object that will have `runs` mappings.
    pub(super) fn new(runs: usize) -> Self {
        let to_come = runs.min(u8::MAX.into()) as u8;
        COUNTED.fetch_add(1, Ordering::Relaxed);
        TO_COME.fetch_add(to_come.into(), Ordering::Relaxed);
        Self { to_come }
    }

    /// Records that the object's mappings exist.
    pub(super) fn has_come(&mut self) {
        TO_COME.fetch_sub(std::mem::take(&mut self.to_come).into(), Ordering::Relaxed);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.has_come();
        COUNTED.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Checks whether one object more may have pages of its own.
pub(super) fn admit() -> Result<(), TooMany> {
    let count = || Some(maps::count()? + TO_COME.load(Ordering::Relaxed));
    WATCH.admit(COUNTED.load(Ordering::Relaxed), maximum, count)
}

fn maximum() -> Option<usize> {
    let text = read(Path::new("/proc/sys/vm/max_map_count"), [Call::OpenSetting, Call::ReadSetting]).ok()?;
    str::from_utf8(&text).ok()?.trim().parse().ok()
}

/// Counts mappings at ever shorter intervals, because one count takes milliseconds if there are thousands.
struct Watch {
    /// The number of objects at the next count.
    next: AtomicUsize,
}

/// The number of objects at the first count: every usual limit is far above it.
const FIRST: usize = 1000;

/// The most mappings that one object may add: the ends of three runs, and one that it splits.
const OF_AN_OBJECT: usize = 4;
/// Mappings that are left to the rest of the process, but at most this part of the limit.
const RESERVE: usize = 1024;
const PART: usize = 16;

impl Watch {
    const fn new() -> Self {
        Self { next: AtomicUsize::new(FIRST) }
    }

    /// Checks for room beside `objects` objects. An unknown limit or count is no reason to refuse.
    fn admit(
        &self,
        objects: usize,
        maximum: impl FnOnce() -> Option<usize>,
        count: impl FnOnce() -> Option<usize>,
    ) -> Result<(), TooMany> {
        if objects < self.next.load(Ordering::Relaxed) {
            return Ok(());
        }
        let Some(limit) = maximum() else {
            self.next.store(usize::MAX, Ordering::Relaxed);
            return Ok(());
        };
        let Some(mappings) = count() else { return Ok(()) };
        let room = limit.saturating_sub(RESERVE.min(limit / PART)).saturating_sub(mappings);
        if room < OF_AN_OBJECT {
            return Err(TooMany { mappings, limit });
        }
        // The room ends here at the earliest.
        self.next.store(objects + room / OF_AN_OBJECT, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Objects are admitted until there is no room, and the mappings are counted only a few times.
    #[test]
    fn mappings_end_before_the_limit() {
        for limit in [6000, 65_530, 1 << 20] {
            for each in [1, 2, 3, OF_AN_OBJECT] {
                let (watch, counts, others) = (Watch::new(), Cell::new(0), 30);
                let mut objects = 0;
                let refused = loop {
                    let count = || {
                        counts.set(counts.get() + 1);
                        Some(others + objects * each)
                    };
                    match watch.admit(objects, || Some(limit), count) {
                        Ok(()) => objects += 1,
                        Err(refused) => break refused,
                    }
                };
                let mappings = others + objects * each;
                assert_eq!(refused, TooMany { mappings, limit });
                let reserve = RESERVE.min(limit / PART);
                assert!(mappings <= limit - reserve, "{mappings} mappings of {limit}");
                assert!(mappings > limit - reserve - 2 * OF_AN_OBJECT, "{mappings} mappings of {limit} are all");
                assert!(counts.get() < 64, "counted {} times for {objects} objects", counts.get());
                // There is room again after other mappings went.
                assert_eq!(watch.admit(objects, || Some(limit), || Some(mappings / 2)), Ok(()));
            }
        }
    }

    #[test]
    fn what_cannot_be_found_out_refuses_nothing() {
        let watch = Watch::new();
        assert_eq!(watch.admit(FIRST - 1, || unreachable!("there are few"), || unreachable!("there are few")), Ok(()));
        assert_eq!(watch.admit(FIRST, || Some(100), || None), Ok(()));
        assert_eq!(watch.admit(FIRST, || None, || unreachable!("there is no limit")), Ok(()));
        assert_eq!(watch.admit(usize::MAX - 1, || unreachable!("it was looked for"), || None), Ok(()));
    }

    #[test]
    fn the_kernel_tells() {
        assert!(maximum().is_some_and(|limit| limit > 100));
        assert!(maps::count().is_some_and(|mappings| mappings > 10));
    }
}
