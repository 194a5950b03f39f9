//! Indirect functions: a stub jumps through a slot, which holds the resolver's address until it has been asked.
#![allow(unsafe_code, reason = "calls into linked code, writes its data")]

use std::ffi::c_void;

use crate::live::linked::catching::catching;

/// A resolver's address, and its result.
struct Asked {
    resolver: u64,
    function: u64,
}

/// Calls the resolver in a slot, and writes its result there.
///
/// # Errors
/// The resolver threw; the slot is as before.
///
/// # Safety
/// The slot is linked and published, and its resolver may be run by this thread; nobody uses the slot meanwhile.
pub(crate) unsafe fn resolve(slot: u64) -> Result<(), String> {
    let slot = std::ptr::with_exposed_provenance_mut::<u64>(slot as usize);
    // SAFETY: by the caller.
    let mut asked = Asked { resolver: unsafe { slot.read() }, function: 0 };
    // SAFETY: `ask` gets the record; that the resolver may be run is the caller's word.
    unsafe { catching(ask, (&raw mut asked).cast::<c_void>()) }?;
    // SAFETY: by the caller.
    unsafe { slot.write(asked.function) };
    Ok(())
}

#[cfg(target_arch = "x86_64")]
unsafe extern "C-unwind" fn ask(asked: *mut c_void) {
    // SAFETY: `resolve` passed such a record. Resolvers take no arguments here (glibc, sysdeps/x86_64/dl-irel.h).
    unsafe {
        let asked = &mut *asked.cast::<Asked>();
        let resolver: unsafe extern "C-unwind" fn() -> u64 = std::mem::transmute(asked.resolver as usize);
        asked.function = resolver();
    }
}

/// The processor's features, for resolvers (glibc, sysdeps/aarch64/sys/ifunc.h).
#[cfg(target_arch = "aarch64")]
#[repr(C)]
struct Capabilities {
    size: u64,
    hwcap: u64,
    hwcap2: u64,
}

#[cfg(target_arch = "aarch64")]
unsafe extern "C-unwind" fn ask(asked: *mut c_void) {
    /// `_IFUNC_ARG_HWCAP`: there is a second argument.
    const SECOND: u64 = 1 << 62;
    // SAFETY: plain calls; 0 if there is none.
    let (hwcap, hwcap2) = unsafe { (libc::getauxval(libc::AT_HWCAP), libc::getauxval(libc::AT_HWCAP2)) };
    let capabilities = Capabilities { size: size_of::<Capabilities>() as u64, hwcap, hwcap2 };
    // SAFETY: `resolve` passed such a record. Resolvers take these arguments here (glibc, sysdeps/aarch64/dl-irel.h).
    unsafe {
        let asked = &mut *asked.cast::<Asked>();
        let resolver: unsafe extern "C-unwind" fn(u64, *const Capabilities) -> u64 =
            std::mem::transmute(asked.resolver as usize);
        asked.function = resolver(hwcap | SECOND, &raw const capabilities);
    }
}
