//! Tests of `encode`, which refuses some values and keeps other bits, and of the repairs.

use super::super::field::Misfit;
use super::super::*;

fn kind(machine: u16, name: &str) -> &'static Kind {
    Table::of(machine).kinds().iter().find(|kind| kind.name == name).unwrap()
}

#[test]
fn a_value_that_does_not_fit_is_refused_and_nothing_is_written() {
    let refused = |machine, name, place: &[u8], value: i64| {
        let mut after = place.to_vec();
        let misfit = kind(machine, name).encode(&mut after, value).unwrap_err();
        assert_eq!(after, place, "{name}");
        misfit
    };
    let call = 0x9400_0001_u32.to_le_bytes();
    assert_eq!(refused(EM_AARCH64, "R_AARCH64_CALL26", &call, 1 << 27), Misfit::OutOfRange);
    assert_eq!(refused(EM_AARCH64, "R_AARCH64_CALL26", &call, -(1 << 27) - 4), Misfit::OutOfRange);
    assert_eq!(refused(EM_AARCH64, "R_AARCH64_CALL26", &call, 6), Misfit::Misaligned);
    assert_eq!(refused(EM_AARCH64, "R_AARCH64_CALL26", &call[..3], 8), Misfit::Truncated);
    // NOP is 0xd503201f, MOVK X0 is 0xf2800000 (Arm ARM, C6.2): neither is a call or a MOV[NZ].
    let nop = 0xd503_201f_u32;
    assert_eq!(refused(EM_AARCH64, "R_AARCH64_CALL26", &nop.to_le_bytes(), 8), Misfit::Instruction(nop));
    let movk = 0xf280_0000_u32;
    assert_eq!(refused(EM_AARCH64, "R_AARCH64_MOVW_PREL_G0", &movk.to_le_bytes(), 8), Misfit::Instruction(movk));
    assert_eq!(refused(EM_AARCH64, "R_AARCH64_TLSDESC", &[0; 16], 0), Misfit::Unwritable);
    assert_eq!(refused(EM_X86_64, "R_X86_64_32", &[7; 4], -1), Misfit::OutOfRange);
    assert_eq!(refused(EM_X86_64, "R_X86_64_16", &[], 0), Misfit::Truncated);
}

#[test]
fn only_the_field_changes() {
    let encoded = |name, word: u32, value| {
        let mut place = [0xee; 6];
        place[..4].copy_from_slice(&word.to_le_bytes());
        kind(EM_AARCH64, name).encode(&mut place, value).unwrap();
        assert_eq!(place[4..], [0xee; 2]);
        u32::from_le_bytes(place[..4].try_into().unwrap())
    };
    // Instructions as GNU as writes them: `bl .`, `bl .+8`; `adr x3, .-1`, `adr x3, .`; `movz x3, #1`, `movn x3, #1`.
    assert_eq!(encoded("R_AARCH64_CALL26", 0x97ff_ffff, 8), 0x9400_0002);
    assert_eq!(encoded("R_AARCH64_ADR_PREL_LO21", 0x70ff_ffe3, 0), 0x1000_0003);
    assert_eq!(encoded("R_AARCH64_ADR_PREL_LO21", 0x1000_0003, -1), 0x70ff_ffe3);
    assert_eq!(encoded("R_AARCH64_MOVW_SABS_G0", 0xd29f_ffe3, -2), 0x9280_0023);
    assert_eq!(encoded("R_AARCH64_MOVW_SABS_G0", 0x929f_ffe3, 1), 0xd280_0023);
    // A marked instruction keeps its bits, and so do bits outside the field.
    assert_eq!(encoded("R_AARCH64_TLSDESC_CALL", 0xd63f_0020, 5), 0xd63f_0020);
    assert_eq!(encoded("R_AARCH64_NONE", 0xd63f_0020, 5), 0xd63f_0020);
}

#[test]
fn what_is_checked_has_a_range() {
    for machine in [EM_X86_64, EM_AARCH64] {
        for kind in Table::of(machine).kinds() {
            let (lowest, highest) = kind.limit();
            assert!(kind.fits(0) && kind.fits(lowest) && kind.fits(highest) && kind.is_aligned(0), "{}", kind.name);
            let open = kind.fits(highest + 1) && kind.fits(lowest - 1);
            assert_eq!(open, kind.range == Range::Unchecked, "{}", kind.name);
            assert!(!kind.checked || !open, "{}", kind.name);
            assert!(!(kind.name.ends_with("_NC") && kind.checked), "{}", kind.name);
            assert!(kind.alignment.is_power_of_two(), "{}", kind.name);
        }
    }
    // The psABI, "Relocation Types": the linker must verify that the value of 32 (32S) zero-extends (sign-extends) to
    // the original 64 bits. It asks for no other check.
    let checked: Vec<_> = x86_64::KINDS.iter().filter(|kind| kind.checked).map(|kind| kind.name).collect();
    assert_eq!(checked, ["R_X86_64_32", "R_X86_64_32S"]);
}

/// Every repair names a kind that is linked by the LLVM in question and leads to the same place.
#[test]
fn repairs_lead_to_kinds_that_every_llvm_without_the_kind_links() {
    let mut count = 0;
    for machine in [EM_X86_64, EM_AARCH64] {
        let table = Table::of(machine);
        for kind in table.kinds() {
            for llvm in (15..=23).filter(|llvm| !kind.linkable(*llvm)) {
                let (number, same) = match kind.repair {
                    Repair::None => continue,
                    Repair::Drop => {
                        assert_eq!(kind.operation, Operation::Nothing, "{}", kind.name);
                        continue;
                    }
                    Repair::Same(number) => (number, true),
                    Repair::Lift(number) => (number, false),
                };
                let carrier = table.get(number).unwrap().1;
                assert!(carrier.linkable(llvm), "{} on LLVM {llvm}", kind.name);
                // LLVM must not inspect the instruction of another kind.
                assert!(carrier.before == 0, "{}", kind.name);
                assert!(!kind.indirect, "{}", kind.name);
                if kind.tls {
                    // LLVM must insert neither an entry nor a stub.
                    assert_eq!((same, carrier.through), (false, Through::Direct), "{}", kind.name);
                    assert_ne!(kind.operation, Operation::ThreadLocal(Tls::Unlinked), "{}", kind.name);
                    assert_ne!(kind.field, Field::Pair, "{}", kind.name);
                    count += 1;
                    continue;
                }
                assert_eq!(carrier.through == Through::Got, kind.through == Through::Got, "{}", kind.name);
                if same {
                    assert_eq!((carrier.field, carrier.range), (kind.field, kind.range), "{}", kind.name);
                } else {
                    assert_ne!(carrier.through, Through::Stub, "{}", kind.name);
                    // Our pass must be able to compute and to write it.
                    assert!(!matches!(kind.field, Field::Empty | Field::Marker | Field::Pair), "{}", kind.name);
                }
                count += 1;
            }
        }
    }
    assert!(count > 100, "{count}");
}
