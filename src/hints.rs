//! Hints about undefined names.

use std::fmt;

/// A hint about an undefined name; see [`UndefinedSymbol::hint`](crate::UndefinedSymbol::hint).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SymbolHint {
    /// A linker defines it, as a bound of the file that it writes.
    Linker,
    /// It is in libgcc.a, and in no shared library.
    Libgcc,
    /// The tvm-ffi runtime defines it.
    TvmFfi,
}

/// The text follows the name.
impl fmt::Display for SymbolHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Linker => {
                "is a bound of the file that a linker writes, and there is no such file here; give it an address \
                 (LibraryBuilder::symbol), declare it weak to have 0, or link the object into a shared library"
            }
            Self::Libgcc => "is in libgcc.a: add that with Library::add_archive_file (gcc -print-libgcc-file-name)",
            Self::TvmFfi => {
                "is libtvm_ffi.so's; what raises errors is also LibraryBuilder::tvm_ffi's (feature tvm-ffi)"
            }
        })
    }
}

/// Names that a linker defines as bounds of the file that it writes.
const BOUNDS: [&str; 22] = [
    "_DYNAMIC",
    "_PROCEDURE_LINKAGE_TABLE_",
    "__GNU_EH_FRAME_HDR",
    "__bss_start",
    "__eh_frame_end",
    "__eh_frame_hdr_end",
    "__eh_frame_hdr_start",
    "__eh_frame_start",
    "__ehdr_start",
    "__etext",
    "__executable_start",
    "__fini_array_end",
    "__fini_array_start",
    "__init_array_end",
    "__init_array_start",
    "__preinit_array_end",
    "__preinit_array_start",
    "__rela_iplt_end",
    "__rela_iplt_start",
    "_edata",
    "_end",
    "_etext",
];

/// Such names without an underscore: a program may have them for something else.
const PLAIN_BOUNDS: [&str; 3] = ["edata", "end", "etext"];

/// Prefixes of names that are in libgcc.a and in no shared library: split stacks, decimal floating point, features of
/// processors, saving of registers (`-mcall-ms2sysv-xlogues`), atomic operations, and their helpers.
const OF_LIBGCC: [&str; 19] = [
    "__aarch64_",
    "__avx_",
    "__bid",
    "__binary",
    "__clz_tab",
    "__cpu_",
    "__dfp_",
    "__dpd",
    "__eprintf",
    "__gcc_bcmp",
    "__generic_",
    "__morestack",
    "__popcount_tab",
    "__sfp_handle_exceptions",
    "__splitstack_",
    "__sse_",
    "__stack_split_",
    "__udiv_w_sdiv",
    "__wrap_pthread_create",
];

/// Returns whether a linker defines this name for the file that it writes, so that another file's definition is not
/// meant.
pub(crate) fn is_bound(name: &str) -> bool {
    name.starts_with('_') && BOUNDS.binary_search(&name).is_ok()
}

/// Returns the hint about an undefined name.
pub(crate) fn of(name: &str) -> Option<SymbolHint> {
    if is_bound(name) || PLAIN_BOUNDS.contains(&name) {
        return Some(SymbolHint::Linker);
    }
    if name.starts_with("TVMFFI") {
        return Some(SymbolHint::TvmFfi);
    }
    OF_LIBGCC.iter().any(|prefix| name.starts_with(prefix)).then_some(SymbolHint::Libgcc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_found_by_name() {
        assert!(BOUNDS.is_sorted());
        assert!(BOUNDS.iter().all(|name| is_bound(name) && of(name) == Some(SymbolHint::Linker)));
        assert!(!is_bound("end") && of("end") == Some(SymbolHint::Linker));
        assert!(!is_bound("_ending") && of("_ending").is_none() && of("malloc").is_none());
    }
}
