//! Refused requests and their errors.

use super::*;
use crate::error::Error;
use crate::{MemoryError, ObjectError};

#[test]
fn alignment_up_to_two_mib() {
    let arena = arena(64 * MIB);
    for shift in 0..=21 {
        for outside in [false, true] {
            let data = SegmentRequest { alignment: 1 << shift, outside, ..segment(Protection::ReadWrite, 10) };
            let slab = allocate(&arena, &[segment(Protection::ReadExecute, 10), data]).unwrap();
            assert_eq!(slab.placements()[1].address % (1 << shift), 0);
            write(slab.placements()[1].address, &[1; 10]);
            slab.publish().unwrap();
        }
    }
    assert_pristine(&arena);
}

#[test]
fn alignment_above_is_refused() {
    let arena = arena(64 * MIB);
    let object =
        |alignment| [segment(Protection::Read, 1), SegmentRequest { alignment, ..segment(Protection::Read, 1) }];
    match allocate(&arena, &object(4 << 20)).unwrap_err() {
        Error::Memory(MemoryError::UnsupportedAlignment { object, section, alignment, limit }) => {
            assert_eq!((object.as_str(), section.as_str()), ("test.o", "Alignment { segment: 1 }"));
            assert_eq!((alignment, limit), (4 << 20, 2 << 20));
        }
        other => panic!("{other}"),
    }
    assert!(matches!(
        allocate(&arena, &object(24)),
        Err(Error::Object(ObjectError::Malformed { section: Some(_), .. }))
    ));
    assert!(allocate(&arena, &object(0)).is_ok());
    assert_pristine(&arena);
}

#[test]
fn an_exhausted_arena_says_what_was_too_large() {
    let arena = arena(8 * MIB);
    let object = [segment(Protection::ReadExecute, 1), segment(Protection::Read, 5 << 20)];
    let first = allocate(&arena, &object).unwrap().publish().unwrap();
    let before = arena.stats();
    match allocate(&arena, &object).unwrap_err() {
        Error::Memory(MemoryError::ArenaExhausted {
            object,
            requested,
            section,
            section_bytes,
            largest_free,
            arena_bytes,
        }) => {
            assert_eq!((object.as_str(), section.as_str(), section_bytes), ("test.o", "Largest", 7));
            assert_eq!(requested as usize, first.span().len());
            assert_eq!(largest_free as usize, 8 * MIB - first.span().len());
            assert_eq!(arena_bytes as usize, 8 * MIB);
        }
        other => panic!("{other}"),
    }
    assert_eq!(arena.stats(), before);
    drop(first);
    drop(allocate(&arena, &object).unwrap());
    assert_pristine(&arena);
}

#[test]
fn sizes_that_overflow_are_refused() {
    let arena = arena(8 * MIB);
    for outside in [false, true] {
        for (content_bytes, zero_fill_bytes) in [(u64::MAX, 1), (0, u64::MAX), (1 << 63, 1 << 63), (0, i64::MAX as u64)]
        {
            let huge = SegmentRequest { content_bytes, zero_fill_bytes, outside, ..segment(Protection::Read, 0) };
            let error = allocate(&arena, &[segment(Protection::Read, 1), huge, huge]).unwrap_err();
            assert!(
                matches!(
                    error,
                    Error::Memory(MemoryError::ArenaExhausted { .. })
                        | Error::Memory(MemoryError::System { call: "mmap", .. })
                ),
                "{error}"
            );
            assert_pristine(&arena);
        }
    }
}

#[test]
fn sizes_are_kept_in_bounds() {
    assert_eq!(arena(1).range().len(), ArenaConfig::MIN);
    assert_eq!(arena(usize::MAX).range().len(), ArenaConfig::MAX);
    assert_eq!(arena(9 * MIB + 1).range().len(), 9 * MIB + os::page_size());
}

#[test]
fn a_reservation_halves_until_it_fits() {
    let reserve = |refusals| {
        let config = ArenaConfig { size: 100 * MIB, place: None, warm: 0, quarantine: 0, packed: None };
        fault::with(move |index, call| call == Call::Reserve && index < refusals, || Arena::reserve(&config)).0
    };
    assert_eq!(reserve(0).unwrap().range().len(), 100 * MIB);
    assert_eq!(reserve(2).unwrap().range().len(), 25 * MIB);
    assert_eq!(reserve(4).unwrap().range().len(), 8 * MIB);
    match reserve(5) {
        Err(Error::Memory(MemoryError::AddressSpace { requested, minimum, source })) => {
            assert_eq!((requested, minimum), (100 * MIB, 8 * MIB));
            assert_eq!(source.raw_os_error(), Some(libc::ENOMEM));
        }
        other => panic!("{other:?}"),
    }
}

/// Tests against a real limit, in a process of its own.
#[test]
fn a_reservation_halves_under_an_address_space_limit() {
    if under_qemu() {
        println!("not run under qemu-user: it does not enforce RLIMIT_AS");
        return;
    }
    const CHILD: &str = "SLABJIT_TEST_ADDRESS_SPACE_CHILD";
    if std::env::var_os(CHILD).is_none() {
        let (_, module) = module_path!().split_once("::").unwrap();
        let name = format!("{module}::a_reservation_halves_under_an_address_space_limit");
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let output = child.args([&name, "--exact", "--nocapture"]).env(CHILD, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
        return;
    }
    limit_address_space(100 * MIB);
    let arena = Arena::reserve(&ArenaConfig::default()).unwrap();
    assert_eq!(arena.range().len(), ArenaConfig::MAX / 32);
    drop(allocate(&arena, &small_object()).unwrap().publish().unwrap());
    assert_pristine(&arena);
    drop(arena);
    limit_address_space(4 * MIB);
    assert!(matches!(Arena::reserve(&ArenaConfig::default()), Err(Error::Memory(MemoryError::AddressSpace { .. }))));
}

/// Limits this process to `more` bytes above its present size.
fn limit_address_space(more: usize) {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let size = pages.split(' ').next().unwrap().parse::<usize>().unwrap() * os::page_size();
    let limit = libc::rlimit { rlim_cur: (size + more) as u64, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a plain call with a valid pointer; the limit is this process's own.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}
