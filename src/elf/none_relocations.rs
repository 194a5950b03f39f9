//! Relocations that patch nothing.
//!
//! `R_*_NONE` only records a dependency. LLVM writes sections of them for profile-guided builds as `SHT_REL`
//! (`.rel.llvm.call-graph-profile`), for which JITLink refuses the whole object on x86-64. On AArch64, and up to LLVM
//! 16 on x86-64, JITLink does not know the kind, so single ones (`.reloc`) are removed too.

use std::slice::ChunksExact;

use crate::Result;
use crate::elf::elf_abi::{EM_AARCH64, EM_X86_64, RELA_SIZE, SHT_NULL, SHT_REL, SHT_RELA, SectionHeader, field};
use crate::elf::elf_view::View;
use crate::elf::patch::{Patch, Value};
use crate::elf::plugin::ObjectReport;
use crate::elf::report::ChangeKind;

pub(crate) const NAME: &str = "marks";

const REL_SIZE: u64 = 16;

/// Returns whether JITLink knows the kind.
pub(crate) fn takes_single_ones(machine: u16, llvm: u32) -> bool {
    machine == EM_AARCH64 || llvm < 17
}

pub(crate) fn prepare(view: &View<'_>, llvm: u32, report: &mut ObjectReport) -> Result<Option<Patch>> {
    let mut patch = Patch::new(view.bytes.len());
    for (index, header) in view.sections() {
        let size = match header.kind {
            SHT_REL => REL_SIZE,
            SHT_RELA if takes_single_ones(view.machine, llvm) => RELA_SIZE,
            _ => continue,
        };
        let Some(entries) = entries(view, index, &header, size)? else { continue };
        let marks = entries.clone().filter(|entry| is_mark(view.machine, entry)).count();
        if marks == 0 {
            continue;
        }
        if marks == entries.len() {
            patch.write(view.header_field(index, field::SH_TYPE), Value::U32(SHT_NULL));
        } else if header.kind == SHT_RELA {
            let offset = patch.begin();
            entries.clone().filter(|entry| !is_mark(view.machine, entry)).for_each(|entry| patch.extend(entry));
            let rest = (entries.len() - marks) as u64 * size;
            patch.write(view.header_field(index, field::SH_OFFSET), Value::U64(offset));
            patch.write(view.header_field(index, field::SH_SIZE), Value::U64(rest));
        } else {
            continue;
        }
        report.begin(NAME);
        report.change(Some((index, &view.label(index))), ChangeKind::Dropped { count: marks as u64 });
    }
    Ok((!patch.is_empty()).then_some(patch))
}

/// Returns the entries of a relocation section, if it is well-formed and not empty.
fn entries<'a>(view: &View<'a>, index: u32, header: &SectionHeader, size: u64) -> Result<Option<ChunksExact<'a, u8>>> {
    let contents = view.contents(index, header)?;
    let formed = !contents.is_empty() && header.entry_size == size && (contents.len() as u64).is_multiple_of(size);
    Ok(formed.then(|| contents.chunks_exact(size as usize)))
}

fn is_mark(machine: u16, entry: &[u8]) -> bool {
    // The kind is the lower half of the second word.
    let kind = entry.get(8..12).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
    matches!((machine, kind), (EM_X86_64, Some(0)) | (EM_AARCH64, Some(0 | 256)))
}
