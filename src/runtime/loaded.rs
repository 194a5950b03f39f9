//! The loaded shared libraries and their addresses.
#![allow(unsafe_code, reason = "dl_iterate_phdr")]

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;

use super::open_image::is_image;
use crate::fork_guard;

/// A shared library of the process.
#[derive(Debug, Clone)]
pub(crate) struct LoadedLibrary {
    /// The dynamic loader's name for it: its path.
    pub(crate) name: String,
    /// The range from the lowest to the highest address of its PT_LOAD segments.
    pub(crate) addresses: Range<usize>,
}

/// Returns every shared library that the dynamic loader has loaded. Left out are the executable, images that this crate,
/// or a copy of it, has generated (also those that are being opened: without code, from a memory file), and the vDSO,
/// which the kernel places.
pub(crate) fn loaded_libraries() -> Vec<LoadedLibrary> {
    let mut libraries: Vec<LoadedLibrary> = Vec::new();
    // SAFETY: the callback gets the pointer to the list, which lives until the call returns and is not used meanwhile.
    unsafe { fork_guard::loading(|| libc::dl_iterate_phdr(Some(add), (&raw mut libraries).cast())) };
    // SAFETY: a plain call; 0 if there is none.
    let vdso = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    libraries.retain(|l| !l.addresses.contains(&vdso));
    libraries
}

/// Returns a module's program headers.
///
/// # Safety
/// dl_iterate_phdr has given the record to a callback that has not returned.
pub(super) unsafe fn headers(info: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    match info.dlpi_phdr.is_null() {
        true => &[],
        // SAFETY: the dynamic loader's, which keeps them while it iterates.
        false => unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) },
    }
}

/// # Safety
/// Called by dl_iterate_phdr, with a pointer to a list.
unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _: usize, list: *mut c_void) -> c_int {
    // SAFETY: by the caller's contract. The name is the dynamic loader's, which keeps it while it iterates.
    let (info, list) = unsafe { (&*info, &mut *list.cast::<Vec<LoadedLibrary>>()) };
    // SAFETY: as above.
    let headers = unsafe { headers(info) };
    // SAFETY: as above.
    let name = if info.dlpi_name.is_null() { c"" } else { unsafe { CStr::from_ptr(info.dlpi_name) } };
    let segments = headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
    let has_code = segments.clone().any(|h| h.p_flags & libc::PF_X != 0);
    let has_path_of_image = !has_code && name.to_bytes().starts_with(super::image_name::IMAGE_PREFIX.as_bytes());
    // The executable has an empty name (dl_iterate_phdr(3)).
    if name.is_empty() || has_path_of_image || is_image(name) {
        return 0;
    }
    let at = |offset: u64| (info.dlpi_addr as usize).wrapping_add(offset as usize);
    let spans = segments.map(|h| at(h.p_vaddr)..at(h.p_vaddr.wrapping_add(h.p_memsz)));
    if let Some(addresses) = spans.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)) {
        list.push(LoadedLibrary { name: name.to_string_lossy().into_owned(), addresses });
    }
    0
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::fd::AsRawFd as _;
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// Each test loads libraries that the other would count.
    static ALONE: Mutex<()> = Mutex::new(());

    /// Compares with the kernel's own list.
    #[test]
    fn every_library_is_there_and_nothing_else() {
        if std::env::var_os("SLABJIT_TEST_RUNNER").is_some() {
            println!("not run under qemu-user: the loader's names of files are not the kernel's there (-L)");
            return;
        }
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let text = std::fs::read_to_string("/proc/self/maps").unwrap();
        let executable = std::fs::read_link("/proc/self/exe").unwrap();
        let libraries = loaded_libraries();
        let mut code = 0;
        for line in text.lines().filter(|l| l.contains(" r-xp ")) {
            let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
            let [start, end] = [start, end].map(|s| usize::from_str_radix(s, 16).unwrap());
            let name = line.split_ascii_whitespace().nth(5).unwrap_or("");
            let found = libraries.iter().find(|l| l.addresses.start < end && start < l.addresses.end);
            if name.contains(".so") {
                let found = found.unwrap_or_else(|| panic!("{name} is missing"));
                let file = std::fs::canonicalize(&found.name).unwrap();
                assert_eq!(file, std::fs::canonicalize(name).unwrap());
                assert!(found.addresses.start <= start && found.addresses.end.next_multiple_of(1 << 16) >= end);
                code += 1;
            } else if name == executable.to_str().unwrap() || name == "[vdso]" {
                assert!(found.is_none(), "{name} is {found:?}");
            }
        }
        // libc, the dynamic loader, and LLVM or its dependencies.
        assert!(code >= 3, "{text}");
        assert_eq!(libraries.len(), code, "{libraries:?}");
    }

    /// A library without a name in the file system need not be ours.
    #[test]
    fn libraries_of_others_in_memory_files_are_there() {
        if std::env::var_os("SLABJIT_TEST_RUNNER").is_some() && rustix::param::page_size() > 4096 {
            println!(
                "not run: qemu-user with pages larger than the machine's crashes where such a file ends in the middle \
                 of one"
            );
            return;
        }
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: libm's initialisers do nothing but choose implementations.
        assert!(!unsafe { libc::dlopen(c"libm.so.6".as_ptr(), libc::RTLD_NOW) }.is_null());
        let libraries = loaded_libraries();
        let libm = libraries.iter().find(|l| l.name.contains("/libm.so")).unwrap();
        let file = rustix::fs::memfd_create("copy", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::io::pwrite(&file, &std::fs::read(&libm.name).unwrap(), 0).unwrap();
        let path = format!("{}{}", super::super::image_name::IMAGE_PREFIX, file.as_raw_fd());
        let name = CString::new(&*path).unwrap();
        // SAFETY: libm's initialisers, which have run before; nothing of the copy is used.
        unsafe {
            let handle = libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
            assert!(!handle.is_null());
            let found = loaded_libraries().into_iter().find(|l| l.name == path);
            let cos = libc::dlsym(handle, c"cos".as_ptr()) as usize;
            assert_eq!(libc::dlclose(handle), 0);
            let found = found.unwrap_or_else(|| panic!("{path} is missing"));
            assert!(found.addresses.contains(&cos), "{found:?}, {cos:#x}");
        }
    }
}
