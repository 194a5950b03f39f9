//! x86-64, from the System V psABI ("Relocation Types"); `since` was found by giving each kind to the `llvm-jitlink` of
//! each LLVM.
//!
//! The psABI requires a check of 32 and 32S only, and lets 16 and 8 truncate. The other ranges are those in which the
//! field reads back unchanged, as linkers check.

use super::Field::{self, *};
use super::Operation::{self, *};
use super::Range::{self, *};
use super::terms::tls::*;
use super::{Kind, index_of};

pub(super) static INDEX: [u8; 64] = index_of(KINDS);

// Carriers of kinds that JITLink lacks.
const DIRECT: u32 = 1; // R_X86_64_64
const GOT: u32 = 9; // R_X86_64_GOTPCREL

/// Creates a kind whose range the ABI does not require to be checked.
const fn new(
    number: u32,
    name: &'static str,
    since: Option<u32>,
    operation: Operation,
    field: Field,
    range: Range,
) -> Kind {
    super::new(number, name, since, operation, field, range).silent()
}

#[rustfmt::skip]
pub(super) const KINDS: &[Kind] = &[
    new(0, "R_X86_64_NONE", Some(17), Nothing, Empty, Unchecked).drop(),
    new(1, "R_X86_64_64", Some(15), Absolute, Data(64), Unchecked),
    new(2, "R_X86_64_PC32", Some(15), Relative, Data(32), Signed(32)),
    new(3, "R_X86_64_GOT32", None, GotFromGot, Data(32), Signed(32)).lift(GOT),
    new(4, "R_X86_64_PLT32", Some(15), Relative, Data(32), Signed(32)).stub(),
    new(5, "R_X86_64_COPY", None, Dynamic, Empty, Unchecked),
    new(6, "R_X86_64_GLOB_DAT", None, Dynamic, Data(64), Unchecked),
    new(7, "R_X86_64_JUMP_SLOT", None, Dynamic, Data(64), Unchecked),
    new(8, "R_X86_64_RELATIVE", None, Dynamic, Data(64), Unchecked),
    new(9, "R_X86_64_GOTPCREL", Some(15), GotRelative, Data(32), Signed(32)),
    super::new(10, "R_X86_64_32", Some(17), Absolute, Data(32), Unsigned(32)).lift(DIRECT),
    super::new(11, "R_X86_64_32S", Some(15), Absolute, Data(32), Signed(32)),
    new(12, "R_X86_64_16", Some(17), Absolute, Data(16), Either(16)).lift(DIRECT),
    new(13, "R_X86_64_PC16", Some(20), Relative, Data(16), Signed(16)).lift(DIRECT),
    new(14, "R_X86_64_8", Some(17), Absolute, Data(8), Either(8)).lift(DIRECT),
    new(15, "R_X86_64_PC8", Some(19), Relative, Data(8), Signed(8)).lift(DIRECT),
    new(16, "R_X86_64_DTPMOD64", None, MODULE, Data(64), Unchecked).lift(DIRECT),
    new(17, "R_X86_64_DTPOFF64", None, IN_BLOCK, Data(64), Unchecked).lift(DIRECT),
    new(18, "R_X86_64_TPOFF64", None, FROM_THREAD, Data(64), Unchecked).lift(DIRECT),
    new(19, "R_X86_64_TLSGD", None, GD, Data(32), Signed(32)).got().lift(DIRECT),
    new(20, "R_X86_64_TLSLD", None, LD, Data(32), Signed(32)).got().lift(DIRECT),
    new(21, "R_X86_64_DTPOFF32", None, IN_BLOCK, Data(32), Signed(32)).lift(DIRECT),
    new(22, "R_X86_64_GOTTPOFF", None, IE, Data(32), Signed(32)).got().lift(DIRECT),
    new(23, "R_X86_64_TPOFF32", None, FROM_THREAD, Data(32), Signed(32)).lift(DIRECT),
    new(24, "R_X86_64_PC64", Some(15), Relative, Data(64), Unchecked),
    new(25, "R_X86_64_GOTOFF64", Some(15), FromGot, Data(64), Unchecked),
    new(26, "R_X86_64_GOTPC32", Some(17), GotBaseRelative, Data(32), Signed(32)).same(2),
    new(27, "R_X86_64_GOT64", Some(15), GotFromGot, Data(64), Unchecked),
    new(28, "R_X86_64_GOTPCREL64", Some(15), GotRelative, Data(64), Unchecked),
    new(29, "R_X86_64_GOTPC64", Some(15), GotBaseRelative, Data(64), Unchecked),
    new(30, "R_X86_64_GOTPLT64", None, GotFromGot, Data(64), Unchecked).same(27),
    new(31, "R_X86_64_PLTOFF64", None, FromGot, Data(64), Unchecked).stub().same(25),
    new(32, "R_X86_64_SIZE32", Some(20), Size, Data(32), Unsigned(32)),
    new(33, "R_X86_64_SIZE64", Some(20), Size, Data(64), Unchecked),
    new(34, "R_X86_64_GOTPC32_TLSDESC", None, DESC, Data(32), Signed(32)).got().lift(DIRECT),
    new(35, "R_X86_64_TLSDESC_CALL", None, MARKER, Empty, Unchecked).lift(DIRECT),
    new(36, "R_X86_64_TLSDESC", None, UNLINKED, Pair, Unchecked),
    new(37, "R_X86_64_IRELATIVE", None, Dynamic, Data(64), Unchecked).indirect(),
    new(38, "R_X86_64_RELATIVE64", None, Dynamic, Data(64), Unchecked),
    // Withdrawn with MPX. The BND prefix of the instruction does not matter to the linker.
    new(39, "R_X86_64_PC32_BND", None, Relative, Data(32), Signed(32)).same(2),
    new(40, "R_X86_64_PLT32_BND", None, Relative, Data(32), Signed(32)).stub().same(4),
    new(41, "R_X86_64_GOTPCRELX", Some(15), GotRelative, Data(32), Signed(32)).before(2).addend(-4),
    new(42, "R_X86_64_REX_GOTPCRELX", Some(15), GotRelative, Data(32), Signed(32)).before(3).addend(-4),
    new(43, "R_X86_64_CODE_4_GOTPCRELX", None, GotRelative, Data(32), Signed(32)).same(9),
    new(44, "R_X86_64_CODE_4_GOTTPOFF", None, IE, Data(32), Signed(32)).got().lift(DIRECT),
    new(45, "R_X86_64_CODE_4_GOTPC32_TLSDESC", None, DESC, Data(32), Signed(32)).got().lift(DIRECT),
    new(46, "R_X86_64_CODE_5_GOTPCRELX", None, GotRelative, Data(32), Signed(32)).same(9),
    new(47, "R_X86_64_CODE_5_GOTTPOFF", None, IE, Data(32), Signed(32)).got().lift(DIRECT),
    new(48, "R_X86_64_CODE_5_GOTPC32_TLSDESC", None, DESC, Data(32), Signed(32)).got().lift(DIRECT),
    new(49, "R_X86_64_CODE_6_GOTPCRELX", None, GotRelative, Data(32), Signed(32)).same(9),
    new(50, "R_X86_64_CODE_6_GOTTPOFF", None, IE, Data(32), Signed(32)).got().lift(DIRECT),
    new(51, "R_X86_64_CODE_6_GOTPC32_TLSDESC", None, DESC, Data(32), Signed(32)).got().lift(DIRECT),
];
