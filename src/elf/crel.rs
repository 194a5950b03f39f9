//! Decoding of compact relocations (`SHT_CREL`), which every LLVM's JITLink ignores silently, to `SHT_RELA`.

use object::read::elf::CrelIterator;

use super::patch::{Patch, Value};
use super::plugin::ObjectReport;
use super::report::ChangeKind;
use crate::elf::elf_abi::{RELA_SIZE, SHT_CREL, SHT_RELA, field};
use crate::elf::elf_view::View;
use crate::{Error, Limits, ObjectError, Result};

pub(crate) const NAME: &str = "crel";

pub(crate) fn prepare(view: &View<'_>, limits: &Limits, report: &mut ObjectReport) -> Result<Option<Patch>> {
    if !view.sections().any(|(_, header)| header.kind == SHT_CREL) {
        return Ok(None);
    }
    report.begin(NAME);
    let mut patch = Patch::new(view.bytes.len());
    let mut total = 0_u64;
    for (index, header) in view.sections().filter(|(_, header)| header.kind == SHT_CREL) {
        let contents = view.contents(index, &header)?;
        let Ok(entries) = CrelIterator::new(contents) else {
            report.refuse(|| {
                view.malformed(Some(index), Some(0), "the header of the compact relocations cannot be read")
            })?;
            continue;
        };
        let count = entries.len() as u64;
        total = total.saturating_add(count);
        if total > limits.relocations {
            report.refuse(|| {
                Error::Object(ObjectError::TooManyRelocations {
                    object: view.object.into(),
                    count: total,
                    limit: limits.relocations,
                })
            })?;
            continue;
        }
        // An entry has at least one byte.
        if count > contents.len() as u64 {
            report.refuse(|| {
                view.malformed(Some(index), Some(0), format!("{count} compact relocations in {} bytes", contents.len()))
            })?;
            continue;
        }
        if !entries.is_rela() {
            // Neither x86-64 nor AArch64 keeps addends in the section's bytes.
            report.refuse(|| {
                Error::Object(ObjectError::UnsupportedRelocation {
                    object: view.object.into(),
                    section: view.label(index),
                    offset: 0,
                    relocation: "SHT_CREL without addends".into(),
                    symbol: "any".into(),
                    reason: "the ABI of this machine has explicit addends; compile without implicit addends".into(),
                })
            })?;
            continue;
        }
        let Some(table) = decode(entries) else {
            report.refuse(|| {
                view.malformed(Some(index), None, "the compact relocations end in the middle of an entry")
            })?;
            continue;
        };
        let offset = patch.begin();
        patch.extend(&table);
        patch.write(view.header_field(index, field::SH_TYPE), Value::U32(SHT_RELA));
        patch.write(view.header_field(index, field::SH_OFFSET), Value::U64(offset));
        patch.write(view.header_field(index, field::SH_SIZE), Value::U64(table.len() as u64));
        patch.write(view.header_field(index, field::SH_ADDRALIGN), Value::U64(8));
        patch.write(view.header_field(index, field::SH_ENTSIZE), Value::U64(RELA_SIZE));
        report.change(Some((index, &view.label(index))), ChangeKind::CrelDecoded { count });
    }
    Ok(Some(patch))
}

fn decode(entries: CrelIterator<'_>) -> Option<Vec<u8>> {
    let mut table = Vec::with_capacity(entries.len().checked_mul(RELA_SIZE as usize)?);
    for entry in entries {
        let entry = entry.ok()?;
        let info = u64::from(entry.r_sym) << 32 | u64::from(entry.r_type.0);
        table.extend_from_slice(&entry.r_offset.to_le_bytes());
        table.extend_from_slice(&info.to_le_bytes());
        table.extend_from_slice(&entry.r_addend.to_le_bytes());
    }
    Some(table)
}
