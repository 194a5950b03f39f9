//! What an object may cost, counted before anything is made of it: what is announced costs nothing to announce.

use object::read::elf::CrelIterator;

use super::raw::{HEADER_SIZE, RELA_SIZE, SECTION_SIZE, SHT_CREL, SHT_NULL, SHT_RELA, SHT_SYMTAB, SYMBOL_SIZE};
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
    let mut names = NameBudget::new(view.names().len(), view.count() as usize);
    for (index, header) in view.sections().filter(|(_, header)| header.kind != SHT_NULL) {
        names.spend(view, view.name_of(&header)?)?;
        view.contents(index, &header)?;
    }
    if let Some((index, other)) = overlap(view) {
        // What changes in one, when it is prepared or linked, would change in the other.
        let problem = format!("its contents and those of {other} overlap in the file");
        return Err(view.malformed(Some(index), None, problem));
    }
    let (bytes, limit) = (working_bytes(view), limits.working_bytes);
    if bytes > limit {
        return Err(Error::WorkingMemoryTooLarge { object: view.object.into(), bytes, limit });
    }
    Ok(())
}

/// A section of which the contents overlap something else, and what that is.
fn overlap(view: &View<'_>) -> Option<(u32, String)> {
    let headers = SECTION_SIZE * u64::from(view.count());
    let mut ranges = Vec::with_capacity(view.count() as usize + 1);
    ranges.extend([(0, HEADER_SIZE, None), (view.table, view.table.saturating_add(headers), None)]);
    let filled = view.sections().filter(|(_, header)| header.has_contents() && header.size != 0);
    ranges.extend(filled.map(|(index, h)| (h.offset, h.offset.saturating_add(h.size), Some(index))));
    ranges.sort_unstable();
    let pair = ranges.windows(2).find(|pair| matches!(pair, [(_, end, _), (start, ..)] if start < end))?;
    let mut sections = pair.iter().filter_map(|(.., index)| *index);
    let index = sections.next()?;
    Some((index, sections.next().map_or("a header".into(), |other| format!("section '{}'", view.label(other)))))
}

/// What preparing and linking the object may take, by the numbers of its parts. What is mapped and what is decompressed have limits of
/// their own.
fn working_bytes(view: &View<'_>) -> u64 {
    let mut bytes = (view.bytes.len() as u64).saturating_mul(2);
    for (index, header) in view.sections() {
        let contents = view.contents(index, &header).unwrap_or_default();
        let parts = match header.kind {
            SHT_RELA => (header.size / RELA_SIZE).saturating_mul(FOR_RELOCATION),
            SHT_CREL => {
                // An entry has at least one byte; what announces more is refused.
                let announced = CrelIterator::new(contents).map_or(0, |entries| entries.len());
                (announced.min(contents.len()) as u64).saturating_mul(FOR_RELOCATION)
            }
            SHT_SYMTAB => (header.size / SYMBOL_SIZE).saturating_mul(FOR_SYMBOL),
            _ if view.name_begins_with(&header, b".eh_frame\0") => header.size.saturating_mul(FOR_FRAME_BYTE),
            _ => 0,
        };
        bytes = bytes.saturating_add(parts).saturating_add(FOR_SECTION);
    }
    bytes
}
