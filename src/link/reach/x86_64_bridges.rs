//! Bridges on x86-64: `lea` becomes a load of the address from a slot, branches go through a stub.
//!
//! Instruction encodings: Intel SDM volume 2 (`MOV` 8B /r, `JMP` FF /4; those that are bridged
//! are in `elf::relocations::bridge`).

use crate::elf::EM_X86_64;
pub(super) use crate::elf::relocations::bridge::PC32;
use crate::elf::relocations::bridge::{Bridgeable, bridgeable};
use crate::link::reach::stub_area::{CODE, DATA, Shared, StubAreas};
use crate::link::reach::{Edge, Need, fits_i32};

/// Returns the kind of instruction of the field at `offset` of a code block.
fn kind(edge: &Edge<'_>, content: &[u8]) -> Option<Bridgeable> {
    bridgeable(EM_X86_64, edge.relocation, edge.addend, true, content.get(..edge.offset)?)
}

/// Returns the room for a reference that may be out of range.
pub(super) fn cost(edge: &Edge<'_>, content: &[u8]) -> Need {
    match kind(edge, content) {
        Some(Bridgeable::Address) => Need { code: 0, data: 8 },
        Some(Bridgeable::Branch | Bridgeable::ConditionalBranch) => Need { code: 8, data: 8 },
        None => Need::default(),
    }
}

/// Rewrites the instruction at `edge` so that it reaches. Returns `None` if there is no way.
pub(super) fn bridge(edge: &Edge<'_>, address: u64, content: &mut [u8], rooms: &mut StubAreas) -> Option<()> {
    let end = address.wrapping_add(edge.offset as u64).wrapping_add(4);
    let displacement = |to: u64| to.wrapping_sub(end) as i64;
    let reachable = |to: u64| fits_i32(displacement(to));
    // The instruction computes S + A, relative to the end of the field, which is 4 bytes later.
    let value = edge.target.wrapping_add_signed(edge.addend).wrapping_add(4);
    let kind = kind(edge, content)?;
    let slot = |rooms: &mut StubAreas, near: &dyn Fn(u64) -> bool| {
        rooms.share((Shared::Slot, value), &DATA, 8, near, |_, piece| piece.copy_from_slice(&value.to_le_bytes()))
    };
    let to = match kind {
        Bridgeable::Address => {
            let to = slot(rooms, &reachable)?;
            *content.get_mut(edge.offset - 2)? = 0x8b;
            to
        }
        Bridgeable::Branch | Bridgeable::ConditionalBranch => {
            // Both lie in the slab, hence in reach of each other.
            let slot = slot(rooms, &|_| true)?;
            rooms.share((Shared::Stub, value), &CODE, 8, reachable, |stub, piece| {
                let displacement = slot.wrapping_sub(stub.wrapping_add(6)) as u32;
                piece[..2].copy_from_slice(&[0xff, 0x25]);
                piece[2..6].copy_from_slice(&displacement.to_le_bytes());
            })?
        }
    };
    let field = content.get_mut(edge.offset..edge.offset + 4)?;
    field.copy_from_slice(&(displacement(to) as i32).to_le_bytes());
    Some(())
}
