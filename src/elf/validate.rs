//! Refuses input that would make LLVM read out of bounds or link wrongly, and builds the linker's index.

mod counts;
mod discarded;
mod relocation_checks;
mod sections;
mod site;
mod symbols;
mod tables;
mod unwind_checks;
mod verdicts;

use super::index::{Lifted, ObjectIndex};
use super::patch::Patch;
use super::plugin::ObjectReport;
use crate::elf::elf_view::View;
use crate::{Limits, Result};

pub(crate) use counts::{Counts, Tally};
pub(crate) use discarded::discarded_reference;
pub(crate) use tables::{MAX_ALIGNMENT, Place, place, symbol_table};
pub(crate) use verdicts::Judge;

pub(crate) const NAME: &str = "validator";

/// The inputs of validation besides the object.
pub(crate) struct Context<'a> {
    pub limits: &'a Limits,
    /// LLVM's major version.
    pub llvm: u32,
    /// The relocations that an earlier pass over this object has lifted.
    pub lifted: &'a Lifted,
}

/// The object's index, and changes to symbols that LLVM would not link as they are.
pub(crate) struct Valid {
    pub index: ObjectIndex,
    pub patch: Patch,
}

pub(crate) fn validate(
    view: &View<'_>,
    context: &Context<'_>,
    report: &mut ObjectReport,
    judge: Option<&mut Judge<'_>>,
) -> Result<Valid> {
    report.begin(NAME);
    let mut patch = Patch::new(view.bytes.len());
    let (mut builder, tables) = sections::validate(view, context, report)?;
    let symbols = symbols::validate(view, &tables, context.limits, &mut builder, &mut patch, report)?;
    symbols.refuse_too_much_work(view, &tables, tables.relocations, context.limits.work)?;
    sections::groups(view, &tables, &symbols, &mut builder, report)?;
    let found = relocation_checks::validate(view, context, &tables, &mut patch, report, judge)?;
    unwind_checks::validate(view, report)?;
    symbols::note_statics(view, &tables, &found, &mut builder)?;
    let mut index = builder.finish(view)?;
    index.lifted = found.lifted;
    index.keep_near_what_is_lifted();
    index.sort_indirect();
    Ok(Valid { index, patch })
}
