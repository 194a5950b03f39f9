//! What slabjit needs from LLVM beyond its C API: extern declarations and `#[repr(C)]` records, nothing else.
//!
//! The contract of every function (owner, thread, errors) is in `cpp/slabjit.h`, which these declarations mirror.
#![allow(non_camel_case_types, missing_docs)]

// That exactly one of the features is enabled is checked by slabjit-llvm-find.
#[cfg(any(feature = "llvm15-0", feature = "llvm15-0-prefer-static", feature = "llvm15-0-no-llvm-linking"))]
pub use llvm_sys_150 as llvm_sys;
#[cfg(any(feature = "llvm16-0", feature = "llvm16-0-prefer-static", feature = "llvm16-0-no-llvm-linking"))]
pub use llvm_sys_160 as llvm_sys;
#[cfg(any(feature = "llvm19-1", feature = "llvm19-1-prefer-static", feature = "llvm19-1-no-llvm-linking"))]
pub use llvm_sys_191 as llvm_sys;
#[cfg(any(feature = "llvm22-1", feature = "llvm22-1-prefer-static", feature = "llvm22-1-no-llvm-linking"))]
pub use llvm_sys_221 as llvm_sys;

use std::ffi::{c_char, c_int, c_void};

/// Declares opaque C types.
macro_rules! opaque {
    ($($name:ident),*) => { $(
        #[repr(C)]
        pub struct $name { _private: [u8; 0], _not_send: std::marker::PhantomData<*mut u8> }
    )* };
}
opaque!(slabjit_session, slabjit_graph, slabjit_batch, slabjit_actions);

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
    pub failed: unsafe extern "C" fn(*mut c_void, *const c_char, usize),
}

unsafe extern "C" {
    pub safe fn slabjit_llvm_major() -> u32;
    pub fn slabjit_llvm_version(numbers: *mut [u32; 3]);
    pub fn slabjit_string_free(text: *mut c_char);
    pub fn slabjit_module_set_shared(module: llvm_sys::prelude::LLVMModuleRef);
    pub fn slabjit_session_create(
        report: unsafe extern "C" fn(*const c_char, usize),
        out: *mut *mut slabjit_session,
    ) -> *mut c_char;
    pub fn slabjit_session_lljit(session: *mut slabjit_session) -> *mut c_void;
    pub fn slabjit_session_dispose(session: *mut slabjit_session) -> *mut c_char;
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
    );
    pub fn slabjit_batch_begin() -> *mut slabjit_batch;
    pub fn slabjit_batch_link(batch: *mut slabjit_batch, graph: *mut slabjit_graph) -> c_int;
    pub fn slabjit_batch_end(batch: *mut slabjit_batch, give_up: c_int) -> c_int;
    pub fn slabjit_graph_dispose(graph: *mut slabjit_graph);
    pub fn slabjit_actions_run(actions: *mut slabjit_actions) -> *mut c_char;
}

unsafe extern "C-unwind" {
    /// The one function that may unwind: with an exception that is not C++'s.
    pub fn slabjit_call_catching(
        function: unsafe extern "C-unwind" fn(*mut c_void),
        argument: *mut c_void,
    ) -> *mut c_char;
}
