//! Finds the unwind table's entry of an address: in `.eh_frame` of a loaded object, or by `.eh_frame_hdr` of a module.

use gimli::{
    BaseAddresses, CommonInformationEntry, EhFrame, EhFrameHdr, EhFrameOffset, FrameDescriptionEntry,
    UnwindSection as _, Vendor,
};

use super::modules::Module;
use super::readable::Readable;
use super::reader::Bytes;

/// The entry of a function, in a section that is all memory: offsets are addresses.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub(super) section: EhFrame<Bytes<'a>>,
    pub(super) bases: BaseAddresses,
    pub(super) function: FrameDescriptionEntry<Bytes<'a>>,
}

type Common<'a> = CommonInformationEntry<Bytes<'a>>;

/// Entries of an object that are looked at: the time is limited.
const MOST: usize = 20_000;

/// Returns the entry of an address in a loaded object whose `.eh_frame` begins at `table`.
pub(super) fn in_section(table: usize, address: usize, memory: &Readable) -> Option<Entry<'_>> {
    let mut common = None;
    // gimli's iterator would end at an entry that it does not understand.
    let mut at = table;
    for _ in 0..MOST {
        let bytes = memory.half(at)? as usize;
        if bytes == 0 {
            return None;
        }
        if let Some(found) = entry(at, address, memory, &mut common) {
            return Some(found);
        }
        at = at.checked_add(4 + bytes)?;
    }
    None
}

/// Returns the entry of an address in a module.
pub(super) fn in_module<'a>(module: &Module, address: usize, memory: &'a Readable) -> Option<Entry<'a>> {
    /// `DW_EH_PE_udata4`, and `DW_EH_PE_datarel | DW_EH_PE_sdata4`: what linkers write. Others may make gimli overflow.
    const FORMATS: [u8; 2] = [0x03, 0x3b];
    let table = module.frame_header;
    let [_, _, formats @ ..] = memory.half(table)?.to_le_bytes();
    if formats != FORMATS {
        return None;
    }
    let bases = BaseAddresses::default().set_eh_frame_hdr(table as u64);
    let header = EhFrameHdr::from(Bytes::from(table, memory)).parse(&bases, size_of::<usize>() as u8).ok()?;
    let found = header.table()?.lookup(address as u64, &bases).ok()?;
    entry(found.direct().ok()? as usize, address, memory, &mut None)
}

/// Reads the entry at `at`. Returns `None` if it is not that of an address. `common` is what the last entry had in
/// common with others, which the next one mostly has, too.
///
/// gimli does not know augmentation B of AArch64 (return addresses signed with key B): frame pointers lead on there.
fn entry<'a>(at: usize, address: usize, memory: &'a Readable, common: &mut Option<Common<'a>>) -> Option<Entry<'a>> {
    let mut section = EhFrame::from(Bytes::from(0, memory));
    // It has DW_CFA_AARCH64_negate_ra_state, which needs no heed: addresses are always taken without their signature.
    section.set_vendor(Vendor::AArch64);
    let bases = BaseAddresses::default().set_eh_frame(0);
    let shared = |section: &EhFrame<_>, bases: &_, offset: EhFrameOffset| match common {
        Some(known) if known.offset() == offset.0 => Ok(known.clone()),
        _ => section.cie_from_offset(bases, offset).inspect(|read| *common = Some(read.clone())),
    };
    let function = section.fde_from_offset(&bases, EhFrameOffset(at), shared).ok()?;
    function.contains(address as u64).then_some(Entry { section, bases, function })
}
