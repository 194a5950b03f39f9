//! Bridges on x86-64: `lea` becomes a load of the address from a slot, branches go through a stub.
//!
//! Instruction encodings: Intel SDM volume 2 (`LEA` 8D /r, `MOV` 8B /r, `CALL` E8, `JMP` E9, `Jcc` 0F 80..8F, `JMP` FF /4).

use super::room::{CODE, DATA, Rooms};
use super::{Edge, Need, Shared, fits_i32};

const PC32: u32 = 2;
const PLT32: u32 = 4;

/// An instruction whose last four bytes are the field, and that reaches as far as wanted in another form.
enum Bridgeable {
    /// `lea disp(%rip), r64`.
    Lea,
    /// `call`, `jmp` or a conditional jump.
    Branch,
}

/// What the field at `offset` of a code block belongs to. Only with the addend that makes the target the symbol itself (the field
/// ends the instruction): data between code has others.
fn bridgeable(edge: &Edge<'_>, content: &[u8]) -> Option<Bridgeable> {
    if !matches!(edge.relocation, PC32 | PLT32) {
        return None;
    }
    let before = content.get(..edge.offset)?;
    match *before {
        // REX.W, whatever the register; mod 00, r/m 101: relative to the end of the instruction.
        [.., rex, 0x8d, modrm] if rex & 0xf8 == 0x48 && modrm & 0xc7 == 0x05 => Some(Bridgeable::Lea),
        [.., 0xe8 | 0xe9] if edge.addend == -4 => Some(Bridgeable::Branch),
        [.., 0x0f, jcc] if jcc & 0xf0 == 0x80 && edge.addend == -4 => Some(Bridgeable::Branch),
        _ => None,
    }
}

/// Room for a reference that may turn out to be too long.
pub(super) fn cost(edge: &Edge<'_>, content: &[u8]) -> Need {
    match bridgeable(edge, content) {
        Some(Bridgeable::Lea) => Need { code: 0, data: 8 },
        Some(Bridgeable::Branch) => Need { code: 8, data: 8 },
        None => Need::default(),
    }
}

/// Rewrites the instruction at `edge` so that it reaches. `None`: there is no way.
pub(super) fn bridge(edge: &Edge<'_>, address: u64, content: &mut [u8], rooms: &mut Rooms) -> Option<()> {
    let end = address.wrapping_add(edge.offset as u64).wrapping_add(4);
    let displacement = |to: u64| to.wrapping_sub(end) as i64;
    let reachable = |to: u64| fits_i32(displacement(to));
    // What the instruction computes: S + A, counted from the field, which ends 4 bytes later.
    let value = edge.target.wrapping_add_signed(edge.addend).wrapping_add(4);
    let kind = bridgeable(edge, content)?;
    let slot = |rooms: &mut Rooms, near: &dyn Fn(u64) -> bool| {
        rooms.share((Shared::Slot, value), &DATA, 8, near, |_, piece| piece.copy_from_slice(&value.to_le_bytes()))
    };
    let to = match kind {
        Bridgeable::Lea => {
            let to = slot(rooms, &reachable)?;
            *content.get_mut(edge.offset - 2)? = 0x8b;
            to
        }
        Bridgeable::Branch => {
            // Both lie in the slab, hence within reach of each other.
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
