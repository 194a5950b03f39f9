//! What a hit, a put, a signature and a miss cost. What is asserted is several times what was measured, as machines
//! differ.

use std::time::{Duration, Instant};

use slabjit::store::{self, SecretKey, Store};
use slabjit::{CacheKey, ObjectCache};

use super::servers::Server;

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn each<T>(of: impl IntoIterator<Item = T>, mut work: impl FnMut(T)) -> Duration {
    let timed = |item| {
        let start = Instant::now();
        work(item);
        start.elapsed()
    };
    median(of.into_iter().map(timed).collect())
}

fn key(number: u32) -> CacheKey {
    CacheKey::new([number.to_le_bytes()])
}

/// An object of 30 KB.
fn object(number: u32) -> Vec<u8> {
    let mut object = vec![7; 30_000];
    object[..4].copy_from_slice(&number.to_le_bytes());
    object
}

/// 30 KB each, in a folder with 2000 entries, or 100 000 (3 GB; `ci/fleet --full`).
pub fn folders() {
    let count = if std::env::var_os("SLABJIT_FLEET_FULL").is_some() { 100_000 } else { 2000 };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plain");
    let cache = ObjectCache::open(&path).unwrap();
    let objects: Vec<_> = (0..2000).map(|i| object(count - 1 - i)).collect();
    (0..count - 2000).for_each(|i| cache.put(&key(i), &object(i)).unwrap());
    let last = |i: usize| key(count - 1 - i as u32);
    let put = each(0..2000, |i| cache.put(&last(i), &objects[i]).unwrap());
    let hit = each(0..2000, |i| drop(cache.get(&last(i)).unwrap().unwrap()));
    println!("{count} entries: put {put:?} (goal: 1 ms), hit {hit:?} (goal: 60 us)");

    let secret = SecretKey::generate().unwrap();
    let signing = ObjectCache::builder(folder.path().join("signed")).sign_with(secret).check_each_load(true);
    let signing = signing.open().unwrap();
    let signed_put = each(0..2000, |i| signing.put(&last(i), &objects[i]).unwrap());
    let signed_hit = each(0..2000, |i| drop(signing.get(&last(i)).unwrap().unwrap()));
    let more = signed_hit.saturating_sub(hit);
    println!("signed at each load: put {signed_put:?}, hit {signed_hit:?}: {more:?} more (goal: 100 us)");

    let start = Instant::now();
    assert_eq!(cache.gc().unwrap().entries, u64::from(count));
    let looking = start.elapsed();
    let collect = |most: u32| {
        let bounded = ObjectCache::builder(&path).max_entries(u64::from(most)).open().unwrap();
        let start = Instant::now();
        assert_eq!(bounded.gc().unwrap().entries, u64::from(most));
        start.elapsed()
    };
    // What comes between two collections of a bounded cache, and then far more than that.
    let (usual, half) = (collect(count - count / 32), collect(count / 2));
    println!("gc: {looking:?} to look through them, {usual:?} to remove a 32nd (goal: 1 s), {half:?} to leave half");
    // As many files as the last one has removed: a record and contents for each entry.
    let plain = folder.path().join("files");
    std::fs::create_dir(&plain).unwrap();
    let names: Vec<_> = (0..2 * (count - count / 32 - count / 2)).map(|file| plain.join(file.to_string())).collect();
    for pair in names.chunks(2) {
        std::fs::write(&pair[0], &objects[0]).unwrap();
        std::fs::write(&pair[1], &objects[0][..500]).unwrap();
    }
    // Those of the cache are on the disk, too.
    assert!(std::process::Command::new("sync").status().unwrap().success());
    let start = Instant::now();
    names.iter().for_each(|name| std::fs::remove_file(name).unwrap());
    println!("{} plain files of these sizes are removed in {:?}", names.len(), start.elapsed());
    assert!(hit < Duration::from_millis(1) && put < Duration::from_millis(5) && looking < Duration::from_secs(5));
}

/// A miss asks the store once.
pub fn misses() {
    for server in [Server::redis(), Server::s3()] {
        let Some((_server, url)) = server else { continue };
        let folder = tempfile::tempdir().unwrap();
        let store = store::open(&url).unwrap();
        let call = each(0..50, |_| assert_eq!(store.get("a.key", 10).unwrap(), None));
        let cache = ObjectCache::builder(folder.path().join("cache")).store(store).read_only(true).open().unwrap();
        let miss = each(0..50, |i| assert_eq!(cache.get(&key(i)).unwrap(), None));
        println!("{url}: one call {call:?}, a miss {miss:?}");
        assert!(miss < call * 3 + Duration::from_millis(20));
    }
}
