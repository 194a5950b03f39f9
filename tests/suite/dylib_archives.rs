//! `slabjit::orc`: archives, whose members are linked when they are needed. The oracle is ld, which takes the same
//! members.

use std::path::PathBuf;

use slabjit::{Error, LibraryError, LinkError, ObjectError};

use crate::common::{Checked, compile, compile_bytes, once_per, tests, tool};
use crate::dylib_calls::{call, find};

tests![
    members_are_linked_when_they_are_needed,
    threads_ask_for_members_at_once,
    members_come_again_after_a_clear,
    what_is_wrong_with_archives_is_told
];

const MEMBERS: [(&str, &str); 4] = [
    ("first.c", "int second(int); int first(int n) { return second(n) + 1; } int also_first(int n) { return n; }"),
    ("second.c", "int third(int); int second(int n) { return n ? third(n - 1) : 10; }"),
    ("third.c", "int second(int); int third(int n) { return second(n) + 100; }"),
    ("apart.c", "int absent(int); int apart(int n) { return absent(n); }"),
];

fn archive() -> PathBuf {
    let objects = MEMBERS.map(|(name, source)| compile(name, source, &[]));
    let paths = objects.iter().map(|path| path.to_str().unwrap()).collect::<Vec<_>>();
    once_per(&["dylib archive", &paths.join(" ")], "a", |archive| {
        let mut arguments = vec!["rcs", archive.to_str().unwrap()];
        arguments.extend(&paths);
        tool("ar", &arguments);
    })
}

fn members_are_linked_when_they_are_needed() {
    let path = archive();
    for from_file in [false, true] {
        let engine = Checked::new();
        let main = engine.orc().build().unwrap().dylib("main");
        match from_file {
            true => main.add_archive_file(&path).unwrap(),
            false => main.add_archive_named("lib.a", std::fs::read(&path).unwrap()).unwrap(),
        }
        main.add_object(compile_bytes("uses.c", "int first(int); int uses(int n) { return first(n); }", &[])).unwrap();
        assert_eq!(engine.stats().libraries, 0);
        assert_eq!(call(&main, "uses", 2), 211);
        // Each object is one: what uses it, and the three members.
        assert_eq!(engine.stats().libraries, 4);
        assert_eq!((call(&main, "also_first", 3), call(&main, "third", 0)), (3, 110));
        assert_eq!(engine.stats().libraries, 4);
        let error = find(&main, "apart").unwrap_err().to_string();
        assert!(error.contains("absent") && error.contains("apart"), "{error}");
        let name = if from_file { path.to_str().unwrap() } else { "lib.a" };
        assert!(error.contains(name), "{error}");
        assert!(matches!(find(&main, "nowhere"), Err(Error::Library(LibraryError::SymbolNotFound { .. }))));
    }
}

fn threads_ask_for_members_at_once() {
    let bytes = std::fs::read(archive()).unwrap();
    for _ in 0..20 {
        let engine = Checked::new();
        let main = engine.orc().compile_threads(2).build().unwrap().dylib("main");
        main.add_archive(&bytes).unwrap();
        std::thread::scope(|scope| {
            for (name, expected) in [("first", 111), ("also_first", 1), ("second", 110), ("third", 210)] {
                let main = &main;
                scope.spawn(move || assert_eq!(call(main, name, 1), expected, "{name}"));
            }
        });
        assert_eq!(engine.stats().libraries, 3);
    }
}

fn members_come_again_after_a_clear() {
    let engine = Checked::new();
    let main = engine.orc().build().unwrap().dylib("main");
    main.add_archive(std::fs::read(archive()).unwrap()).unwrap();
    for _ in 0..3 {
        assert_eq!(call(&main, "first", 0), 11);
        main.clear().unwrap();
        assert_eq!(engine.stats().libraries, 0);
    }
    // What the dylib defines itself comes first.
    main.add_object(compile_bytes("own.c", "int second(int n) { return 1000; }", &[])).unwrap();
    assert_eq!(call(&main, "first", 0), 1001);
}

fn what_is_wrong_with_archives_is_told() {
    let engine = Checked::new();
    let main = engine.orc().build().unwrap().dylib("main");
    let error = |bytes: &[u8]| main.add_archive_named("wrong.a", bytes).unwrap_err();
    assert!(matches!(error(b""), Error::Object(ObjectError::Empty { .. })));
    assert!(matches!(error(b"\x7fELF no"), Error::Object(ObjectError::NotAnArchive { .. })));
    assert!(matches!(error(b"!<thin>\nfirst.o"), Error::Object(ObjectError::ThinArchive { .. })));
    let missing = main.add_archive_file("/nowhere/lib.a").unwrap_err();
    assert!(matches!(missing, Error::Io { .. }), "{missing}");
    // A member that is no object is a cause.
    let broken = once_per(&["dylib archive, broken"], "a", |archive| {
        let folder = tempfile::tempdir().unwrap();
        let object = folder.path().join("member.o");
        let mut bytes = compile_bytes("member.c", "int member(int n) { return n; }", &[]);
        std::fs::write(&object, &bytes).unwrap();
        tool("ar", &["rcs", archive.to_str().unwrap(), object.to_str().unwrap()]);
        // The index stays.
        let whole = std::fs::read(archive).unwrap();
        let at = whole.windows(4).position(|four| four == b"\x7fELF").unwrap();
        bytes = whole;
        bytes[at + 4] = 9;
        std::fs::write(archive, bytes).unwrap();
    });
    main.add_archive_file(&broken).unwrap();
    for _ in 0..2 {
        let error = find(&main, "member").unwrap_err();
        let Error::Link(LinkError::SymbolFailed { cause, .. }) = &error else { panic!("{error:?}") };
        assert!(matches!(cause.downcast_ref(), Some(Error::Object(_))), "{error:?}");
    }
}
