//! Checks of relocations: bounds, symbols, kinds, addends, and the instruction that each one patches.

use std::collections::HashSet;

use crate::elf::elf_abi::{
    LE, RELA_SIZE, SHF_ALLOC, SHF_EXECINSTR, SHF_GROUP, SHF_TLS, SHT_NOBITS, SHT_NULL, SHT_RELA, STB_GLOBAL, STB_LOCAL,
    STB_WEAK, STT_FILE, STT_TLS, Symbol,
};
use crate::elf::elf_view::View;
use crate::elf::index::Lifted;
use crate::elf::patch::{Patch, Value};
use crate::elf::planned_reach::{MISALIGNED, misalignment};
use crate::elf::plugin::ObjectReport;
use crate::elf::relocations::bridge::bridgeable;
use crate::elf::relocations::{Field, Kind, Operation, Repair, Table, Tls};
use crate::elf::validate::Context;
use crate::elf::validate::site::{Entry, Found, Site};
use crate::elf::validate::symbols::is_linkable;
use crate::elf::validate::tables::{Place, Tables, place, symbol_name};
use crate::elf::validate::verdicts::Judge;
use crate::live::error::FarReference;
use crate::{Error, LinkError, ObjectError, Result};

const TOO_FAR: &str =
    "both lie in one section, so no placement helps: use an instruction that reaches further, or split the section";

pub(super) fn validate(
    view: &View<'_>,
    context: &Context<'_>,
    tables: &Tables<'_>,
    patch: &mut Patch,
    report: &mut ObjectReport,
    mut judge: Option<&mut Judge<'_>>,
) -> Result<Found> {
    let (mut lifted, mut met) = (Lifted::default(), 0);
    let mut found = Found::default();
    let table = Table::of(view.machine);
    // Only the first occurrence of an unsupported kind is reported.
    let mut told = HashSet::new();
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
            report.refuse(|| {
                Error::Object(ObjectError::NoSymbolTable { object: view.object.into(), section: view.label(index) })
            })?;
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
        if let Some(count) = judge.as_deref_mut().and_then(|j| j.counts.sections.get_mut(header.info as usize)) {
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
            // A lifted relocation may share its field with one that does nothing.
            let nothing = |kind| table.get(kind).is_some_and(|(_, kind)| kind.operation == Operation::Nothing);
            let carried = context.lifted.at(field).filter(|_| !nothing(entry.kind));
            if let Some(kind) = carried {
                met += 1;
                entry.kind = kind;
            }
            let known = table.get(entry.kind);
            found.relocated |= target.is(SHF_TLS);
            if let Some((_, kind)) = known
                && target.is(SHF_ALLOC)
                && kind.is_static_tls()
            {
                found.statics.insert(entry.symbol);
            }
            if let Some(judge) = judge.as_deref_mut() {
                judge.counts.add(entry.kind, known.map(|(position, _)| position));
            }
            let place = Site { view, tables, index, target: header.info, header: &target, bytes, entry };
            let checked = place.check(known.map(|(_, kind)| kind), context.llvm, carried.is_some());
            if let Some(judge) = judge.as_deref_mut() {
                let found = checked.as_ref().copied().map_err(|error| &**error);
                judge.judge(&place, known, found);
            }
            let error = match checked {
                Ok(None) => {
                    if let Some(word) =
                        known.filter(|_| carried.is_none()).and_then(|(_, kind)| place.without_stale_bits(kind))
                    {
                        patch.write(field, Value::U32(word));
                    }
                    continue;
                }
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
            let once = matches!(
                *error,
                Error::Object(ObjectError::UnsupportedRelocation { .. })
                    | Error::Link(LinkError::ThreadLocal { .. })
                    | Error::Object(ObjectError::IndirectFunction { .. })
            );
            if once && !told.insert(entry.kind) {
                continue;
            }
            report.refuse(|| *error)?;
            if report.is_full() && judge.as_deref().is_none_or(Judge::is_full) {
                return Ok(Found { lifted, ..found });
            }
        }
    }
    if let Some(error) = judge.and_then(|judge| judge.failures(view.object)) {
        report.refuse(|| error)?;
    }
    if !lifted.sort() || met != context.lifted.len() {
        report.refuse(|| view.malformed(None, None, "two relocations apply to one field"))?;
    }
    Ok(Found { lifted, ..found })
}

impl Site<'_, '_> {
    /// Checks one relocation, and returns the replacement if this LLVM's JITLink lacks the kind; `carried` says that it
    /// was replaced already.
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
        // Bounds come first: they hold for every kind, and the other checks read the bytes.
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
        // Those of unmapped sections are hidden from LLVM, and read as the ABI has them (`debug_image`).
        let is_linked = self.header.is(SHF_ALLOC);
        let repair = if kind.linkable(llvm) || carried || !is_linked { None } else { Some(self.repair(kind, llvm)?) };
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
        self.agrees(kind, &symbol, place)?;
        if place == Place::Undefined && symbol.binding == STB_LOCAL && kind.width > 0 && llvm < 17 {
            return Err(
                self.unsupported(kind.name.into(), &format!("LLVM {llvm} crashes on relocations without a symbol"))
            );
        }
        let own_size = matches!(place, Place::Section(_)) && symbol.binding != STB_WEAK;
        if kind.operation == Operation::Size && kind.linkable(llvm) && !own_size {
            // JITLink uses 0, or this object's value where another object's may count.
            return Err(self
                .unsupported(kind.name.into(), "LLVM knows the size of a symbol only in the object that defines it"));
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
        if let Place::Section(section) = place
            && self.header.is(SHF_ALLOC)
        {
            self.reaches(kind, &symbol, section, repair)?;
        }
        Ok(repair)
    }

    /// Refuses thread-local kinds against other symbols, and other kinds against thread-local symbols: the linker would
    /// write the address of the template.
    fn agrees(&self, kind: &Kind, symbol: &Symbol, place: Place) -> Result<(), Box<Error>> {
        let of_threads = match place {
            Place::Section(section) => self.view.header(section).is_some_and(|header| header.is(SHF_TLS)),
            _ => symbol.kind == STT_TLS,
        };
        // Marks of a sequence may name any symbol; sizes are not addresses. Debug information is not linked.
        let indifferent =
            matches!(kind.operation, Operation::Nothing | Operation::Size | Operation::ThreadLocal(Tls::Marker));
        if kind.tls == of_threads || indifferent || !self.header.is(SHF_ALLOC) {
            return Ok(());
        }
        let is = if of_threads { "is thread-local" } else { "is not thread-local" };
        Err(Box::new(Error::Link(LinkError::ThreadLocal {
            object: self.view.object.into(),
            what: format!(
                "{} at offset {:#x} of section '{}' refers to '{}', which {is}",
                kind.name,
                self.entry.offset,
                self.view.label(self.target),
                self.symbol()
            ),
        })))
    }

    /// Refuses references that cannot reach a target in the object, wherever that is put. The linker would refuse them
    /// later.
    fn reaches(
        &self,
        kind: &'static Kind,
        symbol: &Symbol,
        section: u32,
        repair: Option<Repair>,
    ) -> Result<(), Box<Error>> {
        let same = section == self.target;
        let exact = same && kind.operation == Operation::Relative;
        if kind.alignment == 1 && !(exact && kind.is_limited()) {
            return Ok(());
        }
        let Some(header) = (if same { Some(*self.header) } else { self.view.header(section) }) else { return Ok(()) };
        let Entry { offset, addend, .. } = self.entry;
        // A distance inside a section is known exactly.
        let alignments = if exact { (u64::MAX, u64::MAX) } else { (header.align, self.header.align) };
        let misaligned = misalignment(kind, (symbol.value, alignments.0), addend, (offset, alignments.1)).is_some();
        let value = i128::from(symbol.value) + i128::from(addend) - if exact { i128::from(offset) } else { 0 };
        if !misaligned && (!exact || kind.fits(value)) {
            return Ok(());
        }
        // Another object's definition may replace one that is weak or in a group.
        let own = symbol.binding == STB_LOCAL || symbol.binding == STB_GLOBAL && !header.is(SHF_GROUP);
        // JITLink splits unwind tables into records and drops some.
        if !own || self.view.label(self.target) == ".eh_frame" {
            return Ok(());
        }
        let told = value.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        if misaligned {
            return Err(Box::new(self.impossible(self.far(kind, told, None, MISALIGNED))));
        }
        let number = if let Some(Repair::Same(number)) = repair { number } else { kind.number };
        let before = usize::try_from(offset).ok().and_then(|end| self.bytes.get(..end)).unwrap_or_default();
        let code = self.header.is(SHF_EXECINSTR);
        if bridgeable(self.view.machine, number, addend, code, before).is_some() {
            return Ok(());
        }
        Err(Box::new(self.impossible(self.far(kind, told, None, TOO_FAR))))
    }

    /// Makes the error about a reference that does not reach.
    pub(super) fn far(&self, kind: &Kind, value: i64, function: Option<String>, remedy: &'static str) -> FarReference {
        let (least, greatest) = kind.limit();
        let clamp = |v: i128| v.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        FarReference {
            section: self.view.label(self.target),
            offset: self.entry.offset,
            function,
            instruction: None,
            relocation: kind.name.into(),
            symbol: self.symbol(),
            target: None,
            value,
            limit: (clamp(least), clamp(greatest)),
            alignment: kind.alignment.into(),
            remedy,
        }
    }

    fn impossible(&self, reference: FarReference) -> Error {
        Error::Link(LinkError::ReferencesOutOfRange {
            object: self.view.object.into(),
            references: vec![reference],
            more: 0,
        })
    }

    /// Clears the immediate of a wide move: JITLink expects 0 there, and by the ABI it does not count.
    fn without_stale_bits(&self, kind: &Kind) -> Option<u32> {
        if !matches!(kind.field, Field::MovW { signed: false, .. }) {
            return None;
        }
        let start = usize::try_from(self.entry.offset).ok()?;
        let mut word: [u8; 4] = self.bytes.get(start..start.checked_add(4)?)?.try_into().ok()?;
        let old = word;
        kind.encode(&mut word, 0).ok()?;
        (word != old).then(|| u32::from_le_bytes(word))
    }

    /// Returns the replacement for a kind that this LLVM's JITLink lacks.
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

    /// Makes the error about a kind that this LLVM does not link.
    fn refused(&self, kind: &Kind, llvm: u32) -> Box<Error> {
        let object = self.view.object.to_owned();
        if kind.tls {
            return Box::new(Error::Link(LinkError::ThreadLocal {
                object,
                what: format!(
                    "no LLVM links relocation {} against '{}', nor do we; compile with -fPIC",
                    kind.name,
                    self.symbol()
                ),
            }));
        }
        if kind.indirect {
            return Box::new(Error::Object(ObjectError::IndirectFunction { object, symbol: self.symbol() }));
        }
        let reason = match kind.since {
            Some(since) => format!("LLVM {llvm} does not know it, LLVM {since} and later do"),
            None => "no LLVM up to 22 links it; compile with -fPIC and without options that ask for it".into(),
        };
        self.unsupported(kind.name.into(), &reason)
    }

    fn unsupported(&self, relocation: String, reason: &str) -> Box<Error> {
        Box::new(Error::Object(ObjectError::UnsupportedRelocation {
            object: self.view.object.into(),
            section: self.view.label(self.target),
            offset: self.entry.offset,
            relocation,
            symbol: self.symbol(),
            reason: reason.into(),
        }))
    }

    fn malformed(&self, problem: String) -> Box<Error> {
        Box::new(self.view.malformed(Some(self.index), Some(self.entry.at), problem))
    }

    /// Returns the symbol's name; for a section symbol the section's.
    pub(super) fn symbol(&self) -> String {
        symbol_name(self.view, self.tables, self.entry.symbol)
    }
}
