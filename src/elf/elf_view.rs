//! Checked access to an object's section headers: each offset is compared with the file's length before use.

use std::borrow::Cow;

use object::pod;
use smallvec::SmallVec;

use super::survey::Survey;
use crate::elf::elf_abi::{
    self, HEADER_SIZE, Header, LE, RawRela, RawSection, RawSymbol, SECTION_SIZE, SHN_LORESERVE, SHN_XINDEX, SHT_STRTAB,
    SectionHeader,
};
use crate::{Error, ObjectError, Result};

/// An object whose header and section table lie inside the file.
pub(crate) struct View<'a> {
    pub(crate) object: &'a str,
    pub(crate) bytes: &'a [u8],
    pub(crate) machine: u16,
    /// File offset of the section table.
    pub(crate) table: u64,
    /// Index of the section that holds the section names, or 0.
    pub(crate) names_index: u32,
    pub(crate) has: Survey,
    sections: &'a [RawSection],
    names: &'a [u8],
    /// The length of each section's name; 0 where it lies outside, or is not short.
    lengths: SmallVec<[u32; 16]>,
}

impl<'a> View<'a> {
    /// Reads the headers of an object that identity has accepted. `limit` is the largest number of sections.
    pub(crate) fn parse(object: &'a str, bytes: &'a [u8], limit: u64) -> Result<Self> {
        let len = bytes.len() as u64;
        let header: &Header =
            pod::from_bytes(bytes).map_err(|()| truncated(object, "the ELF header", 0, HEADER_SIZE, len))?.0;
        let malformed = |problem: String| {
            Error::Object(ObjectError::Malformed { object: object.into(), section: None, offset: None, problem })
        };
        if u64::from(header.e_ehsize.get(LE)) != HEADER_SIZE {
            return Err(malformed(format!("the ELF header's size is {}, not {HEADER_SIZE}", header.e_ehsize.get(LE))));
        }
        let mut view = Self {
            object,
            bytes,
            machine: header.e_machine.get(LE).0,
            table: header.e_shoff.get(LE),
            names_index: 0,
            has: Survey::default(),
            sections: &[],
            names: &[],
            lengths: SmallVec::new(),
        };
        let announced = u64::from(header.e_shnum.get(LE));
        if view.table == 0 {
            if announced != 0 {
                return Err(malformed(format!("{announced} sections are announced, but there is no section table")));
            }
            return Ok(view);
        }
        let entry = u64::from(header.e_shentsize.get(LE));
        if entry != SECTION_SIZE {
            return Err(malformed(format!("section headers have {entry} bytes, not {SECTION_SIZE}")));
        }
        let first: &RawSection = pod::from_bytes(view.range("the section table", view.table, SECTION_SIZE)?)
            .map_err(|()| malformed("the section table is empty".into()))?
            .0;
        // With more sections than 16 bits can count, the first header holds the number.
        let count = if announced == 0 { first.sh_size.get(LE) } else { announced };
        if announced >= u64::from(SHN_LORESERVE) {
            return Err(malformed(format!("the number of sections ({announced}) is in the reserved range")));
        }
        if count == 0 {
            return Err(malformed("the section table has no entries".into()));
        }
        if count > limit {
            return Err(Error::Object(ObjectError::TooManySections { object: object.into(), count, limit }));
        }
        let size = count.checked_mul(SECTION_SIZE).ok_or_else(|| malformed(format!("{count} sections cannot be")))?;
        view.sections = pod::slice_from_all_bytes(view.range("the section table", view.table, size)?)
            .map_err(|()| malformed("the section table cannot be read".into()))?;

        let shstrndx = header.e_shstrndx.get(LE);
        view.names_index = if shstrndx.0 == SHN_XINDEX { first.sh_link.get(LE) } else { u32::from(shstrndx.0) };
        if view.names_index != 0 {
            let names = view.header(view.names_index).ok_or_else(|| {
                malformed(format!("the section-name table is section {}, of {count}", view.names_index))
            })?;
            if names.kind != SHT_STRTAB {
                return Err(malformed(format!(
                    "section {} holds the section names but is no string table",
                    view.names_index
                )));
            }
            view.names = view.range("the section-name table", names.offset, names.size)?;
            if !is_string_table(view.names) {
                return Err(malformed("the section-name table does not begin and end with a NUL byte".into()));
            }
        }
        let length = |raw: &RawSection| beginning(view.names, raw.sh_name.get(LE)).1.map_or(0, |length| length as u32);
        view.lengths = view.sections.iter().map(length).collect();
        let text = |index, header: &SectionHeader| {
            view.text(index, header).unwrap_or_else(|| beginning(view.names, header.name).0)
        };
        let named = |(index, header): (u32, SectionHeader)| (index, header, text(index, &header));
        view.has = Survey::of(view.sections().map(named));
        Ok(view)
    }

    /// Returns the number of sections, the null section included.
    pub(crate) fn count(&self) -> u32 {
        // `parse` compared the 64-bit number with the file's length.
        u32::try_from(self.sections.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn header(&self, index: u32) -> Option<SectionHeader> {
        self.sections.get(index as usize).map(SectionHeader::decode)
    }

    /// Returns all sections but the null section, with their indices.
    pub(crate) fn sections(&self) -> impl Iterator<Item = (u32, SectionHeader)> + use<'a> {
        (0u32..).zip(self.sections.iter().map(SectionHeader::decode)).skip(1)
    }

    /// Returns the file offset of a section header's field.
    pub(crate) fn header_field(&self, index: u32, field: u64) -> u64 {
        self.table.saturating_add(u64::from(index).saturating_mul(SECTION_SIZE)).saturating_add(field)
    }

    /// Returns the bytes of the section-name table.
    pub(crate) fn names(&self) -> &'a [u8] {
        self.names
    }

    /// Returns a section's name, which is empty without a name table.
    pub(crate) fn name_of(&self, header: &SectionHeader) -> Result<&'a [u8]> {
        if self.names.is_empty() && header.name == 0 {
            return Ok(&[]);
        }
        string_at(self.names, header.name).ok_or_else(|| {
            Error::Object(ObjectError::Malformed {
                object: self.object.into(),
                section: None,
                offset: None,
                problem: format!(
                    "a section's name is at {:#x}, the section-name table has {:#x} bytes",
                    header.name,
                    self.names.len()
                ),
            })
        })
    }

    /// Returns the name of the section of this index, and does not search for its end again.
    pub(crate) fn name_at(&self, index: u32, header: &SectionHeader) -> Result<&'a [u8]> {
        self.text(index, header).map_or_else(|| self.name_of(header), Ok)
    }

    fn text(&self, index: u32, header: &SectionHeader) -> Option<&'a [u8]> {
        let length = self.lengths.get(index as usize).filter(|length| **length != 0)?;
        self.names.get(header.name as usize..)?.get(..*length as usize)
    }

    /// Returns whether a section is called `.eh_frame`.
    pub(crate) fn is_unwind_table(&self, header: &SectionHeader) -> bool {
        self.names.get(header.name as usize..).is_some_and(|name| name.starts_with(b".eh_frame\0"))
    }

    /// Returns the sections called `.eh_frame`.
    pub(crate) fn unwind_tables(&self) -> impl Iterator<Item = (u32, SectionHeader)> {
        let from = match self.has.unwind_table {
            0 => self.sections.len(),
            first => first as usize - 1,
        };
        self.sections().skip(from).filter(|(_, header)| self.is_unwind_table(header))
    }

    /// Returns a section's name for messages.
    pub(crate) fn label(&self, index: u32) -> String {
        match self.header(index).and_then(|h| self.names.get(h.name as usize..)) {
            Some(name) if !matches!(name.first(), None | Some(0)) => in_message(name),
            _ => format!("#{index}"),
        }
    }

    /// Returns a section's bytes; none for a section without contents.
    pub(crate) fn contents(&self, index: u32, header: &SectionHeader) -> Result<&'a [u8]> {
        if !header.has_contents() {
            return Ok(&[]);
        }
        // The message's text is made only on failure.
        let range = || {
            let start = usize::try_from(header.offset).ok()?;
            let end = start.checked_add(usize::try_from(header.size).ok()?)?;
            self.bytes.get(start..end)
        };
        range().ok_or_else(|| {
            let end = header.offset.saturating_add(header.size);
            truncated(
                self.object,
                &format!("section '{}'", self.label(index)),
                header.offset,
                end,
                self.bytes.len() as u64,
            )
        })
    }

    /// Returns a symbol table's entries; `None` if its size is not a multiple of theirs.
    pub(crate) fn symbols(&self, index: u32, header: &SectionHeader) -> Result<Option<&'a [RawSymbol]>> {
        Ok(pod::slice_from_all_bytes(self.contents(index, header)?).ok())
    }

    /// Returns a relocation section's entries; `None` if its size is not a multiple of theirs.
    pub(crate) fn relocations(&self, index: u32, header: &SectionHeader) -> Result<Option<&'a [RawRela]>> {
        Ok(pod::slice_from_all_bytes(self.contents(index, header)?).ok())
    }

    fn range(&self, what: &str, offset: u64, size: u64) -> Result<&'a [u8]> {
        let range = || {
            let start = usize::try_from(offset).ok()?;
            let end = start.checked_add(usize::try_from(size).ok()?)?;
            self.bytes.get(start..end)
        };
        range()
            .ok_or_else(|| truncated(self.object, what, offset, offset.saturating_add(size), self.bytes.len() as u64))
    }

    /// Makes an error about a contradiction in a section of this object.
    pub(crate) fn malformed(&self, section: Option<u32>, offset: Option<u64>, problem: impl Into<String>) -> Error {
        Error::Object(ObjectError::Malformed {
            object: self.object.into(),
            section: section.map(|index| self.label(index)),
            offset,
            problem: problem.into(),
        })
    }
}

pub(crate) fn truncated(object: &str, what: &str, offset: u64, end: u64, len: u64) -> Error {
    Error::Object(ObjectError::Truncated { object: object.into(), what: what.into(), offset, end, len })
}

/// Returns whether every offset in the table has a string, and the first string is empty.
pub(crate) fn is_string_table(table: &[u8]) -> bool {
    table.first() == Some(&0) && table.last() == Some(&0)
}

/// Returns the string at `offset`, without its NUL byte.
pub(crate) fn string_at(table: &[u8], offset: u32) -> Option<&[u8]> {
    let from = table.get(offset as usize..)?;
    // Most names are too short for `memchr`.
    from.get(..from.iter().position(|byte| *byte == 0)?)
}

/// Names are read beforehand if they are no longer: many may be the same one of megabytes.
const SHORT: usize = 64;

/// Returns the string at `offset` as far as it is short, and its length if that is all of it.
fn beginning(table: &[u8], offset: u32) -> (&[u8], Option<usize>) {
    let from = table.get(offset as usize..).unwrap_or_default();
    let from = from.get(..SHORT).unwrap_or(from);
    let length = from.iter().position(|byte| *byte == 0);
    (from.get(..length.unwrap_or(from.len())).unwrap_or_default(), length)
}

/// A bound on the total length of the names that are read from string tables. Names may share their ends, and many may
/// be the same, but overlap without end would make megabytes of work out of a few bytes.
pub(crate) struct NameBudget(usize);

impl NameBudget {
    /// Creates a budget for `names` names that are distinct or short, in `table` bytes of string tables.
    pub(crate) fn new(table: usize, names: usize) -> Self {
        Self::with(table, names, 64)
    }

    /// Creates a budget for names that are read and not kept. All may be the same long name, as for local functions in
    /// merged objects (`ld -r`).
    pub(crate) fn of_locals(table: usize, names: usize) -> Self {
        Self::with(table, names, 4096)
    }

    fn with(table: usize, names: usize, each: usize) -> Self {
        Self(table.saturating_mul(16).saturating_add(names.saturating_mul(each)))
    }

    pub(crate) fn allows(&self, bytes: usize) -> bool {
        bytes <= self.0
    }

    pub(crate) fn spend(&mut self, view: &View<'_>, name: &[u8]) -> Result<()> {
        self.0 = self
            .0
            .checked_sub(name.len())
            .ok_or_else(|| view.malformed(None, None, "the names overlap in the string table beyond all measure"))?;
        Ok(())
    }
}

/// Returns a name as text.
pub(crate) fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// The most bytes of a name in a message: hostile names have megabytes, and each relocation may cause a message.
const MOST_IN_MESSAGE: usize = 4096;

/// Returns the name at the start of these bytes, for messages: up to a NUL byte if there is one, and cut off if very
/// long.
pub(crate) fn in_message(bytes: &[u8]) -> String {
    let shown = bytes.get(..MOST_IN_MESSAGE).unwrap_or(bytes);
    match shown.iter().position(|byte| *byte == 0) {
        Some(end) => lossy(shown.get(..end).unwrap_or_default()).into_owned(),
        None if shown.len() < bytes.len() => format!("{}…", lossy(shown)),
        None => lossy(shown).into_owned(),
    }
}

/// Returns a section's flags as the letters of `readelf`.
pub(crate) fn flag_letters(flags: u64) -> String {
    const LETTERS: [(u64, char); 11] = [
        (elf_abi::SHF_WRITE, 'W'),
        (elf_abi::SHF_ALLOC, 'A'),
        (elf_abi::SHF_EXECINSTR, 'X'),
        (elf_abi::SHF_MERGE, 'M'),
        (elf_abi::SHF_STRINGS, 'S'),
        (elf_abi::SHF_INFO_LINK, 'I'),
        (elf_abi::SHF_LINK_ORDER, 'L'),
        (elf_abi::SHF_GROUP, 'G'),
        (elf_abi::SHF_TLS, 'T'),
        (elf_abi::SHF_COMPRESSED, 'C'),
        (elf_abi::SHF_GNU_RETAIN, 'R'),
    ];
    let mut letters: String = LETTERS.iter().filter(|(flag, _)| flags & flag != 0).map(|(_, letter)| letter).collect();
    if flags & elf_abi::SHF_EXCLUDE != 0 {
        letters.push('E');
    }
    if flags & elf_abi::SHF_X86_64_LARGE != 0 {
        letters.push('l');
    }
    letters
}

/// Returns `R-X`, `R--` or `RW-` for a section that is mapped.
pub(crate) fn segment(flags: u64) -> Option<&'static str> {
    match (flags & elf_abi::SHF_ALLOC != 0, flags & elf_abi::SHF_WRITE != 0, flags & elf_abi::SHF_EXECINSTR != 0) {
        (false, ..) => None,
        (true, false, true) => Some("R-X"),
        (true, false, false) => Some("R--"),
        (true, true, false) => Some("RW-"),
        (true, true, true) => Some("RWX"),
    }
}
