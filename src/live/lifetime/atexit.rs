//! Exit handlers of libraries: what `__cxa_atexit`, `atexit`, `at_quick_exit` and `pthread_atfork` mean to linked code.
//!
//! glibc's own lists would call into memory that is gone, and never shrink. So each library has lists of its own, found
//! by the address of its `__dso_handle`; the process's lists hold one entry of ours.
#![allow(unsafe_code, reason = "C ABI, calls into linked code")]

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::{Arc, OnceLock, Weak};

use crate::Result;
use crate::elf::Whereabouts;
use crate::fork_guard::{self, Mutex};
use crate::live::lifetime::code_ref::{self, Kept};
use crate::live::lifetime::exit_handlers::{Fork, Handler, next_sequence};
use crate::live::lifetime::init_lock;
use crate::live::lifetime::loaded_library::{CodeRef, LoadedLibrary};
use crate::live::lifetime::own_symbols::{OwnSymbols, handlers_of};
use crate::live::lifetime::thread_atexit::cxa_thread_atexit;
use crate::live::tls::Turn;
use crate::memory::Arena;
use crate::runtime;
use crate::runtime::thread_local::__tls_get_addr;

/// Symbols that libc.so does not export, because each shared object gets a copy that knows its `__dso_handle`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PerLibrarySymbol {
    DsoHandle,
    AtExit,
    AtQuickExit,
    AtFork,
    CxaAtExit,
    CxaAtQuickExit,
    RegisterAtFork,
    CxaThreadAtExit,
    /// The process's own `__tls_get_addr`, which isolated libraries need as well.
    TlsGetAddr,
}

impl PerLibrarySymbol {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "__dso_handle" => Self::DsoHandle,
            "atexit" => Self::AtExit,
            "at_quick_exit" => Self::AtQuickExit,
            "pthread_atfork" | "__pthread_atfork" => Self::AtFork,
            "__cxa_atexit" => Self::CxaAtExit,
            "__cxa_at_quick_exit" => Self::CxaAtQuickExit,
            "__register_atfork" => Self::RegisterAtFork,
            "__cxa_thread_atexit" | "__cxa_thread_atexit_impl" => Self::CxaThreadAtExit,
            "__tls_get_addr" => Self::TlsGetAddr,
            _ => return None,
        })
    }

    /// Returns the place it leads to, as far as known before a library has its own.
    pub(crate) fn whereabouts(self) -> Whereabouts {
        self.shared_address().map_or(Whereabouts::Arena, Whereabouts::Address)
    }

    /// Returns the address, where it is the same for all libraries.
    fn shared_address(self) -> Option<u64> {
        match self {
            Self::CxaAtExit => Some(cxa_atexit as *const () as u64),
            Self::CxaAtQuickExit => Some(cxa_at_quick_exit as *const () as u64),
            Self::RegisterAtFork => Some(atfork as *const () as u64),
            Self::CxaThreadAtExit => Some(cxa_thread_atexit as *const () as u64),
            Self::TlsGetAddr => Some(__tls_get_addr as *const () as u64),
            _ => None,
        }
    }
}

impl LoadedLibrary {
    /// Returns the address of a library's own copy of a function; `arena` has room for the copies.
    pub(crate) fn own_function(&self, own: PerLibrarySymbol, arena: &Arc<Arena>) -> Result<u64> {
        if let Some(address) = own.shared_address() {
            return Ok(address);
        }
        // The functions with a slot of their own, in the order of their slots.
        let functions = [(1, atexit as *const ()), (1, at_quick_exit as *const ()), (3, atfork as *const ())];
        let functions = functions.map(|(register, function)| (register, function as usize));
        // SAFETY: the handle is the last argument of each.
        let support = self.support_or(|| unsafe { OwnSymbols::new(arena, self.library(), functions) })?;
        Ok(match own {
            PerLibrarySymbol::AtExit => support.entry(0),
            PerLibrarySymbol::AtQuickExit => support.entry(1),
            PerLibrarySymbol::AtFork => support.entry(2),
            _ => support.dso(),
        })
    }
}

// ---- functions that linked code calls ----

/// `int __cxa_atexit(void (*f)(void *), void *argument, void *dso)`, Itanium C++ ABI 3.3.6.3.
unsafe extern "C" fn cxa_atexit(function: usize, argument: usize, dso: usize) -> c_int {
    unsafe extern "C" {
        #[link_name = "__cxa_atexit"]
        fn process_cxa_atexit(function: usize, argument: usize, dso: usize) -> c_int;
    }
    match handlers_of(dso) {
        Some(handlers) => {
            handlers.register(Handler::new(function, argument));
            0
        }
        // The handle is not a library's of ours: the process handles it.
        // SAFETY: passed on as it came.
        None => unsafe { process_cxa_atexit(function, argument, dso) },
    }
}

unsafe extern "C" fn atexit(function: usize, dso: usize) -> c_int {
    // SAFETY: passed on as it came.
    unsafe { cxa_atexit(function, 0, dso) }
}

unsafe extern "C" {
    // glibc, stdlib/cxa_at_quick_exit.c
    fn __cxa_at_quick_exit(function: usize, dso: usize) -> c_int;
}

unsafe extern "C" fn cxa_at_quick_exit(function: usize, dso: usize) -> c_int {
    match handlers_of(dso) {
        Some(handlers) => {
            handlers.lists().quick.push(Handler::new(function, 0));
            0
        }
        // SAFETY: passed on as it came.
        None => unsafe { __cxa_at_quick_exit(function, dso) },
    }
}

unsafe extern "C" fn at_quick_exit(function: usize, dso: usize) -> c_int {
    // SAFETY: passed on as it came.
    unsafe { cxa_at_quick_exit(function, dso) }
}

unsafe extern "C" fn atfork(prepare: usize, parent: usize, child: usize, dso: usize) -> c_int {
    let Some(handlers) = handlers_of(dso) else { return libc::EINVAL };
    handlers.lists().fork.push(Fork { sequence: next_sequence(), functions: [prepare, parent, child] });
    0
}

// ---- the process's end, and forks ----

static LIVE: Mutex<Vec<(u64, Weak<LoadedLibrary>)>> = Mutex::new(Vec::new());

/// Records that a library has handlers or finalisers for the process's end. `sequence` orders its finalisers.
pub(crate) fn enlist(code: &Arc<LoadedLibrary>) {
    let mut live = LIVE.lock();
    if live.len() == live.capacity() {
        live.retain(|(_, code)| code.upgrade().is_some_and(|code| !code.life().is_gone()));
    }
    live.push((next_sequence(), Arc::downgrade(code)));
}

/// Returns live libraries, in the order of their initialisation.
fn live() -> Vec<CodeRef> {
    let known: Vec<_> = LIVE.lock().iter().filter_map(|(_, code)| code.upgrade()).collect();
    known.iter().filter_map(CodeRef::of).collect()
}

/// Registers handlers with the process, once, with the first engine or cache: the host's earlier handlers run after
/// ours.
pub(crate) fn hook_process() {
    static ONCE: OnceLock<()> = OnceLock::new();
    fork_guard::once(&ONCE, || {
        // SAFETY: functions without arguments that do not unwind.
        unsafe {
            libc::atexit(process_exits);
            __cxa_at_quick_exit(process_exits_quickly as *const () as usize, 0);
            libc::pthread_atfork(Some(fork_prepare), Some(fork_parent), Some(fork_child));
        }
    });
}

/// Runs handlers of all libraries from the last to the first, then finalisers likewise. Nothing is unmapped: other
/// threads may still run, and destructors of the host's may still call.
extern "C" fn process_exits() {
    runtime::exported::process_ends();
    loop {
        // The list is read each time: handlers may load libraries.
        let codes = live();
        let last = codes.iter().filter_map(|c| Some((c.handlers()?.last(0)?, c.handlers()?, c)));
        if let Some((_, handlers, code)) = last.max_by_key(|(sequence, ..)| *sequence) {
            // SAFETY: it is held.
            unsafe { handlers.run_last(code.library()) };
        } else if let Some(code) = codes.iter().rev().find(|code| !code.is_finalised()) {
            // SAFETY: it is held, and the process ends.
            unsafe { code.finalise() };
        } else {
            // No memory is freed, so that no drain is waited for.
            let draining = code_ref::take_draining();
            if draining.is_empty() {
                break;
            }
            // SAFETY: nothing holds them, and they have not ended: they were in the list.
            draining.iter().rev().for_each(|code| unsafe { code.finalise() });
            std::mem::forget(draining);
        }
        // Their memory stays for threads that still run.
        std::mem::forget(codes);
    }
}

extern "C" fn process_exits_quickly() {
    let codes = live();
    loop {
        let last = codes.iter().filter_map(|c| Some((c.handlers()?.lists().quick.last()?.sequence, c.handlers()?, c)));
        let Some((_, handlers, code)) = last.max_by_key(|(sequence, ..)| *sequence) else { break };
        let handler = handlers.lists().quick.pop();
        if let Some(handler) = handler {
            // SAFETY: the reference keeps the code.
            unsafe { handler.call(code.library()) };
        }
    }
    std::mem::forget(codes);
}

thread_local! {
    /// Fork handlers under way, in the order of registration, and what keeps their code: collected by `prepare`, run by
    /// `parent` or `child`, all on the forking thread.
    static FORKING: Cell<Vec<(Fork, CodeRef)>> = const { Cell::new(Vec::new()) };
}

extern "C" fn fork_prepare() {
    let mut handlers = Vec::new();
    for code in live() {
        if let Some(of_library) = code.handlers() {
            handlers.extend(of_library.lists().fork.iter().map(|fork| (*fork, code.clone())));
        }
    }
    handlers.sort_by_key(|(fork, _)| fork.sequence);
    // POSIX: prepare handlers in reverse order of registration, the others in order.
    handlers.iter().rev().for_each(|handler| run_fork_handler(handler, 0));
    FORKING.set(handlers);
    fork_guard::close();
}

extern "C" fn fork_parent() {
    fork_guard::open();
    FORKING.take().iter().for_each(|handler| run_fork_handler(handler, 1));
}

extern "C" fn fork_child() {
    fork_guard::open_in_child();
    init_lock::forget_those_who_wait();
    Turn::end_those_of_others();
    FORKING.take().iter().for_each(|handler| run_fork_handler(handler, 2));
}

fn run_fork_handler((fork, code): &(Fork, CodeRef), which: usize) {
    let function = fork.functions.get(which).copied().unwrap_or(0);
    if function != 0 {
        // SAFETY: the reference keeps the code. The argument is one that the function does not take.
        unsafe { Handler { sequence: fork.sequence, function, argument: 0 }.call(code.library()) };
    }
}
