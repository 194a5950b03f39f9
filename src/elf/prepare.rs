//! The preparation chain.

use std::borrow::Cow;
use std::fmt;
use std::ops::DerefMut;
use std::sync::Arc;

use super::hide::hide_unmapped;
use super::index::{Lifted, ObjectIndex};
use super::patch::Patch;
use super::plan::{LinkPlan, Outcome};
use super::plugin::{Mode, ObjectInput, ObjectPlugin, ObjectReport};
use super::relocations::NO_LLVM;
use super::report::{Change, ChangeKind};
use super::validate::{self, Context, Counts, Judge};
use crate::elf::elf_view::View;
use crate::elf::planned_reach::{LARGEST_ARENA, Surroundings};
use crate::elf::{
    SectionConflicts, bounds, crel, decompress, footprint, fragments, harmonize, identity, none_relocations,
    tls_commons, unwind_tables,
};
use crate::{DebugInfo, Error, Limits, ObjectError, Result};

/// The target of preparation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    /// `e_machine` of this process: x86-64 (62) or AArch64 (183).
    pub machine: u16,
    /// LLVM's major version.
    pub llvm: u32,
}

/// The preparation chain as configured for one engine.
pub(crate) struct Preparation {
    target: Target,
    conflicts: SectionConflicts,
    limits: Limits,
    debug: DebugInfo,
    plugins: Vec<Arc<dyn ObjectPlugin>>,
}

impl fmt::Debug for Preparation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plugins: Vec<&str> = self.plugins.iter().map(|plugin| plugin.name()).collect();
        f.debug_struct("Preparation")
            .field("target", &self.target)
            .field("conflicts", &self.conflicts)
            .field("limits", &self.limits)
            .field("plugins", &plugins)
            .finish()
    }
}

/// The steps that change an object, in this order; each sees the changes of those before it.
#[derive(Debug, Clone, Copy)]
enum Step {
    Crel,
    Decompress,
    Marks,
    UnwindTables,
    Fragments,
    TlsCommons,
    Harmonize,
}

impl Step {
    const ALL: [Self; 7] = [
        Self::Crel,
        Self::Decompress,
        Self::Marks,
        Self::UnwindTables,
        Self::Fragments,
        Self::TlsCommons,
        Self::Harmonize,
    ];
}

/// Results of the steps that the index needs.
#[derive(Debug, Default)]
struct Done {
    signal_frames: bool,
    /// The section for thread-local common variables.
    tls_commons: Option<u32>,
}

/// An object that LLVM can read.
#[derive(Debug)]
pub(crate) struct Prepared<'a> {
    /// As they were given if nothing was changed.
    pub bytes: Cow<'a, [u8]>,
    pub index: ObjectIndex,
    pub changes: Vec<Change>,
}

impl Prepared<'_> {
    /// Returns the bytes as JITLink gets them, in a place of their own: without the sections that are not mapped.
    pub(crate) fn into_linkable<B: DerefMut<Target = [u8]>>(
        self,
        own: impl FnOnce(Cow<'_, [u8]>) -> B,
    ) -> (B, ObjectIndex) {
        let mut bytes = own(self.bytes);
        hide_unmapped(&mut bytes, &self.index);
        (bytes, self.index)
    }
}

impl Preparation {
    pub(crate) fn new(
        target: Target,
        conflicts: SectionConflicts,
        limits: Limits,
        plugins: Vec<Arc<dyn ObjectPlugin>>,
    ) -> Self {
        Self { target, conflicts, limits, debug: DebugInfo::default(), plugins }
    }

    /// Returns the same preparation for a linker that is not LLVM's.
    pub(crate) fn without_llvm(&self) -> Self {
        let Self { target, conflicts, limits, debug, plugins } = self;
        let target = Target { llvm: NO_LLVM, ..*target };
        Self { target, conflicts: *conflicts, limits: *limits, debug: *debug, plugins: plugins.clone() }
    }

    /// Has this kept for debuggers.
    pub(crate) fn keeping(self, debug: DebugInfo) -> Self {
        Self { debug, ..self }
    }

    /// Returns what is kept for debuggers.
    pub(crate) fn kept(&self) -> DebugInfo {
        self.debug
    }

    pub(crate) fn has_plugins(&self) -> bool {
        !self.plugins.is_empty()
    }

    /// Prepares an object for loading; returns the first refusal as the error.
    pub(crate) fn prepare<'a>(&self, name: &str, bytes: impl Into<Cow<'a, [u8]>>) -> Result<Prepared<'a>> {
        let mut report = ObjectReport::new(Mode::Load);
        let mut bytes = bytes.into();
        let mut index = self.chain(name, &mut bytes, Some(self.target.machine), &mut report, None)?;
        index.debug = self.debug;
        let (changes, ..) = report.into_parts();
        Ok(Prepared { bytes, index, changes })
    }

    /// Collects all findings about an object, for either machine. Missing imports are no problem. Returns an error only
    /// if the bytes cannot be read as such an object at all.
    pub(crate) fn check(&self, name: &str, bytes: &[u8], surroundings: &Surroundings<'_>) -> Result<LinkPlan> {
        let mut report = ObjectReport::new(Mode::Check);
        let size = bytes.len() as u64;
        let mut bytes = Cow::Borrowed(bytes);
        self.admit(name, &bytes, None)?;
        let mut counts = None;
        let outcome = self.chain(name, &mut bytes, None, &mut report, Some((&mut counts, surroundings)));
        let (index, fatal) = match outcome {
            Ok(index) => (index, None),
            Err(error) => (ObjectIndex::default(), Some(error)),
        };
        // The plan has no sections if a plugin's bytes cannot be read.
        let view = View::parse(name, &bytes, self.limits.sections).ok();
        let mut arena_bytes = 0;
        if let Some(view) = view.as_ref().filter(|_| fatal.is_none()) {
            // Refusals of a link that do not depend on the bytes.
            index.check_stack(name, surroundings.executable_stack).or_else(|error| report.refuse(|| error))?;
            arena_bytes = footprint::footprint(view, &index);
            if let Some(host) = &surroundings.host {
                let native = view.machine == self.target.machine;
                let arena = if native { host.arena.end - host.arena.start } else { LARGEST_ARENA };
                footprint::check(view, arena_bytes, arena).or_else(|error| report.refuse(|| error))?;
            }
        }
        Ok(LinkPlan::new(Outcome { name, size, view, index, report, fatal, counts, arena_bytes }))
    }

    /// Checks the size and the file format, and reads the headers.
    fn admit<'a>(&self, name: &'a str, bytes: &'a [u8], machine: Option<u16>) -> Result<View<'a>> {
        let (size, limit) = (bytes.len() as u64, self.limits.object_bytes);
        if size > limit {
            return Err(Error::Object(ObjectError::ObjectTooLarge { object: name.into(), bytes: size, limit }));
        }
        identity::identify(name, bytes, machine)?;
        let view = View::parse(name, bytes, self.limits.sections)?;
        identity::refuse_slim_lto(&view)?;
        Ok(view)
    }

    fn chain(
        &self,
        name: &str,
        bytes: &mut Cow<'_, [u8]>,
        machine: Option<u16>,
        report: &mut ObjectReport,
        counts: Option<(&mut Option<Counts>, &Surroundings<'_>)>,
    ) -> Result<ObjectIndex> {
        let mut view = self.admit(name, bytes, machine)?;
        for plugin in &self.plugins {
            if let Some(rewritten) = self.run(plugin.as_ref(), &view, report)? {
                *bytes = Cow::Owned(rewritten);
                // Blames the plugin for its bytes.
                view = self.admit(name, bytes, machine).map_err(|error| {
                    Error::Object(ObjectError::Plugin {
                        plugin: plugin.name().into(),
                        object: name.into(),
                        source: Box::new(error),
                    })
                })?;
            }
        }
        let limits = &self.limits;
        bounds::check(&view, limits)?;
        let (mut steps, mut done) = (Step::ALL.into_iter(), Done::default());
        while let Some(patch) = self.next_change(&view, &mut steps, &mut done, report)? {
            apply(name, bytes, patch)?;
            view = View::parse(name, bytes, limits.sections)?;
        }

        let none = Lifted::default();
        let mut context = Context { limits, llvm: self.target.llvm, lifted: &none };
        let native = view.machine == self.target.machine;
        let mut judge = counts.map(|(slot, around)| Judge::new(&view, slot.insert(Counts::new(&view)), around, native));
        let mut valid = validate::validate(&view, &context, report, judge.as_mut())?;
        if !valid.patch.is_empty() {
            apply(name, bytes, valid.patch)?;
            // In hostile input the symbols may overlap validated bytes.
            if report.is_clean() {
                let view = View::parse(name, bytes, limits.sections)?;
                context.lifted = &valid.index.lifted;
                let again = validate::validate(&view, &context, &mut ObjectReport::new(Mode::Load), None)?;
                if !again.patch.is_empty() {
                    return Err(view.malformed(None, None, "what preparation changes in it overlaps"));
                }
            }
        }
        valid.index.signal_frames = done.signal_frames;
        if let Some(section) = done.tls_commons {
            valid.index.make_common(section);
        }
        Ok(valid.index)
    }

    /// Runs the steps up to the first that changes something.
    fn next_change(
        &self,
        view: &View<'_>,
        steps: &mut impl Iterator<Item = Step>,
        done: &mut Done,
        report: &mut ObjectReport,
    ) -> Result<Option<Patch>> {
        let has = &view.has;
        for step in steps {
            let change = match step {
                Step::Crel if has.crel => crel::prepare(view, &self.limits, report)?,
                Step::Decompress if has.compressed => decompress::prepare(view, &self.limits, report)?,
                Step::Marks
                    if has.rel || has.rela && none_relocations::takes_single_ones(view.machine, self.target.llvm) =>
                {
                    none_relocations::prepare(view, self.target.llvm, report)?
                }
                Step::UnwindTables if has.unwind_table != 0 => {
                    unwind_tables::prepare(view, report, &mut done.signal_frames)?
                }
                Step::Fragments if has.fragments => fragments::prepare(view, report)?,
                Step::TlsCommons if tls_commons::has_any(view, has.symbols)? => tls_commons::prepare(view, report)?
                    .map(|(patch, section)| {
                        done.tls_commons = Some(section);
                        patch
                    }),
                Step::Harmonize if has.odd_names => harmonize::prepare(view, self.conflicts, report)?,
                _ => None,
            };
            if change.is_some() {
                return Ok(change);
            }
        }
        Ok(None)
    }

    /// Runs a caller's plugin; returns the bytes if it rewrote them.
    fn run(&self, plugin: &dyn ObjectPlugin, view: &View<'_>, report: &mut ObjectReport) -> Result<Option<Vec<u8>>> {
        report.begin(plugin.name().to_owned());
        let told = report.changes().len();
        let refused = |source| {
            Error::Object(ObjectError::Plugin { plugin: plugin.name().into(), object: view.object.into(), source })
        };
        let bytes = view.bytes;
        let rewritten = match plugin.prepare(ObjectInput::new(view.object, bytes), report).map_err(refused)? {
            Cow::Borrowed(same) if std::ptr::eq(same, bytes) => return Ok(None),
            other if *other == *bytes => return Ok(None),
            other => other.into_owned(),
        };
        if report.changes().len() == told {
            report.change(None, ChangeKind::Rewritten { from: bytes.len() as u64, to: rewritten.len() as u64 });
        }
        Ok(Some(rewritten))
    }
}

fn apply(name: &str, bytes: &mut Cow<'_, [u8]>, patch: Patch) -> Result<()> {
    if patch.apply(bytes) {
        return Ok(());
    }
    Err(Error::Object(ObjectError::Malformed {
        object: name.into(),
        section: None,
        offset: None,
        problem: "a header to be changed lies outside the file".into(),
    }))
}
