//! What an object may cost, counted before anything is made of it: what is announced costs nothing to announce.

use object::read::elf::CrelIterator;

use super::raw::{
    HEADER_SIZE, RELA_SIZE, SECTION_SIZE, SHT_CREL, SHT_NULL, SHT_RELA, SHT_SYMTAB, SYMBOL_SIZE, SectionHeader,
};
use super::view::{NameBudget, View};
use crate::{Error, Limits, Result};

/// Bytes of memory that preparation and LLVM were seen to take for each of them (LLVM 19 and 22), and half as much again.
const FOR_SECTION: u64 = 2048;
const FOR_SYMBOL: u64 = 512;
const FOR_RELOCATION: u64 = 256;
/// For each byte of an unwind table: its records are many and small.
const FOR_FRAME_BYTE: u64 = 64;

/// Refuses an object of which sections share contents or names without end, or that would take too much memory. All that follows
/// takes memory, and time, in proportion to the object's size because of it.
pub(crate) fn check(view: &View<'_>, limits: &Limits) -> Result<()> {
    names(view)?;
    let headers = SECTION_SIZE * u64::from(view.count());
    let mut ranges = Vec::with_capacity(view.count() as usize + 1);
    ranges.extend([(0, HEADER_SIZE, None), (view.table, view.table.saturating_add(headers), None)]);
    // What preparing and linking the object may take, by the numbers of its parts. What is mapped and what is
    // decompressed have limits of their own.
    let mut bytes = (view.bytes.len() as u64).saturating_mul(2);
    for (index, header) in view.sections() {
        bytes = bytes.saturating_add(FOR_SECTION);
        if header.kind == SHT_NULL {
            continue;
        }
        if header.has_contents() && header.size != 0 {
            let end = header.offset.saturating_add(header.size);
            if end > view.bytes.len() as u64 {
                // Which is an error.
                view.contents(index, &header)?;
            }
            ranges.push((header.offset, end, Some(index)));
        }
        bytes = bytes.saturating_add(of_parts(view, index, &header)?);
    }
    if let Some((index, other)) = overlap(view, ranges) {
        // What changes in one, when it is prepared or linked, would change in the other.
        let problem = format!("its contents and those of {other} overlap in the file");
        return Err(view.malformed(Some(index), None, problem));
    }
    let limit = limits.working_bytes;
    if bytes > limit {
        return Err(Error::WorkingMemoryTooLarge { object: view.object.into(), bytes, limit });
    }
    Ok(())
}

/// A section of which the contents overlap something else, and what that is.
fn overlap(view: &View<'_>, mut ranges: Vec<(u64, u64, Option<u32>)>) -> Option<(u32, String)> {
    ranges.sort_unstable();
    let pair = ranges.windows(2).find(|pair| matches!(pair, [(_, end, _), (start, ..)] if start < end))?;
    let mut sections = pair.iter().filter_map(|(.., index)| *index);
    let index = sections.next()?;
    Some((index, sections.next().map_or("a header".into(), |other| format!("section '{}'", view.label(other)))))
}

/// Refuses section names that overlap without end.
fn names(view: &View<'_>) -> Result<()> {
    let (table, count) = (view.names().len(), view.count() as usize);
    let mut budget = NameBudget::new(table, count);
    // Few names are not that many, however long they are.
    if !budget.allows(table.saturating_mul(count)) {
        for (_, header) in view.sections().filter(|(_, header)| header.kind != SHT_NULL) {
            budget.spend(view, view.name_of(&header)?)?;
        }
    }
    Ok(())
}

/// The memory that a section's parts may take.
fn of_parts(view: &View<'_>, index: u32, header: &SectionHeader) -> Result<u64> {
    Ok(match header.kind {
        SHT_RELA => (header.size / RELA_SIZE).saturating_mul(FOR_RELOCATION),
        SHT_CREL => {
            let contents = view.contents(index, header)?;
            // An entry has at least one byte; what announces more is refused.
            let announced = CrelIterator::new(contents).map_or(0, |entries| entries.len());
            (announced.min(contents.len()) as u64).saturating_mul(FOR_RELOCATION)
        }
        SHT_SYMTAB => (header.size / SYMBOL_SIZE).saturating_mul(FOR_SYMBOL),
        _ if view.is_unwind_table(header) => header.size.saturating_mul(FOR_FRAME_BYTE),
        _ => 0,
    })
}
