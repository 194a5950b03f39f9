//! Each exported function, called as `cpp/slabjit.h` says, with the smallest caller that can link an object.
#![cfg(slabjit_llvm)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::process::Command;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use slabjit_llvm_wrap::llvm_sys::core::LLVMCreateMemoryBufferWithMemoryRangeCopy;
use slabjit_llvm_wrap::llvm_sys::error::LLVMConsumeError;
use slabjit_llvm_wrap::llvm_sys::orc2::lljit::*;
use slabjit_llvm_wrap::llvm_sys::target::{LLVM_InitializeNativeAsmPrinter, LLVM_InitializeNativeTarget};
use slabjit_llvm_wrap::*;

/// What a linked object told its caller.
#[derive(Default)]
struct Caller {
    events: Mutex<Vec<String>>,
    /// Where `answer` is.
    address: Mutex<u64>,
    /// Pages of its memory.
    pages: Mutex<usize>,
    refuse_memory: bool,
    refuse_publication: bool,
    /// Asks for room at the head and the tail of the code and among data, and makes `far` of it.
    makes_room: bool,
    refuse_references: bool,
    /// Memory for a section apart.
    apart: AtomicU64,
    /// Names of functions.
    functions: Mutex<Vec<String>>,
    /// Sections of blocks, with their addresses.
    located: Mutex<Vec<(String, u64)>>,
}

impl Caller {
    fn event(&self, event: impl Into<String>) {
        self.events.lock().unwrap().push(event.into());
    }

    fn events(&self) -> Vec<String> {
        self.events.lock().unwrap().clone()
    }
}

/// # Safety
/// `object` is a `Caller` that outlives its link.
unsafe fn caller<'a>(object: *mut c_void) -> &'a Caller {
    // SAFETY: by the caller.
    unsafe { &*object.cast::<Caller>() }
}

unsafe fn text(data: *const c_char, len: usize) -> String {
    if len == 0 {
        return String::new();
    }
    // SAFETY: the shim's pointer and length.
    String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) }).into_owned()
}

/// What graphs that are linked together know `peer` as.
const PEER: &str = "\u{1}peer";

unsafe extern "C" fn external(object: *mut c_void, name: *const c_char, len: usize, out: *mut slabjit_decision) {
    // SAFETY: the shim's pointers.
    unsafe {
        let name = text(name, len);
        if name == "far" {
            (*out).verdict = SLABJIT_ABSOLUTE;
            (*out).address = FAR;
        }
        if name == "peer" {
            (*out).verdict = SLABJIT_RENAME;
            (*out).name = PEER.as_ptr().cast();
            (*out).name_len = PEER.len();
        }
        caller(object).event(format!("external {name}"));
    }
}

unsafe extern "C" fn defined(object: *mut c_void, name: *const c_char, len: usize, out: *mut slabjit_decision) {
    // SAFETY: the shim's pointers.
    unsafe {
        let name = text(name, len);
        (*out).verdict = SLABJIT_KEEP;
        (*out).cookie = 7;
        if name == "peer" {
            (*out).verdict = SLABJIT_RENAME;
            (*out).name = PEER.as_ptr().cast();
            (*out).name_len = PEER.len();
        }
        caller(object).event(format!("defined {name}"));
    }
}

unsafe extern "C" fn indirect(_: *mut c_void, _: *const c_char, _: usize, _: *const c_char) -> c_int {
    0
}

unsafe extern "C" fn retain_block(object: *mut c_void, name: *const c_char, len: usize, _: *const c_char) -> u64 {
    // SAFETY: the shim's pointers.
    let name = unsafe { text(name, len) };
    let cookie = if name == APART { 1 | SLABJIT_APART } else { 0 };
    // SAFETY: as above.
    unsafe { caller(object).event(format!("block {name}")) };
    cookie
}

/// The section for which the caller has memory of its own.
const APART: &str = "apart";

unsafe extern "C" fn place(
    object: *mut c_void,
    block: *const slabjit_block,
    alignment: u64,
    address: *mut u64,
    written: *mut u64,
) -> c_int {
    // SAFETY: the shim's pointers.
    unsafe {
        let (caller, block) = (caller(object), &*block);
        caller.event(format!("place {} {alignment}", text(block.section, block.section_len)));
        *address = caller.apart.as_ptr().addr() as u64;
        *written = *address;
        assert!(block.size as usize <= size_of_val(&caller.apart) && !block.origin.is_null());
        c_int::from(caller.refuse_memory)
    }
}

unsafe extern "C" fn may_leave(_: *mut c_void, _: *const c_char, _: usize) -> c_int {
    0
}

/// The one reference to `far`, whose field the caller writes.
const FAR: u64 = 0x1234_5678_9abc_def0;

/// # Safety
/// The shim's block and edges.
unsafe fn references<'a>(edges: *const slabjit_edge, n: usize) -> &'a [slabjit_edge] {
    // SAFETY: by the caller.
    unsafe { std::slice::from_raw_parts(edges, n) }
}

unsafe extern "C" fn survey(
    object: *mut c_void,
    bytes: u64,
    block: *const slabjit_block,
    edges: *const slabjit_edge,
    n: usize,
) {
    // SAFETY: the shim's pointers.
    unsafe {
        let block = &*block;
        assert!(block.content.is_null() && block.address == 0 && !block.origin.is_null() && bytes >= block.size);
        for edge in references(edges, n) {
            assert!(u64::from(edge.offset) < block.size);
            let symbol = text(edge.symbol, edge.symbol_len);
            if symbol == "far" {
                assert_eq!((edge.place, edge.target, edge.drop), (SLABJIT_AT_ADDRESS, FAR, 0));
                let section = text(block.section, block.section_len);
                caller(object).event(format!("survey {section} {} {}", edge.relocation, block.executable));
            }
        }
    }
}

unsafe extern "C" fn reserve(object: *mut c_void, head: *mut u64, tail: *mut u64, data: *mut u64) {
    // SAFETY: the shim's pointers.
    unsafe {
        if caller(object).makes_room {
            (*head, *tail, *data) = (16, 32, 48);
        }
    }
}

unsafe extern "C" fn settled(object: *mut c_void, rooms: *const slabjit_room, got: u64) {
    // SAFETY: the shim's three rooms.
    unsafe {
        let rooms = std::slice::from_raw_parts(rooms, 3);
        for room in rooms.iter().filter(|room| room.size > 0) {
            // In the same process, working memory is the final memory; and it is writable.
            assert_eq!(room.content as u64, room.address);
            ptr::write_bytes(room.content, 0xcc, room.size as usize);
        }
        let sizes: Vec<u64> = rooms.iter().map(|room| room.size).collect();
        caller(object).event(format!("settled {sizes:?} {}", got != 0));
    }
}

unsafe extern "C" fn check(object: *mut c_void, block: *const slabjit_block, edges: *mut slabjit_edge, n: usize) {
    // SAFETY: the shim's pointers; the block's memory is writable.
    unsafe {
        let block = &*block;
        assert_eq!(block.content as u64, block.address);
        for edge in std::slice::from_raw_parts_mut(edges, n) {
            assert_eq!(edge.place, SLABJIT_AT_ADDRESS);
            if text(edge.symbol, edge.symbol_len) == "far" {
                // Something that LLVM would not write.
                block.content.add(edge.offset as usize).cast::<u64>().write_unaligned(!edge.target);
                edge.drop = 1;
                caller(object).event("check far");
            }
        }
    }
}

unsafe extern "C" fn checked(object: *mut c_void) -> c_int {
    // SAFETY: as above.
    let caller = unsafe { caller(object) };
    caller.event("checked");
    caller.refuse_references.into()
}

unsafe extern "C" fn allocate(
    object: *mut c_void,
    segments: *const slabjit_segment,
    n: usize,
    addresses: *mut u64,
    written: *mut u64,
    allocation: *mut *mut c_void,
) -> c_int {
    // SAFETY: the shim's pointers; a mapping of our own, a page for each segment.
    unsafe {
        if caller(object).refuse_memory {
            return 1;
        }
        let base = mmap(ptr::null_mut(), n * 4096, 3, 0x22, -1, 0);
        for (i, segment) in std::slice::from_raw_parts(segments, n).iter().enumerate() {
            assert!(segment.content_bytes + segment.zero_fill_bytes <= 4096);
            *addresses.add(i) = base as u64 + 4096 * i as u64;
            *written.add(i) = *addresses.add(i);
        }
        *allocation = base;
        *caller(object).pages.lock().unwrap() = n;
        caller(object).event("allocate");
    }
    0
}

unsafe extern "C" {
    fn mmap(at: *mut c_void, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void;
    fn mprotect(at: *mut c_void, len: usize, prot: c_int) -> c_int;
}

unsafe extern "C" fn publish(memory: *const slabjit_memory, n: usize) -> c_int {
    // SAFETY: the shim's array; our mappings; nothing here writes their data.
    unsafe {
        let mut refused = false;
        for slabjit_memory { object, allocation } in std::slice::from_raw_parts(memory, n) {
            let caller = caller(*object);
            caller.event(if n == 1 { "publish".to_owned() } else { format!("publish with {n}") });
            for page in 0..*caller.pages.lock().unwrap() {
                mprotect(allocation.byte_add(page * 4096), 4096, 5);
            }
            refused |= caller.refuse_publication;
        }
        refused.into()
    }
}

unsafe extern "C" fn commit(object: *mut c_void, _: *mut c_void, actions: *mut slabjit_actions) {
    assert!(actions.is_null());
    // SAFETY: as above.
    unsafe { caller(object).event("commit") }
}

unsafe extern "C" fn abandon(object: *mut c_void, _: *mut c_void) {
    // SAFETY: as above.
    unsafe { caller(object).event("abandon") }
}

unsafe extern "C" fn located(object: *mut c_void, blocks: *const slabjit_located, n: usize) {
    // SAFETY: as for `functions`.
    unsafe {
        let blocks = if n == 0 { &[] } else { std::slice::from_raw_parts(blocks, n) };
        caller(object).located.lock().unwrap().extend(blocks.iter().map(|block| {
            let name = std::slice::from_raw_parts(block.section.cast(), block.section_len);
            (String::from_utf8_lossy(name).into_owned(), block.address)
        }));
    }
}

unsafe extern "C" fn functions(object: *mut c_void, functions: *const slabjit_function, n: usize) {
    // SAFETY: an array of this length, and texts of it.
    unsafe {
        let functions = if n == 0 { &[] } else { std::slice::from_raw_parts(functions, n) };
        let name = |f: &slabjit_function| text(f.name, f.name_len);
        let mut names: Vec<String> = functions.iter().map(name).collect();
        names.sort();
        *caller(object).functions.lock().unwrap() = names;
    }
}

unsafe extern "C" fn placed(
    object: *mut c_void,
    symbols: *const slabjit_placed,
    n: usize,
    blocks: *const slabjit_placed,
    n_blocks: usize,
    eh_frame: u64,
    _: u64,
) {
    // SAFETY: as above.
    unsafe {
        for symbol in std::slice::from_raw_parts(symbols, n) {
            assert_eq!(symbol.cookie, 7);
            *caller(object).address.lock().unwrap() = symbol.address;
        }
        for block in std::slice::from_raw_parts(blocks, n_blocks) {
            let apart = caller(object).apart.as_ptr().addr() as u64;
            assert_eq!((block.cookie, block.address, block.bytes), (1, apart, 8));
        }
        caller(object).event(format!("placed {n} {}", eh_frame != 0));
    }
}

unsafe extern "C" fn failed(object: *mut c_void, message: *const c_char, len: usize) {
    // SAFETY: as above.
    unsafe { caller(object).event(format!("failed {}", text(message, len))) }
}

const CALLBACKS: slabjit_callbacks = slabjit_callbacks {
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
    functions,
    located,
    failed,
};

fn take(text: *mut c_char) -> Option<String> {
    // SAFETY: a string of the shim's, freed once; NULL may be freed, too.
    unsafe {
        let copy = (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned());
        slabjit_string_free(text);
        copy
    }
}

fn compile(source: &str) -> Vec<u8> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("slabjit-interface-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (c, o) = (dir.join("t.c"), dir.join("t.o"));
    std::fs::write(&c, source).unwrap();
    // `ci/aarch64` sets it where these tests are built for another architecture than the machine's.
    let compiler = std::env::var("SLABJIT_TEST_CROSS").map_or("cc".into(), |cross| format!("{cross}-gcc"));
    assert!(Command::new(compiler).args(["-O1", "-fPIC", "-c", "-o"]).arg(&o).arg(&c).status().unwrap().success());
    let bytes = std::fs::read(&o).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    bytes
}

fn graph(bytes: &[u8]) -> Result<*mut slabjit_graph, String> {
    let (mut graph, name) = (ptr::null_mut(), "t.o");
    // SAFETY: pointers and lengths of slices; the bytes live until the test's end.
    let text = unsafe {
        let (bytes, len) = (bytes.as_ptr().cast(), bytes.len());
        slabjit_graph_create(bytes, len, name.as_ptr().cast(), name.len(), &mut graph)
    };
    take(text).map_or(Ok(graph), Err)
}

/// Links objects together, each for its caller; whether all were linked.
fn link_all(objects: &[(&[u8], &Caller)]) -> bool {
    let bind = |(bytes, caller): &(&[u8], &Caller)| {
        let graph = graph(bytes).unwrap();
        // SAFETY: as the header says: the graph is bound once, to what outlives it.
        unsafe { slabjit_graph_bind(graph, &CALLBACKS, ptr::from_ref(*caller).cast_mut().cast(), 1, 0, 1) };
        graph
    };
    let graphs: Vec<_> = objects.iter().map(bind).collect();
    // SAFETY: as the header says: the graphs are bound, and given away, as is the batch.
    unsafe {
        let batch = slabjit_batch_begin();
        let linked = graphs.into_iter().map(|graph| slabjit_batch_link(batch, graph) == 0);
        let linked = linked.collect::<Vec<_>>().into_iter().all(|linked| linked);
        let ended = slabjit_batch_end(batch, 0) == 0;
        assert!(linked || !ended, "a failure is forgotten");
        ended
    }
}

fn link(bytes: &[u8], caller: &Caller) -> bool {
    link_all(&[(bytes, caller)])
}

#[test]
fn the_version_is_the_feature_s() {
    let of_feature = [
        (cfg!(any(feature = "llvm15-0", feature = "llvm15-0-prefer-static")), [15, 0]),
        (cfg!(any(feature = "llvm16-0", feature = "llvm16-0-prefer-static")), [16, 0]),
        (cfg!(any(feature = "llvm17-0", feature = "llvm17-0-prefer-static")), [17, 0]),
        (cfg!(any(feature = "llvm18-1", feature = "llvm18-1-prefer-static")), [18, 1]),
        (cfg!(any(feature = "llvm19-1", feature = "llvm19-1-prefer-static")), [19, 1]),
        (cfg!(any(feature = "llvm20-1", feature = "llvm20-1-prefer-static")), [20, 1]),
        (cfg!(any(feature = "llvm21-1", feature = "llvm21-1-prefer-static")), [21, 1]),
        (cfg!(any(feature = "llvm22-1", feature = "llvm22-1-prefer-static")), [22, 1]),
        (cfg!(any(feature = "llvm23-1", feature = "llvm23-1-prefer-static")), [23, 1]),
    ];
    let expected: Vec<_> = of_feature.into_iter().filter(|(enabled, _)| *enabled).map(|(_, version)| version).collect();
    let mut library = [0; 3];
    // SAFETY: a place for three integers.
    unsafe { slabjit_llvm_version(&mut library) };
    assert_eq!(expected, [[slabjit_llvm_major(), library[1]]]);
    assert_eq!(library[0], slabjit_llvm_major());
}

#[test]
fn an_object_links() {
    let bytes = compile("int answer(void) { return 42; }");
    let caller = Caller::default();
    assert!(link(&bytes, &caller));
    let events = caller.events();
    assert_eq!(*caller.functions.lock().unwrap(), ["answer"]);
    assert!(events.contains(&"defined answer".to_owned()) && events.contains(&"block .text".to_owned()), "{events:?}");
    let tail = ["allocate", "placed 1 true", "settled [0, 0, 0] false", "checked", "publish", "commit"];
    assert_eq!(events[events.len() - tail.len()..], tail);
    let address = *caller.address.lock().unwrap();
    // SAFETY: it was linked there, and published.
    let answer: extern "C" fn() -> i32 = unsafe { std::mem::transmute(address as usize) };
    assert_eq!(answer(), 42);
}

#[test]
fn a_section_apart_lies_where_the_caller_says() {
    let source = "int answer(void) { return 42; }
        __attribute__((section(\"apart\"), used)) static int (*pointer)(void) = answer;";
    let bytes = compile(source);
    let caller = Caller::default();
    assert!(link(&bytes, &caller), "{:?}", caller.events());
    assert!(caller.events().contains(&"place apart 8".to_owned()), "{:?}", caller.events());
    assert_eq!(caller.apart.load(Ordering::Relaxed), *caller.address.lock().unwrap());
    let caller = Caller { refuse_memory: true, ..Caller::default() };
    assert!(!link(&bytes, &caller));
    assert!(!caller.events().contains(&"allocate".to_owned()), "{:?}", caller.events());
}

#[test]
fn bytes_that_are_no_object_are_refused_in_llvms_words() {
    let error = graph(&[0x7f; 64]).unwrap_err();
    assert!(error.contains("t.o") || error.contains("magic") || error.contains("format"), "{error}");
}

#[test]
fn a_failed_object_is_told_why() {
    let bytes = compile("int nowhere(void); int f(void) { return 1 + nowhere(); }");
    let caller = Caller::default();
    assert!(!link(&bytes, &caller));
    let events = caller.events();
    assert!(events.contains(&"external nowhere".to_owned()) && events.contains(&"abandon".to_owned()), "{events:?}");
    assert_eq!(events.last().unwrap(), "failed Symbols not found: [ nowhere ]");
}

const PEER_SOURCE: &str = "int peer(void) { return 41; }";
const USER_SOURCE: &str = "int peer(void); int f(void) { return 1 + peer(); }";

#[test]
fn graphs_that_are_linked_together_find_each_other() {
    let (peer, user) = (compile(PEER_SOURCE), compile(USER_SOURCE));
    for user_first in [false, true] {
        let (a, b) = (Caller::default(), Caller::default());
        let mut objects = [(&*peer, &a), (&*user, &b)];
        if user_first {
            objects.reverse();
        }
        assert!(link_all(&objects));
        // SAFETY: it was linked there, and published.
        let f: extern "C" fn() -> i32 = unsafe { std::mem::transmute(*b.address.lock().unwrap() as usize) };
        assert_eq!(f(), 42);
        assert!(a.events().contains(&"commit".to_owned()));
    }
}

#[test]
fn a_name_that_no_graph_has_is_missing_and_a_weak_one_is_0() {
    let caller = Caller::default();
    assert!(!link(&compile(USER_SOURCE), &caller));
    assert_eq!(caller.events().last().unwrap(), &format!("failed Symbols not found: [ {PEER} ]"));
    let caller = Caller::default();
    let source = "__attribute__((weak)) int nowhere(void); int f(void) { return nowhere ? nowhere() : 42; }";
    assert!(link(&compile(source), &caller));
    // SAFETY: it was linked there, and published.
    let f: extern "C" fn() -> i32 = unsafe { std::mem::transmute(*caller.address.lock().unwrap() as usize) };
    assert_eq!(f(), 42);
}

/// Whoever waits for others gives its memory back, whoever comes after the failure never has any, and the first cause
/// is the only one.
#[test]
fn one_that_fails_ends_those_that_are_linked_with_it() {
    let (peer, user) = (compile(PEER_SOURCE), compile(USER_SOURCE));
    let (waits, fails, comes_after) =
        (Caller::default(), Caller { refuse_memory: true, ..Caller::default() }, Caller::default());
    assert!(!link_all(&[(&user, &waits), (&peer, &fails), (&peer, &comes_after)]));
    let of = |caller: &Caller, what: &str| caller.events().iter().filter(|e| e.starts_with(what)).count();
    assert_eq!([of(&waits, "allocate"), of(&waits, "abandon"), of(&waits, "commit")], [1, 1, 0]);
    assert_eq!([of(&waits, "failed"), of(&fails, "failed"), of(&comes_after, "failed")], [0, 1, 0]);
    assert_eq!([of(&comes_after, "defined"), of(&comes_after, "allocate")], [1, 0]);
}

/// Before that, all have been checked; nothing is committed before all are published.
#[test]
fn what_is_linked_together_is_published_together_or_not_at_all() {
    let (peer, user) = (compile(PEER_SOURCE), compile(USER_SOURCE));
    for refuses in [false, true] {
        let (a, b) = (Caller::default(), Caller { refuse_publication: refuses, ..Caller::default() });
        assert_eq!(link_all(&[(&user, &a), (&peer, &b)]), !refuses);
        let end = if refuses { "abandon" } else { "commit" };
        for caller in [a, b] {
            let events = caller.events();
            assert_eq!(events[events.len() - 3..], ["checked", "publish with 2", end]);
        }
    }
    // One that fails keeps the others from it.
    let (a, b) = (Caller::default(), Caller { refuse_references: true, ..Caller::default() });
    assert!(!link_all(&[(&peer, &a), (&user, &b)]));
    assert_eq!(a.events().last().unwrap(), "abandon");
    assert!(!a.events().iter().any(|event| event.starts_with("publish")));
}

#[test]
fn memory_can_be_refused() {
    let bytes = compile("int g(void) { return 3; }");
    let caller = Caller { refuse_memory: true, ..Caller::default() };
    assert!(!link(&bytes, &caller));
    let events = caller.events();
    let last = events.last().unwrap();
    assert!(last.starts_with("failed") && last.contains("no memory"), "{events:?}");
}

/// A 64-bit reference in data, and code that gives its address.
const REFERS: &str = "extern char far; __attribute__((visibility(\"hidden\"))) char *refers = &far;
                      char **get(void) { return &refers; }";

#[test]
fn references_are_shown_and_the_caller_may_write_them() {
    let bytes = compile(REFERS);
    let caller = Caller { makes_room: true, ..Caller::default() };
    assert!(link(&bytes, &caller));
    let events = caller.events();
    let pointer = if cfg!(target_arch = "x86_64") { 1 } else { 257 };
    let shown = |e: &String| e.starts_with("survey .data") && e.ends_with(&format!(" {pointer} 0"));
    assert!(events.iter().any(shown), "{events:?}");
    assert!(events.contains(&"settled [16, 32, 48] false".to_owned()), "{events:?}");
    let order: Vec<_> =
        events.iter().filter(|e| ["allocate", "check far", "checked", "publish"].contains(&&***e)).collect();
    assert_eq!(order, ["allocate", "check far", "checked", "publish"]);
    let address = *caller.address.lock().unwrap() as usize;
    // SAFETY: `placed` was told of two definitions; whichever came last has 8 bytes there.
    let first = unsafe { (address as *const u64).read_unaligned() };
    let refers = if first == !FAR {
        first
    } else {
        // SAFETY: then it is the function.
        let get: extern "C" fn() -> *const u64 = unsafe { std::mem::transmute(address) };
        // SAFETY: it returns the address of `refers`.
        unsafe { *get() }
    };
    assert_eq!(refers, !FAR, "LLVM wrote the field all the same");
}

#[test]
fn references_can_be_refused() {
    let bytes = compile(REFERS);
    let caller = Caller { refuse_references: true, ..Caller::default() };
    assert!(!link(&bytes, &caller));
    let events = caller.events();
    let last = events.last().unwrap();
    assert!(last.starts_with("failed") && last.contains("out of range"), "{events:?}");
    assert!(events.contains(&"abandon".to_owned()) && !events.contains(&"publish".to_owned()), "{events:?}");
}

#[test]
fn a_graph_need_not_be_linked() {
    let bytes = compile("int h(void) { return 5; }");
    let caller = Caller::default();
    let graph = graph(&bytes).unwrap();
    // SAFETY: as the header says.
    unsafe {
        slabjit_graph_bind(graph, &CALLBACKS, ptr::from_ref(&caller).cast_mut().cast(), 0, 0, 0);
        slabjit_graph_dispose(graph);
        slabjit_graph_dispose(ptr::null_mut());
    }
    assert_eq!(caller.events(), ["defined h"]);
    assert!(link_all(&[]), "nothing is nothing to link");
}

/// What the LLJIT's session was told of.
static REPORTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

unsafe extern "C" fn report(message: *const c_char, len: usize) {
    // SAFETY: the shim's string.
    REPORTED.lock().unwrap().push(unsafe { text(message, len) });
}

/// Refuses every object.
unsafe extern "C" fn refuse(
    user: *mut c_void,
    unit: *mut slabjit_unit,
    dylib: *const c_void,
    dylib_name: *const c_char,
    dylib_len: usize,
    bytes: *const c_char,
    len: usize,
    name: *const c_char,
    name_len: usize,
    _: *mut *mut slabjit_definition,
    _: *mut usize,
) -> *mut c_void {
    // SAFETY: the shim's strings and bytes, which it lends; the unit is ours to fail.
    unsafe {
        let elf = std::slice::from_raw_parts(bytes.cast::<u8>(), len);
        assert!(user.is_null() && !dylib.is_null() && elf.starts_with(b"\x7fELF"));
        let text = format!("'{}' of '{}' is refused", text(name, name_len), text(dylib_name, dylib_len));
        slabjit_unit_fail(unit, text.as_ptr().cast(), text.len());
    }
    ptr::null_mut()
}

/// What is not called for an object that was refused.
mod never {
    use super::*;

    pub unsafe extern "C" fn bind(_: *mut c_void) -> *mut slabjit_graph {
        panic!("bind")
    }
    pub unsafe extern "C" fn object(_: *mut c_void) {
        panic!("an object")
    }
    pub unsafe extern "C" fn asks(_: *mut c_void) {
        panic!("asks")
    }
    pub unsafe extern "C" fn refers(_: *mut c_void, _: *const u64, _: *mut u8, _: usize) -> c_int {
        panic!("refers")
    }
    pub unsafe extern "C" fn belongs(_: *mut c_void, _: usize) {
        panic!("belongs")
    }
    pub unsafe extern "C" fn failed(_: *mut c_void, _: *const c_char, _: usize) {
        panic!("failed")
    }
    pub unsafe extern "C" fn transferred(_: *mut c_void, _: usize, _: usize) {
        panic!("transferred")
    }
    pub unsafe extern "C" fn run(_: *mut c_void, _: *const c_void) -> *mut c_char {
        panic!("initialisers")
    }
}

unsafe extern "C" fn removed(_: *mut c_void, _: usize) {}

unsafe extern "C" fn not_taken(_: *mut c_void, _: *mut c_void) -> c_int {
    0
}

#[test]
fn the_lljit_hands_objects_to_the_caller_and_reports_errors() {
    let mut session = ptr::null_mut();
    let caller = slabjit_orc {
        user: ptr::null_mut(),
        prepare: refuse,
        bind: never::bind,
        placed: never::object,
        missing: never::failed,
        asks: never::asks,
        refers: never::refers,
        belongs: never::belongs,
        linked: never::object,
        failed: never::failed,
        removed,
        transferred: never::transferred,
        dispatch: not_taken,
        initialise: never::run,
        deinitialise: never::run,
    };
    // SAFETY: as the headers say. The buffer's reference is the LLJIT's.
    unsafe {
        assert_eq!(take(slabjit_check_version()), None);
        LLVM_InitializeNativeTarget();
        LLVM_InitializeNativeAsmPrinter();
        assert_eq!(take(slabjit_session_create(report, &caller, 1, &mut session)), None);
        let jit: LLVMOrcLLJITRef = slabjit_session_lljit(session).cast();
        let bytes = compile("int foreign(void) { return 1; }");
        let buffer =
            LLVMCreateMemoryBufferWithMemoryRangeCopy(bytes.as_ptr().cast(), bytes.len(), c"foreign.o".as_ptr());
        assert!(LLVMOrcLLJITAddObjectFile(jit, LLVMOrcLLJITGetMainJITDylib(jit), buffer).is_null());
        let mut address = 0;
        let error = LLVMOrcLLJITLookup(jit, &mut address, c"foreign".as_ptr());
        assert!(!error.is_null());
        LLVMConsumeError(error);
        assert_eq!(take(slabjit_session_end(session)), None);
        slabjit_session_dispose(session);
    }
    let reported = REPORTED.lock().unwrap();
    assert!(reported.iter().any(|text| text.ends_with("of 'main' is refused")), "{reported:?}");
}

#[test]
fn no_actions_are_nothing_to_run() {
    // SAFETY: NULL is allowed.
    assert_eq!(take(unsafe { slabjit_actions_run(ptr::null_mut()) }), None);
}
