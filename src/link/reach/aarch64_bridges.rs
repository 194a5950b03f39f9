//! Bridges on AArch64: `ADRP` and `ADR` become loads of the address from a literal, branches go through a stub.
//!
//! Instruction encodings: Arm ARM (DDI 0487), C6.2. A linker may use x16 between a branch and its target (AAPCS64
//! 6.1.1).

use crate::elf::EM_AARCH64;
use crate::elf::relocations::bridge::{
    AARCH64_PLT32, ADR_PREL_LO21, ADR_PREL_PG_HI21, ADR_PREL_PG_HI21_NC, Bridgeable, CALL26, CONDBR19, JUMP26, TSTBR14,
    bridgeable,
};
use crate::link::reach::stub_area::{CODE, Shared, StubAreas};
use crate::link::reach::{Block, Edge, Need, fits_i32};

pub(super) const PREL32: u32 = 261;
pub(super) const MOVW_UABS_G0_NC: u32 = 264;
pub(super) const ADD_ABS_LO12_NC: u32 = 277;
/// The relocations for JITLink's `MoveWide16`: groups 0 to 3.
pub(super) const WIDE_MOVES: [u32; 4] = [MOVW_UABS_G0_NC, 266, 268, 269];
/// The relocations for JITLink's `PageOffset12`: `ADD`, then loads and stores of 1, 2, 4, 8 and 16 bytes.
pub(super) const PAGE_OFFSETS: [u32; 6] = [ADD_ABS_LO12_NC, 278, 284, 285, 286, 299];

const B: u32 = 0x1400_0000;
const LDR_LITERAL_X: u32 = 0x5800_0000;
const LDR_X16_NEXT_BUT_ONE: u32 = LDR_LITERAL_X | 2 << 5 | 16;
const BR_X16: u32 = 0xd61f_0200;

/// The reach of `B`, and of `LDR` (literal).
const B_REACH: i64 = 1 << 27;
const LITERAL_REACH: i64 = 1 << 20;

/// Size of a literal, and of an island for a distant literal.
const LOAD: u64 = 16;
const STUB: u64 = 16;
/// Size of the branch itself, the way back, and a stub.
const OUTLINED: u64 = 24;

/// Returns whether it always leads to code.
pub(super) fn is_branch(relocation: u32) -> bool {
    [TSTBR14, CONDBR19, JUMP26, CALL26].contains(&relocation)
}

/// Returns the room for a reference that may be out of range.
pub(super) fn cost(edge: &Edge<'_>, executable: bool) -> Need {
    let code = match bridgeable(EM_AARCH64, edge.relocation, edge.addend, executable, &[]) {
        Some(Bridgeable::Address) => LOAD,
        Some(Bridgeable::Branch) => STUB,
        Some(Bridgeable::ConditionalBranch) => OUTLINED,
        None => 0,
    };
    Need { code, data: 0 }
}

/// Rewrites the instruction at `edge` so that it reaches. Returns `None` if there is no way.
pub(super) fn bridge(edge: &Edge<'_>, block: &mut Block<'_>, rooms: &mut StubAreas) -> Option<()> {
    let at = block.address.wrapping_add(edge.offset as u64);
    let field = block.content.get_mut(edge.offset..edge.offset.checked_add(4)?)?;
    let old = u32::from_le_bytes(field.try_into().ok()?);
    let value = edge.target.wrapping_add_signed(edge.addend);
    let new = match edge.relocation {
        AARCH64_PLT32 => {
            let near = |stub: u64| fits_i32(stub.wrapping_sub(at) as i64);
            let stub =
                rooms.share((Shared::Stub, value), &CODE, STUB as usize, near, |_, piece| write_stub(value, piece))?;
            stub.wrapping_sub(at) as u32
        }
        _ if !block.executable => return None,
        ADR_PREL_PG_HI21 | ADR_PREL_PG_HI21_NC => load(value & !0xfff, at, old & 0x1f, rooms)?,
        ADR_PREL_LO21 => load(value, at, old & 0x1f, rooms)?,
        CALL26 => {
            let reachable = |stub: u64| branch(at, stub).is_some();
            let stub = rooms.share((Shared::Stub, value), &CODE, STUB as usize, reachable, |_, piece| {
                write_stub(value, piece);
            })?;
            old & 0xfc00_0000 | branch(at, stub)?
        }
        CONDBR19 => outline(old & !(0x7ffff << 5), value, at, rooms)?,
        TSTBR14 => outline(old & !(0x3fff << 5), value, at, rooms)?,
        _ => return None,
    };
    field.copy_from_slice(&new.to_le_bytes());
    Some(())
}

/// Returns the instruction that loads `value` into a register.
fn load(value: u64, at: u64, register: u32, rooms: &mut StubAreas) -> Option<u32> {
    let write = |_: u64, piece: &mut [u8]| piece.copy_from_slice(&value.to_le_bytes());
    if let Some(near) =
        rooms.share((Shared::Literal, value), &CODE, 8, |literal| load_literal(at, literal).is_some(), write)
    {
        return Some(LDR_LITERAL_X | load_literal(at, near)? | register);
    }
    // An island in reach of both.
    let island = rooms.put(&CODE, 8, |island| branch(at, island).is_some(), |_, _| {})?;
    let literal =
        rooms.share((Shared::Literal, value), &CODE, 8, |literal| load_literal(island, literal).is_some(), write)?;
    let words =
        [LDR_LITERAL_X | load_literal(island, literal)? | register, B | branch(island + 4, at.wrapping_add(4))?];
    write_words(&words, rooms.at(island)?);
    Some(B | branch(at, island)?)
}

/// Moves a conditional branch into reach of its target; returns the branch that replaces it.
fn outline(conditional: u32, value: u64, at: u64, rooms: &mut StubAreas) -> Option<u32> {
    let reachable = |outlined: u64| branch(at, outlined).is_some();
    let outlined = rooms.put(&CODE, OUTLINED as usize, reachable, |here, piece| {
        // If taken, it skips the way back.
        let taken = conditional | 2 << 5;
        let back = B | branch(here + 4, at.wrapping_add(4)).unwrap_or_default();
        write_words(&[taken, back], piece);
        match branch(here + 8, value) {
            Some(direct) => write_words(&[B | direct], &mut piece[8..]),
            None => write_stub(value, &mut piece[8..]),
        }
    })?;
    Some(B | branch(at, outlined)?)
}

fn write_stub(target: u64, piece: &mut [u8]) {
    write_words(&[LDR_X16_NEXT_BUT_ONE, BR_X16], piece);
    piece[8..16].copy_from_slice(&target.to_le_bytes());
}

pub(super) fn write_words(words: &[u32], piece: &mut [u8]) {
    for (word, place) in words.iter().zip(piece.chunks_exact_mut(4)) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}

/// Returns the imm26 of a branch, if it reaches.
fn branch(from: u64, to: u64) -> Option<u32> {
    let distance = to.wrapping_sub(from) as i64;
    ((-B_REACH..B_REACH).contains(&distance) && distance & 3 == 0).then_some((distance >> 2) as u32 & 0x3ff_ffff)
}

/// Returns the imm19 of a literal load, shifted into place, if it reaches.
fn load_literal(from: u64, to: u64) -> Option<u32> {
    let distance = to.wrapping_sub(from) as i64;
    ((-LITERAL_REACH..LITERAL_REACH).contains(&distance) && distance & 3 == 0)
        .then_some(((distance >> 2) as u32 & 0x7_ffff) << 5)
}

/// Returns the mnemonic of an instruction that a relocation may patch.
pub(super) fn mnemonic(word: u32) -> &'static str {
    const SHAPES: [(u32, u32, &str); 14] = [
        (0x9f00_0000, 0x9000_0000, "adrp"),
        (0x9f00_0000, 0x1000_0000, "adr"),
        (0xfc00_0000, 0x9400_0000, "bl"),
        (0xfc00_0000, 0x1400_0000, "b"),
        (0xff00_0000, 0x5400_0000, "b.cond"),
        (0x7f00_0000, 0x3400_0000, "cbz"),
        (0x7f00_0000, 0x3500_0000, "cbnz"),
        (0x7f00_0000, 0x3600_0000, "tbz"),
        (0x7f00_0000, 0x3700_0000, "tbnz"),
        (0x3b00_0000, 0x1800_0000, "ldr (literal)"),
        (0x7f80_0000, 0x1100_0000, "add"),
        (0x3b40_0000, 0x3940_0000, "ldr"),
        (0x3b40_0000, 0x3900_0000, "str"),
        (0x1f80_0000, 0x1280_0000, "mov"),
    ];
    SHAPES.iter().find(|(mask, value, _)| word & mask == *value).map_or("instruction", |(.., name)| name)
}
