//! Large programs: archives that are searched, files that members are read from, and what malloc keeps after a large
//! batch.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use slabjit::{Error, JitEngine, Library};

use crate::common::{self, Checked, call, compile_bytes, freed, open_files, resident, temporary, thread_time};
use crate::target::{not_under_qemu, under_valgrind};

common::tests![
    an_archive_that_was_removed_is_read_still,
    an_archive_that_was_written_is_refused,
    a_batch_whose_members_wait_for_each_other;
    alone: members_are_found_in_near_linear_time, a_large_batch_returns_what_malloc_keeps, a_large_archive_takes_no_memory_of_its_own,
];

/// Names of members' functions are as long, so that one object is all of them.
const NAME: usize = 9;

pub fn name(number: usize) -> String {
    format!("f{number:08}")
}

fn library(engine: &JitEngine) -> Library {
    engine.library("large").build().unwrap()
}

/// A member that calls the next one.
pub struct Template {
    bytes: Vec<u8>,
    own: Vec<usize>,
    next: Vec<usize>,
}

impl Template {
    /// With something beside it.
    pub fn new(file: &str, beside: &str) -> Self {
        let (own, next) = (name(0), name(1));
        let source = format!("int {next}(void); int {own}(void) {{ return {next}() + 1; }} {beside}");
        let bytes = compile_bytes(file, &source, &[]);
        let at = |wanted: &str| {
            let found = bytes.windows(NAME).enumerate().filter(|(_, window)| *window == wanted.as_bytes());
            found.map(|(at, _)| at).collect::<Vec<_>>()
        };
        let (own, next) = (at(&own), at(&next));
        assert!(!own.is_empty() && !next.is_empty());
        Self { bytes, own, next }
    }

    pub fn object(&self, number: usize) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for (places, number) in [(&self.own, number), (&self.next, number + 1)] {
            for at in places {
                bytes[*at..at + NAME].copy_from_slice(name(number).as_bytes());
            }
        }
        bytes
    }

    /// So many of them, and the last.
    pub fn objects(&self, count: usize) -> Vec<Vec<u8>> {
        let last = compile_bytes("large_last.c", &format!("int {}(void) {{ return 7; }}", name(count)), &[]);
        (0..count).map(|number| self.object(number)).chain([last]).collect()
    }
}

/// An archive without an index.
pub fn archive(members: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = b"!<arch>\n".to_vec();
    for (number, member) in members.iter().enumerate() {
        writeln!(bytes, "{:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`", format!("{number}.o/"), 0, 0, 0, 644, member.len())
            .unwrap();
        bytes.extend(member);
        bytes.resize(bytes.len().next_multiple_of(2), b'\n');
    }
    bytes
}

fn written(file: &str, bytes: &[u8]) -> PathBuf {
    let path = temporary().join(file);
    fs::write(&path, bytes).unwrap();
    path
}

/// Two members of more than what is worth a descriptor.
fn large_members() -> Vec<Vec<u8>> {
    let member = |number: i32| {
        let source = format!(
            "int large{number}[100000] = {{1}}; int member{number}(void) {{ return large{number}[0] + {number}; }}"
        );
        compile_bytes(&format!("large_member{number}.c"), &source, &[])
    };
    vec![member(1), member(2)]
}

fn an_archive_that_was_removed_is_read_still() {
    let engine = Checked::new();
    let path = written("removed.a", &archive(&large_members()));
    let library = library(&engine);
    library.add_archive_file(&path).unwrap();
    fs::remove_file(&path).unwrap();
    // Another one of its name does not count.
    fs::write(&path, b"!<arch>\n").unwrap();
    assert_eq!((call(&library, "member2"), call(&library, "member1")), (3, 2));
    freed(&library);
    engine.finish();
}

fn an_archive_that_was_written_is_refused() {
    let engine = Checked::new();
    let bytes = archive(&large_members());
    let path = written("written.a", &bytes);
    let library = library(&engine);
    library.add_archive_file(&path).unwrap();
    assert_eq!(call(&library, "member1"), 2);
    let missing = |name: &str| {
        // SAFETY: nothing is called.
        unsafe { library.get::<common::Int>(name) }.unwrap_err()
    };
    // Cut short, which would be SIGBUS in a mapping, and longer than before.
    for changed in [&bytes[..1000], &[&bytes[..], b"\n\n"].concat()] {
        fs::write(&path, changed).unwrap();
        let error = missing("member2");
        assert!(matches!(&error, Error::Io { path: named, .. } if *named == path), "{error}");
        assert!(error.to_string().contains("changed after it was added"), "{error}");
        // What was linked before is there.
        assert_eq!(call(&library, "member1"), 2);
    }
    // What is added again counts.
    fs::write(&path, &bytes).unwrap();
    assert!(matches!(missing("member2"), Error::Io { .. }));
    freed(&library);
    engine.finish();
}

/// Each waits for the one behind it, and the last for the first.
fn a_batch_whose_members_wait_for_each_other() {
    let engine = Checked::new();
    let source = "static int calls; int again(void) { return calls++; }";
    let template = Template::new("large_ring.c", &source.replace("again", "g00000000"));
    let mut objects: Vec<_> = (0..50).map(|number| template.object(number)).collect();
    // `g00000000` is in all of them: the first counts.
    objects.truncate(1);
    let plain = Template::new("large_chain.c", "");
    objects.extend((1..50).map(|number| plain.object(number)));
    let end = format!("int g00000000(void); int {}(void) {{ return g00000000() + 7; }}", name(50));
    objects.push(compile_bytes("large_ring_end.c", &end, &[]));
    let library = library(&engine);
    library.add_objects(&objects).unwrap();
    assert_eq!((call(&library, &name(0)), call(&library, &name(0)), call(&library, &name(49))), (57, 58, 10));
    freed(&library);
    engine.finish();
}

/// Each member needs the next, so that each is found by a search of its own.
fn members_are_found_in_near_linear_time() {
    if not_under_qemu("what is measured is time") || under_valgrind() {
        return;
    }
    let engine = Checked::new();
    let template = Template::new("large_search.c", "");
    let time = |count: usize| {
        let archive = archive(&template.objects(count));
        let measure = || {
            let library = library(&engine);
            library
                .add_object(compile_bytes(
                    "large_root.c",
                    &format!("int {0}(void); int root(void) {{ return {0}(); }}", name(0)),
                    &[],
                ))
                .unwrap();
            library.add_archive(&archive).unwrap();
            let start = thread_time();
            assert!(library.undefined_symbols().unwrap().is_empty());
            let time = thread_time() - start;
            freed(&library);
            time
        };
        (0..3).map(|_| measure()).min().unwrap_or(Duration::MAX)
    };
    // Eight times as many: 8 if linear, 64 if each search reads all members. Between twice as many, caches of a
    // busy machine alone make 3.3 of 2.
    let (few, many) = (time(2000), time(16_000));
    println!("{few:?} for 2000 members, {many:?} for 16 000");
    assert!(many < few * 20, "{few:?} for 2000 members, {many:?} for 16 000");
    engine.finish();
}

/// Objects of 20 MiB, all of whose graphs are there before the first is finished.
fn a_large_batch_returns_what_malloc_keeps() {
    if not_under_qemu("its own memory counts") || under_valgrind() {
        return;
    }
    let functions: String =
        (0..400).map(|i| format!("__attribute__((used)) static int s{i}(int x) {{ return x * {i}; }}\n")).collect();
    let template = Template::new("large_kept_template.c", &functions);
    let count = (20 << 20) / template.bytes.len();
    let objects = template.objects(count);
    let engine = Checked::new();
    let before = resident();
    let library = library(&engine);
    library.add_objects(&objects).unwrap();
    assert_eq!(call(&library, &name(0)), count as i32 + 7);
    let after = resident();
    let linked = engine.stats().arena.slab_bytes;
    println!("{count} objects: {} KiB more resident, {} KiB linked", (after - before) >> 10, linked >> 10);
    // Names for debuggers and for the dynamic loader: 24 bytes and the name of each function ("s123"), a quarter as much
    // again as room.
    let names = count * 401 * (24 + 5) * 5 / 4 * 2;
    // The rest is what is known of what is linked: names, where each object is, unwind tables.
    assert!(after - before < linked + names + (12 << 20), "{before} {after}, of which {linked} are linked");
    freed(&library);
    engine.finish();
}

/// 64 MiB, of which one small member is needed.
fn a_large_archive_takes_no_memory_of_its_own() {
    if not_under_qemu("its own memory counts") || under_valgrind() {
        return;
    }
    let engine = Checked::new();
    let mut members = vec![compile_bytes("large_wanted.c", "int wanted(void) { return 5; }", &[])];
    members.extend((0..4).map(|_| vec![0; 16 << 20]));
    let path = written("untouched.a", &archive(&members));
    drop(members);
    let (before, files) = (resident(), open_files());
    let library = library(&engine);
    library.add_archive_file(path).unwrap();
    assert_eq!(call(&library, "wanted"), 5);
    // Nothing else is needed of it; the descriptor goes with the library.
    assert!(resident() < before + (40 << 20), "{before} {}", resident());
    freed(&library);
    assert_eq!(open_files(), files);
    engine.finish();
}
