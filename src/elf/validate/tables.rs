//! The tables that validation reads, and the places of symbols.

use crate::elf::elf_abi::{
    RawSymbol, SHN_ABS, SHN_COMMON, SHN_LORESERVE, SHN_UNDEF, SHN_XINDEX, SHT_STRTAB, SHT_SYMTAB, SHT_SYMTAB_SHNDX,
    STT_SECTION, SYMBOL_SIZE, Symbol,
};
use crate::elf::elf_view::{View, in_message, is_string_table};
use crate::elf::plugin::ObjectReport;
use crate::{Error, Limits, ObjectError, Result};

/// The largest alignment of a mapped section or common symbol.
pub(crate) const MAX_ALIGNMENT: u64 = 2 << 20;

/// Upper bound of every address space: larger sums could overflow in LLVM's layout.
const MAX_MAPPED: u64 = 1 << 47;

/// The tables that the rest of validation reads.
#[derive(Default)]
pub(crate) struct Tables<'a> {
    /// Section index of the symbol table; 0 if there is none.
    pub symtab: u32,
    pub symbols: &'a [RawSymbol],
    pub strings: &'a [u8],
    /// Contents of the extended section-index table, four bytes for each symbol.
    pub extended: Option<&'a [u8]>,
    pub mapped: Mapped,
    /// Number of relocations.
    pub relocations: u64,
    /// Whether the object has groups.
    pub groups: bool,
}

/// Bytes of memory that mapped sections and common symbols take.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mapped(u64);

impl Mapped {
    /// Counts a part and the padding that may lie before it.
    pub(super) fn add(
        &mut self,
        (size, align): (u64, u64),
        view: &View<'_>,
        limits: &Limits,
        part: impl Fn() -> String,
    ) -> Result<()> {
        self.0 = self.0.saturating_add(size).saturating_add(align.saturating_sub(1));
        let (bytes, limit) = (self.0, limits.mapped_bytes);
        if bytes > MAX_MAPPED {
            return Err(view.malformed(None, None, format!("{} takes more memory than there can be", part())));
        }
        if bytes > limit {
            return Err(Error::Object(ObjectError::MappedTooLarge {
                object: view.object.into(),
                part: part(),
                bytes,
                limit,
            }));
        }
        Ok(())
    }
}

/// Finds and checks the symbol table, its string table and its extended section indices.
pub(crate) fn symbol_table<'a>(view: &View<'a>, report: &mut ObjectReport) -> Result<Tables<'a>> {
    let mut tables = Tables::default();
    for (index, header) in view.sections().filter(|(_, header)| header.kind == SHT_SYMTAB) {
        let malformed = |problem: String| view.malformed(Some(index), None, problem);
        if tables.symtab != 0 {
            report.refuse(|| malformed("it is the second symbol table".into()))?;
            continue;
        }
        let symbols = if header.entry_size == SYMBOL_SIZE { view.symbols(index, &header)? } else { None };
        // The following checks need a readable table.
        let Some(symbols) = symbols else {
            return Err(malformed(format!(
                "{} bytes in entries of {} are no symbol table",
                header.size, header.entry_size
            )));
        };
        let strings = view
            .header(header.link)
            .filter(|strings| strings.kind == SHT_STRTAB)
            .ok_or_else(|| malformed(format!("its string table is section {}, which is none", header.link)))?;
        let strings = view.contents(header.link, &strings)?;
        // LLVM and this crate treat a name at offset 0 as absent.
        if !(is_string_table(strings) || strings.is_empty() && symbols.len() <= 1) {
            return Err(malformed("its string table does not begin and end with a NUL byte".into()));
        }
        tables = Tables { symtab: index, symbols, strings, extended: None, ..Tables::default() };
    }
    let extended = view.has.extended.then(|| view.sections()).into_iter().flatten();
    for (index, header) in extended.filter(|(_, header)| header.kind == SHT_SYMTAB_SHNDX) {
        let contents = view.contents(index, &header)?;
        let fits = header.link == tables.symtab
            && tables.symtab != 0
            && header.entry_size == 4
            && contents.len() / 4 == tables.symbols.len()
            && contents.len() % 4 == 0;
        if !fits || tables.extended.is_some() {
            return Err(view.malformed(
                Some(index),
                None,
                "the extended section indices do not belong to the symbol table",
            ));
        }
        tables.extended = Some(contents);
    }
    Ok(tables)
}

/// The place of a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Undefined,
    Section(u32),
    Absolute,
    Common,
    /// A reserved index without a meaning here, or an extended one without a table.
    Unknown(u32),
}

/// Returns the place of a symbol, with extended section indices resolved.
pub(crate) fn place(tables: &Tables<'_>, index: u32, symbol: &Symbol) -> Place {
    match symbol.shndx {
        SHN_UNDEF => Place::Undefined,
        SHN_ABS => Place::Absolute,
        SHN_COMMON => Place::Common,
        SHN_XINDEX => {
            let start = index as usize * 4;
            match tables.extended.and_then(|t| t.get(start..start + 4)).and_then(|b| b.try_into().ok()) {
                Some(bytes) => Place::Section(u32::from_le_bytes(bytes)),
                None => Place::Unknown(u32::from(SHN_XINDEX)),
            }
        }
        reserved if reserved >= SHN_LORESERVE => Place::Unknown(u32::from(reserved)),
        section => Place::Section(u32::from(section)),
    }
}

/// Returns a symbol's name for messages; for a section symbol the section's.
pub(super) fn symbol_name(view: &View<'_>, tables: &Tables<'_>, index: u32) -> String {
    let Some(symbol) = tables.symbols.get(index as usize).map(Symbol::decode) else {
        return format!("#{index}");
    };
    match (tables.strings.get(symbol.name as usize..), place(tables, index, &symbol)) {
        (Some(name), _) if !matches!(name.first(), None | Some(0)) => in_message(name),
        (_, Place::Section(section)) if symbol.kind == STT_SECTION => view.label(section),
        _ => format!("#{index}"),
    }
}
