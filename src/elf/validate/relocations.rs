//! Relocations: bounds, symbols, kinds, addends, and the instruction that each one patches.

use super::Context;
use super::sections::Tables;
use super::symbols::{Place, is_linkable, place, symbol_name};
use crate::elf::index::Lifted;
use crate::elf::patch::{Patch, Value};
use crate::elf::plugin::ObjectReport;
use crate::elf::raw::{LE, RELA_SIZE, SHT_NOBITS, SHT_NULL, SHT_RELA, STB_LOCAL, STT_FILE, SectionHeader, Symbol};
use crate::elf::relocations::{Kind, Repair, Table};
use crate::elf::view::View;
use crate::{Error, Result};

/// How often each relocation kind occurs, for a link plan.
pub(crate) struct Counts {
    /// By position in the table of kinds.
    pub known: Vec<u64>,
    pub unknown: Vec<(u32, u64)>,
    /// Relocations that apply to each section.
    pub sections: Vec<u64>,
}

impl Counts {
    pub(crate) fn new(view: &View<'_>) -> Self {
        Self {
            known: vec![0; Table::of(view.machine).kinds().len()],
            unknown: Vec::new(),
            sections: vec![0; view.count() as usize],
        }
    }

    fn add(&mut self, number: u32, position: Option<usize>) {
        match position {
            Some(position) => {
                if let Some(count) = self.known.get_mut(position) {
                    *count += 1;
                }
            }
            None => {
                if let Some((_, count)) = self.unknown.iter_mut().find(|(known, _)| *known == number) {
                    *count += 1;
                } else if self.unknown.len() < 64 {
                    // Hostile input may hold any number of numbers.
                    self.unknown.push((number, 1));
                }
            }
        }
    }
}

pub(super) fn validate(
    view: &View<'_>,
    context: &Context<'_>,
    tables: &Tables<'_>,
    patch: &mut Patch,
    report: &mut ObjectReport,
    mut counts: Option<&mut Counts>,
) -> Result<Lifted> {
    let (mut lifted, mut met) = (Lifted::default(), 0);
    let table = Table::of(view.machine);
    // Of each kind that cannot be linked the first occurrence is enough.
    let mut told = vec![];
    for (index, header) in view.sections().filter(|(_, header)| header.kind == SHT_RELA) {
        let malformed = |offset: Option<u64>, problem: String| view.malformed(Some(index), offset, problem);
        let entries = if header.entry_size == RELA_SIZE { view.relocations(index, &header)? } else { None };
        let Some(entries) = entries else {
            report.refuse(|| {
                malformed(None, format!("{} bytes in entries of {} are no relocations", header.size, header.entry_size))
            })?;
            continue;
        };
        let target = view.header(header.info).filter(|t| header.info != 0 && t.kind != SHT_NULL && !t.is_relocation());
        let Some(target) = target else {
            report.refuse(|| {
                malformed(None, format!("it applies to section {}, which cannot be patched", header.info))
            })?;
            continue;
        };
        if entries.is_empty() {
            continue;
        }
        if tables.symtab == 0 {
            report.refuse(|| Error::NoSymbolTable { object: view.object.into(), section: view.label(index) })?;
            continue;
        }
        if header.link != tables.symtab {
            report.refuse(|| {
                malformed(
                    None,
                    format!("its symbol table is section {}, the object's is {}", header.link, tables.symtab),
                )
            })?;
            continue;
        }
        if target.kind == SHT_NOBITS {
            report.refuse(|| malformed(None, "it applies to a section without contents".into()))?;
            continue;
        }
        let bytes = view.contents(header.info, &target)?;
        if let Some(count) = counts.as_deref_mut().and_then(|c| c.sections.get_mut(header.info as usize)) {
            *count += entries.len() as u64;
        }
        for (number, entry) in (0u64..).zip(entries) {
            let info = entry.r_info.get(LE);
            let mut entry = Entry {
                at: number * RELA_SIZE,
                offset: entry.r_offset.get(LE),
                symbol: (info >> 32) as u32,
                kind: info as u32,
                addend: entry.r_addend.get(LE),
            };
            let field = target.offset.saturating_add(entry.offset);
            let carried = context.lifted.at(field);
            if let Some(kind) = carried {
                met += 1;
                entry.kind = kind;
            }
            let known = table.get(entry.kind);
            if let Some(counts) = counts.as_deref_mut() {
                counts.add(entry.kind, known.map(|(position, _)| position));
            }
            let place = Site { view, tables, index, target: header.info, header: &target, bytes, entry };
            let error = match place.check(known.map(|(_, kind)| kind), context.llvm, carried.is_some()) {
                Ok(None) => continue,
                Ok(Some(instead)) => {
                    let kind_field = header.offset.saturating_add(entry.at).saturating_add(8);
                    match instead {
                        Repair::Same(kind) => patch.write(kind_field, Value::U32(kind)),
                        Repair::Lift(carrier) => {
                            patch.write(kind_field, Value::U32(carrier));
                            lifted.add(field, entry.kind);
                        }
                        Repair::None | Repair::Drop => {}
                    }
                    continue;
                }
                Err(error) => error,
            };
            if matches!(
                *error,
                Error::UnsupportedRelocation { .. } | Error::ThreadLocal { .. } | Error::IndirectFunction { .. }
            ) {
                if told.contains(&entry.kind) {
                    continue;
                }
                told.push(entry.kind);
            }
            report.refuse(|| *error)?;
            if report.is_full() {
                return Ok(lifted);
            }
        }
    }
    if !lifted.sort() || met != context.lifted.len() {
        report.refuse(|| view.malformed(None, None, "two relocations apply to one field"))?;
    }
    Ok(lifted)
}

/// A relocation, decoded.
#[derive(Clone, Copy)]
struct Entry {
    /// Offset in the relocation section.
    at: u64,
    offset: u64,
    symbol: u32,
    kind: u32,
    addend: i64,
}

/// A relocation and where it applies.
struct Site<'v, 'a> {
    view: &'v View<'a>,
    tables: &'v Tables<'a>,
    /// The relocation section.
    index: u32,
    /// The section that is patched.
    target: u32,
    header: &'v SectionHeader,
    bytes: &'a [u8],
    entry: Entry,
}

impl Site<'_, '_> {
    /// What to do about a kind that this LLVM's JITLink lacks; `carried`: it was done already.
    fn check(&self, kind: Option<&'static Kind>, llvm: u32, carried: bool) -> Result<Option<Repair>, Box<Error>> {
        let Entry { offset, .. } = self.entry;
        let Some(kind) = kind else {
            return Err(self.unsupported(format!("kind {}", self.entry.kind), "the ABI knows no such relocation"));
        };
        let Some(raw) = self.tables.symbols.get(self.entry.symbol as usize) else {
            return Err(self.malformed(format!(
                "it refers to symbol {}, there are {}",
                self.entry.symbol,
                self.tables.symbols.len()
            )));
        };
        // Bounds first: they hold for every kind, and everything else reads the bytes.
        let first = offset.checked_sub(u64::from(kind.before));
        let end = offset.checked_add(u64::from(kind.width));
        let inside = first.is_some() && end.is_some_and(|end| end <= self.header.size);
        if !inside {
            return Err(self.malformed(format!(
                "{} at offset {offset:#x} does not lie in section '{}' of {:#x} bytes",
                kind.name,
                self.view.label(self.target),
                self.header.size
            )));
        }
        let repair = if kind.linkable(llvm) || carried { None } else { Some(self.repair(kind, llvm)?) };
        let symbol = Symbol::decode(raw);
        let place = place(self.tables, self.entry.symbol, &symbol);
        if self.entry.symbol != 0 && !is_linkable(&symbol, place) {
            let reason = match place {
                Place::Absolute if symbol.kind != STT_FILE => {
                    "LLVM links no local absolute symbols; make it global, or write the number itself"
                }
                _ => "the symbol is neither defined in a section nor something another object could define",
            };
            return Err(self.unsupported(kind.name.into(), reason));
        }
        if place == Place::Undefined && symbol.binding == STB_LOCAL && kind.width > 0 && llvm < 19 {
            return Err(
                self.unsupported(kind.name.into(), &format!("LLVM {llvm} crashes on relocations without a symbol"))
            );
        }
        if kind.addend.is_some_and(|only| only != self.entry.addend) {
            let reason =
                format!("its addend is {}, LLVM links it only with {}", self.entry.addend, kind.addend.unwrap_or(0));
            return Err(self.unsupported(kind.name.into(), &reason));
        }
        if !kind.shape.is_empty() && !self.has_shape(kind) {
            return Err(self.malformed(format!(
                "{} at offset {offset:#x} of section '{}' is not on an instruction that it can patch",
                kind.name,
                self.view.label(self.target)
            )));
        }
        Ok(repair)
    }

    /// How to have a kind linked that this LLVM's JITLink lacks.
    fn repair(&self, kind: &Kind, llvm: u32) -> Result<Repair, Box<Error>> {
        let linkable =
            |number: u32| Table::of(self.view.machine).get(number).is_some_and(|(_, kind)| kind.linkable(llvm));
        // JITLink reads the relocations of unwind tables itself.
        let read = self.view.label(self.target) == ".eh_frame";
        match kind.repair {
            Repair::Same(number) if linkable(number) => Ok(kind.repair),
            Repair::Lift(carrier) if linkable(carrier) && !read => Ok(kind.repair),
            _ => Err(self.refused(kind, llvm)),
        }
    }

    fn has_shape(&self, kind: &Kind) -> bool {
        let start = usize::try_from(self.entry.offset).unwrap_or(usize::MAX);
        let word = start.checked_add(4).and_then(|end| self.bytes.get(start..end)).and_then(|b| b.try_into().ok());
        word.map(u32::from_le_bytes).is_some_and(|word| kind.applies_to(word))
    }

    /// A kind that this LLVM does not link.
    fn refused(&self, kind: &Kind, llvm: u32) -> Box<Error> {
        let object = self.view.object.to_owned();
        if kind.tls {
            return Box::new(Error::ThreadLocal {
                object,
                what: format!("relocation {} against '{}'", kind.name, self.symbol()),
            });
        }
        if kind.indirect {
            return Box::new(Error::IndirectFunction { object, symbol: self.symbol() });
        }
        let reason = match kind.since {
            Some(since) => format!("LLVM {llvm} does not know it, LLVM {since} and later do"),
            None => "no LLVM up to 22 links it; compile with -fPIC and without options that ask for it".into(),
        };
        self.unsupported(kind.name.into(), &reason)
    }

    fn unsupported(&self, relocation: String, reason: &str) -> Box<Error> {
        Box::new(Error::UnsupportedRelocation {
            object: self.view.object.into(),
            section: self.view.label(self.target),
            offset: self.entry.offset,
            relocation,
            symbol: self.symbol(),
            reason: reason.into(),
        })
    }

    fn malformed(&self, problem: String) -> Box<Error> {
        Box::new(self.view.malformed(Some(self.index), Some(self.entry.at), problem))
    }

    fn symbol(&self) -> String {
        symbol_name(self.view, self.tables, self.entry.symbol)
    }
}
