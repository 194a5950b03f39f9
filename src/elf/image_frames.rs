//! A check of an image's unwind table once it is relocated: whatever the file says, an unwinder that reads the table
//! stays in it (LSB, "The .eh_frame section"; libgcc, unwind-dw2-fde.c).

use super::image_note::number;

/// Returns whether the table ends within these bytes, and each record in it is one that an unwinder can read.
pub(crate) fn is_sound(table: &[u8]) -> bool {
    walk(table).is_some()
}

fn walk(table: &[u8]) -> Option<()> {
    // Starts of CIEs, ascending, with the size of their FDEs' addresses, and whether a length follows those.
    let mut cies: Vec<(usize, (usize, bool))> = Vec::new();
    let mut at = 0;
    loop {
        let length = word(table, at)?;
        if length == 0 {
            return Some(());
        }
        let end = (at + 4).checked_add(usize::try_from(length).ok().filter(|_| length != u32::MAX)?)?;
        let body = table.get(at + 8..end)?;
        match word(table, at + 4)? {
            0 => cies.push((at, addresses_of(body)?)),
            distance => {
                let cie = (at + 4).checked_sub(distance as usize)?;
                let found = cies.binary_search_by_key(&cie, |(start, _)| *start).ok()?;
                let (_, (size, has_length)) = cies.get(found)?;
                // First address, and number of bytes.
                let mut rest = body.get(2 * size..)?;
                if *has_length {
                    let length = number(&mut rest)?;
                    rest.get(..usize::try_from(length).ok()?)?;
                }
            }
        }
        at = end;
    }
}

/// Reads a CIE; returns the size of addresses in its FDEs, and whether a length follows those.
fn addresses_of(mut body: &[u8]) -> Option<(usize, bool)> {
    let (version, rest) = body.split_first()?;
    let text = rest.get(..rest.iter().position(|byte| *byte == 0)?)?;
    body = rest.get(text.len() + 1..)?;
    number(&mut body)?;
    number(&mut body)?;
    match version {
        1 => body = body.get(1..)?,
        3 => drop(number(&mut body)?),
        _ => return None,
    }
    let mut size = 8;
    let Some((b'z', letters)) = text.split_first() else { return text.is_empty().then_some((size, false)) };
    let length = number(&mut body)?;
    let mut data = body.get(..usize::try_from(length).ok()?)?;
    for letter in letters {
        let mut byte = || {
            let (first, rest) = data.split_first()?;
            data = rest;
            Some(*first)
        };
        match letter {
            b'R' => size = encoded_size(byte()?)?,
            b'L' => drop(byte()?),
            b'P' => {
                let size = encoded_size(byte()? & 0x7f)?;
                data = data.get(size..)?;
            }
            b'S' | b'B' => {}
            _ => return None,
        }
    }
    Some((size, true))
}

/// Returns the bytes of an address in an encoding, absolute or relative to its place (`DW_EH_PE_*`).
fn encoded_size(encoding: u8) -> Option<usize> {
    let size = match encoding & 0xf {
        0x0 | 0x4 | 0xc => 8,
        0x2 | 0xa => 2,
        0x3 | 0xb => 4,
        _ => return None,
    };
    matches!(encoding & 0xf0, 0 | 0x10).then_some(size)
}

fn word(table: &[u8], at: usize) -> Option<u32> {
    table.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::testing;

    #[test]
    fn compilers_tables_are_sound_and_cut_ones_are_not() {
        let bytes =
            testing::gcc(&["-O1"], "void g(void); int f(int x) { g(); return x; } int h(int x) { return f(x) + 1; }");
        let (_, header) = testing::section(&bytes, ".eh_frame", 0);
        let start = header.offset as usize;
        let mut table = bytes[start..start + header.size as usize].to_vec();
        table.extend([0; 4]);
        assert!(is_sound(&table));
        for end in 0..table.len() {
            assert!(!is_sound(&table[..end]), "{end}");
        }
        // Whatever is changed, nothing is read outside.
        for at in 0..table.len() {
            for value in 0..=255 {
                let mut changed = table.clone();
                changed[at] = value;
                is_sound(&changed);
            }
        }
        // An FDE of no CIE, and a CIE of another version.
        let fde = 4 + u32::from_le_bytes(table[..4].try_into().unwrap()) as usize;
        for (at, value) in [(fde + 4, 1), (8, 2), (9, b'y')] {
            let mut changed = table.clone();
            changed[at] = value;
            assert!(!is_sound(&changed), "{at}");
        }
    }
}
