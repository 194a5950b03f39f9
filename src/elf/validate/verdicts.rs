//! A verdict on each relocation, for a link plan. Loading does not need it, as the linker judges at final addresses.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::elf::elf_abi::{
    SHF_ALLOC, SHF_EXECINSTR, SHF_X86_64_LARGE, STB_WEAK, STT_FUNC, STT_NOTYPE, STT_OBJECT, SectionHeader, Symbol,
};
use crate::elf::elf_view::{View, string_at};
use crate::elf::planned_reach::{Judgement, Reference, Surroundings, Target, Verdict, Whereabouts};
use crate::elf::planned_reference::PlannedReference;
use crate::elf::relocations::bridge::{bridgeable, goes_through_stub};
use crate::elf::relocations::{Kind, Repair};
use crate::elf::validate::counts::Counts;
use crate::elf::validate::site::{Entry, Site};
use crate::elf::validate::tables::{Place, Tables, place, symbol_name};
use crate::live::error::FarReference;
use crate::{Error, LinkError, ObjectError};

/// The largest number of references that a plan lists.
pub(crate) const MOST_REFERENCES: usize = 100_000;
/// The largest total size of their printed texts.
const MOST_TEXT: usize = 64 << 20;
/// The largest number that are reported as problems.
const MOST_FAILURES: usize = 1000;
/// Upper bound of the padding between an object's parts: protections change on pages of at most 64 KiB.
const PADDING: u64 = 8 * (64 << 10);
/// Bytes that the linker may add for a symbol (GOT entry and stub) and for a reference from code (three rooms for
/// bridges).
const FOR_SYMBOL: u64 = 32;
const FOR_REFERENCE: u64 = 64;

/// Judges the relocations of one object.
pub(crate) struct Judge<'j> {
    pub(super) counts: &'j mut Counts,
    surroundings: &'j Surroundings<'j>,
    /// Whether the object is for this machine.
    native: bool,
    /// Names of the object's sections.
    sections: HashSet<&'j [u8]>,
    /// Places of undefined symbols, by index.
    found: HashMap<u32, Target>,
    /// Functions and data of each section that was looked up: offset, size, index of the symbol; sorted.
    named: HashMap<u32, Vec<(u64, u64, u32)>>,
    /// See [`Reference::extent`]; computed on first use.
    extent: Option<u64>,
    texts: Texts,
    /// References that passed validation and reach from nowhere in the arena, and the number beyond the bound.
    failures: Vec<FarReference>,
    more: usize,
}

/// Texts that the references share.
#[derive(Default)]
struct Texts {
    /// Names of sections and of symbols, by index.
    sections: HashMap<u32, Arc<str>>,
    symbols: HashMap<u32, Arc<str>>,
    /// Kinds of relocations, by number.
    kinds: HashMap<u32, Arc<str>>,
    notes: HashMap<&'static str, Arc<str>>,
    /// Total size of the listed texts, each counted as often as it is printed.
    listed: usize,
}

impl<'j> Judge<'j> {
    /// Creates a judge for an object whose headers were accepted.
    pub(crate) fn new(
        view: &View<'j>,
        counts: &'j mut Counts,
        surroundings: &'j Surroundings<'j>,
        native: bool,
    ) -> Self {
        Self {
            counts,
            surroundings,
            native,
            sections: view.sections().filter_map(|(_, header)| view.name_of(&header).ok()).collect(),
            found: HashMap::new(),
            named: HashMap::new(),
            extent: None,
            texts: Texts::default(),
            failures: Vec::new(),
            more: 0,
        }
    }

    /// Returns whether no more references are listed.
    pub(super) fn is_full(&self) -> bool {
        self.counts.references.len() >= MOST_REFERENCES || self.texts.listed >= MOST_TEXT
    }

    /// Returns one error for all references that the linker will refuse.
    pub(super) fn failures(&mut self, object: &str) -> Option<Error> {
        let (references, more) = (std::mem::take(&mut self.failures), self.more);
        let any = !references.is_empty();
        any.then(|| Error::Link(LinkError::ReferencesOutOfRange { object: object.into(), references, more }))
    }

    /// Judges a relocation that validation has passed or refused.
    pub(super) fn judge(
        &mut self,
        site: &Site<'_, '_>,
        kind: Option<(usize, &'static Kind)>,
        checked: Result<Option<Repair>, &Error>,
    ) {
        if !site.header.is(SHF_ALLOC) {
            return;
        }
        let (judgement, target, note) = match (kind, checked) {
            (Some((_, kind)), Ok(repair)) => {
                let (reference, section) = self.reference(site, kind, repair);
                let judgement = reference.judge();
                (judgement, section, judgement.note.map(|note| self.texts.note(note)))
            }
            (kind, checked) => {
                let judgement = Judgement { verdict: Verdict::Refused, value: None, note: None };
                let (note, value) = checked.err().map_or((None, None), reason);
                let value = value.filter(|_| kind.is_some());
                (Judgement { value, ..judgement }, defined_in(site), note.map(Arc::from))
            }
        };
        self.counts.judged(kind.map(|(position, _)| position), site.entry.kind, judgement.verdict);
        let impossible = judgement.verdict == Verdict::Refused && checked.is_ok();
        let (full, failed) = (self.is_full(), self.failures.len() < MOST_FAILURES);
        if impossible && !failed {
            self.more += 1;
        }
        if full && !(impossible && failed) {
            return;
        }
        let function = self.function(site.view, site.tables, site.target, site.entry.offset);
        let function = function.map(|symbol| self.texts.symbol(site, symbol));
        if let Some((_, kind)) = kind.filter(|_| impossible && failed) {
            let (least, greatest) = judgement.value.unwrap_or_default();
            let worst = if least.abs() > greatest.abs() { least } else { greatest };
            let function = function.as_deref().map(str::to_owned);
            self.failures.push(site.far(kind, clamp(worst), function, remedy(judgement.note)));
        }
        if !full {
            let (number, kind) = (site.entry.kind, kind.map(|(_, kind)| kind));
            let limit = kind.filter(|kind| kind.is_limited());
            let listed = PlannedReference {
                section: self.texts.section(site),
                section_index: site.target,
                offset: site.entry.offset,
                function,
                relocation: self.texts.kind(number, kind),
                symbol: self.texts.symbol(site, site.entry.symbol),
                target_section: target,
                addend: site.entry.addend,
                verdict: judgement.verdict,
                distance: judgement.value.map(clamped),
                limit: limit.map(|kind| clamped(kind.limit())),
                note,
            };
            self.texts.list(&listed);
            self.counts.references.push(listed);
        }
    }

    fn reference<'k>(
        &mut self,
        site: &Site<'_, '_>,
        kind: &'k Kind,
        repair: Option<Repair>,
    ) -> (Reference<'k>, Option<u32>) {
        let Entry { symbol: index, addend, offset, .. } = site.entry;
        let symbol = site.tables.symbols.get(index as usize).map(Symbol::decode);
        let large =
            |header: &SectionHeader| header.is(SHF_X86_64_LARGE) && site.view.machine == crate::elf::elf_abi::EM_X86_64;
        // JITLink splits unwind tables into records and drops some.
        let split = site.view.is_unwind_table(site.header);
        let section = defined_in(site);
        let target = match (section, symbol) {
            (Some(section), Some(symbol)) => match site.view.header(section) {
                _ if section == site.target && !split => Target::SameSection(symbol.value),
                Some(header) if large(&header) => Target::Outside,
                _ => Target::Object,
            },
            (None, Some(symbol)) => self.undefined(site, index, &symbol),
            (_, None) => Target::Object,
        };
        let number = if let Some(Repair::Same(number)) = repair { number } else { kind.number };
        let before = usize::try_from(offset).ok().and_then(|end| site.bytes.get(..end)).unwrap_or_default();
        let code = site.header.is(SHF_EXECINSTR);
        let bridgeable = bridgeable(site.view.machine, number, addend, code, before).is_some();
        let extent = *self.extent.get_or_insert_with(|| extent(site.view, site.tables));
        let reference = Reference {
            kind,
            addend,
            offset,
            target,
            size: symbol.map_or(0, |symbol| symbol.size),
            alignment: site.header.align,
            outside: large(site.header),
            extent,
            got: (site.tables.symbols.len() as u64).saturating_mul(8),
            arena: self.host().map(|host| host.arena.clone()),
            stub: goes_through_stub(site.view.machine, number, addend, code, before),
            bridgeable,
            bridges: self.surroundings.bridges,
        };
        (reference, section)
    }

    fn host(&self) -> Option<&'j crate::elf::planned_reach::Host<'j>> {
        self.surroundings.host.as_ref().filter(|_| self.native)
    }

    /// Returns the place of a symbol that no section of the object defines.
    fn undefined(&mut self, site: &Site<'_, '_>, index: u32, symbol: &Symbol) -> Target {
        match place(site.tables, index, symbol) {
            Place::Absolute => return Target::Address(symbol.value),
            Place::Undefined if index == 0 || symbol.name == 0 => return Target::Address(0),
            Place::Undefined => {}
            _ => return Target::Object,
        }
        if let Some(target) = self.found.get(&index) {
            return *target;
        }
        let name = string_at(site.tables.strings, symbol.name).unwrap_or_default();
        let target = self.leads_to(name, symbol.binding == STB_WEAK);
        self.found.insert(index, target);
        target
    }

    fn leads_to(&self, name: &[u8], weak: bool) -> Target {
        if self.made_by_jitlink(name) {
            return Target::Object;
        }
        let Some(host) = self.host() else { return Target::Arena };
        match std::str::from_utf8(name).map_or(Whereabouts::Unknown, |name| (host.find)(name, weak)) {
            Whereabouts::Address(at) => Target::Address(at),
            Whereabouts::Arena | Whereabouts::Unknown => Target::Arena,
        }
    }

    /// Returns whether JITLink defines the name in the object (`createDefineExternalSectionStartAndEndSymbolsPass`, GOT
    /// passes).
    fn made_by_jitlink(&self, name: &[u8]) -> bool {
        let of_section = name.strip_prefix(b"__start_").or_else(|| name.strip_prefix(b"__stop_"));
        name == b"_GLOBAL_OFFSET_TABLE_" || of_section.is_some_and(|section| self.sections.contains(section))
    }

    /// Returns the symbol of the function or datum around an offset of a section.
    fn function(&mut self, view: &View<'_>, tables: &Tables<'_>, section: u32, offset: u64) -> Option<u32> {
        if self.named.is_empty() {
            // AArch64's mapping symbols ($x, $d) name nothing (AAELF64, "Mapping symbols").
            let is_name = |at: u32| !matches!(tables.strings.get(at as usize), None | Some(0 | b'$'));
            for (index, raw) in (0u32..).zip(tables.symbols) {
                let symbol = Symbol::decode(raw);
                if let (Place::Section(at), STT_FUNC | STT_OBJECT | STT_NOTYPE) =
                    (place(tables, index, &symbol), symbol.kind)
                    && is_name(symbol.name)
                    && view.header(at).is_some_and(|header| header.is(SHF_ALLOC))
                {
                    self.named.entry(at).or_default().push((symbol.value, symbol.size, index));
                }
            }
            self.named.values_mut().for_each(|named| named.sort_unstable());
            // Marks the map as built, even if no symbol has a name.
            self.named.entry(0).or_default();
        }
        let named = self.named.get(&section)?;
        let after = named.partition_point(|(start, ..)| *start <= offset);
        // A symbol without a size reaches to the next one. Symbols may nest; only hostile ones nest deeper than this.
        let around = named.get(..after)?.iter().rev().take(8);
        let covering = around.filter(|(start, size, _)| *size == 0 || offset - start < *size);
        covering.max_by_key(|(start, size, _)| (*start, *size != 0)).map(|(.., index)| *index)
    }
}

impl Texts {
    fn section(&mut self, site: &Site<'_, '_>) -> Arc<str> {
        Arc::clone(self.sections.entry(site.target).or_insert_with(|| site.view.label(site.target).into()))
    }

    fn symbol(&mut self, site: &Site<'_, '_>, index: u32) -> Arc<str> {
        Arc::clone(self.symbols.entry(index).or_insert_with(|| symbol_name(site.view, site.tables, index).into()))
    }

    fn kind(&mut self, number: u32, kind: Option<&'static Kind>) -> Arc<str> {
        match kind {
            Some(kind) => Arc::clone(self.kinds.entry(number).or_insert_with(|| kind.name.into())),
            // Hostile input may have any number of unknown kinds.
            None => format!("kind {number}").into(),
        }
    }

    fn note(&mut self, note: &'static str) -> Arc<str> {
        Arc::clone(self.notes.entry(note).or_insert_with(|| note.into()))
    }

    fn list(&mut self, listed: &PlannedReference) {
        let PlannedReference { section, function, relocation, symbol, note, .. } = listed;
        let texts = [Some(section), function.as_ref(), Some(relocation), Some(symbol), note.as_ref()];
        self.listed += texts.into_iter().flatten().map(|text| text.len()).sum::<usize>();
    }
}

/// Returns the section that defines the symbol of a relocation.
fn defined_in(site: &Site<'_, '_>) -> Option<u32> {
    let index = site.entry.symbol;
    let symbol = site.tables.symbols.get(index as usize).map(Symbol::decode)?;
    match place(site.tables, index, &symbol) {
        Place::Section(section) => Some(section),
        _ => None,
    }
}

/// Returns an upper bound of the object's bytes in the arena, whatever the order of its sections and the page size.
fn extent(view: &View<'_>, tables: &Tables<'_>) -> u64 {
    let large = |header: &SectionHeader| header.is(SHF_X86_64_LARGE) && view.machine == crate::elf::elf_abi::EM_X86_64;
    let mapped = view.sections().filter(|(_, header)| header.is(SHF_ALLOC) && !large(header));
    let mut bytes = mapped.fold(PADDING, |sum, (_, h)| sum.saturating_add(h.size).saturating_add(h.align));
    let commons = (0u32..).zip(tables.symbols).map(|(index, raw)| (index, Symbol::decode(raw)));
    for (_, symbol) in commons.filter(|(index, symbol)| place(tables, *index, symbol) == Place::Common) {
        bytes = bytes.saturating_add(symbol.size).saturating_add(symbol.value);
    }
    let relocations = view.sections().filter(|(_, h)| {
        h.kind == crate::elf::elf_abi::SHT_RELA && view.header(h.info).is_some_and(|target| target.is(SHF_EXECINSTR))
    });
    let relocations =
        relocations.fold(0_u64, |sum, (_, h)| sum.saturating_add(h.size / crate::elf::elf_abi::RELA_SIZE));
    bytes
        .saturating_add(relocations.saturating_mul(FOR_REFERENCE))
        .saturating_add((tables.symbols.len() as u64).saturating_mul(FOR_SYMBOL))
}

/// Returns validation's finding in few words, and the value if it computed one.
fn reason(error: &Error) -> (Option<String>, Option<(i128, i128)>) {
    match error {
        Error::Object(ObjectError::UnsupportedRelocation { reason, .. }) => (Some(reason.clone()), None),
        Error::Object(ObjectError::Malformed { problem, .. }) => (Some(problem.clone()), None),
        Error::Link(LinkError::ThreadLocal { .. }) => (Some("thread-local storage".into()), None),
        Error::Object(ObjectError::IndirectFunction { .. }) => (Some("an indirect function".into()), None),
        Error::Link(LinkError::ReferencesOutOfRange { references, .. }) => {
            references.first().map_or((None, None), |reference| {
                (Some(reference.remedy.to_owned()), Some((reference.value.into(), reference.value.into())))
            })
        }
        other => (Some(other.to_string()), None),
    }
}

/// Returns the remedy for a reference that a plan refuses.
fn remedy(note: Option<&'static str>) -> &'static str {
    note.unwrap_or(
        "nothing can be put between: compile with -fPIC, so that what is far away is reached through the GOT",
    )
}

fn clamp(value: i128) -> i64 {
    value.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

fn clamped((least, greatest): (i128, i128)) -> (i64, i64) {
    (clamp(least), clamp(greatest))
}
