//! What the shim calls while it links an object: thin, and nothing unwinds out of it.
#![allow(unsafe_code)] // callbacks from C++

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use slabjit_llvm_wrap as shim;

use super::actions::Actions;
use super::decided::{Defined, External};
use super::object::{ObjectLink, RETAINED, THREAD_LOCAL};
use super::reach::{Block, Edge, place_of};
use crate::elf::restore_signal_frames;
use crate::guarded::guarded;
use crate::{Error, Result};

pub(super) static CALLBACKS: shim::slabjit_callbacks = shim::slabjit_callbacks {
    external,
    defined,
    retain_block,
    indirect,
    may_leave,
    place,
    survey,
    reserve,
    settled,
    check,
    checked,
    allocate,
    publish,
    commit,
    abandon,
    placed,
    failed,
};

/// # Safety
/// `object` is what a graph was bound to, which is there until all graphs of its batch are linked.
unsafe fn link<'a>(object: *mut c_void) -> &'a ObjectLink {
    // SAFETY: by the caller; the callbacks share it, its state is behind a lock.
    unsafe { &*object.cast::<ObjectLink>() }
}

/// # Safety
/// Pointer and length are those of a string that the shim lends for the duration of the call.
unsafe fn text<'a>(data: *const c_char, len: usize) -> &'a str {
    if data.is_null() || len == 0 {
        return "";
    }
    // SAFETY: by the caller.
    let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) };
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// # Safety
/// Pointer and length are those of an array that the shim lends for the duration of the call.
unsafe fn slice<'a, T>(data: *const T, len: usize) -> &'a [T] {
    if len == 0 {
        return &[];
    }
    // SAFETY: by the caller.
    unsafe { std::slice::from_raw_parts(data, len) }
}

fn decide_external(external: &External, out: &mut shim::slabjit_decision) {
    match external {
        // The batch has put an address in the place of each bound.
        External::Leave | External::Bound(..) => out.verdict = shim::SLABJIT_KEEP,
        External::Absolute(address) => {
            out.verdict = shim::SLABJIT_ABSOLUTE;
            out.address = *address;
        }
        External::Batch(name) => rename(name, out),
    }
}

fn rename(name: &Arc<str>, out: &mut shim::slabjit_decision) {
    out.verdict = shim::SLABJIT_RENAME;
    out.name = name.as_ptr().cast();
    out.name_len = name.len();
}

unsafe extern "C" fn external(object: *mut c_void, name: *const c_char, len: usize, out: *mut shim::slabjit_decision) {
    // SAFETY: all pointers are the shim's, valid for this call.
    let (link, name, out) = unsafe { (link(object), text(name, len), &mut *out) };
    guarded((), || {
        let object = &link.object;
        let imported = object.import_named(name).and_then(|i| link.externals.get(i));
        // A definition that was discarded, or an absolute one, which is undefined in prepared bytes.
        let instead = || match link.definitions.get(object.definition_named(name)?)? {
            Defined::Discard(instead) => Some(instead),
            _ => None,
        };
        if let Some(external) = imported.or_else(instead) {
            decide_external(external, out);
        }
    });
}

unsafe extern "C" fn defined(object: *mut c_void, name: *const c_char, len: usize, out: *mut shim::slabjit_decision) {
    // SAFETY: all pointers are the shim's, valid for this call.
    let (link, name, out) = unsafe { (link(object), text(name, len), &mut *out) };
    guarded((), || {
        out.verdict = shim::SLABJIT_DROP;
        let Some(i) = link.object.definition_named(name) else { return };
        out.cookie = i as u64 + 1;
        match link.definitions.get(i) {
            Some(Defined::Keep) => out.verdict = shim::SLABJIT_KEEP,
            Some(Defined::Export(name)) => rename(name, out),
            Some(Defined::Discard(_)) => out.verdict = shim::SLABJIT_DISCARD,
            None => {}
        }
    });
}

unsafe extern "C" fn retain_block(
    object: *mut c_void,
    section: *const c_char,
    len: usize,
    content: *const c_char,
) -> u64 {
    // SAFETY: all pointers are the shim's, valid for this call.
    let (link, section) = unsafe { (link(object), text(section, len)) };
    guarded(0, || {
        let offset = (content as usize).checked_sub(link.object.bytes.as_ptr() as usize);
        let offset = offset.filter(|o| *o < link.object.bytes.len()).map(|o| o as u64);
        let object = &link.object;
        if let Some(array) = offset.and_then(|o| object.array_at(o)) {
            let dead = object.index.arrays.get(array).is_some_and(|a| link.is_dead(a.section));
            return if dead { 0 } else { array as u64 + 1 };
        }
        if let Some(section) = object.thread_local(section) {
            return if link.is_dead(section) { 0 } else { THREAD_LOCAL + u64::from(section) };
        }
        match object.retained(section, offset) {
            Some(index) if !link.is_dead(index) => {
                let apart = if link.is_in_set(section) { shim::SLABJIT_APART } else { 0 };
                (RETAINED + u64::from(index)) | apart
            }
            _ => 0,
        }
    })
}

unsafe extern "C" fn indirect(object: *mut c_void, name: *const c_char, len: usize, content: *const c_char) -> c_int {
    // SAFETY: all pointers are the shim's, valid for this call.
    let (link, name) = unsafe { (link(object), text(name, len)) };
    guarded(0, || {
        let index = &link.object.index;
        let offset = (content as usize).wrapping_sub(link.object.bytes.as_ptr() as usize) as u64;
        index.is_indirect(name, offset).into()
    })
}

unsafe extern "C" fn may_leave(object: *mut c_void, section: *const c_char, len: usize) -> c_int {
    // SAFETY: all pointers are the shim's, valid for this call.
    let (link, section) = unsafe { (link(object), text(section, len)) };
    guarded(0, || link.object.is_large(section).into())
}

unsafe extern "C" fn place(
    object: *mut c_void,
    raw: *const shim::slabjit_block,
    alignment: u64,
    address: *mut u64,
    written: *mut u64,
) -> c_int {
    // SAFETY: all pointers are the shim's, valid for this call.
    let (link, (raw, section, origin), address, written) = unsafe {
        let link = link(object);
        (link, block(link, raw), &mut *address, &mut *written)
    };
    guarded(1, || {
        // Where there are no contents, the shim gives none.
        let room = link.place(section, origin.filter(|_| !raw.origin.is_null()), raw.size, alignment);
        report(link, room.map(|room| (*address, *written) = (room.address, room.written)))
    })
}

/// # Safety
/// `block` is the shim's, for this call; `content` is its bytes, as long as it is.
unsafe fn block<'a>(
    link: &ObjectLink,
    block: *const shim::slabjit_block,
) -> (&'a shim::slabjit_block, &'a str, Option<u64>) {
    // SAFETY: by the caller.
    let (block, section) = unsafe { (&*block, text((*block).section, (*block).section_len)) };
    let origin = (block.origin as usize).checked_sub(link.object.bytes.as_ptr() as usize);
    (block, section, origin.filter(|o| *o < link.object.bytes.len()).map(|o| o as u64))
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
        // SAFETY: by the caller.
        symbol: unsafe { text(raw.symbol, raw.symbol_len) },
    }
}

unsafe extern "C" fn survey(
    object: *mut c_void,
    bytes: u64,
    raw: *const shim::slabjit_block,
    edges: *const shim::slabjit_edge,
    n: usize,
) {
    // SAFETY: the block, its original bytes and its edges are lent for this call.
    let (link, raw, origin, content, edges) = unsafe {
        let link = link(object);
        let (raw, _, origin) = block(link, raw);
        (link, raw, origin, slice(raw.origin.cast::<u8>(), raw.size as usize), slice(edges, n))
    };
    guarded((), || {
        // SAFETY: as above; `survey` keeps no edge.
        let edges = edges.iter().map(|e| (unsafe { edge(e) }, link.lifted(origin, e)));
        link.reach().survey(bytes, raw.executable != 0, content, edges);
    });
}

unsafe extern "C" fn reserve(object: *mut c_void, head: *mut u64, tail: *mut u64, data: *mut u64) {
    // SAFETY: all pointers are the shim's, valid for this call.
    let (link, head, tail, data) = unsafe { (link(object), &mut *head, &mut *tail, &mut *data) };
    guarded((), || [*head, *tail, *data] = link.reach().reserve());
}

unsafe extern "C" fn settled(object: *mut c_void, rooms: *const shim::slabjit_room, got: u64) {
    // SAFETY: three rooms, lent for this call; the memory they name is writable until `publish`.
    let (link, rooms) = unsafe { (link(object), slice(rooms, 3)) };
    guarded((), || {
        let room = |i: usize| rooms.get(i).map_or((0, 0), |r: &shim::slabjit_room| (r.address, r.size as usize));
        link.state().rooms = [0, 1, 2].map(|i| rooms.get(i).map_or(0, |r| r.content as usize));
        link.reach().settle([room(0), room(1), room(2)], got);
    });
}

unsafe extern "C" fn check(
    object: *mut c_void,
    raw: *const shim::slabjit_block,
    edges: *mut shim::slabjit_edge,
    n: usize,
) {
    // SAFETY: the block and its edges are lent for this call, and its memory is written by nobody else before `publish`.
    let (link, block, edges) = unsafe {
        let link = link(object);
        let (raw, section, origin) = block(link, raw);
        let content = std::slice::from_raw_parts_mut(raw.content, raw.size as usize);
        let edges = std::slice::from_raw_parts_mut(edges, n);
        (link, Block { section, executable: raw.executable != 0, address: raw.address, content, origin }, edges)
    };
    // SAFETY: as above; no edge is kept.
    guarded((), || link.check(block, edges, |e| unsafe { edge(e) }));
}

unsafe extern "C" fn checked(object: *mut c_void) -> c_int {
    // SAFETY: what the graph was bound to.
    let link = unsafe { link(object) };
    guarded(1, || {
        let rooms = link.state().rooms;
        for (content, bytes) in rooms.into_iter().zip(link.reach().rooms()) {
            if content != 0 {
                // SAFETY: `settled` was told of this memory, of which `bytes` is the size; nobody else writes it before `publish`.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), content as *mut u8, bytes.len()) };
            }
        }
        report(link, link.checked())
    })
}

unsafe extern "C" fn allocate(
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
        (link(object), slice(segments, n), all(addresses), all(written))
    };
    guarded(1, || report(link, link.allocate(segments, addresses, written)))
}

unsafe extern "C" fn publish(memory: *const shim::slabjit_memory, n: usize) -> c_int {
    // SAFETY: an array of this length, lent for this call, with what graphs were bound to.
    let links: Vec<_> = unsafe { slice(memory, n).iter().map(|memory| link(memory.object)).collect() };
    let Some(first) = links.first() else { return 0 };
    // The error names its object.
    guarded(1, || report(first, ObjectLink::publish(&links)))
}

fn report(link: &ObjectLink, result: Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            link.fail(error);
            1
        }
    }
}

unsafe extern "C" fn commit(object: *mut c_void, _: *mut c_void, actions: *mut shim::slabjit_actions) {
    // SAFETY: what the graph was bound to; the actions are ours from here on.
    let (link, actions) = unsafe { (link(object), Actions::from_shim(actions)) };
    guarded((), || link.commit(actions));
}

unsafe extern "C" fn abandon(object: *mut c_void, _: *mut c_void) {
    // SAFETY: what the graph was bound to.
    let link = unsafe { link(object) };
    guarded((), || link.abandon());
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
    // SAFETY: arrays of these lengths, lent for this call.
    let (link, symbols, blocks) = unsafe { (link(object), slice(symbols, n_symbols), slice(blocks, n_blocks)) };
    guarded((), || {
        if link.object.index.signal_frames
            && let Some(written) = link.written(eh_frame)
        {
            // SAFETY: the whole section, linked; it is writable, and nobody else's, until `publish`.
            let frames = unsafe { std::slice::from_raw_parts_mut(written as *mut u8, eh_frame_bytes as usize) };
            restore_signal_frames(frames);
        }
        link.placed(symbols, blocks, eh_frame);
    });
}

unsafe extern "C" fn failed(object: *mut c_void, message: *const c_char, len: usize) {
    // SAFETY: what the graph was bound to, and a string lent for this call.
    let (link, message) = unsafe { (link(object), lossy(message, len)) };
    guarded((), || link.fail(Error::Link { object: link.object.name.to_string(), message }));
}

/// # Safety
/// As for [`text`].
unsafe fn lossy(data: *const c_char, len: usize) -> String {
    // SAFETY: by the caller.
    String::from_utf8_lossy(unsafe { slice(data.cast::<u8>(), len) }).into_owned()
}

/// What somebody does with the LLJIT fails.
pub(super) unsafe extern "C" fn session_error(message: *const c_char, len: usize) {
    // SAFETY: a string lent for this call.
    let message = unsafe { lossy(message, len) };
    guarded((), || tracing::error!(target: "slabjit", message, "LLVM reported an error of its LLJIT"));
}
