//! Hiding of unmapped sections from LLVM: JITLink makes sections, blocks and edges of every section that is not
//! `SHT_NULL`, and prunes the unmapped ones later.

use super::index::{ObjectIndex, Section};
use crate::elf::elf_abi::{SHF_ALLOC, SHT_NULL, SHT_PROGBITS, SHT_RELA};

/// Size of a section header, and the offsets of its type and target (`Elf64_Shdr`).
const HEADER: usize = 64;
const TYPE: usize = 4;
const INFO: usize = 44;
/// Offset of the file header's field for the section headers (`e_shoff`).
const HEADERS_AT: usize = 0x28;

/// Sets the type `SHT_NULL` for sections of debug information and of notes to the linker, and for relocations of
/// unmapped sections. LLVM 15 and 16 refuse such relocations (`ELFLinkGraphBuilder::forEachRelaRelocation`), for
/// example those of SystemTap's probes.
///
/// `bytes` were validated, and `index` was made from them. Unexpected bytes stay as they are.
pub(super) fn hide_unmapped(bytes: &mut [u8], index: &ObjectIndex) {
    let Some(table) = word::<8>(bytes, HEADERS_AT).and_then(|w| usize::try_from(u64::from_le_bytes(w)).ok()) else {
        return;
    };
    let hidden = |section: &Section| {
        let name = index.name(section.name);
        let known = name.starts_with(".debug") || name == ".comment" || name == ".note.GNU-stack";
        known && section.kind == SHT_PROGBITS && section.flags & SHF_ALLOC == 0
    };
    for (i, section) in index.sections.iter().enumerate() {
        let Some(header) = i.checked_mul(HEADER).and_then(|offset| table.checked_add(offset)) else { return };
        let hide = match section.kind {
            SHT_PROGBITS => hidden(section),
            SHT_RELA => {
                let target = word::<4>(bytes, header.saturating_add(INFO)).map(|w| u32::from_le_bytes(w) as usize);
                let unmapped = |s: &Section| s.kind != SHT_NULL && s.flags & SHF_ALLOC == 0;
                target.and_then(|t| index.sections.get(t)).is_some_and(unmapped)
            }
            _ => false,
        };
        let at = header.saturating_add(TYPE);
        if let Some(kind) = bytes.get_mut(at..at.saturating_add(4)).filter(|_| hide) {
            kind.fill(0);
        }
    }
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::super::testing::gcc;
    use super::*;
    use crate::elf::testing::{X86, prepare};

    #[test]
    fn only_debug_information_and_notes_are_hidden() {
        let source = "int counter = 1; const char *text(void) { return \"text\"; }
            __asm__(\".pushsection .note.probes,\\\"\\\",%note; .quad counter; .popsection\");";
        let bytes = gcc(&["-g"], source);
        let prepared = prepare(X86, &bytes).unwrap();
        let mut hidden = prepared.bytes.into_owned();
        hide_unmapped(&mut hidden, &prepared.index);
        let table = u64::from_le_bytes(word(&hidden, HEADERS_AT).unwrap()) as usize;
        let mut nulls = 0;
        for (i, section) in prepared.index.sections.iter().enumerate().skip(1) {
            let target =
                prepared.index.section_name(u32::from_le_bytes(word(&bytes, table + i * HEADER + INFO).unwrap()));
            let name = if section.kind == SHT_RELA { target } else { prepared.index.name(section.name) };
            let expected = name.contains(".debug")
                || [".comment", ".note.GNU-stack"].contains(&name)
                || section.kind == SHT_RELA && name == ".note.probes";
            let kind = u32::from_le_bytes(word(&hidden, table + i * HEADER + TYPE).unwrap());
            assert_eq!(kind, if expected { 0 } else { section.kind }, "{name}");
            nulls += usize::from(expected);
        }
        assert!(nulls > 6, "gcc -g makes more than {nulls}");
    }
}
