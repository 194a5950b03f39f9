//! Bounds on an object's cost, checked before anything is allocated for it.

use object::read::elf::CrelIterator;
use smallvec::SmallVec;

use crate::elf::elf_abi::{
    HEADER_SIZE, RELA_SIZE, SECTION_SIZE, SHT_CREL, SHT_NULL, SHT_RELA, SHT_SYMTAB, SYMBOL_SIZE, SectionHeader,
};
use crate::elf::elf_view::{NameBudget, View};
use crate::{Error, Limits, ObjectError, Result};

/// Bytes of memory for each part: the measured use of preparation and LLVM (LLVM 19 and 22), plus half of it.
const FOR_SECTION: u64 = 2048;
const FOR_SYMBOL: u64 = 512;
const FOR_RELOCATION: u64 = 256;
/// Bytes for each byte of an unwind table, which has many small records.
const FOR_FRAME_BYTE: u64 = 64;

/// Refuses an object whose sections share contents or names without end, or that would take too much memory. After this
/// check, memory and time are proportional to the object's size.
pub(crate) fn check(view: &View<'_>, limits: &Limits) -> Result<()> {
    names(view)?;
    let headers = SECTION_SIZE * u64::from(view.count());
    let mut ranges = Ranges::with_capacity(view.count() as usize + 1);
    ranges.push((0, HEADER_SIZE, None));
    // Working memory of preparing and linking the object. Mapped and decompressed bytes have limits of their own.
    let mut bytes = (view.bytes.len() as u64).saturating_mul(2);
    for (index, header) in view.sections() {
        bytes = bytes.saturating_add(FOR_SECTION);
        if header.kind == SHT_NULL {
            continue;
        }
        if header.has_contents() && header.size != 0 {
            let end = header.offset.saturating_add(header.size);
            if end > view.bytes.len() as u64 {
                // Fails if the contents lie outside the file.
                view.contents(index, &header)?;
            }
            ranges.push((header.offset, end, Some(index)));
        }
        bytes = bytes.saturating_add(of_parts(view, index, &header)?);
    }
    // Most objects end with it.
    ranges.push((view.table, view.table.saturating_add(headers), None));
    if let Some((index, other)) = overlap(view, ranges) {
        // A change to one section would also change the other.
        let problem = format!("its contents and those of {other} overlap in the file");
        return Err(view.malformed(Some(index), None, problem));
    }
    let limit = limits.working_bytes;
    if bytes > limit {
        return Err(Error::Object(ObjectError::WorkingMemoryTooLarge { object: view.object.into(), bytes, limit }));
    }
    Ok(())
}

/// Bytes of the file, and the section whose contents they are.
type Ranges = SmallVec<[(u64, u64, Option<u32>); 16]>;

/// Finds a section whose contents overlap something else, and names the other.
fn overlap(view: &View<'_>, mut ranges: Ranges) -> Option<(u32, String)> {
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
    // A few names stay below the budget, however long they are.
    if !budget.allows(table.saturating_mul(count)) {
        for (_, header) in view.sections().filter(|(_, header)| header.kind != SHT_NULL) {
            budget.spend(view, view.name_of(&header)?)?;
        }
    }
    Ok(())
}

/// Returns the memory that a section's parts may take.
fn of_parts(view: &View<'_>, index: u32, header: &SectionHeader) -> Result<u64> {
    Ok(match header.kind {
        SHT_RELA => (header.size / RELA_SIZE).saturating_mul(FOR_RELOCATION),
        SHT_CREL => {
            let contents = view.contents(index, header)?;
            // An entry has at least one byte; validation refuses a count that is larger.
            let announced = CrelIterator::new(contents).map_or(0, |entries| entries.len());
            (announced.min(contents.len()) as u64).saturating_mul(FOR_RELOCATION)
        }
        SHT_SYMTAB => (header.size / SYMBOL_SIZE).saturating_mul(FOR_SYMBOL),
        _ if view.is_unwind_table(header) => header.size.saturating_mul(FOR_FRAME_BYTE),
        _ => 0,
    })
}
