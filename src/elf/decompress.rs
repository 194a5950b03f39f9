//! Compressed sections (`SHF_COMPRESSED`), which JITLink would take for their contents, expanded.

use object::elf::CompressionHeader64;
use object::pod;
use object::read::{CompressedData, CompressionFormat};

use super::patch::{Patch, Value};
use super::plugin::ObjectReport;
use super::raw::{LE, SHF_ALLOC, SHF_COMPRESSED, field};
use super::report::ChangeKind;
use super::view::View;
use crate::{Error, Limits, Result};

pub(crate) const NAME: &str = "decompress";

pub(crate) fn prepare(view: &View<'_>, limits: &Limits, report: &mut ObjectReport) -> Result<Option<Patch>> {
    if !view.sections().any(|(_, header)| header.is(SHF_COMPRESSED)) {
        return Ok(None);
    }
    report.begin(NAME);
    let mut patch = Patch::new(view.bytes.len());
    let mut total = 0_u64;
    for (index, header) in view.sections().filter(|(_, header)| header.is(SHF_COMPRESSED)) {
        if header.is(SHF_ALLOC) || !header.has_contents() {
            report.refuse(|| {
                view.malformed(Some(index), None, "a section that is mapped, or has no contents, is compressed")
            })?;
            continue;
        }
        let contents = view.contents(index, &header)?;
        let Ok((compression, data)) = pod::from_bytes::<CompressionHeader64<LE>>(contents) else {
            report.refuse(|| view.malformed(Some(index), Some(0), "the compression header is cut off"))?;
            continue;
        };
        let (format, word) = match compression.ch_type.get(LE).0 {
            1 => (CompressionFormat::Zlib, "zlib"),
            2 => (CompressionFormat::Zstandard, "zstd"),
            other => {
                report
                    .refuse(|| view.malformed(Some(index), Some(0), format!("compression type {other} is unknown")))?;
                continue;
            }
        };
        let uncompressed_size = compression.ch_size.get(LE);
        total = total.saturating_add(uncompressed_size);
        if total > limits.decompressed_bytes {
            report.refuse(|| Error::DecompressedTooLarge {
                object: view.object.into(),
                section: view.label(index),
                bytes: total,
                limit: limits.decompressed_bytes,
            })?;
            continue;
        }
        let contents = match (CompressedData { format, data, uncompressed_size }).decompress() {
            Ok(contents) => contents,
            Err(error) => {
                report.refuse(|| view.malformed(Some(index), None, format!("it cannot be decompressed: {error}")))?;
                continue;
            }
        };
        let offset = patch.begin();
        patch.extend(&contents);
        patch.write(view.header_field(index, field::SH_FLAGS), Value::U64(header.flags & !SHF_COMPRESSED));
        patch.write(view.header_field(index, field::SH_OFFSET), Value::U64(offset));
        patch.write(view.header_field(index, field::SH_SIZE), Value::U64(uncompressed_size));
        patch.write(view.header_field(index, field::SH_ADDRALIGN), Value::U64(compression.ch_addralign.get(LE)));
        report.change(
            Some((index, &view.label(index))),
            ChangeKind::Decompressed { format: word.into(), from: header.size, to: uncompressed_size },
        );
    }
    Ok(Some(patch))
}
