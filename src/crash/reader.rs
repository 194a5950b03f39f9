//! Reads the encodings of unwind tables (LSB, "DWARF Extensions"; DWARF 5, 7.6).

/// Bytes from an address on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The address of the first byte.
    address: usize,
}

/// `DW_EH_PE_omit`.
const OMITTED: u8 = 0xff;

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8], address: usize) -> Self {
        Self { bytes, at: 0, address }
    }

    /// Returns the address of the next byte.
    pub(super) fn address(&self) -> usize {
        self.address.wrapping_add(self.at)
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Takes the next bytes.
    pub(super) fn take(&mut self, len: usize) -> Option<Self> {
        let end = self.at.checked_add(len)?;
        let taken = Self { bytes: self.bytes.get(self.at..end)?, at: 0, address: self.address() };
        self.at = end;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.bytes.get(self.at..)?.first_chunk()?;
        self.at += N;
        Some(*bytes)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// An unsigned LEB128.
    pub(super) fn unsigned(&mut self) -> Option<u64> {
        self.leb().map(|(value, ..)| value)
    }

    /// A signed LEB128.
    pub(super) fn signed(&mut self) -> Option<i64> {
        let (value, bits, negative) = self.leb()?;
        let sign = if negative && bits < 64 { u64::MAX << bits } else { 0 };
        Some((value | sign).cast_signed())
    }

    fn leb(&mut self) -> Option<(u64, u32, bool)> {
        let (mut value, mut bits) = (0, 0);
        loop {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f).checked_shl(bits).unwrap_or(0);
            bits += 7;
            if byte & 0x80 == 0 {
                return Some((value, bits, byte & 0x40 != 0));
            }
        }
    }

    /// Takes the text up to a NUL.
    pub(super) fn text(&mut self) -> Option<&'a [u8]> {
        let rest = self.bytes.get(self.at..)?;
        let text = rest.get(..rest.iter().position(|byte| *byte == 0)?)?;
        self.at += text.len() + 1;
        Some(text)
    }

    /// A pointer, of which only the format counts.
    pub(super) fn number(&mut self, encoding: u8) -> Option<u64> {
        match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => self.u64(),
            0x01 => self.unsigned(),
            0x02 => self.u16().map(u64::from),
            0x03 => self.u32().map(u64::from),
            0x09 => self.signed().map(|value| value as u64),
            0x0a => self.u16().map(|value| i64::from(value.cast_signed()) as u64),
            0x0b => self.u32().map(|value| i64::from(value.cast_signed()) as u64),
            _ => None,
        }
    }

    /// A pointer that is absolute, or relative to itself or to `data`.
    pub(super) fn pointer(&mut self, encoding: u8, data: usize) -> Option<usize> {
        if encoding == OMITTED {
            return None;
        }
        let base = match encoding & 0x70 {
            0x00 => 0,
            0x10 => self.address(),
            0x30 => data,
            _ => return None,
        };
        Some(base.wrapping_add(self.number(encoding)? as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read() {
        // DWARF 5, 7.6: examples of LEB128.
        for (bytes, unsigned, signed) in [
            (&[0x02_u8][..], 2, 2),
            (&[0x7e], 126, -2),
            (&[0xff, 0x00], 127, 127),
            (&[0x81, 0x7f], 16257, -127),
            (&[0x80, 0x01], 128, 128),
            (&[0x80, 0x7f], 16256, -128),
        ] {
            assert_eq!(Reader::new(bytes, 0).unsigned(), Some(unsigned));
            assert_eq!(Reader::new(bytes, 0).signed(), Some(signed));
        }
        assert_eq!(Reader::new(&[0x80; 3], 0).unsigned(), None);
        let mut relative = Reader::new(&[0xff, 0xf0, 0xff, 0xff, 0xff, 4, 0, 0, 0], 0x1000);
        assert_eq!((relative.u8(), relative.pointer(0x1b, 0)), (Some(0xff), Some(0xff1)));
        assert_eq!((relative.pointer(0x3b, 0x5000), relative.is_at_end()), (Some(0x5004), true));
        assert_eq!(Reader::new(&[0; 8], 0).pointer(OMITTED, 0), None);
        let mut text = Reader::new(b"zR\0\x01", 0);
        assert_eq!((text.text(), text.u8(), text.text()), (Some(&b"zR"[..]), Some(1), None));
    }
}
