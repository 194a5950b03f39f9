//! Section headers: bounds, alignment, permissions, the tables that others lean on.

use super::Context;
use super::symbols::Symbols;
use crate::elf::builder::IndexBuilder;
use crate::elf::fragments::{Fragment, fragment};
use crate::elf::index::{Array, ArrayKind, Group, Name, Section, array_kind, is_retained};
use crate::elf::plugin::ObjectReport;
use crate::elf::raw::{
    GRP_COMDAT, RELA_SIZE, RawSymbol, SHF_ALLOC, SHF_EXECINSTR, SHF_LINK_ORDER, SHF_TLS, SHF_WRITE, SHF_X86_64_LARGE,
    SHT_ANDROID_REL, SHT_ANDROID_RELA, SHT_GROUP, SHT_NOBITS, SHT_NULL, SHT_PROGBITS, SHT_REL, SHT_RELA, SHT_RELR,
    SHT_STRTAB, SHT_SYMTAB, SHT_SYMTAB_SHNDX, SYMBOL_SIZE, SectionHeader,
};
use crate::elf::view::{View, is_string_table};
use crate::{Error, Limits, Result};

/// The largest alignment of a mapped section or common symbol.
pub(crate) const MAX_ALIGNMENT: u64 = 2 << 20;

/// More than any address space has: sums beyond it would overflow in LLVM's layout.
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
    /// How many relocations there are.
    pub relocations: u64,
    /// Whether there are groups.
    pub groups: bool,
}

/// Bytes of memory that mapped sections and common symbols take.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mapped(u64);

impl Mapped {
    /// Counts a part, and what may lie before it so that it is aligned.
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
            return Err(Error::MappedTooLarge { object: view.object.into(), part: part(), bytes, limit });
        }
        Ok(())
    }
}

pub(super) fn validate<'a>(
    view: &View<'a>,
    context: &Context<'_>,
    report: &mut ObjectReport,
) -> Result<(IndexBuilder, Tables<'a>)> {
    let mut tables = symbol_table(view, report)?;
    let mut builder =
        IndexBuilder::new(view.names().len() + tables.strings.len(), view.count() as usize + tables.symbols.len());
    builder.index.sections.reserve_exact(view.count() as usize);
    if let Some(null) = view.header(0) {
        // LLVM takes it for what it says it is.
        if null.kind != SHT_NULL {
            report.refuse(|| view.malformed(None, None, "the first section is not the null section"))?;
        }
        builder.index.sections.push(section(&null, Name::default()));
    }
    for (index, header) in view.sections() {
        let text = view.name_of(&header)?;
        // Nobody asks for a relocation section by its name, which is as long as the other's.
        let named = header.kind != SHT_RELA;
        let name =
            if named { builder.name(view, text)? } else { builder.pass(view, text).map(|()| Name::default())? };
        builder.index.sections.push(section(&header, name));
        if header.kind == SHT_NULL {
            continue;
        }
        view.contents(index, &header)?;
        check(view, index, &header, report)?;
        if header.is(SHF_ALLOC) {
            let part = || format!("section '{}'", view.label(index));
            tables.mapped.add((header.size, header.align), view, context.limits, part)?;
        }
        tables.groups |= header.kind == SHT_GROUP;
        if header.kind == SHT_RELA {
            tables.relocations = tables.relocations.saturating_add(header.size / RELA_SIZE);
        }
        if let Some(fragment) = fragment(view, index, &header, text)? {
            if fragment == Fragment::Half {
                let half = "it begins a function that another object ends, or ends one, as crti.o and crtn.o do; load \
                            the objects without those of the C runtime";
                report.refuse(|| view.malformed(Some(index), None, half))?;
            }
            let kind = if text == b".init" { ArrayKind::InitCode } else { ArrayKind::FiniCode };
            let (offset, size) = (header.offset, header.size);
            builder.index.arrays.push(Array { kind, priority: 0, offset, size, section: index });
        }
        if let Some((kind, priority)) = array_kind(text, header.kind).filter(|_| header.is(SHF_ALLOC)) {
            if header.size % 8 != 0 {
                report.refuse(|| view.malformed(Some(index), None, "its size is no multiple of a pointer's"))?;
            }
            builder.index.arrays.push(Array {
                kind,
                priority,
                offset: header.offset,
                size: header.size,
                section: index,
            });
        }
        // What `ld` looks at, and the dynamic loader then at what `ld` made of it (PT_GNU_STACK).
        builder.index.executable_stack |= text == b".note.GNU-stack" && header.is(SHF_EXECINSTR);
        if is_retained(text, header.flags) {
            builder.index.retain.push(index);
        }
        if header.is(SHF_TLS) {
            builder.index.thread_local.get_or_insert_default().sections.push(index);
        }
        if header.is(SHF_X86_64_LARGE) && header.is(SHF_ALLOC) && view.machine == crate::elf::raw::EM_X86_64 {
            builder.index.large_sections.push(index);
        }
    }
    if let Some(index) = builder.twin_of_thread_local() {
        // The linker tells them apart by their names.
        report.refuse(|| view.malformed(Some(index), None, "it is the second thread-local section of its name"))?;
    }
    let (count, limit) = (tables.relocations, context.limits.relocations);
    if count > limit {
        let object = || view.object.into();
        report.refuse(|| Error::TooManyRelocations { object: object(), count, limit })?;
    }
    Ok((builder, tables))
}

fn section(header: &SectionHeader, name: Name) -> Section {
    Section {
        name,
        kind: header.kind,
        flags: header.flags,
        size: header.size,
        alignment: header.align,
        offset: header.offset,
        has_contents: header.has_contents(),
    }
}

/// One section by itself.
fn check(view: &View<'_>, index: u32, header: &SectionHeader, report: &mut ObjectReport) -> Result<()> {
    let malformed = |problem: String| view.malformed(Some(index), None, problem);
    if header.align != 0 && !header.align.is_power_of_two() {
        report.refuse(|| malformed(format!("its alignment ({}) is no power of two", header.align)))?;
    } else if header.is(SHF_ALLOC) && header.align > MAX_ALIGNMENT {
        report.refuse(|| Error::UnsupportedAlignment {
            object: view.object.into(),
            section: view.label(index),
            alignment: header.align,
            limit: MAX_ALIGNMENT,
        })?;
    }
    if header.address.checked_add(header.size).is_none() {
        report
            .refuse(|| malformed(format!("its address {:#x} and size {:#x} overflow", header.address, header.size)))?;
    }
    // JITLink copies the contents of what is not mapped.
    if !header.is(SHF_ALLOC) && header.kind == SHT_NOBITS && header.size != 0 {
        report.refuse(|| malformed("it is not mapped and has no contents, but a size".into()))?;
    }
    if header.is(SHF_TLS) {
        let kind = matches!(header.kind, SHT_PROGBITS | SHT_NOBITS);
        if !kind || !header.is(SHF_ALLOC) || header.is(SHF_EXECINSTR) {
            report.refuse(|| malformed("it is no section that a thread could have a copy of".into()))?;
        }
    }
    let forbidden = SHF_WRITE | SHF_EXECINSTR | SHF_ALLOC;
    if header.flags & forbidden == forbidden {
        report.refuse(|| Error::WritableAndExecutable { object: view.object.into(), section: view.label(index) })?;
    }
    match header.kind {
        SHT_REL | SHT_RELR | SHT_ANDROID_REL | SHT_ANDROID_RELA => {
            let encoding = match header.kind {
                SHT_REL => "SHT_REL",
                SHT_RELR => "SHT_RELR",
                _ => "Android-packed",
            };
            report.refuse(|| Error::UnsupportedRelocation {
                object: view.object.into(),
                section: view.label(index),
                offset: 0,
                relocation: format!("encoding {encoding}"),
                symbol: "any".into(),
                reason: "objects for this machine have SHT_RELA relocations; build it again with a current toolchain"
                    .into(),
            })
        }
        _ => Ok(()),
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
        // Without a readable table nothing that follows can be judged.
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
        // A name at 0 is none, to LLVM and to us.
        if !(is_string_table(strings) || strings.is_empty() && symbols.len() <= 1) {
            return Err(malformed("its string table does not begin and end with a NUL byte".into()));
        }
        tables = Tables { symtab: index, symbols, strings, extended: None, ..Tables::default() };
    }
    for (index, header) in view.sections().filter(|(_, header)| header.kind == SHT_SYMTAB_SHNDX) {
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

/// Section groups; needs the symbols for the signatures.
pub(super) fn groups(
    view: &View<'_>,
    tables: &Tables<'_>,
    symbols: &Symbols,
    builder: &mut IndexBuilder,
    report: &mut ObjectReport,
) -> Result<()> {
    // Section -> group, for the definitions; made only if there are groups.
    let mut owner: Vec<u32> = Vec::new();
    for (index, header) in view.sections().filter(|(_, header)| header.kind == SHT_GROUP) {
        let malformed = |problem: String| view.malformed(Some(index), None, problem);
        let contents = view.contents(index, &header)?;
        let mut words = contents.chunks_exact(4).map(|w| w.iter().rev().fold(0_u32, |all, b| all << 8 | u32::from(*b)));
        let Some(flags) = words.next().filter(|_| contents.len() % 4 == 0) else {
            report.refuse(|| malformed("a section group has no flags, or half a member".into()))?;
            continue;
        };
        let members: Vec<u32> = words.collect();
        if let Some(bad) = members.iter().find(|&&member| member == 0 || member >= view.count()) {
            report.refuse(|| malformed(format!("member {bad} is no section")))?;
            continue;
        }
        let signature = if header.link == tables.symtab { symbols.signature(view, tables, header.info) } else { None };
        let Some(signature) = signature else {
            report.refuse(|| malformed(format!("its signature is symbol {}, which has no name", header.info)))?;
            continue;
        };
        if flags & GRP_COMDAT == 0 {
            continue;
        }
        let position = u32::try_from(builder.index.groups.len()).unwrap_or(u32::MAX);
        owner.resize(view.count() as usize, u32::MAX);
        for member in &members {
            match owner.get_mut(*member as usize) {
                Some(slot) if *slot == u32::MAX => *slot = position,
                _ => report.refuse(|| malformed(format!("section {member} is in two groups")))?,
            }
        }
        // Most are names of definitions, and long: once is enough.
        let signature = symbols.named(header.info).map_or_else(|| builder.name(view, &signature), Ok)?;
        builder.index.groups.push(Group { signature, members });
    }
    if !owner.is_empty() {
        // A section that is ordered with a member goes with it, whether it says so or not (gABI, SHF_LINK_ORDER).
        for (index, header) in view.sections().filter(|(_, header)| header.is(SHF_LINK_ORDER)) {
            let group = owner.get(header.link as usize).copied().unwrap_or(u32::MAX);
            if let Some(slot) = owner.get_mut(index as usize).filter(|slot| **slot == u32::MAX)
                && let Some(group_of_linked) = builder.index.groups.get_mut(group as usize)
            {
                *slot = group;
                group_of_linked.members.push(index);
            }
        }
        for definition in &mut builder.index.definitions {
            let group = owner.get(definition.section as usize).copied().filter(|&group| group != u32::MAX);
            definition.comdat = group.filter(|_| definition.section != 0);
        }
    }
    Ok(())
}
