//! Checks of symbols: names, sections and kinds, as JITLink reads them.

use hashbrown::HashSet;

use super::site::Found;
use super::tables::{MAX_ALIGNMENT, Mapped, Place, Tables, place};
use crate::elf::builder::IndexBuilder;
use crate::elf::elf_abi::{
    LE, SHF_EXECINSTR, SHF_TLS, SHN_UNDEF, SHT_NULL, SHT_RELA, STB_GLOBAL, STB_GNU_UNIQUE, STB_LOCAL, STB_WEAK,
    STT_COMMON, STT_FILE, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE, STT_OBJECT, STT_SECTION, STT_TLS, STV_HIDDEN,
    STV_INTERNAL, SYMBOL_SIZE, Symbol, field,
};
use crate::elf::elf_view::{View, in_message, string_at};
use crate::elf::index::{Binding, Definition, Import, Name, SymbolKind, Visibility};
use crate::elf::patch::{Patch, Value};
use crate::elf::plugin::ObjectReport;
use crate::elf::report::ChangeKind;
use crate::{Error, Limits, LinkError, MemoryError, ObjectError, Result};

/// Up to this many names, comparing all pairs is cheaper than a hash table.
const FEW: usize = 8;

/// Facts about the symbol table, for groups and relocations.
pub(super) struct Symbols {
    count: u32,
    /// Bytes of the longest name.
    longest: usize,
    /// Names in the index by symbol index; empty for an object without groups.
    named: Vec<(u32, Name)>,
}

impl Symbols {
    /// Refuses relocations that refer to too many bytes of names. `relocations` is their number.
    pub(super) fn refuse_too_much_work(
        &self,
        view: &View<'_>,
        tables: &Tables<'_>,
        relocations: u64,
        limit: u64,
    ) -> Result<()> {
        if relocations.saturating_mul(self.longest as u64) <= limit {
            return Ok(());
        }
        let of_symbol = |raw| string_at(tables.strings, Symbol::decode(raw).name).map_or(0, <[u8]>::len) as u64;
        let lengths: Vec<u64> = tables.symbols.iter().map(of_symbol).collect();
        let mut work = 0_u64;
        for (index, header) in view.sections().filter(|(_, header)| header.kind == SHT_RELA) {
            for entry in view.relocations(index, &header)?.unwrap_or_default() {
                let symbol = (entry.r_info.get(LE) >> 32) as usize;
                work = work.saturating_add(lengths.get(symbol).copied().unwrap_or(0));
            }
        }
        if work > limit {
            return Err(Error::Object(ObjectError::TooMuchWork { object: view.object.into(), work, limit }));
        }
        Ok(())
    }

    /// Returns a symbol's name in the index, if it is there.
    pub(super) fn named(&self, index: u32) -> Option<Name> {
        let found = self.named.binary_search_by_key(&index, |(symbol, _)| *symbol).ok()?;
        self.named.get(found).map(|(_, name)| *name)
    }

    /// Returns a group's signature: the name of a symbol, or of a nameless section symbol's section.
    pub(super) fn signature(&self, view: &View<'_>, tables: &Tables<'_>, index: u32) -> Option<Vec<u8>> {
        if index == 0 || index >= self.count {
            return None;
        }
        let symbol = Symbol::decode(tables.symbols.get(index as usize)?);
        let name = string_at(tables.strings, symbol.name)?;
        if !name.is_empty() {
            return Some(name.to_vec());
        }
        match place(tables, index, &symbol) {
            Place::Section(section) if symbol.kind == STT_SECTION => {
                view.header(section).and_then(|header| view.name_of(&header).ok()).map(<[u8]>::to_vec)
            }
            _ => None,
        }
    }
}

/// Returns whether JITLink makes a symbol of it, so that relocations may refer to it. (Visible absolute symbols have
/// become undefined by then.)
pub(super) fn is_linkable(symbol: &Symbol, place: Place) -> bool {
    match place {
        _ if symbol.kind == STT_FILE => false,
        Place::Common => true,
        Place::Section(_) => {
            matches!(symbol.kind, STT_NOTYPE | STT_FUNC | STT_OBJECT | STT_SECTION | STT_TLS | STT_GNU_IFUNC)
        }
        Place::Absolute => symbol.binding != STB_LOCAL,
        Place::Undefined => {
            symbol.binding != STB_LOCAL || symbol.name == 0 && symbol.kind == STT_NOTYPE && symbol.value == 0
        }
        Place::Unknown(_) => false,
    }
}

pub(super) fn validate(
    view: &View<'_>,
    tables: &Tables<'_>,
    limits: &Limits,
    builder: &mut IndexBuilder,
    patch: &mut Patch,
    report: &mut ObjectReport,
) -> Result<Symbols> {
    let count = u32::try_from(tables.symbols.len())
        .map_err(|_| view.malformed(Some(tables.symtab), None, "it has more than 2^32 symbols"))?;
    let symtab = tables.symtab;
    let table = view.header(symtab).map_or(0, |header| header.offset);
    let (mut unique, mut named) = (Unique::new(), Vec::new());
    let mut longest = 0;
    let mut mapped: Mapped = tables.mapped;
    for (index, raw) in (0u32..).zip(tables.symbols) {
        let symbol = Symbol::decode(raw);
        if index == 0 {
            // JITLink treats relocations against symbol 0 as ones against the null symbol, and crashes if it is
            // another.
            let null = symbol.name == 0 && symbol.kind == 0 && symbol.binding == 0 && symbol.shndx == 0;
            if !null || symbol.value != 0 || symbol.size != 0 || symbol.other != 0 {
                report.refuse(|| view.malformed(Some(symtab), Some(0), "the first symbol is not the null symbol"))?;
            }
            continue;
        }
        let offset = u64::from(index) * SYMBOL_SIZE;
        let malformed = |problem: String| view.malformed(Some(symtab), Some(offset), problem);
        let Some(name) = string_at(tables.strings, symbol.name) else {
            report.refuse(|| {
                malformed(format!("symbol {index} has its name at {:#x}, beyond the string table", symbol.name))
            })?;
            continue;
        };
        longest = longest.max(name.len());
        if symbol.kind == STT_FILE {
            builder.pass(view, name)?;
            continue;
        }
        let text = || if name.is_empty() { format!("#{index}") } else { in_message(name) };
        let place = place(tables, index, &symbol);
        let mut executable = false;
        let mut thread_local = symbol.kind == STT_TLS;
        match place {
            Place::Section(section) => {
                let Some(header) = view.header(section).filter(|header| section != 0 && header.kind != SHT_NULL) else {
                    report.refuse(|| {
                        malformed(format!("symbol '{}' is in section {section}, which there is not", text()))
                    })?;
                    continue;
                };
                executable = header.is(SHF_EXECINSTR);
                let fits = match symbol.kind {
                    STT_TLS => header.is(SHF_TLS),
                    STT_NOTYPE | STT_SECTION => true,
                    _ => !header.is(SHF_TLS),
                };
                if !fits {
                    report.refuse(|| {
                        let label = view.label(section);
                        malformed(format!("of symbol '{}' and its section '{label}' one is thread-local", text()))
                    })?;
                    continue;
                }
                thread_local = header.is(SHF_TLS);
                if symbol.value.checked_add(symbol.size).is_none_or(|end| end > header.size) {
                    report.refuse(|| {
                        malformed(format!(
                            "symbol '{}' ({:#x}, {:#x} bytes) does not lie in section '{}' of {:#x} bytes",
                            text(),
                            symbol.value,
                            symbol.size,
                            view.label(section),
                            header.size
                        ))
                    })?;
                    continue;
                }
                if symbol.kind == STT_COMMON {
                    report.refuse(|| malformed(format!("symbol '{}' is common and in a section", text())))?;
                    continue;
                }
            }
            Place::Unknown(number) => {
                report.refuse(|| {
                    malformed(format!(
                        "symbol '{}' has the section index {number:#x}, which means nothing here",
                        text()
                    ))
                })?;
                continue;
            }
            Place::Common => {
                if !check_common(view, &symbol, name, &malformed, report)? {
                    continue;
                }
                let part = || format!("common symbol '{}'", text());
                mapped.add((symbol.size, symbol.value), view, limits, part)?;
            }
            Place::Undefined | Place::Absolute => {}
        }
        if thread_local && matches!(place, Place::Common | Place::Absolute) {
            let what = format!(
                "'{}' is thread-local and {}",
                text(),
                if place == Place::Common { "common" } else { "absolute" }
            );
            report.refuse(|| Error::Link(LinkError::ThreadLocal { object: view.object.into(), what }))?;
            continue;
        }
        let at = table + offset;
        let internal = symbol.visibility() == STV_INTERNAL && place != Place::Undefined;
        if internal {
            // The linker treats both alike; JITLink knows only hidden ones.
            patch.write(at + field::ST_OTHER, Value::U8(symbol.other & !3 | STV_HIDDEN));
        }
        let resolver = match (symbol.kind, place) {
            (STT_GNU_IFUNC, Place::Section(section)) => match view.header(section).filter(|_| executable) {
                Some(header) if !name.is_empty() => {
                    // The linker replaces it with a stub. JITLink does not link it unless it is a function.
                    patch.write(at + 4, Value::U8(symbol.binding << 4 | STT_FUNC));
                    let to = "reached through a stub, as it is an indirect function".into();
                    report.change(None, ChangeKind::Symbol { name: text(), to });
                    Some(header.offset.saturating_add(symbol.value))
                }
                _ => {
                    report.refuse(|| {
                        Error::Object(ObjectError::IndirectFunction { object: view.object.into(), symbol: text() })
                    })?;
                    continue;
                }
            },
            (STT_GNU_IFUNC, Place::Common | Place::Absolute) => {
                report.refuse(|| {
                    Error::Object(ObjectError::IndirectFunction { object: view.object.into(), symbol: text() })
                })?;
                continue;
            }
            _ => None,
        };
        let binding = match symbol.binding {
            STB_LOCAL => {
                builder.pass(view, name)?;
                if let Some(resolver) = resolver {
                    let name = builder.name(view, name)?;
                    builder.index.indirect.push((name, resolver));
                }
                continue;
            }
            STB_GLOBAL => Binding::Strong,
            STB_WEAK => Binding::Weak,
            STB_GNU_UNIQUE if place != Place::Undefined => Binding::Unique,
            other => {
                report.refuse(|| {
                    malformed(format!("symbol '{}' has the binding {other}, which means nothing here", text()))
                })?;
                continue;
            }
        };
        if name.is_empty() {
            report.refuse(|| malformed(format!("symbol {index} is global and has no name")))?;
            continue;
        }
        if !unique.insert(name) {
            report.refuse(|| malformed(format!("symbol '{}' is in the symbol table twice", text())))?;
            continue;
        }
        let hidden = matches!(symbol.visibility(), STV_HIDDEN | STV_INTERNAL);
        let visibility = if hidden { Visibility::Hidden } else { Visibility::Default };
        let name = match place {
            Place::Section(section) => builder.name_in(view, section, name)?,
            _ => builder.name(view, name)?,
        };
        if tables.groups {
            named.push((index, name));
        }
        if internal {
            report.change(None, ChangeKind::Symbol { name: text(), to: "made hidden instead of internal".into() });
        }
        if place == Place::Undefined {
            builder.index.imports.push(Import { name, weak: binding == Binding::Weak, visibility, thread_local });
            continue;
        }
        builder.index.indirect.extend(resolver.map(|resolver| (name, resolver)));
        let absolute = place == Place::Absolute;
        if absolute {
            patch.write(at + field::ST_SHNDX, Value::U16(SHN_UNDEF));
            patch.write(at + field::ST_VALUE, Value::U64(0));
            patch.write(at + field::ST_SIZE, Value::U64(0));
            report.change(
                None,
                ChangeKind::Symbol { name: text(), to: "taken out of the object, as it is absolute".into() },
            );
            if symbol.binding == STB_GNU_UNIQUE {
                patch.write(at + 4, Value::U8(STB_GLOBAL << 4 | symbol.kind));
            }
        }
        let kind = match symbol.kind {
            _ if thread_local => SymbolKind::ThreadLocal,
            STT_FUNC | STT_GNU_IFUNC => SymbolKind::Function,
            STT_OBJECT | STT_COMMON => SymbolKind::Data,
            STT_NOTYPE if executable => SymbolKind::Function,
            _ if place == Place::Common => SymbolKind::Data,
            _ => SymbolKind::Unknown,
        };
        builder.index.definitions.push(Definition {
            name,
            kind,
            binding,
            visibility,
            value: if place == Place::Common { 0 } else { symbol.value },
            size: symbol.size,
            section: if let Place::Section(section) = place { section } else { 0 },
            comdat: None,
            common: (place == Place::Common).then_some(symbol.value.max(1)),
            absolute,
        });
    }
    Ok(Symbols { count, longest, named })
}

/// Records the variables that must be at a fixed distance from the thread pointer.
pub(super) fn note_statics(
    view: &View<'_>,
    tables: &Tables<'_>,
    found: &Found,
    builder: &mut IndexBuilder,
) -> Result<()> {
    if let Some(own) = builder.index.thread_local.as_mut() {
        own.relocated = found.relocated;
    }
    for &index in &found.statics {
        let Some(symbol) = tables.symbols.get(index as usize).map(Symbol::decode) else { continue };
        let defined = matches!(place(tables, index, &symbol), Place::Section(_));
        let name = match (symbol.binding, string_at(tables.strings, symbol.name)) {
            (STB_LOCAL, _) | (_, None) => None,
            (_, Some(name)) => Some(builder.name(view, name)?),
        };
        let own = builder.index.thread_local.get_or_insert_default();
        own.own_static |= defined;
        own.statics.extend(name);
    }
    Ok(())
}

/// Checks a common symbol's alignment, binding and size; returns false if it was refused.
fn check_common(
    view: &View<'_>,
    symbol: &Symbol,
    name: &[u8],
    malformed: &dyn Fn(String) -> Error,
    report: &mut ObjectReport,
) -> Result<bool> {
    let text = in_message(name);
    if symbol.binding == STB_LOCAL {
        report.refuse(|| malformed(format!("symbol '{text}' is common and local")))?;
        return Ok(false);
    }
    if symbol.value != 0 && !symbol.value.is_power_of_two() {
        report
            .refuse(|| malformed(format!("symbol '{text}' wants an alignment of {}, no power of two", symbol.value)))?;
        return Ok(false);
    }
    if symbol.value > MAX_ALIGNMENT {
        report.refuse(|| {
            Error::Memory(MemoryError::UnsupportedAlignment {
                object: view.object.into(),
                section: format!("COMMON ({text})"),
                alignment: symbol.value,
                limit: MAX_ALIGNMENT,
            })
        })?;
        return Ok(false);
    }
    Ok(true)
}

/// The names seen so far.
struct Unique<'a> {
    few: [&'a [u8]; FEW],
    len: usize,
    many: HashSet<&'a [u8]>,
}

impl<'a> Unique<'a> {
    fn new() -> Self {
        Self { few: [&[]; FEW], len: 0, many: HashSet::new() }
    }

    fn insert(&mut self, name: &'a [u8]) -> bool {
        if let Some(slot) = self.few.get_mut(self.len) {
            *slot = name;
            let known = self.few.iter().take(self.len).any(|other| *other == name);
            self.len += 1;
            return !known;
        }
        if self.many.is_empty() {
            self.many.extend(self.few);
        }
        self.many.insert(name)
    }
}
