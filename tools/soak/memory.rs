//! What is left when nothing is loaded.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use slabjit::JitEngine;

/// Has all threads share one heap of malloc's. Others are given back in part only, so that what is left would say
/// little.
pub fn share_one_heap() {
    // SAFETY: before any other thread.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// What a process has.
pub struct Left {
    /// Resident bytes.
    pub memory: usize,
    /// Bytes that malloc has given out, to LLVM, too.
    pub allocated: usize,
    /// Slabs, open files, threads, and so on, by name.
    pub counts: BTreeMap<&'static str, usize>,
}

impl Left {
    /// With what malloc keeps for later given back.
    pub fn now(engine: &JitEngine) -> Self {
        let entries = |folder: &str| std::fs::read_dir(folder).map_or(0, Iterator::count);
        // The kernel lets a thread be joined a moment before it is gone.
        let patience = Instant::now() + Duration::from_secs(5);
        while entries("/proc/self/task") > 1 && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
        // SAFETY: returns what is free.
        unsafe { libc::malloc_trim(0) };
        let stats = engine.stats();
        let counts = [
            ("slabs", stats.arena.slabs),
            ("slab_bytes", stats.arena.slab_bytes),
            ("outside_bytes", stats.arena.outside_bytes),
            ("lost_bytes", stats.arena.lost_bytes),
            ("files", entries("/proc/self/fd")),
            ("threads", entries("/proc/self/task")),
        ];
        // SAFETY: returns numbers.
        let malloc = unsafe { libc::mallinfo2() };
        Self { memory: resident(), allocated: malloc.uordblks + malloc.hblkhd, counts: counts.into() }
    }
}

/// Bytes of memory that belong to this process alone.
pub fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<usize>().ok());
    kib.unwrap_or(0) * 1024
}
