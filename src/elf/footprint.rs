//! How much of an arena an object takes.

use std::collections::HashMap;

use super::index::ObjectIndex;
use super::plugin::{Mode, ObjectReport};
use super::raw::{
    EM_X86_64, LE, SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE, SHF_X86_64_LARGE, SHT_RELA, SectionHeader, Symbol,
};
use super::validate::{Place, place, symbol_table};
use super::view::View;
use crate::{Error, Result};

/// Pages have at least so many bytes.
const PAGE: u64 = 4096;

/// Bytes that a validated object takes at least: the sections that are linked, as nothing leads to others, and its
/// common symbols. What the linker makes besides, and what lies between, is left out.
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

/// Refuses an object that takes more than an arena has, as the link would.
pub(crate) fn check(view: &View<'_>, bytes: u64, arena: u64) -> Result<()> {
    if bytes <= arena {
        return Ok(());
    }
    let near = view.sections().filter(|(_, header)| is_near(view, header));
    let (section, size) = near.map(|(i, header)| (i, header.size)).max_by_key(|(_, size)| *size).unwrap_or_default();
    Err(Error::ArenaExhausted {
        object: view.object.into(),
        requested: bytes,
        section: view.label(section),
        section_bytes: size,
        largest_free: arena,
        arena_bytes: arena,
    })
}

/// Whether a section lies in the arena in any case.
fn is_near(view: &View<'_>, header: &SectionHeader) -> bool {
    header.is(SHF_ALLOC) && !(view.machine == EM_X86_64 && header.is(SHF_X86_64_LARGE))
}

/// By section, whether it is linked: something that others can see, or that is called or kept in any case, is in it or
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
    // Unwind tables are kept by the code that they describe, and keep no code.
    let is_frames = |section: u32| view.header(section).is_some_and(|h| view.name_begins_with(&h, b".eh_frame\0"));
    view.sections().filter(|(section, _)| is_frames(*section)).for_each(|(section, _)| keep(section, &mut next));
    let mut of_section: HashMap<u32, Vec<(u32, SectionHeader)>> = HashMap::new();
    for (i, header) in view.sections().filter(|(_, header)| header.kind == SHT_RELA) {
        of_section.entry(header.info).or_default().push((i, header));
    }
    // It was validated.
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
