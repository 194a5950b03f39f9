//! What a session knows of its dylibs.
#![allow(unsafe_code, reason = "FFI to LLVM")]

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Weak};

use slabjit_llvm_wrap as shim;

use super::trackers::Trackers;
use crate::fork_guard::{ForkGuard, Mutex};
use crate::live::context::Context;
use crate::live::library::Library;
use crate::live::lifetime::loaded_library::{CodeRef, LoadedLibrary};
use crate::name::Name;

/// A dylib, as its session has it.
pub(super) struct Entry {
    /// ORC's dylib, which lives as long as the session.
    pub(super) raw: *mut c_void,
    pub(super) name: Name,
    pub(super) links: Mutex<Links>,
    /// What addresses belong to that are no code of ours.
    pub(super) code: CodeRef,
    /// How many names LLVM has been given for what has no tracker of its own.
    pub(super) names: AtomicUsize,
    /// What was added with trackers that are gone.
    pub(super) kept: Trackers,
    /// How many times it was cleared.
    pub(super) clears: AtomicU64,
}

// SAFETY: ORC's dylibs may be used from any thread.
unsafe impl Send for Entry {}
// SAFETY: as above.
unsafe impl Sync for Entry {}

/// What a dylib is linked against.
#[derive(Default)]
pub(super) struct Links {
    /// ORC's dylibs, in the order in which names are looked for.
    pub(super) order: Vec<usize>,
    pub(super) dylibs: Vec<Weak<Entry>>,
    pub(super) libraries: Vec<Arc<Library>>,
}

impl Entry {
    pub(super) fn new(context: &Context, raw: *mut c_void, name: Name) -> Self {
        let code = CodeRef::first(LoadedLibrary::new(name.clone(), false, Vec::new(), &context.registry));
        let (links, names, kept, clears) = Default::default();
        Self { raw, name, links, code, names, kept, clears }
    }

    /// Tells ORC in what its code looks names up: in itself, in what it is linked against, and in the process.
    pub(super) fn set_order(&self, links: &Links, process: *mut c_void) {
        let of_links = links.order.iter().map(|raw| std::ptr::with_exposed_provenance_mut(*raw));
        let order: Vec<*mut c_void> = [self.raw].into_iter().chain(of_links).chain([process]).collect();
        let _pass = ForkGuard::take();
        // SAFETY: dylibs of one session, which lives.
        unsafe { shim::slabjit_dylib_set_order(self.raw, order.as_ptr(), order.len()) };
    }
}
