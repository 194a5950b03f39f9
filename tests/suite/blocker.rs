//! Takes address space away, so that an engine's arena has to lie elsewhere. For tests that run alone: it is the whole
//! process's address space, and of the process's threads the blocker expects only its own to map meanwhile.

use std::ops::Range;

use crate::common::{Mapping, mappings};

/// Free pieces below this are of no use to an engine.
pub const SMALLEST_ARENA: usize = 8 << 20;
/// The heap and the stack go on growing: room that is left free, as the engine leaves it.
const HEAP_ROOM: usize = 64 << 20;
const STACK_ROOM: usize = 128 << 20;
/// Behind the last address that user code may have with 47 bits (x86-64 with four levels of page tables), less one
/// page.
const TOP: usize = (1 << 47) - (64 << 10);

/// Taken addresses: PROT_NONE, without memory behind them. Free again on drop.
#[must_use = "the addresses are free again when it is dropped"]
#[derive(Debug, Default)]
pub struct Blocker {
    taken: Vec<Range<usize>>,
}

/// Fills every free piece of the range, as the kernel lists them.
pub fn occupy(range: Range<usize>) -> Blocker {
    let mut blocker = Blocker::default();
    blocker.add(&range);
    blocker
}

/// Leaves no room for an arena that has a byte less than `distance` away from the executable or from a library of the
/// process: the arena of an engine that may lie anywhere is then at least so far from all of the process's symbols.
pub fn keep_away(distance: usize) -> Blocker {
    let mut blocker = Blocker::default();
    for file in files() {
        blocker.add(&(file.start.saturating_sub(distance)..file.end.saturating_add(distance)));
    }
    blocker
}

/// Every mapping of the executable and of libraries. Code that is packed lies in files of memory.
pub fn files() -> Vec<Mapping> {
    let mut all = mappings();
    let is_code =
        |m: &&Mapping| m.permissions.contains('x') && m.name.starts_with('/') && !m.name.starts_with("/memfd:slabjit");
    let names: Vec<String> = all.iter().filter(is_code).map(|m| m.name.clone()).collect();
    all.retain(|m| names.contains(&m.name));
    all
}

/// The same without the executable.
pub fn libraries() -> Vec<Mapping> {
    let executable = std::fs::read_link("/proc/self/exe").unwrap();
    files().into_iter().filter(|m| *m.name != *executable).collect()
}

/// From the first byte of the one that is lower to the last of the one that is higher, as a distance from byte to byte.
pub fn furthest(a: &Range<usize>, b: &Range<usize>) -> usize {
    a.end.max(b.end) - 1 - a.start.min(b.start)
}

/// Between the bytes that are nearest to each other; 0 if they overlap.
pub fn nearest(a: &Range<usize>, b: &Range<usize>) -> usize {
    a.start.max(b.start).saturating_sub(a.end.min(b.end))
}

impl Blocker {
    /// Reading the list of mappings may map and unmap memory, so it takes more than one look.
    fn add(&mut self, range: &Range<usize>) {
        for _ in 0..4 {
            for piece in free(range) {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
                let at = std::ptr::with_exposed_provenance_mut(piece.start);
                // SAFETY: MAP_FIXED_NOREPLACE takes only what is unused.
                if unsafe { libc::mmap(at, piece.len(), libc::PROT_NONE, flags, -1, 0) } == at {
                    self.taken.push(piece);
                }
            }
        }
        let rest = free(range).into_iter().find(|piece| piece.len() >= SMALLEST_ARENA);
        assert_eq!(rest, None, "cannot be taken: {}", std::io::Error::last_os_error());
    }
}

impl Drop for Blocker {
    fn drop(&mut self) {
        for piece in self.taken.drain(..) {
            let at = std::ptr::with_exposed_provenance_mut(piece.start);
            // SAFETY: mapped by `add`, and used by nobody.
            assert_eq!(unsafe { libc::munmap(at, piece.len()) }, 0);
        }
    }
}

/// The free pieces of a range, without what heap and stack may need.
fn free(range: &Range<usize>) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    // What a process may not map at all: the first pages (vm.mmap_min_addr is 64 KiB nearly everywhere), and what is
    // above.
    let mut from = range.start.max(64 << 10);
    let end = range.end.min(TOP);
    for mapping in mappings() {
        let below = if mapping.name == "[stack]" { mapping.start - STACK_ROOM } else { mapping.start };
        pieces.push(from..below.min(end));
        let above = if mapping.name == "[heap]" { HEAP_ROOM } else { 0 };
        from = from.max(mapping.end.saturating_add(above));
    }
    pieces.push(from..end);
    pieces.retain(|p| p.start < p.end);
    pieces
}
