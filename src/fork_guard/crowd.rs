//! Counts what forks wait for.
//!
//! Threads count on different cache lines, so that they do not wait for each other's: a load takes tens of guards.
//! Whoever counts looks for a fork afterwards, and a fork looks at the counts after it has told of itself. So one of
//! the two sees the other.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A thread with guards.
pub(super) const PASS: u64 = 1;
/// A thread that is in a call of the dynamic loader.
pub(super) const LOADING: u64 = 1 << 32;
const PASSES: u64 = LOADING - 1;

/// The limit of a fork's wait for calls of the dynamic loader: a thread in one may run an initialiser that waits for
/// the forking thread.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// The interval at which a waiting thread polls.
const AGAIN: Duration = Duration::from_micros(50);

/// As many as threads of most programs.
const LINES: usize = 64;

/// Two cache lines: processors fetch them in pairs.
#[repr(align(128))]
struct Line(AtomicU64);

static LINES_OF_THREADS: [Line; LINES] = [const { Line(AtomicU64::new(0)) }; LINES];
/// The number of threads that have been given a line.
static THREADS: AtomicUsize = AtomicUsize::new(0);
/// Forks under way, and those among them that wait no longer.
static FORKS: AtomicU32 = AtomicU32::new(0);
static CLOSED: AtomicU32 = AtomicU32::new(0);

thread_local! {
    // It has no destructor, and so lives to the thread's end.
    static OWN: Cell<Option<&'static AtomicU64>> = const { Cell::new(None) };
}

/// Returns the line on which this thread counts.
fn own() -> &'static AtomicU64 {
    OWN.get().unwrap_or_else(|| {
        let line = &LINES_OF_THREADS[THREADS.fetch_add(1, Ordering::Relaxed) % LINES].0;
        OWN.set(Some(line));
        line
    })
}

/// Counts once no fork is under way.
pub(super) fn enter(what: u64) {
    add_without(&FORKS, what);
}

/// Counts once there are none of these forks.
fn add_without(forks: &AtomicU32, what: u64) {
    let own = own();
    loop {
        own.fetch_add(what, Ordering::SeqCst);
        if forks.load(Ordering::SeqCst) == 0 {
            return;
        }
        own.fetch_sub(what, Ordering::Release);
        while forks.load(Ordering::Relaxed) != 0 {
            thread::sleep(AGAIN);
        }
    }
}

/// Counts whether or not there is a fork: it waits for this thread anyway.
pub(super) fn add(what: u64) {
    own().fetch_add(what, Ordering::SeqCst);
}

/// Undoes that.
pub(super) fn remove(what: u64) {
    own().fetch_sub(what, Ordering::Release);
}

/// Counts a call of the dynamic loader, if it is not counted yet, in place of guards.
pub(super) fn load_in_place_of_pass(is_new: bool) {
    let call = if is_new { LOADING } else { 0 };
    own().fetch_add(call.wrapping_sub(PASS), Ordering::SeqCst);
}

/// Counts guards again in place of the call, once no fork that did not wait for it is under way.
pub(super) fn pass_in_place_of_load(was_new: bool) {
    add_without(&CLOSED, PASS);
    if was_new {
        remove(LOADING);
    }
}

/// Waits before a fork until no guards are counted, and for a while until no calls are, and lets none be counted.
/// `counted`: this thread's count, for which neither it nor another that forks waits.
pub(super) fn close(counted: u64) {
    FORKS.fetch_add(1, Ordering::SeqCst);
    remove(counted);
    let mut waits_for_calls = None;
    loop {
        let waited = |begin: &mut Option<Instant>| begin.get_or_insert_with(Instant::now).elapsed() >= PATIENCE;
        let (passes, calls) = counts();
        if !passes && (!calls || waited(&mut waits_for_calls)) {
            CLOSED.fetch_add(1, Ordering::SeqCst);
            // A call that was not waited for may have come back just now.
            if !counts().0 {
                return;
            }
            CLOSED.fetch_sub(1, Ordering::SeqCst);
        }
        thread::sleep(AGAIN);
    }
}

/// Returns whether any guards are counted, and any calls.
fn counts() -> (bool, bool) {
    let counts = LINES_OF_THREADS.iter().map(|line| line.0.load(Ordering::SeqCst));
    let all = counts.fold(0, |all, of| all | u64::from(of & PASSES != 0) | if of > PASSES { LOADING } else { 0 });
    (all & PASSES != 0, all > PASSES)
}

/// Lets threads count again, in the parent.
pub(super) fn open(counted: u64) {
    add(counted);
    CLOSED.fetch_sub(1, Ordering::SeqCst);
    FORKS.fetch_sub(1, Ordering::SeqCst);
}

/// Does the same in the child, where there are no other threads, nor other forks.
pub(super) fn open_in_child(counted: u64) {
    LINES_OF_THREADS.iter().for_each(|line| line.0.store(0, Ordering::Relaxed));
    add(counted);
    CLOSED.store(0, Ordering::SeqCst);
    FORKS.store(0, Ordering::SeqCst);
}
