//! Entry points: stubs in the arena that add one argument to a call.
#![allow(unsafe_code, reason = "writes code")]

use std::sync::Arc;

use crate::Result;
use crate::functions::SortedFunctions;
use crate::memory::{
    Arena, BlamedSection, Extent, Lifetime, PlacementHints, Protection, PublishedSlab, SegmentRequest,
};
use crate::name::Name;

/// Bytes of each entry point, padded.
pub(crate) const SLOT: usize = 64;

/// Writes entry points into the arena, one a slot, made for the address of the first slot, which is returned. Nothing
/// runs them here.
pub(crate) fn entry_points<const N: usize>(
    arena: &Arc<Arena>,
    library: &Name,
    name: &str,
    make: impl FnOnce(usize) -> [Vec<u8>; N],
) -> Result<(usize, PublishedSlab)> {
    let bytes = N * SLOT;
    let request = SegmentRequest {
        protection: Protection::ReadExecute,
        lifetime: Lifetime::Standard,
        alignment: SLOT as u64,
        content_bytes: bytes as u64,
        zero_fill_bytes: 0,
        outside: false,
        overwritten: Extent::default(),
    };
    let slab = arena.allocate(library, &[request], PlacementHints::ALONE, |_| BlamedSection {
        name: name.to_owned(),
        bytes: bytes as u64,
    })?;
    let (first, written) = slab.placements().first().map_or((0, 0), |p| (p.address, p.written));
    for (i, code) in make(first).into_iter().enumerate() {
        // SAFETY: the slab is writable where it says, ours alone, and has so many slots.
        unsafe {
            let slot = std::slice::from_raw_parts_mut((written + i * SLOT) as *mut u8, SLOT);
            slot[..code.len()].copy_from_slice(&code);
        }
    }
    let mut slab = slab.publish()?;
    slab.belong_to(library, &name.into(), &SortedFunctions::default());
    Ok((first, slab))
}

/// Returns code that adds `dso` as argument number `register` (counted from 0) and jumps to `target`.
#[cfg(target_arch = "x86_64")]
pub(crate) fn thunk(dso: usize, register: usize, target: usize) -> Vec<u8> {
    // System V AMD64 ABI 3.2.3: arguments 1 and 3 are rsi and rcx. movabs; movabs rax; jmp *rax.
    let load: [u8; 2] = if register == 1 { [0x48, 0xbe] } else { [0x48, 0xb9] };
    [&load[..], &dso.to_le_bytes(), &[0x48, 0xb8], &target.to_le_bytes(), &[0xff, 0xe0]].concat()
}

/// Returns code that adds `dso` as argument number `register` (counted from 0) and jumps to `target`.
#[cfg(target_arch = "aarch64")]
pub(crate) fn thunk(dso: usize, register: usize, target: usize) -> Vec<u8> {
    // AAPCS64: arguments are x0 to x7. ldr xN, .+16; ldr x16, .+20; br x16; nop; dso; target.
    let load = 0x5800_0080_u32 | register as u32;
    let words = [load, 0x5800_00b0, 0xd61f_0200, 0xd503_201f];
    let mut code: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    code.extend_from_slice(&dso.to_le_bytes());
    code.extend_from_slice(&target.to_le_bytes());
    code
}
