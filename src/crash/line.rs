//! Lines for standard error, without memory of their own.
#![allow(unsafe_code, reason = "write(2)")]

use std::fmt;

/// A line that is being composed. What does not fit is cut off.
pub(super) struct Line {
    bytes: [u8; Self::CAPACITY],
    len: usize,
}

impl Line {
    const CAPACITY: usize = 1024;

    pub(super) fn new() -> Self {
        Self { bytes: [0; Self::CAPACITY], len: 0 }
    }

    /// Adds bytes. Control characters of names would act on a terminal.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            // The last place is the line's end.
            if let Some(place) = self.bytes[..Self::CAPACITY - 1].get_mut(self.len) {
                *place = if byte.is_ascii_control() { b'?' } else { *byte };
                self.len += 1;
            }
        }
    }

    /// Writes the line, with one call if the system takes it at once. Errors are nobody's to handle.
    pub(super) fn write(mut self) {
        self.bytes[self.len] = b'\n';
        let mut rest = &self.bytes[..=self.len];
        while !rest.is_empty() {
            // SAFETY: the bytes are there. This thread's errno is restored by the handler.
            let (written, errno) = unsafe {
                let written = libc::write(libc::STDERR_FILENO, rest.as_ptr().cast(), rest.len());
                (written, *libc::__errno_location())
            };
            match usize::try_from(written) {
                Ok(0) => return,
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(_) if errno == libc::EINTR => {}
                Err(_) => return,
            }
        }
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}
