//! Errors of memory.

use std::fmt;
use std::io;

use crate::error_text::debug;

/// What an arena has no place for, or the system no memory.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// No address space for the arena, however small.
    #[error(
        "cannot reserve address space for an arena of {requested} bytes, nor for {minimum}: {source}; raise the \
         process's address-space limit (ulimit -v)"
    )]
    AddressSpace {
        /// The bytes asked for first.
        requested: usize,
        /// The smallest size tried.
        minimum: usize,
        /// What the system said.
        source: io::Error,
    },

    /// No address space for the arena where
    /// [`JitEngineBuilder::arena_placement`](crate::JitEngineBuilder::arena_placement) wants it, however small.
    #[error(
        "cannot place an arena {place}, of {requested} bytes or of fewer down to {minimum}: it has to lie in \
         {:#x}..{:#x}, the largest free piece there has {largest_free} bytes ({source}); create the engine before \
         those addresses are taken, or choose another ArenaPlacement",
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
        "no arena can be within 2 GiB of all loaded libraries: '{lowest}' begins at {:#x} and '{highest}' ends at \
         {:#x}; create the engine before the later of them is loaded, or choose ArenaPlacement::Near with an address \
         in the one that matters",
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
        "the arena is exhausted: '{object}' needs {requested} bytes in one piece (its largest section is '{section}' \
         with {section_bytes}), the largest free piece has {largest_free} of the arena's {arena_bytes}; {}",
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

    /// The process has almost as many mappings as the kernel lets it have (`vm.max_map_count`), and the last ones are
    /// left to malloc and the dynamic loader, which end the process or fail without.
    #[error(
        "'{object}' needs mappings of its own, and the process has {mappings} of the {limit} that vm.max_map_count \
         allows (the last ones are left to malloc and the dynamic loader); use SlabLayout::Packed, which takes none \
         for a small object, remove libraries, or raise the limit (sysctl vm.max_map_count)"
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
        "'{object}', section '{section}' wants an alignment of {alignment} bytes, the largest supported is {limit}; \
         lower the alignment"
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
}

impl fmt::Debug for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(self, f)
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
