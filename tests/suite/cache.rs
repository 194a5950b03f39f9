//! The cache on disk, from one object to many processes: what a process alone can show is in `src/cache/tests.rs`.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant, SystemTime};

use slabjit::{CacheError, CacheKey, CachedObject, Error, ImageBuilder, ImageError, Linked, ObjectCache};

use crate::common::{
    self, Checked, Random, call, child_command, compile, compile_bytes, freed, link_shared, open_files, temporary,
};
use crate::large::archive;
use crate::target::{by_qemu, not_under_qemu};

common::tests![
    an_object_comes_from_the_cache,
    an_image_comes_from_the_cache,
    objects_that_cannot_be_an_image_are_linked;
    alone: file_size_limit, full_disk, read_only_disk, descriptors_are_closed, many_processes_at_once, others_damage_files;
    parts: worker
];

fn new_cache(name: &str) -> (PathBuf, ObjectCache) {
    let folder = temporary().join(name);
    let cache = ObjectCache::open(&folder).unwrap();
    (folder, cache)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn an_object_comes_from_the_cache() {
    let (_, cache) = new_cache("engine");
    let source = "int answer(void) { return 42; }";
    let key = CacheKey::new(["gcc", source]);
    let engine = Checked::new();
    for found in [false, true] {
        let compile = || Ok::<_, Error>(compile_bytes("answer.c", source, &[]));
        let object = cache.get_or_compile(&key, compile).unwrap();
        assert_eq!(object.found, found);
        let library = engine.add_object_named(&key.to_string(), &object.bytes).unwrap();
        assert_eq!(call(&library, "answer"), 42);
        freed(&library);
    }
    engine.finish();
}

fn an_image_comes_from_the_cache() {
    let (_, cache) = new_cache("images");
    let source = "int answer(void) { return 42; }";
    let key = CacheKey::new(["gcc", source]);
    let engine = Checked::new();
    let mut compiled = 0;
    let mut get = || {
        let compile = || {
            compiled += 1;
            Ok::<_, Error>(compile_bytes("answer.c", source, &[]))
        };
        let objects = || {
            let object = cache.get_or_compile(&key, compile)?;
            Ok::<_, Error>(ImageBuilder::new().object("answer.o", object.bytes))
        };
        cache.get_or_link(&key, objects).unwrap()
    };
    for found in [false, true, false] {
        let image = get();
        assert!(image.found == found && image.problems.is_empty(), "{image:?}");
        let Linked::Image(bytes) = &image.linked else { panic!("{image:?}") };
        for library in [engine.add_image(bytes).unwrap(), engine.add_linked(&image.linked).unwrap()] {
            assert_eq!(call(&library, "answer"), 42);
            freed(&library);
        }
        if found {
            let is_image = |name: &String| name.ends_with(".so");
            let image = names(cache.path()).into_iter().find(is_image).unwrap();
            fs::remove_file(cache.path().join(image)).unwrap();
        }
    }
    // The object was there when the image was not any more.
    assert_eq!(compiled, 1);
    engine.finish();
}

/// With all that a builder has: objects that need each other, an archive, and a shared library.
fn objects_that_cannot_be_an_image_are_linked() {
    let (_, cache) = new_cache("no images");
    let key = CacheKey::new(["fixed"]);
    let needed = compile("cache_needed.c", "int of_needed(void) { return 7; }", &[]);
    let needed = link_shared("libcache_needed.so", &[&needed], &[]);
    let source = "int of_member(void), of_needed(void), twice(int);
        int answer(void) { return twice(of_member() + of_needed()); }
        __asm__(\".pushsection .text\\n .balign 8\\n .quad twice\\n .popsection\");";
    let objects = || {
        let member = compile_bytes("cache_member.c", "int of_member(void) { return 14; }", &[]);
        let builder = ImageBuilder::new()
            .object("fixed.o", compile_bytes("cache_fixed.c", source, &[]))
            .object("twice.o", compile_bytes("cache_twice.c", "int twice(int n) { return 2 * n; }", &[]))
            .archive("member.a", archive(&[member]))
            .shared_library(&needed);
        Ok::<_, Error>(builder)
    };
    let image = cache.get_or_link(&key, objects).unwrap();
    let [Error::Image(ImageError::NotPositionIndependent { object, .. })] = &image.problems[..] else {
        panic!("{image:?}")
    };
    assert!(object == "fixed.o" && !image.found, "{image:?}");
    let engine = Checked::new();
    let library = engine.add_linked(&image.linked).unwrap();
    assert_eq!(call(&library, "answer"), 42);
    freed(&library);
    // A library that defines one of them already stays as it was.
    let library = engine.add_object(compile_bytes("cache_twice.c", "int twice(int n) { return 2 * n; }", &[])).unwrap();
    library.add_linked(&image.linked).unwrap_err();
    assert_eq!((library.symbols(), library.undefined_symbols().unwrap().len()), (vec!["twice".to_owned()], 0));
    drop(library);
    engine.finish();
}

// ---- disks ----

/// An object that is not kept is handed out all the same, and nothing is left of the attempt.
#[track_caller]
fn compiled_though(cache: &ObjectCache, key: &str, bytes: usize) -> Error {
    let key = CacheKey::new([key]);
    let object = cache.get_or_compile(&key, || Ok::<_, ()>(vec![7; bytes])).unwrap();
    let CachedObject { bytes: object, found: false, mut problems, .. } = object else { panic!("{object:?}") };
    assert_eq!(object, vec![7; bytes]);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(names(&cache.path().join("temporary")), [""; 0]);
    problems.remove(0)
}

/// A limit on the size of files, as a batch system sets it: for us much like a full disk. The signal that the kernel
/// sends to who goes beyond it would end the process.
fn file_size_limit() {
    if not_under_qemu("RLIMIT_FSIZE would hold for qemu itself") {
        return;
    }
    let (_, cache) = new_cache("limited");
    cache.put(&CacheKey::new(["small"]), b"small").unwrap();
    let unlimited = common::limit(libc::RLIMIT_FSIZE, 10_000);
    for bytes in [10_001, 50_000] {
        let error = compiled_though(&cache, "large", bytes);
        assert!(
            matches!(&error, Error::Cache(CacheError::Full { source, .. }) if source.raw_os_error() == Some(libc::EFBIG)),
            "{error}"
        );
        assert!(error.to_string().contains("ulimit -f"), "{error}");
        assert_eq!(cache.get(&CacheKey::new(["large"])).unwrap(), None);
    }
    let (exactly, most) = (CacheKey::new(["exactly"]), vec![5; 10_000]);
    cache.put(&exactly, &most).unwrap();
    assert_eq!(cache.get(&exactly).unwrap().as_deref(), Some(&most[..]));
    // Nothing at all: not even the entry.
    common::limit(libc::RLIMIT_FSIZE, 0);
    assert!(matches!(cache.put(&CacheKey::new(["other"]), b"").unwrap_err(), Error::Cache(CacheError::Full { .. })));
    assert_eq!(cache.get(&CacheKey::new(["small"])).unwrap().as_deref(), Some(&b"small"[..]));
    common::limit(libc::RLIMIT_FSIZE, unlimited);
    cache.put(&CacheKey::new(["large"]), &most.repeat(5)).unwrap();
}

/// A disk of 64 KiB of this process's own, if it may mount one.
fn small_disk() -> Option<PathBuf> {
    if not_under_qemu("a mount is the machine's") {
        return None;
    }
    let disk = temporary().join("disk");
    fs::create_dir(&disk).unwrap();
    match mount_small_disk(&disk) {
        Ok(()) => Some(disk),
        Err(error) => {
            println!("not run: this process may not mount anything ({error})");
            None
        }
    }
}

fn full_disk() {
    let Some(disk) = small_disk() else { return };
    let cache = ObjectCache::open(disk.join("cache")).unwrap();
    let good = CacheKey::new(["good"]);
    cache.put(&good, b"good").unwrap();
    let error = compiled_though(&cache, "large", 1 << 20);
    assert!(
        matches!(&error, Error::Cache(CacheError::Full { source, .. }) if source.raw_os_error() == Some(libc::ENOSPC)),
        "{error}"
    );
    assert!(error.to_string().contains("free space"), "{error}");
    // There was room for one that fits.
    cache.put(&CacheKey::new(["fits"]), &[1; 10_000]).unwrap();
    assert_eq!(cache.get(&good).unwrap().as_deref(), Some(&b"good"[..]));
}

/// It says so by an error of its own, and is no full disk.
#[track_caller]
fn assert_read_only(error: &Error) {
    let refused = matches!(error, Error::Cache(CacheError::ReadOnly { source, .. }) if source.raw_os_error() == Some(libc::EROFS));
    assert!(refused && error.to_string().contains("mount it writable"), "{error:?}");
}

fn read_only_disk() {
    let Some(disk) = small_disk() else { return };
    let cache = ObjectCache::open(disk.join("cache")).unwrap();
    let empty = ObjectCache::open(disk.join("empty")).unwrap();
    let (good, bad) = (CacheKey::new(["good"]), CacheKey::new(["bad"]));
    cache.put(&good, b"good").unwrap();
    cache.put(&bad, b"bad").unwrap();
    let object = names(cache.path()).into_iter().map(|name| cache.path().join(name));
    fs::write(object.into_iter().find(|file| fs::read(file).is_ok_and(|bytes| bytes == b"bad")).unwrap(), "BAD")
        .unwrap();
    // What a process that was killed left there is to be removed when a cache is opened.
    let leftover = File::create(disk.join("cache/temporary/left")).unwrap();
    leftover.set_modified(SystemTime::now() - Duration::from_secs(7200)).unwrap();
    drop(leftover);
    mount(&disk, libc::MS_REMOUNT | libc::MS_RDONLY).unwrap();

    // One that was filled elsewhere is opened, and one that is not there is not made.
    let again = ObjectCache::open(cache.path()).unwrap();
    assert_read_only(&ObjectCache::open(disk.join("other")).unwrap_err());
    for cache in [&cache, &again] {
        assert_eq!(cache.get(&good).unwrap().as_deref(), Some(&b"good"[..]));
        let object = cache.get_or_compile(&CacheKey::new(["new"]), || Ok::<_, ()>(b"new".to_vec())).unwrap();
        assert!(object.bytes == b"new" && !object.found && object.problems.len() == 1, "{object:?}");
        assert_read_only(&object.problems[0]);
        // What cannot be moved aside is refused each time, and the object is handed out still.
        for _ in 0..2 {
            let error = cache.get(&bad).unwrap_err();
            assert!(matches!(&error, Error::Cache(CacheError::File { moved_to: Err(_), .. })), "{error}");
        }
        let made = cache.get_or_compile(&bad, || Ok::<_, ()>(b"bad".to_vec())).unwrap();
        assert!(made.bytes == b"bad" && !made.found && made.problems.len() == 2, "{made:?}");
        assert!(matches!(made.problems[0], Error::Cache(CacheError::File { .. })), "{made:?}");
        assert_read_only(&made.problems[1]);
    }
    // Not even the folder for temporary files is there.
    assert_read_only(&empty.put(&good, b"good").unwrap_err());
}

/// A disk of 64 KiB that nobody else sees, and that goes with this process.
fn mount_small_disk(folder: &Path) -> std::io::Result<()> {
    common::mount_alone()?;
    mount(folder, 0)
}

fn mount(folder: &Path, flags: libc::c_ulong) -> std::io::Result<()> {
    common::mount(folder, flags, c"size=64k")
}

// ---- descriptors ----

fn descriptors_are_closed() {
    let before = open_files();
    let (folder, cache) = new_cache("descriptors");
    assert_eq!(open_files(), before + 1);
    let key = CacheKey::new(["key"]);
    for _ in 0..20 {
        assert_eq!(cache.get(&key).unwrap(), None);
        cache.put(&key, b"object").unwrap();
        cache.get(&key).unwrap().unwrap();
        drop(ObjectCache::open(&folder).unwrap());
        for name in names(&folder).into_iter().filter(|name| name.ends_with(".key")) {
            fs::set_permissions(folder.join(name), Permissions::from_mode(0o666)).unwrap();
        }
        cache.get(&key).unwrap_err();
        ObjectCache::open(folder.join("temporary")).unwrap();
        fs::set_permissions(folder.join("temporary"), Permissions::from_mode(0o777)).unwrap();
        cache.put(&key, b"object").unwrap_err();
        ObjectCache::open(&folder).unwrap_err();
        fs::remove_dir(folder.join("temporary")).unwrap();
    }
    assert_eq!(open_files(), before + 1);
    drop(cache);
    assert_eq!(open_files(), before);
}

// ---- processes ----

const KEYS: usize = 8;
const FOLDER: &str = "SLABJIT_TEST_CACHE";
const SEED: &str = "SLABJIT_TEST_SEED";

/// What a worker compiles: it tells by itself for which key, by whom, and whether it is whole.
fn object_of(key: usize, worker: u64) -> Vec<u8> {
    let mut random = Random::new(worker.wrapping_mul(KEYS as u64).wrapping_add(key as u64));
    let words = 1000 + random.below(10_000);
    let body = std::iter::repeat_with(move || random.next()).take(words);
    [key as u64, worker].into_iter().chain(body).flat_map(u64::to_le_bytes).collect()
}

fn assert_is_of(key: usize, bytes: &[u8]) {
    let word = |at: usize| u64::from_le_bytes(bytes[at * 8..at * 8 + 8].try_into().unwrap());
    assert_eq!(word(0), key as u64, "an object of another key");
    assert!(bytes == object_of(key, word(1)), "an object that nobody compiled");
}

const OBJECT: &str = "SLABJIT_TEST_OBJECT";
const TEXT: &str = "const char text[] = \"the image of key .\";";

/// An object that tells its key, for an image.
fn builder_of(key: usize, mut object: Vec<u8>) -> ImageBuilder {
    let at = object.windows(17).position(|bytes| bytes == b"the image of key ").unwrap();
    object[at + 17] = b'0' + key as u8;
    ImageBuilder::new().object("text.o", object)
}

fn assert_is_image_of(key: usize, linked: &Linked, object: &[u8]) {
    let Linked::Image(bytes) = linked else { panic!("{linked:?}") };
    assert!(*bytes == builder_of(key, object.to_vec()).link().unwrap(), "not the image of this key");
}

/// Reads and fills the same few keys as all others, once they are all there. Prints how many problems there were.
fn worker() {
    let text = fs::read(std::env::var_os(OBJECT).unwrap()).unwrap();
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let seed: u64 = std::env::var(SEED).unwrap().parse().unwrap();
    let mut random = Random::new(seed);
    File::create(folder.with_extension("ready").join(seed.to_string())).unwrap();
    while !folder.with_extension("go").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let cache = ObjectCache::open(&folder).unwrap();
    let mut problems = 0;
    for _ in 0..16 {
        let key = random.below(KEYS);
        let cache_key = CacheKey::new([key.to_string()]);
        // Some compile again what is there, as with another version of a compiler that forgot to say so.
        if random.below(4) == 0 {
            cache.put(&cache_key, &object_of(key, seed)).unwrap();
        }
        let object = cache.get_or_compile(&cache_key, || Ok::<_, ()>(object_of(key, seed))).unwrap();
        assert_is_of(key, &object.bytes);
        let image = cache.get_or_link(&cache_key, || Ok::<_, ()>(builder_of(key, text.clone()))).unwrap();
        assert_is_image_of(key, &image.linked, &text);
        for problem in object.problems.into_iter().chain(image.problems) {
            assert!(matches!(problem, Error::Cache(CacheError::File { .. })), "{problem}");
            problems += 1;
        }
    }
    println!("{problems} problems");
}

/// Starts workers, and has something happen again and again until they have all ended. Returns those that were not
/// killed, with what they printed.
fn with_workers(folder: &Path, workers: usize, mut meanwhile: impl FnMut(&mut [Child])) -> Vec<String> {
    let ready = folder.with_extension("ready");
    fs::create_dir(&ready).unwrap();
    let object = compile("cache_text.c", TEXT, &[]);
    let start = |seed: usize| {
        let mut command = child_command("worker");
        command.env(FOLDER, folder).env(SEED, seed.to_string()).env(OBJECT, &object);
        command.stdout(std::process::Stdio::piped()).spawn().unwrap()
    };
    let mut children: Vec<Child> = (0..workers).map(start).collect();
    let deadline = Instant::now() + Duration::from_secs(300);
    while names(&ready).len() < workers {
        assert!(Instant::now() < deadline, "the workers did not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    File::create(folder.with_extension("go")).unwrap();
    while children.iter_mut().any(|child| child.try_wait().unwrap().is_none()) {
        assert!(Instant::now() < deadline, "the workers did not end");
        meanwhile(&mut children);
    }
    let ends = children.into_iter().map(|child| child.wait_with_output().unwrap());
    let ends = ends.filter(|end| std::os::unix::process::ExitStatusExt::signal(&end.status) != Some(libc::SIGKILL));
    ends.map(|end| {
        assert!(end.status.success(), "{}", end.status);
        String::from_utf8(end.stdout).unwrap()
    })
    .collect()
}

fn many_processes_at_once() {
    let (folder, _) = new_cache("processes");
    let workers = by_qemu(256, 16);
    let mut random = Random::new(5);
    let mut kills = workers / 3;
    let ended = with_workers(&folder, workers, |children| {
        std::thread::sleep(Duration::from_millis(3));
        if kills > 0 {
            let _ = children[random.below(workers)].kill();
            kills -= 1;
        }
    });
    assert!(ended.len() >= workers - workers / 3 && ended.len() < workers, "{}", ended.len());
    // Kills tear nothing.
    assert!(ended.iter().all(|said| said.trim() == "0 problems"), "{ended:?}");

    let temporary = folder.join("temporary");
    let leftovers = names(&temporary);
    println!("{} of {workers} processes were killed, {} while they wrote", workers - ended.len(), leftovers.len());
    let yesterday = SystemTime::now() - Duration::from_secs(24 * 60 * 60);
    for name in leftovers {
        File::options().write(true).open(temporary.join(name)).unwrap().set_modified(yesterday).unwrap();
    }
    let cache = ObjectCache::open(&folder).unwrap();
    assert_eq!(names(&temporary), [""; 0]);
    let text = compile_bytes("cache_text.c", TEXT, &[]);
    for key in 0..KEYS {
        let cache_key = CacheKey::new([key.to_string()]);
        assert_is_of(key, &cache.get(&cache_key).unwrap().unwrap());
        let image = cache.get_or_link(&cache_key, || -> Result<_, ()> { panic!("it is there") }).unwrap();
        assert_is_image_of(key, &image.linked, &text);
    }
    assert!(!names(&folder).iter().any(|name| name.ends_with(".refused")));
}

/// Files are cut and overwritten in place while others read them.
fn others_damage_files() {
    let (folder, _) = new_cache("damaged");
    let mut random = Random::new(6);
    let mut damaged = 0;
    let ended = with_workers(&folder, by_qemu(16, 4), |_| {
        // It may have been moved meanwhile, and `temporary` is no file.
        let files = names(&folder);
        let Some(file) = files.get(random.below(files.len().max(1))) else { return };
        let Ok(file) = File::options().write(true).open(folder.join(file)) else { return };
        let Ok(length) = file.metadata().map(|metadata| metadata.len()) else { return };
        let at = random.next() % length.max(1);
        let done = if random.below(2) == 0 {
            file.set_len(at)
        } else {
            std::os::unix::fs::FileExt::write_all_at(&file, &random.next().to_le_bytes(), at)
        };
        damaged += usize::from(done.is_ok());
        std::thread::sleep(Duration::from_micros(500));
    });
    let refused: usize = ended.iter().map(|said| said.split(' ').next().unwrap().parse::<usize>().unwrap()).sum();
    println!("files were damaged {damaged} times, and refused {refused} times");
    assert!(refused > 0, "nothing was damaged in time");
}
