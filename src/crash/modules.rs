//! The program and shared libraries that have an address, as the dynamic loader knows them.
#![allow(unsafe_code, reason = "the dynamic loader's interface")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A part of a module, by what is read of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Module {
    /// What is added to the addresses in its file.
    pub(super) base: usize,
    /// The address of `.eh_frame_hdr`.
    pub(super) frame_header: usize,
    /// Its path; empty for the program.
    name: *const c_char,
}

/// glibc's `struct dl_find_object` (2.35; "Dynamic Linker Introspection" of its manual).
#[repr(C)]
struct DlFindObject {
    flags: u64,
    start: *mut c_void,
    end: *mut c_void,
    map: *const LinkMap,
    frame_header: *mut c_void,
    reserved: [u64; 7],
}

/// The public part of `struct link_map` (link.h).
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const c_char,
}

type Find = unsafe extern "C" fn(*mut c_void, *mut DlFindObject) -> c_int;

/// `_dl_find_object`, which signal handlers may call; null before [`prepare`], and before glibc 2.35.
static FIND: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Looks for the loader's functions. Not in a signal handler.
pub(super) fn prepare() {
    // SAFETY: a plain call with a string.
    FIND.store(unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) }, Ordering::Release);
}

impl Module {
    /// Returns the module that has an address.
    pub(super) fn at(address: usize) -> Option<Self> {
        let find = FIND.load(Ordering::Acquire);
        if find.is_null() {
            return search(address);
        }
        // SAFETY: the function of this name.
        let find: Find = unsafe { std::mem::transmute(find) };
        // SAFETY: plain old data.
        let mut found: DlFindObject = unsafe { std::mem::zeroed() };
        // SAFETY: it takes any address, and has a place for its result.
        if unsafe { find(std::ptr::with_exposed_provenance_mut(address), &raw mut found) } != 0 {
            return None;
        }
        // SAFETY: the module's entry in the loader's list.
        let map = unsafe { &*found.map };
        Some(Self { base: map.base, frame_header: found.frame_header.addr(), name: map.name })
    }

    /// Returns its path; `None` for the program.
    ///
    /// # Safety
    /// The module stays as long as the result is used.
    pub(super) unsafe fn path<'a>(&self) -> Option<&'a CStr> {
        // SAFETY: by the caller; the loader's text ends with NUL.
        let name = (!self.name.is_null()).then(|| unsafe { CStr::from_ptr(self.name) });
        name.filter(|name| !name.is_empty())
    }
}

/// The same before glibc 2.35. It waits for threads that change the loader's list, which takes microseconds.
fn search(address: usize) -> Option<Module> {
    struct Search {
        address: usize,
        found: Option<Module>,
    }
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
        // SAFETY: the loader lends the one, and passes the other on.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
        // SAFETY: the loader's array.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let base = info.dlpi_addr as usize;
        let has = |header: &&libc::Elf64_Phdr| {
            let offset = search.address.wrapping_sub(base.wrapping_add(header.p_vaddr as usize));
            header.p_type == libc::PT_LOAD && offset < header.p_memsz as usize
        };
        let frames = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME);
        let (Some(_), Some(frames)) = (headers.iter().find(has), frames) else { return 0 };
        let frame_header = base.wrapping_add(frames.p_vaddr as usize);
        search.found = Some(Module { base, frame_header, name: info.dlpi_name });
        1
    }
    let mut search = Search { address, found: None };
    // SAFETY: the callback has this type and does not unwind.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_find_the_same() {
        prepare();
        let own = both_ways_find_the_same as fn() as usize;
        let libc = libc::getpid as *const () as usize;
        for address in [own, libc] {
            let (one, other) = (Module::at(address).unwrap(), search(address).unwrap());
            assert_eq!((one.base, one.frame_header), (other.base, other.frame_header));
            // SAFETY: neither goes.
            assert_eq!(unsafe { (one.path(), address == libc) }, unsafe { (other.path(), one.path().is_some()) });
        }
        assert!(Module::at(8).is_none() && search(8).is_none());
    }
}
