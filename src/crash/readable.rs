//! Memory that may not be there: it is read only if the kernel can read it.
#![allow(unsafe_code, reason = "reads by address")]

use std::cell::Cell;

/// A page is not smaller.
const PAGE: usize = 4096;

/// The last pages that were asked for. Others may unmap them meanwhile.
#[derive(Debug, Default)]
pub(super) struct Readable(Cell<[usize; 2]>);

impl Readable {
    /// Returns whether a page can be read.
    fn page(&self, page: usize) -> bool {
        // A page at 0 is none.
        if page == 0 {
            return false;
        }
        let known = self.0.get();
        if known.contains(&page) {
            return true;
        }
        // The kernel reads the new mask, and then refuses the unknown operation (EINVAL): no signal is blocked.
        // SAFETY: the kernel checks the address.
        let answer = unsafe { libc::syscall(libc::SYS_rt_sigprocmask, -1, page, 0_usize, 8_usize) };
        // SAFETY: this thread's errno, which the handler restores.
        if answer == 0 || unsafe { *libc::__errno_location() } == libc::EFAULT {
            return false;
        }
        self.0.set([page, known[0]]);
        true
    }

    /// Returns whether bytes can be read.
    pub(super) fn all(&self, address: usize, len: usize) -> bool {
        let Some(last) = address.checked_add(len.max(1) - 1) else { return false };
        (address / PAGE..=last / PAGE).all(|page| self.page(page * PAGE))
    }

    /// Returns the word at an address.
    pub(super) fn word(&self, address: usize) -> Option<usize> {
        self.array(address).map(usize::from_ne_bytes)
    }

    /// Returns the four bytes at an address.
    pub(super) fn half(&self, address: usize) -> Option<u32> {
        self.array(address).map(u32::from_ne_bytes)
    }

    fn array<const N: usize>(&self, address: usize) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.read(address, &mut bytes).map(|()| bytes)
    }

    /// Copies the bytes at an address.
    pub(super) fn read(&self, address: usize, into: &mut [u8]) -> Option<()> {
        let start = || std::ptr::with_exposed_provenance::<u8>(address);
        // SAFETY: they can be read.
        self.all(address, into.len()).then(|| unsafe { start().copy_to(into.as_mut_ptr(), into.len()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_memory_that_can_be_read_is() {
        let readable = Readable::default();
        let word = 0x1234_5678_9abc_usize;
        assert_eq!(readable.word((&raw const word).expose_provenance()), Some(word));
        for absent in [0, 8, usize::MAX - 3, usize::MAX, 1 << 63] {
            assert_eq!((readable.word(absent), readable.half(absent)), (None, None), "{absent:#x}");
        }
        // SAFETY: a mapping of its own: one page that can be read, one that cannot.
        unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let pages = libc::mmap(std::ptr::null_mut(), 2 << 16, access, flags, -1, 0);
            let end = pages.expose_provenance() + (1 << 16);
            assert_eq!(libc::mprotect(pages.byte_add(1 << 16), 1 << 16, libc::PROT_NONE), 0);
            assert_eq!((readable.word(end - 8), readable.word(end - 7), readable.word(end)), (Some(0), None, None));
            assert_eq!((readable.all(end - 9, 9), readable.all(end - 9, 10)), (true, false));
            let mut bytes = [1; 10];
            assert_eq!((readable.read(end - 9, &mut bytes), bytes), (None, [1; 10]));
            assert_eq!((readable.read(end - 9, &mut bytes[..9]), bytes), (Some(()), [0, 0, 0, 0, 0, 0, 0, 0, 0, 1]));
            libc::munmap(pages, 2 << 16);
        }
    }
}
