//! Slabs at given distances, and those that show pages of a file.

use std::io::Write as _;

use super::super::slab::Placed;
use super::*;
use crate::MemoryError;
use crate::error::Error;

/// A file of so many pages, each with its number plus one in every byte.
fn file(pages: usize) -> std::fs::File {
    let mut file = tempfile::tempfile().unwrap();
    (1..=pages).for_each(|number| file.write_all(&vec![number as u8; os::page_size()]).unwrap());
    file
}

/// Constants and code of two pages each, of which the first is not the file's start, and data of one, far from them.
fn show(arena: &Arc<Arena>, file: &std::fs::File) -> Result<(WritableSlab, bool)> {
    let page = arena.page() as u64;
    let zeros = |protection, pages| SegmentRequest { zero_fill_bytes: pages * page, ..segment(protection, 0) };
    let segments =
        [zeros(Protection::Read, 2), zeros(Protection::ReadExecute, 2), segment(Protection::ReadWrite, page)];
    let offsets = [0, 2 * page, 7 * page];
    let mut slab = arena.allocate_at(&"test.so".into(), &segments, &offsets, |_| BlamedSection::default())?;
    let shown = slab.show_file(0, file, page).and_then(|()| slab.show_file(1, file, 3 * page)).is_ok();
    Ok((slab, shown))
}

#[test]
fn pages_of_a_file_are_shown_at_their_distances() {
    let (arena, file) = (arena(8 * MIB), file(5));
    let page = arena.page();
    let (slab, shown) = show(&arena, &file).unwrap();
    assert!(shown);
    let [constants, code, data] = [0, 1, 2].map(|i| slab.placements()[i].address);
    assert_eq!([code - constants, data - constants], [2 * page, 7 * page]);
    // What is written is not the file's.
    write(code + page, &[99]);
    let slab = slab.publish().unwrap();
    assert_eq!(
        [read(constants, 1), read(code - 1, 1), read(code, 1), read(code + page, 2)],
        [vec![2], vec![3], vec![4], vec![99, 5]]
    );
    let again = file_bytes(&file);
    assert_eq!(again[4 * page], 5);
    assert_eq!(access(&(constants..code)), "r--p");
    assert_eq!(access(&(code..code + 2 * page)), expected_access(Protection::ReadExecute));
    drop(slab);
    assert_pristine(&arena);
}

fn file_bytes(file: &std::fs::File) -> Vec<u8> {
    use std::os::unix::fs::FileExt as _;
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Emptied in place, they would show the file again.
#[test]
fn pages_of_a_file_that_cannot_be_replaced_are_not_used_again() {
    let (arena, file) = (arena(8 * MIB), file(5));
    for is_recorded in [false, true] {
        let (slab, _) = show(&arena, &file).unwrap();
        let mut slab = slab.publish().unwrap();
        if is_recorded {
            slab.belong_to(&"library".into(), &"object".into(), &Default::default());
        }
        let span = slab.span();
        fault::with(|_, call| call == Call::Replace, || drop(slab));
        assert_eq!(arena.stats().lost_bytes, span.len());
        assert_eq!(access(&span), "---p");
        arena.forget_lost();
    }
}

#[test]
fn a_file_that_cannot_be_shown_leaves_zeros() {
    let (arena, file) = (arena(8 * MIB), file(5));
    let (shown, _) = fault::with(|_, call| call == Call::MapFile, || show(&arena, &file));
    let (slab, shown) = shown.unwrap();
    assert!(!shown);
    let Placed { address, size, .. } = slab.placements()[0];
    assert!(read(address, size).iter().all(|byte| *byte == 0));
    drop(slab);
    assert_pristine(&arena);
}

#[test]
fn distances_are_whole_pages_that_ascend() {
    let arena = arena(8 * MIB);
    let page = arena.page() as u64;
    let segments = [segment(Protection::Read, 10), segment(Protection::ReadWrite, page + 1)];
    let at =
        |offsets: [u64; 2]| arena.allocate_at(&"test.so".into(), &segments, &offsets, |_| BlamedSection::default());
    for offsets in [[page, 2 * page], [0, page + page / 2], [0, 0]] {
        assert!(matches!(at(offsets), Err(Error::Object(_))), "{offsets:?}");
    }
    assert!(matches!(at([0, u64::MAX - page + 1]), Err(Error::Memory(MemoryError::ArenaExhausted { .. }))));
    assert!(matches!(at([0, 16 << 20]), Err(Error::Memory(MemoryError::ArenaExhausted { .. }))));
    drop(at([0, 3 * page]).unwrap());
    assert_pristine(&arena);
}
