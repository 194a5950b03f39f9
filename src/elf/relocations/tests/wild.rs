//! The tables compared with those of the linker `wild` (its crate `linker-utils`), in both directions.

use linker_utils::elf::{
    AArch64Instruction, AllowedRange, RelocationInstruction, RelocationKind, RelocationKindInfo, RelocationSize,
    aarch64_rel_type_to_string, x86_64_rel_type_to_string,
};
use linker_utils::{aarch64, x86_64};
use object::elf::RelocationType;

use super::super::*;

fn theirs(machine: u16, number: u32) -> Option<RelocationKindInfo> {
    let number = RelocationType(number);
    if machine == EM_X86_64 { x86_64::relocation_from_raw(number) } else { aarch64::relocation_type_from_raw(number) }
}

// Reasons for the differences.
const GROUP: &str = "AAELF64, notes of the group relocations: forms without _NC are checked, \
                     -2^(16(n+1)) <= X < 2^(16(n+1)), \
                     and take 16 bits; lld checks those that it links";
const NUMBER: &str =
    "AAELF64, GOT-relative data relocations: GOTREL64 writes bits [63:0], GOTREL32 bits [31:0]; theirs are swapped";
const LITERAL: &str = "AAELF64: a load-literal immediate field, bits [20:2] of X";
const MARKER: &str = "AAELF64, TLS descriptors: it identifies a BLR instruction, which is four bytes long";
const DISPLACEMENT: &str =
    "x86-64 sign-extends displacements; lld and GNU ld (complain_overflow_signed) check them as signed";

/// The differences from `wild`'s table, with the reason why ours is right. A difference that has gone fails the test
/// too.
#[rustfmt::skip]
const DIFFERENCES: &[(&str, &[&str], &str)] = &[
    ("R_X86_64_GOT32", &["range"], DISPLACEMENT),
    ("R_AARCH64_MOVW_PREL_G0", &["range"], GROUP),
    ("R_AARCH64_MOVW_PREL_G1", &["range"], GROUP),
    ("R_AARCH64_MOVW_PREL_G2", &["range"], GROUP),
    ("R_AARCH64_MOVW_GOTOFF_G0", &["range"], GROUP),
    ("R_AARCH64_MOVW_GOTOFF_G1", &["range"], GROUP),
    ("R_AARCH64_MOVW_GOTOFF_G2", &["range"], GROUP),
    ("R_AARCH64_GOTREL64", &["field"], NUMBER),
    ("R_AARCH64_GOTREL32", &["field"], NUMBER),
    ("R_AARCH64_GOT_LD_PREL19", &["field"], LITERAL),
    ("R_AARCH64_TLSGD_MOVW_G1", &["field", "range"], GROUP),
    ("R_AARCH64_TLSLD_MOVW_G1", &["range"], GROUP),
    ("R_AARCH64_TLSLD_LD_PREL19", &["field", "alignment"], LITERAL),
    ("R_AARCH64_TLSLD_MOVW_DTPREL_G2", &["range"], GROUP),
    ("R_AARCH64_TLSLD_MOVW_DTPREL_G1", &["range"], GROUP),
    ("R_AARCH64_TLSLD_MOVW_DTPREL_G0", &["range"], GROUP),
    ("R_AARCH64_TLSIE_MOVW_GOTTPREL_G1", &["range"], GROUP),
    ("R_AARCH64_TLSLE_MOVW_TPREL_G2", &["range"], GROUP),
    ("R_AARCH64_TLSLE_MOVW_TPREL_G1", &["range"], GROUP),
    ("R_AARCH64_TLSLE_MOVW_TPREL_G0", &["range"], GROUP),
    ("R_AARCH64_TLSDESC_CALL", &["field"], MARKER),
];

/// Our kinds that `wild` lacks: mostly dynamic relocations and signed pointers.
const MISSING: &[(u16, &[std::ops::RangeInclusive<u32>])] = &[
    (EM_X86_64, &[5..=8, 16..=16, 18..=18, 28..=28, 30..=30, 32..=33, 36..=40]),
    (EM_AARCH64, &[256..=256, 316..=317, 567..=568, 580..=597, 1024..=1032, 1041..=1044]),
];

/// Compares the field's bytes, or the bits of the value and the instructions.
fn field_agrees(field: Field, size: RelocationSize) -> bool {
    use AArch64Instruction as I;
    let RelocationSize::BitMasking(mask) = size else {
        let bytes = match field {
            Field::Empty => 0,
            Field::Data(bits) => usize::from(bits) / 8,
            _ => return false,
        };
        return size == RelocationSize::ByteSize(bytes);
    };
    let RelocationInstruction::AArch64(instruction) = mask.instruction else { return false };
    let (bits, instructions): (_, &[I]) = match field {
        Field::Imm26 => (2..28, &[I::JumpCall]),
        Field::Imm19 => (2..21, &[I::Ldr, I::Bcond]),
        Field::Imm14 => (2..16, &[I::TstBr]),
        Field::Adr => (0..21, &[I::Adr]),
        Field::Adrp => (12..33, &[I::Adr]),
        Field::Imm12 { low, high } => (u32::from(low)..u32::from(high), &[I::Add, I::LdSt, I::LdrRegister]),
        Field::MovW { group, signed } => {
            let low = 16 * u32::from(group);
            (low..low + 16, if signed { &[I::Movnz] } else { &[I::Movkz] })
        }
        Field::Empty | Field::Marker | Field::Data(_) | Field::Pair => return false,
    };
    (mask.range.start..mask.range.end) == bits && instructions.contains(&instruction)
}

fn range_agrees(kind: &Kind, theirs: AllowedRange) -> bool {
    if kind.range == Range::Unchecked {
        return theirs == AllowedRange::no_check();
    }
    (i128::from(theirs.min), i128::from(theirs.max) - 1) == kind.limit()
}

/// Compares operations: `wild`'s kinds name the symbol's stub or GOT entry, ours name the way to it.
fn operation_agrees(kind: &Kind, theirs: RelocationKindInfo) -> bool {
    use {Operation as O, RelocationKind as K, Through as T};
    if kind.tls {
        // `wild` does not sort all of these under thread-local storage.
        let got = !matches!(theirs.kind, K::DtpOff | K::TpOff | K::TlsDescCall);
        return matches!(kind.operation, O::ThreadLocal(_)) && (kind.through == T::Got) == got;
    }
    let paged = theirs.mask.is_some();
    let (operation, through) = match theirs.kind {
        K::None => (O::Nothing, T::Direct),
        K::Absolute => (O::Absolute, T::Direct),
        K::AbsoluteLowPart => (O::PageOffset, T::Direct),
        // `wild` treats GOTPC as a relative kind, as its symbol is the GOT's.
        K::Relative if kind.operation == O::GotBaseRelative => (O::GotBaseRelative, T::Direct),
        K::Relative if paged => (O::PageRelative, T::Direct),
        K::Relative => (O::Relative, T::Direct),
        K::PltRelative => (O::Relative, T::Stub),
        K::SymRelGotBase => (O::FromGot, T::Direct),
        K::PltRelGotBase => (O::FromGot, T::Stub),
        K::GotRelGotBase if paged => (O::GotFromGotPage, T::Got),
        K::GotRelGotBase => (O::GotFromGot, T::Got),
        K::GotRelative if paged => (O::GotPageRelative, T::Got),
        K::GotRelative => (O::GotRelative, T::Got),
        K::Got => (O::GotPageOffset, T::Got),
        _ => return false,
    };
    (kind.operation, kind.through) == (operation, through)
}

#[test]
fn the_tables_are_those_of_wild_but_for_the_differences_named_here() {
    let mut found = vec![];
    for machine in [EM_X86_64, EM_AARCH64] {
        let table = Table::of(machine);
        let mut missing = vec![];
        for number in 0..2000 {
            let (kind, info) = match (table.get(number), theirs(machine, number)) {
                (Some((_, kind)), Some(info)) => (kind, info),
                (Some(_), None) => {
                    missing.push(number);
                    continue;
                }
                (None, other) => {
                    assert!(other.is_none(), "{number} is missing from our table");
                    continue;
                }
            };
            let name = if machine == EM_X86_64 { x86_64_rel_type_to_string } else { aarch64_rel_type_to_string };
            assert_eq!(name(RelocationType(number)), kind.name);
            let mut different = vec![];
            if !field_agrees(kind.field, info.size) {
                different.push("field");
            }
            if !range_agrees(kind, info.range) {
                different.push("range");
            }
            if usize::from(kind.alignment) != info.alignment {
                different.push("alignment");
            }
            if !operation_agrees(kind, info) {
                different.push("operation");
            }
            if !different.is_empty() {
                found.push((kind.name, different));
            }
        }
        let (_, expected) = MISSING.iter().find(|(of, _)| *of == machine).unwrap();
        assert_eq!(missing, expected.iter().cloned().flatten().collect::<Vec<u32>>());
    }
    let expected: Vec<_> = DIFFERENCES.iter().map(|(name, what, _)| (*name, what.to_vec())).collect();
    assert_eq!(found, expected);
}

/// Writes the same values with their code and ours.
#[test]
fn fields_are_written_as_by_wild() {
    let mut random = rand::rng();
    let mut written = 0;
    for machine in [EM_X86_64, EM_AARCH64] {
        for kind in Table::of(machine).kinds() {
            let Some(info) = theirs(machine, kind.number).filter(|info| field_agrees(kind.field, info.size)) else {
                continue;
            };
            for _ in 0..200 {
                // Random widths test narrow ranges too.
                let value = rand::Rng::random::<i64>(&mut random) >> rand::Rng::random_range(&mut random, 0..64);
                let value = value & -i64::from(kind.alignment);
                // `wild` makes MOVZ X3, #0 with the group of signed moves; all others get zeros.
                let base: u32 = match kind.field {
                    Field::MovW { group, signed: true } => 0xd280_0003 | u32::from(group) << 21,
                    Field::MovW { group, signed: false } => 0xf280_0003 | u32::from(group) << 21,
                    _ => kind.shape.first().map_or(0, |(_, value)| *value),
                };
                let mut ours = [0; 8];
                ours[..4].copy_from_slice(&base.to_le_bytes());
                if kind.width != 4 || kind.shape.is_empty() && !matches!(kind.field, Field::MovW { .. }) {
                    ours = [0; 8];
                }
                let mut expected = ours;
                if kind.encode(&mut ours, value).is_err() {
                    assert!(!kind.fits(value.into()), "{} {value:#x}", kind.name);
                    continue;
                }
                // The list above names different ranges.
                if !info.range.contains(value) {
                    continue;
                }
                let place = &mut expected[..usize::from(kind.width)];
                info.write_to_buffer(value as u64, place).unwrap_or_else(|error| panic!("{}: {error}", kind.name));
                assert_eq!(ours, expected, "{} {value:#x}", kind.name);
                written += 1;
            }
        }
    }
    assert!(written > 5000, "{written}");
}
