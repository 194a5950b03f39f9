//! What is known of names that nothing defines.

/// What a linker defines for the file that it writes: where parts of it are.
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

/// The same without an underscore: a program may have such names for something else.
const PLAIN_BOUNDS: [&str; 3] = ["edata", "end", "etext"];

const OF_LINKERS: &str = "is a bound of the file that a linker writes, and there is no such file here; give it an \
                          address (LibraryBuilder::symbol), declare it weak to have 0, or link the object into a \
                          shared library";

/// How names begin that are in libgcc.a and in no shared library: split stacks, decimal floating point, what processors
/// can do, saving of registers (`-mcall-ms2sysv-xlogues`), atomic operations, and what those use.
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

const IN_LIBGCC: &str = "is in libgcc.a: add that with Library::add_archive_file (gcc -print-libgcc-file-name)";

/// Whether a linker defines this name for the file that it writes, so that what another file has under it is not what
/// is meant.
pub(crate) fn is_bound(name: &str) -> bool {
    name.starts_with('_') && BOUNDS.binary_search(&name).is_ok()
}

/// What to do about a name that nothing defines.
pub(crate) fn of(name: &str) -> Option<&'static str> {
    if is_bound(name) || PLAIN_BOUNDS.contains(&name) {
        return Some(OF_LINKERS);
    }
    if name.starts_with("TVMFFI") {
        return Some("is libtvm_ffi.so's; what raises errors is also LibraryBuilder::tvm_ffi's (feature tvm-ffi)");
    }
    OF_LIBGCC.iter().any(|prefix| name.starts_with(prefix)).then_some(IN_LIBGCC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_found_by_name() {
        assert!(BOUNDS.is_sorted());
        assert!(BOUNDS.iter().all(|name| is_bound(name) && of(name) == Some(OF_LINKERS)));
        assert!(!is_bound("end") && of("end") == Some(OF_LINKERS));
        assert!(!is_bound("_ending") && of("_ending").is_none() && of("malloc").is_none());
    }
}
