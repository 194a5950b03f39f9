//! Modules of the dynamic loader that stand for arenas.
#![allow(unsafe_code, reason = "dlinfo and dlclose, and bytes of the module's headers")]

use std::ffi::CStr;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::mm::{MprotectFlags, mprotect};

use super::handle::Handle;
use super::loader_locks::{is_iterating, is_loader_taken};
use super::open_image::{Reach, open_image};
use crate::elf::{ArenaImage, HOST_MACHINE};
use crate::fault::{Call, check};
use crate::fork_guard;
use crate::functions::SymbolTables;

/// Returns whether this thread may open and close modules now. The loader may wait for other threads, which must not
/// wait for this one; for those that are in it now this waits up to `limit`.
pub(crate) fn may_open(limit: Duration) -> bool {
    !fork_guard::has_pass() && !is_iterating() && !is_loader_taken(limit)
}

/// A module that covers an arena, which it owns: closing it unmaps the arena.
#[derive(Debug)]
pub(crate) struct ArenaModule {
    handle: Handle,
    /// The page of headers, which the process may write.
    headers: usize,
}

/// The reason why there is no module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotOpened {
    /// The loader chose other addresses, and gave them back.
    Elsewhere,
    /// The system or the loader refused.
    Refused,
}

impl ArenaModule {
    /// Returns whether the dynamic loader takes a module's addresses for a wish: glibc does from 2.36 on (elf/dl-load.c,
    /// `ELF_PREFERRED_ADDRESS`); before, prelinked programs needed it.
    pub(crate) fn is_possible() -> bool {
        // SAFETY: it returns a string that lasts.
        let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
        let mut numbers = version.to_str().unwrap_or_default().split('.').map(|n| n.parse().unwrap_or(0));
        let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        version >= (2, 36)
    }

    /// Opens a module with its headers in the given page and the arena behind it, which are free. It takes the loader's
    /// lock: no lock of ours may be held, and the thread [may open](may_open) modules. The tables are those of symbols
    /// and of names; they stay as long as the module.
    pub(crate) fn open(headers: Range<usize>, arena_end: usize, tables: SymbolTables) -> Result<Self, NotOpened> {
        let (symbols, names) = (tables.symbols as u64, tables.names as u64);
        let page = headers.start as u64..headers.end as u64;
        let image = ArenaImage::new(HOST_MACHINE, page, arena_end as u64, symbols, names).0;
        let pieces = [(0, &image[..])].into_iter();
        let handle =
            open_image(c"slabjit-arena", image.len() as u64, pieces, Reach::Local).map_err(|_| NotOpened::Refused)?;
        let Some(base) = handle.base() else {
            // SAFETY: nobody knows of it.
            unsafe { handle.close() };
            return Err(NotOpened::Refused);
        };
        if base != 0 {
            // SAFETY: as above.
            unsafe { handle.close() };
            return Err(NotOpened::Elsewhere);
        }
        let access = MprotectFlags::READ | MprotectFlags::WRITE;
        let at = ptr::with_exposed_provenance_mut(headers.start);
        // SAFETY: a page of the module, which is at its place.
        let set = check(Call::WriteModule).and_then(|()| unsafe { mprotect(at, headers.len(), access) });
        if set.is_err() {
            // SAFETY: as above.
            unsafe { handle.close() };
            return Err(NotOpened::Refused);
        }
        let module = Self { handle, headers: headers.start };
        let executable = (libc::PF_R | libc::PF_X).to_le();
        module.flags().store(executable, Ordering::Relaxed);
        Ok(module)
    }

    /// The flags of the arena's segment, as others are told of them.
    fn flags(&self) -> &AtomicU32 {
        // SAFETY: in the page, aligned.
        unsafe { AtomicU32::from_ptr(self.at(ArenaImage::ARENA_FLAGS)) }
    }

    /// The number of symbols in their table, the null symbol among them. The loader reads it each time.
    pub(crate) fn symbols(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(self.at(ArenaImage::SYMBOLS)) }
    }

    /// The size of the table of names.
    pub(crate) fn names_size(&self) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.at(ArenaImage::NAMES_SIZE)) }
    }

    fn at<T>(&self, offset: usize) -> *mut T {
        ptr::with_exposed_provenance_mut(self.headers + offset)
    }

    /// Closes it, with which the arena is unmapped. Nobody reads its tables afterwards.
    ///
    /// # Safety
    /// Nobody uses the arena.
    pub(crate) unsafe fn close(self) {
        if self.symbols().load(Ordering::Relaxed) != 0 {
            // Somebody else may have opened it, too.
            self.symbols().store(0, Ordering::Release);
        }
        // SAFETY: by the caller; it is closed once.
        unsafe { self.handle.close() };
    }
}
