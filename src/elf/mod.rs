//! Object preparation: checks and rewrites an object's bytes before LLVM sees them.
//!
//! An object passes a chain: *identity* (the file format), the callers' plugins, *bounds* (the cost), *crel* and
//! *decompress* (encodings that JITLink does not decode), *marks* (relocations that patch nothing), *ends* (zeros in
//! unwind tables), *CIE versions* (3, which JITLink refuses), *fragments* (code in `.init` and `.fini`), *signal
//! frames* (unwind tables that JITLink refuses), *tls commons* (thread-local common variables), *harmonizer*
//! (same-named sections that differ) and *validator* (input that would make LLVM read out of bounds or link wrongly).
//! The result is the bytes, borrowed if nothing had to be changed, and an index for the linker.

mod archive;
mod arena_image;
mod bounds;
mod builder;
mod crel;
mod debug_image;
mod decompress;
mod elf_abi;
mod elf_view;
mod error;
mod export_image;
mod footprint;
mod fragments;
mod gnu_hash;
mod harmonize;
mod hide;
mod identity;
mod image_bytes;
mod image_error;
pub(crate) mod image_file;
pub(crate) mod image_frames;
pub(crate) mod image_note;
mod index;
mod limits;
pub(crate) mod link_tables;
mod locate;
mod none_relocations;
mod patch;
mod plan;
mod planned_reach;
mod planned_reference;
mod plugin;
mod prepare;
mod records;
pub(crate) mod relocations;
mod report;
mod survey;
mod tls_commons;
mod tls_image;
mod unwind_tables;
mod validate;

#[cfg(any(test, slabjit_fuzzing))]
mod exercise;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub(crate) use archive::{Archive, MemberId};
pub(crate) use arena_image::ArenaImage;
pub(crate) use debug_image::debug_image;
pub(crate) use elf_abi::{
    EM_AARCH64, EM_X86_64, HEADER_SIZE, HOST_MACHINE, RELA_SIZE, SECTION_SIZE, SHN_LORESERVE, STT_FUNC, STT_GNU_IFUNC,
    SYMBOL_SIZE,
};
pub(crate) use elf_view::in_message;
pub use error::ObjectError;
#[cfg(slabjit_fuzzing)]
pub use exercise::exercise;
pub(crate) use export_image::{Audience, DEFINED, ExportImage, SYMBOL_SECTION, SYMBOL_VALUE, sysv_hash};
pub(crate) use gnu_hash::{gnu_hash, gnu_hash_bucket, gnu_hash_table};
pub(crate) use harmonize::is_c_identifier;
pub(crate) use identity::machine_text;
pub(crate) use image_bytes::{ImageBytes, PROGRAM_HEADER_SIZE, put};
pub use image_error::{ImageError, NoImage};
pub(crate) use index::{
    Array, ArrayKind, Binding, Definition, Group, Import, ObjectIndex, Rank, Section, SymbolKind, Visibility,
};
pub use limits::{Limits, SectionConflicts};
pub(crate) use locate::{Location, locate};
pub use plan::{LinkPlan, PlannedDefinition, PlannedImport, PlannedRelocation, PlannedSection, Problem, Severity};
pub use planned_reach::Verdict;
pub(crate) use planned_reach::{Host, LARGEST_ARENA, MISALIGNED, Surroundings, Whereabouts};
pub use planned_reference::PlannedReference;
pub use plugin::{ObjectInput, ObjectPlugin, ObjectReport};
pub(crate) use prepare::{Preparation, Target};
pub(crate) use records::{likely_count, records};
pub use report::{Change, ChangeKind, ChangedSection};
pub(crate) use tls_image::{TlsBlock, TlsImage};
pub(crate) use unwind_tables::restore_signal_frames;
pub(crate) use validate::discarded_reference;
