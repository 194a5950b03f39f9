use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use super::entry::Entry;
use super::{CacheKey, LEFTOVER_AGE, ObjectCache, TEMPORARY};
use crate::fault::{self, Call};
use crate::{CacheError, Error};

const OBJECT: &[u8] = b"\x7fELF and what else an object has";

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
    let cache = ObjectCache::open(&path).unwrap();
    let key = CacheKey::new(["source", "options"]);
    cache.put(&key, OBJECT).unwrap();
    let entry = path.join(Entry::file_name(&key));
    let object = path.join(Entry::of(OBJECT).object_name());
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
        for (path, bytes) in
            [(&self.object, OBJECT.to_vec()), (&self.entry, Entry::of(OBJECT).text(&self.key).into_bytes())]
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
    assert_eq!(mode(&cache.path().join(Entry::file_name(&key))), 0o600);
    assert_eq!(fs::read_dir(cache.path().join(TEMPORARY)).unwrap().count(), 0);

    // Opens another handle, like another process; and loses an object.
    let again = ObjectCache::open(cache.path()).unwrap();
    assert_eq!(again.get(&other).unwrap().as_deref(), Some(OBJECT));
    fs::remove_file(cache.path().join(Entry::of(OBJECT).object_name())).unwrap();
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
    fs::copy(filled.cache.path().join(Entry::file_name(&other)), &filled.entry).unwrap();
    filled.assert_refused(&filled.entry, "not the entry of its key");
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

/// Reports that a part of a test is skipped.
fn is_root(what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("not run: only root can make {what}");
    }
    root
}
