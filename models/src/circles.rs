//! A circle of two codes, looked through by one thread while another one moves what it holds from one to the other.

use loom::sync::{Arc, Mutex};
use loom::thread;

use crate::model;
use crate::refcount::RefCount;

struct Circle {
    codes: [RefCount; 2],
    /// Whether the first keeps the second. The second keeps the first.
    keeps: Mutex<bool>,
}

impl Circle {
    /// One whose first code is held by one thread besides.
    fn new() -> Arc<Self> {
        let circle = Self { codes: [RefCount::new(), RefCount::new()], keeps: Mutex::new(true) };
        assert!(circle.codes[0].hold());
        Arc::new(circle)
    }

    /// As `cycles::unheld`, once: returns whether nothing but each other seems to hold the two.
    fn seems_unheld(&self, order: [usize; 2]) -> bool {
        self.codes.iter().for_each(RefCount::watch);
        let known = [1, usize::from(*self.keeps.lock().unwrap())];
        let counted = order.map(|i| self.codes[i].holders() == known[i]);
        counted == [true; 2] && self.codes.iter().all(RefCount::is_undisturbed)
    }
}

/// Has another thread, the holder, do something that it holds one of the two before and after, and looks meanwhile.
fn is_seen(holder: fn(&Circle)) {
    for order in [[0, 1], [1, 0]] {
        model(move || {
            let circle = Circle::new();
            let held = Arc::clone(&circle);
            let thread = thread::spawn(move || holder(&held));
            assert!(!circle.seems_unheld(order), "a holder was missed");
            thread.join().unwrap();
        });
    }
}

#[test]
fn a_holder_that_moves_is_seen() {
    is_seen(|circle| {
        assert!(circle.codes[1].hold());
        assert!(!circle.codes[0].release());
    });
}

/// As `LoadedLibrary::keep_in_place_of`: its holder takes over what the first code kept of the second.
#[test]
fn what_is_taken_over_is_seen() {
    is_seen(|circle| {
        let mut keeps = circle.keeps.lock().unwrap();
        circle.codes[0].disturb();
        *keeps = false;
        drop(keeps);
        assert!(!circle.codes[0].release());
    });
}

/// And after that there is an end to looking.
#[test]
fn what_nobody_holds_is_found() {
    model(|| {
        let circle = Circle::new();
        let held = Arc::clone(&circle);
        let thread = thread::spawn(move || assert!(!held.codes[0].release()));
        let _ = circle.seems_unheld([0, 1]);
        thread.join().unwrap();
        assert!(circle.seems_unheld([0, 1]));
    });
}
