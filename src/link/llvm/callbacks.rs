//! The shim's callbacks during an object's link: thin, and none unwinds.
#![allow(unsafe_code, reason = "callbacks from C++")]

use std::ffi::{c_char, c_int, c_void};

use slabjit_llvm_wrap as shim;

use crate::elf::restore_signal_frames;
use crate::guarded::guarded;
use crate::link::llvm::actions::Actions;
use crate::link::llvm::link_host::{Answer, LinkHost};
use crate::link::reach::{Block, Edge, place_of};
use crate::{Error, LinkError, Result};

/// The callbacks of graphs that are bound to a host of this type.
pub(in crate::link) const fn callbacks<H: LinkHost>() -> shim::slabjit_callbacks {
    shim::slabjit_callbacks {
        external: external::<H>,
        defined: defined::<H>,
        retain_block: retain_block::<H>,
        indirect: indirect::<H>,
        may_leave: may_leave::<H>,
        place: place::<H>,
        survey: survey::<H>,
        reserve: reserve::<H>,
        settled: settled::<H>,
        check: check::<H>,
        checked: checked::<H>,
        allocate: allocate::<H>,
        publish: publish::<H>,
        commit: commit::<H>,
        abandon: abandon::<H>,
        placed: placed::<H>,
        functions: functions::<H>,
        located: located::<H>,
        failed: failed::<H>,
    }
}

/// # Safety
/// `object` is the host that a graph was bound to, which is there until all graphs of its batch are linked.
unsafe fn link<'a, H>(object: *mut c_void) -> &'a H {
    // SAFETY: by the caller; the callbacks share it, its state is behind a lock.
    unsafe { &*object.cast::<H>() }
}

/// # Safety
/// Pointer and length are those of a string that the shim lends for the duration of the call.
unsafe fn text<'a>(data: *const c_char, len: usize) -> &'a str {
    if data.is_null() || len == 0 {
        return "";
    }
    // SAFETY: by the caller's contract.
    let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) };
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// # Safety
/// Pointer and length are those of an array that the shim lends for the duration of the call.
pub(in crate::link) unsafe fn slice<'a, T>(data: *const T, len: usize) -> &'a [T] {
    if len == 0 {
        return &[];
    }
    // SAFETY: by the caller's contract.
    unsafe { std::slice::from_raw_parts(data, len) }
}

fn answer(answer: &Answer<'_>, out: &mut shim::slabjit_decision) {
    match answer {
        Answer::Keep => out.verdict = shim::SLABJIT_KEEP,
        Answer::Discard => out.verdict = shim::SLABJIT_DISCARD,
        Answer::Absolute(address) => {
            out.verdict = shim::SLABJIT_ABSOLUTE;
            out.address = *address;
        }
        Answer::Rename(name) => {
            out.verdict = shim::SLABJIT_RENAME;
            out.name = name.as_ptr().cast();
            out.name_len = name.len();
        }
    }
}

unsafe extern "C" fn external<H: LinkHost>(
    object: *mut c_void,
    name: *const c_char,
    len: usize,
    out: *mut shim::slabjit_decision,
) {
    // SAFETY: all pointers are the shim's, valid for this call.
    let (link, name, out) = unsafe { (link::<H>(object), text(name, len), &mut *out) };
    guarded((), || {
        if let Some(decision) = link.external(name) {
            answer(&decision, out);
        }
    });
}

unsafe extern "C" fn defined<H: LinkHost>(
    object: *mut c_void,
    name: *const c_char,
    len: usize,
    out: *mut shim::slabjit_decision,
) {
    // SAFETY: all pointers are the shim's, valid for this call.
    let (link, name, out) = unsafe { (link::<H>(object), text(name, len), &mut *out) };
    guarded((), || {
        out.verdict = shim::SLABJIT_DROP;
        let Some((i, decision)) = link.defined(name) else { return };
        out.cookie = i as u64 + 1;
        if let Some(decision) = decision {
            answer(&decision, out);
        }
    });
}

unsafe extern "C" fn retain_block<H: LinkHost>(
    object: *mut c_void,
    section: *const c_char,
    len: usize,
    content: *const c_char,
) -> u64 {
    // SAFETY: all pointers are the shim's, valid for this call.
    let (link, section) = unsafe { (link::<H>(object), text(section, len)) };
    guarded(0, || link.retain(section, offset_of(link, content)))
}

/// Returns the offset of contents in the bytes that the graph was made from, unless they are elsewhere.
fn offset_of<H: LinkHost>(link: &H, content: *const c_char) -> Option<u64> {
    let offset = (content as usize).checked_sub(link.bytes().as_ptr() as usize)?;
    (offset < link.bytes().len()).then_some(offset as u64)
}

unsafe extern "C" fn indirect<H: LinkHost>(
    object: *mut c_void,
    name: *const c_char,
    len: usize,
    content: *const c_char,
) -> c_int {
    // SAFETY: all pointers are the shim's, valid for this call.
    let (link, name) = unsafe { (link::<H>(object), text(name, len)) };
    guarded(0, || {
        let offset = (content as usize).wrapping_sub(link.bytes().as_ptr() as usize) as u64;
        link.is_indirect(name, offset).into()
    })
}

unsafe extern "C" fn may_leave<H: LinkHost>(object: *mut c_void, section: *const c_char, len: usize) -> c_int {
    // SAFETY: all pointers are the shim's, valid for this call.
    let (link, section) = unsafe { (link::<H>(object), text(section, len)) };
    guarded(0, || link.may_leave(section).into())
}

unsafe extern "C" fn place<H: LinkHost>(
    object: *mut c_void,
    raw: *const shim::slabjit_block,
    alignment: u64,
    address: *mut u64,
    written: *mut u64,
) -> c_int {
    // SAFETY: all pointers are the shim's, valid for this call.
    let (link, (raw, section, origin), address, written) = unsafe {
        let link = link::<H>(object);
        (link, block(link, raw), &mut *address, &mut *written)
    };
    guarded(1, || {
        // The shim passes null for absent contents.
        let room = link.place(section, origin.filter(|_| !raw.origin.is_null()), raw.size, alignment);
        report(link, room.map(|room| (*address, *written) = (room.address, room.written)))
    })
}

/// # Safety
/// `block` is the shim's, for this call; `content` is its bytes, as long as it is.
unsafe fn block<'a, H: LinkHost>(
    link: &H,
    block: *const shim::slabjit_block,
) -> (&'a shim::slabjit_block, &'a str, Option<u64>) {
    // SAFETY: by the caller's contract.
    let (block, section) = unsafe { (&*block, text((*block).section, (*block).section_len)) };
    (block, section, offset_of(link, block.origin.cast()))
}

/// # Safety
/// The record's name is lent for as long as the result is used.
unsafe fn edge(raw: &shim::slabjit_edge) -> Edge<'static> {
    Edge {
        relocation: raw.relocation,
        offset: raw.offset as usize,
        place: place_of(raw.place),
        addend: raw.addend,
        target: raw.target,
        // SAFETY: by the caller's contract.
        symbol: unsafe { slice(raw.symbol.cast::<u8>(), raw.symbol_len) },
    }
}

unsafe extern "C" fn survey<H: LinkHost>(
    object: *mut c_void,
    bytes: u64,
    raw: *const shim::slabjit_block,
    edges: *const shim::slabjit_edge,
    n: usize,
) {
    // SAFETY: the block, its original bytes and its edges are lent for this call.
    let (link, raw, origin, content, edges) = unsafe {
        let link = link::<H>(object);
        let (raw, _, origin) = block(link, raw);
        (link, raw, origin, slice(raw.origin.cast::<u8>(), raw.size as usize), slice(edges, n))
    };
    guarded((), || {
        // SAFETY: as above; `survey` keeps no edge.
        let edges = edges.iter().map(|e| (unsafe { edge(e) }, link.lifted(origin, e)));
        link.survey(bytes, raw.executable != 0, content, edges);
    });
}

unsafe extern "C" fn reserve<H: LinkHost>(object: *mut c_void, head: *mut u64, tail: *mut u64, data: *mut u64) {
    // SAFETY: all pointers are the shim's, valid for this call.
    let (link, head, tail, data) = unsafe { (link::<H>(object), &mut *head, &mut *tail, &mut *data) };
    guarded((), || [*head, *tail, *data] = link.reserve());
}

unsafe extern "C" fn settled<H: LinkHost>(object: *mut c_void, rooms: *const shim::slabjit_room, got: u64) {
    // SAFETY: three rooms, lent for this call; the memory they name is writable until `publish`.
    let (link, rooms) = unsafe { (link::<H>(object), slice(rooms, 3)) };
    guarded((), || {
        let room = |i: usize| rooms.get(i).map_or((0, 0), |r: &shim::slabjit_room| (r.address, r.size as usize));
        let contents = [0, 1, 2].map(|i| rooms.get(i).map_or(0, |r| r.content as usize));
        link.settle([room(0), room(1), room(2)], contents, got);
    });
}

unsafe extern "C" fn check<H: LinkHost>(
    object: *mut c_void,
    raw: *const shim::slabjit_block,
    edges: *mut shim::slabjit_edge,
    n: usize,
) {
    // SAFETY: the block and its edges are lent for this call, and its memory is written by nobody else before
    // `publish`.
    let (link, block, edges) = unsafe {
        let link = link::<H>(object);
        let (raw, section, origin) = block(link, raw);
        let content = std::slice::from_raw_parts_mut(raw.content, raw.size as usize);
        let edges = std::slice::from_raw_parts_mut(edges, n);
        (link, Block { section, executable: raw.executable != 0, address: raw.address, content, origin }, edges)
    };
    // SAFETY: as above; no edge is kept.
    guarded((), || link.check(block, edges, |e| unsafe { edge(e) }));
}

unsafe extern "C" fn checked<H: LinkHost>(object: *mut c_void) -> c_int {
    // SAFETY: the job that the graph was bound to.
    let link = unsafe { link::<H>(object) };
    guarded(1, || {
        // SAFETY: `settled` was given this memory, of which `bytes` is the size; nobody else writes it before `publish`.
        let write = |content: usize, bytes: &[u8]| unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), content as *mut u8, bytes.len());
        };
        report(link, link.checked(write))
    })
}

unsafe extern "C" fn allocate<H: LinkHost>(
    object: *mut c_void,
    segments: *const shim::slabjit_segment,
    n: usize,
    addresses: *mut u64,
    written: *mut u64,
    allocation: *mut *mut c_void,
) -> c_int {
    // SAFETY: the three arrays have `n` elements, lent for this call; `allocation` may be written.
    let (link, segments, addresses, written) = unsafe {
        *allocation = object;
        let all = |array: *mut u64| if n == 0 { &mut [][..] } else { std::slice::from_raw_parts_mut(array, n) };
        (link::<H>(object), slice(segments, n), all(addresses), all(written))
    };
    guarded(1, || report(link, link.allocate(segments, addresses, written)))
}

unsafe extern "C" fn publish<H: LinkHost>(memory: *const shim::slabjit_memory, n: usize) -> c_int {
    // SAFETY: an array of this length, lent for this call, with the jobs that graphs were bound to.
    let links: Vec<&H> = unsafe { slice(memory, n).iter().map(|memory| link::<H>(memory.object)).collect() };
    let Some(first) = links.first() else { return 0 };
    // The error names its object.
    // SAFETY: JITLink finalises when it has fixed up everything.
    guarded(1, || report(*first, unsafe { H::publish(&links) }))
}

fn report<H: LinkHost>(link: &H, result: Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            link.fail(error);
            1
        }
    }
}

unsafe extern "C" fn commit<H: LinkHost>(object: *mut c_void, _: *mut c_void, actions: *mut shim::slabjit_actions) {
    // SAFETY: the job that the graph was bound to; the actions are ours from here on.
    let (link, actions) = unsafe { (link::<H>(object), Actions::from_shim(actions)) };
    guarded((), || link.commit(actions));
}

unsafe extern "C" fn abandon<H: LinkHost>(object: *mut c_void, _: *mut c_void) {
    // SAFETY: the job that the graph was bound to.
    let link = unsafe { link::<H>(object) };
    // SAFETY: JITLink abandons what it does not use any more.
    guarded((), || unsafe { link.abandon() });
}

unsafe extern "C" fn placed<H: LinkHost>(
    object: *mut c_void,
    symbols: *const shim::slabjit_placed,
    n_symbols: usize,
    blocks: *const shim::slabjit_placed,
    n_blocks: usize,
    eh_frame: u64,
    eh_frame_bytes: u64,
) {
    // SAFETY: arrays of these lengths, lent for this call.
    let (link, symbols, blocks) = unsafe { (link::<H>(object), slice(symbols, n_symbols), slice(blocks, n_blocks)) };
    guarded((), || {
        if link.has_signal_frames()
            && let Some(written) = link.written(eh_frame)
        {
            // SAFETY: the whole section, linked; it is writable, and nobody else's, until `publish`.
            let frames = unsafe { std::slice::from_raw_parts_mut(written as *mut u8, eh_frame_bytes as usize) };
            restore_signal_frames(frames);
        }
        // SAFETY: the shim tells what it finds in the graph that is bound to this object.
        unsafe { link.placed(symbols, blocks, eh_frame) };
    });
}

unsafe extern "C" fn functions<H: LinkHost>(object: *mut c_void, functions: *const shim::slabjit_function, n: usize) {
    // SAFETY: an array of this length, lent for this call.
    let (link, functions) = unsafe { (link::<H>(object), slice(functions, n)) };
    guarded((), || {
        // SAFETY: as above.
        let named = |f: &shim::slabjit_function| unsafe { (text(f.name, f.name_len), f.address, f.bytes) };
        link.functions(&mut functions.iter().map(named));
    });
}

unsafe extern "C" fn located<H: LinkHost>(object: *mut c_void, blocks: *const shim::slabjit_located, n: usize) {
    // SAFETY: an array of this length, lent for this call.
    let (link, blocks) = unsafe { (link::<H>(object), slice(blocks, n)) };
    guarded((), || {
        let located = |block: &shim::slabjit_located| {
            // SAFETY: as above.
            (unsafe { text(block.section, block.section_len) }, offset_of(link, block.origin), block.address)
        };
        link.located(&mut blocks.iter().map(located));
    });
}

unsafe extern "C" fn failed<H: LinkHost>(object: *mut c_void, message: *const c_char, len: usize) {
    // SAFETY: the job that the graph was bound to, and a string lent for this call.
    let (link, message) = unsafe { (link::<H>(object), lossy(message, len)) };
    guarded((), || link.fail(Error::Link(LinkError::Failed { object: link.name().to_owned(), message })));
}

/// # Safety
/// As for [`text`].
pub(in crate::link) unsafe fn lossy(data: *const c_char, len: usize) -> String {
    // SAFETY: by the caller's contract.
    String::from_utf8_lossy(unsafe { slice(data.cast::<u8>(), len) }).into_owned()
}

/// Reports an error of the caller's own use of the LLJIT.
pub(in crate::link) unsafe extern "C" fn session_error(message: *const c_char, len: usize) {
    // SAFETY: a string lent for this call.
    let message = unsafe { lossy(message, len) };
    guarded((), || tracing::error!(target: "slabjit", message, "LLVM reported an error of its LLJIT"));
}
