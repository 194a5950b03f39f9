//! The system calls on memory, one thin function each, and the cache maintenance of AArch64.
//!
//! All work on a [`Mapping`] and refuse ranges outside it, so no caller can harm memory that is not the arena's.
#![allow(unsafe_code)] // The one place that talks to the kernel.

use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use rustix::fs::{MemfdFlags, Mode, OFlags, ftruncate, memfd_create, open};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mmap_anonymous, mprotect, munmap};

use super::{Protection, leftover};
use crate::fault::{Call, check};
use crate::file_limit;

/// Bytes of a page.
pub(super) fn page_size() -> usize {
    rustix::param::page_size()
}

/// Bytes that the main thread's stack may grow to; `usize::MAX` for no limit.
pub(super) fn stack_limit() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Stack).current;
    limit.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX)
}

/// Whether the system lets no page become executable that was mapped without: `PR_SET_MDWE`, a seccomp filter (both are systemd's
/// MemoryDenyWriteExecute), SELinux (`execmem`). A page is tried, as each of them has a question of its own, or none.
pub(super) fn refuses_to_make_executable() -> bool {
    let Ok(page) = Mapping::reserve(page_size()) else { return false };
    let tried = page.set_access(Call::TryExecution, &page.range(), MprotectFlags::READ | MprotectFlags::EXEC);
    tried.is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied)
}

const NONE: MapFlags = MapFlags::PRIVATE.union(MapFlags::NORESERVE);

/// Anonymous memory of ours, unmapped on drop.
///
/// No Rust reference into it is ever formed here: it is known by address only. Whoever writes, reads or runs what lies
/// there keeps the slab alive that owns the range, and a slab's drop is what takes the pages away (`slab.rs`).
#[derive(Debug)]
pub(super) struct Mapping {
    base: usize,
    len: usize,
}

impl Mapping {
    /// Addresses without memory: every access traps.
    pub(super) fn reserve(len: usize) -> io::Result<Self> {
        Self::map(Call::Reserve, len, ProtFlags::empty())
    }

    /// The same without a certain page: `skipped` finds it in a range. A page more than twice as many bytes have at most one such.
    pub(super) fn reserve_without(len: usize, skipped: impl Fn(&Range<usize>) -> Option<usize>) -> io::Result<Self> {
        let first = Self::reserve(len)?;
        let Some(at) = skipped(&first.range()) else { return Ok(first) };
        // Which of these calls are made is up to the kernel, so they are none that tests have fail.
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
        // There may be a limit: then beneath it, where the kernel goes on giving out addresses.
        let beneath = at.checked_sub(len).map(ptr::with_exposed_provenance_mut).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: as in `reserve_at`.
        let base = unsafe { mmap_anonymous(beneath, len, ProtFlags::empty(), NONE | MapFlags::FIXED_NOREPLACE) }?;
        Self { base: base.expose_provenance(), len }.only_at(at - len)
    }

    /// Unmaps all but a part of what nobody has used yet.
    fn shrink(self, part: Range<usize>) -> Self {
        let whole = std::mem::ManuallyDrop::new(self).range();
        let rest = if part.is_empty() { [whole, 0..0] } else { [whole.start..part.start, part.end..whole.end] };
        for range in rest.into_iter().filter(|range| !range.is_empty()) {
            // SAFETY: of this mapping, which is ours and unused; nothing else is to unmap it, as it is in no `Mapping` any more.
            if unsafe { munmap(ptr::with_exposed_provenance_mut(range.start), range.len()) }.is_err() {
                leftover::keep(range);
            }
        }
        Self { base: part.start, len: part.len() }
    }

    /// The same at an address of whole pages. `AlreadyExists` if something is mapped there; it is left as it is.
    pub(super) fn reserve_at(address: usize, len: usize) -> io::Result<Self> {
        check(Call::ReserveAt)?;
        let at = ptr::with_exposed_provenance_mut(address);
        let flags = NONE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: this flag makes the kernel take the addresses only if they are unused; one that does not know it (before
        // Linux 4.17) takes them for a hint, and chooses unused ones.
        let base = unsafe { mmap_anonymous(at, len, ProtFlags::empty(), flags) }?;
        Self { base: base.expose_provenance(), len }.only_at(address)
    }

    /// Gives up what a kernel chose that took the address for a hint.
    pub(super) fn only_at(self, address: usize) -> io::Result<Self> {
        if self.base == address { Ok(self) } else { Err(io::Error::from_raw_os_error(libc::EEXIST)) }
    }

    /// Zero pages, readable and writable.
    pub(super) fn writable(len: usize) -> io::Result<Self> {
        Self::map(Call::MapWritable, len, ProtFlags::READ | ProtFlags::WRITE)
    }

    fn map(call: Call, len: usize, access: ProtFlags) -> io::Result<Self> {
        check(call)?;
        // SAFETY: without a fixed address the kernel takes unused addresses, so nothing that exists is touched.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), len, access, NONE) }?;
        Ok(Self { base: base.expose_provenance(), len })
    }

    /// The addresses.
    pub(super) fn range(&self) -> Range<usize> {
        self.base..self.base + self.len
    }

    /// Sets the protection of whole pages.
    pub(super) fn protect(&self, range: &Range<usize>, protection: Protection) -> io::Result<()> {
        let flags = match protection {
            Protection::ReadExecute => MprotectFlags::READ | MprotectFlags::EXEC,
            Protection::Read => MprotectFlags::READ,
            Protection::ReadWrite => MprotectFlags::READ | MprotectFlags::WRITE,
        };
        self.set_access(Call::Protect, range, flags)
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

    /// Puts fresh pages without access in the place of what is there: protection and memory go in one call.
    fn replace(&self, range: &Range<usize>) -> io::Result<()> {
        let at = self.checked(range)?;
        check(Call::Replace)?;
        // SAFETY: `checked` keeps it inside this mapping, so MAP_FIXED replaces only memory of ours; the slab that
        // owned the range is being dropped (`slab.rs`), so nobody uses it any more.
        unsafe { mmap_anonymous(at, range.len(), ProtFlags::empty(), NONE | MapFlags::FIXED) }?;
        Ok(())
    }

    /// Makes every access to whole pages trap, and returns their memory.
    pub(super) fn take_away(&self, range: &Range<usize>) -> io::Result<()> {
        // Out of mappings or memory, the kernel refuses to replace; two calls that need neither do the same.
        self.replace(range).or_else(|_| {
            let denied = self.deny(range);
            self.discard(range).and(denied)
        })
    }

    /// The same for what is [shared](Self::show). Its memory goes with its last view, and no view of it can be written through here: what
    /// cannot be replaced is not to be used again.
    pub(super) fn take_view_away(&self, range: &Range<usize>) -> io::Result<()> {
        self.replace(range).inspect_err(|_| drop(self.deny(range)))
    }

    /// Returns the memory of whole pages; they read as zero afterwards.
    pub(super) fn discard(&self, range: &Range<usize>) -> io::Result<()> {
        self.advise(Call::Discard, range, Advice::LinuxDontNeed)
    }

    /// The same for a writable view, and for all other views of the memory.
    pub(super) fn discard_shared(&self, range: &Range<usize>) -> io::Result<()> {
        self.advise(Call::DiscardCode, range, Advice::LinuxRemove)
    }

    /// Brings writable pages in at once, instead of by one fault each. `InvalidInput` before Linux 5.14.
    pub(super) fn populate(&self, range: &Range<usize>) -> io::Result<()> {
        self.advise(Call::Populate, range, Advice::LinuxPopulateWrite)
    }

    /// Keeps the kernel from backing the range with huge pages. `InvalidInput` where it has none.
    pub(super) fn small_pages(&self, range: &Range<usize>) -> io::Result<()> {
        self.advise(Call::SmallPages, range, Advice::LinuxNoHugepage)
    }

    fn advise(&self, call: Call, range: &Range<usize>, advice: Advice) -> io::Result<()> {
        let at = self.checked(range)?;
        check(call)?;
        // SAFETY: `checked` keeps it inside this mapping. Only `discard` changes what the bytes are; its callers
        // (`Arena::release`, `Mapping::drop`) own a range that nobody uses any more.
        Ok(unsafe { madvise(at, range.len(), advice) }?)
    }

    /// Makes written code visible to instruction fetches, at the addresses at which it will run. The range is readable.
    #[cfg_attr(not(target_arch = "aarch64"), allow(clippy::unnecessary_wraps))]
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

    /// Unmaps now, so that the caller learns whether it worked. If not, the memory is returned where the system lets us, and
    /// the addresses stay taken until they can be unmapped ([`leftover`]).
    pub(super) fn unmap(mut self) -> io::Result<()> {
        self.unmap_once()
    }

    fn unmap_once(&mut self) -> io::Result<()> {
        let range = self.range();
        self.len = 0;
        if range.is_empty() {
            return Ok(());
        }
        // SAFETY: the mapping is ours, whole and once (`len` is 0 now); its owner (`Arena`, or a slab for what lies outside) is
        // being dropped, so nobody uses it any more.
        match unsafe { unmap(Call::Unmap, &range) } {
            Ok(()) => {
                // SAFETY: those are such mappings too, and each is kept once.
                leftover::retry(|range| unsafe { unmap(Call::UnmapLater, range) }.is_ok());
                Ok(())
            }
            Err(error) => {
                let rest = std::mem::ManuallyDrop::new(Self { base: range.start, len: range.len() });
                let _ = rest.deny(&range);
                let _ = rest.discard(&range);
                leftover::keep(range);
                Err(error)
            }
        }
    }
}

/// Memory that is mapped more than once: a mapping of it stays where it is while another, with other rights, comes and goes.
///
/// It lives as long as its mappings. Whoever has the descriptor could write all of it, or map it writable and executable, so nobody keeps
/// one: this is dropped when the views are [there](Mapping::show).
#[derive(Debug)]
pub(super) struct SharedMemory {
    file: OwnedFd,
    /// What is mapped through it is never writable, whatever a process or its child asks for (Linux, mm/mmap.c: no `VM_MAYWRITE`).
    read_only: Option<OwnedFd>,
}

impl SharedMemory {
    /// So many bytes, none of which is there yet.
    pub(super) fn create(len: usize) -> io::Result<Self> {
        file_limit::check(len as u64)?;
        let create = |call, flags| check(call).and_then(|()| memfd_create(c"slabjit", flags));
        // Since Linux 6.3 a system may give memory without this flag that cannot be run; before, the flag is not known.
        let file = create(Call::CreateCode, MemfdFlags::CLOEXEC | MemfdFlags::EXEC).or_else(|error| match error {
            Errno::INVAL => create(Call::CreateOldCode, MemfdFlags::CLOEXEC),
            _ => Err(error),
        })?;
        retry_on_intr(|| check(Call::SizeCode).and_then(|()| ftruncate(&file, len as u64)))?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let reading = || open(path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let read_only = retry_on_intr(|| check(Call::OpenCode).and_then(|()| reading())).ok();
        Ok(Self { file, read_only })
    }

    /// Whether a view that is not writable stays so. It may not where there is no /proc, or no descriptor.
    pub(super) fn has_lasting_rights(&self) -> bool {
        self.read_only.is_some()
    }
}

impl Mapping {
    /// Puts memory in the place of what is there.
    pub(super) fn show(&self, range: &Range<usize>, memory: &SharedMemory, protection: Protection) -> io::Result<()> {
        let at = self.checked(range)?;
        check(Call::MapCode)?;
        let read_only = memory.read_only.as_ref().unwrap_or(&memory.file);
        let (access, file) = match protection {
            Protection::ReadExecute => (ProtFlags::READ | ProtFlags::EXEC, read_only),
            Protection::Read => (ProtFlags::READ, read_only),
            Protection::ReadWrite => (ProtFlags::READ | ProtFlags::WRITE, &memory.file),
        };
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: `checked` keeps it inside this mapping, so MAP_FIXED replaces only memory of ours, in which nothing lies yet: the pool
        // (`packed`) or the slab (`slab.rs`) that asks has just taken the range, or nothing alive is in it.
        unsafe { mmap(at, range.len(), access, flags, file, 0) }?;
        Ok(())
    }

    /// Children of `fork` get no copy of these pages, nor the addresses.
    pub(super) fn keep_from_children(&self, range: &Range<usize>) -> io::Result<()> {
        self.advise(Call::KeepFromChildren, range, Advice::LinuxDontFork)
    }

    /// Fills a writable range with a word, whose bytes come in this order.
    pub(super) fn fill(&self, range: &Range<usize>, word: [u8; 4]) -> io::Result<()> {
        let at = self.checked(range)?;
        // SAFETY: `checked` keeps it inside this mapping. The pool that fills it (`packed`) has let it be written, and has given it to
        // nobody, or taken it from an object that is gone: nobody else refers to it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), range.len()) };
        bytes.chunks_mut(word.len()).for_each(|piece| piece.copy_from_slice(&word[..piece.len()]));
        Ok(())
    }

    /// Forgets a mapping that is not there: a child of `fork` did not get it, and others may have the addresses.
    pub(super) fn forget(mut self) {
        self.len = 0;
    }
}

/// # Safety
/// A whole mapping that was one of ours, and that nobody uses any more.
unsafe fn unmap(call: Call, range: &Range<usize>) -> io::Result<()> {
    check(call)?;
    // SAFETY: by the caller.
    Ok(unsafe { munmap(ptr::with_exposed_provenance_mut(range.start), range.len()) }?)
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // What fails here has been made harmless as far as possible; there is nobody to tell.
        let _ = self.unmap_once();
    }
}

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use std::arch::asm;
    use std::ops::Range;

    /// Cleans data lines to the point of unification, then invalidates instruction lines, as CTR_EL0 says is needed.
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
