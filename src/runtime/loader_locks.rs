//! Who has the dynamic loader's locks.
//!
//! glibc's loader has one lock while it opens and closes modules and runs their initialisers (`dl_load_lock`), and takes
//! another one in it while its list of modules changes (`dl_load_write_lock`). A callback of `dl_iterate_phdr` runs under
//! the second one alone. Whoever opens a module there may wait for a thread that waits for him, and the module that is
//! closed there may be the one that the list is read at. And an initialiser may wait for a thread, which then must not
//! wait for the first one.
//!
//! Both are recursive mutexes among the data of ld.so, one behind the other (sysdeps/generic/ldsodefs.h). They have no
//! names, but a callback sees which one its thread has got once more; that is done once in a process.
#![allow(unsafe_code, reason = "reads locks of the dynamic loader's")]

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::loaded::headers;
use crate::fork_guard;

/// The first words of `pthread_mutex_t` (sysdeps/nptl/bits/struct_mutex.h): lock, count, owner, number of users, kind.
const LOCK: usize = 0;
const COUNT: usize = 4;
const OWNER: usize = 8;
const KIND: usize = 16;
const SIZE: usize = size_of::<libc::pthread_mutex_t>();
/// The interval at which a waiting thread looks.
const AGAIN: Duration = Duration::from_micros(50);
/// `PTHREAD_MUTEX_RECURSIVE_NP`
const RECURSIVE: u32 = 1;

/// The address of the list's lock, or one of these.
static FOUND: AtomicUsize = AtomicUsize::new(UNKNOWN);
const UNKNOWN: usize = 0;
const NONE: usize = 1;

/// Returns whether this thread is in a callback of `dl_iterate_phdr`, or may be.
pub(super) fn is_iterating() -> bool {
    // SAFETY: a lock of ld.so, which stays.
    list().is_none_or(|list| unsafe { word(list + OWNER) } == own_number())
}

/// Returns whether another thread opens or closes modules, or may do so, for longer than `limit`.
pub(super) fn is_loader_taken(limit: Duration) -> bool {
    let Some(lock) = list().map(|list| list - SIZE) else { return true };
    let is_taken = || {
        // SAFETY: in the data of ld.so, as checked when the other one was found.
        let owner = unsafe { word(lock + OWNER) };
        owner != 0 && owner != own_number()
    };
    let mut since = None;
    while is_taken() {
        if since.get_or_insert_with(Instant::now).elapsed() >= limit {
            return true;
        }
        thread::sleep(AGAIN);
    }
    false
}

/// Returns the address of the list's lock.
fn list() -> Option<usize> {
    let lock = match FOUND.load(Ordering::Relaxed) {
        UNKNOWN => {
            let lock = find().unwrap_or(NONE);
            FOUND.store(lock, Ordering::Relaxed);
            lock
        }
        lock => lock,
    };
    (lock != NONE).then_some(lock)
}

fn own_number() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

/// # Safety
/// The address is one of 4 readable bytes.
unsafe fn word(address: usize) -> u32 {
    // SAFETY: by the caller. Others may write it meanwhile.
    unsafe { std::ptr::with_exposed_provenance::<u32>(address).read_volatile() }
}

/// What a callback looks for.
struct Search {
    /// ld.so's address.
    loader: usize,
    /// Its data.
    data: Vec<Range<usize>>,
    /// How often this thread had what may be a lock, by its address.
    before: Vec<(usize, u32)>,
    /// What it has once more.
    more: Vec<usize>,
}

/// Finds the lock.
fn find() -> Option<usize> {
    // SAFETY: a plain call; 0 if there is none.
    let loader = unsafe { libc::getauxval(libc::AT_BASE) } as usize;
    let mut search = Search { loader, data: Vec::new(), before: Vec::new(), more: Vec::new() };
    if loader == 0 {
        return None;
    }
    let pointer = (&raw mut search).cast();
    // SAFETY: the callback gets the pointer to `search`, which lives until the call returns and is not used meanwhile.
    unsafe { fork_guard::loading(|| libc::dl_iterate_phdr(Some(find_data), pointer)) };
    // SAFETY: as `find_data` found them.
    search.before = unsafe { own_locks(&search.data) };
    let pointer = (&raw mut search).cast();
    // SAFETY: as above.
    unsafe { fork_guard::loading(|| libc::dl_iterate_phdr(Some(compare), pointer)) };
    let [list] = *search.more else { return None };
    // The other one is before it.
    let is_there = search.data.iter().any(|range| range.contains(&(list - SIZE)) && range.contains(&list));
    // SAFETY: it is there.
    (is_there && unsafe { word(list - SIZE + KIND) } == RECURSIVE).then_some(list)
}

/// # Safety
/// Called by dl_iterate_phdr, with a pointer to a search.
unsafe extern "C" fn find_data(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: by the caller's contract.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    if info.dlpi_addr as usize != search.loader {
        return 0;
    }
    // SAFETY: as above.
    let data = unsafe { headers(info) }.iter().filter(|h| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_W != 0);
    search.data = data
        .map(|h| {
            (search.loader + h.p_vaddr as usize).next_multiple_of(8)..search.loader + (h.p_vaddr + h.p_memsz) as usize
        })
        .collect();
    1
}

/// # Safety
/// Called by dl_iterate_phdr, with a pointer to a search.
unsafe extern "C" fn compare(_: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: by the caller's contract.
    let search = unsafe { &mut *search.cast::<Search>() };
    // SAFETY: as `find_data` found them.
    for (lock, count) in unsafe { own_locks(&search.data) } {
        let before = search.before.iter().find(|(other, _)| *other == lock).map_or(0, |(_, count)| *count);
        if before.checked_add(1) == Some(count) {
            search.more.push(lock);
        }
    }
    1
}

/// Returns what may be locks that this thread has, and how often.
///
/// # Safety
/// The ranges can be read.
unsafe fn own_locks(data: &[Range<usize>]) -> Vec<(usize, u32)> {
    let own = own_number();
    let places = data.iter().flat_map(|range| range.clone().step_by(8).take_while(|at| at + SIZE <= range.end));
    // SAFETY: by the caller.
    let is_own = |at: &usize| unsafe {
        word(at + OWNER) == own && word(at + KIND) == RECURSIVE && word(at + LOCK) != 0 && word(at + COUNT) != 0
    };
    // SAFETY: by the caller.
    places.filter(is_own).map(|at| (at, unsafe { word(at + COUNT) })).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// What a callback asks: this thread, and another one that waits for it.
    struct Questions {
        other: Arc<Other>,
        answers: [bool; 2],
    }

    /// What the other thread has done, and its answer. They are no channel: a thread's first use of one takes another
    /// lock of the loader's, which `dlopen` takes first.
    #[derive(Default)]
    struct Other {
        step: AtomicUsize,
        answer: AtomicBool,
    }

    impl Other {
        const READY: usize = 1;
        const ASKED: usize = 2;
        const ANSWERED: usize = 3;

        fn wait_for(&self, step: usize) {
            while self.step.load(Ordering::Acquire) != step {
                thread::yield_now();
            }
        }

        fn go_to(&self, step: usize) {
            self.step.store(step, Ordering::Release);
        }
    }

    unsafe extern "C" fn ask(_: *mut libc::dl_phdr_info, _: usize, questions: *mut c_void) -> c_int {
        // SAFETY: those below.
        let Questions { other, answers } = unsafe { &mut *questions.cast::<Questions>() };
        let own = is_iterating();
        other.go_to(Other::ASKED);
        other.wait_for(Other::ANSWERED);
        *answers = [own, other.answer.load(Ordering::Relaxed)];
        1
    }

    #[test]
    fn callbacks_are_known() {
        for first in [is_iterating, || false] {
            FOUND.store(UNKNOWN, Ordering::Relaxed);
            assert!(!first());
            let other = Arc::new(Other::default());
            let mut questions = Questions { other: Arc::clone(&other), answers: [false; 2] };
            let answering = thread::spawn(move || {
                other.go_to(Other::READY);
                other.wait_for(Other::ASKED);
                other.answer.store(is_iterating(), Ordering::Relaxed);
                other.go_to(Other::ANSWERED);
            });
            questions.other.wait_for(Other::READY);
            // SAFETY: the callback gets what it expects.
            unsafe { libc::dl_iterate_phdr(Some(ask), (&raw mut questions).cast()) };
            answering.join().unwrap();
            assert_eq!(questions.answers, [true, false]);
            assert!(!is_iterating());
        }
    }
}
