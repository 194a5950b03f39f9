//! Checks of section headers: bounds, alignment, permissions, and links between tables.

use super::Context;
use super::symbols::Symbols;
use super::tables::{MAX_ALIGNMENT, Tables, symbol_table};
use crate::elf::builder::IndexBuilder;
use crate::elf::elf_abi::{
    GRP_COMDAT, RELA_SIZE, SHF_ALLOC, SHF_EXECINSTR, SHF_LINK_ORDER, SHF_TLS, SHF_WRITE, SHF_X86_64_LARGE,
    SHT_ANDROID_REL, SHT_ANDROID_RELA, SHT_GROUP, SHT_NOBITS, SHT_NULL, SHT_PROGBITS, SHT_REL, SHT_RELA, SHT_RELR,
    SectionHeader,
};
use crate::elf::elf_view::View;
use crate::elf::fragments::{Fragment, fragment};
use crate::elf::index::{Array, ArrayKind, Group, Name, Section, array_kind, is_retained};
use crate::elf::plugin::ObjectReport;
use crate::{Error, MemoryError, ObjectError, Result};

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
        // LLVM does not treat section 0 specially.
        if null.kind != SHT_NULL {
            report.refuse(|| view.malformed(None, None, "the first section is not the null section"))?;
        }
        builder.index.sections.push(section(&null, Name::default()));
    }
    for (index, header) in view.sections() {
        let text = view.name_at(index, &header)?;
        // Names of relocation sections are long and never looked up.
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
        // `ld` reads this section's flag and sets PT_GNU_STACK for the dynamic loader.
        builder.index.executable_stack |= text == b".note.GNU-stack" && header.is(SHF_EXECINSTR);
        if is_retained(text, header.flags) {
            builder.index.retain.push(index);
        }
        if header.is(SHF_TLS) {
            builder.index.thread_local.get_or_insert_default().sections.push(index);
        }
        if header.is(SHF_X86_64_LARGE) && header.is(SHF_ALLOC) && view.machine == crate::elf::elf_abi::EM_X86_64 {
            builder.index.large_sections.push(index);
        }
    }
    if let Some(index) = builder.twin_of_thread_local() {
        // The linker tells thread-local sections apart by name.
        report.refuse(|| view.malformed(Some(index), None, "it is the second thread-local section of its name"))?;
    }
    let (count, limit) = (tables.relocations, context.limits.relocations);
    if count > limit {
        let object = || view.object.into();
        report.refuse(|| Error::Object(ObjectError::TooManyRelocations { object: object(), count, limit }))?;
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

/// Checks one section by itself.
fn check(view: &View<'_>, index: u32, header: &SectionHeader, report: &mut ObjectReport) -> Result<()> {
    let malformed = |problem: String| view.malformed(Some(index), None, problem);
    if header.align != 0 && !header.align.is_power_of_two() {
        report.refuse(|| malformed(format!("its alignment ({}) is no power of two", header.align)))?;
    } else if header.is(SHF_ALLOC) && header.align > MAX_ALIGNMENT {
        report.refuse(|| {
            Error::Memory(MemoryError::UnsupportedAlignment {
                object: view.object.into(),
                section: view.label(index),
                alignment: header.align,
                limit: MAX_ALIGNMENT,
            })
        })?;
    }
    if header.address.checked_add(header.size).is_none() {
        report
            .refuse(|| malformed(format!("its address {:#x} and size {:#x} overflow", header.address, header.size)))?;
    }
    // JITLink copies the contents of unmapped sections.
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
        report.refuse(|| {
            Error::Object(ObjectError::WritableAndExecutable { object: view.object.into(), section: view.label(index) })
        })?;
    }
    match header.kind {
        SHT_REL | SHT_RELR | SHT_ANDROID_REL | SHT_ANDROID_RELA => {
            let encoding = match header.kind {
                SHT_REL => "SHT_REL",
                SHT_RELR => "SHT_RELR",
                _ => "Android-packed",
            };
            report.refuse(|| {
                Error::Object(ObjectError::UnsupportedRelocation {
                    object: view.object.into(),
                    section: view.label(index),
                    offset: 0,
                    relocation: format!("encoding {encoding}"),
                    symbol: "any".into(),
                    reason:
                        "objects for this machine have SHT_RELA relocations; build it again with a current toolchain"
                            .into(),
                })
            })
        }
        _ => Ok(()),
    }
}

/// Reads the section groups; needs the symbols for the signatures.
pub(super) fn groups(
    view: &View<'_>,
    tables: &Tables<'_>,
    symbols: &Symbols,
    builder: &mut IndexBuilder,
    report: &mut ObjectReport,
) -> Result<()> {
    if !tables.groups {
        return Ok(());
    }
    // Section -> group, for the definitions.
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
        // Most signatures are long names of definitions, which the index has already.
        let signature = symbols.named(header.info).map_or_else(|| builder.name(view, &signature), Ok)?;
        builder.index.groups.push(Group { signature, members });
    }
    if !owner.is_empty() {
        // A section that is ordered after a member belongs to its group, declared or not (gABI, SHF_LINK_ORDER).
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
