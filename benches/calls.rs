//! A million calls, through a handle or through the pointer in it, for `ci/callgrind` to count the instructions of.

mod next;

use std::hint::black_box;

use slabjit::{JitEngine, Symbol};

use next::Next;

const CALLS: i32 = 1_000_000;

fn main() {
    let library = JitEngine::new().unwrap().add_object(next::object()).unwrap();
    // SAFETY: the type is that of `next`.
    let next: Symbol<Next> = unsafe { library.get("next").unwrap() };
    let answer = match std::env::args().any(|argument| argument == "--pointer") {
        true => through_the_pointer(next.as_raw()),
        false => through_the_handle(&next),
    };
    assert_eq!(answer, CALLS);
}

#[inline(never)]
fn through_the_handle(next: &Symbol<Next>) -> i32 {
    // SAFETY: it takes any number.
    (0..CALLS).fold(0, |n, _| unsafe { black_box(next)(n) })
}

#[inline(never)]
fn through_the_pointer(next: Next) -> i32 {
    // SAFETY: as above; the library is there until `main` ends.
    (0..CALLS).fold(0, |n, _| unsafe { black_box(&next)(n) })
}
