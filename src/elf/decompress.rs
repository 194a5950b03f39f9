//! Decompression of sections (`SHF_COMPRESSED`), whose compressed bytes JITLink would link as they are.

use std::io::{self, Read};

use flate2::bufread::ZlibDecoder;
use object::elf::CompressionHeader64;
use object::pod;
use ruzstd::decoding::StreamingDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};

use super::patch::{Patch, Value};
use super::plugin::ObjectReport;
use super::report::ChangeKind;
use crate::elf::elf_abi::{LE, SHF_ALLOC, SHF_COMPRESSED, field};
use crate::elf::elf_view::View;
use crate::{Error, Limits, ObjectError, Result};

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
        let format = match compression.ch_type.get(LE).0 {
            1 => Format::Zlib,
            2 => Format::Zstandard,
            other => {
                report
                    .refuse(|| view.malformed(Some(index), Some(0), format!("compression type {other} is unknown")))?;
                continue;
            }
        };
        let uncompressed_size = compression.ch_size.get(LE);
        total = total.saturating_add(uncompressed_size);
        if total > limits.decompressed_bytes {
            report.refuse(|| {
                Error::Object(ObjectError::DecompressedTooLarge {
                    object: view.object.into(),
                    section: view.label(index),
                    bytes: total,
                    limit: limits.decompressed_bytes,
                })
            })?;
            continue;
        }
        let offset = patch.begin();
        if let Err(error) = format.expand(data, uncompressed_size, &mut patch) {
            report.refuse(|| view.malformed(Some(index), None, format!("it cannot be decompressed: {error}")))?;
            continue;
        }
        patch.write(view.header_field(index, field::SH_FLAGS), Value::U64(header.flags & !SHF_COMPRESSED));
        patch.write(view.header_field(index, field::SH_OFFSET), Value::U64(offset));
        patch.write(view.header_field(index, field::SH_SIZE), Value::U64(uncompressed_size));
        patch.write(view.header_field(index, field::SH_ADDRALIGN), Value::U64(compression.ch_addralign.get(LE)));
        report.change(
            Some((index, &view.label(index))),
            ChangeKind::Decompressed { format: format.name().into(), from: header.size, to: uncompressed_size },
        );
    }
    Ok(Some(patch))
}

#[derive(Debug, Clone, Copy)]
enum Format {
    Zlib,
    Zstandard,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Self::Zlib => "zlib",
            Self::Zstandard => "zstd",
        }
    }

    /// Returns the most bytes that `compressed` bytes can expand to.
    fn most(self, compressed: usize) -> u64 {
        let compressed = compressed as u64;
        match self {
            // Two bits are a match of 258 bytes (RFC 1951, 3.2.5).
            Self::Zlib => compressed.saturating_mul(4 * 258),
            // A block of 4 bytes repeats one byte 128 KiB times (RFC 8878, 3.1.1.2).
            Self::Zstandard => (compressed / 4).saturating_mul(128 << 10),
        }
    }

    /// Appends the expanded data, which must have `size` bytes. Memory grows with the bytes read, not with `size`.
    fn expand(self, data: &[u8], size: u64, patch: &mut Patch) -> io::Result<()> {
        if size > self.most(data.len()) {
            return Err(wrong(format!("{} bytes of {} cannot stand for {size}", data.len(), self.name())));
        }
        let mut left = size;
        match self {
            Self::Zlib => append(&mut ZlibDecoder::new(data), &mut left, patch)?,
            Self::Zstandard => {
                let mut frames = data;
                while !frames.is_empty() {
                    match StreamingDecoder::new(&mut frames) {
                        Ok(mut frame) => append(&mut frame, &mut left, patch)?,
                        Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                            length,
                            ..
                        })) => {
                            frames = frames.get(length as usize..).ok_or_else(|| wrong("a frame is cut off".into()))?;
                        }
                        Err(error) => return Err(wrong(error.to_string())),
                    }
                }
            }
        }
        if left != 0 {
            return Err(wrong(format!("it has {} bytes, the header says {size}", size - left)));
        }
        Ok(())
    }
}

/// Appends all readable bytes, at most `left`.
fn append(from: &mut impl Read, left: &mut u64, patch: &mut Patch) -> io::Result<()> {
    let mut chunk = vec![0; 64 << 10];
    loop {
        let count = match from.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            count => count?,
        };
        let Some(read) = chunk.get(..count).filter(|read| !read.is_empty()) else { return Ok(()) };
        *left = left.checked_sub(count as u64).ok_or_else(|| wrong("it has more bytes than the header says".into()))?;
        patch.extend(read);
    }
}

fn wrong(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
