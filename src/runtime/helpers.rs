//! Helper functions that compilers and headers expect to be linked statically, and that no shared library exports. On
//! AArch64 these are the atomic operations that choose between LSE and exclusive loads at run time (GCC's and clang's
//! `-moutline-atomics`, the default), from libgcc.a and Rust's own runtime. They follow the ordinary calling convention
//! (libgcc/config/aarch64/lse.S). From `libc_nonshared.a` they are the functions that do not belong to one library
//! (unlike `atexit`).
#![allow(unsafe_code, reason = "declares them")]

use super::process;

/// Returns the address of a compiler's helper.
pub(crate) fn of_compilers(name: &str) -> Option<u64> {
    let atomic = ATOMICS.iter().find(|(known, _)| *known == name).map(|(_, atomic)| *atomic as *const ());
    atomic.or_else(|| sync::address(name)).map(|atomic| atomic as u64)
}

/// Returns the address of a C library's helper.
pub(crate) fn of_libc(name: &str) -> Option<u64> {
    match name {
        "__stack_chk_fail_local" => process::symbol("__stack_chk_fail"),
        _ => FILES.iter().find(|(known, _)| *known == name).map(|(_, function)| *function as u64),
    }
}

/// glibc exports these from 2.33 on; earlier they are `static` in each program (`io/stat.c`).
const FILES: &[(&str, *const ())] = &[
    ("stat", libc::stat as *const ()),
    ("lstat", libc::lstat as *const ()),
    ("fstat", libc::fstat as *const ()),
    ("fstatat", libc::fstatat as *const ()),
    ("mknod", libc::mknod as *const ()),
    ("mknodat", libc::mknodat as *const ()),
    // The same functions on 64-bit machines.
    ("stat64", libc::stat as *const ()),
    ("lstat64", libc::lstat as *const ()),
    ("fstat64", libc::fstat as *const ()),
    ("fstatat64", libc::fstatat as *const ()),
];

#[cfg(not(target_arch = "aarch64"))]
const ATOMICS: &[(&str, unsafe extern "C" fn())] = &[];

/// GCC's `__sync_fetch_and_add` and similar, on machines without LSE (`_sync`, in libgcc.a from GCC 12 on): with a full
/// barrier after them.
#[cfg(target_arch = "aarch64")]
mod sync {
    use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::SeqCst, fence};

    macro_rules! helpers {
        ($($size:literal $word:ident $atomic:ident;)*) => {
            $(mod $word {
                use super::{$atomic, SeqCst, fence};

                pub(super) extern "C" fn cas(expected: $word, desired: $word, place: &$atomic) -> $word {
                    let old = place.compare_exchange(expected, desired, SeqCst, SeqCst).unwrap_or_else(|old| old);
                    fence(SeqCst);
                    old
                }

                helpers!(@ $word $atomic swp swap (|value| value));
                helpers!(@ $word $atomic ldadd fetch_add (|value| value));
                helpers!(@ $word $atomic ldclr fetch_and (|value: $word| !value));
                helpers!(@ $word $atomic ldeor fetch_xor (|value| value));
                helpers!(@ $word $atomic ldset fetch_or (|value| value));
            })*

            pub(super) fn address(name: &str) -> Option<*const ()> {
                Some(match name {
                    $(
                        concat!("__aarch64_cas", $size, "_sync") => $word::cas as *const (),
                        concat!("__aarch64_swp", $size, "_sync") => $word::swp as *const (),
                        concat!("__aarch64_ldadd", $size, "_sync") => $word::ldadd as *const (),
                        concat!("__aarch64_ldclr", $size, "_sync") => $word::ldclr as *const (),
                        concat!("__aarch64_ldeor", $size, "_sync") => $word::ldeor as *const (),
                        concat!("__aarch64_ldset", $size, "_sync") => $word::ldset as *const (),
                    )*
                    "__aarch64_cas16_sync" => cas16 as *const (),
                    _ => return None,
                })
            }
        };
        (@ $word:ident $atomic:ident $name:ident $operation:ident $value:tt) => {
            pub(super) extern "C" fn $name(value: $word, place: &$atomic) -> $word {
                let old = place.$operation($value(value), SeqCst);
                fence(SeqCst);
                old
            }
        };
    }

    helpers! {
        "1" u8 AtomicU8;
        "2" u16 AtomicU16;
        "4" u32 AtomicU32;
        "8" u64 AtomicU64;
    }

    extern "C" fn cas16(expected: u128, desired: u128, place: *mut u128) -> u128 {
        unsafe extern "C" {
            fn __aarch64_cas16_acq_rel(expected: u128, desired: u128, place: *mut u128) -> u128;
        }
        // SAFETY: by the contract of the compiled code that calls this.
        let old = unsafe { __aarch64_cas16_acq_rel(expected, desired, place) };
        fence(SeqCst);
        old
    }
}

#[cfg(not(target_arch = "aarch64"))]
mod sync {
    pub(super) fn address(_: &str) -> Option<*const ()> {
        None
    }
}

#[cfg(target_arch = "aarch64")]
macro_rules! atomics {
    ($($name:ident)*) => {
        #[allow(clashing_extern_declarations, reason = "one is called, above")]
        unsafe extern "C" {
            // Only their addresses are used.
            $(fn $name();)*
        }
        const ATOMICS: &[(&str, unsafe extern "C" fn())] = &[$((stringify!($name), $name)),*];
    };
}

#[cfg(target_arch = "aarch64")]
atomics! {
    __aarch64_cas1_relax __aarch64_cas1_acq __aarch64_cas1_rel __aarch64_cas1_acq_rel
    __aarch64_cas2_relax __aarch64_cas2_acq __aarch64_cas2_rel __aarch64_cas2_acq_rel
    __aarch64_cas4_relax __aarch64_cas4_acq __aarch64_cas4_rel __aarch64_cas4_acq_rel
    __aarch64_cas8_relax __aarch64_cas8_acq __aarch64_cas8_rel __aarch64_cas8_acq_rel
    __aarch64_cas16_relax __aarch64_cas16_acq __aarch64_cas16_rel __aarch64_cas16_acq_rel
    __aarch64_swp1_relax __aarch64_swp1_acq __aarch64_swp1_rel __aarch64_swp1_acq_rel
    __aarch64_swp2_relax __aarch64_swp2_acq __aarch64_swp2_rel __aarch64_swp2_acq_rel
    __aarch64_swp4_relax __aarch64_swp4_acq __aarch64_swp4_rel __aarch64_swp4_acq_rel
    __aarch64_swp8_relax __aarch64_swp8_acq __aarch64_swp8_rel __aarch64_swp8_acq_rel
    __aarch64_ldadd1_relax __aarch64_ldadd1_acq __aarch64_ldadd1_rel __aarch64_ldadd1_acq_rel
    __aarch64_ldadd2_relax __aarch64_ldadd2_acq __aarch64_ldadd2_rel __aarch64_ldadd2_acq_rel
    __aarch64_ldadd4_relax __aarch64_ldadd4_acq __aarch64_ldadd4_rel __aarch64_ldadd4_acq_rel
    __aarch64_ldadd8_relax __aarch64_ldadd8_acq __aarch64_ldadd8_rel __aarch64_ldadd8_acq_rel
    __aarch64_ldclr1_relax __aarch64_ldclr1_acq __aarch64_ldclr1_rel __aarch64_ldclr1_acq_rel
    __aarch64_ldclr2_relax __aarch64_ldclr2_acq __aarch64_ldclr2_rel __aarch64_ldclr2_acq_rel
    __aarch64_ldclr4_relax __aarch64_ldclr4_acq __aarch64_ldclr4_rel __aarch64_ldclr4_acq_rel
    __aarch64_ldclr8_relax __aarch64_ldclr8_acq __aarch64_ldclr8_rel __aarch64_ldclr8_acq_rel
    __aarch64_ldeor1_relax __aarch64_ldeor1_acq __aarch64_ldeor1_rel __aarch64_ldeor1_acq_rel
    __aarch64_ldeor2_relax __aarch64_ldeor2_acq __aarch64_ldeor2_rel __aarch64_ldeor2_acq_rel
    __aarch64_ldeor4_relax __aarch64_ldeor4_acq __aarch64_ldeor4_rel __aarch64_ldeor4_acq_rel
    __aarch64_ldeor8_relax __aarch64_ldeor8_acq __aarch64_ldeor8_rel __aarch64_ldeor8_acq_rel
    __aarch64_ldset1_relax __aarch64_ldset1_acq __aarch64_ldset1_rel __aarch64_ldset1_acq_rel
    __aarch64_ldset2_relax __aarch64_ldset2_acq __aarch64_ldset2_rel __aarch64_ldset2_acq_rel
    __aarch64_ldset4_relax __aarch64_ldset4_acq __aarch64_ldset4_rel __aarch64_ldset4_acq_rel
    __aarch64_ldset8_relax __aarch64_ldset8_acq __aarch64_ldset8_rel __aarch64_ldset8_acq_rel
}
