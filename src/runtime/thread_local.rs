//! Thread-local storage of the process: blocks that the dynamic loader makes for us, and places of existing variables.
#![allow(unsafe_code, reason = "dlopen of a generated file, and the thread pointer")]

use std::ffi::{CStr, c_int, c_void};
use std::os::fd::{AsFd as _, OwnedFd};
use std::ptr::{self, NonNull};
use std::{io, thread};

use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, ftruncate, memfd_create, openat};
use rustix::io::{Errno, pwrite, retry_on_intr};

use super::fixed_storage;
use super::handle::Handle;
pub(super) use super::image_name::IMAGE_PREFIX;
use super::image_name::unique_path;
use crate::elf::TlsImage;
use crate::fault::{Call, check};
use crate::{file_limit, fork_guard};

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

/// The reason why there is no module.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// A system call failed.
    System(&'static str, io::Error),
    /// The loader refused with this message.
    Loader(String),
}

impl OpenError {
    /// Returns the text, and the system's error if there is one.
    pub(crate) fn into_parts(self) -> (String, Option<io::Error>) {
        match self {
            Self::System(call, error) => (call.to_owned(), Some(error)),
            Self::Loader(message) => (message, None),
        }
    }
}

impl Module {
    /// Opens an image through the dynamic loader; its block has these contents, given as offsets and bytes. It takes
    /// the loader's lock: no lock of ours may be held, nor a library's claim.
    pub(crate) fn open<'a>(
        image: &TlsImage,
        contents: impl Iterator<Item = (u64, &'a [u8])>,
    ) -> Result<Self, OpenError> {
        file_limit::check(image.size).map_err(|error| OpenError::System("ftruncate", error.into()))?;
        let file = image_file().map_err(|error| OpenError::System("memfd_create", error.into()))?;
        retry_on_intr(|| check(Call::SizeImage).and_then(|()| ftruncate(&file, image.size)))
            .map_err(|error| OpenError::System("ftruncate", error.into()))?;
        let pieces = contents.map(|(offset, bytes)| (image.contents_at + offset, bytes));
        for (offset, bytes) in [(0, &image.head[..])].into_iter().chain(pieces) {
            write_all_at(&file, bytes, offset).map_err(|error| OpenError::System("pwrite", error))?;
        }
        let path = unique_path(&file);
        let handle = load(&path).map_err(|message| match find(&path) {
            Ok(()) => OpenError::Loader(message),
            Err(error) => OpenError::System("opening it under /proc/thread-self/fd", error.into()),
        })?;
        let mut module = Self { handle: Handle(handle), id: 0, distance: None, contents: 0, contents_size: 0 };
        let (mut id, mut map): (usize, *const usize) = (0, ptr::null());
        // SAFETY: each request writes one word of that type (dlinfo(3)). The first field of `struct link_map` is the
        // difference between addresses in the file and in memory (<link.h>); the file's addresses begin at 0, and the
        // words read are in it.
        let (base, distance) = unsafe {
            let asked = libc::dlinfo(handle.as_ptr(), libc::RTLD_DI_TLS_MODID, (&raw mut id).cast())
                | libc::dlinfo(handle.as_ptr(), libc::RTLD_DI_LINKMAP, (&raw mut map).cast());
            if asked != 0 || id == 0 || map.is_null() {
                return Err(OpenError::Loader("dlinfo does not know the module".to_owned()));
            }
            let base = *map;
            (base, image.distance_at.map(|at| *((base + at as usize) as *const i64)))
        };
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

/// Opens an image through the loader, or returns its message.
fn load(path: &CStr) -> Result<NonNull<c_void>, String> {
    check(Call::OpenImage).map_err(|error| error.to_string())?;
    // SAFETY: a NUL-terminated path of a file without code: its relocations call nothing, and it has no initialisers.
    let handle = unsafe { fork_guard::loading(|| libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL)) };
    NonNull::new(handle).ok_or_else(|| {
        // SAFETY: the last error of this thread; the string is copied before the next call.
        let message = unsafe { libc::dlerror() };
        // SAFETY: not null, and then NUL-terminated.
        let message = (!message.is_null()).then(|| unsafe { CStr::from_ptr(message) }.to_string_lossy());
        let message = message.as_deref().unwrap_or("dlopen failed");
        // The path means nothing to a reader.
        let text = message.rsplit_once(&*path.to_string_lossy()).map_or(message, |(_, rest)| rest);
        text.trim_start_matches([':', ' ']).to_owned()
    })
}

/// Checks whether the loader can have opened an image; otherwise the system refused.
fn find(path: &CStr) -> Result<(), Errno> {
    check(Call::FindImage)?;
    openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map(drop)
}

/// Creates a file without a name, which must not be executed: some systems refuse files without this flag
/// (`vm.memfd_noexec`), and kernels before 6.3 do not know it.
fn image_file() -> Result<OwnedFd, Errno> {
    let name = c"slabjit-tls";
    let create = |call, flags| check(call).and_then(|()| memfd_create(name, flags));
    match create(Call::CreateImage, MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => create(Call::CreateOldImage, MemfdFlags::CLOEXEC),
        result => result,
    }
}

fn write_all_at(file: &OwnedFd, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = retry_on_intr(|| check(Call::WriteImage).and_then(|()| pwrite(file.as_fd(), bytes, offset)))?;
        if n == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = bytes.get(n..).unwrap_or_default();
        offset += n as u64;
    }
    Ok(())
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
        // SAFETY: by the caller.
        let distance = move || unsafe { self.distance_here() };
        let there = thread::Builder::new().name("slabjit-tls".to_owned()).spawn(distance)?;
        let there = there.join().map_err(|_| io::Error::from(io::ErrorKind::Other))?;
        Ok((here == there).then_some(here))
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
