//! Finds the unwind table's entry of an address: in `.eh_frame` of a loaded object, or by `.eh_frame_hdr` of a module.
#![allow(unsafe_code, reason = "reads tables by address")]

use super::modules::Module;
use super::readable::Readable;
use super::reader::Reader;

/// The entry of a function, and what it has in common with others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) start: usize,
    /// The instructions for all functions, and those of this one.
    pub(super) common: Reader<'a>,
    pub(super) own: Reader<'a>,
    pub(super) code_factor: u64,
    pub(super) data_factor: i64,
    pub(super) return_column: usize,
    /// Whether the frame is of a signal: its address is the interrupted instruction's.
    pub(super) is_signal: bool,
}

/// Entries of an object that are looked at: the time is limited.
const MOST: usize = 20_000;

/// Returns the entry of an address in a loaded object whose `.eh_frame` begins at `table`.
///
/// # Safety
/// The table is of code that is being run, so that it stays.
pub(super) unsafe fn in_section<'a>(table: usize, address: usize, memory: &mut Readable) -> Option<Entry<'a>> {
    let mut at = table;
    for _ in 0..MOST {
        let bytes = memory.half(at)? as usize;
        if bytes == 0 {
            return None;
        }
        // SAFETY: by the caller.
        if let Some(found) = unsafe { entry(at, address, memory) } {
            return Some(found);
        }
        at = at.checked_add(4 + bytes)?;
    }
    None
}

/// Returns the entry of an address in a module.
///
/// # Safety
/// The module's code is being run, so that it stays.
pub(super) unsafe fn in_module<'a>(module: &Module, address: usize, memory: &mut Readable) -> Option<Entry<'a>> {
    /// `DW_EH_PE_udata4`, and `DW_EH_PE_datarel | DW_EH_PE_sdata4`: what linkers write.
    const FORMATS: [u8; 2] = [0x03, 0x3b];
    let table = module.frame_header;
    // SAFETY: by the caller.
    let mut header = Reader::new(unsafe { memory.bytes(table, 20) }?, table);
    let [version, pointer, count, format] = [header.u8()?, header.u8()?, header.u8()?, header.u8()?];
    if version != 1 || [count, format] != FORMATS {
        return None;
    }
    header.pointer(pointer, table)?;
    let count = header.u32()? as usize;
    let first = header.address();
    let start = |i: usize, memory: &mut Readable| {
        Some(table.wrapping_add_signed(memory.half(first + i * 8)?.cast_signed() as isize))
    };
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if start(middle, memory)? <= address {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let at = table.wrapping_add_signed(memory.half(first + low.checked_sub(1)? * 8 + 4)?.cast_signed() as isize);
    // SAFETY: by the caller.
    unsafe { entry(at, address, memory) }
}

/// Reads the entry at `at`. Returns `None` if it is not that of an address.
///
/// # Safety
/// As for [`in_section`].
unsafe fn entry<'a>(at: usize, address: usize, memory: &mut Readable) -> Option<Entry<'a>> {
    // SAFETY: by the caller.
    let mut own = unsafe { record(at, memory) }?;
    let id_at = own.address();
    let distance = own.u32()? as usize;
    if distance == 0 {
        return None;
    }
    // SAFETY: by the caller.
    let mut common = unsafe { record(id_at.checked_sub(distance)?, memory) }?;
    let (0, version @ (1 | 3)) = (common.u32()?, common.u8()?) else { return None };
    let augmentation = common.text()?;
    let (code_factor, data_factor) = (common.unsigned()?, common.signed()?);
    let return_column = if version == 1 { common.u8()?.into() } else { common.unsigned()? as usize };
    let (mut format, mut is_signal) = (0, false);
    let has_data = augmentation.first() == Some(&b'z');
    if has_data {
        let bytes = common.unsigned()? as usize;
        let mut data = common.take(bytes)?;
        for letter in augmentation.get(1..)? {
            match letter {
                b'R' => format = data.u8()?,
                b'L' => drop(data.u8()?),
                b'P' => {
                    let format = data.u8()?;
                    data.number(format)?;
                }
                b'S' => is_signal = true,
                b'B' => {}
                _ => return None,
            }
        }
    } else if !augmentation.is_empty() {
        return None;
    }
    let start = own.pointer(format, 0)?;
    let bytes = own.number(format)? as usize;
    if address.checked_sub(start)? >= bytes {
        return None;
    }
    if has_data {
        let bytes = own.unsigned()? as usize;
        own.take(bytes)?;
    }
    Some(Entry { start, common, own, code_factor, data_factor, return_column, is_signal })
}

/// Returns the contents of the record at an address, without its length.
///
/// # Safety
/// As for [`in_section`].
unsafe fn record<'a>(at: usize, memory: &mut Readable) -> Option<Reader<'a>> {
    let bytes = memory.half(at)?;
    if bytes == 0 || bytes == u32::MAX {
        return None;
    }
    let start = at.checked_add(4)?;
    // SAFETY: by the caller.
    Some(Reader::new(unsafe { memory.bytes(start, bytes as usize) }?, start))
}
