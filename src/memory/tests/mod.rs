//! Slabs on real memory. The kernel's view comes from `/proc/self/maps` and `pagemap`, only for addresses of the test's
//! own arena, so that tests may run in parallel.
#![allow(unsafe_code, reason = "plays the part of the linker: writes, reads and calls what lies at an address")]

mod batches;
mod code_view;
mod cost;
mod failures;
mod file_pages;
mod limits;
// The published package is tested without this cfg, and without slabjit-stock.
#[cfg(slabjit_faults)]
#[cfg(feature = "llvm")]
mod managers;
mod model;
mod packed;
mod place;
mod quarantine;
mod slabs;
mod warm;

use std::ops::Range;
use std::sync::Arc;

use super::*;
use crate::error::Result;
use crate::fault::{self, Call};

const MIB: usize = 1 << 20;

/// One line of `/proc/self/maps`.
#[derive(Debug, PartialEq, Eq)]
struct Mapped {
    addresses: Range<usize>,
    access: String,
    /// The file's inode, or 0.
    file: u64,
}

/// Returns all mappings that overlap a range, cut to it. The kernel prints the list in pieces: a mapping may come
/// twice, or not at all, while other threads change earlier ones.
fn mapped(range: &Range<usize>) -> Vec<Mapped> {
    let mut seen = mapped_now(range);
    loop {
        let again = mapped_now(range);
        if again == seen {
            return seen;
        }
        seen = again;
    }
}

fn mapped_now(range: &Range<usize>) -> Vec<Mapped> {
    let mut all = Vec::new();
    for line in std::fs::read_to_string("/proc/self/maps").unwrap().lines() {
        let mut fields = line.split(' ');
        let (start, end) = fields.next().unwrap().split_once('-').unwrap();
        let parse = |s| usize::from_str_radix(s, 16).unwrap();
        let addresses = parse(start).max(range.start)..parse(end).min(range.end);
        if !addresses.is_empty() {
            let mut access = fields.next().unwrap().to_owned();
            assert!(!access.starts_with("rwx"), "{line}");
            if under_qemu() {
                access = access.replace('x', "-");
            }
            let file = fields.nth(2).unwrap().parse().unwrap();
            all.push(Mapped { addresses, access, file });
        }
    }
    all
}

/// Returns the mappings of a range that has no holes.
fn mapped_without_holes(range: &Range<usize>) -> Vec<Mapped> {
    let bytes = |mapped: &[Mapped]| mapped.iter().map(|m| m.addresses.len()).sum::<usize>();
    // qemu-user derives its list from the kernel's, and leaves out mappings that just changed there.
    let mut tries = std::iter::repeat_with(|| mapped(range)).take(20);
    let mapped = tries.find(|mapped| bytes(mapped) == range.len());
    mapped.unwrap_or_else(|| panic!("holes in {range:x?}: {:?}", self::mapped(range)))
}

/// Returns the access of a range that has the same access everywhere.
fn access(range: &Range<usize>) -> String {
    let mapped = mapped_without_holes(range);
    assert!(mapped.iter().all(|m| m.access == mapped[0].access), "{mapped:?}");
    mapped[0].access.clone()
}

/// Returns whether the process runs under qemu-user (`ci/aarch64`). It differs in two ways: it shows adjacent `r-x` and
/// `r--` mappings as one, since neither is executable for the host, and the host's pages may be smaller.
fn under_qemu() -> bool {
    std::env::var_os("SLABJIT_TEST_RUNNER").is_some()
}

/// Returns how many random cases a test has: fewer under qemu-user, where each list of mappings takes long.
fn cases(usual: u32) -> u32 {
    if under_qemu() { usual.div_ceil(4) } else { usual }
}

/// Returns the kernel's page size, which may be smaller than the one that qemu-user reports.
fn resident_page() -> usize {
    if under_qemu() { 4096 } else { os::page_size() }
}

/// Counts the resident bytes of whole pages. The kernel's own sums are by mapping, which may include a neighbour's, and
/// qemu-user has no mincore for pages without access. `/proc/self/pagemap` has 8 bytes for each page, with bit 63 for
/// presence (Linux, admin-guide/mm/pagemap). qemu-user places a 64-bit program at the host's own addresses.
fn rss(range: &Range<usize>) -> usize {
    use std::os::unix::fs::FileExt;
    let page = resident_page();
    let mut entries = vec![0_u8; range.len() / page * 8];
    let file = std::fs::File::open("/proc/self/pagemap").unwrap();
    file.read_exact_at(&mut entries, (range.start / page * 8) as u64).unwrap();
    entries.chunks_exact(8).filter(|entry| entry[7] & 0x80 != 0).count() * page
}

fn expected_access(protection: Protection) -> &'static str {
    match protection {
        Protection::ReadExecute if under_qemu() => "r--p",
        Protection::ReadExecute => "r-xp",
        Protection::Read => "r--p",
        Protection::ReadWrite => "rw-p",
    }
}

fn write(address: usize, bytes: &[u8]) {
    let to = std::ptr::with_exposed_provenance_mut::<u8>(address);
    // SAFETY: tests write to the contents of a segment of a writable slab, from one thread.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
}

fn read(address: usize, len: usize) -> Vec<u8> {
    let from = std::ptr::with_exposed_provenance::<u8>(address);
    let mut bytes = vec![0; len];
    // SAFETY: tests read from a segment of a slab that lives, from one thread.
    unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), len) };
    bytes
}

/// Creates an arena without a quarantine.
fn arena(size: usize) -> Arc<Arena> {
    resting_arena(size, 0)
}

fn resting_arena(size: usize, quarantine: usize) -> Arc<Arena> {
    Arena::reserve(&ArenaConfig { size, place: None, warm: 0, quarantine, packed: None }).unwrap()
}

/// Creates an arena that believes that no page may become executable.
fn refusing_arena(config: &ArenaConfig) -> Arc<Arena> {
    let refuse = |_, call| (call == Call::TryExecution).then_some(libc::EACCES);
    let (arena, _) = fault::with_errors(refuse, || Arena::reserve(config).unwrap());
    assert!(arena.stats().exec_gain_refused);
    arena
}

fn segment(protection: Protection, content_bytes: u64) -> SegmentRequest {
    SegmentRequest {
        protection,
        lifetime: Lifetime::Standard,
        alignment: 16,
        content_bytes,
        zero_fill_bytes: 0,
        outside: false,
        overwritten: Extent::default(),
    }
}

/// Requests code, constants and data.
fn small_object() -> [SegmentRequest; 3] {
    [Protection::ReadExecute, Protection::Read, Protection::ReadWrite].map(|p| segment(p, 100))
}

fn allocate(arena: &Arc<Arena>, segments: &[SegmentRequest]) -> Result<WritableSlab> {
    arena.allocate(&"test.o".into(), segments, PlacementHints { shares: true, batch: false }, |blame| BlamedSection {
        name: format!("{blame:?}"),
        bytes: 7,
    })
}

/// Frees slabs that were removed together.
fn give_back(slabs: impl IntoIterator<Item = PublishedSlab>) {
    let mut slabs: Vec<PublishedSlab> = slabs.into_iter().collect();
    PublishedSlab::give_back(&mut slabs.iter_mut().collect::<Vec<_>>());
}

/// Asserts that no slab is left: one free range, nothing resident, every access traps, and the counts are at their
/// start.
fn assert_pristine(arena: &Arc<Arena>) {
    assert_eq!(access(&arena.range()), "---p");
    assert_eq!(rss(&arena.range()), 0);
    let ArenaStats { exec_gain_refused, .. } = arena.stats();
    let reserved_bytes = arena.range().len();
    assert_eq!(arena.stats(), ArenaStats { reserved_bytes, exec_gain_refused, ..ArenaStats::default() });
    assert_eq!(arena.largest_free(), arena.range().len());
}
