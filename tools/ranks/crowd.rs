//! A crowded address space, as a process has that talks to a GPU: large reservations, and only small holes between
//! them.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ptr;

/// Addresses in one reservation: sections on its two sides do not reach each other in 32 bits.
const RESERVED: usize = 3 << 30;
const RESERVATIONS: usize = 64;
const PAGE: usize = 4096;

/// Leaves holes of 1 to 16 pages, where the kernel puts the next mappings that fit. They stay until the process ends.
pub fn crowd(seed: &[usize]) -> Result<(), String> {
    let hole = |at: usize| {
        let mut hasher = DefaultHasher::new();
        (seed, at).hash(&mut hasher);
        PAGE * (1 + hasher.finish() as usize % 16)
    };
    let holes: Vec<usize> = (0..RESERVATIONS).map(hole).collect();
    let all = reserve(holes.iter().sum::<usize>() + RESERVATIONS * RESERVED)?;
    // The kernel takes the highest place that there is: first, what is left among the mappings above.
    let mut size = 1 << 30;
    while size >= PAGE {
        while reserve(size)? > all {}
        size /= 2;
    }
    let mut at = all;
    for hole in holes {
        at += RESERVED;
        // SAFETY: part of what was reserved; nobody knows of it.
        unsafe { libc::munmap(ptr::with_exposed_provenance_mut(at), hole) };
        at += hole;
    }
    Ok(())
}

fn reserve(bytes: usize) -> Result<usize, String> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the kernel chooses unused addresses.
    let at = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(format!("cannot reserve addresses: {}", std::io::Error::last_os_error()));
    }
    Ok(at.expose_provenance())
}
