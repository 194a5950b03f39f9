//! Holders of code, its one end, and who waits for that.

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::model;
use crate::refcount::{RefCount, Waiting};
use crate::sync::AtomicUsize;

struct Code {
    life: RefCount,
    /// How often it was ended. Whoever holds the code reads it, as one runs code.
    ends: UnsafeCell<u32>,
    waiting: Waiting,
    /// As `Signal`: a lock, and those who are told.
    signal: (Mutex<()>, Condvar),
}

impl Code {
    /// Held once.
    fn new() -> Arc<Self> {
        let waiting = Waiting(AtomicUsize::new(0));
        let signal = (Mutex::new(()), Condvar::new());
        Arc::new(Self { life: RefCount::new(), ends: UnsafeCell::new(0), waiting, signal })
    }

    fn ends(&self) -> u32 {
        // SAFETY: loom panics where another writes it.
        self.ends.with(|ends| unsafe { *ends })
    }

    /// By a holder.
    fn run(&self) {
        assert_eq!(self.ends(), 0, "it runs after its end");
    }

    /// As `CodeRef`'s drop.
    fn release(&self) {
        if self.life.release() {
            // SAFETY: loom panics where another reads or writes it.
            self.ends.with_mut(|ends| unsafe { *ends += 1 });
            self.life.set_gone();
            if self.waiting.any() {
                let _lock = self.signal.0.lock().unwrap();
                self.signal.1.notify_all();
            }
        }
    }

    /// As `hold::wait`.
    fn wait(&self) {
        self.waiting.begin();
        let mut lock = self.signal.0.lock().unwrap();
        while !self.life.is_gone() {
            lock = self.signal.1.wait(lock).unwrap();
        }
        drop(lock);
        self.waiting.end();
    }
}

#[test]
fn ends_once_after_all_that_held_it() {
    model(|| {
        let code = Code::new();
        assert!(code.life.hold());
        let holder = {
            let code = Arc::clone(&code);
            thread::spawn(move || {
                code.run();
                code.release();
            })
        };
        // One that has no share, and asks whether there are others.
        let late = {
            let code = Arc::clone(&code);
            thread::spawn(move || {
                if code.life.hold() {
                    code.run();
                    code.release();
                }
            })
        };
        code.run();
        code.release();
        holder.join().unwrap();
        late.join().unwrap();
        assert_eq!((code.ends(), code.life.holders(), code.life.is_gone()), (1, 0, true));
        assert!(!code.life.hold());
    });
}

#[test]
fn who_sees_that_it_is_gone_sees_its_end() {
    model(|| {
        let code = Code::new();
        let other = {
            let code = Arc::clone(&code);
            thread::spawn(move || code.life.is_gone().then(|| assert_eq!(code.ends(), 1)))
        };
        code.release();
        other.join().unwrap();
    });
}

/// Or loom finds that all threads wait.
#[test]
fn who_waits_is_told() {
    model(|| {
        let code = Code::new();
        let others = [0, 1].map(|_| {
            let code = Arc::clone(&code);
            thread::spawn(move || {
                code.wait();
                assert_eq!(code.ends(), 1);
            })
        });
        code.release();
        others.into_iter().for_each(|other| other.join().unwrap());
        assert!(!code.waiting.any());
    });
}
