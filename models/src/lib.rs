//! Models of the crate's own sources, compiled with loom's atomics instead of the standard library's: `cargo test -p
//! slabjit-models`.
//!
//! loom runs each model through every order of its threads, and every value that a relaxed load may see. It takes
//! accesses that are `SeqCst` for `AcqRel` ones, and fences as they are. Orders with more than `PREEMPTIONS`
//! preemptions are left out.
#![cfg(test)]
#![warn(unreachable_pub)]

#[path = "../../src/live/lifetime/refcount.rs"]
mod refcount;

mod circles;
mod functions;
mod history;
mod name;
mod ownership;
mod sync;

/// Most faults show with two (Musuvathi and Qadeer, PLDI 2007).
const PREEMPTIONS: usize = 3;

fn model(run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(run);
}
