//! Unwind tables of signal frames (`.cfi_signal_frame`, as around libc's `rt_sigreturn`).
//!
//! JITLink refuses an object if a CIE's augmentation string has an `S` (`EHFrameEdgeFixer::parseAugmentationString`, LLVM 15 to 22),
//! which stands for no data; unwinders must find it. [`prepare`] ends the string before the `S`, and what was the string's end becomes a
//! first byte of the code alignment factor, 0x80, which no assembler writes: `"zRS\0" 01` is `"zR\0" 80 01` until [`restore`] has been
//! at it. (DWARF 4, 6.4.1 and 7.6; LSB, "The .eh_frame section".)

use super::patch::{Patch, Value};
use super::records::records;
use super::view::View;
use crate::Result;

/// Begins a code alignment factor: ULEB128 for "nothing yet, and more follows".
const MARK: u8 = 0x80;

/// Hides each `S`. None if there is none, or if it is not the last letter of its string.
pub(crate) fn prepare(view: &View<'_>) -> Result<Option<Patch>> {
    let mut patch = Patch::new(view.bytes.len());
    for table in view.unwind_tables() {
        let (_, header, contents) = table?;
        for end in ends_of_strings(contents) {
            match contents.get(end.wrapping_sub(1)..end.saturating_add(2)) {
                // Then one that is hidden could not be told from it.
                Some([_, _, MARK]) => return Ok(None),
                Some([b'S', ..]) => {
                    let offset = header.offset.saturating_add(end as u64);
                    patch.write(offset - 1, Value::U8(0));
                    patch.write(offset, Value::U8(MARK));
                }
                _ => {}
            }
        }
    }
    Ok((!patch.is_empty()).then_some(patch))
}

/// Puts each `S` back, in an `.eh_frame` whose object [`prepare`] has changed.
pub(crate) fn restore(contents: &mut [u8]) {
    let hidden: Vec<_> = ends_of_strings(contents).filter(|end| contents.get(end + 1) == Some(&MARK)).collect();
    for end in hidden {
        if let Some(bytes) = contents.get_mut(end..end + 2) {
            bytes.copy_from_slice(b"S\0");
        }
    }
}

/// Offsets of the NUL bytes that end the augmentation strings of an `.eh_frame`'s CIEs.
fn ends_of_strings(contents: &[u8]) -> impl Iterator<Item = usize> {
    records(contents).map_while(Result::ok).filter(|record| record.id == 0).filter_map(|record| {
        // The string is behind a byte with the version.
        let start = record.body.start + 1;
        let string = contents.get(start..record.body.end)?;
        Some(start + string.iter().position(|byte| *byte == 0)?)
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::asm;
    use super::*;

    fn eh_frame(bytes: &[u8]) -> Vec<u8> {
        let view = View::parse("test.o", bytes, u64::MAX).unwrap();
        let (index, header) = view.sections().find(|(i, _)| view.label(*i) == ".eh_frame").unwrap();
        view.contents(index, &header).unwrap().to_vec()
    }

    #[test]
    fn signal_frames_are_hidden_and_put_back() {
        let function = |name: &str, more: &str| format!("{name}: .cfi_startproc\n{more}\nnop\n.cfi_endproc\n");
        let source = function("plain", "") + &function("signal", ".cfi_signal_frame");
        let bytes = asm(&source);
        let before = eh_frame(&bytes);
        assert!(before.windows(4).any(|w| w == b"zRS\0") && before.windows(3).any(|w| w == b"zR\0"), "{before:x?}");

        let view = View::parse("test.o", &bytes, u64::MAX).unwrap();
        let patch = prepare(&view).unwrap().unwrap();
        let mut changed = std::borrow::Cow::Borrowed(&bytes[..]);
        assert!(patch.apply(&mut changed));
        let mut hidden = eh_frame(&changed);
        assert!(!hidden.contains(&b'S'), "{hidden:x?}");
        restore(&mut hidden);
        assert_eq!(hidden, before);

        let plain = asm(&function("plain", ""));
        assert!(prepare(&View::parse("test.o", &plain, u64::MAX).unwrap()).unwrap().is_none());
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
            restore(&mut copy);
            assert_eq!(copy, bytes);
        }
    }
}
