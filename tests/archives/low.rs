//! Low addresses: code that was not compiled with `-fPIC` refers to things in 32 bits, so that what it imports and its
//! own memory have to lie in the lowest 2 GiB on x86-64. On AArch64 they only have to be near each other.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Where the traps are put; what else is to be low comes behind them.
#[cfg(target_arch = "x86_64")]
const BASE: usize = 0x3000_0000;
#[cfg(target_arch = "aarch64")]
const BASE: usize = 0x10_0000_0000;

/// Bytes of a trap: as much as the alignment that any one instruction may want of an object.
const EACH: usize = 16;
#[cfg(target_arch = "x86_64")]
const TRAP: [u8; EACH] = *b"\x0f\x0b\x0f\x0b\x0f\x0b\x0f\x0b\x0f\x0b\x0f\x0b\x0f\x0b\x0f\x0b"; // ud2
#[cfg(target_arch = "aarch64")]
const TRAP: [u8; EACH] = [0; EACH]; // udf #0

const PAGE: usize = 1 << 16;

/// An address of its own for each import, with a trap there.
pub fn traps<'a>(names: impl Iterator<Item = &'a str>) -> Result<BTreeMap<String, usize>, String> {
    let mut addresses: BTreeMap<String, usize> = names.map(|name| (name.to_owned(), 0)).collect();
    let bytes = (addresses.len() * EACH).next_multiple_of(PAGE).max(PAGE);
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping; the address is a wish.
    let start = unsafe { system_mmap(BASE as *mut c_void, bytes, protection, flags, -1, 0) };
    if start.addr() != BASE {
        return Err(format!("no room for imports at {BASE:#x}"));
    }
    for (i, address) in addresses.values_mut().enumerate() {
        // SAFETY: inside the mapping, which is writable and nobody else's.
        unsafe { start.cast::<[u8; EACH]>().add(i).write(TRAP) };
        *address = BASE + i * EACH;
    }
    // SAFETY: the mapping made above.
    if unsafe { libc::mprotect(start, bytes, libc::PROT_READ | libc::PROT_EXEC) } != 0 {
        return Err(std::io::Error::last_os_error().to_string());
    }
    Ok(addresses)
}

/// What is near the traps.
pub fn near() -> usize {
    BASE
}

/// Whether mappings that do not say where are put at [`NEXT`], or where the kernel wants them.
static LOW: AtomicBool = AtomicBool::new(false);
static NEXT: AtomicUsize = AtomicUsize::new(BASE + (256 << 20));

/// From now on, memory that this process maps anywhere is near the traps, other than what the crate maps (it makes its
/// system calls itself): stock LLJIT's memory manager cannot be told where.
#[cfg_attr(not(feature = "llvm"), expect(dead_code, reason = "there is no stock"))]
pub fn map_low() {
    LOW.store(true, Ordering::Relaxed);
}

/// Ends what [`map_low`] began.
pub fn map_anywhere() {
    LOW.store(false, Ordering::Relaxed);
}

/// Whether an address is where [`map_low`] has memory put.
pub fn is_low(address: u64) -> bool {
    address.wrapping_sub(BASE as u64) < 1 << 30
}

/// Comes before libc's, for libLLVM too: the linker exports what a shared library refers to.
///
/// # Safety
/// As for mmap(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    let address = if LOW.load(Ordering::Relaxed) && address.is_null() && flags & libc::MAP_ANONYMOUS != 0 {
        NEXT.fetch_add(length.next_multiple_of(PAGE) + PAGE, Ordering::Relaxed) as *mut c_void
    } else {
        address
    };
    // SAFETY: by the caller; an address without MAP_FIXED is a wish.
    unsafe { system_mmap(address, length, protection, flags, file, offset) }
}

/// # Safety
/// As for mmap(2).
unsafe fn system_mmap(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: by the caller.
    let result = unsafe { libc::syscall(libc::SYS_mmap, address, length, protection, flags, file, offset) };
    std::ptr::with_exposed_provenance_mut(result as usize)
}
