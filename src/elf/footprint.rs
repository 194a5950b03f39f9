//! The arena space that an object takes.

use std::collections::HashMap;

use super::index::ObjectIndex;
use super::plugin::{Mode, ObjectReport};
use super::validate::{Place, place, symbol_table};
use crate::elf::elf_abi::{
    EM_X86_64, LE, SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE, SHF_X86_64_LARGE, SHT_RELA, SectionHeader, Symbol,
};
use crate::elf::elf_view::View;
use crate::{Error, MemoryError, Result};

/// The smallest page size.
const PAGE: u64 = 4096;

/// Returns a lower bound of the bytes that a validated object takes: its common symbols and the sections that are
/// linked, without padding and without additions of the linker.
pub(crate) fn footprint(view: &View<'_>, index: &ObjectIndex) -> u64 {
    let mut bytes = [0_u64; 3];
    for (section, kept) in (0u32..).zip(kept(view, index)) {
        let Some(header) = view.header(section).filter(|header| kept && is_near(view, header)) else { continue };
        let part = match (header.is(SHF_EXECINSTR), header.is(SHF_WRITE)) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 2,
        };
        if let Some(bytes) = bytes.get_mut(part) {
            *bytes = bytes.saturating_add(header.size);
        }
    }
    let commons = index.definitions.iter().filter(|d| d.common.is_some() && d.section == 0).map(|d| d.size);
    bytes[1] = commons.fold(bytes[1], u64::saturating_add);
    bytes.iter().map(|bytes| bytes.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX)).fold(0, u64::saturating_add)
}

/// Refuses an object that takes more than the arena has, as the link would.
pub(crate) fn check(view: &View<'_>, bytes: u64, arena: u64) -> Result<()> {
    if bytes <= arena {
        return Ok(());
    }
    let near = view.sections().filter(|(_, header)| is_near(view, header));
    let (section, size) = near.map(|(i, header)| (i, header.size)).max_by_key(|(_, size)| *size).unwrap_or_default();
    Err(Error::Memory(MemoryError::ArenaExhausted {
        object: view.object.into(),
        requested: bytes,
        section: view.label(section),
        section_bytes: size,
        largest_free: arena,
        arena_bytes: arena,
    }))
}

/// Returns whether a section always lies in the arena.
fn is_near(view: &View<'_>, header: &SectionHeader) -> bool {
    header.is(SHF_ALLOC) && !(view.machine == EM_X86_64 && header.is(SHF_X86_64_LARGE))
}

/// Returns for each section whether it is linked: whether a visible symbol, a called or a retained section is in it or
/// leads to it.
fn kept(view: &View<'_>, index: &ObjectIndex) -> Vec<bool> {
    let mut kept = vec![false; view.count() as usize];
    let mut next = Vec::new();
    let mut keep = |section: u32, next: &mut Vec<u32>| {
        if let Some(slot) = kept.get_mut(section as usize).filter(|slot| !**slot) {
            *slot = true;
            next.push(section);
        }
    };
    let seen = index.definitions.iter().map(|definition| definition.section);
    let called = index.arrays.iter().map(|array| array.section);
    let of_threads = index.thread_local.iter().flat_map(|own| own.sections.iter().copied());
    for section in seen.chain(called).chain(of_threads).chain(index.retain.iter().copied()).filter(|s| *s != 0) {
        keep(section, &mut next);
    }
    // Code keeps its unwind tables; unwind tables keep no code.
    let is_frames = |section: u32| view.header(section).is_some_and(|h| view.is_unwind_table(&h));
    view.sections().filter(|(section, _)| is_frames(*section)).for_each(|(section, _)| keep(section, &mut next));
    let mut of_section: HashMap<u32, Vec<(u32, SectionHeader)>> = HashMap::new();
    for (i, header) in view.sections().filter(|(_, header)| header.kind == SHT_RELA) {
        of_section.entry(header.info).or_default().push((i, header));
    }
    // Validation has accepted the table.
    let Ok(tables) = symbol_table(view, &mut ObjectReport::new(Mode::Load)) else { return kept };
    while let Some(section) = next.pop() {
        for (i, header) in of_section.remove(&section).unwrap_or_default() {
            for entry in view.relocations(i, &header).ok().flatten().unwrap_or_default() {
                let symbol = (entry.r_info.get(LE) >> 32) as u32;
                let decoded = tables.symbols.get(symbol as usize).map(Symbol::decode);
                let Some(Place::Section(to)) = decoded.map(|s| place(&tables, symbol, &s)) else { continue };
                if !is_frames(section) || view.header(to).is_some_and(|to| !to.is(SHF_EXECINSTR)) {
                    keep(to, &mut next);
                }
            }
        }
    }
    kept
}
