//! The references that can be bridged: by kind on AArch64, where the kind names the instruction, and by the bytes
//! before the field on x86-64.
//!
//! Encodings: Intel SDM volume 2 (`LEA` 8D /r, `CALL` E8, `JMP` E9, `Jcc` 0F 80..8F), Arm ARM (DDI 0487), C6.2.

use crate::elf::elf_abi::{EM_AARCH64, EM_X86_64};

pub(crate) const PC32: u32 = 2;
pub(crate) const PLT32: u32 = 4;

pub(crate) const ADR_PREL_LO21: u32 = 274;
pub(crate) const ADR_PREL_PG_HI21: u32 = 275;
pub(crate) const TSTBR14: u32 = 279;
pub(crate) const CONDBR19: u32 = 280;
pub(crate) const ADR_PREL_PG_HI21_NC: u32 = 276;
pub(crate) const AARCH64_PLT32: u32 = 314;
pub(crate) const JUMP26: u32 = 282;
pub(crate) const CALL26: u32 = 283;

/// A kind of instruction that has an equivalent with unlimited reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bridgeable {
    /// An instruction that takes an address (`lea disp(%rip), r64`, `ADRP`, `ADR`) and can load it instead.
    Address,
    /// A branch that can go through a stub (any on x86-64, `B` and `BL`).
    Branch,
    /// A branch of short reach (`B.cond`, `CBZ`, `TBZ` and similar), which can be moved to a place with room.
    ConditionalBranch,
}

/// Returns the kind of bridge for a reference in code (`executable`), or for a distance to a function in data
/// (`R_AARCH64_PLT32`). `before` holds the bytes before its field.
///
/// The addend must make the symbol itself the target of a branch (the field ends the instruction); data between code
/// has other addends.
pub(crate) fn bridgeable(
    machine: u16,
    relocation: u32,
    addend: i64,
    executable: bool,
    before: &[u8],
) -> Option<Bridgeable> {
    match (machine, relocation) {
        (EM_AARCH64, AARCH64_PLT32) => Some(Bridgeable::Branch),
        _ if !executable => None,
        (EM_AARCH64, ADR_PREL_LO21 | ADR_PREL_PG_HI21 | ADR_PREL_PG_HI21_NC) => Some(Bridgeable::Address),
        (EM_AARCH64, CALL26 | JUMP26) => Some(Bridgeable::Branch),
        (EM_AARCH64, CONDBR19 | TSTBR14) => Some(Bridgeable::ConditionalBranch),
        (EM_X86_64, PC32 | PLT32) => match *before {
            // REX.W, whatever the register; mod 00, r/m 101: relative to the end of the instruction.
            [.., rex, 0x8d, modrm] if rex & 0xf8 == 0x48 && modrm & 0xc7 == 0x05 => Some(Bridgeable::Address),
            _ if addend == -4 && is_branch(before) => Some(Bridgeable::Branch),
            _ => None,
        },
        _ => None,
    }
}

/// Returns whether JITLink's stub, which it inserts for targets in other objects, leads to the intended address. A stub
/// leads to the symbol itself, so references with an offset are linked without one (`pointPastStubs` in the shim). On
/// x86-64, data has the same addend for the symbol itself as a branch for 4 bytes behind it.
pub(crate) fn goes_through_stub(machine: u16, relocation: u32, addend: i64, executable: bool, before: &[u8]) -> bool {
    match (machine, relocation) {
        (EM_AARCH64, CALL26 | JUMP26) => addend == 0,
        (EM_X86_64, PLT32) => addend == -4 || addend == 0 && !(executable && is_branch(before)),
        _ => false,
    }
}

/// Returns whether x86-64 code ends with a `call`, `jmp` or conditional jump without its displacement.
fn is_branch(before: &[u8]) -> bool {
    match *before {
        [.., 0xe8 | 0xe9] => true,
        [.., 0x0f, jcc] => jcc & 0xf0 == 0x80,
        _ => false,
    }
}
