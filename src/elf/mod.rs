//! Object preparation: what happens to an object's bytes before LLVM sees them.
//!
//! An object passes a chain: *identity* (what kind of file it is), the callers' plugins, *bounds* (what it may cost),
//! *crel* and *decompress* (encodings that JITLink does not decode), *marks* (relocations that patch nothing), *ends*
//! (zeros in unwind tables), *CIE versions* (3, which JITLink refuses), *fragments* (code in `.init` and `.fini`),
//! *signal frames* (unwind tables that JITLink refuses), *tls commons* (thread-local common variables), *harmonizer*
//! (same-named sections that differ) and *validator* (everything that would make LLVM read out of bounds or link
//! wrongly). The chain's result is the bytes, borrowed if nothing had to be changed, and an index of what the linker
//! needs to know.

mod archive;
mod bounds;
mod builder;
mod cie_versions;
mod crel;
mod decompress;
mod ends;
mod footprint;
mod fragments;
mod harmonize;
mod hide;
mod identity;
mod index;
mod limits;
mod locate;
mod marks;
mod patch;
mod plan;
mod planned_reference;
mod plugin;
mod prepare;
mod raw;
mod reach;
mod records;
pub(crate) mod relocations;
mod report;
mod signal_frames;
mod survey;
mod tls_commons;
mod tls_image;
mod validate;
mod view;

#[cfg(any(test, slabjit_fuzzing))]
mod exercise;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub(crate) use archive::{Archive, MemberId};
#[cfg(slabjit_fuzzing)]
pub use exercise::exercise;
pub(crate) use harmonize::is_c_identifier;
pub(crate) use hide::hide_unmapped;
pub(crate) use identity::machine_text;
pub(crate) use index::{
    ArrayKind, Binding, Definition, Group, Import, ObjectIndex, PLAIN_PRIORITY, Section, SymbolKind, Visibility,
};
pub use limits::{Limits, SectionConflicts};
pub(crate) use locate::{Location, locate};
pub use plan::{LinkPlan, PlannedDefinition, PlannedImport, PlannedRelocation, PlannedSection, Problem, Severity};
pub use planned_reference::PlannedReference;
pub use plugin::{ObjectInput, ObjectPlugin, ObjectReport};
pub(crate) use prepare::{Preparation, Target};
pub(crate) use raw::{EM_AARCH64, EM_X86_64};
pub use reach::Verdict;
pub(crate) use reach::{Host, LARGEST_ARENA, MISALIGNED, Surroundings, Whereabouts};
pub(crate) use records::records;
pub use report::{Change, ChangeKind, ChangedSection};
pub(crate) use signal_frames::restore as restore_signal_frames;
pub(crate) use tls_image::{TlsBlock, TlsImage};
pub(crate) use validate::discarded_reference;
pub(crate) use view::in_message;
