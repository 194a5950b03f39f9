//! Exit handlers of libraries: what `__cxa_atexit`, `atexit`, `at_quick_exit` and `pthread_atfork` mean to linked code.
//!
//! glibc's own lists would call into memory that is gone, and never shrink. So each library has lists of its own, found
//! by the address of its `__dso_handle`; the process's lists hold one entry of ours.
#![allow(unsafe_code)] // C ABI, calls into linked code

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::{Arc, OnceLock, Weak};

use super::claims;
use super::code::{Code, Hold};
use super::handlers::{Fork, Handler, next_sequence};
use super::hold::{self, Kept};
use super::support::{Support, handlers_of};
use super::thread_exit::cxa_thread_atexit;
use super::thread_local::Turn;
use crate::Result;
use crate::gate::{self, Mutex};
use crate::memory::Arena;
use crate::runtime::thread_local::__tls_get_addr;

/// What libc.so does not export, because each shared object gets a copy of its own that knows its `__dso_handle`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Own {
    DsoHandle,
    AtExit,
    AtQuickExit,
    AtFork,
    CxaAtExit,
    CxaAtQuickExit,
    RegisterAtFork,
    CxaThreadAtExit,
    /// The process's own, which isolated libraries need as well.
    TlsGetAddr,
}

impl Own {
    pub(super) fn named(name: &str) -> Option<Self> {
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

    /// The address, where it is the same for all libraries.
    pub(super) fn shared_address(self) -> Option<u64> {
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

impl Code {
    /// The address of one of the functions that each library has a copy of; `arena` has room for them.
    pub(super) fn own_function(&self, own: Own, arena: &Arc<Arena>) -> Result<u64> {
        if let Some(address) = own.shared_address() {
            return Ok(address);
        }
        // Of those with a slot of their own, in the order of their slots.
        let functions = [(1, atexit as *const ()), (1, at_quick_exit as *const ()), (3, atfork as *const ())];
        let functions = functions.map(|(register, function)| (register, function as usize));
        let support = self.support_or(|| Support::new(arena, self.library(), functions))?;
        Ok(match own {
            Own::AtExit => support.entry(0),
            Own::AtQuickExit => support.entry(1),
            Own::AtFork => support.entry(2),
            _ => support.dso(),
        })
    }
}

// ---- what linked code calls ----

/// `int __cxa_atexit(void (*f)(void *), void *argument, void *dso)`, Itanium C++ ABI 3.3.6.3.
extern "C" fn cxa_atexit(function: usize, argument: usize, dso: usize) -> c_int {
    unsafe extern "C" {
        #[link_name = "__cxa_atexit"]
        fn process_cxa_atexit(function: usize, argument: usize, dso: usize) -> c_int;
    }
    match handlers_of(dso) {
        Some(handlers) => {
            handlers.register(Handler::new(function, argument));
            0
        }
        // Not a library of ours: the process's own business.
        // SAFETY: passed on as it came.
        None => unsafe { process_cxa_atexit(function, argument, dso) },
    }
}

extern "C" fn atexit(function: usize, dso: usize) -> c_int {
    cxa_atexit(function, 0, dso)
}

unsafe extern "C" {
    // glibc, stdlib/cxa_at_quick_exit.c
    fn __cxa_at_quick_exit(function: usize, dso: usize) -> c_int;
}

extern "C" fn cxa_at_quick_exit(function: usize, dso: usize) -> c_int {
    match handlers_of(dso) {
        Some(handlers) => {
            handlers.lists().quick.push(Handler::new(function, 0));
            0
        }
        // SAFETY: passed on as it came.
        None => unsafe { __cxa_at_quick_exit(function, dso) },
    }
}

extern "C" fn at_quick_exit(function: usize, dso: usize) -> c_int {
    cxa_at_quick_exit(function, dso)
}

extern "C" fn atfork(prepare: usize, parent: usize, child: usize, dso: usize) -> c_int {
    let Some(handlers) = handlers_of(dso) else { return libc::EINVAL };
    handlers.lists().fork.push(Fork { sequence: next_sequence(), functions: [prepare, parent, child] });
    0
}

// ---- the process's end, and forks ----

static LIVE: Mutex<Vec<(u64, Weak<Code>)>> = Mutex::new(Vec::new());

/// Notes that a library has something to do when the process ends. `sequence` orders its finalisers.
pub(super) fn enlist(code: &Arc<Code>) {
    let mut live = LIVE.lock();
    if live.len() == live.capacity() {
        live.retain(|(_, code)| code.upgrade().is_some_and(|code| !code.life().is_gone()));
    }
    live.push((next_sequence(), Arc::downgrade(code)));
}

/// Live libraries, in the order of their initialisation.
fn live() -> Vec<Hold> {
    let known: Vec<_> = LIVE.lock().iter().filter_map(|(_, code)| code.upgrade()).collect();
    known.iter().filter_map(Hold::of).collect()
}

/// Registers with the process, once. With the first engine, so that handlers the host registered before run after ours.
pub(super) fn hook_process() {
    static ONCE: OnceLock<()> = OnceLock::new();
    gate::once(&ONCE, || {
        // SAFETY: functions without arguments that do not unwind.
        unsafe {
            libc::atexit(process_exits);
            __cxa_at_quick_exit(process_exits_quickly as *const () as usize, 0);
            libc::pthread_atfork(Some(fork_prepare), Some(fork_parent), Some(fork_child));
        }
    });
}

/// Handlers of all libraries from the last to the first, then finalisers of libraries likewise. Nothing is unmapped:
/// other threads may still run, and destructors of the host's may still call.
extern "C" fn process_exits() {
    loop {
        // Again each time: handlers may load libraries.
        let codes = live();
        let last = codes.iter().filter_map(|c| Some((c.handlers()?.last(0)?, c.handlers()?, c)));
        if let Some((_, handlers, code)) = last.max_by_key(|(sequence, ..)| *sequence) {
            // SAFETY: it is held.
            unsafe { handlers.run_last(code.library()) };
        } else if let Some(code) = codes.iter().rev().find(|code| !code.is_finalised()) {
            code.finalise();
        } else {
            // Nothing is freed, so that there is nothing to wait for.
            let draining = hold::take_draining();
            if draining.is_empty() {
                break;
            }
            draining.iter().rev().for_each(|code| code.finalise());
            std::mem::forget(draining);
        }
        // Their memory stays for whoever still runs.
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
    static FORKING: Cell<Vec<(Fork, Hold)>> = const { Cell::new(Vec::new()) };
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
    gate::close();
}

extern "C" fn fork_parent() {
    gate::open();
    FORKING.take().iter().for_each(|handler| run_fork_handler(handler, 1));
}

extern "C" fn fork_child() {
    gate::open_in_child();
    claims::lose_those_of_others();
    Turn::end_those_of_others();
    FORKING.take().iter().for_each(|handler| run_fork_handler(handler, 2));
}

fn run_fork_handler((fork, code): &(Fork, Hold), which: usize) {
    let function = fork.functions.get(which).copied().unwrap_or(0);
    if function != 0 {
        // SAFETY: the reference keeps the code. The argument is one that the function does not take.
        unsafe { Handler { sequence: fork.sequence, function, argument: 0 }.call(code.library()) };
    }
}
