use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use super::local::TEMPORARY;
use super::record::{Kind, Record};
use super::{CacheKey, CachedImage, LEFTOVER_AGE, ObjectCache};
use crate::elf::testing;
use crate::fault::{self, Call};
use crate::image::ImageIdentity;
use crate::{CacheError, Error, ImageBuilder, ImageError, JitEngine, Linked};

const OBJECT: &[u8] = b"\x7fELF and what else an object has";

/// Returns the name of the file that has these bytes.
fn name_of(kind: Kind, contents: &[u8]) -> String {
    Record::of(&CacheKey::new(["any"]), kind, contents).contents_name()
}

fn text_of(key: &CacheKey, kind: Kind, contents: &[u8]) -> Vec<u8> {
    Record::of(key, kind, contents).text(key).into_bytes()
}

/// A cache with one object, and the paths of its files.
struct Filled {
    folder: tempfile::TempDir,
    cache: ObjectCache,
    key: CacheKey,
    entry: PathBuf,
    object: PathBuf,
}

fn filled() -> Filled {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b");
    let cache = ObjectCache::builder(&path).sync(true).open().unwrap();
    let key = CacheKey::new(["source", "options"]);
    cache.put(&key, OBJECT).unwrap();
    let entry = path.join(Record::file_name(&key));
    let object = path.join(name_of(Kind::Object, OBJECT));
    Filled { folder, cache, key, entry, object }
}

impl Filled {
    /// Asserts that a file is refused, moved aside and missing from then on; then restores the cache.
    #[track_caller]
    fn assert_refused(&self, file: &Path, why: &str) {
        match self.cache.get(&self.key) {
            Err(Error::Cache(CacheError::File { path, problem, moved_to })) => {
                assert_eq!(path, file);
                assert!(problem.contains(why), "{problem}");
                let aside = PathBuf::from(format!("{}.refused", file.display()));
                assert_eq!(moved_to.unwrap(), aside);
                fs::symlink_metadata(&aside).unwrap();
                let _ = fs::remove_file(&aside).or_else(|_| fs::remove_dir(&aside));
            }
            other => panic!("{other:?}"),
        }
        assert!(fs::symlink_metadata(file).is_err());
        assert_eq!(self.cache.get(&self.key).unwrap(), None);
        self.restore();
    }

    /// Stores an object like `put`, without waiting for the disk.
    #[track_caller]
    fn restore(&self) {
        for (path, bytes) in [(&self.object, OBJECT.to_vec()), (&self.entry, text_of(&self.key, Kind::Object, OBJECT))]
        {
            fs::write(path, bytes).unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
        }
        assert_eq!(self.cache.get(&self.key).unwrap().as_deref(), Some(OBJECT));
    }
}

#[test]
fn what_was_put_in_comes_back() {
    let Filled { folder, cache, key, .. } = filled();
    assert_eq!(cache.get(&key).unwrap().as_deref(), Some(OBJECT));
    let other = CacheKey::new(["other"]);
    assert_eq!(cache.get(&other).unwrap(), None);

    // Equal bytes are stored once.
    cache.put(&other, OBJECT).unwrap();
    assert_eq!(cache.get(&other).unwrap().as_deref(), Some(OBJECT));
    let objects = || {
        fs::read_dir(cache.path())
            .unwrap()
            .filter(|e| e.as_ref().unwrap().path().extension() == Some("o".as_ref()))
            .count()
    };
    assert_eq!(objects(), 1);

    cache.put(&key, b"").unwrap();
    assert_eq!(cache.get(&key).unwrap().as_deref(), Some(&b""[..]));
    assert_eq!(cache.get(&other).unwrap().as_deref(), Some(OBJECT));
    assert_eq!(objects(), 2);

    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&folder.path().join("a")), 0o700);
    assert_eq!(mode(cache.path()), 0o700);
    assert_eq!(mode(&cache.path().join(TEMPORARY)), 0o700);
    assert_eq!(mode(&cache.path().join(Record::file_name(&key))), 0o600);
    assert_eq!(fs::read_dir(cache.path().join(TEMPORARY)).unwrap().count(), 0);

    // Opens another handle, like another process; and loses an object.
    let again = ObjectCache::open(cache.path()).unwrap();
    assert_eq!(again.get(&other).unwrap().as_deref(), Some(OBJECT));
    fs::remove_file(cache.path().join(name_of(Kind::Object, OBJECT))).unwrap();
    assert_eq!(again.get(&other).unwrap(), None);
}

#[test]
fn where_an_input_ends_counts() {
    assert_ne!(CacheKey::new(["ab", "c"]), CacheKey::new(["a", "bc"]));
    assert_ne!(CacheKey::new(["a"]), CacheKey::new(["a", ""]));
    assert_eq!(CacheKey::new(["a", "b"]), CacheKey::new([b"a", b"b"]));
}

#[test]
fn a_miss_is_compiled_once_and_kept() {
    let Filled { folder: _folder, cache, .. } = filled();
    let key = CacheKey::new(["new"]);
    let failed = cache.get_or_compile(&key, || Err("syntax error"));
    assert_eq!(failed.unwrap_err(), "syntax error");
    let made = cache.get_or_compile(&key, || Ok::<_, ()>(vec![1, 2, 3])).unwrap();
    assert!(!made.found && made.bytes == [1, 2, 3] && made.problems.is_empty());
    let found = cache.get_or_compile(&key, || -> Result<_, ()> { panic!("it is there") }).unwrap();
    assert!(found.found && found.bytes == [1, 2, 3] && found.problems.is_empty());
}

#[test]
fn a_torn_or_changed_file_is_never_used() {
    let filled = filled();
    for file in [&filled.entry, &filled.object] {
        let good = fs::read(file).unwrap();
        for length in 0..good.len() {
            fs::write(file, &good[..length]).unwrap();
            filled.assert_refused(file, "it ");
        }
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << (at % 8);
            fs::write(file, bytes).unwrap();
            filled.assert_refused(file, "it");
        }
        fs::write(file, [good, vec![b'\n']].concat()).unwrap();
        filled.assert_refused(file, "it ");
        // The file is not read at that size.
        File::options().write(true).open(file).unwrap().set_len(1 << 40).unwrap();
        filled.assert_refused(file, "it has 1099511627776 bytes, and not ");
    }
    // A reported object is compiled again.
    fs::write(&filled.object, b"something else").unwrap();
    let made = filled.cache.get_or_compile(&filled.key, || Ok::<_, ()>(OBJECT.to_vec())).unwrap();
    assert!(!made.found && made.bytes == OBJECT);
    assert!(matches!(made.problems[..], [Error::Cache(CacheError::File { .. })]), "{:?}", made.problems);
    assert_eq!(filled.cache.get(&filled.key).unwrap().as_deref(), Some(OBJECT));
}

#[test]
fn the_entry_of_another_key_is_refused() {
    let filled = filled();
    let other = CacheKey::new(["other"]);
    filled.cache.put(&other, b"another object").unwrap();
    fs::copy(filled.cache.path().join(Record::file_name(&other)), &filled.entry).unwrap();
    filled.assert_refused(&filled.entry, "not the record of its key");
}

#[test]
fn files_that_others_may_write_or_own_are_refused() {
    let filled = filled();
    for file in [&filled.entry, &filled.object] {
        for mode in [0o620, 0o602, 0o666] {
            fs::set_permissions(file, Permissions::from_mode(mode)).unwrap();
            filled.assert_refused(file, &format!("its mode is {mode:04o}"));
        }
        for mode in [0o400, 0o644, 0o755] {
            fs::set_permissions(file, Permissions::from_mode(mode)).unwrap();
            assert_eq!(filled.cache.get(&filled.key).unwrap().as_deref(), Some(OBJECT));
        }
        if is_root("another user's file") {
            chown(file, Some(1234), None).unwrap();
            filled.assert_refused(file, "user 1234 owns it");
        }
    }
}

#[test]
fn what_is_no_file_is_refused() {
    let filled = filled();
    for file in [&filled.entry, &filled.object] {
        let elsewhere = filled.folder.path().join("elsewhere");
        fs::rename(file, &elsewhere).unwrap();
        symlink(&elsewhere, file).unwrap();
        filled.assert_refused(file, "it is a symbolic link");

        fs::remove_file(file).unwrap();
        // Opening it for reading would wait for a writer.
        rustix::fs::mknodat(rustix::fs::CWD, file, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        filled.assert_refused(file, "it is no file (Fifo)");

        fs::remove_file(file).unwrap();
        fs::create_dir(file).unwrap();
        filled.assert_refused(file, "it is no file (Directory)");

        fs::remove_file(file).unwrap();
        // Paths of sockets are short.
        let socket = filled.folder.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        fs::rename(socket, file).unwrap();
        filled.assert_refused(file, "it is no file (Socket)");
    }
}

/// Folders that must not be used, each fixed by the error's own remedy.
#[test]
fn folders_that_others_may_write_or_own_are_refused() {
    let filled = filled();
    let path = filled.cache.path().to_owned();
    let temporary = path.join(TEMPORARY);
    for (folder, use_it) in [
        (&path, (|filled| ObjectCache::open(filled.cache.path()).map(drop)) as fn(&Filled) -> crate::Result<()>),
        (&temporary, |filled| ObjectCache::open(filled.cache.path()).map(drop)),
        (&temporary, |filled| filled.cache.put(&filled.key, OBJECT)),
    ] {
        let refused = |why: &str, command: &str| match use_it(&filled) {
            Err(Error::Cache(CacheError::Folder { path, problem, remedy })) => {
                assert_eq!(&path, folder);
                assert!(problem.contains(why), "{problem}");
                let (_, command) = remedy.split_once(command).unwrap_or_else(|| panic!("{remedy}"));
                assert!(Command::new("sh").arg("-c").arg(command).status().unwrap().success(), "{command}");
                use_it(&filled).unwrap();
            }
            other => panic!("{other:?}"),
        };
        for mode in [0o720, 0o702, 0o1777] {
            fs::set_permissions(folder, Permissions::from_mode(mode)).unwrap();
            refused(&format!("its mode is {mode:04o}"), "if you trust what is in it: ");
        }
        if is_root("another user's folder") {
            chown(folder, Some(1234), None).unwrap();
            refused("user 1234 owns it, and this process runs as user 0", "if you trust what is in it: ");
        }
    }
}

#[test]
fn what_is_no_folder_is_refused() {
    let filled = filled();
    let path = filled.folder.path().join("other");
    let refused = || match ObjectCache::open(&path) {
        Err(Error::Cache(CacheError::Folder { path: refused, problem, .. })) => {
            assert_eq!(refused, path);
            assert!(problem.contains("not a folder"), "{problem}");
            fs::remove_file(&path).unwrap();
        }
        other => panic!("{other:?}"),
    };
    symlink(filled.cache.path(), &path).unwrap();
    refused();
    symlink("leads nowhere", &path).unwrap();
    refused();
    fs::write(&path, "").unwrap();
    refused();

    // A parent that is not a folder.
    fs::write(&path, "").unwrap();
    let error = ObjectCache::open(path.join("cache")).unwrap_err();
    assert!(matches!(error, Error::Cache(CacheError::System { call: "mkdir", .. })), "{error}");
}

#[test]
fn leftovers_of_killed_processes_go_when_they_are_old() {
    let filled = filled();
    let temporary = filled.cache.path().join(TEMPORARY);
    let leftover = |name: &str, age: Duration| {
        let file = File::create(temporary.join(name)).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    };
    leftover("old", LEFTOVER_AGE + Duration::from_secs(5));
    leftover("new", LEFTOVER_AGE - Duration::from_secs(60));
    leftover("future", Duration::ZERO);
    File::open(temporary.join("future")).unwrap().set_modified(SystemTime::now() + LEFTOVER_AGE).unwrap();
    fs::create_dir(temporary.join("folder")).unwrap();
    ObjectCache::open(filled.cache.path()).unwrap();
    let mut left: Vec<_> = fs::read_dir(&temporary).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["folder", "future", "new"]);
}

/// The disk becomes read-only or full during a write, as after a disk fault: each writing call fails in turn.
#[test]
fn read_only_and_full_disks_are_told_apart() {
    use Call::{CreateCached, MakeCacheFolder, RenameCached, SyncCached, WriteCached};
    let writing = [MakeCacheFolder, CreateCached, WriteCached, SyncCached, RenameCached];
    for (call, errno) in writing.into_iter().flat_map(|call| [(call, libc::EROFS), (call, libc::ENOSPC)]) {
        let Filled { cache, key, folder: _folder, .. } = filled();
        let new = CacheKey::new(["new"]);
        let made = |key| cache.get_or_compile(key, || Ok::<_, ()>(b"new".to_vec())).unwrap();
        let refuse = move |_, asked| (asked == call).then_some(errno);
        let (object, calls) = fault::with_errors(refuse, || made(&new));
        assert!(calls.contains(&call), "{call:?}");
        assert!(object.bytes == b"new" && !object.found, "{call:?}: {object:?}");
        let (source, advice) = match &object.problems[..] {
            [problem @ Error::Cache(CacheError::ReadOnly { source, .. })] if errno == libc::EROFS => {
                (source, problem.to_string())
            }
            [problem @ Error::Cache(CacheError::Full { source, .. })] if errno == libc::ENOSPC => {
                (source, problem.to_string())
            }
            other => panic!("{call:?}: {other:?}"),
        };
        assert_eq!(source.raw_os_error(), Some(errno));
        assert_eq!(advice.contains("mount it writable"), errno == libc::EROFS, "{advice}");
        assert_eq!(advice.contains("free space"), errno == libc::ENOSPC, "{advice}");
        // The earlier object is still there, the attempt left nothing, and the next time the disk is tried again.
        assert_eq!(cache.get(&key).unwrap().as_deref(), Some(OBJECT));
        assert_eq!(fs::read_dir(cache.path().join(TEMPORARY)).unwrap().count(), 0);
        assert!(made(&new).problems.is_empty() && made(&new).found);
    }
}

/// A builder of an object that can be an image, or of one that cannot.
fn builder(source: &str, flags: &[&str]) -> ImageBuilder {
    ImageBuilder::new().object("kernel.o", testing::gcc(&[&["-O1", "-fcf-protection=none"], flags].concat(), source))
}

const PLAIN: &str = "int kernel(int n) { return n + 1; }";

#[track_caller]
fn bytes_of(image: &CachedImage) -> &[u8] {
    match &image.linked {
        Linked::Image(bytes) => bytes,
        Linked::Objects(builder) => panic!("{builder:?}"),
    }
}

fn never() -> Result<ImageBuilder, ()> {
    panic!("it is there")
}

/// The names of files with this extension.
fn files(cache: &ObjectCache, extension: &str) -> Vec<PathBuf> {
    let paths = fs::read_dir(cache.path()).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension() == Some(extension.as_ref())).collect()
}

#[test]
fn an_image_is_linked_once_and_kept() {
    let Filled { folder: _folder, cache, key, .. } = filled();
    let failed = cache.get_or_link(&key, || Err("syntax error"));
    assert_eq!(failed.unwrap_err(), "syntax error");
    let made = cache.get_or_link(&key, || Ok::<_, ()>(builder(PLAIN, &["-fPIC"]))).unwrap();
    assert!(!made.found && made.problems.is_empty(), "{made:?}");
    assert_eq!(bytes_of(&made), builder(PLAIN, &["-fPIC"]).link().unwrap());
    let again = ObjectCache::open(cache.path()).unwrap();
    let found = again.get_or_link(&key, never).unwrap();
    assert!(found.found && found.problems.is_empty() && bytes_of(&found) == bytes_of(&made), "{found:?}");
    // The object of the same key is still there, and each has a file of its own.
    assert_eq!(cache.get(&key).unwrap().as_deref(), Some(OBJECT));
    assert_eq!([files(&cache, "key").len(), files(&cache, "o").len(), files(&cache, "so").len()], [2, 1, 1]);
    // What the cache has for an image is no object, though its key were known.
    let image_key = key.of_image(&ImageIdentity::current());
    assert!(matches!(cache.get(&image_key), Err(Error::Cache(CacheError::File { .. }))));
}

#[test]
fn an_image_of_another_format_or_version_is_not_found() {
    let Filled { folder: _folder, cache, key, .. } = filled();
    let current = ImageIdentity::current();
    let others = [
        ImageIdentity { format: current.format + 1, ..current.clone() },
        ImageIdentity { version: "9.9.9", ..current.clone() },
        ImageIdentity { libraries: blake3::hash(b"another system"), ..current },
    ];
    for other in &others {
        cache.keep(&key.of_image(other), Kind::Image, b"another image").unwrap();
    }
    let made = cache.get_or_link(&key, || Ok::<_, ()>(builder(PLAIN, &["-fPIC"]))).unwrap();
    assert!(!made.found && made.problems.is_empty(), "{made:?}");
    // Each process finds its own.
    for other in &others {
        let found = cache.find(&key.of_image(other), Kind::Image).unwrap();
        assert_eq!(found.as_deref(), Some(&b"another image"[..]));
    }
    assert!(cache.get_or_link(&key, never).unwrap().found);
}

#[test]
fn a_torn_or_changed_image_is_linked_again() {
    let Filled { folder: _folder, cache, .. } = filled();
    let key = CacheKey::new(["image"]);
    let link = || cache.get_or_link(&key, || Ok::<_, ()>(builder(PLAIN, &["-fPIC"]))).unwrap();
    let good = bytes_of(&link()).to_vec();
    let image_key = key.of_image(&ImageIdentity::current());
    let entry = cache.path().join(Record::file_name(&image_key));
    let image = cache.path().join(name_of(Kind::Image, &good));
    let of_a_later_cache = {
        let text = fs::read_to_string(&entry).unwrap().replace("slabjit record 1", "slabjit record 2");
        let lines = text.split_inclusive("check ").next().unwrap().strip_suffix("check ").unwrap();
        format!("{lines}check {}\n", blake3::hash(lines.as_bytes())).into_bytes()
    };
    let mut changed = good.clone();
    changed[good.len() / 2] ^= 1;
    let object_entry = text_of(&image_key, Kind::Object, &good);
    for (file, bytes) in [
        (&image, good[..good.len() / 2].to_vec()),
        (&image, changed),
        (&image, Vec::new()),
        (&entry, b"torn".to_vec()),
        (&entry, of_a_later_cache),
        (&entry, object_entry),
    ] {
        fs::write(file, bytes).unwrap();
        let made = link();
        let [Error::Cache(CacheError::File { path, .. })] = &made.problems[..] else { panic!("{made:?}") };
        assert!(path == file && !made.found && bytes_of(&made) == good, "{made:?}");
        assert!(cache.get_or_link(&key, never).unwrap().found);
    }
    // One whose file was tidied up is no problem.
    fs::remove_file(image).unwrap();
    let made = link();
    assert!(!made.found && made.problems.is_empty() && bytes_of(&made) == good, "{made:?}");
}

#[test]
fn objects_that_cannot_be_an_image_come_back() {
    let Filled { folder: _folder, cache, .. } = filled();
    let key = CacheKey::new(["fixed"]);
    let source = "extern int other; int *kernel(void) { return &other; }";
    // Nothing is kept of it.
    for _ in 0..2 {
        let made = cache.get_or_link(&key, || Ok::<_, ()>(builder(source, &["-fno-pic", "-mcmodel=large"]))).unwrap();
        let [Error::Image(ImageError::NotPositionIndependent { object, .. })] = &made.problems[..] else {
            panic!("{made:?}")
        };
        assert!(object == "kernel.o" && !made.found && matches!(made.linked, Linked::Objects(_)), "{made:?}");
    }
    assert_eq!(files(&cache, "so"), [""; 0].map(PathBuf::from));
    // Compiled anew, it can be one.
    let made = cache.get_or_link(&key, || Ok::<_, ()>(builder(source, &["-fPIC"]))).unwrap();
    assert!(made.problems.is_empty() && !bytes_of(&made).is_empty());
    // So does what is no object; the engine says why.
    let none = || Ok::<_, ()>(ImageBuilder::new().object("none.o", b"#!/bin/sh"));
    let made = cache.get_or_link(&CacheKey::new(["none"]), none).unwrap();
    assert!(matches!(made.problems[..], [Error::Object(_)]), "{made:?}");
    let refused = JitEngine::new().unwrap().add_linked(&made.linked).unwrap_err();
    assert!(matches!(refused, Error::Object(_)) && refused.to_string().contains("none.o"), "{refused}");
}

/// A link that could not read the C library would give imports no versions, for all processes.
#[test]
fn an_image_that_is_linked_in_need_is_not_kept() {
    let Filled { folder: _folder, cache, .. } = filled();
    let key = CacheKey::new(["import"]);
    let objects = builder("#include <stdlib.h>\nint kernel(void) { return abs(atoi(\"3\")); }", &["-fPIC"]);
    ImageIdentity::current();
    let refuse = |_, asked| (asked == Call::OpenObject).then_some(libc::EMFILE);
    let (made, _) = fault::with_errors(refuse, || cache.get_or_link(&key, || Ok::<_, ()>(objects)).unwrap());
    let [Error::Io { path, .. }] = &made.problems[..] else { panic!("{made:?}") };
    assert!(path.ends_with("libc.so.6") && matches!(made.linked, Linked::Objects(_)), "{made:?}");
    assert_eq!(files(&cache, "so").len(), 0);
}

#[test]
fn images_are_linked_on_full_and_read_only_disks() {
    for errno in [libc::EROFS, libc::ENOSPC] {
        let Filled { folder: _folder, cache, .. } = filled();
        let key = CacheKey::new(["image"]);
        let objects = builder(PLAIN, &["-fPIC"]);
        let refuse = move |_, asked| (asked == Call::WriteCached).then_some(errno);
        let (made, _) = fault::with_errors(refuse, || cache.get_or_link(&key, || Ok::<_, ()>(objects)).unwrap());
        let [Error::Cache(CacheError::ReadOnly { .. } | CacheError::Full { .. })] = &made.problems[..] else {
            panic!("{made:?}")
        };
        assert!(!made.found && !bytes_of(&made).is_empty());
    }
}

/// Reports that a part of a test is skipped.
fn is_root(what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("not run: only root can make {what}");
    }
    root
}

fn key(number: usize) -> CacheKey {
    CacheKey::new([number.to_le_bytes()])
}

/// Stores some, the first of which was not used for the longest time: an hour and a second each.
fn store(cache: &ObjectCache, numbers: std::ops::Range<usize>, bytes: usize) {
    for number in numbers.clone() {
        let object = [number as u8; 1].repeat(bytes);
        cache.put(&key(number), &object).unwrap();
        let age = Duration::from_secs(3601) * (numbers.end - number) as u32;
        for name in [name_of(Kind::Object, &object), Record::file_name(&key(number))] {
            File::open(cache.path().join(name)).unwrap().set_modified(SystemTime::now() - age).unwrap();
        }
    }
}

fn found(cache: &ObjectCache, numbers: std::ops::Range<usize>) -> Vec<usize> {
    numbers.filter(|number| cache.get(&key(*number)).unwrap().is_some()).collect()
}

#[test]
fn what_was_not_used_for_long_goes_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    let cache = ObjectCache::builder(&path).open().unwrap();
    store(&cache, 0..10, 1000);
    fs::write(path.join("notes.txt"), [0; 9000]).unwrap();
    // A use counts, and whoever has a file open keeps it.
    assert_eq!(found(&cache, 1..2), [1]);
    let object = name_of(Kind::Object, &[0; 1000]);
    let open = File::open(path.join(object)).unwrap();
    let unbound = cache.gc().unwrap();
    assert_eq!((unbound.entries, unbound.removed_entries), (10, 0));
    let of_entry = (unbound.bytes - 10 * 1000) / 10;

    let bound = ObjectCache::builder(&path).max_entries(7).open().unwrap();
    let collected = bound.gc().unwrap();
    assert_eq!((collected.entries, collected.removed_entries), (7, 3));
    assert_eq!(collected.removed_bytes, 3 * (1000 + of_entry));
    assert_eq!(found(&cache, 0..10), [1, 4, 5, 6, 7, 8, 9]);
    assert_eq!(std::io::read_to_string(open).unwrap().len(), 1000);
    assert_eq!(bound.gc().unwrap().removed_entries, 0);

    // All of these were used now, the last one last.
    for number in 4..10 {
        let times = fs::FileTimes::new().set_modified(SystemTime::now() - Duration::from_secs(60 - number));
        let object = name_of(Kind::Object, &[number as u8; 1000]);
        for name in [object, Record::file_name(&key(number as usize))] {
            File::open(path.join(name)).unwrap().set_times(times).unwrap();
        }
    }
    let bytes = 2 * (1000 + of_entry);
    let bound = ObjectCache::builder(&path).max_bytes(bytes).open().unwrap();
    let collected = bound.gc().unwrap();
    assert_eq!((collected.entries, collected.bytes, collected.removed_entries), (2, bytes, 5));
    assert!(path.join("notes.txt").exists(), "it is not the cache's");
    assert_eq!(fs::read_dir(&path).unwrap().count(), 2 * 2 + 2);
}

#[test]
fn storing_keeps_the_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let cache = ObjectCache::builder(folder.path().join("entries")).max_entries(8).open().unwrap();
    for number in 0..50 {
        cache.put(&key(number), &number.to_le_bytes()).unwrap();
        assert!(cache.gc().unwrap().entries <= 8);
        assert_eq!(found(&cache, number..number + 1), [number]);
    }
    let cache = ObjectCache::builder(folder.path().join("bytes")).max_bytes(100_000).open().unwrap();
    let most = (0..2000).map(|number| {
        cache.put(&key(number), &[number as u8; 1000]).unwrap();
        let sizes = fs::read_dir(cache.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
        sizes.filter(|status| status.is_file()).map(|status| status.len()).sum::<u64>()
    });
    // It is looked at once in five objects on average: thirty times that has no chance.
    let most = most.max().unwrap();
    assert!((90_000..100_000 + 30 * 6250).contains(&most), "{most}");
}

#[test]
fn each_use_is_a_write_once_an_hour() {
    let Filled { cache, key, entry, object, folder: _folder } = filled();
    let times = || [&entry, &object].map(|path| path.metadata().unwrap().modified().unwrap());
    let age = |ages: [u64; 2]| {
        for (path, age) in [&entry, &object].into_iter().zip(ages) {
            File::open(path).unwrap().set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        }
    };
    let young = |at: &SystemTime| at.elapsed().unwrap() < Duration::from_secs(100);
    for (ages, touched) in [([3500, 3500], false), ([3601, 3500], true), ([3500, 3601], true)] {
        age(ages);
        let before = times();
        cache.get(&key).unwrap().unwrap();
        if touched {
            assert!(times().iter().all(young), "{ages:?}: they go together");
        } else {
            assert_eq!(times(), before);
        }
    }
    age([3601, 3601]);
    let refuse = |_, call| (call == Call::TouchCached).then_some(libc::EROFS);
    let (found, calls) = fault::with_errors(refuse, || cache.get(&key).unwrap());
    assert!(found.is_some() && calls.contains(&Call::TouchCached));
}

#[test]
fn layers_are_read_and_never_written() {
    let folder = tempfile::tempdir().unwrap();
    let [own, first, second] = ["own", "first", "second"].map(|name| folder.path().join(name));
    let put = |path: &Path, number: usize, bytes: &[u8]| {
        let cache = ObjectCache::open(path).unwrap();
        cache.put(&key(number), bytes).unwrap();
        let name = name_of(Kind::Object, bytes);
        (path.join(Record::file_name(&key(number))), path.join(name))
    };
    put(&first, 1, b"first");
    put(&second, 1, b"second");
    let (_, torn) = put(&first, 2, b"torn");
    fs::write(&torn, b"TORN").unwrap();
    put(&second, 2, b"whole");
    let (of_third, third) = put(&first, 3, b"third");
    let opened = || ObjectCache::builder(&own).layer(&first).layer(&second).open();
    let cache = opened().unwrap();
    let get = |number: usize| cache.get(&key(number)).map(|found| found.map(|bytes| String::from_utf8(bytes).unwrap()));
    let is = |number: usize, text: &str| assert_eq!(get(number).unwrap().as_deref(), Some(text));
    is(1, "first");
    is(2, "whole");
    assert_eq!(get(4).unwrap(), None);
    // Hits of layers write nothing.
    let old = SystemTime::now() - Duration::from_secs(7200);
    for path in [&of_third, &third] {
        File::open(path).unwrap().set_modified(old).unwrap();
    }
    is(3, "third");
    assert!([&of_third, &third].iter().all(|path| path.metadata().unwrap().modified().unwrap() == old));
    fs::write(&third, b"THIRD").unwrap();
    match get(3) {
        Err(Error::Cache(CacheError::File { path, moved_to: Err(_), .. })) => assert_eq!(path, third),
        other => panic!("{other:?}"),
    }
    assert!(third.exists(), "it stays");
    // The cache's own comes first, and only that is written and collected.
    cache.put(&key(1), b"own").unwrap();
    cache.put(&key(3), b"new").unwrap();
    is(1, "own");
    is(3, "new");
    assert_eq!(cache.gc().unwrap().entries, 2);
    assert_eq!(fs::read_dir(&second).unwrap().count(), 2 * 2 + 1);

    fs::set_permissions(&second, Permissions::from_mode(0o777)).unwrap();
    let error = opened().unwrap_err();
    assert!(matches!(&error, Error::Cache(CacheError::Folder { path, .. }) if *path == second), "{error}");
    fs::remove_dir_all(&second).unwrap();
    let error = opened().unwrap_err();
    assert!(matches!(&error, Error::Cache(CacheError::System { path, .. }) if *path == second), "{error}");
}

#[test]
fn every_entry_is_verified() {
    let Filled { cache, object, .. } = &filled();
    let image = builder("int one(void) { return 1; }", &["-fPIC"]);
    let image = cache.get_or_link(&key(1), || Ok::<_, ()>(image)).unwrap();
    cache.put(&key(2), OBJECT).unwrap();
    fs::write(cache.path().join("notes.key"), "not the cache's").unwrap();
    let verified = cache.verify().unwrap();
    assert_eq!((verified.entries, verified.problems.len()), (3, 0));
    assert_eq!(verified.bytes, 2 * OBJECT.len() as u64 + bytes_of(&image).len() as u64);

    fs::write(object, vec![0; OBJECT.len()]).unwrap();
    fs::write(cache.path().join(Record::file_name(&key(3))), "torn").unwrap();
    let verified = cache.verify().unwrap();
    assert_eq!(verified.entries, 1);
    let problems = verified.problems.iter().map(ToString::to_string).collect::<String>();
    assert!(problems.contains("its bytes do not have the hash") && problems.contains("it is torn"), "{problems}");
    assert_eq!(verified.problems.len(), 2);
    // What was wrong is out of the way.
    assert!(cache.verify().unwrap().problems.is_empty());
}
