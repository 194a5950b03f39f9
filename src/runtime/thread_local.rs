//! Thread-local storage of the process: blocks that the dynamic loader makes for us, and places of existing variables.
#![allow(unsafe_code, reason = "the dynamic loader's memory, and the thread pointer")]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI64, Ordering};
use std::{io, ptr};

use super::fixed_storage;
use super::handle::Handle;
use super::open_image::{OpenError, Reach, open_image};
use crate::elf::TlsImage;
use crate::fault::{Call, check};
use crate::fork_guard;
use crate::threads::beside;

/// A module of the dynamic loader that has only a block of thread-local variables. Dropping it frees the blocks; no
/// references to them may remain.
#[derive(Debug)]
pub(crate) struct Module {
    handle: Handle,
    /// The loader's number of the module.
    pub(crate) id: u64,
    /// Its block's distance from every thread pointer, if that is fixed.
    pub(crate) distance: Option<i64>,
    /// The address of the template for threads' blocks.
    contents: usize,
    contents_size: usize,
}

impl Module {
    /// Opens an image through the dynamic loader; its block has these contents, given as offsets and bytes. It takes
    /// the loader's lock: no lock of ours may be held, nor a library's claim.
    pub(crate) fn open<'a>(
        image: &TlsImage,
        contents: impl Iterator<Item = (u64, &'a [u8])>,
    ) -> Result<Self, OpenError> {
        let pieces = contents.map(|(offset, bytes)| (image.contents_at + offset, bytes));
        let handle =
            open_image(c"slabjit-tls", image.size, [(0, &image.head[..])].into_iter().chain(pieces), Reach::Local)?;
        let mut module = Self { handle, id: 0, distance: None, contents: 0, contents_size: 0 };
        let mut id: usize = 0;
        // SAFETY: the request writes one word (dlinfo(3)).
        let asked = unsafe { libc::dlinfo(handle.raw(), libc::RTLD_DI_TLS_MODID, (&raw mut id).cast()) };
        let base = handle.base().filter(|_| asked == 0 && id != 0);
        let base = base.ok_or_else(|| OpenError::Loader("dlinfo does not know the module".to_owned()))?;
        // SAFETY: the file's addresses begin at 0, and the word is in it.
        let distance = image.distance_at.map(|at| unsafe { *((base + at as usize) as *const i64) });
        (module.id, module.distance) = (id as u64, distance);
        module.contents = base + image.contents_at as usize;
        module.contents_size = (image.size - image.contents_at) as usize;
        if let Some(distance) = distance {
            fixed_storage::opened(module.handle, distance);
        }
        Ok(module)
    }

    /// Changes the template for threads' blocks. Bytes that do not fit are not written.
    ///
    /// # Safety
    /// No thread has a block yet, and none gets one meanwhile: no code that could use one has run, and the block is not
    /// at a fixed distance.
    pub(crate) unsafe fn write(&self, offset: u64, bytes: &[u8]) {
        let Ok(offset) = usize::try_from(offset) else { return };
        if offset.checked_add(bytes.len()).is_some_and(|end| end <= self.contents_size) {
            // SAFETY: inside the file's one segment, which is writable; no one reads it now, by the caller's contract.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), (self.contents + offset) as *mut u8, bytes.len()) };
        }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        match self.distance {
            // SAFETY: ours alone; the code that refers to its variables is gone or never ran (by its owner, `Image`).
            Some(_) => unsafe { fixed_storage::unused(self.handle) },
            // SAFETY: as above.
            None => unsafe { self.handle.close() },
        }
    }
}

// ---- variables of others ----

/// The place of a variable, in terms that are the same for all threads.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The loader's number of its module.
    pub(crate) module: u64,
    /// Its offset in the module's block.
    pub(crate) offset: u64,
}

impl Place {
    /// Returns the place of this thread's variable at an address; `None` if there is none.
    pub(crate) fn of(address: u64) -> Option<Self> {
        let mut search = (address, None);
        // SAFETY: the callback gets the pointer to `search`, which lives until the call returns and is not used
        // meanwhile.
        unsafe { fork_guard::loading(|| libc::dl_iterate_phdr(Some(find_place), (&raw mut search).cast())) };
        search.1
    }

    /// Returns whether this thread has a variable at an address, by a quick check: it covers only variables at a fixed
    /// distance from the thread pointer, as in libc and everything loaded with the program.
    pub(crate) fn is_at(address: u64) -> bool {
        /// Upper bound of glibc's fixed distances, its surplus included.
        const NEAR: u64 = 1 << 20;
        address.abs_diff(thread_pointer()) < NEAR && Self::of(address).is_some()
    }

    /// Returns its distance from the thread pointer, if two threads agree on it.
    ///
    /// # Errors
    /// There can be no second thread.
    ///
    /// # Safety
    /// The module is open, and its block has this offset: as [`of`](Self::of) says.
    pub(crate) unsafe fn distance(self) -> io::Result<Option<i64>> {
        // SAFETY: by the caller.
        let here = unsafe { self.distance_here() };
        check(Call::SpawnThread)?;
        let there = AtomicI64::new(0);
        // SAFETY: by the caller.
        let distance = || there.store(unsafe { self.distance_here() }, Ordering::Relaxed);
        beside(c"slabjit-tls", 1, &distance, |started| started)?;
        Ok((here == there.into_inner()).then_some(here))
    }

    /// # Safety
    /// As for [`distance`](Self::distance).
    unsafe fn distance_here(self) -> i64 {
        // SAFETY: by the caller.
        let address = unsafe { __tls_get_addr(&self) };
        (address as u64).wrapping_sub(thread_pointer()) as i64
    }
}

unsafe extern "C" {
    /// Returns a variable's address (ELF Handling For Thread-Local Storage, section 3); `Place` has the argument's
    /// layout.
    pub(crate) fn __tls_get_addr(place: *const Place) -> *mut c_void;
}

/// # Safety
/// Called by dl_iterate_phdr, with a pointer to an address and a place.
unsafe extern "C" fn find_place(info: *mut libc::dl_phdr_info, size: usize, search: *mut c_void) -> c_int {
    if size < size_of::<libc::dl_phdr_info>() {
        return 0;
    }
    // SAFETY: by the caller's contract. The headers are the dynamic loader's, which keeps them while it iterates.
    let (info, search, headers) = unsafe {
        let info = &*info;
        let headers: &[libc::Elf64_Phdr] = match info.dlpi_phdr.is_null() {
            true => &[],
            false => std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()),
        };
        (info, &mut *search.cast::<(u64, Option<Place>)>(), headers)
    };
    let Some(segment) = headers.iter().find(|h| h.p_type == libc::PT_TLS) else { return 0 };
    let start = info.dlpi_tls_data as u64;
    let offset = search.0.wrapping_sub(start);
    if start == 0 || info.dlpi_tls_modid == 0 || offset >= segment.p_memsz {
        return 0;
    }
    search.1 = Some(Place { module: info.dlpi_tls_modid as u64, offset });
    1
}

/// Returns this thread's pointer, the base of offsets in static thread-local storage.
fn thread_pointer() -> u64 {
    let pointer: u64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the psABI has the thread control block's first word point to itself.
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads a register that user code may read.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags, nomem));
    }
    pointer
}
