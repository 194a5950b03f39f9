//! Wrappers of the system calls on memory, one thin function each, and the cache maintenance of AArch64.
//!
//! All take a [`Mapping`] and refuse ranges outside it, so no caller can harm memory that is not the arena's.
#![allow(unsafe_code, reason = "the one place that talks to the kernel")]

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use rustix::fs::{MemfdFlags, Mode, OFlags, ftruncate, memfd_create, open};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags, madvise, mmap, mmap_anonymous, mprotect, mremap_fixed,
    munmap,
};

use crate::fault::{Call, check};
use crate::file_limit;
use crate::memory::{Protection, deferred_unmap};
use crate::read::LastingFile;

/// Returns the page size.
pub(crate) fn page_size() -> usize {
    rustix::param::page_size()
}

/// Returns the limit of the main thread's stack in bytes; `usize::MAX` for no limit.
pub(super) fn stack_limit() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Stack).current;
    limit.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX)
}

/// Returns whether the system refuses to make existing pages executable: `PR_SET_MDWE`, a seccomp filter (both are
/// systemd's MemoryDenyWriteExecute), SELinux (`execmem`). It tries a page, as these have no common query.
pub(super) fn refuses_to_make_executable() -> bool {
    let Ok(page) = Mapping::reserve(page_size()) else { return false };
    let tried = page.set_access(Call::TryExecution, &page.range(), MprotectFlags::READ | MprotectFlags::EXEC);
    tried.is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied)
}

const NONE: MapFlags = MapFlags::PRIVATE.union(MapFlags::NORESERVE);

/// A mapping of anonymous memory, in which pages of a file may be shown, unmapped on drop.
///
/// No Rust reference into it is ever formed here: it is known by address only. Code that writes, reads or runs its
/// contents keeps the slab alive that owns the range, and only the slab's drop takes the pages away (`slab.rs`).
#[derive(Debug)]
pub(super) struct Mapping {
    base: usize,
    len: usize,
}

impl Mapping {
    /// Reserves addresses without memory: every access traps.
    pub(super) fn reserve(len: usize) -> io::Result<Self> {
        Self::map(Call::Reserve, len, ProtFlags::empty())
    }

    /// Reserves addresses for tables.
    pub(super) fn reserve_tables(len: usize) -> io::Result<Self> {
        Self::map(Call::ReserveTables, len, ProtFlags::empty())
    }

    /// Reserves addresses that a module of the dynamic loader's has there, and which the module owns.
    ///
    /// # Safety
    /// Nobody uses them.
    pub(super) unsafe fn over(range: &Range<usize>) -> io::Result<Self> {
        check(Call::MapArena)?;
        let at = ptr::with_exposed_provenance_mut(range.start);
        // SAFETY: by the caller.
        unsafe { mmap_anonymous(at, range.len(), ProtFlags::empty(), NONE | MapFlags::FIXED) }?;
        Ok(Self { base: range.start, len: range.len() })
    }

    /// Unmaps a mapping that nobody uses, or returns it.
    pub(super) fn give_up(self) -> Result<(), Self> {
        let range = self.range();
        // SAFETY: ours, whole and once: it is forgotten.
        match unsafe { unmap(Call::Release, &range) } {
            Ok(()) => {
                self.forget();
                Ok(())
            }
            Err(_) => Err(self),
        }
    }

    /// Reserves addresses without a certain page, which `skipped` finds in a range. Twice as many bytes and one page
    /// contain at most one such page.
    pub(super) fn reserve_without(len: usize, skipped: impl Fn(&Range<usize>) -> Option<usize>) -> io::Result<Self> {
        let first = Self::reserve(len)?;
        let Some(at) = skipped(&first.range()) else { return Ok(first) };
        // The kernel decides whether these calls are made, so tests do not make them fail.
        first.shrink(0..0);
        let (page, any) = (page_size(), ptr::null_mut());
        let wide = len.checked_mul(2).and_then(|twice| twice.checked_add(page)).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: as in `map`.
        if let Ok(base) = unsafe { mmap_anonymous(any, wide, ProtFlags::empty(), NONE) } {
            let whole = Self { base: base.expose_provenance(), len: wide };
            let behind = skipped(&whole.range()).filter(|at| at - whole.base < len).map(|at| at + page);
            let start = behind.unwrap_or(whole.base);
            return Ok(whole.shrink(start..start + len));
        }
        // The address space may be limited: tries below, where the kernel would continue.
        let beneath = at.checked_sub(len).map(ptr::with_exposed_provenance_mut).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: as in `reserve_at`.
        let base = unsafe { mmap_anonymous(beneath, len, ProtFlags::empty(), NONE | MapFlags::FIXED_NOREPLACE) }?;
        Self { base: base.expose_provenance(), len }.only_at(at - len)
    }

    /// Unmaps everything but a part of an unused mapping.
    fn shrink(self, part: Range<usize>) -> Self {
        let whole = std::mem::ManuallyDrop::new(self).range();
        let rest = if part.is_empty() { [whole, 0..0] } else { [whole.start..part.start, part.end..whole.end] };
        for range in rest.into_iter().filter(|range| !range.is_empty()) {
            // SAFETY: of this mapping, which is ours and unused; nothing else is to unmap it, as it is in no `Mapping`
            // any more.
            if unsafe { munmap(ptr::with_exposed_provenance_mut(range.start), range.len()) }.is_err() {
                deferred_unmap::keep(range);
            }
        }
        Self { base: part.start, len: part.len() }
    }

    /// Reserves whole pages at an address. Returns `AlreadyExists`, and changes nothing, if something is mapped there.
    pub(super) fn reserve_at(address: usize, len: usize) -> io::Result<Self> {
        check(Call::ReserveAt)?;
        let at = ptr::with_exposed_provenance_mut(address);
        let flags = NONE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: this flag makes the kernel take the addresses only if they are unused; one that does not know it
        // (before Linux 4.17) takes them for a hint, and chooses unused ones.
        let base = unsafe { mmap_anonymous(at, len, ProtFlags::empty(), flags) }?;
        Self { base: base.expose_provenance(), len }.only_at(address)
    }

    /// Releases the mapping if an old kernel treated the address as a hint and chose another.
    pub(super) fn only_at(self, address: usize) -> io::Result<Self> {
        if self.base == address { Ok(self) } else { Err(io::Error::from_raw_os_error(libc::EEXIST)) }
    }

    /// Maps zero pages, readable and writable.
    pub(super) fn writable(len: usize) -> io::Result<Self> {
        Self::map(Call::MapWritable, len, ProtFlags::READ | ProtFlags::WRITE)
    }

    fn map(call: Call, len: usize, access: ProtFlags) -> io::Result<Self> {
        check(call)?;
        // SAFETY: without a fixed address the kernel takes unused addresses, so nothing that exists is touched.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), len, access, NONE) }?;
        Ok(Self { base: base.expose_provenance(), len })
    }

    /// Returns the addresses.
    pub(super) fn range(&self) -> Range<usize> {
        self.base..self.base + self.len
    }

    /// Sets the protection of whole pages.
    pub(super) fn protect(&self, range: &Range<usize>, protection: Protection) -> io::Result<()> {
        self.protect_for(Call::Protect, range, protection)
    }

    /// Does the same for a purpose of its own.
    pub(super) fn protect_for(&self, call: Call, range: &Range<usize>, protection: Protection) -> io::Result<()> {
        let flags = match protection {
            Protection::ReadExecute => MprotectFlags::READ | MprotectFlags::EXEC,
            Protection::Read => MprotectFlags::READ,
            Protection::ReadWrite => MprotectFlags::READ | MprotectFlags::WRITE,
        };
        self.set_access(call, range, flags)
    }

    /// Makes every access to whole pages trap; their contents stay.
    pub(super) fn deny(&self, range: &Range<usize>) -> io::Result<()> {
        self.set_access(Call::Deny, range, MprotectFlags::empty())
    }

    fn set_access(&self, call: Call, range: &Range<usize>, flags: MprotectFlags) -> io::Result<()> {
        let at = self.checked(range)?;
        check(call)?;
        // SAFETY: `checked` keeps it inside this mapping, and the owner of the range (`slab.rs`) consumes the state in
        // which it was writable before it takes that access away.
        Ok(unsafe { mprotect(at, range.len(), flags) }?)
    }

    /// Replaces pages by fresh ones without access: protection and memory go in one call.
    fn replace(&self, range: &Range<usize>) -> io::Result<()> {
        let at = self.checked(range)?;
        check(Call::Replace)?;
        // SAFETY: `checked` keeps it inside this mapping, so MAP_FIXED replaces only memory of ours; the slab that
        // owned the range is being dropped (`slab.rs`), so nobody uses it any more.
        unsafe { mmap_anonymous(at, range.len(), ProtFlags::empty(), NONE | MapFlags::FIXED) }?;
        Ok(())
    }

    /// Makes every access to whole pages trap, and frees their memory.
    pub(super) fn take_away(&self, range: &Range<usize>) -> io::Result<()> {
        // Without mappings or memory left, the kernel refuses to replace; these two calls need neither.
        self.replace(range).or_else(|_| {
            let denied = self.deny(range);
            self.discard(range).and(denied)
        })
    }

    /// Does the same for [shared](Self::show) pages. The memory is freed with its last view, and none can be written
    /// through here: pages that cannot be replaced must not be reused.
    pub(super) fn take_view_away(&self, range: &Range<usize>) -> io::Result<()> {
        self.replace(range).inspect_err(|_| drop(self.deny(range)))
    }

    /// Moves the memory of [denied](Self::deny) pages to as many reserved ones. None of them is accessible afterwards.
    /// `InvalidInput` before Linux 5.7.
    pub(super) fn move_memory(&self, from: &Range<usize>, to: &Range<usize>) -> io::Result<()> {
        let (at, target) = (self.checked(from)?, self.checked(to)?);
        if from.len() != to.len() || (from.start < to.end && to.start < from.end) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        check(Call::MoveMemory)?;
        // Without DONTUNMAP somebody else could get the old addresses. In two steps, as a refusal of the first changes
        // nothing (an old kernel, or pages of several mappings), while one with a target leaves that unmapped.
        let (flags, anywhere) = (libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP, 0_usize);
        // rustix passes no target, which the kernel looks at with DONTUNMAP.
        // SAFETY: `checked` keeps it inside this mapping. These are pages of a removed slab, which have rested without
        // access since (`arena.rs`): nobody uses them.
        let moved = unsafe { libc::syscall(libc::SYS_mremap, at, from.len(), from.len(), flags, anywhere) };
        if moved == -1 {
            return Err(io::Error::last_os_error());
        }
        let moved: *mut c_void = ptr::with_exposed_provenance_mut(moved as usize);
        // SAFETY: it was just made, and `checked` keeps the target inside this mapping, where the addresses were
        // reserved for a slab that is being made: nobody uses either.
        if let Err(error) = unsafe { mremap_fixed(moved, from.len(), to.len(), MremapFlags::MAYMOVE, target) } {
            drop(Self { base: moved.expose_provenance(), len: from.len() });
            return Err(error.into());
        }
        // One mapping with its neighbours again. If that is refused, it still has neither access nor memory.
        let _ = self.replace(from);
        Ok(())
    }

    /// Overwrites a writable range with zeros.
    pub(super) fn clear(&self, range: &Range<usize>) -> io::Result<()> {
        let at = self.checked(range)?;
        // SAFETY: `checked` keeps it inside this mapping, and the slab that is being made there (`slab.rs`) has made it
        // writable, and is known to nobody yet.
        unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), range.len()) }.fill(0);
        Ok(())
    }

    /// Frees the memory of whole pages; they read as zero afterwards.
    pub(super) fn discard(&self, range: &Range<usize>) -> io::Result<()> {
        self.advise(Call::Discard, range, Advice::LinuxDontNeed)
    }

    /// Frees the memory of a writable view, and of all other views of it.
    pub(super) fn discard_shared(&self, range: &Range<usize>) -> io::Result<()> {
        self.advise(Call::DiscardCode, range, Advice::LinuxRemove)
    }

    /// Populates writable pages at once, instead of by one fault each. `InvalidInput` before Linux 5.14.
    pub(super) fn populate(&self, range: &Range<usize>) -> io::Result<()> {
        self.advise(Call::Populate, range, Advice::LinuxPopulateWrite)
    }

    /// Does the same for pages that are read or run.
    pub(super) fn populate_to_read(&self, range: &Range<usize>) -> io::Result<()> {
        self.advise(Call::Populate, range, Advice::LinuxPopulateRead)
    }

    /// Keeps the kernel from backing the range with huge pages. `InvalidInput` if the kernel has none.
    pub(super) fn small_pages(&self, range: &Range<usize>) -> io::Result<()> {
        self.advise(Call::SmallPages, range, Advice::LinuxNoHugepage)
    }

    fn advise(&self, call: Call, range: &Range<usize>, advice: Advice) -> io::Result<()> {
        let at = self.checked(range)?;
        check(call)?;
        // SAFETY: `checked` keeps it inside this mapping. Only `discard` changes the bytes; its callers
        // (`Arena::release`, `Mapping::drop`) own a range that nobody uses any more.
        Ok(unsafe { madvise(at, range.len(), advice) }?)
    }

    /// Makes written code visible to instruction fetches at its final addresses. The range is readable.
    pub(super) fn sync_instruction_cache(&self, range: &Range<usize>) -> io::Result<()> {
        self.checked(range)?;
        #[cfg(target_arch = "aarch64")]
        // SAFETY: inside this mapping, and readable: only `WritableSlab::publish` calls it, before it protects.
        unsafe {
            aarch64::sync_instruction_cache(range);
        }
        Ok(())
    }

    fn checked(&self, range: &Range<usize>) -> io::Result<*mut c_void> {
        if range.start < self.base || range.start > range.end || range.end > self.base + self.len {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(ptr::with_exposed_provenance_mut(range.start))
    }

    /// Unmaps now, so that the caller learns whether it worked. If not, the memory is freed if possible, and the
    /// addresses stay taken until they can be unmapped ([`deferred_unmap`]).
    pub(super) fn unmap(mut self) -> io::Result<()> {
        self.unmap_once()
    }

    fn unmap_once(&mut self) -> io::Result<()> {
        let range = self.range();
        self.len = 0;
        if range.is_empty() {
            return Ok(());
        }
        // SAFETY: the mapping is ours, whole and once (`len` is 0 now); its owner (`Arena`, or a slab for an outside
        // segment) is being dropped, so nobody uses it any more.
        match unsafe { unmap(Call::Unmap, &range) } {
            Ok(()) => {
                // SAFETY: those are such mappings too, and each is kept once.
                deferred_unmap::retry(|range| unsafe { unmap(Call::UnmapLater, range) }.is_ok());
                Ok(())
            }
            Err(error) => {
                let rest = std::mem::ManuallyDrop::new(Self { base: range.start, len: range.len() });
                let _ = rest.deny(&range);
                let _ = rest.discard(&range);
                deferred_unmap::keep(range);
                Err(error)
            }
        }
    }
}

/// Memory that can be mapped more than once: one mapping stays while another, with other rights, comes and goes.
///
/// It lives as long as its mappings. Any holder of the descriptor could write all of it, or map it writable and
/// executable, so no descriptor is kept: this is dropped once the views are [mapped](Mapping::show).
#[derive(Debug)]
pub(super) struct SharedMemory {
    len: usize,
    file: OwnedFd,
    /// A descriptor whose mappings can never be made writable, not even in a child process (Linux, mm/mmap.c: no
    /// `VM_MAYWRITE`).
    read_only: Option<OwnedFd>,
}

impl SharedMemory {
    /// Creates memory of `len` bytes, not yet populated.
    pub(super) fn create(len: usize) -> io::Result<Self> {
        file_limit::check(len as u64)?;
        let create = |call, flags| check(call).and_then(|()| memfd_create(c"slabjit", flags));
        // Since Linux 6.3 memory without this flag may not be executable; older kernels do not know the flag.
        let file = create(Call::CreateCode, MemfdFlags::CLOEXEC | MemfdFlags::EXEC).or_else(|error| match error {
            Errno::INVAL => create(Call::CreateOldCode, MemfdFlags::CLOEXEC),
            _ => Err(error),
        })?;
        retry_on_intr(|| check(Call::SizeCode).and_then(|()| ftruncate(&file, len as u64)))?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let reading = || open(path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let read_only = retry_on_intr(|| check(Call::OpenCode).and_then(|()| reading())).ok();
        Ok(Self { len, file, read_only })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns whether a read-only view stays so, which needs /proc and a spare descriptor.
    pub(super) fn has_lasting_rights(&self) -> bool {
        self.read_only.is_some()
    }
}

impl Mapping {
    /// Maps shared memory over a range, from an offset on.
    pub(super) fn show(
        &self,
        range: &Range<usize>,
        memory: &SharedMemory,
        offset: u64,
        protection: Protection,
    ) -> io::Result<()> {
        let at = self.checked(range)?;
        check(Call::MapCode)?;
        let read_only = memory.read_only.as_ref().unwrap_or(&memory.file);
        let (access, file) = match protection {
            Protection::ReadExecute => (ProtFlags::READ | ProtFlags::EXEC, read_only),
            Protection::Read => (ProtFlags::READ, read_only),
            Protection::ReadWrite => (ProtFlags::READ | ProtFlags::WRITE, &memory.file),
        };
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: `checked` keeps it inside this mapping, so MAP_FIXED replaces only memory of ours, in which nothing
        // lies yet: the pool (`packed`) or the slab (`slab.rs`) that asks has just taken the range, or nothing alive is
        // in it.
        unsafe { mmap(at, range.len(), access, flags, file, offset) }?;
        Ok(())
    }

    /// Maps pages of a file over a writable range, which is written without the file.
    pub(super) fn show_file(&self, range: &Range<usize>, file: &File, offset: u64) -> io::Result<()> {
        let at = self.checked(range)?;
        check(Call::MapFile)?;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED);
        // SAFETY: as in `show`.
        unsafe { mmap(at, range.len(), access, flags, file, offset) }?;
        Ok(())
    }

    /// Keeps these pages and addresses out of children of `fork`.
    pub(super) fn keep_from_children(&self, range: &Range<usize>) -> io::Result<()> {
        self.advise(Call::KeepFromChildren, range, Advice::LinuxDontFork)
    }

    /// Fills a writable range with a repeated word.
    pub(super) fn fill(&self, range: &Range<usize>, word: [u8; 4]) -> io::Result<()> {
        let at = self.checked(range)?;
        // SAFETY: `checked` keeps it inside this mapping. The pool that fills it (`packed`) has let it be written, and
        // has given it to nobody, or taken it from an object that is gone: nobody else refers to it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), range.len()) };
        // In steps of a known size: a copy of 1 to 4 bytes is a call.
        let (words, rest) = bytes.as_chunks_mut();
        words.fill(word);
        rest.copy_from_slice(&word[..rest.len()]);
        Ok(())
    }

    /// Forgets a mapping that does not exist: a child of `fork` did not inherit it, and its addresses may be reused.
    pub(super) fn forget(mut self) {
        self.disown();
    }

    /// Leaves the mapping to somebody else, who unmaps it.
    pub(super) fn disown(&mut self) {
        self.len = 0;
    }
}

/// A file's bytes.
#[derive(Debug)]
pub(crate) struct FilePages(Mapping);

impl FilePages {
    pub(crate) fn map(file: &LastingFile) -> io::Result<Self> {
        let len = usize::try_from(file.bytes()).map_err(|_| io::ErrorKind::InvalidInput)?;
        check(Call::MapFile)?;
        // SAFETY: a new mapping, which is nobody else's.
        let base = unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ, NONE, file.file(), 0) }?;
        Ok(Self(Mapping { base: base.expose_provenance(), len }))
    }
}

impl Deref for FilePages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: mapped until this is dropped, and the file stays as it is (`LastingFile`).
        unsafe { std::slice::from_raw_parts(ptr::with_exposed_provenance(self.0.base), self.0.len) }
    }
}

/// A part of a file, whose bytes may be changed in memory.
#[derive(Debug)]
pub(crate) struct FilePart {
    pages: FilePages,
    start: usize,
}

impl FilePart {
    /// Maps a part of a file.
    pub(crate) fn map(file: &LastingFile, part: &Range<usize>) -> io::Result<Self> {
        let file = file.unchanged().ok_or(io::ErrorKind::NotFound)?;
        let start = part.start % page_size();
        let (offset, len) = (part.start - start, part.len() + start);
        check(Call::MapFile)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, which is nobody else's.
        let base = unsafe { mmap(ptr::null_mut(), len, access, NONE, file, offset as u64) }?;
        Ok(Self { pages: FilePages(Mapping { base: base.expose_provenance(), len }), start })
    }
}

impl Deref for FilePart {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.pages.get(self.start..).unwrap_or_default()
    }
}

impl DerefMut for FilePart {
    fn deref_mut(&mut self) -> &mut [u8] {
        let Mapping { base, len } = self.pages.0;
        // SAFETY: mapped until this is dropped, writable, and borrowed by this alone; the file stays as it is
        // (`LastingFile`).
        let bytes = unsafe { std::slice::from_raw_parts_mut(ptr::with_exposed_provenance_mut(base), len) };
        bytes.get_mut(self.start..).unwrap_or_default()
    }
}

/// # Safety
/// The range is a whole mapping that was one of ours, and is not used any more.
unsafe fn unmap(call: Call, range: &Range<usize>) -> io::Result<()> {
    check(call)?;
    // SAFETY: by the caller's contract.
    Ok(unsafe { munmap(ptr::with_exposed_provenance_mut(range.start), range.len()) }?)
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // A failure has been made as harmless as possible; there is no caller to report it to.
        let _ = self.unmap_once();
    }
}

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use std::arch::asm;
    use std::ops::Range;

    /// Cleans data lines to the point of unification, then invalidates instruction lines, as CTR_EL0 requires.
    ///
    /// # Safety
    /// The range is mapped and readable.
    pub(super) unsafe fn sync_instruction_cache(range: &Range<usize>) {
        let ctr: usize;
        // SAFETY: reads a register that user code may read (Linux emulates it where the hardware traps).
        unsafe { asm!("mrs {}, ctr_el0", out(reg) ctr, options(nomem, nostack, preserves_flags)) };
        let (data_clean_not_needed, instruction_invalidation_not_needed) = (ctr & 1 << 28 != 0, ctr & 1 << 29 != 0);
        if !data_clean_not_needed {
            for line in lines(range, 4 << (ctr >> 16 & 15)) {
                // SAFETY: a line of the range, which the caller says is readable; nothing is modified.
                unsafe { asm!("dc cvau, {}", in(reg) line, options(nostack, preserves_flags)) };
            }
        }
        // SAFETY: a barrier.
        unsafe { asm!("dsb ish", options(nostack, preserves_flags)) };
        if !instruction_invalidation_not_needed {
            for line in lines(range, 4 << (ctr & 15)) {
                // SAFETY: as for the data lines.
                unsafe { asm!("ic ivau, {}", in(reg) line, options(nostack, preserves_flags)) };
            }
            // SAFETY: a barrier.
            unsafe { asm!("dsb ish", options(nostack, preserves_flags)) };
        }
        // SAFETY: a barrier.
        unsafe { asm!("isb", options(nostack, preserves_flags)) };
    }

    fn lines(range: &Range<usize>, size: usize) -> impl Iterator<Item = usize> {
        (range.start & !(size - 1)..range.end).step_by(size)
    }
}
