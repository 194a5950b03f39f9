//! What a process has of the system: it has to be the same before and after.

use std::fmt;
use std::time::{Duration, Instant};

use crate::common::{mappings, open_files};

/// Mappings, descriptors, threads, and bytes that malloc gave.
pub struct State {
    /// Start, end, permissions and name; without heap and stack, which are not ours to shrink.
    mappings: Vec<String>,
    files: usize,
    threads: usize,
    bytes: usize,
    /// Of `bytes`, what this itself takes.
    own: usize,
}

/// Has malloc take its memory from one place and count all of it, so that mappings and bytes can be compared. The
/// process was started with [`ENVIRONMENT`].
pub fn prepare() {
    // SAFETY: plain calls.
    let set = unsafe { [libc::mallopt(libc::M_MMAP_MAX, 0), libc::mallopt(libc::M_ARENA_MAX, 1)] };
    assert_eq!(set, [1, 1]);
}

/// Without what malloc keeps for a thread, which counts as given.
pub const ENVIRONMENT: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0");

/// Bytes that malloc has given, also to LLVM.
pub fn bytes_in_use() -> usize {
    // SAFETY: a plain call.
    unsafe { libc::mallinfo2() }.uordblks
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

impl State {
    /// As it is now.
    pub fn now() -> Self {
        let bytes = bytes_in_use();
        // The heap has no name under qemu-user with large pages.
        // SAFETY: a plain call that changes nothing.
        let heap = unsafe { libc::sbrk(0) }.addr();
        let lines = mappings().into_iter().filter(|m| !(m.start < heap && heap <= m.end) && m.name != "[stack]");
        let mappings = lines.map(|m| format!("{:x}-{:x} {} {}", m.start, m.end, m.permissions, m.name)).collect();
        let mut state = Self { mappings, files: open_files(), threads: threads(), bytes, own: 0 };
        state.own = bytes_in_use() - bytes;
        state
    }

    /// Takes that many bytes more for what they are from now on.
    #[cfg(slabjit_faults)]
    pub fn accept(&mut self, more: isize) {
        self.bytes = self.bytes.wrapping_add_signed(more);
    }

    /// What is different now; the bytes that are more by themselves.
    pub fn difference(&self) -> (isize, Option<String>) {
        let bytes = bytes_in_use() as isize - (self.bytes + self.own) as isize;
        // A thread that was joined may be seen for a moment.
        let patience = Instant::now() + Duration::from_secs(5);
        while threads() > self.threads && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(1));
        }
        let now = Self::now();
        let same = (&now.mappings, now.files, now.threads) == (&self.mappings, self.files, self.threads);
        (bytes, (!same).then(|| format!("before: {self}\nnow: {now}")))
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} files, {} threads, mappings:\n{}", self.files, self.threads, self.mappings.join("\n"))
    }
}
