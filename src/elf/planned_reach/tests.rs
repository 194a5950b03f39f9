//! Verdicts compared with LLD's for the same references at the same addresses, and each verdict on both architectures.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use crate::elf::planned_reach::{Host, Surroundings, Verdict, Whereabouts};
use crate::elf::testing::{ARM, NOWHERE, X86, asm, asm_arm, preparation, prepare, put, section};
use crate::elf::{SectionConflicts, Target};
use crate::{Error, LinkError, LinkPlan, PlannedReference};

const ARENA: std::ops::Range<u64> = 0x7f00_0000_0000..0x7f00_7e00_0000;

fn assemble(target: Target, source: &str) -> Vec<u8> {
    if target.machine == X86.machine { asm(source) } else { asm_arm(source) }
}

/// Plans an object with these addresses for names; other names are in the arena.
fn plan(target: Target, object: &[u8], bridges: bool, arena: std::ops::Range<u64>, names: &[(&str, u64)]) -> LinkPlan {
    let find = |name: &str, _| {
        let known = names.iter().find(|(known, _)| *known == name);
        known.map_or(Whereabouts::Arena, |(_, address)| Whereabouts::Address(*address))
    };
    let around = Surroundings { bridges, executable_stack: false, host: Some(Host { arena, find: &find }) };
    preparation(target, SectionConflicts::Rename).check("test.o", object, &around).unwrap()
}

/// Returns the only reference of a section.
#[track_caller]
fn only<'p>(plan: &'p LinkPlan, section: &str) -> &'p PlannedReference {
    let mut of = plan.references.iter().filter(|reference| *reference.section == *section);
    let found = of.next().unwrap_or_else(|| panic!("{section} has no reference: {plan}"));
    assert!(of.next().is_none(), "{plan}");
    found
}

/// Returns the offsets in `.text` of the fields that LLD refuses.
fn refused_by_lld(object: &[u8], text: u64, symbols: &BTreeMap<String, u64>) -> BTreeSet<u64> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("object.o"), object).unwrap();
    let output = Command::new("ld.lld-22")
        .args(["--error-limit=0", "-e", "0", "object.o", "-o", "linked", &format!("--section-start=.text={text:#x}")])
        .args(symbols.iter().map(|(name, address)| format!("--defsym={name}={address:#x}")))
        .current_dir(dir.path())
        .output()
        .unwrap_or_else(|error| panic!("cannot run 'ld.lld-22' ({error}); install lld-22"));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let offsets = text.lines().filter(|l| l.contains("out of range") || l.contains("improper alignment")).map(|line| {
        let (_, rest) = line.split_once("(.text+0x").unwrap_or_else(|| panic!("{line}"));
        u64::from_str_radix(rest.split(')').next().unwrap(), 16).unwrap()
    });
    let offsets: BTreeSet<u64> = offsets.collect();
    assert_eq!(output.status.success(), offsets.is_empty(), "{text}");
    offsets
}

/// A kind, the instruction or datum it applies to, and whether its value is a distance.
type Kinds<'k> = &'k [(&'k str, &'k str, bool)];

fn limits_are_those_of_lld(target: Target, kinds: Kinds<'_>) {
    const TEXT: u64 = 0x10_0000_0000;
    const SLOT: u64 = 16;
    let powers = [7, 8, 15, 16, 17, 20, 31, 32, 47].map(|bits| 1_i64 << bits);
    let mut source = String::from(".text\n");
    let (mut ours, mut theirs, mut offset) = (BTreeMap::new(), BTreeMap::new(), 0);
    for (kind, place, relative) in kinds {
        let near = match *kind {
            // The page of the arena's one address is unknown, so the test leaves out a page on either side.
            kind if kind.contains("PG_HI21") => vec![-8192, 8192],
            // LLD drops the lowest bits of these silently.
            kind if ["LO19", "TSTBR14", "CONDBR19"].iter().any(|k| kind.ends_with(k)) => vec![-4, 0, 4],
            _ => vec![-4, -1, 0, 1, 4],
        };
        let values = powers.iter().flat_map(|power| near.iter().map(move |near| power + near));
        for value in values.flat_map(|v| if *relative { vec![v, -v] } else { vec![v] }) {
            let name = format!("t{offset}");
            source.push_str(&format!(".balign {SLOT}\n.reloc ., {kind}, {name}\n{place}\n"));
            // The arena is the one address of the field.
            let (their_base, our_base) = if *relative { (TEXT + offset, TEXT) } else { (0, 0) };
            theirs.insert(name.clone(), their_base.wrapping_add_signed(value));
            ours.insert(name, our_base.wrapping_add_signed(value));
            offset += SLOT;
        }
    }
    let object = assemble(target, &source);
    let refused = refused_by_lld(&object, TEXT, &theirs);
    assert!(refused.len() > kinds.len() && (refused.len() as u64) < offset / SLOT, "the oracle tells nothing");
    let names: Vec<_> = ours.iter().map(|(name, address)| (name.as_str(), *address)).collect();
    let plan = plan(target, &object, false, TEXT..TEXT, &names);
    assert_eq!(plan.references.len() as u64, offset / SLOT);
    for reference in &plan.references {
        let wanted = refused.contains(&reference.offset);
        assert_eq!(reference.verdict == Verdict::Refused, wanted, "{reference} (refused by LLD: {wanted})");
    }
    assert!(!plan.loads());
}

#[test]
fn limits_are_those_of_lld_on_x86_64() {
    limits_are_those_of_lld(
        X86,
        &[
            ("R_X86_64_PC32", ".long 0", true),
            ("R_X86_64_PC16", ".short 0", true),
            ("R_X86_64_PC8", ".byte 0", true),
            ("R_X86_64_PC64", ".quad 0", true),
            ("R_X86_64_32", ".long 0", false),
            ("R_X86_64_32S", ".long 0", false),
            ("R_X86_64_16", ".short 0", false),
            ("R_X86_64_8", ".byte 0", false),
            ("R_X86_64_64", ".quad 0", false),
        ],
    );
}

#[test]
fn limits_are_those_of_lld_on_aarch64() {
    limits_are_those_of_lld(
        ARM,
        &[
            ("R_AARCH64_ABS64", ".quad 0", false),
            ("R_AARCH64_ABS32", ".long 0", false),
            ("R_AARCH64_ABS16", ".short 0", false),
            ("R_AARCH64_PREL64", ".quad 0", true),
            ("R_AARCH64_PREL32", ".long 0", true),
            ("R_AARCH64_PREL16", ".short 0", true),
            ("R_AARCH64_LD_PREL_LO19", "ldr x0, .", true),
            ("R_AARCH64_ADR_PREL_LO21", "adr x0, .", true),
            ("R_AARCH64_ADR_PREL_PG_HI21", "adrp x0, 0", true),
            ("R_AARCH64_TSTBR14", "tbz x0, #1, .", true),
            ("R_AARCH64_CONDBR19", "b.eq .", true),
            ("R_AARCH64_MOVW_UABS_G0", "movz x0, #0", false),
            ("R_AARCH64_MOVW_UABS_G1", "movz x0, #0, lsl #16", false),
            ("R_AARCH64_LDST16_ABS_LO12_NC", "ldrh w0, [x0]", false),
            ("R_AARCH64_LDST32_ABS_LO12_NC", "ldr w0, [x0]", false),
            ("R_AARCH64_LDST64_ABS_LO12_NC", "ldr x0, [x0]", false),
            ("R_AARCH64_LDST128_ABS_LO12_NC", "ldr q0, [x0]", false),
            ("R_AARCH64_ADD_ABS_LO12_NC", "add x0, x0, #0", false),
        ],
    );
}

/// Preparation refuses the same loads as LLD: all sizes, from all offsets near a boundary.
#[test]
fn misaligned_targets_are_refused_before_linking() {
    for (kind, load) in [
        ("R_AARCH64_LDST8_ABS_LO12_NC", "ldrb w0, [x0]"),
        ("R_AARCH64_LDST16_ABS_LO12_NC", "ldrh w0, [x0]"),
        ("R_AARCH64_LDST32_ABS_LO12_NC", "ldr s0, [x0]"),
        ("R_AARCH64_LDST64_ABS_LO12_NC", "ldr d0, [x0]"),
        ("R_AARCH64_LDST128_ABS_LO12_NC", "ldr q0, [x0]"),
    ] {
        for addend in [0, 1, 2, 4, 8, 12, 16, -16, -3] {
            let source = format!(
                ".text\n.reloc ., {kind}, here+{addend}\n{load}\n.data\n.balign 16\n.zero 4096\nhere: .zero 32\n"
            );
            let object = asm_arm(&source);
            let refused = !refused_by_lld(&object, 0x20_0000, &BTreeMap::new()).is_empty();
            match prepare(ARM, &object) {
                Ok(_) => assert!(!refused, "{kind} {addend}"),
                Err(Error::Link(LinkError::ReferencesOutOfRange { references, more: 0, .. })) => {
                    assert!(refused, "{kind} {addend}");
                    assert_eq!((&*references[0].relocation, &*references[0].section), (kind, ".text"));
                    assert!(references[0].to_string().contains("no multiple of"), "{}", references[0]);
                }
                Err(other) => panic!("{other}"),
            }
            assert_eq!(crate::elf::testing::check(&object).unwrap().loads(), !refused);
        }
    }
}

/// Preparation uses exactly the known bits of a target's alignment.
#[test]
fn alignment_counts_as_far_as_it_is_known() {
    let load = |data: &str| asm_arm(&format!(".text\nldr x0, [x0, :lo12:here]\n.data\n{data}"));
    // The section may come to lie anywhere.
    assert!(prepare(ARM, &load(".balign 4\n.long 0\nhere: .quad 0\n")).is_ok());
    assert!(prepare(ARM, &load(".balign 4\n.short 0\nhere: .quad 0\n")).is_err());
    assert!(prepare(ARM, &load(".balign 8\n.long 0\nhere: .quad 0\n")).is_err());
    // Another object's definition may count.
    assert!(prepare(ARM, &load(".balign 8\n.weak here\n.long 0\nhere: .quad 0\n")).is_ok());
    assert!(prepare(ARM, &load(".balign 8\n.globl here\n.long 0\nhere: .quad 0\n")).is_err());
    let branch = |target: &str| {
        prepare(ARM, &asm_arm(&format!(".text\n.reloc ., R_AARCH64_JUMP26, {target}\nb .\n.zero 8\nhere: nop\n")))
            .map(drop)
    };
    assert!(branch("here").is_ok() && branch("here+4").is_ok());
    let error = branch("here+2").unwrap_err();
    assert!(
        error.to_string().contains("R_AARCH64_JUMP26") && error.to_string().contains("no multiple of 4"),
        "{error}"
    );
}

/// The longest distance inside a section, and one step more.
#[test]
fn distances_inside_a_section_are_known() {
    for (target, kind, place, ahead, step) in [
        (X86, "R_X86_64_PC8", ".byte 0", 127, 1),
        (X86, "R_X86_64_PC16", ".short 0", 32767, 1),
        (ARM, "R_AARCH64_PREL16", ".short 0", 65535, 1),
        (ARM, "R_AARCH64_LD_PREL_LO19", "ldr x0, .", (1 << 20) - 4, 4),
    ] {
        for (addend, fits) in [(ahead, true), (ahead + step, false)] {
            let source = format!(".text\nstart: .reloc ., {kind}, start+{addend}\n{place}\n.zero 16\n");
            let object = assemble(target, &source);
            // LLD resolves it to the same distance, wherever the section is.
            assert_eq!(refused_by_lld(&object, 0x20_0000, &BTreeMap::new()).is_empty(), fits, "{kind} {addend}");
            let plan = plan(target, &object, true, ARENA, &[]);
            let reference = only(&plan, ".text");
            assert_eq!(reference.verdict, if fits { Verdict::Always } else { Verdict::Refused }, "{plan}");
            assert_eq!(reference.distance, Some((addend, addend)));
            match prepare(target, &object) {
                Ok(_) => assert!(fits, "{kind}"),
                Err(error) => {
                    assert!(!fits, "{error}");
                    assert!(
                        matches!(&error, Error::Link(LinkError::ReferencesOutOfRange { references, .. }) if references[0].value == addend)
                    );
                    assert!(error.to_string().contains(kind) && error.to_string().contains("0x"), "{error}");
                }
            }
        }
    }
    // References that can be bridged are left to the linker.
    for place in [
        "TSTBR14, start+32768\n tbz x0, #1, .",
        "CONDBR19, start+1048576\n cbz x0, .",
        "ADR_PREL_LO21, start+1048576\n adr x0, .",
    ] {
        let object = asm_arm(&format!(".text\nstart: .reloc ., R_AARCH64_{place}\n.zero 16\n"));
        assert!(prepare(ARM, &object).is_ok(), "{place}");
        assert_eq!(only(&plan(ARM, &object, true, ARENA, &[]), ".text").verdict, Verdict::Bridged, "{place}");
        assert_eq!(only(&plan(ARM, &object, false, ARENA, &[]), ".text").verdict, Verdict::Refused, "{place}");
    }
}

/// An address near no place in the arena; below, one near some places and one near all.
const FAR: u64 = 0x7_1234_5678;
const PARTLY: u64 = ARENA.end + (1 << 30);
const NEAR: u64 = ARENA.end + (16 << 20);

#[test]
fn each_verdict_on_x86_64() {
    use Verdict::{Always, Bridged, InArena, Refused};
    for (source, far, partly, near, arena) in [
        // References that take an address and branches can be bridged; accesses to memory cannot.
        ("leaq x(%rip), %rax", Bridged, Bridged, InArena, InArena),
        ("jne x", Always, Always, Always, Always),
        (".byte 0xe8\n.reloc ., R_X86_64_PC32, x-4\n.long 0", Bridged, Bridged, InArena, InArena),
        ("movl x(%rip), %eax", Refused, Refused, InArena, InArena),
        ("leal x(%rip), %eax", Refused, Refused, InArena, InArena),
        ("movq x@GOTPCREL(%rip), %rax", Always, Always, Always, Always),
        ("call x@PLT", Always, Always, Always, Always),
        ("movabsq $x, %rax", Always, Always, Always, Always),
        ("movl $x, %edi", Refused, Refused, Refused, Refused),
        (".data\n.long x - .", Refused, Refused, InArena, InArena),
    ] {
        let object = asm(&format!(".text\nret\n{source}\n"));
        let judged = |names: &[(&str, u64)]| plan(X86, &object, true, ARENA, names).references[0].verdict;
        let found = [judged(&[("x", FAR)]), judged(&[("x", PARTLY)]), judged(&[("x", NEAR)]), judged(&[])];
        assert_eq!(found, [far, partly, near, arena], "{source}");
        let off = plan(X86, &object, false, ARENA, &[("x", FAR)]);
        assert_eq!(off.references[0].verdict, if far == Bridged { Refused } else { far }, "{source}: {off}");
        assert_eq!(off.loads(), far == Always, "{off}");
        // Without an arena, undecidable references are not refused.
        let foreign = preparation(ARM, SectionConflicts::Rename).check("test.o", &object, &NOWHERE).unwrap();
        assert!(foreign.loads(), "{foreign}");
    }
}

#[test]
fn each_verdict_on_aarch64() {
    use Verdict::{Always, Bridged, InArena, Refused};
    for (source, far, partly, near, arena) in [
        ("adrp x0, x_", Bridged, InArena, InArena, InArena),
        ("adr x0, x_", Bridged, Bridged, Bridged, Bridged),
        ("tbz x0, #3, x_", Bridged, Bridged, Bridged, Bridged),
        ("cbz x0, x_", Bridged, Bridged, Bridged, Bridged),
        ("bl x_", Always, Always, Always, Always),
        ("ldr x0, x_", Refused, Refused, Refused, InArena),
        ("add x0, x0, :lo12:x_", Always, Always, Always, Always),
        ("adrp x0, :got:x_", Always, Always, Always, Always),
        ("ldr x0, [x0, :got_lo12:x_]", Always, Always, Always, Always),
        ("movz x0, #:abs_g0:x_", Refused, Refused, Refused, Refused),
        ("movz x0, #:abs_g3:x_", Always, Always, Always, Always),
        (".data\n.word x_ - .", Refused, InArena, InArena, InArena),
        (".data\n.xword x_", Always, Always, Always, Always),
        (".data\n.reloc ., R_AARCH64_PLT32, x_\n.word 0", Bridged, Bridged, InArena, InArena),
    ] {
        let object = asm_arm(&format!(".text\n{source}\n"));
        let judged = |names: &[(&str, u64)]| plan(ARM, &object, true, ARENA, names).references[0].verdict;
        let found = [judged(&[("x_", FAR)]), judged(&[("x_", PARTLY)]), judged(&[("x_", NEAR)]), judged(&[])];
        assert_eq!(found, [far, partly, near, arena], "{source}");
        let foreign = preparation(X86, SectionConflicts::Rename).check("test.o", &object, &NOWHERE).unwrap();
        // Mapping symbols are not functions.
        assert_eq!(foreign.references[0].function, None);
        assert!(foreign.loads(), "{foreign}");
    }
}

#[test]
fn references_between_sections_are_bounded_by_the_object() {
    use Verdict::{Always, Bridged, InArena, Refused};
    for (target, source, verdict) in [
        (X86, "movl here(%rip), %eax\n.data\nhere: .long 0", Always),
        (X86, "movl here(%rip), %eax\n.data\nhere: .long 0\n.bss\n.zero 0x7fffff00", InArena),
        (X86, "leaq here(%rip), %rax\n.data\nhere: .long 0\n.bss\n.zero 0x7fffff00", Bridged),
        (X86, "movl $here, %eax\n.data\nhere: .long 0", Refused),
        (X86, "movl here(%rip), %eax\n.section .lbss,\"awl\",@nobits\nhere: .zero 8", InArena),
        (X86, "movabsq $here, %rax\n.section .lbss,\"awl\",@nobits\nhere: .zero 8", Always),
        (ARM, "adrp x0, here\n.data\nhere: .word 0", Always),
        (ARM, "ldr x0, here\n.data\n.balign 4\nhere: .word 0", Always),
        (ARM, "ldr x0, here\n.data\n.balign 4\nhere: .word 0\n.bss\n.zero 0x100000", InArena),
        (ARM, "tbz x0, #1, here\n.section .text.b,\"ax\"\n.balign 4\nhere: nop", Bridged),
        (ARM, "adrp x0, here\n.data\nhere: .word 0\n.bss\n.zero 0x100000000", Bridged),
    ] {
        let plan = plan(target, &assemble(target, &format!(".text\n{source}\n")), true, ARENA, &[]);
        let reference = only(&plan, ".text");
        assert_eq!(reference.verdict, verdict, "{source}: {plan}");
        assert_eq!(plan.loads(), verdict != Refused, "{plan}");
    }
}

#[test]
fn the_plan_counts_and_lists_references() {
    let object =
        asm(".text\n.globl f\n.type f,@function\nf: leaq far(%rip),%rax\n movl far(%rip),%ecx\n ret\n.size f,.-f\n\
         .data\n.quad f\n.section .debug_x\n.quad f\n");
    let plan = plan(X86, &object, true, ARENA, &[("far", FAR)]);
    let counts = |kind: &str| {
        let of = plan.relocations.iter().find(|r| r.kind == kind).unwrap();
        (of.count, of.always, of.in_arena, of.bridged, of.refused)
    };
    assert_eq!(counts("R_X86_64_PC32"), (2, 0, 0, 1, 1));
    // Sections that are not mapped are counted but not judged.
    assert_eq!(counts("R_X86_64_64"), (2, 1, 0, 0, 0));
    assert_eq!((plan.references.len(), plan.references_omitted), (3, 0));
    let refused = plan.references.iter().find(|r| r.verdict == Verdict::Refused).unwrap();
    assert_eq!((&*refused.section, refused.offset, refused.function.as_deref()), (".text", 9, Some("f")));
    assert_eq!((&*refused.symbol, refused.addend, refused.limit), ("far", -4, Some((-0x8000_0000, 0x7fff_ffff))));
    // The distance of the address from the arena's last and first place.
    let distance = |place: u64| FAR as i64 - 4 - place as i64;
    assert_eq!(refused.distance, Some((distance(ARENA.end), distance(ARENA.start))));
    assert!(plan.problems.iter().any(|problem| problem.text.contains("-fPIC")), "{plan}");
    let text = plan.to_string();
    assert!(text.contains("refused: .text+0x9 in 'f'") && text.contains("bridged: .text+0x3 in 'f'"), "{text}");
}

#[test]
fn references_share_their_texts_and_a_plan_bounds_them() {
    let (name, count) = ("n".repeat(3000), 30_000);
    let source = format!(".data\n.globl {name}\n.set n, {name}\n.rept {count}\n.quad n\n.endr");
    let plan = crate::elf::testing::check(&crate::elf::testing::asm(&source)).unwrap();
    let [first, .., last] = &plan.references[..] else { panic!("{plan}") };
    assert!(*first.symbol == *name && std::sync::Arc::ptr_eq(&first.symbol, &last.symbol));
    assert!(std::sync::Arc::ptr_eq(&first.section, &last.section));
    let listed = plan.references.len();
    assert!((listed as u64 + plan.references_omitted, listed < count) == (count as u64, true), "{listed}");
    let json = serde_json::to_string(&plan).unwrap();
    assert!((64 << 20..100 << 20).contains(&json.len()), "{}", json.len());
    assert_eq!(plan, serde_json::from_str(&json).unwrap());
    // Longer names are cut off, in characters.
    let source = format!(".data\n.globl \"{0}\"\n.quad \"{0}\"", "é".repeat(3000));
    let plan = crate::elf::testing::check(&crate::elf::testing::asm(&source)).unwrap();
    assert!(plan.references[0].symbol.ends_with('…') && plan.references[0].symbol.len() < 4200);
    assert_eq!(plan.imports[0].name.len(), 6000);
}

#[test]
fn a_plan_keeps_a_bounded_number_of_references() {
    let object = asm(&format!(".data\n.rept {}\n.quad x\n.endr\n", 100_005));
    let plan = plan(X86, &object, true, ARENA, &[]);
    assert_eq!((plan.references.len(), plan.references_omitted), (100_000, 5));
    assert_eq!(plan.relocations[0].always, 100_005);
    assert!(plan.to_string().contains("5 further relocations"));
}

/// Verdicts do not overflow, for every kind of both machines, with addends and offsets at the ends of their ranges.
#[test]
fn extreme_numbers_are_judged() {
    for (target, object) in [
        (X86, asm(".text\n.globl f\nf: .zero 64\n.data\n.quad f\n.quad f\n")),
        (ARM, asm_arm(".text\n.globl f\nf: .zero 64\n.data\n.quad f\n.quad f\n")),
    ] {
        let (_, header) = section(&object, ".rela.data", 0);
        // Relocations that only mark are removed earlier.
        let kinds = crate::elf::relocations::Table::of(target.machine).kinds().iter();
        for kind in kinds.filter(|kind| kind.operation != crate::elf::relocations::Operation::Nothing) {
            for addend in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX - 1, i64::MAX] {
                for offset in [0, 8, u64::MAX, u64::MAX / 2, 1 << 63] {
                    let mut bytes = object.clone();
                    let info = u64::from(kind.number);
                    let symbol = u64::from_le_bytes(bytes[header.offset as usize + 8..][..8].try_into().unwrap()) >> 32;
                    put(&mut bytes, header.offset, &offset.to_le_bytes());
                    put(&mut bytes, header.offset + 8, &(symbol << 32 | info).to_le_bytes());
                    put(&mut bytes, header.offset + 16, &addend.to_le_bytes());
                    let plan = plan(target, &bytes, true, ARENA, &[]);
                    let reference = plan.references.iter().find(|r| r.addend == addend && r.offset == offset).unwrap();
                    let limited = kind.range != crate::elf::relocations::Range::Unchecked;
                    let extreme = addend.unsigned_abs() > 1 << 60;
                    if limited && extreme && !matches!(kind.width, 0 | 8 | 16) {
                        let reaches = matches!(reference.verdict, Verdict::Always | Verdict::InArena);
                        assert!(!reaches, "{} {addend}: {plan}", kind.name);
                    }
                    assert_eq!(plan.loads(), prepare(target, &bytes).is_ok() && reference.verdict != Verdict::Refused);
                }
            }
        }
    }
}
