//! Exit handlers of libraries: what `__cxa_atexit`, `atexit`, `at_quick_exit` and `pthread_atfork` mean to linked code.
//!
//! glibc's own lists would call into memory that is gone, and never shrink. So each library has lists of its own, found
//! by the address of its `__dso_handle`; the process's lists hold one entry of ours.
#![allow(unsafe_code)] // C ABI, calls into linked code

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use super::arrays::catching;
use super::claims;
use super::code::Code;
use super::hold::{self, Hold};
use super::thread_exit::cxa_thread_atexit;
use super::thread_local::Turn;
use crate::Result;
use crate::gate::{self, Guard, Mutex};
use crate::memory::{Arena, BlamedSection, Company, Lifetime, Protection, PublishedSlab, SegmentRequest};
use crate::name::Name;
use crate::runtime::thread_local::__tls_get_addr;

/// Handlers registered by one library's code.
#[derive(Debug, Default)]
pub(super) struct Handlers {
    lists: Mutex<Lists>,
    /// What has to stay while destructors of threads are waiting; set before any of its code runs.
    code: OnceLock<Weak<Code>>,
    /// One more than the sequence number of the last destructor that a thread has to run.
    of_threads: AtomicU64,
}

#[derive(Debug, Default)]
struct Lists {
    exit: Vec<Handler>,
    quick: Vec<Handler>,
    fork: Vec<Fork>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Handler {
    /// Order of registration over the whole process.
    sequence: u64,
    function: usize,
    argument: usize,
}

#[derive(Debug, Clone, Copy)]
struct Fork {
    sequence: u64,
    /// prepare, parent, child; 0 for none.
    functions: [usize; 3],
}

static SEQUENCE: AtomicU64 = AtomicU64::new(0);

fn next_sequence() -> u64 {
    SEQUENCE.fetch_add(1, Ordering::Relaxed)
}

impl Handlers {
    fn lists(&self) -> Guard<'_, Lists> {
        self.lists.lock()
    }

    /// The sequence number of the handler registered last, if it is at least `since`.
    fn last(&self, since: u64) -> Option<u64> {
        self.lists().exit.last().map(|h| h.sequence).filter(|s| *s >= since)
    }

    /// Runs exit handlers from the last to the first, those included that are registered meanwhile.
    ///
    /// # Safety
    /// The library's code is still there.
    pub(super) unsafe fn run(&self, library: &Name, since: u64) {
        while self.last(since).is_some() {
            // SAFETY: by the caller.
            unsafe { self.run_last(library) };
        }
    }

    /// # Safety
    /// As for [`run`](Self::run).
    unsafe fn run_last(&self, library: &Name) {
        let handler = self.lists().exit.pop();
        if let Some(handler) = handler {
            // SAFETY: by the caller.
            unsafe { handler.call(library) };
        }
    }

    /// Registers an exit handler.
    pub(super) fn register(&self, handler: Handler) {
        self.lists().exit.push(handler);
    }

    /// Notes that a thread will run a destructor.
    pub(super) fn note_thread(&self, handler: Handler) {
        self.of_threads.fetch_max(handler.sequence + 1, Ordering::Relaxed);
    }

    /// Whether threads were given destructors since then.
    pub(super) fn threads_have_some(&self, since: u64) -> bool {
        self.of_threads.load(Ordering::Relaxed) > since
    }

    /// Says what its library's code is.
    pub(super) fn belong_to(&self, code: &Arc<Code>) {
        gate::once(&self.code, || Arc::downgrade(code));
    }

    /// A library whose initialisation failed half way: what it registered since is not called any more.
    pub(super) fn forget_other_lists(&self, since: u64) {
        let mut lists = self.lists();
        lists.quick.retain(|h| h.sequence < since);
        lists.fork.retain(|f| f.sequence < since);
    }
}

impl Handler {
    pub(super) fn new(function: usize, argument: usize) -> Self {
        Self { sequence: next_sequence(), function, argument }
    }

    /// # Safety
    /// The function's code is still there.
    pub(super) unsafe fn call(self, library: &Name) {
        unsafe extern "C-unwind" fn run(handler: *mut c_void) {
            // SAFETY: `call` passes a handler, whose function takes one pointer.
            unsafe {
                let handler = *handler.cast::<Handler>();
                let function: unsafe extern "C-unwind" fn(usize) = std::mem::transmute(handler.function);
                function(handler.argument);
            }
        }
        let mut copy = self;
        // SAFETY: by the caller.
        if let Err(message) = unsafe { catching(run, (&raw mut copy).cast()) } {
            tracing::error!(target: "slabjit", library = &*library.text(), message, "an exit handler failed");
        }
    }
}

/// The number from which handlers registered from now on count.
pub(super) fn now() -> u64 {
    SEQUENCE.load(Ordering::Relaxed)
}

// ---- which library a __dso_handle belongs to ----

type ByDso = BTreeMap<usize, Weak<Handlers>>;
static BY_DSO: Mutex<ByDso> = Mutex::new(BTreeMap::new());

fn find(dso: usize) -> Option<Arc<Handlers>> {
    BY_DSO.lock().get(&dso).and_then(Weak::upgrade)
}

/// Whose a `__dso_handle` is.
pub(super) enum Owner {
    Library(Hold, Arc<Handlers>),
    /// A library that nothing holds any more, and whose finalisers are running.
    Ending(Arc<Handlers>),
    Process,
}

pub(super) fn owner(dso: usize) -> Owner {
    match find(dso) {
        Some(handlers) => match handlers.code.get().and_then(Weak::upgrade).as_ref().and_then(Hold::of) {
            Some(code) => Owner::Library(code, handlers),
            None => Owner::Ending(handlers),
        },
        None => Owner::Process,
    }
}

/// A page in the arena with a library's `__dso_handle` and its entry points for functions that `libc_nonshared.a`
/// would have put into it.
#[derive(Debug)]
pub(super) struct Support {
    dso: usize,
    handlers: Arc<Handlers>,
    /// None once the library is gone.
    slab: Mutex<Option<PublishedSlab>>,
}

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

/// Bytes of the handle, and of each entry point, padded.
const SLOT: usize = 64;

impl Support {
    pub(super) fn new(arena: &Arc<Arena>, library: &Name) -> Result<Self> {
        let (dso, slab) = entry_points(arena, library, "__dso_handle", |dso| {
            [
                Vec::new(),
                thunk(dso, 1, atexit as *const () as usize),
                thunk(dso, 1, at_quick_exit as *const () as usize),
                thunk(dso, 3, atfork as *const () as usize),
            ]
        })?;
        let handlers = Arc::<Handlers>::default();
        BY_DSO.lock().insert(dso, Arc::downgrade(&handlers));
        Ok(Self { dso, handlers, slab: Mutex::new(Some(slab)) })
    }

    pub(super) fn handlers(&self) -> &Handlers {
        &self.handlers
    }

    /// The library's code is gone.
    pub(super) fn end(&self) {
        BY_DSO.lock().remove(&self.dso);
        let slab = self.slab.lock().take();
        drop(slab);
    }

    pub(super) fn address(&self, own: Own) -> u64 {
        let slot = match own {
            Own::AtExit => 1,
            Own::AtQuickExit => 2,
            Own::AtFork => 3,
            _ => 0,
        };
        own.shared_address().unwrap_or((self.dso + slot * SLOT) as u64)
    }
}

/// Code of ours in the arena, one piece a slot, made for the address of the first slot, which is returned.
pub(super) fn entry_points<const N: usize>(
    arena: &Arc<Arena>,
    library: &Name,
    name: &str,
    make: impl FnOnce(usize) -> [Vec<u8>; N],
) -> Result<(usize, PublishedSlab)> {
    let bytes = N * SLOT;
    let request = SegmentRequest {
        protection: Protection::ReadExecute,
        lifetime: Lifetime::Standard,
        alignment: SLOT as u64,
        content_bytes: bytes as u64,
        zero_fill_bytes: 0,
        outside: false,
    };
    let slab = arena.allocate(&library.text(), &[request], Company::ALONE, |_| BlamedSection {
        name: name.to_owned(),
        bytes: bytes as u64,
    })?;
    let (first, written) = slab.placements().first().map_or((0, 0), |p| (p.address, p.written));
    for (i, code) in make(first).into_iter().enumerate() {
        // SAFETY: the slab is writable where it says, ours alone, and has so many slots.
        unsafe {
            let slot = std::slice::from_raw_parts_mut((written + i * SLOT) as *mut u8, SLOT);
            slot[..code.len()].copy_from_slice(&code);
        }
    }
    let mut slab = slab.publish()?;
    slab.belong_to(library, &name.into());
    Ok((first, slab))
}

/// Code that adds `dso` as argument number `register` (counted from 0) and jumps to `target`.
#[cfg(target_arch = "x86_64")]
pub(super) fn thunk(dso: usize, register: usize, target: usize) -> Vec<u8> {
    // System V AMD64 ABI 3.2.3: arguments 1 and 3 are rsi and rcx. movabs; movabs rax; jmp *rax.
    let load: [u8; 2] = if register == 1 { [0x48, 0xbe] } else { [0x48, 0xb9] };
    [&load[..], &dso.to_le_bytes(), &[0x48, 0xb8], &target.to_le_bytes(), &[0xff, 0xe0]].concat()
}

/// Code that adds `dso` as argument number `register` (counted from 0) and jumps to `target`.
#[cfg(target_arch = "aarch64")]
pub(super) fn thunk(dso: usize, register: usize, target: usize) -> Vec<u8> {
    // AAPCS64: arguments are x0 to x7. ldr xN, .+16; ldr x16, .+20; br x16; nop; dso; target.
    let load = 0x5800_0080_u32 | register as u32;
    let words = [load, 0x5800_00b0, 0xd61f_0200, 0xd503_201f];
    let mut code: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    code.extend_from_slice(&dso.to_le_bytes());
    code.extend_from_slice(&target.to_le_bytes());
    code
}

// ---- what linked code calls ----

/// `int __cxa_atexit(void (*f)(void *), void *argument, void *dso)`, Itanium C++ ABI 3.3.6.3.
extern "C" fn cxa_atexit(function: usize, argument: usize, dso: usize) -> c_int {
    unsafe extern "C" {
        #[link_name = "__cxa_atexit"]
        fn process_cxa_atexit(function: usize, argument: usize, dso: usize) -> c_int;
    }
    match find(dso) {
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
    match find(dso) {
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
    let Some(handlers) = find(dso) else { return libc::EINVAL };
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
