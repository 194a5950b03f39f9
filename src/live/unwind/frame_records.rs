//! The records of a linked `.eh_frame` section (LSB, "The .eh_frame section").

use std::ffi::c_void;
use std::ops::Range;

use crate::elf::records;

/// `DW_EH_PE_absptr`.
const ABSOLUTE: u8 = 0x00;
/// `DW_EH_PE_pcrel`.
const RELATIVE: u8 = 0x10;

/// Calls `what` with each FDE.
///
/// # Safety
/// The section ends in a zero terminator, and stays mapped and unchanged meanwhile. Its records follow each other
/// without gaps (the shim's `closeGapsInFrames`), and have no 64-bit lengths (`elf::validate`).
pub(super) unsafe fn each(section: *const c_void, what: impl Fn(*const c_void)) {
    // SAFETY: by the caller.
    let contents = unsafe { contents(section, usize::MAX) }.unwrap_or_default();
    for record in records(contents).flatten().filter(|record| record.id != 0) {
        what(section.wrapping_byte_add(record.start));
    }
}

/// The most records that are looked at for whether they describe only an object's code.
const MOST: usize = 1024;

/// Returns whether the records describe only code within a range. False if they do not show it, or are many.
///
/// # Safety
/// As for [`each`].
pub(super) unsafe fn describe_only(section: *const c_void, code: &Range<u64>) -> bool {
    // SAFETY: by the caller.
    let Some(contents) = (unsafe { contents(section, MOST) }) else { return false };
    let at = section.addr() as u64;
    records(contents).all(|record| {
        let Ok(record) = record else { return false };
        if record.id == 0 {
            return true;
        }
        described(contents, at, record.id_at(), record.id, record.body)
            .is_some_and(|range| code.start <= range.start && range.start < range.end && range.end <= code.end)
    })
}

/// Returns the section's addresses with the terminator, unless it has many records.
///
/// # Safety
/// As for [`each`].
pub(super) unsafe fn extent(section: *const c_void) -> Option<Range<usize>> {
    // SAFETY: by the caller.
    let contents = unsafe { contents(section, MOST) }?;
    Some(section.addr()..section.addr() + contents.len() + 4)
}

/// Returns the section's bytes, unless it has more than `most` records.
///
/// # Safety
/// As for [`each`].
unsafe fn contents<'a>(section: *const c_void, most: usize) -> Option<&'a [u8]> {
    let mut end = section.cast::<u32>();
    let mut records = 0;
    // SAFETY: by the caller, records follow each other to the terminator.
    while let length @ 1.. = unsafe { end.read_unaligned() } {
        records += 1;
        if records > most {
            return None;
        }
        // SAFETY: as above.
        end = unsafe { end.byte_add(4 + length as usize) };
    }
    // SAFETY: as above.
    Some(unsafe { std::slice::from_raw_parts(section.cast(), end.addr() - section.addr()) })
}

/// Returns the code of an FDE.
fn described(contents: &[u8], at: u64, id_at: usize, id: u32, body: Range<usize>) -> Option<Range<u64>> {
    let cie = contents.get(id_at.checked_sub(id as usize)?.checked_add(8)?..)?;
    let encoding = encoding(cie)?;
    let place = at.wrapping_add(body.start as u64);
    let fields = contents.get(body)?;
    // DW_EH_PE_udata4, DW_EH_PE_sdata4; DW_EH_PE_absptr, DW_EH_PE_udata8, DW_EH_PE_sdata8.
    let word = |i: usize| fields.get(i * 4..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    let long = |i: usize| fields.get(i * 8..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let (value, length) = match encoding & 0x0f {
        0x03 => (u64::from(word(0)?), u64::from(word(1)?)),
        0x0b => (word(0)?.cast_signed() as u64, u64::from(word(1)?)),
        0x00 | 0x04 | 0x0c => (long(0)?, long(1)?),
        _ => return None,
    };
    let start = match encoding & 0xf0 {
        ABSOLUTE => value,
        RELATIVE => place.wrapping_add(value),
        _ => return None,
    };
    Some(start..start.checked_add(length)?)
}

/// Returns the encoding of pointers to code; `cie` begins behind the field that makes it a CIE.
fn encoding(cie: &[u8]) -> Option<u8> {
    // Behind the version.
    let cie = cie.get(1..)?;
    let end = cie.iter().position(|byte| *byte == 0)?;
    let (augmentation, rest) = (cie.get(..end)?, cie.get(end + 1..)?);
    let Some(letters) = augmentation.strip_prefix(b"z") else {
        return augmentation.is_empty().then_some(ABSOLUTE);
    };
    let mut bytes = rest.iter().copied();
    let mut number = || bytes.find(|byte| byte & 0x80 == 0);
    // Alignment factors of code and data, the return address's register (one byte), how much augmentation data there
    // is.
    number()?;
    number()?;
    bytes.next()?;
    bytes.find(|byte| byte & 0x80 == 0)?;
    for letter in letters {
        match letter {
            b'R' => return bytes.next(),
            b'L' => drop(bytes.next()?),
            b'P' => {
                let width = if matches!(bytes.next()? & 0x0f, 0x03 | 0x0b) { 4 } else { 8 };
                bytes.nth(width - 1)?;
            }
            b'S' | b'B' => {}
            _ => return None,
        }
    }
    Some(ABSOLUTE)
}
