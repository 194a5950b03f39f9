//! What compilers expect to be linked statically, and no shared library exports: on AArch64 the atomic operations that choose between LSE and exclusive
//! loads at run time (GCC's and clang's `-moutline-atomics`, the default), which libgcc.a and Rust's own runtime have. They follow the
//! ordinary calling convention (libgcc/config/aarch64/lse.S). What `libc_nonshared.a` has (`atexit` and its like) each library has of its own.
#![allow(unsafe_code)] // declares them

/// The address of a helper.
#[cfg(target_arch = "aarch64")]
pub(crate) fn address(name: &str) -> Option<u64> {
    let found = ATOMICS.iter().find(|(known, _)| *known == name)?;
    Some(found.1 as *const () as u64)
}

/// The address of a helper; there are none.
#[cfg(not(target_arch = "aarch64"))]
pub(crate) fn address(_: &str) -> Option<u64> {
    None
}

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
