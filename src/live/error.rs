//! Errors of linking.

use std::fmt::{self, Write as _};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error_text::{debug, signed_hex};

/// A reason why objects were not linked, or not initialised.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// Thread-local storage that cannot be linked.
    #[error("'{object}' uses thread-local storage in a way that cannot be linked: {what}")]
    ThreadLocal {
        /// The object's name.
        object: String,
        /// The symbol or relocation found, what is wrong with it, and what to do instead.
        what: String,
    },

    /// No memory for thread-local variables at a fixed distance from the thread pointer, of which glibc has a surplus
    /// of about 1.6 KB for all libraries that are loaded after the start.
    #[error(
        "'{object}' has no room for {bytes} bytes (aligned to {alignment}) of static thread-local storage, which code \
         compiled for the initial-exec or local-exec model needs: {message}; compile it with -fPIC \
         -ftls-model=global-dynamic, or start the process with a larger surplus \
         (GLIBC_TUNABLES=glibc.rtld.optional_static_tls=BYTES)"
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

    /// The dynamic loader did not accept an object's thread-local variables, or the system did not let us ask it, or
    /// start the thread that it takes to find out whether a variable of the process is at a fixed distance from the
    /// thread pointer.
    #[error(
        "'{object}': finding or making storage for its thread-local variables failed: {message}{}",
        image_advice(source)
    )]
    ThreadLocalStorage {
        /// The object's name.
        object: String,
        /// The failed operation; the dynamic loader's words where it refused.
        message: String,
        /// The system's error, where it refused.
        source: Option<io::Error>,
    },

    /// The system does not make stacks executable.
    #[error(
        "'{object}' asks for executable stacks, and the system does not make them so: {message}; glibc 2.41 and later \
         do it only for processes started with GLIBC_TUNABLES=glibc.rtld.execstack=2, and security policies \
         (SELinux's execstack, systemd's MemoryDenyWriteExecute) may forbid it"
    )]
    ExecutableStackRefused {
        /// The object's name.
        object: String,
        /// The words of the dynamic loader or the system.
        message: String,
    },

    /// The dynamic loader did not accept the names that a library exports, or the system did not let us ask it.
    #[error(
        "library '{library}' cannot export its names to the process: {message}{}; where there is no memory file, \
         descriptor or /proc to be had, build the library without LibraryBuilder::export, and pass addresses to those \
         that need them",
        image_advice(source)
    )]
    ExportRefused {
        /// The library.
        library: String,
        /// The failed operation, or the dynamic loader's words.
        message: String,
        /// The system's error, where it refused.
        source: Option<io::Error>,
    },

    /// Two strong definitions of one name in one library.
    #[error(
        "'{symbol}' is defined twice in library '{library}': by '{first}' and by '{second}'; put one of them into a \
         library of its own, or make one weak"
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
        "'{object}', section '{section}' offset {offset:#x}: '{symbol}' is a local symbol of COMDAT group '{group}', \
         which is linked from '{linked}', so that '{object}' may not refer to its own copy; compile both from the \
         same sources with the same options, or put them into libraries of their own (a compiler that makes such \
         references is at fault)"
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
        "'{object}' comes too late for the linker set '{section}' of library '{library}': '{other}' {}; add all \
         objects that have a part in the set before the first get or initialize of the library, or give later ones a \
         library of their own",
        of_set(*done)
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
        /// Its use of the set.
        done: LinkerSetUse,
    },

    /// A linker set of code in more than one object, or whose bounds another object refers to.
    #[error(
        "section '{section}' of '{object}' is code, and belongs to a linker set of several objects of library \
         '{library}' (__start_{section}, __stop_{section}), which can hold data only; merge those objects into one \
         first (ld -r), or make it a set of pointers to the functions"
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

    /// LLVM refused the object.
    #[error("LLVM cannot link '{object}': {message}{}", link_advice(message))]
    Failed {
        /// The object's name.
        object: String,
        /// LLVM's words.
        message: String,
    },

    /// References of an object that do not reach their targets and cannot be bridged. Nothing was written and nothing
    /// ran.
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
        "an initialiser of '{object}' failed: {message}; what was linked with it was unloaded, and is tried again \
         when the library is next asked for something"
    )]
    InitializerFailed {
        /// The object's name.
        object: String,
        /// The exception's own words where it has any.
        message: String,
    },

    /// A dylib's symbol cannot be linked; see the module `orc`. It stays so until its object is removed.
    #[error("'{symbol}' of dylib '{library}' cannot be linked: {cause}")]
    SymbolFailed {
        /// The name that was asked for.
        symbol: String,
        /// The dylib.
        library: String,
        /// The error of the object that defines it, or of one that this needs: a [`crate::Error`].
        cause: Arc<dyn std::error::Error + Send + Sync>,
    },

    /// A module of a dylib lacks what it defined when it was added: a transform of it, or a plugin, took it away.
    #[error(
        "'{module}' does not define '{symbol}' any more, which it did when it was added; have transforms and plugins \
         keep the names of what they change"
    )]
    DefinitionLost {
        /// The module's name.
        module: String,
        /// The name.
        symbol: String,
    },

    /// Dylibs of two `Jit`s cannot see each other.
    #[error(
        "dylib '{dylib}' cannot be linked against '{other}', which belongs to another Jit; put both into one Jit, or \
         define the names that are needed with Dylib::define"
    )]
    OtherJit {
        /// The dylib that was to find names.
        dylib: String,
        /// The other one.
        other: String,
    },

    /// Something had to be linked in a build without LLVM.
    #[error(
        "this build of slabjit links no objects, as it has no LLVM; choose one with a feature: llvm15-0, llvm16-0, \
         llvm17-0, llvm18-1, llvm19-1, llvm20-1, llvm21-1, llvm22-1 or llvm23-1"
    )]
    NoLinker,

    /// A function cannot be redirected (feature `llvm`).
    #[error(
        "'{symbol}' of dylib '{library}' cannot be redirected: {why}; add it by add_module_lazily or define_stub, and \
         redirect it to another function"
    )]
    NoStub {
        /// The function.
        symbol: String,
        /// The dylib.
        library: String,
        /// The reason.
        why: &'static str,
    },

    /// The LLVM session could not be made.
    #[error("cannot start LLVM's JIT: {message}")]
    Session {
        /// LLVM's words.
        message: String,
    },
}

impl fmt::Debug for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(self, f)
    }
}

/// A linked object's use of a linker set; see
/// [`LinkError::LateForLinkerSet`](crate::LinkError::LateForLinkerSet).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkerSetUse {
    /// It has read the set's bounds.
    ReadBounds,
    /// It has sections of the set, beside which nothing can be put any more.
    Linked,
}

/// One name that nothing defines; see [`LinkError::UndefinedSymbols`](crate::LinkError::UndefinedSymbols).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UndefinedSymbol {
    /// The missing name.
    pub name: String,
    /// The objects that refer to it.
    pub referenced_by: Vec<String>,
    /// Shared libraries that export it and are not looked in: those in [search
    /// paths](crate::LibraryBuilder::search_path), and those that the process has loaded for others only (RTLD_LOCAL).
    pub exported_by: Vec<PathBuf>,
}

impl UndefinedSymbol {
    pub(crate) fn new(name: impl Into<String>, referenced_by: Vec<String>) -> Self {
        Self { name: name.into(), referenced_by, exported_by: Vec::new() }
    }

    /// Returns a hint about the name: the archive that has it, or that it is a linker's.
    pub fn hint(&self) -> Option<crate::SymbolHint> {
        crate::hints::of(&self.name)
    }
}

/// A reference that cannot be made; see [`LinkError::ReferencesOutOfRange`](crate::LinkError::ReferencesOutOfRange).
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
    /// Its target symbol; empty for something without a name.
    pub symbol: String,
    /// The address it refers to, addend included; none where it was refused before there were addresses.
    pub target: Option<u64>,
    /// The value to be written: for a relative reference the distance in bytes, else the address. In a
    /// [`LinkPlan`](crate::LinkPlan) the worst that it may be.
    pub value: i64,
    /// The least and the greatest value that can be written.
    pub limit: (i64, i64),
    /// The alignment that the value has to have.
    pub alignment: u32,
    /// The remedy.
    pub remedy: &'static str,
}

impl fmt::Display for FarReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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

fn of_set(done: LinkerSetUse) -> &'static str {
    match done {
        LinkerSetUse::ReadBounds => "has read its bounds already",
        LinkerSetUse::Linked => "is linked already, with sections of it that nothing can be put beside any more",
    }
}

fn image_advice(source: &Option<io::Error>) -> String {
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

/// Returns a hint, from words that LLVM has used for long; without them nothing is lost.
fn link_advice(message: &str) -> &'static str {
    if message.contains("out of range") {
        "; compile with -fPIC, so that what is far away is reached through the GOT"
    } else {
        ""
    }
}
