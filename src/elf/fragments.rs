//! Code in `.init` and `.fini`, as libcrypto's `x86_64cpuid.o` has it: fragments of one function.
//!
//! A linker concatenates these sections of all objects between the prologue of crti.o and the epilogue of crtn.o, and
//! the dynamic loader calls the whole (DT_INIT, DT_FINI). Here each fragment becomes a function with a prologue and an
//! epilogue like those (glibc, `crti.S` and `crtn.S` under `sysdeps/x86_64` and `sysdeps/aarch64`). It is called before
//! the initialiser arrays, or after the finaliser arrays.

use super::patch::{Patch, Value};
use super::plugin::{Mode, ObjectReport};
use super::report::ChangeKind;
use super::validate::{MAX_ALIGNMENT, Place, place, symbol_table};
use crate::Result;
use crate::elf::elf_abi::{
    EM_AARCH64, EM_X86_64, LE, RELA_SIZE, SHF_ALLOC, SHF_EXECINSTR, SHT_PROGBITS, SHT_RELA, SYMBOL_SIZE, SectionHeader,
    Symbol, field,
};
use crate::elf::elf_view::View;

pub(crate) const NAME: &str = "fragments";

/// A machine's prologue and epilogue of a function that calls others.
struct Code {
    begin: &'static [u8],
    end: &'static [u8],
    /// An instruction without effect, as long as the shortest instruction.
    nop: &'static [u8],
    /// The instruction that returns.
    ret: &'static [u8],
    /// Instructions that mark a function's start for indirect calls and signed return addresses.
    marks: &'static [&'static [u8]],
}

const X86_64: Code = Code {
    // sub $8, %rsp
    begin: &[0x48, 0x83, 0xec, 8],
    // add $8, %rsp; ret
    end: &[0x48, 0x83, 0xc4, 8, 0xc3],
    nop: &[0x90],
    ret: &[0xc3],
    // endbr64
    marks: &[&[0xf3, 0x0f, 0x1e, 0xfa]],
};

const AARCH64: Code = Code {
    // stp x29, x30, [sp, #-16]!; mov x29, sp
    begin: &[0xfd, 0x7b, 0xbf, 0xa9, 0xfd, 0x03, 0x00, 0x91],
    // ldp x29, x30, [sp], #16; ret
    end: &[0xfd, 0x7b, 0xc1, 0xa8, 0xc0, 0x03, 0x5f, 0xd6],
    nop: &[0x1f, 0x20, 0x03, 0xd5],
    ret: &[0xc0, 0x03, 0x5f, 0xd6],
    // paciasp, bti c, and the nop that replaces them in glibc's crti.o
    marks: &[&[0x3f, 0x23, 0x03, 0xd5], &[0x5f, 0x24, 0x03, 0xd5], &[0x1f, 0x20, 0x03, 0xd5]],
};

/// The kind of code in `.init` or `.fini`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fragment {
    /// A complete function.
    Whole,
    /// Code without a prologue and an epilogue.
    Part,
    /// A prologue without an epilogue, or an epilogue without a prologue.
    Half,
}

/// Classifies the code of such a section; `None` if the section is something else.
pub(crate) fn fragment(view: &View<'_>, index: u32, header: &SectionHeader, name: &[u8]) -> Result<Option<Fragment>> {
    if !matches!(name, b".init" | b".fini") {
        return Ok(None);
    }
    let (Some(code), contents) = (code(view.machine), view.contents(index, header)?) else { return Ok(None) };
    let is_code = header.is(SHF_ALLOC) && header.is(SHF_EXECINSTR) && header.kind == SHT_PROGBITS;
    if !is_code || contents.is_empty() {
        return Ok(None);
    }
    let marked = code.marks.iter().find_map(|mark| contents.strip_prefix(*mark));
    let begins = marked.unwrap_or(contents).starts_with(code.begin);
    Ok(Some(match (begins, contents.ends_with(code.ret)) {
        (true, true) => Fragment::Whole,
        (false, false) => Fragment::Part,
        _ => Fragment::Half,
    }))
}

fn code(machine: u16) -> Option<&'static Code> {
    match machine {
        EM_X86_64 => Some(&X86_64),
        EM_AARCH64 => Some(&AARCH64),
        _ => None,
    }
}

pub(crate) fn prepare(view: &View<'_>, report: &mut ObjectReport) -> Result<Option<Patch>> {
    let mut patch = Patch::new(view.bytes.len());
    for (index, header) in view.sections() {
        let (name, contents) = (view.name_of(&header)?, view.contents(index, &header)?);
        let alignment = header.align.max(1);
        // Validation refuses other alignments.
        let aligned = alignment.is_power_of_two() && alignment <= MAX_ALIGNMENT;
        if fragment(view, index, &header, name)? != Some(Fragment::Part) || !aligned {
            continue;
        }
        let Some(code) = code(view.machine) else { continue };
        let before = (code.begin.len() as u64).next_multiple_of(alignment);
        let offset = patch.begin();
        patch.extend(code.begin);
        for _ in 0..(before - code.begin.len() as u64) / code.nop.len() as u64 {
            patch.extend(code.nop);
        }
        patch.extend(contents);
        patch.extend(code.end);
        let size = before + (contents.len() + code.end.len()) as u64;
        for (field, value) in
            [(field::SH_OFFSET, offset), (field::SH_SIZE, size), (field::SH_ADDRALIGN, alignment.max(16))]
        {
            patch.write(view.header_field(index, field), Value::U64(value));
        }
        move_references(view, index, before, &mut patch)?;
        report.begin(NAME);
        report.change(Some((index, &view.label(index))), ChangeKind::MadeFunction { from: header.size, to: size });
    }
    Ok((!patch.is_empty()).then_some(patch))
}

/// Moves all references to the section's contents `by` bytes further.
fn move_references(view: &View<'_>, section: u32, by: u64, patch: &mut Patch) -> Result<()> {
    for (index, header) in view.sections().filter(|(_, h)| h.kind == SHT_RELA && h.info == section) {
        for (number, entry) in (0u64..).zip(view.relocations(index, &header)?.unwrap_or_default()) {
            let at = header.offset.saturating_add(number * RELA_SIZE);
            patch.write(at, Value::U64(entry.r_offset.get(LE).wrapping_add(by)));
        }
    }
    // Validation reports faults in the tables.
    let Ok(tables) = symbol_table(view, &mut ObjectReport::new(Mode::Load)) else { return Ok(()) };
    let table = view.header(tables.symtab).map_or(0, |header| header.offset);
    for (index, raw) in (0u32..).zip(tables.symbols) {
        let symbol = Symbol::decode(raw);
        if place(&tables, index, &symbol) == Place::Section(section) {
            let at = table.saturating_add(u64::from(index) * SYMBOL_SIZE);
            patch.write(at + field::ST_VALUE, Value::U64(symbol.value.wrapping_add(by)));
        }
    }
    Ok(())
}
