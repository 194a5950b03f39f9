//! What a caller configures of preparation.

use serde::{Deserialize, Serialize};

/// What to do about same-named sections that differ in permissions, in whether they are mapped, or in having contents.
///
/// LLVM merges sections by name, so it refuses such objects or, in older versions, links them wrongly. The well-known
/// producer is CuTe DSL before 4.5, which puts pointers that are written at run time into a second section named `.text`.
///
/// Sections whose name carries a meaning (`.init_array*`, `.fini_array*`, `.ctors*`, `.dtors*`, `.eh_frame`, `.debug*`,
/// `.note*`, and C identifiers, to which `__start_NAME` may refer) are never renamed: under `Rename` too they get the union of
/// their flags, and an object in which that would be writable and executable is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SectionConflicts {
    /// The default: the first section of a name keeps it, each one that differs gets a name of its own and keeps its
    /// permissions.
    #[default]
    Rename,
    /// All sections of a name get the same flags: executable and read-only if any is executable, else the union.
    Harmonize,
    /// Such an object is an [`Error::SectionConflict`](crate::Error::SectionConflict).
    Reject,
}

/// Upper bounds on what one object may bring, each with an error of its own.
///
/// ```
/// let mut limits = slabjit::Limits::default();
/// limits.object_bytes = 64 << 20;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of the object itself; 1 GiB by default. See [`Error::ObjectTooLarge`](crate::Error::ObjectTooLarge).
    pub object_bytes: u64,
    /// Sections; 2²⁰ by default. See [`Error::TooManySections`](crate::Error::TooManySections).
    pub sections: u64,
    /// Relocations; 2²⁶ by default. See [`Error::TooManyRelocations`](crate::Error::TooManyRelocations).
    pub relocations: u64,
    /// Bytes that compressed sections expand to, together; 1 GiB by default. See
    /// [`Error::DecompressedTooLarge`](crate::Error::DecompressedTooLarge).
    pub decompressed_bytes: u64,
    /// Bytes of memory that its mapped sections and common symbols take, alignment included; 64 GiB by default. See
    /// [`Error::MappedTooLarge`](crate::Error::MappedTooLarge).
    pub mapped_bytes: u64,
    /// Bytes that preparing and linking it may take meanwhile, beside what is mapped or decompressed: twice its own bytes, 2 KiB for
    /// each section, 512 bytes for each symbol, 256 for each relocation, and 64 for each byte of its unwind tables; 8 GiB by default. See
    /// [`Error::WorkingMemoryTooLarge`](crate::Error::WorkingMemoryTooLarge).
    pub working_bytes: u64,
    /// The one thing that grows faster than the object: bytes of the names that relocations refer to, of each relocation anew, as LLVM
    /// looks up some of them by name each time; 2³⁴ by default. See [`Error::TooMuchWork`](crate::Error::TooMuchWork).
    pub work: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            object_bytes: 1 << 30,
            sections: 1 << 20,
            relocations: 1 << 26,
            decompressed_bytes: 1 << 30,
            mapped_bytes: 1 << 36,
            working_bytes: 1 << 33,
            work: 1 << 34,
        }
    }
}
