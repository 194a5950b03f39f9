//! The one error type: what went wrong, where, and what to do about it.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong, one variant for each cause.
///
/// `Display` names object, section, offset, relocation and symbol where they apply, repeats LLVM's own words where LLVM
/// spoke, and says what to do next. Match on the variants; the texts may change in any release.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // ---- the bytes given as an object ----
    /// A file could not be read.
    #[error("cannot read '{}': {source}", path.display())]
    Io {
        /// The file asked for.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No bytes at all.
    #[error("'{object}' is empty; expected a relocatable ELF object (.o)")]
    EmptyObject {
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
        "'{object}' is an archive, not an object; load it with Library::add_archive, or extract the member you want (ar x)"
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
        "'{object}' is a linked ELF file ({kind}), not a relocatable object; give a shared object to LibraryBuilder::shared_library, or compile with -c"
    )]
    LinkedFileNotObject {
        /// The object's name.
        object: String,
        /// `shared object`, `executable` or `core file`.
        kind: &'static str,
    },
    /// LLVM bitcode where an object was expected.
    #[error(
        "'{object}' is LLVM bitcode, not an object; compile it first (llc -filetype=obj, clang without -flto / -emit-llvm, or JitEngine::add_bitcode with feature `inkwell`)"
    )]
    BitcodeNotObject {
        /// The object's name.
        object: String,
    },
    /// A GCC object that holds only intermediate code (`-flto` without `-ffat-lto-objects`).
    #[error(
        "'{object}' holds only GCC's LTO intermediate code and no machine code; compile without -flto or with -ffat-lto-objects"
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
        "'{object}' is a 32-bit ELF object for {machine}, this process is 64-bit; compile without -m32, -mx32 or -mabi=ilp32"
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
        "'{object}' is cut off: {what} lies at {offset:#x}..{end:#x}, the file has {len:#x} bytes; copy or build it again"
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
        "'{object}' is malformed{}: {problem}; build it again, and report it to the compiler's authors if it comes from one",
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
        "'{object}' has relocations in '{section}' but no symbol table; it was stripped too far (strip --strip-debug keeps what is needed)"
    )]
    NoSymbolTable {
        /// The object's name.
        object: String,
        /// The relocation section.
        section: String,
    },
    /// A relocation that this LLVM cannot link.
    #[error(
        "'{object}', section '{section}' offset {offset:#x}: relocation {relocation} against '{symbol}' cannot be linked: {reason}"
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
    /// Thread-local storage that cannot be linked.
    #[error("'{object}' uses thread-local storage in a way that cannot be linked: {what}")]
    ThreadLocal {
        /// The object's name.
        object: String,
        /// The symbol or relocation found, what is wrong with it, and what to do instead.
        what: String,
    },
    /// No memory for thread-local variables at a fixed distance from the thread pointer, of which glibc has a surplus of
    /// about 1.6 KB for all libraries that are loaded after the start.
    #[error(
        "'{object}' has no room for {bytes} bytes (aligned to {alignment}) of static thread-local storage, which code compiled for the initial-exec or local-exec model needs: {message}; compile it with -fPIC -ftls-model=global-dynamic, or start the process with a larger surplus (GLIBC_TUNABLES=glibc.rtld.optional_static_tls=BYTES)"
    )]
    StaticThreadLocal {
        /// The object's name.
        object: String,
        /// Bytes of the object's variables.
        bytes: u64,
        /// Their alignment in bytes.
        alignment: u64,
        /// The dynamic loader's words.
        message: String,
    },
    /// The dynamic loader did not accept an object's thread-local variables, or the system did not let us ask it, or start the thread
    /// that it takes to find out whether a variable of the process is at a fixed distance from the thread pointer.
    #[error(
        "'{object}': finding or making storage for its thread-local variables failed: {message}{}",
        storage_advice(source)
    )]
    ThreadLocalStorage {
        /// The object's name.
        object: String,
        /// What failed; the dynamic loader's words where it refused.
        message: String,
        /// What the system said, where it refused.
        source: Option<io::Error>,
    },
    /// A thread-local variable was asked for by name.
    #[error(
        "'{symbol}' in library '{library}' is thread-local: each thread has its own; have the library export a function that returns its address"
    )]
    ThreadLocalSymbol {
        /// The library.
        library: String,
        /// The name.
        symbol: String,
    },
    /// Several unwind tables (`.eh_frame`) that describe functions, of which JITLink takes one.
    #[error(
        "'{object}' has several sections '.eh_frame' that describe functions, and LLVM links one; merge them first (ld -r)"
    )]
    SeveralUnwindTables {
        /// The object's name.
        object: String,
    },
    /// An object asks for executable stacks, and its library does not
    /// [allow them](crate::LibraryBuilder::executable_stack).
    #[error(
        "'{object}' asks for executable stacks (section '.note.GNU-stack' is executable), which nested functions of GNU C need whose addresses are taken; use functions that are not nested (in assembly: .section .note.GNU-stack,\"\",@progbits), or allow it with LibraryBuilder::executable_stack"
    )]
    ExecutableStack {
        /// The object's name.
        object: String,
    },
    /// The system does not make stacks executable.
    #[error(
        "'{object}' asks for executable stacks, and the system does not make them so: {message}; glibc 2.41 and later do it only for processes started with GLIBC_TUNABLES=glibc.rtld.execstack=2, and security policies (SELinux's execstack, systemd's MemoryDenyWriteExecute) may forbid it"
    )]
    ExecutableStackRefused {
        /// The object's name.
        object: String,
        /// What the dynamic loader or the system said.
        message: String,
    },
    /// An indirect function (`STT_GNU_IFUNC`) that has no resolver here.
    #[error(
        "'{object}' has the indirect function (IFUNC) '{symbol}', whose resolver is not a named function in a section of code, or which is made for the dynamic loader"
    )]
    IndirectFunction {
        /// The object's name.
        object: String,
        /// The symbol.
        symbol: String,
    },
    /// Same-named sections that differ, under [`SectionConflicts::Reject`](crate::SectionConflicts::Reject).
    #[error(
        "'{object}' has {count} sections named '{section}' that differ ({difference}), and the policy is to reject them; SectionConflicts::Rename loads such objects"
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
        "'{object}': section '{section}' is writable and executable, by itself or together with others of its name, which is never mapped; put code and data into sections of different names"
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
        "'{object}': section '{section}' brings the decompressed bytes to {bytes}, the limit is {limit}; raise Limits::decompressed_bytes if it is genuine"
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
        "'{object}': {part} brings the mapped memory to {bytes} bytes, the limit is {limit}; raise Limits::mapped_bytes if it is genuine"
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
        "'{object}' may take {bytes} bytes of memory while it is prepared and linked, the limit is {limit}; raise Limits::working_bytes if it is genuine"
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
        "'{object}': its relocations refer to names of {work} bytes, each counted as often as it is referred to, the limit is {limit}; raise Limits::work if it is genuine"
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

    // ---- names ----
    /// Two strong definitions of one name in one library.
    #[error(
        "'{symbol}' is defined twice in library '{library}': by '{first}' and by '{second}'; put one of them into a library of its own, or make one weak"
    )]
    DuplicateDefinition {
        /// The name.
        symbol: String,
        /// The library.
        library: String,
        /// The object that defined it first.
        first: String,
        /// The object that defines it again.
        second: String,
    },
    /// A reference to a local symbol of a COMDAT group that is linked from another object. GNU ld refuses it too, with
    /// "defined in discarded section".
    #[error(
        "'{object}', section '{section}' offset {offset:#x}: '{symbol}' is a local symbol of COMDAT group '{group}', which is linked from '{linked}', so that '{object}' may not refer to its own copy; compile both from the same sources with the same options, or put them into libraries of their own (a compiler that makes such references is at fault)"
    )]
    DiscardedReference {
        /// The object's name.
        object: String,
        /// The section that refers.
        section: String,
        /// Offset in that section.
        offset: u64,
        /// The local symbol; of a section symbol the section's name.
        symbol: String,
        /// The group's signature.
        group: String,
        /// The object whose copy of the group is linked.
        linked: String,
    },
    /// An object that has sections of a linker set, or refers to its bounds (`__start_NAME`, `__stop_NAME`), and
    /// comes when the set can not be changed any more.
    #[error(
        "'{object}' comes too late for the linker set '{section}' of library '{library}': '{other}' {problem}; add all objects that have a part in the set before the first get or initialize of the library, or give later ones a library of their own"
    )]
    LateForLinkerSet {
        /// The new object.
        object: String,
        /// The library.
        library: String,
        /// The set's sections.
        section: String,
        /// An object that is linked already.
        other: String,
        /// What it has done.
        problem: &'static str,
    },
    /// A linker set of code in more than one object, or whose bounds another object refers to.
    #[error(
        "section '{section}' of '{object}' is code, and belongs to a linker set of several objects of library '{library}' (__start_{section}, __stop_{section}), which can hold data only; merge those objects into one first (ld -r), or make it a set of pointers to the functions"
    )]
    ExecutableLinkerSet {
        /// An object that has such a section.
        object: String,
        /// The library.
        library: String,
        /// The set's sections.
        section: String,
    },
    /// Names that nothing defines. All of them are listed.
    #[error("{}", undefined_symbols(library, symbols))]
    UndefinedSymbols {
        /// The library that was being linked.
        library: String,
        /// Every missing name.
        symbols: Vec<UndefinedSymbol>,
    },
    /// The library defines no such name.
    #[error("library '{library}' defines no symbol '{symbol}'{hint}")]
    SymbolNotFound {
        /// The library.
        library: String,
        /// The name asked for.
        symbol: String,
        /// What there is instead, or nothing.
        hint: String,
    },
    /// A function type was asked for a data symbol.
    #[error(
        "'{symbol}' in library '{library}' is data, but was asked for as a function ({requested}); ask for a pointer type such as *const T"
    )]
    WrongSymbolKind {
        /// The library.
        library: String,
        /// The name.
        symbol: String,
        /// The type asked for.
        requested: &'static str,
    },
    /// A symbol whose address is 0.
    #[error("'{symbol}' in library '{library}' has address 0; a function or reference there cannot be used")]
    NullSymbol {
        /// The library.
        library: String,
        /// The name.
        symbol: String,
    },
    /// A name with a NUL byte.
    #[error("the name {name:?} contains a NUL byte, no symbol has such a name")]
    InvalidName {
        /// The name.
        name: String,
    },
    /// The library was removed.
    #[error(
        "library '{library}' was removed; handles taken before go on working, new ones need the object to be added again"
    )]
    Removed {
        /// The library.
        library: String,
    },
    /// A library that was removed is not gone in time. It goes with its last holder.
    #[error(
        "library '{library}' was removed, but is not gone after {waited:?}: {}", waited_for(*holders, *drains)
    )]
    RemovalTimedOut {
        /// The library.
        library: String,
        /// As long as was asked for.
        waited: std::time::Duration,
        /// What holds it: symbols, libraries, and calls that are just linking it. If it is 0 and `drains` is 0, another thread
        /// is running its finalisers.
        holders: usize,
        /// Those of its [`Drain`](crate::Drain)s that have not finished.
        drains: usize,
    },
    /// Code of a library or of one that needs it, or a [`Drain`](crate::Drain) of either, would have waited for the library's
    /// end, which cannot come before that returns. The library is removed, and goes with its last holder.
    #[error(
        "library '{library}' was removed, but its end cannot be waited for by its own code or Drains, nor by those of a library that needs it; call remove there, or wait on another thread"
    )]
    RemovalFromOwnCode {
        /// The library.
        library: String,
    },
    /// Another thread was linking or initialising the library when this process was forked, and is not here to end it. What was linked
    /// before is still found.
    #[error(
        "library '{library}' was being linked or initialised by another thread when this process was forked, which that thread was not; load it again, as a library of its own"
    )]
    LostInFork {
        /// The library.
        library: String,
    },
    /// There is no file at the path of a shared library.
    #[error(
        "there is no shared library at '{}'; give the path it has, or its name alone with LibraryBuilder::search_path, or a name that the dynamic loader finds (LD_LIBRARY_PATH)", path.display()
    )]
    SharedLibraryNotFound {
        /// As it was given.
        path: PathBuf,
    },
    /// A file that was given as a shared library is none for this machine.
    #[error("'{}' is no shared library for this machine, but {what}", path.display())]
    NotASharedLibrary {
        /// As it was given.
        path: PathBuf,
        /// What it is.
        what: String,
    },
    /// A shared library could not be opened.
    #[error("cannot open shared library '{}': {}; give a path, its folder with LibraryBuilder::search_path, or a name that the dynamic loader finds (LD_LIBRARY_PATH)", path.display(), innermost(source))]
    SharedLibrary {
        /// As it was given.
        path: PathBuf,
        /// What the dynamic loader said.
        source: libloading::Error,
    },

    // ---- linking ----
    /// LLVM refused the object.
    #[error("LLVM cannot link '{object}': {message}{}", link_advice(message))]
    Link {
        /// The object's name.
        object: String,
        /// LLVM's words.
        message: String,
    },
    /// References of an object that do not reach their targets and cannot be bridged. Nothing was written and nothing ran.
    #[error("{}", out_of_range(object, references, *more))]
    ReferencesOutOfRange {
        /// The object's name.
        object: String,
        /// All of them, in the order in which they were found, up to a bound.
        references: Vec<FarReference>,
        /// How many more there are.
        more: usize,
    },
    /// An initialiser threw an exception or panicked. The object was unloaded again.
    #[error(
        "an initialiser of '{object}' failed: {message}; what was linked with it was unloaded, and is tried again when the library is next asked for something"
    )]
    InitializerFailed {
        /// The object's name.
        object: String,
        /// The exception's own words where it has any.
        message: String,
    },
    /// The LLVM session could not be made.
    #[error("cannot start LLVM's JIT: {message}")]
    Session {
        /// LLVM's words.
        message: String,
    },

    // ---- memory ----
    /// No address space for the arena, however small.
    #[error(
        "cannot reserve address space for an arena of {requested} bytes, nor for {minimum}: {source}; raise the process's address-space limit (ulimit -v)"
    )]
    AddressSpace {
        /// The bytes asked for first.
        requested: usize,
        /// The smallest size tried.
        minimum: usize,
        /// What the system said.
        source: io::Error,
    },
    /// No address space for the arena where [`JitEngineBuilder::arena_placement`](crate::JitEngineBuilder::arena_placement)
    /// wants it, however small.
    #[error(
        "cannot place an arena {place}, of {requested} bytes or of fewer down to {minimum}: it has to lie in {:#x}..{:#x}, the largest free piece there has {largest_free} bytes ({source}); create the engine before those addresses are taken, or choose another ArenaPlacement",
        window.start, window.end
    )]
    ArenaPlacement {
        /// Where it was to be, in words.
        place: String,
        /// The addresses that would do.
        window: std::ops::Range<usize>,
        /// The bytes asked for first.
        requested: usize,
        /// The smallest size tried.
        minimum: usize,
        /// Bytes of the largest free piece of the window. Room that heap and stack grow into is not free.
        largest_free: usize,
        /// What the system said, where it was asked.
        source: io::Error,
    },
    /// The loaded libraries are so far apart that no arena is near all of them
    /// ([`ArenaPlacement::NearLibraries`](crate::ArenaPlacement::NearLibraries)).
    #[error(
        "no arena can be within 2 GiB of all loaded libraries: '{lowest}' begins at {:#x} and '{highest}' ends at {:#x}; create the engine before the later of them is loaded, or choose ArenaPlacement::Near with an address in the one that matters",
        span.start, span.end
    )]
    LibrariesApart {
        /// The library at the lowest addresses.
        lowest: String,
        /// The library at the highest addresses.
        highest: String,
        /// From the beginning of the one to the end of the other.
        span: std::ops::Range<usize>,
    },
    /// No range in the arena is large enough.
    #[error(
        "the arena is exhausted: '{object}' needs {requested} bytes in one piece (its largest section is '{section}' with {section_bytes}), the largest free piece has {largest_free} of the arena's {arena_bytes}; {}",
        arena_advice(*requested, *arena_bytes)
    )]
    ArenaExhausted {
        /// The object's name.
        object: String,
        /// Bytes of the slab.
        requested: u64,
        /// The object's largest section.
        section: String,
        /// Its size in bytes.
        section_bytes: u64,
        /// The largest free range in bytes.
        largest_free: u64,
        /// The arena's size in bytes.
        arena_bytes: u64,
    },
    /// The process has almost as many mappings as the kernel lets it have (`vm.max_map_count`), and the last ones are left to malloc and
    /// the dynamic loader, which end the process or fail without.
    #[error(
        "'{object}' needs mappings of its own, and the process has {mappings} of the {limit} that vm.max_map_count allows (the last ones are left to malloc and the dynamic loader); use SlabLayout::Packed, which takes none for a small object, remove libraries, or raise the limit (sysctl vm.max_map_count)"
    )]
    MappingLimit {
        /// The object's name.
        object: String,
        /// How many mappings there are.
        mappings: u64,
        /// How many there may be.
        limit: u64,
    },
    /// Alignment above 2 MiB.
    #[error(
        "'{object}', section '{section}' wants an alignment of {alignment} bytes, the largest supported is {limit}; lower the alignment"
    )]
    UnsupportedAlignment {
        /// The object's name.
        object: String,
        /// The section.
        section: String,
        /// The alignment asked for.
        alignment: u64,
        /// The largest supported.
        limit: u64,
    },
    /// The system refused a call.
    #[error("{call} failed for '{object}': {source}{}", system_advice(call, source))]
    System {
        /// The system call.
        call: &'static str,
        /// The object it was made for.
        object: String,
        /// What the system said.
        source: io::Error,
    },

    // ---- the cache ----
    /// A folder that an [`ObjectCache`](crate::ObjectCache) must not use, as others might put files into it.
    #[error("the cache cannot use '{}': {problem}; {remedy}", path.display())]
    CacheFolder {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// What to do about it.
        remedy: String,
    },
    /// A file of an [`ObjectCache`](crate::ObjectCache) that is torn, or that others made or may change. It was not used.
    #[error("the cache does not use '{}': {problem}; {}", path.display(), moved(moved_to))]
    CacheFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// Where it is now, out of the way; or why it could not be moved.
        moved_to: io::Result<PathBuf>,
    },
    /// No space for a file of an [`ObjectCache`](crate::ObjectCache).
    #[error(
        "the cache has no room for '{}': {source}; free space there, or raise the limit (the user's quota, or ulimit -f)", path.display()
    )]
    CacheFull {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// An [`ObjectCache`](crate::ObjectCache) that may only be read. What is in it is still found.
    #[error(
        "the cache cannot be written to, at '{}': {source}; mount it writable (chmod u+w if it is a matter of permissions), or choose another folder", path.display()
    )]
    CacheReadOnly {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused a call of an [`ObjectCache`](crate::ObjectCache)'s for another reason.
    #[error("the cache failed at '{}': {call}: {source}", path.display())]
    CacheSystem {
        /// The system call.
        call: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    // ---- LLVM IR ----
    /// Bitcode or text of IR that LLVM cannot read, or a module that its verifier refuses.
    #[error(
        "'{module}' is not valid LLVM IR: {message}; `opt-{} -passes=verify` says more (LLVM reads what older versions wrote, not what newer ones did)",
        crate::llvm_version()
    )]
    InvalidIr {
        /// The module's name.
        module: String,
        /// What LLVM said.
        message: String,
    },
    /// IR that was made for another machine or system.
    #[error(
        "'{module}' has the {what} '{found}', this process '{expected}'; compile it for this machine, or leave it out of the module"
    )]
    IrForOtherTarget {
        /// The module's name.
        module: String,
        /// `target triple` or `data layout`.
        what: &'static str,
        /// The module's.
        found: String,
        /// The process's.
        expected: String,
    },
    /// LLVM could not compile a module that is valid: inline assembly that this machine does not have, for example.
    #[error("LLVM cannot compile '{module}' for this machine: {message}")]
    CodeGeneration {
        /// The module's name.
        module: String,
        /// What LLVM said.
        message: String,
    },

    // ---- tvm-ffi ----
    /// A function of the packed calling convention raised an error.
    #[error("'{function}' of library '{library}' raised {kind}: {message}{}", raised_at(backtrace))]
    TvmFfiRaised {
        /// The library.
        library: String,
        /// The function, without its prefix; or one of the runtime's.
        function: String,
        /// The kind, such as `ValueError`.
        kind: String,
        /// The message.
        message: String,
        /// Where it was raised, the most recent call first, if that is known.
        backtrace: Option<String>,
    },
    /// A function of the packed calling convention failed and raised no error, or none where it could be found.
    #[error(
        "'{function}' of library '{library}' returned {code} and raised no error; the function is at fault, or it raises errors elsewhere than where its library finds TVMFFIErrorMoveFromRaised (Library::imports says where)"
    )]
    TvmFfiFailed {
        /// The library.
        library: String,
        /// The function, without its prefix; or one of the runtime's.
        function: String,
        /// What it returned.
        code: i32,
    },
    /// A function of the packed calling convention returned something else than it was called for. That was let go of.
    #[error(
        "'{function}' of library '{library}' returned {found}, the call expects {expected}; ask for what it returns, or for a tvm_ffi::Value"
    )]
    TvmFfiResult {
        /// The library.
        library: String,
        /// The function, without its prefix.
        function: String,
        /// What the call asked for.
        expected: &'static str,
        /// What there was.
        found: String,
    },
    /// More arguments than the packed calling convention can count.
    #[error(
        "'{function}' of library '{library}' cannot be called with {count} arguments; at most {} can be counted",
        i32::MAX
    )]
    TvmFfiArguments {
        /// The library.
        library: String,
        /// The function, without its prefix.
        function: String,
        /// How many.
        count: usize,
    },
    /// A function of the tvm-ffi runtime that is nowhere.
    #[error(
        "library '{library}' finds no {symbol}; give it libtvm_ffi.so with LibraryBuilder::shared_library, or LibraryBuilder::tvm_ffi"
    )]
    TvmFfiRuntime {
        /// The library.
        library: String,
        /// The name.
        symbol: &'static str,
    },
    /// A tensor's shape and strides are not of the same length, or one of them is missing.
    #[error("a tensor of shape {shape:?} has strides {strides:?}; give one stride, in elements, for each dimension")]
    TensorRank {
        /// Elements in each dimension.
        shape: Vec<i64>,
        /// Elements from one to the next.
        strides: Vec<i64>,
    },
    /// A tensor with a negative number of elements.
    #[error("dimension {dimension} of a tensor of shape {shape:?} is negative")]
    TensorExtent {
        /// Elements in each dimension.
        shape: Vec<i64>,
        /// The dimension.
        dimension: usize,
    },
    /// A tensor with a negative stride.
    #[error(
        "stride {dimension} of a tensor with strides {strides:?} is negative; copy it, or pass its mirror image and have the kernel count down"
    )]
    TensorStride {
        /// Elements from one to the next.
        strides: Vec<i64>,
        /// The dimension.
        dimension: usize,
    },
    /// A tensor whose number of elements, or whose last element's place, is more than can be counted.
    #[error("a tensor of shape {shape:?} and strides {strides:?} does not fit into an address space")]
    TensorOverflow {
        /// Elements in each dimension.
        shape: Vec<i64>,
        /// Elements from one to the next; empty where they were being made.
        strides: Vec<i64>,
    },
    /// A tensor that reaches past the slice that it is a view of.
    #[error("a tensor needs {needed} elements from its first to its last, the slice has {elements}")]
    TensorOutOfBounds {
        /// Elements that it needs.
        needed: i64,
        /// Elements that there are.
        elements: usize,
    },
    /// A tensor of null that has elements.
    #[error("a tensor of {bytes} bytes has no memory: its pointer is null")]
    TensorNull {
        /// Its size.
        bytes: u64,
    },
    /// A tensor whose first element is not aligned.
    #[error(
        "a tensor's first element is at {address:#x}, which is no multiple of {alignment}, the size of its element type"
    )]
    TensorMisaligned {
        /// Where it is.
        address: u64,
        /// The alignment in bytes.
        alignment: u64,
    },

    // ---- devices ----
    /// There is no CUDA driver.
    #[cfg(feature = "cuda")]
    #[error("there is no CUDA driver: {}; install NVIDIA's driver, or start the container with the devices (--gpus all), or set LD_LIBRARY_PATH to libcuda's folder", messages.join("; "))]
    DriverNotFound {
        /// What the dynamic loader said of each name that was tried.
        messages: Vec<String>,
    },
    /// The driver lacks a function that is called here.
    #[cfg(feature = "cuda")]
    #[error("the CUDA driver '{}' is too old: it has no {missing}; install one of CUDA 11.0 (R450) or newer", path.display())]
    DriverTooOld {
        /// What it was opened as.
        path: PathBuf,
        /// The first function that it lacks.
        missing: &'static str,
    },
    /// The driver knows no device.
    #[cfg(feature = "cuda")]
    #[error(
        "the CUDA driver finds no device; look at nvidia-smi, at CUDA_VISIBLE_DEVICES, and whether the container was given one (--gpus all)"
    )]
    NoDevice,
    /// There are not as many devices.
    #[cfg(feature = "cuda")]
    #[error("there is no device {ordinal}: there are {count}, counted from 0 (CUDA_VISIBLE_DEVICES says which)")]
    NoSuchDevice {
        /// The ordinal asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// A device's memory, or the driver's on the host, does not suffice (`CUDA_ERROR_OUT_OF_MEMORY`).
    #[cfg(feature = "cuda")]
    #[error(
        "{function} failed{}: out of memory (CUDA_ERROR_OUT_OF_MEMORY); free some, or look at nvidia-smi for who has it",
        of_device(device)
    )]
    DeviceOutOfMemory {
        /// The driver's function.
        function: &'static str,
        /// The device's ordinal, where it is known.
        device: Option<usize>,
    },
    /// A function of the driver failed. It may say what happened on the device long before.
    #[cfg(feature = "cuda")]
    #[error("{function} failed{}: {name} ({code}): {text}{}", of_device(device), cuda_advice(*code))]
    Cuda {
        /// The function.
        function: &'static str,
        /// The device's ordinal, where it is known.
        device: Option<usize>,
        /// The `CUresult`.
        code: u32,
        /// Its name, by the driver.
        name: String,
        /// What it means, by the driver.
        text: String,
    },
    /// A child of `fork` has asked for what is the parent's.
    #[cfg(feature = "cuda")]
    #[error(
        "CUDA cannot be used in a child of fork whose parent has loaded the driver; load it in the child first, or have the child execute a program (exec)"
    )]
    DeviceAfterFork,
    /// A handle that cannot be waited for.
    #[cfg(feature = "cuda")]
    #[error("a {handle} was given that {problem}")]
    DeviceHandle {
        /// What it should be, or is.
        handle: &'static str,
        /// What is wrong with it, and what to do instead.
        problem: &'static str,
    },
    /// A library's initialisation on a device failed; see [`Library::initialize_on`](crate::Library::initialize_on).
    #[cfg(feature = "cuda")]
    #[error(
        "initialising library '{library}' on device {device} failed: {source}; it is tried again when it is next asked for"
    )]
    DeviceInitialization {
        /// The library.
        library: String,
        /// The device's ordinal.
        device: usize,
        /// What the caller's function returned.
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    // ---- kernels ----
    /// A [`KernelSignature`](crate::KernelSignature) that makes no sense.
    #[error("the signature of kernel '{kernel}' makes no sense{}: {problem}", at_argument(argument))]
    InvalidSignature {
        /// The kernel.
        kernel: String,
        /// The argument concerned, where there is one.
        argument: Option<String>,
        /// What is wrong with it.
        problem: String,
    },
    /// A function that is not what the signature says.
    #[error(
        "a function cannot be bound to the signature of kernel '{kernel}'{}: {problem}; correct the type that Library::get was given, or the signature",
        at_argument(argument)
    )]
    FunctionMismatch {
        /// The kernel.
        kernel: String,
        /// The argument concerned, where there is one.
        argument: Option<String>,
        /// In what they differ.
        problem: String,
    },
    /// A kernel was called with more or fewer arguments than it takes. It did not run.
    #[error("kernel '{kernel}' takes {} arguments ({}), and was given {given}", expected.len(), expected.join(", "))]
    ArgumentCount {
        /// The kernel.
        kernel: String,
        /// The names of its arguments.
        expected: Vec<String>,
        /// How many there were.
        given: usize,
    },
    /// A kernel was called with the arguments that it takes, in another order. It did not run.
    #[error(
        "kernel '{kernel}' takes the arguments that it was given in another order: '{argument}', in place {position}, is {expected}, and {given} is there"
    )]
    ArgumentOrder {
        /// The kernel.
        kernel: String,
        /// The first argument in whose place another is.
        argument: String,
        /// Its place, from 0.
        position: usize,
        /// What it is.
        expected: String,
        /// What is there.
        given: String,
    },
    /// A kernel was called with an argument of another kind: a scalar, a buffer, or one that must not be written to, where another is
    /// taken. It did not run.
    #[error("kernel '{kernel}': argument '{argument}', in place {position}, is {expected}, and was given {given}")]
    ArgumentKind {
        /// The kernel.
        kernel: String,
        /// The argument.
        argument: String,
        /// Its place, from 0.
        position: usize,
        /// What it is.
        expected: String,
        /// What is there.
        given: String,
    },
    /// A buffer with elements of another type. The kernel did not run.
    #[error("kernel '{kernel}': buffer '{argument}' has elements of type {expected}, and was given {given}")]
    ElementMismatch {
        /// The kernel.
        kernel: String,
        /// The argument.
        argument: String,
        /// What it takes.
        expected: crate::ElementType,
        /// What it was given.
        given: crate::ElementType,
    },
    /// A buffer of another shape. The kernel did not run.
    #[error("kernel '{kernel}': buffer '{argument}' has the shape {expected}, and was given {given:?}")]
    ShapeMismatch {
        /// The kernel.
        kernel: String,
        /// The argument.
        argument: String,
        /// The shape it has, in words.
        expected: String,
        /// The shape that was given.
        given: Vec<usize>,
    },
    /// A buffer whose elements lie otherwise. The kernel did not run.
    #[error(
        "kernel '{kernel}': buffer '{argument}' has the strides {expected}, and was given {given:?}; copy it, or declare them (KernelSignatureBuilder::strides)"
    )]
    StridesMismatch {
        /// The kernel.
        kernel: String,
        /// The argument.
        argument: String,
        /// The strides it has, in words, in elements.
        expected: String,
        /// The strides that were given.
        given: Vec<isize>,
    },
    /// A buffer that runs backwards. The kernel did not run.
    #[error(
        "kernel '{kernel}': buffer '{argument}' has the stride {stride} in dimension {dimension}; strides must not be negative: copy it"
    )]
    NegativeStride {
        /// The kernel.
        kernel: String,
        /// The argument.
        argument: String,
        /// The dimension, from 0 for the outermost.
        dimension: usize,
        /// Its stride, in elements.
        stride: isize,
    },
    /// A buffer that cannot be anywhere: its size overflows, or it would go on beyond the last address (56 bits). The kernel did not run.
    #[error(
        "kernel '{kernel}': buffer '{argument}' of shape {shape:?}{} fits into no address space where it begins; shape or strides are wrong",
        strides_of(strides)
    )]
    BufferTooLarge {
        /// The kernel.
        kernel: String,
        /// The argument.
        argument: String,
        /// Its shape.
        shape: Vec<usize>,
        /// Its strides, in elements, where they were given.
        strides: Option<Vec<isize>>,
    },
    /// A null pointer to a buffer that has elements. The kernel did not run.
    #[error("kernel '{kernel}': buffer '{argument}' has elements, and its pointer is null")]
    NullBuffer {
        /// The kernel.
        kernel: String,
        /// The argument.
        argument: String,
    },
    /// A pointer that is not aligned as the kernel needs it. The kernel did not run.
    #[error("kernel '{kernel}': buffer '{argument}' is at {address:#x}, which is no multiple of {alignment}")]
    MisalignedBuffer {
        /// The kernel.
        kernel: String,
        /// The argument.
        argument: String,
        /// Where it is.
        address: usize,
        /// What that has to be a multiple of, in bytes.
        alignment: usize,
    },
    /// Shape and strides that lead out of the slice that a buffer was made of. The kernel did not run.
    #[error(
        "kernel '{kernel}': buffer '{argument}' takes {needed} bytes with its shape and strides, and the slice it was made of has {given}"
    )]
    BufferTooSmall {
        /// The kernel.
        kernel: String,
        /// The argument.
        argument: String,
        /// Bytes from its first element to its last.
        needed: u64,
        /// Bytes there are.
        given: u64,
    },
    /// Two buffers, one of which is written, share memory that they may not share. The kernel did not run
    /// (TransformerEngine#2730 is what happens if it does).
    #[error("kernel '{kernel}': buffers '{first}' and '{second}' overlap in bytes {:#x}..{:#x}, {overlap}", bytes.start, bytes.end)]
    BuffersOverlap {
        /// The kernel.
        kernel: String,
        /// The earlier of the two arguments.
        first: String,
        /// The later one.
        second: String,
        /// The addresses that lie in the range of both. Where they have gaps, not each of these bytes is shared.
        bytes: std::ops::Range<u64>,
        /// Why they may not.
        overlap: Overlap,
    },
    /// A kernel returned a status that is not 0.
    #[error("kernel '{kernel}' failed with status {status}; its author says what that means")]
    KernelFailed {
        /// The kernel.
        kernel: String,
        /// What it returned.
        status: i64,
    },
    /// No candidate of an [`Autotuner`](crate::Autotuner) could be run. Memory is as it was.
    #[error("no candidate could be run for '{key}'{}", none_could_run(candidates))]
    NoCandidate {
        /// The key.
        key: String,
        /// The name of each candidate, and why it could not be run.
        candidates: Vec<(String, Self)>,
    },
    /// The candidate that an [`Autotuner`](crate::Autotuner) has found to be the fastest is not where it was. None was run.
    #[error(
        "for '{key}' candidate '{candidate}', in place {place}, is the fastest, and is not there; give all candidates in the same order each time, or Autotuner::forget the key"
    )]
    TunedCandidateMissing {
        /// The key.
        key: String,
        /// The candidate.
        candidate: String,
        /// Its place, from 0.
        place: usize,
    },
    /// An [`Autotuner`](crate::Autotuner) could not save or restore memory.
    #[error("{bytes} bytes of {space} could not be saved or restored: {problem}")]
    TuningMemory {
        /// Where it is.
        space: crate::MemorySpace,
        /// How many.
        bytes: usize,
        /// What is wrong, and what to do about it.
        problem: String,
    },
}

/// Why two buffers may not overlap; see [`Error::BuffersOverlap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Overlap {
    /// They are not declared as an output and the input whose place it may have.
    Undeclared,
    /// They are, but the kernel is not said to be safe in place.
    NotInPlace,
    /// They are, and the kernel is safe in place, but the two are not the same view: elements would be written where others are read from.
    Partial,
}

impl std::fmt::Display for Overlap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Undeclared => "one of them is written, and they are not declared as aliases; give them memory of their own",
            Self::NotInPlace => "and the kernel is not safe in place (KernelSignatureBuilder::in_place), though they are declared as aliases; give them memory of their own",
            Self::Partial => "and aliases have to be the same view: one address, one shape, the same strides",
        })
    }
}

/// One name that nothing defines; see [`Error::UndefinedSymbols`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UndefinedSymbol {
    /// The missing name.
    pub name: String,
    /// The objects that refer to it.
    pub referenced_by: Vec<String>,
    /// Shared libraries that export it and are not looked in: those in [search paths](crate::LibraryBuilder::search_path), and those that the process
    /// has loaded for others only (RTLD_LOCAL).
    pub exported_by: Vec<PathBuf>,
}

impl UndefinedSymbol {
    pub(crate) fn new(name: impl Into<String>, referenced_by: Vec<String>) -> Self {
        Self { name: name.into(), referenced_by, exported_by: Vec::new() }
    }

    /// What is known of the name: the archive that has it, or that it is a linker's.
    pub fn hint(&self) -> Option<crate::SymbolHint> {
        crate::hints::of(&self.name)
    }
}

/// A reference that cannot be made; see [`Error::ReferencesOutOfRange`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FarReference {
    /// The section that holds it.
    pub section: String,
    /// Offset of the field in the section, in bytes.
    pub offset: u64,
    /// The function or object it is in, where one is named.
    pub function: Option<String>,
    /// The instruction: what it is, or its bytes.
    pub instruction: Option<String>,
    /// The relocation that means it, as the ABI names it.
    pub relocation: String,
    /// What it refers to; empty for something without a name.
    pub symbol: String,
    /// The address it refers to, addend included; none where it was refused before there were addresses.
    pub target: Option<u64>,
    /// What would have to be written: for a relative reference the distance in bytes, else the address. In a
    /// [`LinkPlan`](crate::LinkPlan) the worst that it may be.
    pub value: i64,
    /// The least and the greatest value that can be written.
    pub limit: (i64, i64),
    /// What the value has to be a multiple of.
    pub alignment: u32,
    /// What to do about it.
    pub remedy: &'static str,
}

impl std::fmt::Display for FarReference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}+{:#x}", self.section, self.offset)?;
        if let Some(function) = &self.function {
            write!(f, " in '{function}'")?;
        }
        write!(f, ": {}", self.relocation)?;
        if let Some(instruction) = &self.instruction {
            write!(f, " ({instruction})")?;
        }
        let symbol = if self.symbol.is_empty() { "a symbol without a name" } else { &self.symbol };
        write!(f, " to '{symbol}'")?;
        if let Some(target) = self.target {
            write!(f, " at {target:#x}")?;
        }
        f.write_str(": ")?;
        let (least, greatest) = self.limit;
        if (least..=greatest).contains(&self.value) {
            write!(f, "{} is no multiple of {}", signed_hex(self.value), self.alignment)?;
        } else {
            let value = signed_hex(self.value);
            write!(f, "{value} is not in {}..={}", signed_hex(least), signed_hex(greatest))?;
        }
        write!(f, "; {}", self.remedy)
    }
}

/// With its sign, in hexadecimal.
pub(crate) fn signed_hex(value: i64) -> String {
    format!("{}{:#x}", if value < 0 { "-" } else { "" }, value.unsigned_abs())
}

fn out_of_range(object: &str, references: &[FarReference], more: usize) -> String {
    const SHOWN: usize = 16;
    let count = references.len() + more;
    let mut s = format!("'{object}' has {count} reference(s) that cannot be made:");
    for reference in references.iter().take(SHOWN) {
        let _ = write!(s, "\n  {reference}");
    }
    if count > SHOWN {
        let _ = write!(s, "\n  and {} more", count - SHOWN);
    }
    s
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

fn waited_for(holders: usize, drains: usize) -> String {
    let held = match holders {
        0 => None,
        1 => Some("1 symbol, library or call holds it".to_owned()),
        _ => Some(format!("{holders} symbols, libraries or calls hold it")),
    };
    let drained = match drains {
        0 => None,
        1 => Some("1 Drain has not finished".to_owned()),
        _ => Some(format!("{drains} Drains have not finished")),
    };
    let remedy = "; drop what holds it (this thread may, too), or wait longer";
    match (held, drained) {
        (Some(held), Some(drained)) => format!("{held}, and {drained}{remedy}"),
        (Some(held), None) => format!("{held}{remedy}"),
        (None, Some(drained)) => format!("{drained}; wait longer"),
        (None, None) => "its finalisers are running, on another thread; wait longer".to_owned(),
    }
}

fn storage_advice(source: &Option<io::Error>) -> String {
    let Some(source) = source else { return String::new() };
    let advice = match source.raw_os_error() {
        Some(libc::EMFILE) => "; close files, or raise the limit of open ones (ulimit -n)",
        Some(libc::ENFILE) => "; the whole system has too many open files (sysctl fs.file-max)",
        Some(libc::EFBIG) => {
            "; raise the limit of the size of files (ulimit -f), which counts for files in memory, too"
        }
        Some(libc::ENOENT) => "; the dynamic loader opens it by its name there: mount /proc (mount -t proc proc /proc)",
        _ => "",
    };
    format!(": {source}{advice}")
}

fn raised_at(backtrace: &Option<String>) -> String {
    backtrace.as_ref().map_or_else(String::new, |backtrace| format!("\n{backtrace}"))
}

fn at_argument(argument: &Option<String>) -> String {
    argument.as_ref().map_or_else(String::new, |argument| format!(", argument '{argument}'"))
}

fn strides_of(strides: &Option<Vec<isize>>) -> String {
    strides.as_ref().map_or_else(String::new, |strides| format!(" and strides {strides:?}"))
}

fn none_could_run(candidates: &[(String, Error)]) -> String {
    if candidates.is_empty() {
        return ": there is none".to_owned();
    }
    candidates.iter().fold(":".to_owned(), |mut s, (candidate, error)| {
        let _ = write!(s, "\n  {candidate}: {error}");
        s
    })
}

fn undefined_symbols(library: &str, symbols: &[UndefinedSymbol]) -> String {
    let mut s = format!("library '{library}' refers to {} undefined symbol(s):", symbols.len());
    for u in symbols {
        let _ = write!(s, "\n  {} (from {})", u.name, u.referenced_by.join(", "));
        for path in &u.exported_by {
            let path = path.display();
            let _ = write!(s, "\n    is exported by {path}; add it with LibraryBuilder::shared_library(\"{path}\")");
        }
    }
    let mut told = Vec::new();
    for (name, hint) in symbols.iter().filter_map(|u| Some((&u.name, u.hint()?))) {
        if !told.contains(&hint) {
            let _ = write!(s, "\n{name} {hint}");
            told.push(hint);
        }
    }
    s.push_str(
        "\nadd an object that defines them, or name a provider with LibraryBuilder::link, ::shared_library or ::symbol \
         (a Rust executable exports nothing without -rdynamic)",
    );
    s
}

fn moved(to: &io::Result<PathBuf>) -> String {
    match to {
        Ok(to) => format!("it was moved to '{}', and counts as missing", to.display()),
        Err(error) => format!("it could not be moved away ({error}), so remove it"),
    }
}

/// What the last in a chain of errors says: wrappers say less.
pub(crate) fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

/// A hint, from words that LLVM has used for long; without them nothing is lost.
fn link_advice(message: &str) -> &'static str {
    if message.contains("out of range") {
        "; compile with -fPIC, so that what is far away is reached through the GOT"
    } else {
        ""
    }
}

fn arena_advice(requested: u64, arena: u64) -> &'static str {
    if requested > arena {
        "it fits into no arena of this size: raise JitEngineBuilder::arena_size (at most 2 GiB - 32 MiB), or put large data into \
         a large section (-mcmodel=medium or large), which may lie outside"
    } else {
        "remove libraries, use a second engine, or raise JitEngineBuilder::arena_size"
    }
}

fn system_advice(call: &str, source: &io::Error) -> &'static str {
    match (call, source.raw_os_error()) {
        (_, Some(libc::ENOMEM)) => {
            "; the process may have reached vm.max_map_count (see /proc/self/maps) or a memory limit"
        }
        ("mprotect", Some(libc::EPERM | libc::EACCES)) => {
            "; this process may not make memory executable (systemd's MemoryDenyWriteExecute, prctl(PR_SET_MDWE), SELinux's execmem, \
             or a seccomp filter): ask again, as the engine maps code from memory files from now on, or lift it for this process"
        }
        ("memfd_create" | "mmap", Some(libc::EPERM | libc::EACCES)) => {
            "; this process may not map memory files as executable (vm.memfd_noexec, SELinux, or a seccomp filter), which is the one way \
             left where memory may not be made executable either: allow it memfd_create with MFD_EXEC and mmap with PROT_EXEC"
        }
        _ => "",
    }
}

#[cfg(feature = "cuda")]
fn of_device(device: &Option<usize>) -> String {
    device.map_or_else(String::new, |device| format!(" for device {device}"))
}

/// By the numbers of `CUresult`, which do not change.
#[cfg(feature = "cuda")]
fn cuda_advice(code: u32) -> &'static str {
    match code {
        34 => "; this libcuda is the toolkit's, for linking only: take its folder out of LD_LIBRARY_PATH",
        222 => "; the PTX is newer than the driver: make it for an older version of PTX, or update the driver",
        700 | 702 | 710 | 714..=719 => {
            "; the context is lost, and every call fails so from now on: find the kernel at fault with compute-sanitizer, and start the process again"
        }
        803 | 804 => {
            "; the driver's library is not the kernel module's: restart the machine after an update, or do not mix containers' libraries with it"
        }
        _ => "",
    }
}
