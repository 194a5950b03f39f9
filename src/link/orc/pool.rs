//! Threads that compile and link for a session.
#![allow(unsafe_code, reason = "FFI to LLVM")]

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Weak};

use slabjit_llvm_wrap as shim;

use super::later::leave;
use crate::fork_guard::{self, ForkGuard};
use crate::guarded::guarded;
use crate::live::lifetime::wakeup::Signal;

/// The threads' stacks: LLVM's passes recurse.
const STACK: usize = 8 << 20;

/// A task of ORC's: it is run once.
pub(super) struct Task(*mut c_void);

// SAFETY: ORC's tasks may be run by any thread.
unsafe impl Send for Task {}

impl Task {
    /// # Safety
    /// The task is the caller's.
    pub(super) unsafe fn new(raw: *mut c_void) -> Self {
        Self(raw)
    }

    /// The thread has a guard.
    fn run(self) {
        // SAFETY: ours, and run once; the session lives, as its end waits for this.
        unsafe { shim::slabjit_task_run(self.0) };
    }
}

/// Threads that run tasks in the order in which these come. They are started by the first tasks, and once more in a
/// child of `fork`.
pub(super) struct Pool {
    queue: Signal<Queue>,
    threads: usize,
    /// What must not end while a thread runs a task.
    owner: Weak<dyn Send + Sync>,
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Task>,
    workers: Vec<Worker>,
    /// The number of workers, those included that are being started.
    started: usize,
    /// The [generation](fork_guard::generation) of the process that has the workers.
    generation: u32,
    /// No thread is to wait for more tasks.
    ends: bool,
}

/// A thread of a pool. One of `std`'s takes a lock of `std`'s when it begins, which a child of `fork` may find taken.
struct Worker(libc::pthread_t);

impl Worker {
    fn start(pool: Arc<Pool>) -> std::io::Result<Self> {
        extern "C" fn run(pool: *mut c_void) -> *mut c_void {
            // SAFETY: of `start`, which gave it away.
            let pool = unsafe { Arc::from_raw(pool.cast_const().cast::<Pool>()) };
            // SAFETY: a name of less than 16 bytes, of this thread.
            unsafe { libc::pthread_setname_np(libc::pthread_self(), c"slabjit compile".as_ptr()) };
            guarded((), || pool.work());
            ptr::null_mut()
        }
        let mut thread = 0;
        let mut attributes = std::mem::MaybeUninit::uninit();
        let pool = Arc::into_raw(pool);
        // SAFETY: the attributes are made, used and ended here; the thread has the pool, if there is one.
        let failed = unsafe {
            libc::pthread_attr_init(attributes.as_mut_ptr());
            libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK);
            let failed =
                libc::pthread_create(&raw mut thread, attributes.as_ptr(), run, pool.cast_mut().cast::<c_void>());
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            failed
        };
        if failed == 0 {
            return Ok(Self(thread));
        }
        // SAFETY: no thread has it.
        drop(unsafe { Arc::from_raw(pool) });
        Err(std::io::Error::from_raw_os_error(failed))
    }

    /// Waits for the thread's end, unless it is this one.
    fn join(self) {
        // SAFETY: a thread of this process that nobody else waits for.
        unsafe {
            match libc::pthread_equal(self.0, libc::pthread_self()) {
                0 => libc::pthread_join(self.0, ptr::null_mut()),
                _ => libc::pthread_detach(self.0),
            };
        }
    }
}

thread_local! {
    /// The pool that this thread works for.
    static WORKS_FOR: Cell<*const Pool> = const { Cell::new(ptr::null()) };
}

impl Pool {
    pub(super) fn new(threads: usize, owner: Weak<dyn Send + Sync>) -> Arc<Self> {
        Arc::new(Self { queue: Signal::default(), threads, owner })
    }

    /// Takes a task; gives it back if there is no thread to run it.
    pub(super) fn push(self: &Arc<Self>, task: Task) -> Result<(), Task> {
        self.start();
        self.queue.update(|queue| {
            if queue.workers.is_empty() || queue.ends {
                return Err(task);
            }
            queue.tasks.push_back(task);
            Ok(())
        })
    }

    /// In a child of `fork`, has tasks be run that the process it comes from had not begun.
    pub(super) fn go_on(self: &Arc<Self>) {
        if self.queue.change(|queue| queue.generation == fork_guard::generation() || queue.tasks.is_empty()) {
            return;
        }
        self.start();
        let has_workers = self.queue.change(|queue| !queue.workers.is_empty());
        while !has_workers && self.run_one() {}
    }

    /// Starts a thread, if some are missing.
    fn start(self: &Arc<Self>) {
        let missing = self.queue.change(|queue| {
            if queue.generation != fork_guard::generation() {
                queue.generation = fork_guard::generation();
                // They are in the process that this one was forked from.
                queue.workers.clear();
                queue.started = 0;
            }
            let missing = !queue.ends && queue.started < self.threads;
            queue.started += usize::from(missing);
            missing
        });
        if missing {
            match Worker::start(Arc::clone(self)) {
                Ok(worker) => self.queue.change(|queue| queue.workers.push(worker)),
                Err(error) => {
                    tracing::warn!(target: "slabjit", %error, "cannot start a thread that compiles");
                    self.queue.change(|queue| queue.started -= 1);
                }
            }
        }
    }

    fn work(self: Arc<Self>) {
        WORKS_FOR.set(Arc::as_ptr(&self));
        while self.queue.wait(|queue| (!queue.tasks.is_empty() || queue.ends).then_some(!queue.tasks.is_empty())) {
            // Where the task drops what else keeps the session, that ends behind the task.
            let owner = self.owner.upgrade();
            self.run_one();
            drop(owner);
        }
    }

    /// Runs the next task, if there is one. A fork finds it among those to be run, or waits for its end.
    fn run_one(&self) -> bool {
        let pass = ForkGuard::take();
        let task = self.queue.change(|queue| queue.tasks.pop_front());
        let has_run = task.map(Task::run).is_some();
        drop(pass);
        leave();
        has_run
    }

    /// Returns whether this thread is one of the pool's.
    pub(super) fn is_ours(&self) -> bool {
        ptr::eq(WORKS_FOR.get(), self)
    }

    /// Waits until `done`, as one of the pool's threads, which runs tasks meanwhile: `done` may depend on them.
    pub(super) fn work_until(&self, mut done: impl FnMut() -> bool) {
        while self.queue.wait(|queue| match done() {
            true => Some(false),
            false => (!queue.tasks.is_empty()).then_some(true),
        }) {
            self.run_one();
        }
    }

    /// Has threads of the pool look again whether what they wait for is done.
    pub(super) fn wake(&self) {
        self.queue.update(|_| ());
    }

    /// Ends the threads, but for this one, once all tasks have run.
    pub(super) fn end(&self) {
        let workers = self.queue.update(|queue| {
            queue.ends = true;
            let workers = std::mem::take(&mut queue.workers);
            if queue.generation != fork_guard::generation() {
                return Vec::new();
            }
            workers
        });
        workers.into_iter().for_each(Worker::join);
        while self.run_one() {}
    }
}
