//! Options of preparation.

use serde::{Deserialize, Serialize};

/// Policy for same-named sections that differ in permissions, in being mapped, or in having contents.
///
/// LLVM merges sections by name, so it refuses such objects or, in older versions, links them wrongly. The best-known
/// producer is CuTe DSL before 4.5, which puts writable pointers into a second section named `.text`.
///
/// Sections whose name carries a meaning (`.init_array*`, `.fini_array*`, `.ctors*`, `.dtors*`, `.eh_frame`, `.debug*`,
/// `.note*`, and C identifiers, to which `__start_NAME` may refer) are never renamed. They get the union of their
/// flags, also under `Rename`; an object is refused if that is writable and executable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SectionConflicts {
    /// The default: the first section keeps its name; each one that differs keeps its permissions and gets a new name.
    #[default]
    Rename,
    /// All sections of a name get the same flags: executable and read-only if any is executable, otherwise the union.
    Harmonize,
    /// The object is refused with [`ObjectError::SectionConflict`](crate::ObjectError::SectionConflict).
    Reject,
}

/// Upper bounds on one object, each with an error of its own.
///
/// ```
/// let mut limits = slabjit::Limits::default();
/// limits.object_bytes = 64 << 20;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of the object; 1 GiB by default. See [`ObjectError::ObjectTooLarge`](crate::ObjectError::ObjectTooLarge).
    pub object_bytes: u64,
    /// Number of sections; 2²⁰ by default. See [`ObjectError::TooManySections`](crate::ObjectError::TooManySections).
    pub sections: u64,
    /// Number of relocations; 2²⁶ by default. See
    /// [`ObjectError::TooManyRelocations`](crate::ObjectError::TooManyRelocations).
    pub relocations: u64,
    /// Total bytes of compressed sections after decompression; 1 GiB by default. See
    /// [`ObjectError::DecompressedTooLarge`](crate::ObjectError::DecompressedTooLarge).
    pub decompressed_bytes: u64,
    /// Bytes of memory for mapped sections and common symbols, alignment included; 64 GiB by default. See
    /// [`ObjectError::MappedTooLarge`](crate::ObjectError::MappedTooLarge).
    pub mapped_bytes: u64,
    /// Working memory of preparation and linking, beside mapped and decompressed bytes: twice the object's bytes, 2 KiB
    /// for each section, 512 bytes for each symbol, 256 for each relocation, and 64 for each byte of unwind tables; 8
    /// GiB by default. See [`ObjectError::WorkingMemoryTooLarge`](crate::ObjectError::WorkingMemoryTooLarge).
    pub working_bytes: u64,
    /// Total length of the names that relocations refer to, counted once for each relocation, since LLVM looks up some
    /// names each time; 2³⁴ by default. Only this grows faster than the object. See
    /// [`ObjectError::TooMuchWork`](crate::ObjectError::TooMuchWork).
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
