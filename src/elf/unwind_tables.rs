//! Rewriting of unwind tables for JITLink (`EHFrameEdgeFixer`, LLVM 15 to 22). One walk over the records finds all
//! changes.
//!
//! **Ends.** A length of 0 ends a table. crtend.o has nothing but one, and a merged object (`ld -r`) may have ends
//! between records. JITLink reads an end as a record, and fails ("The stream is too short"); it adds an end itself.
//! Padding of a record is zeros too (`DW_CFA_nop`), so zeros behind a record become its padding. A section of nothing
//! but zeros is data, and loses its name.
//!
//! **Version 3 of CIEs**, as `gcc -fno-dwarf2-cfi-asm` writes it. JITLink reads version 1 only (`processCIE`); linkers
//! and unwinders read both. They differ only in the return address's register, a byte in one and ULEB128 in the other
//! (DWARF 3, 6.4.1), which are the same for numbers below 128.
//!
//! **Signal frames** (`.cfi_signal_frame`, as around libc's `rt_sigreturn`). JITLink refuses an object if a CIE's
//! augmentation string has an `S` (`parseAugmentationString`), which stands for no data; unwinders need it. [`prepare`]
//! ends the string before the `S`. The old end of the string becomes a first byte of the code alignment factor, 0x80,
//! which no assembler writes: `"zRS\0" 01` is `"zR\0" 80 01` until [`restore_signal_frames`] reverts it. (DWARF 4,
//! 6.4.1 and 7.6; LSB, "The .eh_frame section".)

use std::ops::Range;

use super::elf_abi::{SHT_PROGBITS, SHT_X86_64_UNWIND, field};
use super::elf_view::View;
use super::patch::{Patch, Value};
use super::plugin::ObjectReport;
use super::records::records;
use super::report::ChangeKind;
use crate::Result;

/// Names for reports.
const ENDS: &str = "ends";
const CIE_VERSIONS: &str = "cie-versions";

/// Begins a code alignment factor: ULEB128 for "nothing yet, and more follows".
const MARK: u8 = 0x80;

/// Makes the changes. Sets `signal_frames` if an `S` was hidden; none is hidden unless each is the last letter of its
/// string.
pub(crate) fn prepare(view: &View<'_>, report: &mut ObjectReport, signal_frames: &mut bool) -> Result<Option<Patch>> {
    let mut patch = Patch::new(view.bytes.len());
    let (mut versions, mut signals, mut is_marked) = (Vec::new(), Vec::new(), false);
    for (index, header) in view.unwind_tables() {
        let contents = view.contents(index, &header)?;
        let mut change = |name, change| {
            report.begin(name);
            report.change(Some((index, ".eh_frame")), change);
        };
        if contents.iter().all(|byte| *byte == 0) {
            if !contents.is_empty() && matches!(header.kind, SHT_PROGBITS | SHT_X86_64_UNWIND) {
                // String tables begin with the empty name.
                patch.write(view.header_field(index, field::SH_NAME), Value::U32(0));
                change(ENDS, ChangeKind::Renamed { to: String::new() });
            }
            continue;
        }
        let at = |offset: usize| header.offset.saturating_add(offset as u64);
        let (mut padded, mut count) = (0, 0);
        for mut record in records(contents).map_while(Result::ok) {
            let zeros = zeros_behind(contents, record.body.end);
            if zeros > 0
                && let Ok(length) = u32::try_from(record.body.end + zeros - record.start - 4)
            {
                patch.write(at(record.start), Value::U32(length));
                record.body.end += zeros;
                padded += zeros as u64;
            }
            let string_end = if record.id == 0 { end_of_string(contents, &record.body) } else { None };
            let Some(end) = string_end else { continue };
            if contents.get(record.body.start) == Some(&3) && is_like_version_1(contents.get(end + 1..record.body.end))
            {
                patch.write(at(record.body.start), Value::U8(1));
                count += 1;
            }
            match contents.get(end - 1..end + 2) {
                // A hidden one would look the same.
                Some([_, _, MARK]) => is_marked = true,
                Some([b'S', ..]) => signals.push(at(end)),
                _ => {}
            }
        }
        if padded > 0 {
            change(ENDS, ChangeKind::EndsPadded { bytes: padded });
        }
        if count > 0 {
            versions.push((index, count));
        }
    }
    for (index, count) in versions {
        report.begin(CIE_VERSIONS);
        report.change(Some((index, ".eh_frame")), ChangeKind::CieVersions { count });
    }
    for end in signals.into_iter().filter(|_| !is_marked) {
        patch.write(end - 1, Value::U8(0));
        patch.write(end, Value::U8(MARK));
        *signal_frames = true;
    }
    Ok((!patch.is_empty()).then_some(patch))
}

/// Returns the number of zeros that end the table behind a record.
fn zeros_behind(contents: &[u8], end: usize) -> usize {
    // The last word may be cut off.
    let words = contents.get(end..).unwrap_or_default().chunks(4);
    words.take_while(|word| word.iter().all(|byte| *byte == 0)).map(<[u8]>::len).sum()
}

/// Returns the offset of the NUL byte that ends a CIE's augmentation string.
fn end_of_string(contents: &[u8], body: &Range<usize>) -> Option<usize> {
    // The string follows the version byte.
    let start = body.start + 1;
    let string = contents.get(start..body.end)?;
    Some(start + string.iter().position(|byte| *byte == 0)?)
}

/// Returns whether a CIE of version 3 is valid as version 1, by the bytes behind the augmentation string.
fn is_like_version_1(behind: Option<&[u8]>) -> bool {
    let register = || {
        // The two alignment factors end in a byte without the highest bit.
        let (second, _) = behind?.iter().enumerate().filter(|(_, byte)| **byte < 0x80).nth(1)?;
        behind?.get(second + 1)
    };
    register().is_some_and(|register| *register < 0x80)
}

/// Restores each `S` in an `.eh_frame` of an object that [`prepare`] has changed.
pub(crate) fn restore_signal_frames(contents: &mut [u8]) {
    let cies = records(contents).map_while(Result::ok).filter(|record| record.id == 0);
    let ends = cies.filter_map(|cie| end_of_string(contents, &cie.body));
    let hidden: Vec<_> = ends.filter(|end| contents.get(end + 1) == Some(&MARK)).collect();
    for end in hidden {
        if let Some(bytes) = contents.get_mut(end..end + 2) {
            bytes.copy_from_slice(b"S\0");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::plugin::Mode;
    use super::super::testing::{X86, asm, gcc, prepare as whole, put, section};
    use super::*;

    const SOURCE: &str = "void g(void); int f(int x) { g(); return x; }";

    #[test]
    fn what_gcc_writes_itself_is_taken() {
        let bytes = gcc(&["-O1", "-fno-dwarf2-cfi-asm"], SOURCE);
        let (_, header) = section(&bytes, ".eh_frame", 0);
        let at = header.offset as usize;
        assert_eq!(bytes[at + 8], 3, "gcc writes another version");
        let prepared = whole(X86, &bytes).unwrap();
        let mut expected = bytes.clone();
        expected[at + 8] = 1;
        assert_eq!(*prepared.bytes, *expected);
        assert!(prepared.changes[0].to_string().contains("version 3"), "{}", prepared.changes[0]);
    }

    #[test]
    fn a_register_of_two_bytes_is_left_alone() {
        let mut bytes = gcc(&["-O1", "-fno-dwarf2-cfi-asm"], SOURCE);
        let (_, header) = section(&bytes, ".eh_frame", 0);
        let at = header.offset as usize + 9;
        let string = bytes[at..].iter().position(|byte| *byte == 0).unwrap();
        // Code and data factors have a byte each.
        put(&mut bytes, (at + string + 3) as u64, &[0x90]);
        assert!(whole(X86, &bytes).unwrap_err().to_string().contains("has the version 3"));
    }

    fn eh_frame(bytes: &[u8]) -> Vec<u8> {
        let view = View::parse("test.o", bytes, u64::MAX).unwrap();
        let (index, header) = view.sections().find(|(i, _)| view.label(*i) == ".eh_frame").unwrap();
        view.contents(index, &header).unwrap().to_vec()
    }

    /// Returns the patch, and whether signal frames are hidden.
    fn patch(bytes: &[u8]) -> (Option<Patch>, bool) {
        let (view, mut hidden) = (View::parse("test.o", bytes, u64::MAX).unwrap(), false);
        (prepare(&view, &mut ObjectReport::new(Mode::Load), &mut hidden).unwrap(), hidden)
    }

    #[test]
    fn signal_frames_are_hidden_and_put_back() {
        let function = |name: &str, more: &str| format!("{name}: .cfi_startproc\n{more}\nnop\n.cfi_endproc\n");
        let source = function("plain", "") + &function("signal", ".cfi_signal_frame");
        let bytes = asm(&source);
        let before = eh_frame(&bytes);
        assert!(before.windows(4).any(|w| w == b"zRS\0") && before.windows(3).any(|w| w == b"zR\0"), "{before:x?}");

        let (Some(patch_of_signals), true) = patch(&bytes) else { panic!("none is hidden") };
        let mut changed = std::borrow::Cow::Borrowed(&bytes[..]);
        assert!(patch_of_signals.apply(&mut changed));
        let mut hidden = eh_frame(&changed);
        assert!(!hidden.contains(&b'S'), "{hidden:x?}");
        restore_signal_frames(&mut hidden);
        assert_eq!(hidden, before);

        assert!(matches!(patch(&asm(&function("plain", ""))), (None, false)));
        // A hidden one would look like an original mark.
        let mut marked = bytes.clone();
        let (_, header) = section(&bytes, ".eh_frame", 0);
        let plain = before.windows(3).position(|w| w == b"zR\0").unwrap();
        put(&mut marked, header.offset + plain as u64 + 3, &[MARK]);
        assert!(matches!(patch(&marked), (None, false)));
    }

    #[test]
    fn damaged_tables_are_left_alone() {
        for bytes in [
            &b""[..],
            b"\x01",
            b"\xff\xff\xff\xff",
            b"\x08\0\0\0\0\0\0\0",
            b"\x06\0\0\0\0\0\0\0\x01z",
            b"\xf0\0\0\0\0\0\0\0\x01S\0",
        ] {
            let mut copy = bytes.to_vec();
            restore_signal_frames(&mut copy);
            assert_eq!(copy, bytes);
        }
    }
}
