//! Shares the work on many objects among threads, which are made for one call and end with it: an engine has no threads
//! of its own, which would be missing in a child of `fork`.

mod beside;

use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use tracing::{Dispatch, Span, dispatcher};

pub(crate) use self::beside::beside;
use crate::fork_guard;

/// The number of threads that work on many objects.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Threads(usize);

/// The work that is worth a thread, in bytes of objects: making one takes as long as preparing 30 small ones.
const SHARE: usize = 256 << 10;
/// The work on an object that has nothing but symbols, in bytes.
const EACH: usize = 2 << 10;
/// The most objects that a thread takes at a time.
const MOST: usize = 32;

impl Default for Threads {
    fn default() -> Self {
        Self(1)
    }
}

impl Threads {
    pub(crate) fn new(count: usize) -> Self {
        Self(count.max(1))
    }

    /// Returns how many threads, this one included, work on so many objects that have so many bytes.
    pub(crate) fn for_work(self, objects: usize, bytes: usize) -> usize {
        let work = objects.saturating_mul(EACH).saturating_add(bytes);
        self.0.min(work / SHARE).min(objects).max(1)
    }

    /// Works on each item, in any order, on `count` threads: on fewer if the system refuses one. After an item that
    /// breaks, no more are begun, but all before it are worked on; then it returns [`ControlFlow::Break`].
    ///
    /// Where this thread has a lock or a guard against forks, the work calls neither user code nor the dynamic loader,
    /// and takes no lock that this thread has.
    pub(crate) fn each<T: Send>(
        count: usize,
        items: &mut [T],
        work: impl Fn(&mut T) -> ControlFlow<()> + Sync,
    ) -> ControlFlow<()> {
        let Some(pass) = fork_guard::lend().filter(|_| count > 1) else {
            return items.iter_mut().try_for_each(work);
        };
        let size = items.len().div_ceil(count * 4).clamp(1, MOST);
        // None after an item has broken.
        let chunks = Mutex::new(Some(items.chunks_mut(size)));
        let left = || chunks.lock().unwrap_or_else(PoisonError::into_inner);
        let next = || left().as_mut()?.next();
        let run = || {
            while let Some(chunk) = next() {
                if chunk.iter_mut().try_for_each(&work).is_break() {
                    *left() = None;
                }
            }
        };
        let seen = Seen::here();
        beside(c"slabjit", count - 1, &|| pass.run(|| seen.by(run)), |_| run());
        if left().is_some() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

/// The subscriber of this thread's traces, and the span that it is in.
struct Seen(Option<(Dispatch, Span)>);

impl Seen {
    fn here() -> Self {
        Self(dispatcher::has_been_set().then(|| (dispatcher::get_default(Dispatch::clone), Span::current())))
    }

    fn by(&self, run: impl FnOnce()) {
        match &self.0 {
            Some((dispatch, span)) => dispatcher::with_default(dispatch, || span.in_scope(run)),
            None => run(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn few_objects_are_for_one_thread() {
        let four = Threads::new(4);
        assert_eq!([0, 1, 8].map(|count| Threads::new(count).for_work(1 << 20, 1 << 30)), [1, 1, 8]);
        assert_eq!(Threads::default().for_work(1000, 1 << 30), 1);
        // As many as have work, and objects.
        assert_eq!([0, 100, 200, 300, 1000].map(|objects| four.for_work(objects, objects * 1000)), [1, 1, 2, 3, 4]);
        assert_eq!([1, 2, 3].map(|objects| four.for_work(objects, 1 << 30)), [1, 2, 3]);
        assert_eq!(four.for_work(usize::MAX, usize::MAX), 4);
    }

    #[test]
    fn each_is_worked_on_once_by_several_at_a_time() {
        for items in [0, 1, 2, 7, 100, 1000] {
            let mut counts = vec![0; items];
            let ended = Threads::each(3, &mut counts, |count| {
                *count += 1;
                ControlFlow::Continue(())
            });
            assert!(ended.is_continue());
            assert_eq!(counts, vec![1; items]);
        }
        // Each waits for two others.
        let meet = Barrier::new(3);
        let ended = Threads::each(3, &mut [(); 3], |()| {
            meet.wait();
            ControlFlow::Continue(())
        });
        assert!(ended.is_continue());
    }

    #[test]
    fn what_comes_before_an_item_that_breaks_is_worked_on() {
        for count in [1, 2, 8] {
            for broken in [0, 1, 31, 500, 999] {
                let done = || {
                    let done = AtomicUsize::new(0);
                    let mut items: Vec<(usize, bool)> = (0..1000).map(|i| (i, false)).collect();
                    let ended = Threads::each(count, &mut items, |(i, worked)| {
                        *worked = true;
                        done.fetch_add(1, Ordering::Relaxed);
                        if *i == broken { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                    });
                    assert!(ended.is_break());
                    assert!(items[..=broken].iter().all(|(_, worked)| *worked), "{count} {broken}");
                    done.into_inner()
                };
                // A busy machine may let a thread wait before it breaks, and others go on meanwhile.
                let ended = (0..100).any(|_| done() <= broken + 1 + count * MOST);
                assert!(ended, "{count} {broken}");
            }
        }
    }

    #[test]
    fn a_panic_comes_out_when_all_have_ended() {
        let ended = AtomicUsize::new(0);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = Threads::each(2, &mut [0; 100], |_| {
                assert!(ended.fetch_add(1, Ordering::Relaxed) != 50, "on purpose");
                ControlFlow::Continue(())
            });
        }));
        assert!(panicked.is_err() && ended.into_inner() > 50);
    }
}
