//! Thread-local storage of the process: blocks that the dynamic loader makes for us, and where variables of others are.
#![allow(unsafe_code)] // dlopen of a generated file, and the thread pointer

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
use crate::{file_limit, gate};

/// One module of the dynamic loader that has a block of thread-local variables and nothing else. Dropping it has the loader
/// take the blocks back; nobody may refer to them any more.
#[derive(Debug)]
pub(crate) struct Module {
    handle: Handle,
    /// The loader's number for it.
    pub(crate) id: u64,
    /// Its block's distance from every thread pointer, where that is fixed.
    pub(crate) distance: Option<i64>,
    /// Where threads' blocks are copied from.
    contents: usize,
    contents_size: usize,
}

/// Why there is no module.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// A system call failed.
    System(&'static str, io::Error),
    /// The loader refused, in its words.
    Loader(String),
}

impl OpenError {
    /// What failed, and what the system said of it.
    pub(crate) fn into_parts(self) -> (String, Option<io::Error>) {
        match self {
            Self::System(call, error) => (call.to_owned(), Some(error)),
            Self::Loader(message) => (message, None),
        }
    }
}

impl Module {
    /// Has the dynamic loader open an image whose block has these contents, given as offsets and bytes. It takes the loader's
    /// lock: no lock of ours may be held, nor a library's claim.
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
        // SAFETY: each request writes one word of that type (dlinfo(3)). The first field of `struct link_map` is the difference
        // between addresses in the file and in memory (<link.h>); the file's addresses begin at 0, and the words read are in it.
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

    /// Changes what threads' blocks are copied from. What does not fit is not written.
    ///
    /// # Safety
    /// No thread has a block yet, and none gets one meanwhile: nothing that could ask for one has run, and the block is not
    /// at a fixed distance.
    pub(crate) unsafe fn write(&self, offset: u64, bytes: &[u8]) {
        let Ok(offset) = usize::try_from(offset) else { return };
        if offset.checked_add(bytes.len()).is_some_and(|end| end <= self.contents_size) {
            // SAFETY: inside the file's one segment, which is writable; nobody reads it now, by the caller.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), (self.contents + offset) as *mut u8, bytes.len()) };
        }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        match self.distance {
            Some(_) => fixed_storage::unused(self.handle),
            None => self.handle.close(),
        }
    }
}

/// Has the loader open an image, or says what it said.
fn load(path: &CStr) -> Result<NonNull<c_void>, String> {
    check(Call::OpenImage).map_err(|error| error.to_string())?;
    // SAFETY: a NUL-terminated path of a file that has no code: no relocation of it calls anything, it has no initialisers.
    let handle = unsafe { gate::loading(|| libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL)) };
    NonNull::new(handle).ok_or_else(|| {
        // SAFETY: the last error of this thread; the string is copied before the next call.
        let message = unsafe { libc::dlerror() };
        // SAFETY: not null, and then NUL-terminated.
        let message = (!message.is_null()).then(|| unsafe { CStr::from_ptr(message) }.to_string_lossy());
        let message = message.as_deref().unwrap_or("dlopen failed");
        // The path means nothing to anybody.
        let text = message.rsplit_once(&*path.to_string_lossy()).map_or(message, |(_, rest)| rest);
        text.trim_start_matches([':', ' ']).to_owned()
    })
}

/// Whether the loader can have opened an image: if not, it is the system that refused.
fn find(path: &CStr) -> Result<(), Errno> {
    check(Call::FindImage)?;
    openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map(drop)
}

/// A file without a name. Nobody is to execute it: some systems refuse files that do not say so (`vm.memfd_noexec`), and kernels before
/// 6.3 do not know how to.
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

/// Where a variable is, in terms that are the same for all threads.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The loader's number of its module.
    pub(crate) module: u64,
    /// Its offset in the module's block.
    pub(crate) offset: u64,
}

impl Place {
    /// The place of the variable that this thread has at an address; `None` if it has none there.
    pub(crate) fn of(address: u64) -> Option<Self> {
        let mut search = (address, None);
        // SAFETY: the callback gets the pointer to `search`, which lives until the call returns and is not used meanwhile.
        unsafe { gate::loading(|| libc::dl_iterate_phdr(Some(find_place), (&raw mut search).cast())) };
        search.1
    }

    /// Whether this thread has a variable at an address, as far as that can be told quickly: only what is at a fixed distance from
    /// the thread pointer, which is what libc and everything loaded with the program have.
    pub(crate) fn is_at(address: u64) -> bool {
        /// More than glibc has at fixed distances, its surplus included.
        const NEAR: u64 = 1 << 20;
        address.abs_diff(thread_pointer()) < NEAR && Self::of(address).is_some()
    }

    /// Its distance from the thread pointer, if two threads agree on it.
    ///
    /// # Errors
    /// There can be no second thread.
    pub(crate) fn distance(self) -> io::Result<Option<i64>> {
        let here = self.distance_here();
        check(Call::SpawnThread)?;
        let there = thread::Builder::new().name("slabjit-tls".to_owned()).spawn(move || self.distance_here())?;
        let there = there.join().map_err(|_| io::Error::from(io::ErrorKind::Other))?;
        Ok((here == there).then_some(here))
    }

    fn distance_here(self) -> i64 {
        // SAFETY: `find_place` had the numbers from the loader.
        let address = unsafe { __tls_get_addr(&self) };
        (address as u64).wrapping_sub(thread_pointer()) as i64
    }
}

unsafe extern "C" {
    /// ELF Handling For Thread-Local Storage, section 3; `Place` has the layout of its argument.
    pub(crate) fn __tls_get_addr(place: *const Place) -> *mut c_void;
}

/// # Safety
/// Called by dl_iterate_phdr, with a pointer to an address and a place.
unsafe extern "C" fn find_place(info: *mut libc::dl_phdr_info, size: usize, search: *mut c_void) -> c_int {
    if size < size_of::<libc::dl_phdr_info>() {
        return 0;
    }
    // SAFETY: by the caller. The headers are the dynamic loader's, which keeps them while it iterates.
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

/// This thread's pointer: what offsets of static thread-local storage count from.
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
