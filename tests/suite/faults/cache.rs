//! Calls of an object cache that fail: what it gives is what was put in, or nothing, and afterwards it works.

use std::path::Path;
use std::time::{Duration, SystemTime};

use slabjit::fault::{self, Call};
use slabjit::{CacheError, CacheKey, Error, ImageBuilder, Linked, ObjectCache};

use super::errors;
use crate::common::{compile_bytes, open_files, temporary};

const OBJECTS: [&[u8]; 2] = [b"an object", b"another object"];

fn key() -> CacheKey {
    CacheKey::new(["source", "compiler"])
}

/// The files of a folder, without those in folders.
fn files(folder: &Path) -> impl Iterator<Item = std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_file())
}

/// With an import, whose version is the C library's.
fn builder() -> ImageBuilder {
    let source = "int atoi(const char *); int kernel(void) { return atoi(\"3\"); }";
    ImageBuilder::new().object("kernel.o", compile_bytes("cache_faults.c", source, &[]))
}

/// With what is done on request.
fn open(folder: &Path) -> slabjit::Result<ObjectCache> {
    ObjectCache::builder(folder).sync(true).max_entries(2).open()
}

/// Links an image, or finds it; what failed.
fn link(folder: &Path) -> slabjit::Result<Vec<Error>> {
    let image = open(folder)?.get_or_link(&key(), || Ok::<_, Error>(builder()))?;
    match &image.linked {
        Linked::Image(bytes) => assert!(bytes.starts_with(b"\x7fELF")),
        Linked::Objects(_) => assert!(!image.problems.is_empty()),
    }
    Ok(image.problems)
}

/// Puts objects in and gets them, links an image, finds a torn file and one that a killed process left; what failed.
fn script(folder: &Path) -> Vec<Error> {
    let mut errors = Vec::new();
    for object in OBJECTS {
        let put = || {
            let cache = open(folder)?;
            cache.put(&key(), object)?;
            let old = SystemTime::now() - Duration::from_secs(7200);
            files(folder).for_each(|file| std::fs::File::open(file).unwrap().set_modified(old).unwrap());
            let found = cache.get(&key())?;
            assert!(found.as_ref().is_none_or(|found| found == object), "{found:?}");
            Ok(())
        };
        // One failure is made up for by trying again.
        for _ in 0..2 {
            match put() {
                Ok(()) => break,
                Err(error) => errors.push(error),
            }
        }
    }
    for _ in 0..2 {
        match link(folder) {
            Ok(problems) => errors.extend(problems),
            Err(error) => errors.push(error),
        }
    }
    let temporary = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.is_dir());
    let left = std::fs::File::create(temporary.unwrap().join("left")).unwrap();
    left.set_modified(SystemTime::now() - Duration::from_secs(7200)).unwrap();
    for file in files(folder) {
        std::fs::write(file, "torn").unwrap();
    }
    match ObjectCache::open(folder).and_then(|cache| cache.get(&key())) {
        Ok(None) | Err(Error::Cache(CacheError::File { .. })) => {}
        Ok(Some(bytes)) => panic!("{bytes:?} was found"),
        Err(error) => errors.push(error),
    }
    errors
}

pub fn each_call_of_the_cache_in_turn() {
    let counted = |refused: Option<(usize, i32)>| {
        let folder = tempfile::tempdir_in(temporary()).unwrap();
        let path = folder.path().join("cache");
        let refuse = move |index, _| refused.filter(|(at, _)| *at == index).map(|(_, errno)| errno);
        let (errors, calls) = fault::with_errors(refuse, || script(&path));
        assert!(errors.len() <= usize::from(refused.is_some()), "{refused:?}: {errors:?}");
        // It works again.
        let cache = ObjectCache::open(&path).unwrap();
        cache.put(&key(), OBJECTS[0]).unwrap();
        assert_eq!(cache.get(&key()).unwrap().as_deref(), Some(OBJECTS[0]));
        assert!(matches!(link(&path).unwrap()[..], [] | [Error::Cache(CacheError::File { .. })]));
        assert!(link(&path).unwrap().is_empty());
        calls
    };
    // What is asked of the system's libraries once is asked now.
    link(&temporary().join("faults of the cache")).unwrap();
    let calls = counted(None);
    let before = open_files();
    for (index, &call) in calls.iter().enumerate() {
        for &errno in errors::of(call) {
            counted(Some((index, errno)));
        }
    }
    assert_eq!(open_files(), before);
    for call in Call::ALL.iter().filter(|call| call.is_of_cache()) {
        let reached = calls.iter().filter(|c| *c == call).count();
        println!("{reached:>4}  {call:?}: {}, {}", call.function(), call.purpose());
    }
    let left_out = Call::ALL.iter().filter(|call| call.is_of_cache() && !calls.contains(call)).collect::<Vec<_>>();
    assert!(left_out.is_empty(), "never reached: {left_out:?}");
}
