//! The records of unwind tables: those of functions that are kept.

use std::ops::Range;

use smallvec::SmallVec;

use crate::elf::link_tables::{Relocation, Relocations};
use crate::elf::{likely_count, records};

/// A CIE or an FDE.
pub(super) struct Record {
    /// Its place in the object's table.
    pub(super) bytes: Range<usize>,
    /// The positions of its relocations.
    pub(super) relocations: Range<usize>,
    /// The position of its CIE among the records; of a CIE, its own.
    pub(super) cie: usize,
    /// The section of the function that an FDE describes.
    pub(super) function: Option<u32>,
    pub(super) is_kept: bool,
    /// Its offset in the table that is linked, if it is kept.
    pub(super) to: usize,
}

/// The records of a table, in its order.
pub(super) type Records = SmallVec<[Record; 4]>;

/// Reads a table; `None` unless it is what compilers write: CIEs with augmentation data, and FDEs that have a reference
/// where their function's address belongs. `section` is that of a symbol. Preparation has checked everything else
/// (`validate::unwind_checks`).
pub(super) fn read(
    contents: &[u8],
    relocations: Relocations<'_>,
    section: impl Fn(&Relocation) -> Option<u32>,
) -> Option<Records> {
    let mut relocations = relocations.iter().enumerate().peekable();
    let (mut all, mut at, mut next) = (Records::with_capacity(likely_count(contents)), 0, 0);
    for record in records(contents) {
        let record = record.ok()?;
        // No end before the end.
        if record.start != at {
            return None;
        }
        at = record.body.end;
        let first = (next, record.body.start as u64);
        let (mut cie, mut function) = (all.len(), None);
        if record.id == 0 {
            // The version, and the first letter of the augmentation.
            contents.get(record.body.start + 1).filter(|letter| **letter == b'z')?;
        } else {
            let start = record.id_at().checked_sub(record.id as usize)?;
            cie = all.binary_search_by_key(&start, |record: &Record| record.bytes.start).ok()?;
            all.get(cie).filter(|cie| cie.function.is_none())?;
            let (_, of) = relocations.peek().filter(|(_, relocation)| relocation.offset == first.1)?;
            function = Some(section(of)?);
        }
        while relocations.next_if(|(_, relocation)| (first.1..at as u64).contains(&relocation.offset)).is_some() {
            next += 1;
        }
        all.push(Record {
            bytes: record.start..at,
            relocations: first.0..next,
            cie,
            function,
            is_kept: false,
            to: record.start,
        });
    }
    (at == contents.len() && relocations.next().is_none()).then_some(all)
}

/// Returns the sections of functions, sorted, each with the position of a record about it.
pub(super) fn by_function(records: &Records) -> Vec<(u32, usize)> {
    let functions = records.iter().enumerate().filter_map(|(at, record)| Some((record.function?, at)));
    let mut all: Vec<_> = functions.collect();
    all.sort_unstable();
    all
}

/// Returns the positions of the records about functions in a section.
pub(super) fn of(by_function: &[(u32, usize)], section: u32) -> impl Iterator<Item = usize> {
    let first = by_function.partition_point(|(of, _)| *of < section);
    by_function.iter().skip(first).take_while(move |(of, _)| *of == section).map(|(_, at)| *at)
}

/// Lays the kept records out, one behind the other, and returns their size; `None` if that differs from JITLink's
/// order, in which the first one keeps its distance from a multiple of the table's alignment.
pub(super) fn lay_out(records: &mut Records, alignment: u64) -> Option<u64> {
    let mut end = 0;
    for record in records.iter_mut().filter(|record| record.is_kept) {
        if end == 0 && !(record.bytes.start as u64).is_multiple_of(alignment.max(1)) {
            return None;
        }
        record.to = end;
        end += record.bytes.len();
    }
    (end != 0).then_some(end as u64)
}
