//! Relocation sections that patch nothing.
//!
//! `R_*_NONE` only marks that one thing belongs to another. LLVM writes such sections for profile-guided builds, as
//! `SHT_REL` (`.rel.llvm.call-graph-profile`), for which JITLink refuses the whole object on x86-64; on AArch64, and up to
//! LLVM 16 on x86-64, it does not know the kind either.

use super::patch::{Patch, Value};
use super::plugin::ObjectReport;
use super::raw::{EM_AARCH64, EM_X86_64, RELA_SIZE, SHT_NULL, SHT_REL, SHT_RELA, SectionHeader, field};
use super::report::ChangeKind;
use super::view::View;
use crate::Result;

pub(crate) const NAME: &str = "marks";

const REL_SIZE: u64 = 16;

pub(crate) fn prepare(view: &View<'_>, llvm: u32, report: &mut ObjectReport) -> Result<Option<Patch>> {
    let mut patch = Patch::new(view.bytes.len());
    for (index, header) in view.sections() {
        let size = match header.kind {
            SHT_REL => REL_SIZE,
            SHT_RELA if view.machine == EM_AARCH64 || llvm < 19 => RELA_SIZE,
            _ => continue,
        };
        if marks_only(view, index, &header, size)? {
            report.begin(NAME);
            report.change(Some((index, &view.label(index))), ChangeKind::Dropped);
            patch.write(view.header_field(index, field::SH_TYPE), Value::U32(SHT_NULL));
        }
    }
    Ok((!patch.is_empty()).then_some(patch))
}

fn marks_only(view: &View<'_>, index: u32, header: &SectionHeader, size: u64) -> Result<bool> {
    let contents = view.contents(index, header)?;
    if contents.is_empty() || header.entry_size != size || !(contents.len() as u64).is_multiple_of(size) {
        return Ok(false);
    }
    // The kind is the lower half of the second word.
    let mut kinds = contents.chunks_exact(size as usize).map(|entry| entry.get(8..12).and_then(|b| b.try_into().ok()));
    Ok(kinds.all(|kind| {
        let kind = (view.machine, kind.map(u32::from_le_bytes));
        matches!(kind, (EM_X86_64, Some(0)) | (EM_AARCH64, Some(0 | 256)))
    }))
}
