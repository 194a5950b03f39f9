//! Memory that may not be there: it is read only if the kernel can read it.
#![allow(unsafe_code, reason = "reads by address")]

/// A page is not smaller.
const PAGE: usize = 4096;

/// The last pages that were asked for. Others may unmap them meanwhile.
#[derive(Debug, Default)]
pub(super) struct Readable([usize; 2]);

impl Readable {
    /// Returns whether a page can be read.
    fn page(&mut self, page: usize) -> bool {
        // A page at 0 is none.
        if page == 0 {
            return false;
        }
        if self.0.contains(&page) {
            return true;
        }
        // The kernel reads the new mask, and then refuses the unknown operation (EINVAL): no signal is blocked.
        // SAFETY: the kernel checks the address.
        let answer = unsafe { libc::syscall(libc::SYS_rt_sigprocmask, -1, page, 0_usize, 8_usize) };
        // SAFETY: this thread's errno, which the handler restores.
        if answer == 0 || unsafe { *libc::__errno_location() } == libc::EFAULT {
            return false;
        }
        self.0 = [page, self.0[0]];
        true
    }

    fn all(&mut self, address: usize, len: usize) -> bool {
        let Some(last) = address.checked_add(len.max(1) - 1) else { return false };
        (address / PAGE..=last / PAGE).all(|page| self.page(page * PAGE))
    }

    /// Returns the word at an address.
    pub(super) fn word(&mut self, address: usize) -> Option<usize> {
        let word = || std::ptr::with_exposed_provenance::<usize>(address);
        // SAFETY: it can be read, and any bytes make a number.
        self.all(address, size_of::<usize>()).then(|| unsafe { word().read_unaligned() })
    }

    /// Returns the four bytes at an address.
    pub(super) fn half(&mut self, address: usize) -> Option<u32> {
        let half = || std::ptr::with_exposed_provenance::<u32>(address);
        // SAFETY: as above.
        self.all(address, size_of::<u32>()).then(|| unsafe { half().read_unaligned() })
    }

    /// Returns bytes at an address.
    ///
    /// # Safety
    /// Nobody writes them as long as the result is used.
    pub(super) unsafe fn bytes<'a>(&mut self, address: usize, len: usize) -> Option<&'a [u8]> {
        let start = || std::ptr::with_exposed_provenance(address);
        // SAFETY: they can be read, and by the caller stay as they are.
        self.all(address, len).then(|| unsafe { std::slice::from_raw_parts(start(), len) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_memory_that_can_be_read_is() {
        let mut readable = Readable::default();
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
            assert_eq!(readable.bytes(end - 9, 9), Some(&[0; 9][..]));
            assert_eq!(readable.bytes(end - 9, 10), None);
            libc::munmap(pages, 2 << 16);
        }
    }
}
