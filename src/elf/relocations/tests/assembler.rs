//! Instruction shapes compared with the relocations that the assembler emits.

use super::super::*;
use crate::elf::elf_abi::{LE, SHT_RELA};
use crate::elf::testing::{asm_arm, contents, view};

/// Instructions with all operators of the assembler except those for thread-local storage, and AAELF64's kinds for
/// them.
const INSTRUCTIONS: &[(&str, &str)] = &[
    ("movz x3, #:abs_g0:t", "MOVW_UABS_G0"),
    ("movk x3, #:abs_g0_nc:t", "MOVW_UABS_G0_NC"),
    ("movz w3, #:abs_g0_nc:t", "MOVW_UABS_G0_NC"),
    ("movz x3, #:abs_g1:t", "MOVW_UABS_G1"),
    ("movk x3, #:abs_g1_nc:t", "MOVW_UABS_G1_NC"),
    ("movz x3, #:abs_g2:t", "MOVW_UABS_G2"),
    ("movk x3, #:abs_g2_nc:t", "MOVW_UABS_G2_NC"),
    ("movz x3, #:abs_g3:t", "MOVW_UABS_G3"),
    ("movk x3, #:abs_g3:t", "MOVW_UABS_G3"),
    ("movz x3, #:abs_g0_s:t", "MOVW_SABS_G0"),
    ("movn w3, #:abs_g0_s:t", "MOVW_SABS_G0"),
    ("movn x3, #:abs_g1_s:t", "MOVW_SABS_G1"),
    ("movz x3, #:abs_g2_s:t", "MOVW_SABS_G2"),
    ("movz x3, #:prel_g0:t", "MOVW_PREL_G0"),
    ("movk x3, #:prel_g0_nc:t", "MOVW_PREL_G0_NC"),
    ("movn x3, #:prel_g1:t", "MOVW_PREL_G1"),
    ("movk x3, #:prel_g1_nc:t", "MOVW_PREL_G1_NC"),
    ("movz x3, #:prel_g2:t", "MOVW_PREL_G2"),
    ("movk x3, #:prel_g2_nc:t", "MOVW_PREL_G2_NC"),
    ("movn x3, #:prel_g3:t", "MOVW_PREL_G3"),
    ("ldr x3, t", "LD_PREL_LO19"),
    ("ldr w3, t", "LD_PREL_LO19"),
    ("ldrsw x3, t", "LD_PREL_LO19"),
    ("ldr q3, t", "LD_PREL_LO19"),
    ("prfm pldl1keep, t", "LD_PREL_LO19"),
    ("adr x3, t", "ADR_PREL_LO21"),
    ("adrp x3, t", "ADR_PREL_PG_HI21"),
    ("adrp x3, :pg_hi21_nc:t", "ADR_PREL_PG_HI21_NC"),
    ("add x3, x4, :lo12:t", "ADD_ABS_LO12_NC"),
    ("add w3, w4, :lo12:t", "ADD_ABS_LO12_NC"),
    ("ldrb w3, [x4, :lo12:t]", "LDST8_ABS_LO12_NC"),
    ("ldrsb x3, [x4, :lo12:t]", "LDST8_ABS_LO12_NC"),
    ("str b3, [x4, :lo12:t]", "LDST8_ABS_LO12_NC"),
    ("strh w3, [x4, :lo12:t]", "LDST16_ABS_LO12_NC"),
    ("ldr h3, [x4, :lo12:t]", "LDST16_ABS_LO12_NC"),
    ("ldr w3, [x4, :lo12:t]", "LDST32_ABS_LO12_NC"),
    ("ldrsw x3, [x4, :lo12:t]", "LDST32_ABS_LO12_NC"),
    ("str s3, [x4, :lo12:t]", "LDST32_ABS_LO12_NC"),
    ("ldr x3, [x4, :lo12:t]", "LDST64_ABS_LO12_NC"),
    ("str d3, [x4, :lo12:t]", "LDST64_ABS_LO12_NC"),
    ("prfm pldl1keep, [x4, :lo12:t]", "LDST64_ABS_LO12_NC"),
    ("ldr q3, [x4, :lo12:t]", "LDST128_ABS_LO12_NC"),
    ("str q3, [x4, :lo12:t]", "LDST128_ABS_LO12_NC"),
    ("tbz w3, #5, t", "TSTBR14"),
    ("tbnz x3, #45, t", "TSTBR14"),
    ("b.ne t", "CONDBR19"),
    ("cbz w3, t", "CONDBR19"),
    ("cbnz x3, t", "CONDBR19"),
    ("b t", "JUMP26"),
    ("bl t", "CALL26"),
    ("ldr x3, :got:t", "GOT_LD_PREL19"),
    ("adrp x3, :got:t", "ADR_GOT_PAGE"),
    ("ldr x3, [x4, :got_lo12:t]", "LD64_GOT_LO12_NC"),
    ("ldr x3, [x4, :gotpage_lo15:t]", "LD64_GOTPAGE_LO15"),
];

/// Kinds with a shape for which LLVM's assembler has no operator.
const NOT_ASSEMBLED: &[std::ops::RangeInclusive<u32>] = &[300..=306, 310..=310];

#[test]
fn the_assembler_puts_kinds_on_instructions_of_their_shape() {
    let lines: String = INSTRUCTIONS.iter().map(|(instruction, _)| format!("{instruction}\n")).collect();
    let object = asm_arm(&lines);
    let code = contents(&object, ".text");
    let (index, header) = view(&object).sections().find(|(_, header)| header.kind == SHT_RELA).unwrap();
    let entries = view(&object).relocations(index, &header).unwrap().unwrap().to_vec();
    assert_eq!(entries.len(), INSTRUCTIONS.len());
    let table = Table::of(EM_AARCH64);
    let mut met = vec![];
    for (entry, (instruction, name)) in entries.iter().zip(INSTRUCTIONS) {
        let kind = table.get(entry.r_info.get(LE) as u32).unwrap().1;
        assert_eq!(kind.name.strip_prefix("R_AARCH64_").unwrap(), *name, "{instruction}");
        let word = code[entry.r_offset.get(LE) as usize..][..4].try_into().unwrap();
        assert!(kind.applies_to(u32::from_le_bytes(word)), "{instruction}");
        met.push(kind.number);
    }
    for kind in table.kinds().iter().filter(|kind| !kind.shape.is_empty() && !met.contains(&kind.number)) {
        assert!(NOT_ASSEMBLED.iter().any(|numbers| numbers.contains(&kind.number)), "{}", kind.name);
    }
    // Each instruction has exactly one shape among kinds that differ in their field.
    for (entry, (instruction, _)) in entries.iter().zip(INSTRUCTIONS) {
        let own = table.get(entry.r_info.get(LE) as u32).unwrap().1;
        let word = u32::from_le_bytes(code[entry.r_offset.get(LE) as usize..][..4].try_into().unwrap());
        let bits = |field| match field {
            Field::MovW { group, .. } => Field::MovW { group, signed: false },
            Field::Imm12 { low, .. } => Field::Imm12 { low, high: 12 },
            field => field,
        };
        for kind in table.kinds().iter().filter(|kind| !kind.shape.is_empty() && kind.applies_to(word)) {
            assert_eq!(bits(kind.field), bits(own.field), "{instruction} is of the shape of {}", kind.name);
        }
    }
}
