use std::path::Path;

use crate::Result;
use crate::elf::Archive;
use crate::elf::testing::{X86, gcc, prepare, run};
use crate::read::Contents;
use crate::{Error, ObjectError};

fn parse(bytes: impl Into<Vec<u8>>) -> Result<Archive> {
    Archive::parse("lib.a", Contents::Memory(bytes.into().into()))
}

fn objects(dir: &Path) {
    std::fs::write(
        dir.join("one.o"),
        gcc(&[], "int one(void) { return 1; } int shared = 1; extern int missing; int *use = &missing;"),
    )
    .unwrap();
    std::fs::write(dir.join("a-member-with-a-long-name.o"), gcc(&[], "int two(void) { return 2; } static int local;"))
        .unwrap();
    std::fs::write(dir.join("readme.txt"), "not an object").unwrap();
}

fn make(dir: &Path, flags: &str) -> Vec<u8> {
    run(dir, "ar", &[flags, "lib.a", "one.o", "readme.txt", "a-member-with-a-long-name.o"]);
    let bytes = std::fs::read(dir.join("lib.a")).unwrap();
    std::fs::remove_file(dir.join("lib.a")).unwrap();
    bytes
}

#[test]
fn members_are_found_by_symbol_with_and_without_an_index() {
    let dir = tempfile::tempdir().unwrap();
    objects(dir.path());
    for flags in ["rcs", "rcS"] {
        let archive = parse(make(dir.path(), flags)).unwrap();
        let (name, bytes) = archive.member(archive.find("one").unwrap()).unwrap();
        assert_eq!(name, "lib.a(one.o)");
        assert_eq!(*bytes, std::fs::read(dir.path().join("one.o")).unwrap());
        assert!(prepare(X86, &bytes).is_ok());
        let (name, _) = archive.member(archive.find("two").unwrap()).unwrap();
        assert_eq!(name, "lib.a(a-member-with-a-long-name.o)");
        assert_eq!(archive.find("shared"), archive.find("one"));
        assert_eq!((archive.find("missing"), archive.find("local"), archive.find("")), (None, None, None), "{flags}");
        assert_eq!(archive.symbols().count(), 4);
    }
}

#[test]
fn what_is_no_archive_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    objects(dir.path());
    let error = parse(make(dir.path(), "rcsT")).unwrap_err();
    assert!(error.to_string().contains("thin archive"), "{error}");
    assert!(matches!(parse([]), Err(Error::Object(ObjectError::Empty { .. }))));
    assert!(matches!(parse(gcc(&[], "int x;")), Err(Error::Object(ObjectError::NotAnArchive { .. }))));
    assert_eq!(parse(*b"!<arch>\n").unwrap().symbols().count(), 0);
}

#[test]
fn damaged_archives_never_panic() {
    let dir = tempfile::tempdir().unwrap();
    objects(dir.path());
    let bytes = make(dir.path(), "rcs");
    for len in 0..bytes.len() {
        if let Ok(archive) = parse(&bytes[..len]) {
            for (_, id) in archive.symbols() {
                assert!(archive.member(id).unwrap().1.len() > 100);
            }
        }
    }
    let mut refused = 0;
    for at in 8..300.min(bytes.len()) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x15;
        refused += usize::from(parse(damaged).is_err());
    }
    assert!(refused > 0);
}

/// A BSD index, in which each entry gives the offset of its name.
#[test]
fn names_of_an_index_may_not_overlap_without_end() {
    let archive = |entries: u32| {
        let names = [&b"n".repeat(999)[..], b"\0"].concat();
        let mut index = (entries * 8).to_le_bytes().to_vec();
        let member = 8 + 60 + 4 + entries * 8 + 4 + 1000;
        (0..entries).for_each(|_| index.extend([0_u32.to_le_bytes(), member.to_le_bytes()].concat()));
        index.extend(1000_u32.to_le_bytes());
        index.extend(names);
        let mut bytes = b"!<arch>\n".to_vec();
        for (name, contents) in [("__.SYMDEF", &index[..]), ("a.o", b"text")] {
            let header = format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, 644, contents.len());
            bytes.extend(header.bytes().chain(contents.iter().copied()));
        }
        parse(bytes)
    };
    assert_eq!(archive(4).unwrap().symbols().count(), 4);
    let error = archive(1000).unwrap_err().to_string();
    assert!(error.contains("the names in its index overlap without end"), "{error}");
}
