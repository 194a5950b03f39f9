//! The records of an unwind table (LSB, "The .eh_frame section").

use std::ops::Range;

/// A CIE or an FDE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// Offset of its length.
    pub start: usize,
    /// 0 for a CIE; for an FDE, the distance from its CIE to this field.
    pub id: u32,
    /// The contents behind that field.
    pub body: Range<usize>,
}

impl Record {
    /// Returns the offset of the field that tells a CIE from an FDE.
    pub(crate) fn id_at(&self) -> usize {
        self.body.start - 4
    }
}

/// Returns about how many records a table has, so that a list of them need not grow: few are shorter than this.
pub(crate) fn likely_count(contents: &[u8]) -> usize {
    contents.len() / 24
}

/// Returns all records. Terminators are skipped, since JITLink reads on behind them. A record that is cut off, or that
/// has the extended form for 4 GiB and more, ends the iteration with an error: its offset.
pub(crate) fn records(contents: &[u8]) -> impl Iterator<Item = Result<Record, usize>> {
    let word = |at: usize| contents.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    let mut at = 0;
    std::iter::from_fn(move || {
        while word(at) == Some(0) {
            at += 4;
        }
        if at >= contents.len() {
            return None;
        }
        let start = at;
        let record = || {
            let length = word(start).filter(|length| *length != u32::MAX)?;
            let end = (start + 4).checked_add(length as usize).filter(|end| *end <= contents.len())?;
            Some(Record { start, id: word(start + 4)?, body: (length >= 4).then_some(start + 8..end)? })
        };
        let found = record();
        at = found.as_ref().map_or(contents.len(), |record| record.body.end);
        Some(found.ok_or(start))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_found_up_to_one_that_is_cut_off() {
        let cie = b"\x08\0\0\0\0\0\0\0body";
        let fde = b"\x04\0\0\0\x10\0\0\0";
        let read = |parts: &[&[u8]]| records(&parts.concat()).collect::<Vec<_>>();
        let (first, second) = (Record { start: 0, id: 0, body: 8..12 }, Record { start: 16, id: 16, body: 24..24 });
        assert_eq!(read(&[cie, &[0; 4], fde]), [Ok(first.clone()), Ok(second)]);
        assert_eq!(read(&[]), []);
        for bad in
            [&b"\x01"[..], b"\xff\xff\xff\xff\0\0\0\0", b"\x03\0\0\0\0\0\0\0", b"\x05\0\0\0\0\0\0\0", b"\x04\0\0\0"]
        {
            assert_eq!(read(&[cie, bad]), [Ok(first.clone()), Err(12)]);
        }
    }
}
