//! What a process has mapped that is not malloc's.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Has malloc take all of its memory from one heap, which `Memory` leaves out.
pub fn share_one_heap() {
    // SAFETY: before any other thread.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_MAX, 0);
    }
}

/// Mappings and their resident bytes: all that are not malloc's, and all of the process.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Memory {
    /// Mappings of what was loaded.
    pub mappings: f64,
    /// Resident bytes in them.
    pub mapped: f64,
    /// Resident bytes of the process, with what malloc has for LLVM and for us.
    pub resident: f64,
}

impl Memory {
    /// Of this process, without what the files behind the mappings of `before` occupy: code of libraries that is run
    /// for the first time.
    pub fn now(before: &Files) -> Self {
        let mut memory = Self::default();
        let mut counts = false;
        for line in std::fs::read_to_string("/proc/self/smaps").unwrap_or_default().lines() {
            if let Some(name) = name(line) {
                counts = name != "[heap]" && name != "[stack]" && !before.0.contains(name);
                memory.mappings += f64::from(counts);
            } else if let Some(kib) = line.strip_prefix("Rss:") {
                let bytes = kib.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0) * 1024.0;
                memory.mapped += if counts { bytes } else { 0.0 };
                memory.resident += bytes;
            }
        }
        memory
    }

    /// What each of so many takes.
    pub fn each(self, before: Self, count: usize) -> Self {
        let each = |after: f64, before: f64| (after - before) / count.max(1) as f64;
        Self {
            mappings: each(self.mappings, before.mappings),
            mapped: each(self.mapped, before.mapped),
            resident: each(self.resident, before.resident),
        }
    }
}

/// Names of files that are mapped; those of memory (memfd) are what is measured, and not among them.
pub struct Files(BTreeSet<String>);

impl Files {
    /// Now.
    pub fn now() -> Self {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        let is_file = |name: &&str| name.starts_with('/') && !name.starts_with("/memfd:");
        Self(maps.lines().filter_map(name).filter(is_file).map(str::to_owned).collect())
    }
}

/// What is mapped, of the line that begins a mapping; empty for memory.
fn name(line: &str) -> Option<&str> {
    let mut words = line.splitn(6, ' ');
    let first = words.next()?;
    let is_range =
        first.split_once('-').is_some_and(|(a, b)| [a, b].iter().all(|end| u64::from_str_radix(end, 16).is_ok()));
    is_range.then(|| words.nth(4).unwrap_or_default().trim())
}
