//! What the models in `models/` replace by loom's, for the files that they compile: protocols of atomics.

pub(crate) use std::boxed::Box;
pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
