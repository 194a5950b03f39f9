//! Initialisers and finalisers: their order, and calls that may throw.
#![allow(unsafe_code)] // calls into linked code

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use slabjit_llvm_wrap as shim;

use super::graph::take_text;
#[cfg(feature = "cli")]
use super::outermost;
use crate::elf::{Array, ArrayKind};
use crate::gate;
use crate::name::Name;
use crate::runtime::vectors::{Strings, Vectors};

/// The functions of one object's initialiser and finaliser sections, in the order in which they are called.
///
/// It is the order in which `ld` and the dynamic loader would have it: `.preinit_array`; `.init`; `.init_array.N` and
/// `.ctors.(65535-N)` by ascending N, then `.init_array` and `.ctors`, each `.ctors` section from its end to its start.
/// Finalisers are the exact reverse.
#[derive(Debug, Default)]
pub(super) struct Arrays {
    initialisers: Vec<usize>,
    finalisers: Vec<usize>,
    /// Slots of indirect functions, to be filled before.
    slots: Vec<u64>,
}

impl Arrays {
    /// # Safety
    /// Each address is that of the section of the same index in `arrays`, linked and readable.
    pub(super) unsafe fn read(arrays: &[Array], addresses: &[u64], slots: Vec<u64>) -> Self {
        let mut initialisers = Vec::new();
        let mut finalisers = Vec::new();
        for (array, &address) in arrays.iter().zip(addresses).filter(|(_, address)| **address != 0) {
            let words = usize::try_from(array.size).unwrap_or(0) / size_of::<usize>();
            // SAFETY: the section has that many bytes; it may be unaligned.
            let entry = |i: usize| unsafe { (address as *const usize).add(i).read_unaligned() };
            // 0 and -1 delimit old .ctors lists.
            let entries = || (0..words).map(entry).filter(|e| *e != 0 && *e != usize::MAX);
            let mut entries: Vec<usize> = match array.kind {
                ArrayKind::InitCode | ArrayKind::FiniCode => vec![address as usize],
                _ => entries().collect(),
            };
            let (list, stage) = match array.kind {
                ArrayKind::PreInit => (&mut initialisers, 0),
                ArrayKind::InitCode => (&mut initialisers, 1),
                ArrayKind::Init => (&mut initialisers, 2),
                ArrayKind::Ctors => {
                    entries.reverse();
                    (&mut initialisers, 2)
                }
                ArrayKind::FiniCode => (&mut finalisers, 0),
                ArrayKind::Fini => (&mut finalisers, 1),
                ArrayKind::Dtors => {
                    // .dtors run from start to end; the whole list of finalisers is reversed below.
                    entries.reverse();
                    (&mut finalisers, 1)
                }
            };
            list.push((stage, array.priority, entries));
        }
        let flatten = |mut list: Vec<(u32, u32, Vec<usize>)>| -> Vec<usize> {
            list.sort_by_key(|(stage, priority, _)| (*stage, *priority));
            list.into_iter().flat_map(|(_, _, entries)| entries).collect()
        };
        let mut finalisers = flatten(finalisers);
        finalisers.reverse();
        Self { initialisers: flatten(initialisers), finalisers, slots }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.initialisers.is_empty() && self.finalisers.is_empty() && self.slots.is_empty()
    }

    /// The slots of indirect functions, once.
    pub(super) fn take_slots(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.slots)
    }

    pub(super) fn has_finalisers(&self) -> bool {
        !self.finalisers.is_empty()
    }

    /// Calls the initialisers as the dynamic loader does: with the process's argc, argv and environment ([`Vectors`]).
    ///
    /// # Safety
    /// The object is published, its frames are registered, and its initialisers may be run.
    pub(super) unsafe fn initialise(&self) -> Result<(), String> {
        // SAFETY: by the caller.
        self.initialisers.iter().try_for_each(|f| unsafe { call(*f) })
    }

    /// Calls the finalisers; one that fails does not keep the others from running.
    ///
    /// # Safety
    /// As for [`initialise`](Self::initialise), and they have not run yet.
    pub(super) unsafe fn finalise(&self, object: &Name) {
        for &function in &self.finalisers {
            // SAFETY: by the caller.
            if let Err(message) = unsafe { call(function) } {
                tracing::error!(target: "slabjit", object = &*object.text(), message, "a finaliser failed");
            }
        }
    }
}

/// Calls `function(argc, argv, envp)`, and turns a C++ exception or a Rust panic into its text.
///
/// # Safety
/// `function` is the address of a function of linked code that may be called with these or fewer arguments.
pub(super) unsafe fn call(function: usize) -> Result<(), String> {
    // SAFETY: the trampoline gets what it expects; what runs is the caller's word.
    unsafe { catching(trampoline, ptr::without_provenance_mut(function)) }
}

/// Calls `function(argument)`, and turns a C++ exception or a Rust panic into its text. In a program of `slabjit run` what leaves the
/// function ends the process instead, as it ends any program.
///
/// # Safety
/// The call must be sound.
pub(super) unsafe fn catching(
    function: unsafe extern "C-unwind" fn(*mut c_void),
    argument: *mut c_void,
) -> Result<(), String> {
    debug_assert!(!gate::has_pass(), "linked code may fork, or wait for whoever does");
    #[cfg(feature = "cli")]
    if outermost::is_program() {
        // SAFETY: by the caller.
        unsafe { outermost::call(function as *const (), [argument.expose_provenance(), 0, 0]) };
        return Ok(());
    }
    // C++ exceptions end in the shim; what passes it is a panic.
    // SAFETY: by the caller.
    let caught = catch_unwind(AssertUnwindSafe(|| unsafe { shim::slabjit_call_catching(function, argument) }));
    match caught {
        Ok(text) => take_text(text).map_or(Ok(()), Err),
        Err(panic) => Err(panic_message(&*panic)),
    }
}

unsafe extern "C-unwind" fn trampoline(function: *mut c_void) {
    type Initialiser = unsafe extern "C-unwind" fn(c_int, Strings, Strings);
    let Vectors { count, arguments, environment } = Vectors::of_process();
    // SAFETY: `call` passed the address of such a function.
    unsafe {
        let function: Initialiser = std::mem::transmute(function);
        function(count, arguments, environment);
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panic: {}", text.unwrap_or("(no message)"))
}
