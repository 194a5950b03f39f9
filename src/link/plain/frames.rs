//! Unwind tables that stay as they are.

use crate::elf::link_tables::Relocation;
use crate::elf::records;

/// Looks whether a table is what compilers write, so that nothing has to be taken apart or added: CIEs with
/// augmentation data, and FDEs that have a reference where their function's address belongs, which `describes` accepts.
/// Preparation has checked everything else (`validate::unwind_checks`).
pub(super) fn check(
    contents: &[u8],
    relocations: impl Iterator<Item = Relocation>,
    describes: impl Fn(&Relocation) -> bool,
) -> Option<()> {
    let mut relocations = relocations.peekable();
    let mut at = 0;
    for record in records(contents) {
        let record = record.ok()?;
        // No end before the end.
        if record.start != at {
            return None;
        }
        at = record.body.end;
        let first = record.body.start as u64;
        if record.id == 0 {
            // The version, and the first letter of the augmentation.
            contents.get(record.body.start + 1).filter(|letter| **letter == b'z')?;
        } else {
            relocations.next_if(|relocation| relocation.offset == first && describes(relocation))?;
        }
        while relocations.next_if(|relocation| (first..at as u64).contains(&relocation.offset)).is_some() {}
    }
    (at == contents.len() && relocations.next().is_none()).then_some(())
}
