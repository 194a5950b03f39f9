//! Errors of objects.

use std::fmt::{self, Write as _};

use crate::error_text::debug;

/// What is wrong with the bytes that were given as an object.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// No bytes at all.
    #[error("'{object}' is empty; expected a relocatable ELF object (.o)")]
    Empty {
        /// The object's name.
        object: String,
    },

    /// The first bytes belong to no format that is known here.
    #[error("'{object}' is not an ELF object (it begins with {}); expected a relocatable ELF object (.o)", hex(magic))]
    NotAnObject {
        /// The object's name.
        object: String,
        /// The first bytes of the input, at most 16.
        magic: Vec<u8>,
    },

    /// An archive where an object was expected.
    #[error(
        "'{object}' is an archive, not an object; load it with Library::add_archive, or extract the member you want \
         (ar x)"
    )]
    ArchiveNotObject {
        /// The object's name.
        object: String,
    },

    /// A thin archive: paths instead of members.
    #[error("'{archive}' is a thin archive, which holds paths and no objects; make it without --thin (ar rcs)")]
    ThinArchive {
        /// The archive's name.
        archive: String,
    },

    /// Something else where an archive was expected.
    #[error("'{archive}' is not an archive (it does not begin with !<arch>); load an object with Library::add_object")]
    NotAnArchive {
        /// The name it was given under.
        archive: String,
    },

    /// A shared object or position-independent executable where a relocatable object was expected.
    #[error(
        "'{object}' is a linked ELF file ({kind}), not a relocatable object; give a shared object to \
         LibraryBuilder::shared_library, or compile with -c"
    )]
    LinkedFileNotObject {
        /// The object's name.
        object: String,
        /// `shared object`, `executable` or `core file`.
        kind: &'static str,
    },

    /// LLVM bitcode where an object was expected.
    #[error(
        "'{object}' is LLVM bitcode, not an object; compile it first (llc -filetype=obj, clang without -flto / \
         -emit-llvm, or JitEngine::add_bitcode with feature `inkwell`)"
    )]
    BitcodeNotObject {
        /// The object's name.
        object: String,
    },

    /// A GCC object that holds only intermediate code (`-flto` without `-ffat-lto-objects`).
    #[error(
        "'{object}' holds only GCC's LTO intermediate code and no machine code; compile without -flto or with \
         -ffat-lto-objects"
    )]
    SlimLtoObject {
        /// The object's name.
        object: String,
    },

    /// An object in a format other than ELF.
    #[error("'{object}' is a {format} object; only ELF objects can be loaded (compile for {expected})")]
    ForeignFormat {
        /// The object's name.
        object: String,
        /// `COFF`, `Mach-O`, `WebAssembly` or `XCOFF`.
        format: &'static str,
        /// The target triple to compile for.
        expected: &'static str,
    },

    /// ELF for another machine.
    #[error("'{object}' is for {found} (e_machine {machine}), this process runs {expected}; compile for this machine")]
    WrongMachine {
        /// The object's name.
        object: String,
        /// Name of the object's machine.
        found: String,
        /// The `e_machine` field.
        machine: u16,
        /// Name of this process's machine.
        expected: &'static str,
    },

    /// ELF of the wrong class: 32-bit, also x32 and ILP32.
    #[error(
        "'{object}' is a 32-bit ELF object for {machine}, this process is 64-bit; compile without -m32, -mx32 or \
         -mabi=ilp32"
    )]
    WrongClass {
        /// The object's name.
        object: String,
        /// Name of the object's machine.
        machine: String,
    },

    /// ELF of the wrong byte order.
    #[error("'{object}' is big-endian, this process is little-endian; compile for {expected}")]
    WrongEncoding {
        /// The object's name.
        object: String,
        /// Name of this process's machine.
        expected: &'static str,
    },

    /// ELF for another operating system or ABI version.
    #[error(
        "'{object}' has ELF OS/ABI {abi} version {version}; only System V (0) and GNU/Linux (3) objects can be loaded"
    )]
    WrongOsAbi {
        /// The object's name.
        object: String,
        /// `EI_OSABI`.
        abi: u8,
        /// `EI_ABIVERSION`.
        version: u8,
    },

    /// The file ends before something that its headers announce.
    #[error(
        "'{object}' is cut off: {what} lies at {offset:#x}..{end:#x}, the file has {len:#x} bytes; copy or build it \
         again"
    )]
    Truncated {
        /// The object's name.
        object: String,
        /// What lies beyond the end.
        what: String,
        /// Where it begins.
        offset: u64,
        /// Where it would end.
        end: u64,
        /// The bytes there are.
        len: u64,
    },

    /// Headers, sections, symbols or relocations that contradict each other.
    #[error(
        "'{object}' is malformed{}: {problem}; build it again, and report it to the compiler's authors if it comes \
         from one",
        place(section, offset)
    )]
    Malformed {
        /// The object's name.
        object: String,
        /// The section concerned, where there is one.
        section: Option<String>,
        /// Offset in that section, or in the file where no section is named.
        offset: Option<u64>,
        /// What is wrong.
        problem: String,
    },

    /// Relocations, but no symbol table for them to refer to.
    #[error(
        "'{object}' has relocations in '{section}' but no symbol table; it was stripped too far (strip --strip-debug \
         keeps what is needed)"
    )]
    NoSymbolTable {
        /// The object's name.
        object: String,
        /// The relocation section.
        section: String,
    },

    /// A relocation that this LLVM cannot link.
    #[error(
        "'{object}', section '{section}' offset {offset:#x}: relocation {relocation} against '{symbol}' cannot be \
         linked: {reason}"
    )]
    UnsupportedRelocation {
        /// The object's name.
        object: String,
        /// The section whose bytes would be patched.
        section: String,
        /// Offset in that section.
        offset: u64,
        /// The relocation's ABI name, or its number where it has none.
        relocation: String,
        /// The symbol it refers to.
        symbol: String,
        /// Why not, and what to do instead.
        reason: String,
    },

    /// Several unwind tables (`.eh_frame`) that describe functions, of which JITLink takes one.
    #[error(
        "'{object}' has several sections '.eh_frame' that describe functions, and LLVM links one; merge them first \
         (ld -r)"
    )]
    SeveralUnwindTables {
        /// The object's name.
        object: String,
    },

    /// An object asks for executable stacks, and its library does not
    /// [allow them](crate::LibraryBuilder::executable_stack).
    #[error(
        "'{object}' asks for executable stacks (section '.note.GNU-stack' is executable), which nested functions of \
         GNU C need whose addresses are taken; use functions that are not nested (in assembly: .section \
         .note.GNU-stack,\"\",@progbits), or allow it with LibraryBuilder::executable_stack"
    )]
    ExecutableStack {
        /// The object's name.
        object: String,
    },

    /// An indirect function (`STT_GNU_IFUNC`) that has no resolver here.
    #[error(
        "'{object}' has the indirect function (IFUNC) '{symbol}', whose resolver is not a named function in a section \
         of code, or which is made for the dynamic loader"
    )]
    IndirectFunction {
        /// The object's name.
        object: String,
        /// The symbol.
        symbol: String,
    },

    /// Same-named sections that differ, under [`SectionConflicts::Reject`](crate::SectionConflicts::Reject).
    #[error(
        "'{object}' has {count} sections named '{section}' that differ ({difference}), and the policy is to reject \
         them; SectionConflicts::Rename loads such objects"
    )]
    SectionConflict {
        /// The object's name.
        object: String,
        /// The name they share.
        section: String,
        /// How many there are.
        count: usize,
        /// In what they differ.
        difference: String,
    },

    /// A section that is writable and executable, or same-named sections that would be if they had one set of flags.
    #[error(
        "'{object}': section '{section}' is writable and executable, by itself or together with others of its name, \
         which is never mapped; put code and data into sections of different names"
    )]
    WritableAndExecutable {
        /// The object's name.
        object: String,
        /// The section.
        section: String,
    },

    /// More bytes than [`Limits::object_bytes`](crate::Limits::object_bytes).
    #[error("'{object}' has {bytes} bytes, the limit is {limit}; raise Limits::object_bytes if it is genuine")]
    ObjectTooLarge {
        /// The object's name.
        object: String,
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },

    /// More sections than [`Limits::sections`](crate::Limits::sections).
    #[error("'{object}' has {count} sections, the limit is {limit}; raise Limits::sections if it is genuine")]
    TooManySections {
        /// The object's name.
        object: String,
        /// How many.
        count: u64,
        /// The limit.
        limit: u64,
    },

    /// More relocations than [`Limits::relocations`](crate::Limits::relocations).
    #[error("'{object}' has {count} relocations, the limit is {limit}; raise Limits::relocations if it is genuine")]
    TooManyRelocations {
        /// The object's name.
        object: String,
        /// How many.
        count: u64,
        /// The limit.
        limit: u64,
    },

    /// Compressed sections that would grow beyond [`Limits::decompressed_bytes`](crate::Limits::decompressed_bytes).
    #[error(
        "'{object}': section '{section}' brings the decompressed bytes to {bytes}, the limit is {limit}; raise \
         Limits::decompressed_bytes if it is genuine"
    )]
    DecompressedTooLarge {
        /// The object's name.
        object: String,
        /// The section.
        section: String,
        /// Decompressed bytes so far, this section included.
        bytes: u64,
        /// The limit.
        limit: u64,
    },

    /// Mapped sections and common symbols of more bytes than [`Limits::mapped_bytes`](crate::Limits::mapped_bytes).
    #[error(
        "'{object}': {part} brings the mapped memory to {bytes} bytes, the limit is {limit}; raise \
         Limits::mapped_bytes if it is genuine"
    )]
    MappedTooLarge {
        /// The object's name.
        object: String,
        /// The section or common symbol, in words.
        part: String,
        /// Bytes so far, this one included.
        bytes: u64,
        /// The limit.
        limit: u64,
    },

    /// More parts than can be prepared and linked in [`Limits::working_bytes`](crate::Limits::working_bytes).
    #[error(
        "'{object}' may take {bytes} bytes of memory while it is prepared and linked, the limit is {limit}; raise \
         Limits::working_bytes if it is genuine"
    )]
    WorkingMemoryTooLarge {
        /// The object's name.
        object: String,
        /// How many it may take.
        bytes: u64,
        /// The limit.
        limit: u64,
    },

    /// Relocations that refer to more bytes of names than [`Limits::work`](crate::Limits::work).
    #[error(
        "'{object}': its relocations refer to names of {work} bytes, each counted as often as it is referred to, the \
         limit is {limit}; raise Limits::work if it is genuine"
    )]
    TooMuchWork {
        /// The object's name.
        object: String,
        /// How many.
        work: u64,
        /// The limit.
        limit: u64,
    },

    /// A caller's [`ObjectPlugin`](crate::ObjectPlugin) refused the object.
    #[error("plugin '{plugin}' refused '{object}': {source}")]
    Plugin {
        /// The plugin's name.
        plugin: String,
        /// The object's name.
        object: String,
        /// What the plugin said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl fmt::Debug for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(self, f)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut s, b| {
        let _ = write!(s, "{}{b:02x}", if s.is_empty() { "" } else { " " });
        s
    })
}

fn place(section: &Option<String>, offset: &Option<u64>) -> String {
    match (section, offset) {
        (Some(s), Some(o)) => format!(", section '{s}' offset {o:#x}"),
        (Some(s), None) => format!(", section '{s}'"),
        (None, Some(o)) => format!(" at file offset {o:#x}"),
        (None, None) => String::new(),
    }
}
