//! Threads of the C library, which a child of `fork` can always start. Each thread of std's takes a lock of std's when it
//! starts and when it ends (it guards the addresses of stacks). If a thread of the parent holds that lock at the fork, it
//! stays locked in the child, and each thread of std's that the child starts waits for ever.
#![allow(unsafe_code, reason = "pthread_create and pthread_join")]

use std::any::Any;
use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, PoisonError};
use std::{io, ptr};

/// Bytes of a thread's stack, as std's threads have.
const STACK: usize = 2 << 20;

/// What the threads of one call share.
struct Shared<'a> {
    name: &'static CStr,
    work: &'a (dyn Fn() + Sync),
    /// What one of them panicked with.
    panicked: Mutex<Option<Box<dyn Any + Send>>>,
}

/// Runs `work` on `count` more threads and `own` on this one. If the system refuses a thread, no more are made, and `own`
/// gets its error. Returns when all have ended.
///
/// # Panics
/// If one of them does, when all have ended.
pub(crate) fn beside<R>(
    name: &'static CStr,
    count: usize,
    work: &(dyn Fn() + Sync),
    own: impl FnOnce(io::Result<()>) -> R,
) -> R {
    let shared = Shared { name, work, panicked: Mutex::new(None) };
    let mut threads = Vec::with_capacity(count);
    let mut refused = Ok(());
    while threads.len() < count {
        match start(&shared) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                refused = Err(error);
                break;
            }
        }
    }
    let result = catch_unwind(AssertUnwindSafe(|| own(refused)));
    for thread in threads {
        // SAFETY: it was made above, and is neither detached nor joined by anybody else.
        unsafe { libc::pthread_join(thread, ptr::null_mut()) };
    }
    let result = result.unwrap_or_else(|panic| resume_unwind(panic));
    match shared.panicked.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(panic) => resume_unwind(panic),
        None => result,
    }
}

/// Makes a thread. The caller joins it before `shared` ends.
fn start(shared: &Shared<'_>) -> io::Result<libc::pthread_t> {
    let ok = |errno| if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) };
    let (mut attributes, mut thread) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: memory for attributes.
    ok(unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) })?;
    // SAFETY: initialised attributes, which no call keeps; the new thread gets what `enter` expects, by the contract of
    // this function for as long as it runs.
    let made = unsafe {
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK);
        let argument = ptr::from_ref(shared).cast_mut().cast();
        let made = libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), enter, argument);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        made
    };
    ok(made)?;
    // SAFETY: it was made, and so written.
    Ok(unsafe { thread.assume_init() })
}

/// The new thread: gets a pointer to `Shared`.
extern "C" fn enter(shared: *mut c_void) -> *mut c_void {
    // SAFETY: `start` gives it, and its caller keeps it until this thread has ended; all of it may be shared.
    let shared = unsafe { &*shared.cast::<Shared<'_>>() };
    // SAFETY: this thread, and a string.
    unsafe { libc::pthread_setname_np(libc::pthread_self(), shared.name.as_ptr()) };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(shared.work)) {
        *shared.panicked.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
    }
    ptr::null_mut()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn all_have_ended_when_it_returns() {
        let ended = AtomicUsize::new(0);
        let work = || {
            thread::sleep(std::time::Duration::from_millis(5));
            ended.fetch_add(1, Ordering::Relaxed);
        };
        for count in [0, 1, 5] {
            ended.store(0, Ordering::Relaxed);
            assert_eq!(beside(c"beside", count, &work, |started| started.map(|()| 7)).unwrap(), 7);
            assert_eq!(ended.load(Ordering::Relaxed), count);
        }
    }

    #[test]
    fn a_panic_comes_out_whoever_it_is_of() {
        let ended = AtomicUsize::new(0);
        let work = || {
            assert!(ended.fetch_add(1, Ordering::Relaxed) != 1, "of a thread");
        };
        let panicked = catch_unwind(AssertUnwindSafe(|| beside(c"beside", 3, &work, |_| ()))).unwrap_err();
        assert_eq!(panicked.downcast_ref(), Some(&"of a thread"));
        assert_eq!(ended.load(Ordering::Relaxed), 3);
        let panicked = catch_unwind(AssertUnwindSafe(|| beside(c"beside", 3, &work, |_| panic!("own")))).unwrap_err();
        assert_eq!(panicked.downcast_ref(), Some(&"own"));
        assert_eq!(ended.load(Ordering::Relaxed), 6);
    }

    /// Under qemu-user 7.2 a child cannot make a thread if another thread made one during the fork.
    #[test]
    fn a_child_has_threads_whatever_other_threads_began_or_ended() {
        if std::env::var_os("SLABJIT_TEST_RUNNER").is_some() {
            return;
        }
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        thread::spawn(|| ()).join().unwrap();
                    }
                });
            }
            let status_of_child = || {
                // SAFETY: the child makes threads and ends, by a signal if it hangs.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    // SAFETY: as above.
                    unsafe { libc::alarm(20) };
                    beside(c"beside", 2, &|| (), |started| started.unwrap());
                    // SAFETY: as above.
                    unsafe { libc::_exit(0) };
                }
                let mut status = -1;
                // SAFETY: this process's child.
                unsafe { libc::waitpid(child, &raw mut status, 0) };
                status
            };
            let failed = (0..2000).map(|_| status_of_child()).find(|status| *status != 0);
            done.store(true, Ordering::Relaxed);
            assert_eq!(failed, None);
        });
    }
}
