//! The link plan: preparation's findings about an object, as text and as data.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::identity::machine_name;
use super::index::{ArrayKind, Binding, ObjectIndex, SymbolKind};
use super::planned_reference::PlannedReference;
use super::plugin::ObjectReport;
use super::relocations::Table;
use super::report::Change;
use super::validate::{Counts, Tally};
use crate::Error;
use crate::elf::elf_abi::{RELA_SIZE, SHF_ALLOC, SHT_RELA, SectionHeader};
use crate::elf::elf_view::{NameBudget, View, flag_letters, lossy, segment};
use crate::elf::planned_reach::Verdict;

/// All findings of preparation about an object that is not linked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LinkPlan {
    /// The object's name.
    pub object: String,
    /// `x86-64` or `AArch64`.
    pub machine: String,
    /// Size of the object as given, in bytes.
    pub bytes: u64,
    /// Lower bound of the bytes that it takes in an engine's arena; 0 if preparation failed.
    #[serde(default)]
    pub arena_bytes: u64,
    /// Its sections after preparation, without the null section.
    pub sections: Vec<PlannedSection>,
    /// The changes that preparation makes.
    pub changes: Vec<Change>,
    /// The names that it exports.
    pub definitions: Vec<PlannedDefinition>,
    /// The names that it imports.
    pub imports: Vec<PlannedImport>,
    /// Number of functions that run when it is loaded, as far as the initialiser sections tell.
    pub initializers: u64,
    /// Number of functions that run when it is unloaded.
    pub finalizers: u64,
    /// Whether it asks for executable stacks; see
    /// [`LibraryBuilder::executable_stack`](crate::LibraryBuilder::executable_stack).
    #[serde(default)]
    pub executable_stack: bool,
    /// The relocation kinds in use.
    pub relocations: Vec<PlannedRelocation>,
    /// Each relocation of the mapped sections, with a verdict; up to 100 000 of them, and 64 MiB of text.
    pub references: Vec<PlannedReference>,
    /// Number of references beyond that.
    pub references_omitted: u64,
    /// Problems: obstacles to loading it, and warnings.
    pub problems: Vec<Problem>,
}

/// A section of a [`LinkPlan`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PlannedSection {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its type, as `readelf` names it.
    pub kind: String,
    /// Its flags, as the letters of `readelf`.
    pub flags: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its alignment in bytes.
    pub alignment: u64,
    /// The segment that it is mapped into (`R-X`, `R--` or `RW-`); none if it is not mapped.
    pub segment: Option<String>,
    /// Number of relocations that apply to it.
    pub relocations: u64,
}

/// A defined name of a [`LinkPlan`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PlannedDefinition {
    /// The name.
    pub name: String,
    /// `function`, `data`, `thread-local` or `unknown`.
    pub kind: String,
    /// `strong`, `weak`, `unique`, `common`, or `absolute`.
    pub binding: String,
    /// Its size in bytes.
    pub size: u64,
}

/// An undefined name of a [`LinkPlan`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PlannedImport {
    /// The name.
    pub name: String,
    /// Whether the object works without it.
    pub weak: bool,
}

/// A relocation kind of a [`LinkPlan`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PlannedRelocation {
    /// Its name in the ABI, or its number.
    pub kind: String,
    /// Number of relocations of this kind.
    pub count: u64,
    /// Number in mapped sections with the verdict [`Verdict::Always`].
    pub always: u64,
    /// Number with the verdict [`Verdict::InArena`].
    pub in_arena: u64,
    /// Number with the verdict [`Verdict::Bridged`].
    pub bridged: u64,
    /// Number with the verdict [`Verdict::Refused`].
    pub refused: u64,
}

/// An obstacle to loading an object, or a warning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Problem {
    /// Whether the object can be loaded nevertheless.
    pub severity: Severity,
    /// The description: the text of an [`Error`](crate::Error).
    pub text: String,
}

/// How serious a [`Problem`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Severity {
    /// The object cannot be loaded.
    Error,
    /// The object can be loaded.
    Warning,
}

/// The inputs of a plan.
pub(super) struct Outcome<'a> {
    pub name: &'a str,
    pub size: u64,
    pub view: Option<View<'a>>,
    pub index: ObjectIndex,
    pub report: ObjectReport,
    /// The error that ended preparation.
    pub fatal: Option<Error>,
    pub counts: Option<Counts>,
    pub arena_bytes: u64,
}

impl LinkPlan {
    /// Returns whether preparation found no obstacle to loading the object. It does not look for the imports.
    pub fn loads(&self) -> bool {
        self.problems.iter().all(|problem| problem.severity != Severity::Error)
    }

    pub(super) fn new(outcome: Outcome<'_>) -> Self {
        let Outcome { name, size, view, index, report, fatal, mut counts, arena_bytes } = outcome;
        let (changes, problems, dropped) = report.into_parts();
        let text = |error: Error| Problem { severity: Severity::Error, text: error.to_string() };
        let mut problems: Vec<Problem> = problems.into_iter().chain(fatal).map(text).collect();
        if dropped > 0 {
            let text = format!("'{name}' has {dropped} further problems");
            problems.push(Problem { severity: Severity::Error, text });
        }
        let machine = view.as_ref().map_or("unknown", |view| machine_name(view.machine)).to_owned();
        let listed = counts.as_mut().map(|counts| std::mem::take(&mut counts.references)).unwrap_or_default();
        let all = view.as_ref().map_or(0, mapped_relocations);
        let mut plan = Self {
            object: name.into(),
            machine,
            bytes: size,
            arena_bytes,
            sections: view.as_ref().map(|view| sections(view, counts.as_ref())).unwrap_or_default(),
            changes,
            definitions: definitions(&index),
            imports: index
                .imports
                .iter()
                .map(|import| PlannedImport { name: index.name(import.name).into(), weak: import.weak })
                .collect(),
            initializers: 0,
            finalizers: 0,
            executable_stack: index.executable_stack,
            references_omitted: all.saturating_sub(listed.len() as u64),
            references: listed,
            relocations: view.zip(counts).map(|(view, counts)| relocations(&view, &counts)).unwrap_or_default(),
            problems,
        };
        for array in &index.arrays {
            match array.kind {
                ArrayKind::PreInit | ArrayKind::InitCode | ArrayKind::Init | ArrayKind::Ctors => {
                    plan.initializers += array.functions();
                }
                ArrayKind::Fini | ArrayKind::Dtors | ArrayKind::FiniCode => plan.finalizers += array.functions(),
            }
        }
        plan
    }
}

fn sections(view: &View<'_>, counts: Option<&Counts>) -> Vec<PlannedSection> {
    // Overlap of names may be the very problem.
    let mut names = NameBudget::new(view.names().len(), view.count() as usize);
    let mut name = |header: &SectionHeader| view.name_of(header).ok().filter(|name| names.spend(view, name).is_ok());
    view.sections()
        .map(|(index, header)| PlannedSection {
            index,
            name: name(&header).map(|name| lossy(name).into_owned()).unwrap_or_default(),
            kind: section_type(header.kind),
            flags: flag_letters(header.flags),
            size: header.size,
            alignment: header.align,
            segment: segment(header.flags).map(str::to_owned),
            relocations: counts.and_then(|c| c.sections.get(index as usize)).copied().unwrap_or(0),
        })
        .collect()
}

fn definitions(index: &ObjectIndex) -> Vec<PlannedDefinition> {
    let planned = index.definitions.iter().map(|definition| PlannedDefinition {
        name: index.name(definition.name).into(),
        kind: match definition.kind {
            SymbolKind::Function => "function",
            SymbolKind::Data => "data",
            SymbolKind::Unknown => "unknown",
            SymbolKind::ThreadLocal => "thread-local",
        }
        .into(),
        binding: match definition.binding {
            _ if definition.common.is_some() => "common",
            _ if definition.absolute => "absolute",
            Binding::Strong => "strong",
            Binding::Weak => "weak",
            Binding::Unique => "unique",
        }
        .into(),
        size: definition.size,
    });
    planned.collect()
}

fn relocations(view: &View<'_>, counts: &Counts) -> Vec<PlannedRelocation> {
    let known = Table::of(view.machine).kinds().iter().zip(&counts.known).filter(|(_, tally)| tally.all > 0);
    let known = known.map(|(kind, tally)| (kind.name.to_owned(), tally));
    let unknown = counts.unknown.iter().map(|(number, tally)| (format!("kind {number}"), tally));
    let planned = |(kind, tally): (String, &Tally)| {
        let [always, in_arena, bridged, refused] = tally.verdicts;
        PlannedRelocation { kind, count: tally.all, always, in_arena, bridged, refused }
    };
    known.chain(unknown).map(planned).collect()
}

/// Counts the relocations of mapped sections.
fn mapped_relocations(view: &View<'_>) -> u64 {
    let of_mapped = |header: &SectionHeader| view.header(header.info).is_some_and(|target| target.is(SHF_ALLOC));
    let tables = view.sections().filter(|(_, header)| header.kind == SHT_RELA && of_mapped(header));
    tables.fold(0, |sum, (_, header)| sum.saturating_add(header.size / RELA_SIZE))
}

/// Returns a section's type as `readelf` names it.
fn section_type(kind: u32) -> String {
    const NAMES: [(u32, &str); 22] = [
        (0, "NULL"),
        (1, "PROGBITS"),
        (2, "SYMTAB"),
        (3, "STRTAB"),
        (4, "RELA"),
        (5, "HASH"),
        (6, "DYNAMIC"),
        (7, "NOTE"),
        (8, "NOBITS"),
        (9, "REL"),
        (11, "DYNSYM"),
        (14, "INIT_ARRAY"),
        (15, "FINI_ARRAY"),
        (16, "PREINIT_ARRAY"),
        (17, "GROUP"),
        (18, "SYMTAB_SHNDX"),
        (19, "RELR"),
        (0x4000_0014, "CREL"),
        (0x6fff_4c03, "LLVM_ADDRSIG"),
        (0x6fff_4c0b, "LLVM_BB_ADDR_MAP"),
        (0x6fff_fff5, "GNU_ATTRIBUTES"),
        (0x7000_0001, "UNWIND"),
    ];
    NAMES
        .iter()
        .find(|(number, _)| *number == kind)
        .map_or_else(|| format!("{kind:#x}"), |(_, name)| (*name).to_owned())
}

/// The most references that are printed one by one.
const SHOWN: usize = 50;

impl LinkPlan {
    /// Writes the references that are bridged or refused, or that have a note.
    fn write_references(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |r: &PlannedReference| matches!(r.verdict, Verdict::Always | Verdict::InArena) && r.note.is_none();
        let mut told = self.references.iter().filter(|r| !plain(r)).peekable();
        if told.peek().is_some() {
            writeln!(f, "references")?;
        }
        for reference in told.by_ref().take(SHOWN) {
            writeln!(f, "  {reference}")?;
        }
        let more = told.count() as u64;
        if more > 0 {
            writeln!(f, "  and {more} more")?;
        }
        if self.references_omitted > 0 {
            writeln!(f, "  {} further relocations are not listed one by one", self.references_omitted)?;
        }
        Ok(())
    }
}

impl fmt::Display for LinkPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} object, {} bytes", self.object, self.machine, self.bytes)?;
        if !self.sections.is_empty() {
            let width = self.sections.iter().map(|s| s.name.chars().count()).max().unwrap_or(0).clamp(4, 40);
            writeln!(f, "sections")?;
            writeln!(
                f,
                "  {:>5}  {:width$}  {:16}  {:7}  {:7}  {:>10}  {:>8}  {:>11}",
                "index", "name", "type", "flags", "segment", "size", "align", "relocations"
            )?;
            for s in &self.sections {
                writeln!(
                    f,
                    "  {:>5}  {:width$}  {:16}  {:7}  {:7}  {:>10}  {:>8}  {:>11}",
                    s.index,
                    s.name,
                    s.kind,
                    s.flags,
                    s.segment.as_deref().unwrap_or("-"),
                    s.size,
                    s.alignment,
                    s.relocations
                )?;
            }
        }
        if !self.changes.is_empty() {
            writeln!(f, "changes")?;
            for change in &self.changes {
                writeln!(f, "  {change}")?;
            }
        }
        if !self.definitions.is_empty() {
            let width = self.definitions.iter().map(|d| d.name.chars().count()).max().unwrap_or(0).clamp(4, 60);
            writeln!(f, "defines")?;
            for d in &self.definitions {
                writeln!(f, "  {:width$}  {:8}  {:8}  {:>10}", d.name, d.kind, d.binding, d.size)?;
            }
        }
        if !self.imports.is_empty() {
            writeln!(f, "imports")?;
            for import in &self.imports {
                writeln!(f, "  {}{}", import.name, if import.weak { "  (weak)" } else { "" })?;
            }
        }
        if self.initializers + self.finalizers > 0 {
            writeln!(f, "initializers {}, finalizers {}", self.initializers, self.finalizers)?;
        }
        if self.executable_stack {
            writeln!(f, "asks for executable stacks")?;
        }
        if !self.relocations.is_empty() {
            let width = self.relocations.iter().map(|r| r.kind.len()).max().unwrap_or(0);
            writeln!(f, "relocations")?;
            writeln!(
                f,
                "  {:width$}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}",
                "kind", "count", "always", "in arena", "bridged", "refused"
            )?;
            for r in &self.relocations {
                writeln!(
                    f,
                    "  {:width$}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}",
                    r.kind, r.count, r.always, r.in_arena, r.bridged, r.refused
                )?;
            }
        }
        self.write_references(f)?;
        if !self.problems.is_empty() {
            writeln!(f, "problems")?;
            for problem in &self.problems {
                let severity = match problem.severity {
                    Severity::Error => "error",
                    Severity::Warning => "warning",
                };
                writeln!(f, "  {severity}: {}", problem.text)?;
            }
        }
        write!(f, "{}", if self.loads() { "loads" } else { "does not load" })
    }
}
