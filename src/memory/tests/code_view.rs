//! Code that is written through a second view, because no page may become executable.

use super::failures::{life, object};
use super::*;
use crate::MemoryError;
use crate::error::Error;
use crate::memory::packed::UNIT;

/// The access that the kernel shows for such code.
pub(super) fn code_elsewhere() -> &'static str {
    if under_qemu() { "r--s" } else { "r-xs" }
}

fn refusing(size: usize, packed: Option<PackedConfig>) -> Arc<Arena> {
    refusing_arena(&ArenaConfig { size, warm: 0, quarantine: 0, packed, place: None })
}

#[test]
fn code_is_never_writable_where_it_runs() {
    let arena = refusing(16 * MIB, None);
    let requests = object();
    let slab = allocate(&arena, &requests).unwrap();
    for (placed, request) in slab.placements().iter().zip(&requests) {
        let code = request.protection == Protection::ReadExecute;
        assert_eq!(code, placed.address != placed.written, "{request:?}");
        let page = placed.address & !(arena.page() - 1);
        let expected = if code { code_elsewhere() } else { "rw-p" };
        assert_eq!(access(&(page..page + arena.page())), expected, "{request:?}");
        write(placed.written, b"contents");
    }
    let (placements, views) = (slab.placements().to_vec(), placed_elsewhere(&slab));
    // Of this arena's memory: other tests may map theirs at the same addresses, later.
    let files: Vec<_> = views.iter().flat_map(mapped).map(|view| view.file).collect();
    assert!(!files.is_empty() && !files.contains(&0), "{files:?}");
    let (slab, calls) = fault::with(|_, _| false, || slab.publish().unwrap());
    assert!(!calls.contains(&Call::TryExecution) && !views.is_empty());
    for (placed, request) in placements.iter().zip(&requests) {
        assert_eq!(read(placed.address, 8), b"contents");
        let page = placed.address & !(arena.page() - 1);
        if request.protection == Protection::ReadExecute {
            assert_eq!(access(&(page..page + arena.page())), code_elsewhere());
        }
    }
    // The views are gone.
    let shared = |range: &Range<usize>| mapped(range).iter().any(|m| m.access == "rw-s" && files.contains(&m.file));
    assert!(!views.iter().any(shared));
    drop(slab);
    assert_pristine(&arena);
}

/// Returns the pages through which code is written.
fn placed_elsewhere(slab: &WritableSlab) -> Vec<Range<usize>> {
    let elsewhere = slab.placements().iter().filter(|placed| placed.address != placed.written);
    elsewhere.map(|placed| placed.written & !(os::page_size() - 1)..placed.written + placed.size).collect()
}

/// Each call fails in turn: an error or success, and nothing leaks.
#[test]
fn any_one_call_may_fail() {
    let (mut refused, mut failing) = (std::collections::BTreeSet::new(), 0);
    loop {
        let arena = refusing(16 * MIB, None);
        let (result, calls) =
            fault::with_errors(move |index, _| (index == failing).then_some(libc::EPERM), || life(&arena));
        let Some(&failed) = calls.get(failing) else {
            result.unwrap();
            assert_pristine(&arena);
            break;
        };
        match result {
            Ok(()) => {}
            Err(Error::Memory(MemoryError::System { call, source, .. })) => {
                assert_eq!((call, source.raw_os_error()), (failed.function_of_error(), Some(libc::EPERM)));
                refused.insert(failed);
            }
            Err(other) => panic!("{other}"),
        }
        let stats = arena.stats();
        assert_eq!((stats.slabs, stats.slab_bytes, stats.outside_bytes), (0, 0, 0), "{failed:?}");
        let lost = arena.range().len() - arena.largest_free();
        assert!(lost == 0 || failed == Call::Replace, "{failed:?} lost {lost:#x} bytes");
        failing += 1;
    }
    let expected = [Call::Reserve, Call::MapWritable, Call::Protect, Call::CreateCode, Call::SizeCode, Call::MapCode];
    assert!(expected.iter().all(|call| refused.contains(call)), "{refused:?}");
}

trait OfError {
    /// Returns the function that an error names.
    fn function_of_error(self) -> &'static str;
}

impl OfError for Call {
    fn function_of_error(self) -> &'static str {
        match self {
            Call::Protect => "mprotect",
            Call::CreateCode | Call::CreateOldCode | Call::SizeCode => "memfd_create",
            _ => "mmap",
        }
    }
}

/// The refusal comes after the engine was made: the first object fails with a reason, the next is loaded.
#[test]
fn what_is_refused_once_is_not_tried_again() {
    let arena = arena(16 * MIB);
    let publish = |refused| {
        let slab = allocate(&arena, &small_object()).unwrap();
        fault::with_errors(move |_, call| (call == Call::Protect && refused).then_some(libc::EACCES), || slab.publish())
            .0
    };
    drop(publish(false).unwrap());
    assert!(!arena.stats().exec_gain_refused);
    let error = publish(true).unwrap_err().to_string();
    assert!(error.contains("MemoryDenyWriteExecute") && error.contains("ask again"), "{error}");
    assert!(arena.stats().exec_gain_refused);
    let slab = publish(false).unwrap();
    assert_eq!(access(&slab.ranges()[0].addresses), code_elsewhere());
    drop(slab);
    assert_pristine(&arena);
}

/// Page-striped packing would have to change the protection of pages.
#[test]
fn what_would_be_striped_has_pages_of_its_own() {
    let arena = refusing(16 * MIB, Some(PackedConfig { hardened: false, striped: true }));
    let slab = allocate(&arena, &small_object()).unwrap();
    assert_ne!(slab.placements()[0].address, slab.placements()[0].written);
    let slab = slab.publish().unwrap();
    assert_eq!(access(&slab.ranges()[0].addresses), code_elsewhere());
}

fn load(arena: &Arc<Arena>, object: &[SegmentRequest], seed: u8) -> PublishedSlab {
    let slab = allocate(arena, object).unwrap();
    write(slab.placements()[0].written, &[seed; UNIT]);
    slab.publish().unwrap()
}

/// A unit whose memory was freed cannot get its protection again, so it gets new memory.
#[test]
fn units_come_back_where_no_page_may_become_executable() {
    for hardened in [false, true] {
        let arena = refusing(64 * MIB, Some(PackedConfig { hardened, striped: false }));
        let object = [segment(Protection::ReadExecute, UNIT as u64)];
        let mut seen = std::collections::HashSet::new();
        for round in 1..6_u8 {
            let refuse = move |_, call| (call == Call::Protect && !hardened).then_some(libc::EACCES);
            let ((), _) = fault::with_errors(refuse, || {
                let all: Vec<_> = (0..12).map(|i| load(&arena, &object, 16 * round + i)).collect();
                for (slab, i) in all.iter().zip(0..) {
                    let code = &slab.ranges()[0].addresses;
                    assert_eq!(read(code.start, UNIT), [16 * round + i; UNIT]);
                    assert_eq!(&access(code)[..3], &code_elsewhere()[..3]);
                    seen.insert(code.start);
                }
            });
        }
        // A unit with new memory in only one view is not used, even if the old memory could be restored.
        let renewed = fault::with_errors(
            |_, call| [Call::Protect, Call::MapCode].contains(&call).then_some(libc::EACCES),
            || (0..12).map(|_| allocate(&arena, &object).is_ok()).collect::<Vec<_>>(),
        );
        assert!(renewed.1.contains(&Call::MapCode), "{renewed:?}");
        for shown in [1, 2] {
            let mut count = 0;
            let refuse = move |_, call| {
                count += usize::from(call == Call::MapCode);
                (call == Call::Protect && !hardened || call == Call::MapCode && count % 2 == shown % 2)
                    .then_some(libc::EACCES)
            };
            let _ = fault::with_errors(refuse, || (0..12).for_each(|_| drop(allocate(&arena, &object))));
            let all: Vec<_> = (0..12).map(|_| load(&arena, &object, 99)).collect();
            all.iter().for_each(|slab| assert_eq!(read(slab.ranges()[0].addresses.start, UNIT), [99; UNIT]));
        }
        assert!(seen.len() < 40, "none came back: {}", seen.len());
        assert_eq!(arena.stats().lost_bytes, 0);
        assert_eq!(access(&arena.range()), "---p");
    }
}
