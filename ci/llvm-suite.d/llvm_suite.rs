//! What LLVM's own JITLink tests need of this crate: `ci/llvm-suite` builds LLVM's test tool, llvm-jitlink, with our preparation,
//! our memory manager and our passes in it. Symbols are resolved by that tool, so nothing is bound here.
//!
//! Each step leaves a line in the file that `SLABJIT_SUITE_WITNESS` names, by which the suite knows what has run. What we
//! refuse is noted there and left to LLVM, as tests expect LLVM's words; if LLVM then links it, that is noted as a contradiction.
#![allow(unsafe_code, reason = "called from C++")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::{Arc, OnceLock};

use slabjit_llvm_wrap as shim;

use crate::elf::{EM_AARCH64, EM_X86_64, ObjectIndex, Preparation, Target};
use crate::fork_guard::Mutex;
use crate::link::job::link_job::LinkJob;
use crate::link::llvm::callbacks::callbacks;
use crate::link::reach::Reach;
use crate::live::resolve::object_bytes::SpareBuffer;
use crate::live::resolve::prepared::PreparedObject;
use crate::memory::{Arena, ArenaConfig};
use crate::out_of_range::OutOfRange;
use crate::{Limits, SectionConflicts};

/// One for the process: the tool has one session.
/// The callbacks that the crate has.
const CALLBACKS: shim::slabjit_callbacks = callbacks::<LinkJob>();

static SUITE: OnceLock<Suite> = OnceLock::new();

struct Suite {
    arena: Arc<Arena>,
    /// Addresses that LLVM is told, less those where the memory is.
    displacement: u64,
    callbacks: shim::slabjit_callbacks,
    /// Linked objects: their memory stays as long as the process.
    kept: Mutex<Vec<Arc<LinkJob>>>,
}

/// Reserves an arena of `size` bytes (0: as large as they are by default), for a tool that is to be told addresses from `base` on
/// (`u64::MAX`: where the memory is). Returns what to add to an address of the arena for that.
#[unsafe(no_mangle)]
extern "C" fn slabjit_suite_start(size: u64, base: u64) -> u64 {
    let suite = SUITE.get_or_init(|| {
        let size = if size == 0 { ArenaConfig::MAX } else { usize::try_from(size).unwrap_or(ArenaConfig::MAX) };
        let arena =
            Arena::reserve(&ArenaConfig { size, ..ArenaConfig::default() }).unwrap_or_else(|error| fatal(&error));
        let start = arena.range().start as u64;
        let displacement = if base == u64::MAX { 0 } else { base.wrapping_sub(start) };
        let callbacks = shim::slabjit_callbacks { checked, allocate, commit, abandon, placed, ..CALLBACKS };
        Suite { arena, displacement, callbacks, kept: Mutex::default() }
    });
    witness("start", "", &format!("displaced by {:#x}", suite.displacement));
    suite.displacement
}

/// Lets go of all that was linked: its deallocation actions run, and its memory goes. Only when no link is under way.
#[unsafe(no_mangle)]
extern "C" fn slabjit_suite_let_go() {
    let kept = std::mem::take(&mut *suite().kept.lock());
    drop(kept);
}

/// Bytes of the arena that are taken.
#[unsafe(no_mangle)]
extern "C" fn slabjit_suite_taken() -> u64 {
    suite().arena.stats().slab_bytes as u64
}

/// Whether `SLABJIT_SUITE_LIKE_LLVM`, a list of words, has this one: what one of LLVM's tests needs to be as it is in LLVM. The suite
/// says for which test, and why.
///
/// # Safety
/// A NUL-terminated string, borrowed for this call.
#[unsafe(no_mangle)]
unsafe extern "C" fn slabjit_suite_is_like_llvm(what: *const c_char) -> c_int {
    // SAFETY: by the caller.
    let what = unsafe { CStr::from_ptr(what) };
    is_like_llvm(&what.to_string_lossy()).into()
}

fn is_like_llvm(what: &str) -> bool {
    std::env::var("SLABJIT_SUITE_LIKE_LLVM").is_ok_and(|list| list.split(',').any(|word| word == what))
}

/// The callbacks for the shim. Only after [`slabjit_suite_start`].
#[unsafe(no_mangle)]
extern "C" fn slabjit_suite_callbacks() -> *const shim::slabjit_callbacks {
    &raw const suite().callbacks
}

/// Prepares an object, or notes that it is none of ours (another format, i386, a graph that was never a file: no bytes). Returns
/// what to give to the shim as the link's object, and leaves the bytes to link in `prepared`; both are there until [`slabjit_suite_let_go`].
///
/// # Safety
/// `name` and `bytes` are borrowed for this call; `prepared` and `prepared_len` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn slabjit_suite_prepare(
    name: *const c_char,
    name_len: usize,
    bytes: *const u8,
    len: usize,
    prepared: *mut *const u8,
    prepared_len: *mut usize,
) -> *mut c_void {
    // SAFETY: by the caller; a slice of no bytes may come with a null pointer.
    let (name, bytes) = unsafe { (slice(name.cast(), name_len), slice(bytes, len)) };
    let link = suite().under_way(&String::from_utf8_lossy(name), bytes);
    // SAFETY: by the caller. The suite keeps the link, hence its object's bytes.
    unsafe {
        *prepared = link.object.bytes.as_ptr();
        *prepared_len = link.object.bytes.len();
    }
    Arc::as_ptr(&link).cast_mut().cast()
}

impl Suite {
    fn under_way(&self, name: &str, bytes: &[u8]) -> Arc<LinkJob> {
        let (machine, spare) = (machine(bytes), SpareBuffer::new(0));
        let (bytes, index, failure) = match machine {
            Some(machine @ (EM_X86_64 | EM_AARCH64)) => {
                let target = Target { machine, llvm: crate::llvm_version() };
                let preparation = Preparation::new(target, SectionConflicts::default(), Limits::default(), Vec::new());
                match preparation.prepare(name, bytes) {
                    Ok(prepared) => {
                        let changes: Vec<_> = prepared.changes.iter().map(ToString::to_string).collect();
                        witness("prepared", name, &changes.join("; "));
                        let (bytes, index) = prepared.into_linkable(|bytes| spare.own(bytes));
                        (bytes, index, None)
                    }
                    Err(error) => {
                        witness("refused", name, &error.to_string());
                        (spare.own(bytes.into()), ObjectIndex::default(), Some(error))
                    }
                }
            }
            _ => (spare.own(bytes.into()), ObjectIndex::default(), None),
        };
        let arena = self.arena.range();
        let told = |address: usize| (address as u64).wrapping_add(self.displacement) as usize;
        let reach = Reach::new(machine.unwrap_or(0), OutOfRange::Bridge, told(arena.start)..told(arena.end));
        let link = Arc::new(LinkJob {
            object: Arc::new(PreparedObject::new(name.into(), bytes, index)),
            externals: Vec::new(),
            definitions: Vec::new(),
            dead_sections: Vec::new(),
            number: 0,
            position: 0,
            exports: None,
            sets: None,
            storage: None,
            in_batch: false,
            arena: Arc::clone(&self.arena),
            reach: Mutex::new(reach),
            state: Mutex::default(),
        });
        link.state().failure = failure;
        self.kept.lock().push(Arc::clone(&link));
        link
    }
}

fn suite() -> &'static Suite {
    SUITE.get().unwrap_or_else(|| fatal(&"llvm-jitlink asked for no memory manager"))
}

/// `e_machine` of a little-endian 64-bit ELF file.
fn machine(bytes: &[u8]) -> Option<u16> {
    let header = bytes.get(..20).filter(|header| header.starts_with(b"\x7fELF\x02\x01"))?;
    Some(u16::from_le_bytes([header[18], header[19]]))
}

/// # Safety
/// `len` values, borrowed for as long as the result is used; null for none.
unsafe fn slice<'a, T>(data: *const T, len: usize) -> &'a [T] {
    // SAFETY: by the caller.
    if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(data, len) } }
}

/// # Safety
/// `object` came from [`slabjit_suite_prepare`], and the suite has it still.
unsafe fn link<'a>(object: *mut c_void) -> &'a LinkJob {
    // SAFETY: by the caller.
    unsafe { &*object.cast::<LinkJob>() }
}

/// Notes a step. The file is opened each time: threads of the tool, and several tools of one test, write to it.
fn witness(what: &str, object: &str, detail: &str) {
    let Some(path) = std::env::var_os("SLABJIT_SUITE_WITNESS") else { return };
    let line = format!("{what}\t{object}\t{}\n", detail.replace(['\n', '\t'], " "));
    let file = OpenOptions::new().append(true).create(true).open(path);
    if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
        fatal(&error);
    }
}

/// Without its memory manager or its witness the tool says nothing about us: it must not look like a failed link, which tests may
/// expect.
fn fatal(error: &dyn std::fmt::Display) -> ! {
    eprintln!("llvm-jitlink (slabjit): {error}");
    std::process::abort()
}

// ---- callbacks: the crate's own, with a note ----

unsafe extern "C" fn checked(object: *mut c_void) -> c_int {
    // SAFETY: as the shim called us.
    let (link, refused) = unsafe { (link(object), (CALLBACKS.checked)(object) != 0) };
    witness("passes", &link.object.name.text(), "");
    if refused {
        let why = link.state().failure.as_ref().map(ToString::to_string);
        witness("refused", &link.object.name.text(), &why.unwrap_or_default());
    }
    0
}

unsafe extern "C" fn allocate(
    object: *mut c_void,
    segments: *const shim::slabjit_segment,
    n: usize,
    addresses: *mut u64,
    written: *mut u64,
    allocation: *mut *mut c_void,
) -> c_int {
    // SAFETY: the shim's array.
    let mut segments = unsafe { slice(segments, n) }.to_vec();
    if is_like_llvm("order") {
        // Segments of one protection stay in the order in which LLVM asks for them. Nothing of what is linked runs.
        for segment in &mut segments {
            (segment.writable, segment.executable) = (1, 0);
        }
    }
    // SAFETY: as the shim called us; the copy has as many elements.
    let (link, result) =
        unsafe { (link(object), (CALLBACKS.allocate)(object, segments.as_ptr(), n, addresses, written, allocation)) };
    let bytes = segments.iter().map(|s| s.content_bytes + s.zero_fill_bytes).sum::<u64>();
    let detail = if result == 0 { format!("{bytes} bytes") } else { "no memory".to_owned() };
    witness("manager", &link.object.name.text(), &detail);
    result
}

unsafe extern "C" fn commit(object: *mut c_void, allocation: *mut c_void, actions: *mut shim::slabjit_actions) {
    // SAFETY: as the shim called us.
    let link = unsafe {
        (CALLBACKS.commit)(object, allocation, actions);
        link(object)
    };
    witness("linked", &link.object.name.text(), "");
    if let Some(error) = &link.state().failure {
        witness("contradiction", &link.object.name.text(), &format!("LLVM links what was refused: {error}"));
    }
}

unsafe extern "C" fn abandon(object: *mut c_void, allocation: *mut c_void) {
    // SAFETY: as the shim called us.
    let link = unsafe {
        (CALLBACKS.abandon)(object, allocation);
        link(object)
    };
    witness("abandoned", &link.object.name.text(), "");
}

unsafe extern "C" fn placed(
    object: *mut c_void,
    symbols: *const shim::slabjit_placed,
    n_symbols: usize,
    blocks: *const shim::slabjit_placed,
    n_blocks: usize,
    eh_frame: u64,
    eh_frame_bytes: u64,
) {
    // Frames are written to: where they are, not where LLVM is told that they are.
    let eh_frame = if eh_frame == 0 { 0 } else { eh_frame.wrapping_sub(suite().displacement) };
    // SAFETY: as the shim called us.
    unsafe { (CALLBACKS.placed)(object, symbols, n_symbols, blocks, n_blocks, eh_frame, eh_frame_bytes) }
}
