//! What a shared store has for a key: records of any bytes, and what they lead to. Without a signature nothing is
//! found, and else what the record says.
#![no_main]

use std::sync::{Arc, LazyLock, Mutex};

use libfuzzer_sys::Corpus;
use slabjit::store::{SecretKey, Store, StoreError};
use slabjit::{CacheKey, ObjectCache};

const OBJECT: &[u8] = b"\x7fELF and what else an object has";

/// A store with one record and one object under any name.
#[derive(Clone, Default)]
struct One(Arc<Mutex<(Vec<u8>, Vec<u8>)>>);

impl Store for One {
    fn get(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let values = self.0.lock().unwrap();
        let value = if name.ends_with(".key") { &values.0 } else { &values.1 };
        // One that does not keep to the limit, sometimes.
        let is_obeyed = value.len() % 2 == 0 || value.len() as u64 <= most;
        if is_obeyed { Ok(Some(value.clone())) } else { Err("too long".into()) }
    }

    fn put_if_absent(&self, name: &str, value: &[u8]) -> Result<bool, StoreError> {
        let mut values = self.0.lock().unwrap();
        *(if name.ends_with(".key") { &mut values.0 } else { &mut values.1 }) = value.to_vec();
        Ok(true)
    }

    fn delete(&self, _: &str) -> Result<(), StoreError> {
        Ok(())
    }
}

struct Caches {
    _folder: tempfile::TempDir,
    store: One,
    key: CacheKey,
    strict: ObjectCache,
    open: ObjectCache,
    /// The lines of a record that a stranger has signed.
    record: Vec<u8>,
}

static CACHES: LazyLock<Caches> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let (store, key) = (One::default(), CacheKey::builder().part("source", "fuzz").build());
    let open = |name: &str| ObjectCache::builder(folder.path().join(name)).store(store.clone());
    let (trusted, stranger) = (SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
    let builder = open("builder").sign_with(stranger).open().unwrap();
    builder.put(&key, OBJECT).unwrap();
    drop(builder);
    let record = store.0.lock().unwrap().0.clone();
    let strict = open("strict").trusted_keys([trusted.public().clone()]).read_only(true).open().unwrap();
    let open = open("open").require_signature(false).read_only(true).open().unwrap();
    Caches { _folder: folder, store, key, strict, open, record }
});

libfuzzer_sys::fuzz_target!(|input: (bool, Vec<(u16, u8)>, Vec<u8>, Vec<u8>)| -> Corpus {
    let (is_checked, changes, inserted, contents) = input;
    let Caches { store, key, strict, open, record, .. } = &*CACHES;
    let mut record = record.clone();
    for (at, byte) in &changes {
        let at = usize::from(*at) % record.len();
        record[at] = *byte;
    }
    if let Some((at, _)) = changes.first() {
        let at = usize::from(*at) % record.len();
        record.splice(at..at, inserted);
    }
    if is_checked {
        // Behind the hash that everybody can make.
        let lines = record.windows(7).position(|line| line == b"\ncheck ").map_or(record.len(), |at| at + 1);
        record.truncate(lines);
        record.extend_from_slice(format!("check {}\n", blake3::hash(&record)).as_bytes());
    }
    let contents = if contents.is_empty() { OBJECT.to_vec() } else { contents };
    *store.0.lock().unwrap() = (record, contents.clone());
    if let Ok(found) = strict.get(key) {
        assert_eq!(found, None, "nobody who is trusted has signed it");
    }
    let found = open.get(key).ok().flatten();
    if let Some(found) = &found {
        assert_eq!(found, &contents);
        for name in [format!("{key}.key"), format!("{}.o", blake3::hash(found))] {
            std::fs::remove_file(open.path().join(name)).unwrap();
        }
    }
    if found.is_some() || is_checked { Corpus::Keep } else { Corpus::Reject }
});
