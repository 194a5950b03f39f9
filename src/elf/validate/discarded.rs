//! References into COMDAT groups that are linked from another object.
//!
//! A group is kept or discarded as a whole, so no reference from outside may lead to the local symbols and sections of
//! this object's copy (gABI, Section Groups). JITLink knows no groups and would link the discarded copy.

use super::tables::{Place, place, symbol_name, symbol_table};
use crate::Result;
use crate::elf::elf_abi::{LE, SHF_ALLOC, SHT_RELA, STB_LOCAL, Symbol};
use crate::elf::elf_view::View;
use crate::elf::plugin::{Mode, ObjectReport};

/// A reference from a kept section to a discarded one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DiscardedReference {
    /// The section of the reference.
    pub section: String,
    /// Offset in that section.
    pub offset: u64,
    /// The target: a local symbol, or the section itself.
    pub symbol: String,
    /// The discarded section.
    pub target: u32,
}

/// Returns the first reference from a kept and mapped section to a local symbol of a discarded section.
///
/// # Errors
/// None for bytes that were validated.
pub(crate) fn discarded_reference(
    object: &str,
    bytes: &[u8],
    is_discarded: impl Fn(u32) -> bool,
) -> Result<Option<DiscardedReference>> {
    let view = View::parse(object, bytes, u64::MAX)?;
    let tables = symbol_table(&view, &mut ObjectReport::new(Mode::Load))?;
    let target = |index: u32| {
        let symbol = Symbol::decode(tables.symbols.get(index as usize)?);
        match place(&tables, index, &symbol) {
            Place::Section(section) if symbol.binding == STB_LOCAL => Some(section).filter(|s| is_discarded(*s)),
            _ => None,
        }
    };
    for (index, header) in view.sections().filter(|(_, header)| header.kind == SHT_RELA) {
        let Some(user) = view.header(header.info) else { continue };
        if is_discarded(header.info) || !user.is(SHF_ALLOC) || may_refer(view.name_of(&user)?) {
            continue;
        }
        for entry in view.relocations(index, &header)?.unwrap_or_default() {
            let symbol = (entry.r_info.get(LE) >> 32) as u32;
            if let Some(target) = target(symbol) {
                return Ok(Some(DiscardedReference {
                    section: view.label(header.info),
                    offset: entry.r_offset.get(LE),
                    symbol: symbol_name(&view, &tables, symbol),
                    target,
                }));
            }
        }
    }
    Ok(None)
}

/// Returns whether a section is a table about code, whose entries go with the code or are never read
/// (`_bfd_elf_default_action_discarded` in binutils' bfd/elflink.c).
fn may_refer(name: &[u8]) -> bool {
    matches!(name, b".eh_frame" | b".sframe" | b".gcc_except_table")
}
