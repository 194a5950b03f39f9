//! Threads that compile and link for a session.
#![allow(unsafe_code, reason = "FFI to LLVM")]

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};

use slabjit_llvm_wrap as shim;

use crate::fork_guard::{self, ForkGuard};
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

    fn run(self) {
        let _pass = ForkGuard::take();
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
    workers: Vec<JoinHandle<()>>,
    /// The number of workers, those included that are being started.
    started: usize,
    /// The [generation](fork_guard::generation) of the process that has the workers.
    generation: u32,
    /// No thread is to wait for more tasks.
    ends: bool,
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
        let missing = self.queue.change(|queue| {
            if queue.generation != fork_guard::generation() {
                queue.generation = fork_guard::generation();
                // They are in the process that this one was forked from.
                queue.workers.drain(..).for_each(std::mem::forget);
                queue.started = 0;
            }
            let missing = !queue.ends && queue.started < self.threads;
            queue.started += usize::from(missing);
            missing
        });
        if missing {
            let pool = Arc::clone(self);
            let name = thread::Builder::new().name("slabjit compiles".to_owned());
            match name.stack_size(STACK).spawn(move || pool.work()) {
                Ok(worker) => self.queue.change(|queue| queue.workers.push(worker)),
                Err(error) => {
                    tracing::warn!(target: "slabjit", %error, "cannot start a thread that compiles");
                    self.queue.change(|queue| queue.started -= 1);
                }
            }
        }
        self.queue.update(|queue| {
            if queue.workers.is_empty() || queue.ends {
                return Err(task);
            }
            queue.tasks.push_back(task);
            Ok(())
        })
    }

    fn work(self: Arc<Self>) {
        WORKS_FOR.set(Arc::as_ptr(&self));
        loop {
            let next = self.queue.wait(|queue| match queue.tasks.pop_front() {
                Some(task) => Some(Some(task)),
                None => queue.ends.then_some(None),
            });
            let Some(task) = next else { return };
            // Where the task drops what else keeps the session, that ends behind the task.
            let owner = self.owner.upgrade();
            task.run();
            drop(owner);
        }
    }

    /// Returns whether this thread is one of the pool's.
    pub(super) fn is_ours(&self) -> bool {
        ptr::eq(WORKS_FOR.get(), self)
    }

    /// Waits until `done`, as one of the pool's threads, which runs tasks meanwhile: `done` may depend on them.
    pub(super) fn work_until(&self, mut done: impl FnMut() -> bool) {
        while let Some(task) = self.queue.wait(|queue| match done() {
            true => Some(None),
            false => queue.tasks.pop_front().map(Some),
        }) {
            task.run();
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
                workers.into_iter().for_each(std::mem::forget);
                return Vec::new();
            }
            workers
        });
        let me = thread::current().id();
        for worker in workers {
            if worker.thread().id() != me {
                // A task does not panic: it is C++.
                let _ = worker.join();
            }
        }
        while let Some(task) = self.queue.change(|queue| queue.tasks.pop_front()) {
            task.run();
        }
    }
}
