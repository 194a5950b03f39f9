//! Checks of unwind tables that JITLink (`EHFrameEdgeFixer`, LLVM 15 to 22) and the unwinder (libgcc's
//! unwind-dw2-fde.c) leave out.
//!
//! Unknown pointer encodings lead both into undefined behaviour or `abort`. The unwinder walks from record to record by
//! lengths alone, also for exceptions of other code in the process.

use std::ops::Range;

use smallvec::SmallVec;

use crate::elf::elf_abi::{
    LE, RawRela, SHF_ALLOC, SHF_TLS, SHT_NULL, SHT_PROGBITS, SHT_RELA, SHT_X86_64_UNWIND, SectionHeader,
};
use crate::elf::elf_view::{View, lossy};
use crate::elf::plugin::ObjectReport;
use crate::elf::records::{Record, likely_count, records};
use crate::elf::relocations::Table;
use crate::{Error, ObjectError, Result};

/// `DW_EH_PE_omit`: the pointer is absent.
const OMIT: u8 = 0xff;
/// `DW_EH_PE_indirect`.
const INDIRECT: u8 = 0x80;

/// Few for the table of a small object.
type Ranges = SmallVec<[Range<usize>; 8]>;

/// The part of a CIE that its FDEs depend on.
struct Cie {
    start: usize,
    /// Bytes of a pointer to code.
    address: usize,
    /// Whether there is augmentation data.
    data: bool,
    /// Bytes of a pointer to a language-specific data area, where there is one.
    lsda: Option<usize>,
}

pub(super) fn validate(view: &View<'_>, report: &mut ObjectReport) -> Result<()> {
    let is_table = |header: &SectionHeader| header.kind != SHT_NULL && view.is_unwind_table(header);
    let mut tables = view.unwind_tables().filter(|(_, header)| is_table(header)).peekable();
    if tables.peek().is_none() {
        return Ok(());
    }
    let relocations = Relocations::new(view, is_table);
    let mut describes = false;
    for (index, header) in tables {
        match table(view, index, &header, &relocations) {
            // JITLink splits the records of all tables as if each table began at the same address.
            Ok(true) if describes => {
                report.refuse(|| Error::Object(ObjectError::SeveralUnwindTables { object: view.object.into() }))?
            }
            Ok(functions) => describes |= functions,
            Err((offset, problem)) => {
                let offset = offset.map(|offset| offset as u64);
                report.refuse(|| view.malformed(Some(index), offset, problem))?;
            }
        }
    }
    Ok(())
}

/// An offset in the section, and the problem there.
type Wrong = (Option<usize>, String);

/// The relocation sections of unwind tables, by their target.
struct Relocations(SmallVec<[(u32, u32, SectionHeader); 1]>);

impl Relocations {
    fn new(view: &View<'_>, is_table: impl Fn(&SectionHeader) -> bool) -> Self {
        let all = view.sections().filter(|(_, header)| header.kind == SHT_RELA);
        let of_tables = all.filter(|(_, header)| view.header(header.info).is_some_and(|target| is_table(&target)));
        let mut sections: SmallVec<_> = of_tables.map(|(index, header)| (header.info, index, header)).collect();
        sections.sort_unstable_by_key(|(target, index, _)| (*target, *index));
        Self(sections)
    }

    /// Returns the relocations of one table, as far as they can be read.
    fn of<'a>(&self, view: &View<'a>, table: u32) -> impl Iterator<Item = &'a RawRela> {
        let first = self.0.partition_point(|(target, ..)| *target < table);
        let sections = self.0.iter().skip(first).take_while(move |(target, ..)| *target == table);
        sections.flat_map(|(_, index, header)| view.relocations(*index, header).ok().flatten().unwrap_or_default())
    }
}

/// Checks a table; returns whether it describes functions.
fn table(view: &View<'_>, index: u32, header: &SectionHeader, from: &Relocations) -> Result<bool, Wrong> {
    if !header.is(SHF_ALLOC) || header.is(SHF_TLS) || !header.has_contents() {
        return Err((None, "an unwind table is not mapped, is one for each thread, or has no contents".into()));
    }
    // JITLink splits the section whatever its type; an array of initialisers would have no address.
    if !matches!(header.kind, SHT_PROGBITS | SHT_X86_64_UNWIND) {
        return Err((None, format!("an unwind table has the section type {:#x}", header.kind)));
    }
    // Bounds were checked.
    let contents = view.contents(index, header).unwrap_or_default();
    // Zeros behind a record became padding (`ends`).
    if contents.starts_with(&[0; 4]) {
        return Err((Some(0), "an unwind table begins with its end".into()));
    }
    let mut cies: SmallVec<[Cie; 2]> = SmallVec::new();
    let room = || Ranges::with_capacity(likely_count(contents));
    let (mut pointers, mut rests) = (room(), room());
    for record in records(contents) {
        let record = record.map_err(|at| (Some(at), "an unwind record does not end in the section".into()))?;
        let wrong = |problem: String| (Some(record.start), problem);
        let mut reader = Reader { contents, at: record.body.start, end: record.body.end };
        if record.id == 0 {
            cies.push(cie(&record, &mut reader, &mut pointers).map_err(wrong)?);
        } else {
            let start = record.id_at().checked_sub(record.id as usize);
            let cie = start.and_then(|start| cies.binary_search_by_key(&start, |cie| cie.start).ok());
            let Some(cie) = cie.and_then(|i| cies.get(i)) else {
                return Err(wrong("an unwind record's CIE is none of those before it".into()));
            };
            let rest = fde(cie, &mut reader, &mut pointers);
            rests.push(rest.ok_or_else(|| wrong("an unwind record is too short".into()))?);
        }
    }
    relocations(view, from.of(view, index), &pointers, &rests)?;
    Ok(!rests.is_empty())
}

/// Checks that relocations apply to pointers or do nothing: other bytes must stay as they were validated.
fn relocations<'a>(
    view: &View<'_>,
    entries: impl Iterator<Item = &'a RawRela>,
    pointers: &[Range<usize>],
    rests: &[Range<usize>],
) -> Result<(), Wrong> {
    let table = Table::of(view.machine);
    let leads_to_nothing = |at: usize, width: usize| {
        let rest = rests.partition_point(|rest| rest.start <= at).checked_sub(1).and_then(|i| rests.get(i));
        rest.zip(at.checked_add(width)).is_some_and(|(rest, end)| end <= rest.end)
    };
    for entry in entries {
        let offset = entry.r_offset.get(LE);
        let width = table.get(entry.r_info.get(LE) as u32).map_or(0, |(_, kind)| usize::from(kind.width));
        let at = usize::try_from(offset).ok();
        let pointer = at.and_then(|at| pointers.binary_search_by_key(&at, |pointer| pointer.start).ok());
        let fits = pointer.and_then(|i| pointers.get(i)).is_some_and(|pointer| width <= pointer.len());
        if width != 0 && !fits && !at.is_some_and(|at| leads_to_nothing(at, width)) {
            return Err((at, "a relocation in an unwind table applies to something else than a pointer".into()));
        }
    }
    Ok(())
}

fn cie(record: &Record, reader: &mut Reader<'_>, pointers: &mut Ranges) -> Result<Cie, String> {
    let short = || "a CIE is too short".to_owned();
    let version = reader.byte().ok_or_else(short)?;
    if version != 1 {
        return Err(format!("a CIE has the version {version}, unwind tables have 1 or 3"));
    }
    let augmentation = reader.string().ok_or("a CIE's augmentation string does not end in it")?;
    let mut cie = Cie { start: record.start, address: 8, data: false, lsda: None };
    // Alignment factors of code and data.
    reader.leb128().and_then(|_| reader.leb128()).ok_or_else(short)?;
    // The return address's register.
    reader.byte().ok_or_else(short)?;
    if augmentation.is_empty() {
        return Ok(cie);
    }
    let unknown = || format!("a CIE's augmentation '{}' is not known", lossy(augmentation));
    let letters = augmentation.strip_prefix(b"z").ok_or_else(unknown)?;
    cie.data = true;
    let length = reader.leb128().and_then(|length| usize::try_from(length).ok()).ok_or_else(short)?;
    let end = reader.at.checked_add(length).filter(|end| *end <= reader.end).ok_or_else(short)?;
    reader.end = end;
    for (i, letter) in letters.iter().enumerate() {
        // LLVM has room for one of each letter.
        if letters.iter().take(i).any(|before| before == letter) || !matches!(letter, b'L' | b'P' | b'R') {
            return Err(unknown());
        }
        let encoding = reader.byte().ok_or_else(short)?;
        let width = width(encoding).filter(|_| *letter != b'R' || encoding & INDIRECT == 0);
        match (letter, width) {
            (b'L', _) if encoding == OMIT => {}
            (b'L', Some(width)) => cie.lsda = Some(width),
            (b'R', Some(width)) => cie.address = width,
            (b'P', Some(width)) => pointers.push(reader.skip(width).ok_or_else(short)?),
            _ => return Err(format!("a CIE has pointers of the encoding {encoding:#04x}, which is not supported")),
        }
    }
    Ok(cie)
}

/// Returns the bytes behind the last pointer, which nobody interprets. (LLVM's own tests have a relocation there.)
fn fde(cie: &Cie, reader: &mut Reader<'_>, pointers: &mut Ranges) -> Option<Range<usize>> {
    pointers.push(reader.skip(cie.address)?);
    let mut rest = reader.at;
    // The size of the code.
    reader.skip(cie.address)?;
    if cie.data {
        reader.leb128()?;
    }
    if let Some(width) = cie.lsda {
        pointers.push(reader.skip(width)?);
        rest = reader.at;
    }
    Some(rest..reader.end)
}

/// Returns the size of a pointer of this encoding, if JITLink and the unwinder know it.
fn width(encoding: u8) -> Option<usize> {
    // DW_EH_PE_absptr, DW_EH_PE_pcrel.
    if !matches!(encoding & 0x70, 0x00 | 0x10) {
        return None;
    }
    match encoding & 0x0f {
        // DW_EH_PE_udata4, DW_EH_PE_sdata4.
        0x03 | 0x0b => Some(4),
        // DW_EH_PE_absptr, DW_EH_PE_udata8, DW_EH_PE_sdata8.
        0x00 | 0x04 | 0x0c => Some(8),
        _ => None,
    }
}

struct Reader<'a> {
    contents: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Reader<'a> {
    fn skip(&mut self, bytes: usize) -> Option<Range<usize>> {
        let start = self.at;
        self.at = start.checked_add(bytes).filter(|end| *end <= self.end)?;
        Some(start..self.at)
    }

    fn byte(&mut self) -> Option<u8> {
        let range = self.skip(1)?;
        self.contents.get(range.start).copied()
    }

    fn string(&mut self) -> Option<&'a [u8]> {
        let rest = self.contents.get(self.at..self.end)?;
        let string = rest.get(..rest.iter().position(|byte| *byte == 0)?)?;
        self.skip(string.len() + 1)?;
        Some(string)
    }

    /// Reads an unsigned number; for a signed one, some of its bits.
    fn leb128(&mut self) -> Option<u64> {
        let mut value = 0;
        // A longer number does not fit 64 bits.
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}
