//! What slabjit needs from LLVM beyond its C API: extern declarations and `#[repr(C)]` records, nothing else.
//!
//! The contract of every function (owner, thread, errors) is in `cpp/slabjit.h`, which these declarations mirror.
#![cfg(slabjit_llvm)]
#![warn(unreachable_pub)]
#![allow(non_camel_case_types, missing_docs, reason = "the names are those of slabjit.h, which documents them")]

// slabjit-llvm-find says so where several of the features are enabled.
#[cfg(any(feature = "llvm15-0", feature = "llvm15-0-prefer-static", feature = "llvm15-0-no-llvm-linking"))]
pub use llvm_sys_150 as llvm_sys;
#[cfg(any(feature = "llvm16-0", feature = "llvm16-0-prefer-static", feature = "llvm16-0-no-llvm-linking"))]
pub use llvm_sys_160 as llvm_sys;
#[cfg(any(feature = "llvm17-0", feature = "llvm17-0-prefer-static", feature = "llvm17-0-no-llvm-linking"))]
pub use llvm_sys_170 as llvm_sys;
#[cfg(any(feature = "llvm18-1", feature = "llvm18-1-prefer-static", feature = "llvm18-1-no-llvm-linking"))]
pub use llvm_sys_181 as llvm_sys;
#[cfg(any(feature = "llvm19-1", feature = "llvm19-1-prefer-static", feature = "llvm19-1-no-llvm-linking"))]
pub use llvm_sys_191 as llvm_sys;
#[cfg(any(feature = "llvm20-1", feature = "llvm20-1-prefer-static", feature = "llvm20-1-no-llvm-linking"))]
pub use llvm_sys_201 as llvm_sys;
#[cfg(any(feature = "llvm21-1", feature = "llvm21-1-prefer-static", feature = "llvm21-1-no-llvm-linking"))]
pub use llvm_sys_211 as llvm_sys;
#[cfg(any(feature = "llvm22-1", feature = "llvm22-1-prefer-static", feature = "llvm22-1-no-llvm-linking"))]
pub use llvm_sys_221 as llvm_sys;
#[cfg(any(feature = "llvm23-1", feature = "llvm23-1-prefer-static", feature = "llvm23-1-no-llvm-linking"))]
pub use llvm_sys_231 as llvm_sys;

use std::ffi::{c_char, c_int, c_void};

/// Declares opaque C types.
macro_rules! opaque {
    ($($name:ident),*) => { $(
        #[repr(C)]
        #[derive(Debug)]
        pub struct $name { _private: [u8; 0], _not_send: std::marker::PhantomData<*mut u8> }
    )* };
}
opaque!(slabjit_session, slabjit_unit, slabjit_graph, slabjit_batch, slabjit_actions);

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct slabjit_segment {
    pub readable: u8,
    pub writable: u8,
    pub executable: u8,
    pub finalize: u8,
    pub outside: u8,
    pub alignment: u64,
    pub content_bytes: u64,
    pub zero_fill_bytes: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct slabjit_placed {
    pub cookie: u64,
    pub address: u64,
    pub bytes: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct slabjit_function {
    pub name: *const c_char,
    pub name_len: usize,
    pub address: u64,
    pub bytes: u64,
}

pub const SLABJIT_SLOT: u64 = u64::MAX - 1;
pub const SLABJIT_APART: u64 = 1 << 62;

pub const SLABJIT_KEEP: u32 = 0;
pub const SLABJIT_ABSOLUTE: u32 = 1;
pub const SLABJIT_RENAME: u32 = 2;
pub const SLABJIT_DISCARD: u32 = 3;
pub const SLABJIT_DROP: u32 = 4;

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct slabjit_decision {
    pub verdict: u32,
    pub address: u64,
    pub cookie: u64,
    pub name: *const c_char,
    pub name_len: usize,
}

pub const SLABJIT_NEGATIVE_DELTA32: u32 = 0x10000;
pub const SLABJIT_NEGATIVE_DELTA64: u32 = 0x10001;
pub const SLABJIT_OTHER_KIND: u32 = 0x1ffff;

pub const SLABJIT_SAME_BLOCK: u32 = 0;
pub const SLABJIT_OTHER_BLOCK: u32 = 1;
pub const SLABJIT_AT_ADDRESS: u32 = 2;
pub const SLABJIT_ELSEWHERE: u32 = 3;

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct slabjit_edge {
    pub relocation: u32,
    pub offset: u32,
    pub place: u32,
    pub drop: u32,
    pub addend: i64,
    pub target: u64,
    pub target_block: u64,
    pub symbol: *const c_char,
    pub symbol_len: usize,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct slabjit_block {
    pub section: *const c_char,
    pub section_len: usize,
    pub origin: *const c_char,
    pub content: *mut u8,
    pub size: u64,
    pub address: u64,
    pub executable: u8,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct slabjit_room {
    pub content: *mut u8,
    pub address: u64,
    pub size: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct slabjit_memory {
    pub object: *mut c_void,
    pub allocation: *mut c_void,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct slabjit_located {
    pub section: *const c_char,
    pub section_len: usize,
    pub origin: *const c_char,
    pub address: u64,
    pub bytes: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct slabjit_callbacks {
    pub external: unsafe extern "C" fn(*mut c_void, *const c_char, usize, *mut slabjit_decision),
    pub defined: unsafe extern "C" fn(*mut c_void, *const c_char, usize, *mut slabjit_decision),
    pub retain_block: unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char) -> u64,
    pub indirect: unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char) -> c_int,
    pub may_leave: unsafe extern "C" fn(*mut c_void, *const c_char, usize) -> c_int,
    pub place: unsafe extern "C" fn(*mut c_void, *const slabjit_block, u64, *mut u64, *mut u64) -> c_int,
    pub survey: unsafe extern "C" fn(*mut c_void, u64, *const slabjit_block, *const slabjit_edge, usize),
    pub reserve: unsafe extern "C" fn(*mut c_void, *mut u64, *mut u64, *mut u64),
    pub settled: unsafe extern "C" fn(*mut c_void, *const slabjit_room, u64),
    pub check: unsafe extern "C" fn(*mut c_void, *const slabjit_block, *mut slabjit_edge, usize),
    pub checked: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub allocate:
        unsafe extern "C" fn(*mut c_void, *const slabjit_segment, usize, *mut u64, *mut u64, *mut *mut c_void) -> c_int,
    pub publish: unsafe extern "C" fn(*const slabjit_memory, usize) -> c_int,
    pub commit: unsafe extern "C" fn(*mut c_void, *mut c_void, *mut slabjit_actions),
    pub abandon: unsafe extern "C" fn(*mut c_void, *mut c_void),
    pub placed: unsafe extern "C" fn(*mut c_void, *const slabjit_placed, usize, *const slabjit_placed, usize, u64, u64),
    pub functions: unsafe extern "C" fn(*mut c_void, *const slabjit_function, usize),
    pub located: unsafe extern "C" fn(*mut c_void, *const slabjit_located, usize),
    pub failed: unsafe extern "C" fn(*mut c_void, *const c_char, usize),
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct slabjit_definition {
    pub name: *const c_char,
    pub name_len: usize,
    pub address: u64,
    pub absolute: u8,
    pub exported: u8,
    pub callable: u8,
    pub counts: u8,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct slabjit_named {
    pub name: *const c_char,
    pub name_len: usize,
    pub exported: u8,
    pub weak: u8,
    pub kind: u8,
}

/// The kind of functions.
pub const SLABJIT_FUNCTION: u8 = 1;

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct slabjit_object {
    pub bytes: *const c_char,
    pub len: usize,
    pub name: *const c_char,
    pub name_len: usize,
    pub names: *const slabjit_named,
    pub n: usize,
    pub initialiser: *const c_char,
    pub initialiser_len: usize,
    pub dropped: unsafe extern "C" fn(*mut c_void),
    pub object: *mut c_void,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct slabjit_finder {
    pub user: *mut c_void,
    pub find: unsafe extern "C" fn(*mut c_void, *const c_char, usize, *mut u64, *mut u8) -> c_int,
    pub dropped: unsafe extern "C" fn(*mut c_void),
}

pub type slabjit_looked_up = unsafe extern "C" fn(*mut c_void, u64, u8, c_int, *const c_char, usize);

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct slabjit_orc {
    pub user: *mut c_void,
    pub prepare: unsafe extern "C" fn(
        *mut c_void,
        *mut slabjit_unit,
        *const c_void,
        *const c_char,
        usize,
        *const c_char,
        usize,
        *const c_char,
        usize,
        *mut *mut slabjit_definition,
        *mut usize,
    ) -> *mut c_void,
    pub bind: unsafe extern "C" fn(*mut c_void) -> *mut slabjit_graph,
    pub placed: unsafe extern "C" fn(*mut c_void),
    pub missing: unsafe extern "C" fn(*mut c_void, *const c_char, usize),
    pub asks: unsafe extern "C" fn(*mut c_void),
    pub refers: unsafe extern "C" fn(*mut c_void, *const u64, *mut u8, usize) -> c_int,
    pub belongs: unsafe extern "C" fn(*mut c_void, usize),
    pub linked: unsafe extern "C" fn(*mut c_void),
    pub failed: unsafe extern "C" fn(*mut c_void, *const c_char, usize),
    pub removed: unsafe extern "C" fn(*mut c_void, usize),
    pub transferred: unsafe extern "C" fn(*mut c_void, usize, usize),
    pub dispatch: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
    pub initialise: unsafe extern "C" fn(*mut c_void, *const c_void) -> *mut c_char,
    pub deinitialise: unsafe extern "C" fn(*mut c_void, *const c_void) -> *mut c_char,
}

unsafe extern "C" {
    pub safe fn slabjit_llvm_major() -> u32;
    pub fn slabjit_llvm_version(numbers: *mut [u32; 3]);
    pub fn slabjit_string_copy(text: *const c_char, len: usize) -> *mut c_char;
    pub fn slabjit_string_free(text: *mut c_char);
    pub fn slabjit_module_set_shared(module: llvm_sys::prelude::LLVMModuleRef);
    pub fn slabjit_module_part(module: llvm_sys::prelude::LLVMModuleRef, suffix: *const c_char, len: usize);
    pub fn slabjit_function_is_part(value: llvm_sys::prelude::LLVMValueRef) -> c_int;
    pub fn slabjit_module_keep_part(
        module: llvm_sys::prelude::LLVMModuleRef,
        function: *const c_char,
        len: usize,
        name: *const c_char,
        name_len: usize,
    ) -> *mut c_char;
    pub fn slabjit_check_version() -> *mut c_char;
    pub fn slabjit_unit_ready(unit: *mut slabjit_unit, wait: c_int) -> *mut c_char;
    pub fn slabjit_unit_waits_for_foreign(unit: *const slabjit_unit) -> c_int;
    pub fn slabjit_unit_key(
        unit: *const slabjit_unit,
        told: unsafe extern "C" fn(*mut c_void, usize),
        user: *mut c_void,
    ) -> c_int;
    pub fn slabjit_unit_fail(unit: *mut slabjit_unit, text: *const c_char, len: usize);
    pub fn slabjit_dylib_set_order(dylib: *mut c_void, dylibs: *const *mut c_void, n: usize);
    pub fn slabjit_dylib_define(dylib: *mut c_void, name: *const slabjit_named, address: u64) -> *mut c_char;
    pub fn slabjit_dylib_add_finder(dylib: *mut c_void, finder: *const slabjit_finder);
    pub fn slabjit_dylib_add_objects(
        session: *mut slabjit_session,
        dylib: *mut c_void,
        tracker: *mut c_void,
        objects: *const slabjit_object,
        n: usize,
    ) -> *mut c_char;
    pub fn slabjit_dylib_look_up(
        dylib: *mut c_void,
        name: *const c_char,
        len: usize,
        hidden: c_int,
        done: slabjit_looked_up,
        user: *mut c_void,
    );
    pub fn slabjit_dylib_defines(dylib: *mut c_void, name: *const c_char, len: usize) -> c_int;
    pub fn slabjit_dylib_initialise(session: *mut slabjit_session, dylib: *mut c_void) -> *mut c_char;
    pub fn slabjit_task_run(task: *mut c_void);
    pub fn slabjit_run_waiting_task() -> c_int;
    pub fn slabjit_session_create(
        report: unsafe extern "C" fn(*const c_char, usize),
        caller: *const slabjit_orc,
        find_process_symbols: c_int,
        out: *mut *mut slabjit_session,
    ) -> *mut c_char;
    pub fn slabjit_session_lljit(session: *mut slabjit_session) -> *mut c_void;
    pub fn slabjit_session_end(session: *mut slabjit_session) -> *mut c_char;
    pub fn slabjit_session_dispose(session: *mut slabjit_session);
    pub fn slabjit_graph_create(
        bytes: *const c_char,
        len: usize,
        name: *const c_char,
        name_len: usize,
        out: *mut *mut slabjit_graph,
    ) -> *mut c_char;
    pub fn slabjit_graph_bind(
        graph: *mut slabjit_graph,
        callbacks: *const slabjit_callbacks,
        object: *mut c_void,
        retain: c_int,
        indirect: c_int,
        locate: c_int,
    );
    pub fn slabjit_batch_begin() -> *mut slabjit_batch;
    pub fn slabjit_batch_link(batch: *mut slabjit_batch, graph: *mut slabjit_graph) -> c_int;
    pub fn slabjit_batch_add(batch: *mut slabjit_batch, callbacks: *const slabjit_callbacks, object: *mut c_void);
    pub fn slabjit_batch_end(batch: *mut slabjit_batch, give_up: c_int) -> c_int;
    pub fn slabjit_graph_dispose(graph: *mut slabjit_graph);
    pub fn slabjit_actions_run(actions: *mut slabjit_actions) -> *mut c_char;
}
