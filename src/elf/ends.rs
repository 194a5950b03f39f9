//! Ends of unwind tables.
//!
//! A length of 0 ends an unwind table. crtend.o has one of nothing else, and a merged object (`ld -r`) may have ends
//! between records. JITLink takes an end for a record, and fails (`EHFrameEdgeFixer`, LLVM 15 to 22: "The stream is too
//! short"); it makes an end itself. Padding of a record is zeros too (`DW_CFA_nop`), so zeros behind a record become
//! its padding. What is nothing but zeros is data: its section loses its name.

use super::patch::{Patch, Value};
use super::plugin::ObjectReport;
use super::raw::{SHT_PROGBITS, SHT_X86_64_UNWIND, field};
use super::records::records;
use super::report::ChangeKind;
use super::view::View;
use crate::Result;

pub(crate) const NAME: &str = "ends";

pub(crate) fn prepare(view: &View<'_>, report: &mut ObjectReport) -> Result<Option<Patch>> {
    let mut patch = Patch::new(view.bytes.len());
    for table in view.unwind_tables() {
        let (index, header, contents) = table?;
        let change = if contents.iter().all(|byte| *byte == 0) {
            if contents.is_empty() || !matches!(header.kind, SHT_PROGBITS | SHT_X86_64_UNWIND) {
                continue;
            }
            // String tables begin with the empty name.
            patch.write(view.header_field(index, field::SH_NAME), Value::U32(0));
            ChangeKind::Renamed { to: String::new() }
        } else {
            let bytes = pad(contents, header.offset, &mut patch);
            if bytes == 0 {
                continue;
            }
            ChangeKind::EndsPadded { bytes }
        };
        report.begin(NAME);
        report.change(Some((index, ".eh_frame")), change);
    }
    Ok((!patch.is_empty()).then_some(patch))
}

/// Gives zeros to the record before them, in a table at an offset of the file; how many.
fn pad(contents: &[u8], offset: u64, patch: &mut Patch) -> u64 {
    let mut all = 0;
    for record in records(contents).map_while(Result::ok) {
        let end = record.body.end;
        let behind = contents.get(end..).unwrap_or_default();
        // The last word may be cut off.
        let zeros = behind.chunks(4).take_while(|word| word.iter().all(|byte| *byte == 0));
        let zeros: usize = zeros.map(<[u8]>::len).sum();
        if zeros > 0
            && let Ok(length) = u32::try_from(end - record.start - 4 + zeros)
        {
            patch.write(offset.saturating_add(record.start as u64), Value::U32(length));
            all += zeros as u64;
        }
    }
    all
}
