//! Memory that malloc keeps after a large batch: graphs, and the bytes of objects.
#![allow(unsafe_code, reason = "malloc_trim")]

/// A large batch has so many bytes of objects: LLVM's graphs of them take as much again, and malloc, which gives back
/// little but the end of its heap, keeps all of that. A small batch keeps little, and is not made to wait for it.
const LARGE: usize = 16 << 20;

/// Returns free memory to the system after objects of so many bytes were linked.
pub(crate) fn give_back(bytes: usize) {
    if bytes >= LARGE {
        trim();
    }
}

#[cfg(target_env = "gnu")]
fn trim() {
    let _span = tracing::debug_span!(target: "slabjit", "slabjit::trim").entered();
    // SAFETY: it may be called at any time, by any thread; what is in use stays.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
fn trim() {}
