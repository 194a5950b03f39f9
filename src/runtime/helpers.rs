//! What compilers and headers expect to be linked statically, and no shared library exports. On AArch64 the atomic operations that choose between LSE
//! and exclusive loads at run time (GCC's and clang's `-moutline-atomics`, the default), which libgcc.a and Rust's own runtime have. They follow the
//! ordinary calling convention (libgcc/config/aarch64/lse.S). Of `libc_nonshared.a`, what is not a library's own (`atexit` and its like).
#![allow(unsafe_code)] // declares them

use super::process;

/// The address of a helper of compilers.
pub(crate) fn of_compilers(name: &str) -> Option<u64> {
    ATOMICS.iter().find(|(known, _)| *known == name).map(|(_, atomic)| *atomic as *const () as u64)
}

/// The address of a helper of the C library.
pub(crate) fn of_libc(name: &str) -> Option<u64> {
    match name {
        "__stack_chk_fail_local" => process::symbol("__stack_chk_fail"),
        _ => FILES.iter().find(|(known, _)| *known == name).map(|(_, function)| *function as u64),
    }
}

/// glibc exports these from 2.33 on; before, they are `static` in each program (`io/stat.c`).
const FILES: &[(&str, *const ())] = &[
    ("stat", libc::stat as *const ()),
    ("lstat", libc::lstat as *const ()),
    ("fstat", libc::fstat as *const ()),
    ("fstatat", libc::fstatat as *const ()),
    ("mknod", libc::mknod as *const ()),
    ("mknodat", libc::mknodat as *const ()),
    // The same on 64-bit machines.
    ("stat64", libc::stat as *const ()),
    ("lstat64", libc::lstat as *const ()),
    ("fstat64", libc::fstat as *const ()),
    ("fstatat64", libc::fstatat as *const ()),
];

#[cfg(not(target_arch = "aarch64"))]
const ATOMICS: &[(&str, unsafe extern "C" fn())] = &[];

#[cfg(target_arch = "aarch64")]
macro_rules! atomics {
    ($($name:ident)*) => {
        unsafe extern "C" {
            // Only their addresses are taken.
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
