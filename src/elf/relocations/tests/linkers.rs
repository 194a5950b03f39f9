//! Ranges, alignment, fields and veneers compared with `ld.lld`, and with GNU ld for kinds that lld lacks. The linkers
//! get values at the edges of each range and one step beyond; their refusals and their bytes are compared with ours.

use std::collections::BTreeMap;

use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSymbol};

use super::super::*;
use crate::elf::testing::{asm, asm_arm, run};

/// Addresses of the sections, far from each other and from address 0.
const PLACES: u64 = 0x12_3456_7000;
const GOT: u64 = 0x34_5678_9000;
const TARGET: u64 = 0x56_789a_bcc0;
const SIZE: i64 = 0x1234;
/// Bytes between two places.
const STEP: u64 = 16;

/// A relocation to link, and its intended value.
struct Case {
    kind: &'static Kind,
    wanted: i64,
}

/// Addresses that the linker chose.
struct Layout {
    /// The GOT entry of the target.
    entry: i64,
    /// `_GLOBAL_OFFSET_TABLE_`
    got: i64,
    /// The variable's offset from the thread pointer.
    variable: i64,
}

/// Computes a kind's value by the ABI, in 64 bits.
fn compute(kind: &Kind, addend: i64, place: i64, layout: &Layout) -> i64 {
    let page = |address: i64| address & !0xfff;
    let symbol = (TARGET as i64).wrapping_add(addend);
    let entry = layout.entry.wrapping_add(addend);
    match kind.operation {
        Operation::Absolute | Operation::Patch => symbol,
        Operation::Relative => symbol.wrapping_sub(place),
        Operation::PageRelative => page(symbol).wrapping_sub(page(place)),
        Operation::PageOffset => symbol & 0xfff,
        Operation::FromGot => symbol.wrapping_sub(layout.got),
        Operation::GotBaseRelative => layout.got.wrapping_add(addend).wrapping_sub(place),
        Operation::GotRelative => entry.wrapping_sub(place),
        Operation::GotPageRelative => page(entry).wrapping_sub(page(place)),
        Operation::GotPageOffset => entry & 0xfff,
        Operation::GotFromGot => entry.wrapping_sub(layout.got),
        Operation::GotFromGotPage => entry.wrapping_sub(page(layout.got)),
        Operation::Size => SIZE.wrapping_add(addend),
        Operation::ThreadLocal(_) => layout.variable.wrapping_add(addend),
        other => panic!("{}: {other:?} is no static link's", kind.name),
    }
}

/// Returns values at both edges, beyond them, misaligned, and with different bits in each part.
fn wanted(kind: &Kind, machine: u16) -> Vec<i64> {
    let step = match kind.operation {
        Operation::PageRelative | Operation::GotPageRelative => 0x1000,
        // A veneer's range ends at a whole instruction.
        _ if kind.through == Through::Stub => 4,
        _ => i64::from(kind.alignment),
    };
    let mut values: Vec<i64> =
        [0x155, -0x2aa, 0x0123_4567_89ab_cdef, -0x0123_4567_89ab_cdef].map(|v: i64| v & -step).into();
    if kind.range != Range::Unchecked {
        let (lowest, highest) = kind.limit();
        let (lowest, highest) = (lowest as i64, (highest as i64) & -step);
        values.extend([lowest, highest, (highest / 2) & -step]);
        values.extend([lowest - step, highest + step]);
    }
    if kind.alignment > 1 {
        values.extend([0x100 + i64::from(kind.alignment) / 2, 0x101]);
    }
    if machine == EM_AARCH64 && kind.through == Through::Stub {
        values.retain(|value| kind.fits((*value).into()));
    }
    values
}

/// Returns the instruction or datum that a kind applies to.
fn statement(kind: &Kind) -> String {
    let instruction = match kind.field {
        Field::Data(bits) => return format!(".zero {}", bits / 8),
        Field::Imm26 if kind.name.contains("CALL") => "bl 0",
        Field::Imm26 => "b 0",
        Field::Imm19 if kind.name.contains("CONDBR") => "b.ne 0",
        Field::Imm19 => "ldr x3, 0",
        Field::Imm14 => "tbnz w3, #5, 0",
        Field::Adr => "adr x3, 0",
        Field::Adrp => "adrp x3, 0",
        Field::MovW { group, signed } => {
            return format!("{} x3, #0, lsl #{}", if signed { "movz" } else { "movk" }, 16 * group);
        }
        Field::Imm12 { .. } => match kind.name {
            name if name.contains("ADD_") => "add x3, x4, #0",
            name if name.contains("LDST8_") => "strb w3, [x4]",
            name if name.contains("LDST16_") => "ldrh w3, [x4]",
            name if name.contains("LDST32_") => "ldr s3, [x4]",
            name if name.contains("LDST128_") => "str q3, [x4]",
            _ => "ldr x3, [x4]",
        },
        field => panic!("{}: {field:?} is not written", kind.name),
    };
    instruction.into()
}

fn assemble(machine: u16, source: &str) -> Vec<u8> {
    if machine == EM_X86_64 { asm(source) } else { asm_arm(source) }
}

/// A linker, with the arguments that make it report all errors and write the program nevertheless.
struct Linker {
    tool: &'static str,
    args: &'static [&'static str],
}

const LLD: Linker = Linker { tool: "ld.lld-22", args: &["--noinhibit-exec", "--no-relax", "--error-limit=0"] };

fn gnu(machine: u16) -> Linker {
    let tool = if machine == EM_X86_64 { "ld" } else { "aarch64-linux-gnu-ld" };
    // Without `--verbose` it stops reporting after ten.
    Linker { tool, args: &["--noinhibit-exec", "--no-relax", "--verbose"] }
}

/// Links all cases with these addends; returns the object, the program, and the refused cases with their messages.
fn link(linker: &Linker, machine: u16, cases: &[Case], addends: &[i64]) -> (Vec<u8>, Vec<u8>, BTreeMap<usize, String>) {
    let mut source = String::from(".section .place, \"ax\"\n.globl _start\n_start:\n");
    for (case, addend) in cases.iter().zip(addends) {
        let symbol = if case.kind.tls { "variable" } else { "target" };
        source += &format!(
            ".balign {STEP}\n1: {}\n.reloc 1b, {}, {symbol}+({addend})\n",
            statement(case.kind),
            case.kind.name
        );
    }
    source += ".data\n.quad _GLOBAL_OFFSET_TABLE_\n.section .tbss, \"awT\", @nobits\n.balign 16\n.globl variable\n\
               .type variable, @object\nvariable: .zero 16\n";
    let object = assemble(machine, &source);
    let symbols = format!(".globl target\n.type target, @object\n.set target, {TARGET:#x}\n.size target, {SIZE}\n");
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("places.o"), &object).unwrap();
    std::fs::write(dir.path().join("symbols.o"), assemble(machine, &symbols)).unwrap();
    let [start, got] = [("place", PLACES), ("got", GOT)].map(|(name, at)| format!("--section-start=.{name}={at:#x}"));
    let args = [linker.args, &[&start, &got, "places.o", "symbols.o", "-o", "program"]].concat();
    let output = run(dir.path(), linker.tool, &args);
    let mut refused = BTreeMap::new();
    let text = String::from_utf8(output.stderr).unwrap();
    let place = |line: &&str| !line.is_empty() && !line.starts_with(">>>") && !line.ends_with("in function `_start':");
    for line in text.lines().filter(place) {
        let (_, rest) = line.split_once("(.place+0x").unwrap_or_else(|| panic!("{}: {line}", linker.tool));
        let (offset, text) = rest.split_once("): ").unwrap();
        let offset = u64::from_str_radix(offset, 16).unwrap();
        refused.insert((offset / STEP) as usize, text.to_owned());
    }
    (object, std::fs::read(dir.path().join("program")).unwrap(), refused)
}

/// Reads the GOT's address from the program.
fn layout(machine: u16, program: &[u8]) -> Layout {
    let file: ElfFile64 = ElfFile64::parse(program).unwrap();
    let got = file.section_by_name(".got").unwrap();
    let entries = got.data().unwrap().chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    let entry = entries.zip((got.address()..).step_by(8)).find(|(word, _)| *word == TARGET).unwrap().1;
    let base = file.symbols().find(|symbol| symbol.name() == Ok("_GLOBAL_OFFSET_TABLE_")).unwrap().address();
    // ELF Handling For Thread-Local Storage: variant I has 16 bytes before the first variable, variant II ends here.
    let variable = if machine == EM_AARCH64 { 16 } else { -16 };
    Layout { entry: entry as i64, got: base as i64, variable }
}

/// Kinds that lld does not link statically; other references check them.
const UNKNOWN_TO_LLD: &[u32] =
    &[28, 30, 300, 301, 302, 303, 304, 305, 306, 307, 308, 310, 550, 552, 554, 556, 558, 570];
/// lld accepts any X for them, and drops the low bits. AAELF64 heads their table "all offsets are a multiple of 4".
const NOT_ALIGNED_BY_LLD: &[u32] = &[279, 282, 283];
/// lld truncates it. AAELF64, "GOT-relative instruction relocations": "check that 0 <= X < 2^15".
const UNCHECKED_BY_LLD: &[u32] = &[313];
/// lld treats the size as signed; GNU ld (`complain_overflow_unsigned`) and JITLink (`isUInt<32>`) do not.
const SIGNED_BY_LLD: &[u32] = &[32];

/// The kinds among them that GNU ld 2.40 links. (Only `wild` checks the others.)
const KNOWN_TO_GNU: &[u32] = &[28, 30, 301, 302, 310, 550, 552, 554, 556, 558];

/// Links all kinds for static links that `choose` accepts; returns those unknown to the linker.
fn compare(linker: &Linker, machine: u16, choose: impl Fn(&Kind) -> bool) -> Vec<u32> {
    let statically = |kind: &&Kind| match kind.operation {
        Operation::ThreadLocal(_) => kind.name.contains("TLSLE_") || kind.name.contains("_TPOFF"),
        Operation::Nothing | Operation::Resolver | Operation::Authenticated | Operation::Dynamic => false,
        // LLVM 22 does not know the withdrawn kinds, nor those of APX with longer instructions.
        _ => !["_BND", "CODE_5", "CODE_6"].iter().any(|part| kind.name.contains(part)),
    };
    let cases: Vec<Case> = Table::of(machine)
        .kinds()
        .iter()
        .filter(|kind| statically(kind) && choose(kind))
        .flat_map(|kind| wanted(kind, machine).into_iter().map(move |wanted| Case { kind, wanted }))
        .collect();
    let place = |index: usize| (PLACES + STEP * index as u64) as i64;
    let layout = layout(machine, &link(linker, machine, &cases, &vec![0; cases.len()]).1);
    let addends: Vec<i64> = (0..)
        .zip(&cases)
        .map(|(index, case)| match case.kind.operation {
            // GNU ld ignores the addend: it neither makes an entry for S + A nor adds A to the address of the entry for
            // S.
            Operation::GotFromGot if machine == EM_AARCH64 => 0,
            _ => case.wanted.wrapping_sub(compute(case.kind, 0, place(index), &layout)),
        })
        .collect();
    let (object, program, refused) = link(linker, machine, &cases, &addends);
    let (object, program): (ElfFile64, ElfFile64) =
        (ElfFile64::parse(&*object).unwrap(), ElfFile64::parse(&*program).unwrap());
    let before = object.section_by_name(".place").unwrap().data().unwrap();
    let after = program.section_by_name(".place").unwrap().data().unwrap();
    let mut unknown = vec![];
    for (index, case) in cases.iter().enumerate() {
        let kind = case.kind;
        let value = compute(kind, addends[index], place(index), &layout);
        let what = format!("{} with {value:#x} ({:?})", kind.name, refused.get(&index));
        if refused.get(&index).is_some_and(|text| text.contains("unknown relocation")) {
            unknown.push(kind.number);
            continue;
        }
        let bytes = |section: &[u8]| section[index * STEP as usize..][..usize::from(kind.width)].to_vec();
        let mut ours = bytes(before);
        if kind.width == 4 && !kind.shape.is_empty() {
            assert!(kind.applies_to(u32::from_le_bytes(ours.clone().try_into().unwrap())), "{what}");
        }
        let aligned = kind.is_aligned(value.into());
        let good = kind.fits(value.into()) && aligned;
        assert_eq!(kind.encode(&mut ours, value).is_ok(), good, "{what}");
        if !aligned && NOT_ALIGNED_BY_LLD.contains(&kind.number) {
            assert!(!refused.contains_key(&index), "{what}");
            continue;
        }
        if aligned && !good && UNCHECKED_BY_LLD.contains(&kind.number) {
            assert!(!refused.contains_key(&index), "{what}");
            continue;
        }
        if SIGNED_BY_LLD.contains(&kind.number) && !(0..1 << 31).contains(&value) {
            assert_eq!(!refused.contains_key(&index), i32::try_from(value).is_ok(), "{what}");
            continue;
        }
        assert_eq!(!refused.contains_key(&index), good, "{what}");
        // AAELF64 makes the top group of a negative value a MOVN; lld leaves it a MOVZ with the same bits.
        let top = matches!(kind.field, Field::MovW { group: 3, signed: true }) && value < 0;
        if good && !top {
            assert_eq!(ours, bytes(after), "{what}");
        }
    }
    unknown.dedup();
    unknown
}

#[test]
fn lld_accepts_what_fits_and_writes_what_we_write() {
    let unknown = [EM_X86_64, EM_AARCH64].map(|machine| compare(&LLD, machine, |_| true)).concat();
    assert_eq!(unknown, UNKNOWN_TO_LLD);
}

#[test]
fn gnu_ld_accepts_what_fits_and_writes_what_we_write() {
    for machine in [EM_X86_64, EM_AARCH64] {
        let unknown = compare(&gnu(machine), machine, |kind| KNOWN_TO_GNU.contains(&kind.number));
        assert_eq!(unknown, [0; 0]);
    }
}

/// The linker inserts a veneer for a target out of range, exactly for the kinds that allow it.
#[test]
fn lld_makes_veneers_where_the_table_allows_them() {
    let mut with_veneer = 0;
    for kind in aarch64::KINDS.iter().filter(|kind| kind.operation == Operation::Relative && kind.checked) {
        let source = format!(
            ".section .place, \"ax\"\n.globl _start\n_start: {}\n.reloc _start, {}, target\n",
            statement(kind),
            kind.name
        );
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("place.o"), asm_arm(&source)).unwrap();
        let output = std::process::Command::new("ld.lld-22")
            .args([&format!("--section-start=.place={PLACES:#x}"), "--defsym=target=0x7f0000000000", "place.o"])
            .current_dir(dir.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        // The one kind with a 48-bit range reaches it.
        let reached = kind.fits((0x7f00_0000_0000 - PLACES).into());
        assert_eq!(output.status.success(), reached || kind.through == Through::Stub, "{}: {text}", kind.name);
        assert!(output.status.success() || text.contains("out of range"), "{}: {text}", kind.name);
        with_veneer += u32::from(output.status.success() && !reached);
    }
    assert_eq!(with_veneer, 3);
}
